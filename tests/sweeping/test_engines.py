"""Spark and the plain engine mark the same objects for the same reasons: else tests with the plain one would
prove nothing of the product."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from datetime import timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lakeplan.formats.marks import read_part
from lakeplan.formats.namespace import GC_UNCOMMITTED_PREFIX, REFS_MANIFEST_KEY
from lakeplan.formats.refs import read_manifest, read_refs
from lakeplan.retention.graph import CommitGraph, by_date
from lakeplan.retention.keep import KeepRules, keep_masks
from lakeplan.simulation.inputs import NamespaceMetadata
from lakeplan.simulation.marking import StepMarker
from lakeplan.simulation.requests import Facts, ForeignRanges, Marker, MarkRequest, RecheckRequest
from lakeplan.values.repository import Entry
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Part
from tests.simulation.namespaces import (
    NOW,
    SERVER_URL,
    History,
    Snapshot,
    Stored,
    entry,
    full,
    write_namespace,
)
from tests.sweeping.plain import PlainMarker
from tests.sweeping.stores import folder_store

if TYPE_CHECKING:
    from lakeplan.simulation.runners import Runners

pytestmark = pytest.mark.spark

KEYS = [
    *(f"data/p{n}/o{n}" for n in range(6)),
    "root-object",
    "dummy",
    "_lakefs/no",
    "data/p0/ünï",
    "q/data/p1/o1",
]
NAMES = ["c0", "c1", "c2", "c3", "c4"]


@dataclass
class Case:
    """A history, what another repository holds, and the rules; ``foreign`` are full addresses."""

    history: History
    foreign: tuple[Entry, ...]
    rules: KeepRules
    held: tuple[str, ...]
    collects: bool


def _entries() -> st.SearchStrategy[tuple[Entry, ...]]:
    key = st.sampled_from(KEYS)
    one = st.builds(entry, st.sampled_from(["a", "audit/b", "c/d"]), key) | st.builds(
        full,
        st.sampled_from(["a", "e", "audit/f"]),
        key.map(lambda k: f"{SERVER_URL}/{k}") | key.map(lambda k: f"s3://elsewhere/{k}"),
    )
    return st.lists(one, max_size=4, unique_by=lambda e: e.path).map(tuple)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    commits = [
        Snapshot(
            name,
            draw(st.sampled_from([0.5, 2, 5, 6.5, 9, 20])),
            (draw(st.sampled_from(NAMES[:n])),) if n and draw(st.integers(0, 3)) else (),
            draw(_entries()),
        )
        for n, name in enumerate(NAMES)
    ]
    branches = {"main": draw(st.sampled_from(NAMES)), "dev": draw(st.sampled_from(NAMES))}
    stored = {
        key: Stored(draw(st.integers(0, 3)), draw(st.sampled_from([0.5, 3.0])))
        for key in KEYS
        if draw(st.integers(0, 4))
    }
    staged = draw(st.none() | st.lists(st.sampled_from(KEYS), max_size=2, unique=True))
    tags = {"v1": draw(st.sampled_from(NAMES))} if draw(st.booleans()) else {}
    days = st.sampled_from([0, 1, 6, 15])
    rules = KeepRules(
        GcRules(draw(days), {"dev": draw(days)}),
        NOW,
        timezone.utc,
        draw(st.sampled_from([0, 26 * 3600])),
        expanded=draw(st.none() | st.builds(GcRules, days)),
        before=draw(st.none() | st.builds(GcRules, days)),
        protected_tags=("v*",),
    )
    inside = st.sampled_from(KEYS).map(lambda k: full("x", f"{SERVER_URL}/{k}"))
    foreign = tuple(draw(st.lists(inside | st.just(entry("y", KEYS[0])), max_size=1)))
    held = ("audit/",) if draw(st.booleans()) else ()
    return Case(
        History(commits, branches, stored, staged, tags=tags), foreign, rules, held, draw(st.booleans())
    )


def answer(marker: Marker, case: Case, folder: Path, name: str) -> tuple[Any, ...]:
    """Everything a mark says, and what is held again under other rules."""
    store = folder_store(folder / "ns")
    prefix = f"_lakeplan/marks/{name}/"
    metadata = NamespaceMetadata(store)
    refs = read_refs(read_manifest(store.read(REFS_MANIFEST_KEY)), metadata.read_metadata)
    graph = CommitGraph.from_refs(refs)
    masks = keep_masks(graph, refs, case.rules)
    dates, facts = by_date(graph), dict[str, Facts]()
    for commit, id in enumerate(graph.meta_range_ids):
        known = facts.get(id, Facts(0))
        facts[id] = Facts(known.mask | masks[commit], max(known.last, dates[commit]))
    request = MarkRequest(
        store=store,
        prefix=prefix,
        storage_namespace=SERVER_URL,
        metadata=metadata,
        listing=marker.list_candidates(store, prefix, older_than=NOW - timedelta(days=1)),
        uncommitted=tuple(o.key for o in store.list_objects(GC_UNCOMMITTED_PREFIX)),
        metaranges=facts,
        last_commits=dict(zip(dates, graph.ids, strict=True)),
        last_commits_us={at: 1_000_000 + at for at in dates},
        held_prefixes=case.held,
        foreign=_foreign(folder),
        collect_never_committed=case.collects,
    )
    marked = marker.mark(request)
    again = marker.held_again(
        RecheckRequest(
            store=store,
            parts=marked.going,
            prefix=prefix,
            storage_namespace=SERVER_URL,
            metadata=metadata,
            uncommitted=request.uncommitted,
            metaranges=tuple(sorted(facts))[::2],
            foreign=request.foreign,
            other_metaranges=tuple(sorted(facts))[1::2],
            held_prefixes=request.held_prefixes,
            copies="q/",
        ),
        limit=100,
    )
    going, kept = (_rows(store, prefix, parts) for parts in (marked.going, marked.kept))
    amounts = {kind: amount for kind, amount in marked.amounts.items() if amount.objects}
    return going, kept, amounts, again


def _rows(store: Any, prefix: str, parts: tuple[Part, ...]) -> list[dict[str, object]]:
    found = []
    for part in parts:
        table = read_part(store.read(prefix + part.name), name=part.name, sha256=part.sha256)
        assert len(table) == part.rows
        assert sum(table.column("size_bytes").to_pylist()) == part.size_bytes
        found += table.to_pylist()
    return sorted(found, key=lambda row: str(row["address"]))


def _foreign(folder: Path) -> tuple[ForeignRanges, ...]:
    """The other repository's metaranges, when it has any."""
    if not (folder / "other").is_dir():
        return ()
    store = folder_store(folder / "other")
    metadata = NamespaceMetadata(store)
    refs = read_refs(read_manifest(store.read(REFS_MANIFEST_KEY)), metadata.read_metadata)
    return (ForeignRanges("prod/other", metadata, tuple(c.meta_range_id for c in refs.commits)),)


UNCERTAIN_AND_HELD = Case(
    History(
        [
            Snapshot("c0", 0.5, (), ()),
            Snapshot("c1", 0.5, (), (full("audit/f", "s3://elsewhere/data/p4/o4"),)),
        ],
        {"main": "c0"},
        {"data/p4/o4": Stored(0, 3.0)},
    ),
    foreign=(),
    rules=KeepRules(GcRules(0, {}), NOW, timezone.utc, 0),
    held=("audit/",),
    collects=False,
)


@given(case=cases())
@example(case=UNCERTAIN_AND_HELD)
@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_the_engine_marks_as_the_plain_one(runners: Runners, case: Case) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_namespace(folder / "ns", case.history)
        if case.foreign:
            write_namespace(folder / "other", History([Snapshot("f0", 1, (), case.foreign)], {"main": "f0"}))
        plain = answer(PlainMarker(), case, folder, "plain")
        assert answer(StepMarker(runners.open), case, folder, "steps") == plain


@given(case=cases())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_size_of_a_part_changes_nothing(case: Case) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case = replace(case, foreign=())
        write_namespace(folder / "ns", case.history)
        first = answer(PlainMarker(rows=1), case, folder, "one")
        assert answer(PlainMarker(rows=100), case, folder, "many") == first
