"""Damaged records of every kind: each is refused by its name and with what to do, never by a traceback."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pytest

from lakeplan import limits
from lakeplan.branches.deletion_records import Deletion, DeletionRecord, Fate, read_deletions
from lakeplan.branches.ledger import Ledger, Mark, Record, dump_ledger, load_ledger
from lakeplan.errors import LakeplanError
from lakeplan.plan.baselines import read_last_applied
from lakeplan.review.history import find_run
from lakeplan.state.store import (
    Lease,
    RunJournal,
    Sighting,
    read_applied,
    record_applied,
    record_setting,
    repository_key,
    write_baseline,
)
from lakeplan.state.sweeps import STATUSES, read_sweeps, record_sweep
from lakeplan.sweep.ports import mark_index_key
from lakeplan.sweep.records import repository_of
from lakeplan.values.rules import GcRules
from tests.memory import MemoryState

KEY = "prod/analytics"
NOW = datetime(2026, 3, 31, tzinfo=timezone.utc)
RUN_ID = "20260331T000000.000000Z-00000000"


@dataclass(frozen=True)
class Kind:
    """A record: what writes it, under which key, and what reads it."""

    write: Callable[[MemoryState], object]
    key: str
    read: Callable[[MemoryState], object]
    names_repository: bool = False


def _applied(state: MemoryState) -> None:
    at = {"config_hash": "h", "run_id": RUN_ID, "at": NOW}
    record_applied(state, KEY, GcRules(7, {"main": 9}), **at)  # type: ignore[arg-type]
    record_setting(state, KEY, "object_lifecycle", {"etag": "e", "body": []}, **at)  # type: ignore[arg-type]


def _history(state: MemoryState) -> None:
    rules = GcRules(7).to_body()
    head = {
        "command": "apply",
        "by": {"user": "ann"},
        "started_at": NOW.isoformat(),
        "plan_digest": "d",
        "plan_as_of": NOW.isoformat(),
    }
    history = RunJournal(state, RUN_ID, head)
    history.step(KEY, status="applied", before=rules, after=None)


def _sweeps(state: MemoryState) -> None:
    document = {
        "repository": KEY,
        "mark_id": "m1",
        "at": "2026-03-31T00:00:00Z",
        "finished": True,
        "settings": {"mode": "delete"},
        **{status: {"objects": 1, "size_bytes": 10} for status in STATUSES},
    }
    record_sweep(state, document, versions_kept=False)


def _deletions(state: MemoryState) -> None:
    record = DeletionRecord(
        state,
        KEY,
        RUN_ID,
        at="2026-03-31T00:00:00Z",
        by={"user": "ann"},
        branches={"feature-1": Deletion("c1", fate=Fate.DELETED, safe_until="2026-04-07T00:00:00Z")},
    )
    record.save()


def _index(state: MemoryState) -> None:
    index = {
        "repository": KEY,
        "digest": "d" * 64,
        "marked_at": "2026-03-31T00:00:00Z",
        "by": "ann",
        "goes": {"objects": 1, "size_bytes": 10},
    }
    state.write(mark_index_key("m1"), json.dumps(index).encode(), if_version=None)


def _ledger(state: MemoryState) -> None:
    rows = {"feature-1": Record(first=1_700_000_000, head="c1", first_head="c0", moved=1_700_000_100)}
    ledger = Ledger(KEY, 1_600_000_000, 1_700_000_000, 1_700_000_200, rows)
    data = dump_ledger(ledger, Mark("run-1", 3, "https://lake.example", "s3://bucket/ns"))
    state.write("ledger", data, if_version=None)


def _read_ledger(state: MemoryState) -> object:
    found = state.read("ledger")
    assert found is not None
    return load_ledger(found.data, "ledger")


def _lease(state: MemoryState) -> None:
    record = {"holder": {"user": "ann"}, "until": "2026-03-31T00:00:00Z"}
    state.write(repository_key("leases", KEY), json.dumps(record).encode(), if_version=None)


def _take_lease(state: MemoryState) -> object:
    later = datetime(2026, 4, 1, tzinfo=timezone.utc)
    lease = Lease(state, KEY, {"user": "bob"}, lambda: later, lambda _: False, lambda: later)
    with lease:
        return lease


def _baseline(state: MemoryState) -> None:
    seen = {"gc": GcRules(7).to_body(), "branch_lifecycle": [{"name_patterns": ["a*"], "max_age": 9}]}
    write_baseline(state, KEY, {n: Sighting(b, "h", RUN_ID, NOW, "import") for n, b in seen.items()})


KINDS = {
    "baseline": Kind(_baseline, repository_key("baselines", KEY), lambda s: read_last_applied(s, KEY), True),
    "applied": Kind(_applied, repository_key("applied", KEY), lambda s: read_applied(s, KEY), True),
    "applied, for drift": Kind(
        _applied, repository_key("applied", KEY), lambda s: read_last_applied(s, KEY), True
    ),
    "history": Kind(_history, f"history/{RUN_ID}.json", lambda s: find_run(s, RUN_ID)),
    "sweeps": Kind(_sweeps, repository_key("sweep/ends", KEY), lambda s: read_sweeps(s, KEY), True),
    "deletions": Kind(
        _deletions,
        repository_key("deletions", KEY).removesuffix(".json") + f"/{RUN_ID}.json",
        lambda s: read_deletions(s, KEY, RUN_ID),
    ),
    "mark": Kind(_index, mark_index_key("m1"), lambda s: repository_of(s, "m1")),
    "ledger": Kind(_ledger, "ledger", _read_ledger),
    "lease": Kind(_lease, repository_key("leases", KEY), _take_lease),
}
WRONG: tuple[Any, ...] = (None, True, -1, 7.5, 1 << 80, "text", "2026-13-01", [], {}, [1], {"a": [None]})


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def stored(kind: Kind, data: bytes | None = None) -> MemoryState:
    state = MemoryState()
    kind.write(state)
    if data is not None:
        current = state.read(kind.key)
        assert current is not None
        state.write(kind.key, data, if_version=current.version)
    return state


def document_of(kind: Kind) -> Any:
    found = stored(kind).read(kind.key)
    assert found is not None
    return json.loads(found.data)


def refused(kind: Kind, data: bytes) -> None:
    with pytest.raises(LakeplanError) as caught:
        kind.read(stored(kind, data))
    assert kind.key in f"{caught.value.where} {caught.value.message}"
    assert caught.value.hint


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from places(child, (*path, key))


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


def it_reads_what_was_written(kind: Kind) -> None:
    assert kind.read(stored(kind)) is not None


def it_refuses_a_record_that_was_cut(kind: Kind) -> None:
    data = json.dumps(document_of(kind)).encode()
    for end in (0, 1, len(data) // 3, len(data) - 1):
        refused(kind, data[:end])


@pytest.mark.parametrize(
    "data",
    [b"[]", b"null", b"7", b'"text"', b"{}", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}', b'{"a": 1e999}'],
)
def it_refuses_what_is_no_record(kind: Kind, data: bytes) -> None:
    refused(kind, data)


def it_refuses_a_record_that_is_too_large(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    state = stored(kind, json.dumps({**document_of(kind), "more": "x" * 200}).encode())
    monkeypatch.setattr(limits, "JSON_BYTES", 100)
    with pytest.raises(LakeplanError, match=r"larger than the limit of 100 bytes|damaged"):
        kind.read(state)


def it_never_fails_in_another_way_whichever_value_is_of_another_kind(kind: Kind) -> None:
    """Some values are free; whatever is not read by its type gives an error of ours."""
    document = document_of(kind)
    for path in places(document):
        for value in WRONG:
            state = stored(kind, json.dumps(with_value(document, path, value)).encode())
            with contextlib.suppress(LakeplanError):  # any other error fails this test
                kind.read(state)


def it_refuses_another_repositorys_record(kind: Kind) -> None:
    if not kind.names_repository:
        pytest.skip("its key or its reader names the repository")
    refused(kind, json.dumps({**document_of(kind), "repository": "prod/other"}).encode())
