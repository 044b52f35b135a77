"""Runs a whole simulation, from the history to the document and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakeplan.formats.namespace import known_as
from lakeplan.retention.graph import oldest_first
from lakeplan.retention.rules import to_us
from lakeplan.simulation.cache import RangeCache
from lakeplan.simulation.documents import (
    MAX_ROWS,
    ObjectSide,
    ObjectsOf,
    PrefixRow,
    RangesRead,
    SimulateDocument,
    SimulateRequest,
    judge_all,
    summary,
)
from lakeplan.simulation.engine import (
    Asking,
    ByPrefix,
    ExpiryUnderRules,
    ask,
    branch_totals,
    goes,
    largest,
    rows_of,
)
from lakeplan.simulation.inputs import (
    Collected,
    CommitHistory,
    NamespaceMetadata,
    collect_ranges,
    listing_items,
    read_history,
)
from lakeplan.simulation.listings import StagedRun, find_run
from lakeplan.simulation.local import PacketKind, from_bytes
from lakeplan.simulation.observing import Source
from lakeplan.simulation.output import (
    OBJECTS,
    PREFIXES,
    branches_table,
    check_target,
    commits_table,
    schema_of,
    table_of,
    write_summary,
    write_table,
    writing,
    written,
)
from lakeplan.simulation.requests import Facts
from lakeplan.simulation.runners import Runner, Runners, WorkItem
from lakeplan.simulation.verdicts import Judged, bits_of, totals_of
from lakeplan.stores.open import NamespaceReader
from lakeplan.values.progress import Progress
from lakeplan.values.simulation import Amount, RunnerChoice


@dataclass(frozen=True)
class Prepared:
    """The data that is read before the job starts. ``listing``: the part that workers list, or None."""

    history: CommitHistory
    judged: list[Judged]
    staged: StagedRun
    collected: Collected
    listing: list[WorkItem] | None

    @property
    def items(self) -> list[WorkItem]:
        return [*(self.listing or ()), *self.staged.items(), *self.collected.items]


def prepare(request: SimulateRequest, namespace: NamespaceReader, progress: Progress) -> Prepared:
    history = read_history(namespace)
    judged = judge_all(request, history)
    staged = find_run(
        namespace, as_of_us=to_us(request.as_of), max_age_seconds=request.max_uncommitted_age_seconds
    )
    listing = listing_items(namespace) if request.listing and request.inventory is None else None
    if request.inventory is not None:
        listing = request.inventory.items()
    facts = metarange_facts(history, judged)
    with progress.task("reading metaranges", len(facts)) as step:
        collected = collect_ranges(NamespaceMetadata(namespace), facts, name=namespace.url, step=step)
    return Prepared(history, judged, staged, collected, listing)


def metarange_facts(history: CommitHistory, judged: Sequence[Judged]) -> dict[str, Facts]:
    """Return the facts that ranges inherit from each metarange, for all commits including dangling ones."""
    graph, bits = history.graph, bits_of(tuple(one.rule_set for one in judged))
    facts: dict[str, Facts] = {}
    for at, commit in enumerate(oldest_first(graph)):
        meta_range_id = graph.meta_range_ids[commit]
        if not meta_range_id:
            continue
        mask = reduce(or_, (one.mask(commit, its) for one, its in zip(judged, bits, strict=True)))
        its_facts = Facts(mask, at, tuple(one.holders(commit) for one in judged))
        facts[meta_range_id] = facts.get(meta_range_id, Facts()) | its_facts
    return facts


ROWS_A_FILE = 1_000_000


def run_job(
    runner: Runner,
    choice: RunnerChoice,
    request: SimulateRequest,
    namespace: NamespaceReader,
    prepared: Prepared,
    folder: Path | None,
    cache: RangeCache | None = None,
) -> SimulateDocument:
    """The summary. All tables and the summary are also written to ``folder``, if given, which must be empty.
    Raises the error of a file that cannot be read, which names it."""
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
    question = ExpiryUnderRules(bits, listing, rows=folder is not None)
    asking = Asking(source, question, prepared.items, prepared.collected.entries)
    objects = _ObjectFiles(folder, len(bits) > 1) if folder is not None else None
    graph = prepared.history.graph
    last = dict(enumerate(graph.ids[commit] for commit in oldest_first(graph)))

    def write(_: int, kind: PacketKind, data: bytes) -> None:
        if objects is not None:
            table = from_bytes(data)
            for one in bits:
                objects.add(rows_of(goes(table, one, listing=listing), last, one))

    (answer,) = ask(runner, [asking], take=write)
    classes, prefixes = answer.checked().classes, answer.prefixes
    by_rule_set = {}
    for n, (one, judged) in enumerate(zip(bits, prepared.judged, strict=True)):
        held = branch_totals(
            classes, prepared.collected.holder_sets, n, len(judged.branches.names), listing=listing
        )
        totals = totals_of(classes, one, listing=listing)
        by_rule_set[one.name] = ObjectsOf(
            totals, held, [_row(*row) for row in largest(prefixes.get(one.name, {}), MAX_ROWS)]
        )
    read = RangesRead(prepared.collected, choice)
    side = ObjectSide(prepared.staged, read, listing, by_rule_set, runner.versions)
    document = summary(request, namespace.url, prepared.history, prepared.judged, side)
    if folder is not None and objects is not None:
        objects.close()
        write_table(folder / "commits", commits_table(graph, prepared.judged))
        write_table(folder / "prefixes", _prefix_table(prefixes, len(bits) > 1))
        held_by = {name: of_one.branches for name, of_one in by_rule_set.items()}
        write_table(folder / "branches", branches_table(prepared.judged, held_by))
        write_summary(folder, document)
    return document


class _ObjectFiles:
    """Writes ``objects/``. Rows are sorted within each file."""

    def __init__(self, folder: Path, with_rule_set: bool) -> None:
        self._folder = folder / "objects"
        self._schema = schema_of(OBJECTS, with_rule_set=with_rule_set)
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


def _row(prefix: str, amount: Amount) -> PrefixRow:
    return {
        "prefix": prefix,
        "depth": prefix.count("/"),
        "objects": amount.objects,
        "size_bytes": amount.size_bytes,
    }


def _prefix_table(prefixes: ByPrefix, with_rule_set: bool) -> pa.Table:
    rows = [
        {**_row(prefix, amount), "rule_set": name}
        for name, amounts in prefixes.items()
        for prefix, amount in sorted(amounts.items())
    ]
    columns = {name: [row[name] for row in rows] for name in (*PREFIXES.names, "rule_set")}
    return table_of(columns, PREFIXES, with_rule_set=with_rule_set)


def simulate(
    request: SimulateRequest,
    namespace: NamespaceReader,
    runners: Runners,
    progress: Progress,
    cache: RangeCache | None = None,
) -> SimulateDocument:
    """The summary document of a complete run. Writes the tables if an output is requested.

    Raises UsageError for the output, StorageError and FormatError for what cannot be read, and
    SimulationFailed when the runner stops. There is no partial answer.
    """
    if request.output is not None:
        check_target(request.output, overwrite=request.overwrite)
    prepared = prepare(request, namespace, progress)
    collected = prepared.collected
    with (
        runners.open(collected.entries) as (runner, choice),
        progress.task(f"reading {len(collected.items)} ranges", None),
    ):
        if request.output is None:
            return run_job(runner, choice, request, namespace, prepared, None, cache)
        with written(request.output, overwrite=request.overwrite) as folder:
            return run_job(runner, choice, request, namespace, prepared, folder, cache)
