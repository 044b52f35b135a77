"""What a mark of a recorded namespace needs, as of the recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import SparkSession

from lakeplan.formats.collector import files_of_run, newest_run
from lakeplan.formats.marks import read_part
from lakeplan.formats.namespace import GC_UNCOMMITTED_PREFIX, REFS_MANIFEST_KEY
from lakeplan.formats.refs import read_manifest, read_refs
from lakeplan.retention.graph import by_date
from lakeplan.retention.keep import KeepRules, keep_masks
from lakeplan.simulation.inputs import NamespaceMetadata, read_history
from lakeplan.simulation.requests import Facts, MarkRequest
from lakeplan.stores.open import SweepStore
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Part

PREFIX = "_lakeplan/marks/golden/"


@contextmanager
def active() -> Iterator[SparkSession]:
    session = SparkSession.getActiveSession()
    assert session is not None
    yield session


def addresses(store: SweepStore, parts: tuple[Part, ...], prefix: str = "") -> dict[str, list[str]]:
    """Addresses by class."""
    found: dict[str, list[str]] = {}
    for part in parts:
        rows = read_part(store.read(prefix + part.name), name=part.name, sha256=part.sha256)
        for row in rows.to_pylist():
            found.setdefault(row["class"], []).append(row["address"])
    return {kind: sorted(of_kind) for kind, of_kind in found.items()}


def mark_request(store: SweepStore, case: dict[str, Any], listing: tuple[Part, ...]) -> MarkRequest:
    """Everything a mark of the recorded moment needs, out of the recorded namespace."""
    collector = case["official_collector"]
    metadata = NamespaceMetadata(store)
    graph = read_history(store).graph
    refs = read_refs(read_manifest(store.read(REFS_MANIFEST_KEY)), metadata.read_metadata)
    body = collector["rules"]
    rules = KeepRules(
        GcRules(
            body["default_retention_days"],
            {b["branch_id"]: b["retention_days"] for b in body["branches"] or ()},
        ),
        datetime.fromtimestamp(collector["as_of"], tz=timezone.utc),
        timezone.utc,
        margin_seconds=0,
    )
    dates, facts = by_date(graph), dict[str, Facts]()
    for commit, (id, mask) in enumerate(
        zip(graph.meta_range_ids, keep_masks(graph, refs, rules), strict=True)
    ):
        if id:
            known = facts.get(id, Facts(0))
            facts[id] = Facts(known.mask | mask, max(known.last, dates[commit]))
    keys = [o.key for o in store.list_objects(GC_UNCOMMITTED_PREFIX)]
    run = newest_run(keys)
    return MarkRequest(
        store=store,
        prefix=PREFIX,
        storage_namespace=case["repository"]["storage_namespace"],
        metadata=metadata,
        listing=listing,
        uncommitted=tuple(files_of_run(keys, run)) if run else (),
        metaranges=facts,
        last_commits=dict(zip(dates, graph.ids, strict=True)),
        collect_never_committed=True,
    )
