"""One namespace: reads it once, and answers for every rule set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeplan.core.retention import by_date, to_us
from lakeplan.model.simulation import Amount
from lakeplan.ports.range_cache import RangeCache
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation import tables
from lakeplan.simulation.addresses import known_as
from lakeplan.simulation.columns import OBJECTS, PREFIXES
from lakeplan.simulation.document import MAX_ROWS, Json, ObjectSide, ObjectsOf, summary
from lakeplan.simulation.engine import Answer, Asking, ask
from lakeplan.simulation.exchange import Of, from_bytes
from lakeplan.simulation.going import ByPrefix, add_prefixes, goes, rows_of
from lakeplan.simulation.holdings import branch_totals
from lakeplan.simulation.inputs import NamespaceMetadata
from lakeplan.simulation.observing import Source
from lakeplan.simulation.output import write_summary, writing
from lakeplan.simulation.prepare import Prepared
from lakeplan.simulation.questions import GoesUnderRules
from lakeplan.simulation.request import SimulateRequest
from lakeplan.simulation.rulesets import bits_of
from lakeplan.simulation.runners import Choice, Runner
from lakeplan.simulation.totals import ObjectClass, totals_of

ROWS_A_FILE = 1_000_000


def run_job(
    runner: Runner,
    choice: Choice,
    request: SimulateRequest,
    namespace: NamespaceReader,
    prepared: Prepared,
    folder: Path | None,
    cache: RangeCache | None = None,
) -> Json:
    """The summary; with ``folder``, which is empty, all tables and the summary are written there too. Raises
    the error of a file that cannot be read, by its name."""
    bits = bits_of(request.rule_sets)
    listing = prepared.listing is not None
    source = Source(
        name=namespace.url,
        metadata=NamespaceMetadata(namespace),
        addresses=known_as(namespace.url, request.storage_namespace),
        namespace=namespace,
        young_from_us=to_us(request.as_of) - request.min_age_seconds * 1_000_000,
        inventory=request.inventory,
        cache=cache,
        verify_ids=False,
    )
    question = GoesUnderRules(bits, listing, rows=folder is not None)
    asking = Asking(source, question, prepared.items, prepared.collected.entries)
    classes: list[ObjectClass] = []
    prefixes: ByPrefix = {}
    objects = _ObjectFiles(folder, len(bits) > 1) if folder is not None else None
    graph = prepared.history.graph
    last = {at: graph.ids[commit] for at, commit in ((at, c) for c, at in enumerate(by_date(graph)))}
    for _, found in ask(runner, [asking]):
        if isinstance(found, Answer):
            if found.error is not None:
                raise found.error
            classes = found.classes
            continue
        of, data = found
        if of is Of.PREFIXES:
            add_prefixes(prefixes, [from_bytes(data)])
        elif objects is not None:
            table = from_bytes(data)
            for one in bits:
                objects.add(rows_of(goes(table, one, listing=listing), last, one))
    by_rule_set = {}
    for n, (one, judged) in enumerate(zip(bits, prepared.judged, strict=True)):
        held = branch_totals(
            classes, prepared.collected.holder_sets, n, len(judged.branches.names), listing=listing
        )
        totals = totals_of(classes, one, listing=listing)
        by_rule_set[one.name] = ObjectsOf(totals, held, _largest(prefixes.get(one.name, {})))
    side = ObjectSide(prepared.staged, prepared.collected, listing, by_rule_set, runner.versions, choice)
    document = summary(request, namespace.url, prepared.history, prepared.judged, side)
    if folder is not None and objects is not None:
        objects.close()
        tables.write(folder / "commits", tables.commits(graph, prepared.judged))
        tables.write(folder / "prefixes", _prefix_table(prefixes, len(bits) > 1))
        held_by = {name: of_one.branches for name, of_one in by_rule_set.items()}
        tables.write(folder / "branches", tables.branches(prepared.judged, held_by))
        write_summary(folder, document)
    return document


class _ObjectFiles:
    """``objects/``: rows in order within each file."""

    def __init__(self, folder: Path, with_rule_set: bool) -> None:
        self._folder = folder / "objects"
        self._schema = tables.schema(OBJECTS, with_rule_set=with_rule_set)
        self._waiting: list[pa.Table] = []
        self._rows = self._files = 0
        with writing(folder):
            self._folder.mkdir()

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows.select(self._schema.names).cast(self._schema))
        self._rows += rows.num_rows
        if self._rows >= ROWS_A_FILE:
            self._flush()

    def close(self) -> None:
        if self._rows or not self._files:
            self._flush()

    def _flush(self) -> None:
        table = pa.concat_tables([self._schema.empty_table(), *self._waiting]).sort_by("address")
        with writing(self._folder):
            pq.write_table(table, self._folder / f"part-{self._files:05}.parquet", compression="snappy")
        self._waiting, self._rows, self._files = [], 0, self._files + 1


def _largest(amounts: Mapping[str, Amount]) -> list[Json]:
    """Rows of the prefixes with most bytes, then most objects, then by name."""
    order = sorted(amounts.items(), key=lambda row: (-row[1].size_bytes, -row[1].objects, row[0]))
    return [_row(prefix, amount) for prefix, amount in order[:MAX_ROWS]]


def _row(prefix: str, amount: Amount) -> dict[str, Any]:
    values = (prefix, prefix.count("/"), amount.objects, amount.size_bytes)
    return dict(zip((column.name for column in PREFIXES), values, strict=True))


def _prefix_table(prefixes: ByPrefix, with_rule_set: bool) -> pa.Table:
    rows = [
        {**_row(prefix, amount), "rule_set": name}
        for name, amounts in prefixes.items()
        for prefix, amount in sorted(amounts.items())
    ]
    schema = tables.schema(PREFIXES, with_rule_set=with_rule_set)
    return tables.table({name: [row[name] for row in rows] for name in schema.names}, schema)
