"""The results of a restore, by figures alone. Whole sweeps are in test_quarantine."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeplan.errors import (
    FormatError,
    LakeplanError,
    LeaseHeld,
    StorageDenied,
    StorageError,
    StorageNotFound,
    UsageError,
    WriteConflict,
)
from lakeplan.formats.marks import MARKED, write_part, write_results
from lakeplan.formats.namespace import result_key
from lakeplan.review.run import Run
from lakeplan.simulation.requests import RecheckRequest
from lakeplan.state.clocks import Clocks
from lakeplan.sweep import restore as module
from lakeplan.sweep.inspection import Needed
from lakeplan.sweep.ports import STOPPED
from lakeplan.sweep.restore import NAMED, RestoreOptions, restore
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Amount, Marked, Part, Status
from lakeplan.values.sweep import GONE as GONE_BEFORE
from tests.memory import MemoryState
from tests.sweeping.stores import (
    MARK_PREFIX,
    QUARANTINE_PREFIX,
    FaultyStore,
    folder_store,
    put_object,
    raising,
)

NOW = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)
EARLIEST = NOW - timedelta(minutes=1)
WHERE = "prod/lake: mark m1"


@dataclass
class Case:
    """Copies of a mark ``m1`` in a folder. ``needs`` is what an inspection calls needed, ``held`` what a
    commit holds. ``order`` are inspections, renewals of the lease and copies, as they happen; ``steps`` and
    ``tasks`` are what the progress was told."""

    folder: Path
    mode: str = "quarantine"
    needs: frozenset[str] | LakeplanError = frozenset()
    held: frozenset[str] = frozenset()
    metarange: str = "abc"
    parts: list[Part] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    tasks: list[tuple[str, int | None]] = field(default_factory=list)
    requests: list[tuple[RecheckRequest, int]] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    now: Callable[[], datetime] = lambda: NOW
    stopped: Callable[[], bool] = lambda: False
    lease_lost: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.store = FaultyStore(folder_store(self.folder))
        self.store.before = self.note
        reader = SimpleNamespace(get_commit=self.get_commit, metadata_reader=lambda name: ("reader of", name))
        self.site: Any = SimpleNamespace(
            key="prod/lake",
            desired=SimpleNamespace(name="lake"),
            repository=SimpleNamespace(storage_namespace="s3://bucket/lake"),
            reader=reader,
            store=self.store,
        )
        self.ports: Any = SimpleNamespace(
            now=lambda: self.now(),
            marker=self,
            state=MemoryState(),
            progress=self,
            stop=lambda: self.stopped(),
        )

    @property
    def mark(self) -> Any:
        marked = Marked(tuple(self.parts), (), {})
        settings = SimpleNamespace(mode=self.mode)
        return SimpleNamespace(
            mark_id="m1", key="prod/lake", where="prod/lake: mark m1", marked=marked, settings=settings
        )

    def name(self, *addresses: str, paths: list[str] | None = None) -> None:
        """A part of the mark that names these objects, each at these paths."""
        n = len(addresses)
        columns = {
            "address": addresses,
            "size_bytes": [len(b"copy")] * n,
            "version": [0] * n,
            "paths": [paths] * n,
            "last_commit_id": [None] * n,
            "reason": ["expired"] * n,
            "class": ["backlog"] * n,
        }
        data, sha256 = write_part(columns, MARKED)
        part = Part(f"going/part-{len(self.parts):04}.parquet", n, n, sha256)
        self.store.put(MARK_PREFIX + part.name, data)
        self.parts.append(part)

    def copies(self, *addresses: str, paths: list[str] | None = None) -> None:
        self.name(*addresses, paths=paths)
        for address in addresses:
            put_object(self.folder, QUARANTINE_PREFIX + address, b"copy")

    def history(self) -> dict[str, Any]:
        stored = self.ports.state.read("history/run-7.json")
        found: dict[str, Any] = json.loads(stored.data)
        return found

    def back(self) -> set[str]:
        """Addresses at which a copy is."""
        found = (one.key for one in self.store.list_objects("data/"))
        return {key for key in found if self.store.read(key) == b"copy"}

    # ---- what the restore calls
    def note(self, name: str, args: tuple[Any, ...]) -> None:
        self.calls.append((name, args))
        if name == "copy":
            self.order.append("copy")

    def needed_now(
        self, site: Any, mark: Any, ports: Any, *, now: datetime, keep: Any, parts: tuple[Part, ...]
    ) -> Needed:
        assert (site, ports, mark.mark_id, now) == (self.site, self.ports, "m1", EARLIEST)
        self.inspected = [part.name for part in parts]
        keep()
        self.order.append("inspect")
        if isinstance(self.needs, LakeplanError):
            raise self.needs
        return Needed(self.needs, NOW)

    def clocks(self, site: Any, key: str, now: Any, *, by: str) -> Clocks:
        assert (site, key, now(), by) == (self.site, "_lakeplan/sweeps/m1/clock.json", NOW, "ann")
        return Clocks(EARLIEST, NOW)

    def renew(self) -> None:
        self.order.append("renew")
        if self.lease_lost():
            raise LeaseHeld("another run took it over", where="prod/lake")

    def get_commit(self, repository: str, commit: str) -> Any:
        assert (repository, commit) == ("lake", "c1")
        return SimpleNamespace(meta_range_id=self.metarange)

    def held_again(self, request: RecheckRequest, *, limit: int) -> frozenset[str]:
        self.requests.append((request, limit))
        return self.held

    @contextmanager
    def task(self, text: str, total: int | None) -> Iterator[Any]:
        self.tasks.append((text, total))
        yield lambda count=1: self.steps.append(count)

    def restore(self, **options: str) -> dict[str, Any]:
        run = Run("run-7", {"user": "ann"}, lambda: NOW, lambda holder: True, sleep=lambda seconds: None)
        stored: Any = SimpleNamespace(mark=self.mark)
        return restore(self.site, stored, self.ports, run, RestoreOptions(**options))


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr("os.fsync", lambda handle: None)
    made = Case(tmp_path / "ns")

    class Lease:
        renew = made.renew

        def __enter__(self) -> None:
            made.order.append("lease")

        def __exit__(self, *_: object) -> None:
            made.order.append("released")

    def lease(site: Any, state: Any, run: Run) -> Lease:
        assert (site, state, run.run_id) == (made.site, made.ports.state, "run-7")
        return Lease()

    monkeypatch.setattr(module, "site_lease", lease)
    monkeypatch.setattr(module, "site_clocks", made.clocks)
    monkeypatch.setattr(module, "needed_now", made.needed_now)
    return made


def it_copies_back_what_is_in_quarantine_and_writes_down_what_came_of_it(case: Case) -> None:
    case.copies("data/a", "data/b")
    case.copies("data/there")
    put_object(case.folder, "data/there", b"gone?")
    case.needs = frozenset({"data/a", "data/there"})
    document = case.restore()
    assert document == {
        "format": "lakeplan.restore/v1",
        "mark_id": "m1",
        "repository": "prod/lake",
        "at": "2026-03-31T12:00:00Z",
        "by": {"user": "ann"},
        "restored": 2,
        "already_there": 1,
        "failed": 0,
        "failures": {},
        "collectable_again": 1,
        "note": "1 object was not replaced, because an object of a different size is now at the same address",
    }
    assert case.back() == {"data/a", "data/b"}
    assert case.order == ["lease", "renew", "inspect", "renew", "copy", "copy", "released"]
    assert (case.tasks, sorted(case.steps)) == ([("restoring", 3)], [1, 1, 1])
    (key,) = (found.key for found in case.store.list_objects("_lakeplan/sweeps/"))
    assert key == "_lakeplan/sweeps/m1/restored/run-7.json"
    assert case.store.read(key) == (json.dumps(document, sort_keys=True) + "\n").encode()


def it_says_nothing_of_an_object_of_the_same_size(case: Case) -> None:
    case.copies("data/a", "data/b")
    put_object(case.folder, "data/a", b"same")
    document = case.restore()
    assert (document["restored"], document["already_there"], document["note"]) == (1, 1, "")
    assert case.store.read("data/a") == b"same"


@pytest.mark.parametrize("options", [{}, {"path": "x"}])
def it_does_not_restore_a_copy_that_somebody_changed(case: Case, options: dict[str, str]) -> None:
    case.copies("data/a", "data/b", "data/c", paths=["x"])
    for key in ("data/b", "data/c"):
        put_object(case.folder, QUARANTINE_PREFIX + key, b"cut")
    put_object(case.folder, "data/c", b"copy")
    document = case.restore(**options)
    assert (document["restored"], document["already_there"], document["note"]) == (1, 1, "")
    assert document["failures"] == {"data/b": module.RESIZED}
    assert case.back() == {"data/a", "data/c"}


def it_says_why_it_is_not_known_what_a_collection_may_delete_again(case: Case) -> None:
    case.copies("data/a")
    put_object(case.folder, "data/a", b"another")
    case.needs = LakeplanError("no server")
    document = case.restore()
    assert document["collectable_again"] is None
    assert document["note"] == (
        "the objects that are needed now could not be determined (no server);"
        " 1 object was not replaced, because an object of a different size is now at the same address"
    )


def it_copies_only_what_the_mark_names_and_a_sweep_may_copy(case: Case) -> None:
    case.copies("data/a")
    case.name("_lakefs/meta", "data/never-copied")
    for key in ("data/planted", "_lakefs/meta"):
        put_object(case.folder, QUARANTINE_PREFIX + key, b"copy")
    put_object(case.folder, QUARANTINE_PREFIX.replace("m1", "m2") + "data/other", b"copy")
    assert case.restore()["restored"] == 1
    assert case.back() == {"data/a"}
    assert [*case.store.list_objects("_lakefs/")] == []


@pytest.mark.parametrize("lost", ["missing", "damaged", "another", "incomplete"])
def it_copies_everything_while_a_part_of_the_mark_cannot_be_read(case: Case, lost: str) -> None:
    case.copies("data/a")
    put_object(case.folder, QUARANTINE_PREFIX + "data/b", b"copy")
    put_object(case.folder, QUARANTINE_PREFIX + "_lakefs/meta", b"copy")
    part = case.folder / MARK_PREFIX / case.parts[0].name
    table = pq.read_table(part)
    part.unlink()
    if lost == "damaged":
        part.write_bytes(b"PAR1")
    elif lost == "another":  # of an object that nobody copied
        pq.write_table(table.set_column(0, table.schema.field(0), [["data/c"]]), part)
    elif lost == "incomplete":  # of somebody who can write to the namespace
        pq.write_table(table.drop_columns(["paths"]), part)
        sha256 = hashlib.sha256(part.read_bytes()).hexdigest()
        case.parts[0] = replace(case.parts[0], sha256=sha256)
    assert case.restore()["restored"] == 2
    assert case.back() == {"data/a", "data/b"}
    with pytest.raises(StorageNotFound if lost == "missing" else FormatError) as caught:
        case.restore(path="x/")  # nobody knows the paths
    assert caught.value.where.endswith(f"{MARK_PREFIX}{case.parts[0].name}")


@pytest.mark.parametrize(
    ("mode", "message", "hint"),
    [
        (
            "delete",
            "this mark deletes objects without quarantine, so nothing can be restored",
            "To be able to restore objects of later sweeps, set sweep.mode: quarantine.",
        ),
        (
            "quarantine",
            "no objects of this mark are in quarantine",
            "Run `lakeplan sweep show m1` to see what happened to its objects.",
        ),
    ],
)
def it_says_when_nothing_is_in_quarantine(case: Case, mode: str, message: str, hint: str) -> None:
    case.mode = mode
    case.name("data/a")
    with pytest.raises(UsageError) as caught:
        case.restore()
    assert (caught.value.message, caught.value.where, caught.value.hint) == (message, WHERE, hint)
    assert case.order == ["lease", "released"]


class DescribeTheHistory:
    def it_has_the_restore_before_anything_is_copied(self, case: Case) -> None:
        case.copies("data/a")
        before: list[Any] = []
        case.store.before = lambda name, args: before.append(case.history()) if name == "copy" else None
        case.restore()
        (history,) = before
        assert history["command"] == "sweep restore"
        assert history["repositories"] == {"prod/lake": {"status": "pending", "mark_id": "m1"}}

    def it_has_its_end(self, case: Case) -> None:
        case.copies("data/a")
        case.restore()
        assert case.history()["finished_at"] == NOW.isoformat()
        assert case.history()["repositories"]["prod/lake"] == {
            "status": "applied",
            "mark_id": "m1",
            "counts": {"restored": 1, "already_there": 0, "failed": 0},
        }

    def it_has_failed_when_any_copy_failed(self, case: Case) -> None:
        case.copies("data/a", "data/b")

        def fail(name: str, args: tuple[Any, ...]) -> None:
            if name == "copy" and args[1] == "data/b":
                raise StorageError("no network")

        case.store.before = fail
        assert case.restore()["restored"] == 1
        assert case.history()["repositories"]["prod/lake"]["status"] == "failed"

    def it_is_not_needed(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: object, **more: object) -> str:
            raise StorageError("no permission")

        monkeypatch.setattr(case.ports.state, "write", refuse)
        case.copies("data/a")
        document = case.restore()
        assert (document["restored"], case.back()) == (1, {"data/a"})
        assert document["note"] == (
            "the end of this step was not recorded in the history: no permission;"
            " the state does not count these objects as restored until you run the command again (no"
            " permission)"
        )


@pytest.mark.parametrize(
    ("restored", "damaged", "counts"),
    [(1, "", (1, 2)), (0, "", (2, 1)), (1, "m2", (2, 1)), (1, "m1", (1, 0))],
)
def it_counts_what_a_later_sweep_deleted_again_as_restored_before(
    case: Case, monkeypatch: pytest.MonkeyPatch, restored: int, damaged: str, counts: tuple[int, int]
) -> None:
    own = ("data/a", "data/b", "data/c", "data/d")
    by_mark = {"m0": ("data/c",), "m1": own, "m2": ("data/a", "data/d")}
    recorded: list[Any] = []

    def deleted(site: Any, mark: Any) -> list[tuple[str, int]]:
        assert site is case.site
        if mark.mark_id == damaged:
            raise FormatError("a damaged record")
        return [(address, 1) for address in by_mark[mark.mark_id]]

    def mark_ids(store: Any, prefix: str) -> list[str]:
        assert (store, prefix) == (case.store, "_lakeplan/sweeps/")
        return [*by_mark]

    def read_stored(store: Any, mark_id: str) -> Any:
        assert store is case.store
        return SimpleNamespace(mark=SimpleNamespace(mark_id=mark_id))

    given = {
        "read_sweeps": lambda state, key: {"m1": SimpleNamespace(restored=restored)},
        "mark_ids": mark_ids,
        "read_stored": read_stored,
        "deleted": deleted,
        "record_restore": lambda *args, before: recorded.append((*args[1:], before)),
    }
    for name, replacement in given.items():
        monkeypatch.setattr(module, name, replacement)
    assert module._record(case.site, case.mark, case.ports, {"data/a", "data/c"}, {"data/b", "data/y"}) == ""
    assert recorded == [("prod/lake", "m1", *counts)]


def it_counts_nothing_as_restored_before_if_nothing_was_there(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[Any] = []
    monkeypatch.setattr(module, "record_restore", lambda *args, before: recorded.append((*args[3:], before)))
    case.copies("data/a")
    case.restore()
    assert recorded == [(1, 0)]


def it_counts_no_object_of_another_size_as_back(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.copies("data/a", "data/b", "data/c")
    put_object(case.folder, "data/a", b"copy")
    put_object(case.folder, "data/b", b"longer")
    recorded: list[Any] = []
    monkeypatch.setattr(module, "_record", lambda *args: recorded.append(args[3:]) or "")
    case.restore()
    assert recorded == [({"data/c"}, {"data/a"})]


def it_requests_no_copy_at_a_key_that_no_sweep_may_copy(case: Case) -> None:
    case.copies("data/a", "_lakefs/a", paths=["a"])
    assert case.restore(path="a")["restored"] == 1
    assert case.back() == {"data/a"}


def it_asks_for_one_copy_that_is_wanted(case: Case) -> None:
    case.copies("data/a", paths=["a"])
    assert case.restore(path="a")["restored"] == 1
    assert case.store.called("list_objects") == [("_lakeplan/sweeps/m1/results/",)]


class DescribeACopyThatIsGone:
    """Somebody, or a rule of the bucket, removed it."""

    @pytest.fixture
    def swept(self, case: Case) -> Case:
        """``a`` has a copy, ``b`` exists again, ``c`` was lost, and ``d`` was gone before the sweep."""
        addresses = [f"data/{letter}" for letter in "abcd"]
        case.copies(*addresses, paths=["x"])
        reasons = dict(zip(addresses, ("", "", "", GONE_BEFORE), strict=True))
        results = {address: (Status.DELETED, reason) for address, reason in reasons.items()}
        key = result_key("_lakeplan/sweeps/m1/", case.parts[0].name)
        case.store.put(key, write_results(results, dict.fromkeys(addresses, 4), verified=4))
        for address in addresses[1:]:
            (case.folder / QUARANTINE_PREFIX / address).unlink()
        put_object(case.folder, "data/b", b"again")
        return case

    @pytest.mark.parametrize("options", [{}, {"path": "x"}])
    def it_counts_as_failed(self, swept: Case, options: dict[str, str]) -> None:
        document = swept.restore(**options)
        assert (document["restored"], document["already_there"]) == (1, 0)
        assert (document["failed"], document["failures"]) == (1, {"data/c": module.GONE})

    def it_counts_as_failed_if_no_copy_is_left(self, swept: Case) -> None:
        (swept.folder / QUARANTINE_PREFIX / "data/a").unlink()
        document = swept.restore()
        assert (document["restored"], document["failed"]) == (0, 2)
        assert document["failures"] == {"data/a": module.GONE, "data/c": module.GONE}

    def it_does_not_matter_if_it_is_not_wanted(self, swept: Case) -> None:
        swept.copies("data/e", paths=["y"])
        assert swept.restore(path="y")["failed"] == 0

    def it_does_not_matter_where_nothing_is_moved(self, swept: Case) -> None:
        swept.mode = "delete"
        document = swept.restore()
        assert (document["restored"], document["failed"], document["note"]) == (1, 0, "")

    def it_needs_no_record_of_purges_if_every_object_is_there(
        self, swept: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        swept.copies("data/c", paths=["x"])

        def fail(*_: object) -> None:
            raise StorageError("no permission")

        monkeypatch.setattr(module, "read_sweeps", fail)
        document = swept.restore()
        assert (document["restored"], document["failed"]) == (2, 0)
        assert "readable" not in document["note"]

    def it_requests_so_many_at_once(self, swept: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "FEW", 1)
        swept.restore()
        assert {("data/b",), ("data/c",)} <= {tuple(keys) for (keys,) in swept.store.called("find")}

    def it_counts_as_failed_if_nothing_was_purged(self, swept: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        kept = SimpleNamespace(purged=Amount(), purging=None, restored=0)
        monkeypatch.setattr(module, "read_sweeps", lambda state, repository: {"m1": kept})
        assert swept.restore()["failures"] == {"data/c": module.GONE}

    @pytest.mark.parametrize(("purged", "purging"), [(Amount(1, 4), None), (Amount(), Amount(1, 4))])
    def it_is_noted_if_it_may_have_been_purged(
        self, swept: Case, monkeypatch: pytest.MonkeyPatch, purged: Amount, purging: Amount | None
    ) -> None:
        sweep = SimpleNamespace(purged=purged, purging=purging, restored=0)
        monkeypatch.setattr(module, "read_sweeps", lambda state, repository: {"m1": sweep})
        document = swept.restore()
        assert (document["restored"], document["failed"]) == (1, 0)
        assert document["note"].startswith("1 other object was not restored, because a purge may")
        (swept.folder / "data/b").unlink()
        assert swept.restore()["note"].startswith("2 other objects were not restored")
        (swept.folder / QUARANTINE_PREFIX / "data/a").unlink()
        swept.copies("data/e", paths=["y"])
        with pytest.raises(UsageError, match="no object in quarantine matches"):
            swept.restore(path="x")

    def it_is_reported_if_no_wanted_copy_is_left(self, swept: Case) -> None:
        (swept.folder / QUARANTINE_PREFIX / "data/a").unlink()
        swept.copies("data/e", paths=["y"])
        document = swept.restore(path="x")
        assert (document["restored"], document["failed"]) == (0, 2)


class DescribeAChoice:
    @pytest.fixture
    def case(self, case: Case) -> Case:
        case.copies("data/a", paths=["raw/2024/a", "old/a"])
        case.copies("data/b", paths=["raw/2025/b"])
        case.copies("data/none", paths=None)
        case.copies("data/many", paths=[f"many/{n}" for n in range(10)])
        case.copies("data/nine", paths=[f"nine/{n}" for n in range(9)])
        case.name("data/not-copied", paths=["raw/2024/a", "raw/2025/b"])
        return case

    @pytest.mark.parametrize(
        ("path", "back"),
        [
            ("raw/", {"data/a", "data/b"}),
            ("raw/2024/", {"data/a"}),
            ("old/a", {"data/a"}),
            ("raw/2025/b", {"data/b"}),
        ],
    )
    def it_takes_a_path_or_everything_below_one(self, case: Case, path: str, back: set[str]) -> None:
        document = case.restore(path=path)
        assert case.back() == back
        assert document["note"] == (
            f"1 object may also be at {path}, but cannot be restored by path, because a mark lists at most 10"
            " paths of each object"
        )

    def it_asks_only_for_the_copies_that_are_wanted(self, case: Case) -> None:
        case.restore(path="raw/2025/b")
        assert (case.back(), case.inspected) == ({"data/b"}, [case.parts[n].name for n in (1, 3, 5)])
        assert ("list_objects", (QUARANTINE_PREFIX,)) not in case.calls
        asked = next(args for name, args in case.calls if name == "find")
        assert asked == ([QUARANTINE_PREFIX + key for key in ("data/b", "data/many", "data/not-copied")],)

    @pytest.mark.parametrize("few", [2, 3])
    def it_lists_the_quarantine_when_many_are_wanted(
        self, case: Case, monkeypatch: pytest.MonkeyPatch, few: int
    ) -> None:
        monkeypatch.setattr(module, "FEW", few)
        case.restore(path="raw/2025/b")  # the paths of three objects fit, or might
        assert case.back() == {"data/b"}
        assert (("list_objects", (QUARANTINE_PREFIX,)) in case.calls) is (few < 3)

    def it_takes_what_is_at_a_path_of_every_row_of_a_part(
        self, case: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        case.copies("data/a", "data/b")
        columns = {"address": ["data/a", "data/b"], "paths": [["a"], ["b"]], "size_bytes": [4, 4]}
        monkeypatch.setattr(module, "read_marked", lambda *args: pa.table(columns))
        assert case.restore(path="b")["restored"] == 1
        assert case.back() == {"data/b"}

    @pytest.mark.parametrize("path", ["raw/2024", "aw/2024/", "raw/2025/b/", "2025/b", "elsewhere"])
    def it_refuses_a_path_at_which_nothing_was(self, case: Case, path: str) -> None:
        with pytest.raises(UsageError, match="no object in quarantine matches") as caught:
            case.restore(path=path)
        assert (caught.value.where, caught.value.hint) == (WHERE, "Check --path and --commit.")
        assert "inspect" not in case.order

    def it_is_sure_of_an_object_whose_named_path_fits(self, case: Case) -> None:
        document = case.restore(path="many/")
        assert (document["restored"], document["note"], case.back()) == (1, "", {"data/many"})

    def it_takes_what_a_commit_holds(self, case: Case) -> None:
        case.held = frozenset({"data/b", "data/none", "data/not-copied"})
        document = case.restore(commit="c1")
        assert (case.back(), document["note"]) == ({"data/b", "data/none"}, "")
        assert case.requests == [
            (
                RecheckRequest(
                    store=case.store,  # type: ignore[arg-type]
                    parts=tuple(case.parts),
                    prefix=MARK_PREFIX,
                    storage_namespace="s3://bucket/lake",
                    metadata=("reader of", "lake"),  # type: ignore[arg-type]
                    uncommitted=(),
                    metaranges=("abc",),
                ),
                module.MOST_NEEDED,
            )
        ]

    def it_takes_what_a_commit_holds_of_every_row_of_a_part(self, case: Case) -> None:
        case.copies("data/p1", "data/p2", "data/p3")
        case.held = frozenset({"data/p2"})
        case.restore(commit="c1")
        assert case.back() == {"data/p2"}

    def it_takes_what_a_commit_holds_below_a_path(self, case: Case) -> None:
        case.held = frozenset({"data/b", "data/many"})
        document = case.restore(commit="c1", path="raw/")
        assert (case.back(), document["restored"]) == ({"data/b"}, 1)
        assert document["note"].startswith("1 object may also be at raw/")

    def it_asks_for_no_metarange_of_an_empty_commit(self, case: Case) -> None:
        case.metarange = ""
        with pytest.raises(UsageError, match="no object in quarantine matches"):
            case.restore(commit="c1")
        assert case.requests[0][0].metaranges == ()

    def it_refuses_a_commit_that_holds_too_much(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MOST_NEEDED", 2)
        case.held = frozenset({"data/a", "data/b"})
        assert case.restore(commit="c1")["restored"] == 2
        case.held |= {"data/none"}
        with pytest.raises(LakeplanError, match="would restore more objects than the limit of 2") as caught:
            case.restore(commit="c1")
        assert (caught.value.where, caught.value.hint) == (
            "prod/lake",
            "Restore the objects in several runs, each with a different --path.",
        )


class DescribeAStoreThatFails:
    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (
                StorageNotFound("no such object"),
                "its copy is in quarantine, but the store does not show the restored object",
            ),
            (StorageError("the object is archived"), "the object is archived"),
            (StorageDenied("no permission"), "no permission"),
        ],
    )
    def it_reports_what_was_not_copied_back(self, case: Case, error: StorageError, reason: str) -> None:
        case.copies("data/a", "data/b", "data/c")
        case.store.before = raising(error, on="copy", key="data/b")
        document = case.restore()
        assert (document["restored"], document["already_there"], document["failed"]) == (2, 0, 1)
        assert document["failures"] == {"data/b": reason}
        assert case.back() == {"data/a", "data/c"}
        assert sum(case.steps) == 3

    def it_reports_a_copy_that_went_meanwhile(self, case: Case) -> None:
        case.copies("data/a")

        lost = iter(range(2))

        def purge(name: str, args: tuple[Any, ...]) -> None:
            copy = case.folder / QUARANTINE_PREFIX / "data/a"
            if name == "copy":
                copy.unlink()
            elif name == "find" and not copy.exists() and next(lost, None) is not None:
                raise StorageError("cut short")

        case.store.before = purge
        assert case.restore()["failures"] == {"data/a": "its copy is no longer in quarantine"}

    def it_reports_what_it_copied_if_it_cannot_write_its_record(self, case: Case) -> None:
        case.copies("data/a", "data/b")
        case.store.before = raising(StorageDenied("no permission"), on="put")
        document = case.restore()
        assert (document["restored"], document["failed"]) == (2, 0)
        assert document["note"] == "the namespace has no record of this restore (no permission)"
        assert case.back() == {"data/a", "data/b"}

    def it_believes_the_store_and_not_its_answers(self, case: Case) -> None:
        """The answer to a copy was lost: it was made, or not, or somebody wrote there meanwhile."""
        case.copies("data/came", "data/not", "data/other")

        def lose(name: str, args: tuple[Any, ...]) -> None:
            if name == "copy" and args[1] != "data/came":
                if args[1] == "data/other":
                    put_object(case.folder, "data/other", b"another object")
                raise StorageError("the answer was cut short")

        case.store.before = lose
        case.store.after = raising(StorageError("the answer was cut short"), on="copy")
        document = case.restore()
        assert (document["restored"], document["already_there"], document["failed"]) == (1, 1, 1)
        assert document["failures"] == {"data/not": "the answer was cut short"}
        assert document["note"].startswith("1 object was not replaced, because an object of a different size")

    def it_asks_again_while_the_store_does_not_answer(self, case: Case) -> None:
        """The answer to a copy was lost, and so are those to whether it is there."""
        case.copies("data/a")
        case.store.after = raising(StorageError("cut short"), on="copy")
        lost = iter(range(2))

        def lose(name: str, args: tuple[Any, ...]) -> None:
            copied = (case.folder / "data/a").exists()
            if name == "find" and copied and next(lost, None) is not None:
                raise StorageError("cut short")

        case.store.before = lose
        document = case.restore()
        assert (document["restored"], document["failed"]) == (1, 0)

    def it_counts_as_collectable_what_came_back_and_is_not_needed(self, case: Case) -> None:
        case.copies("data/a", "data/b", "data/needed", "data/other", "data/shown")
        case.needs = frozenset({"data/needed", "data/shown"})

        def write(name: str, args: tuple[Any, ...]) -> None:
            if name == "copy" and args[1] == "data/other":
                put_object(case.folder, "data/other", b"another object")
                raise StorageError("the answer was cut short")

        case.store.before = write
        case.store.after = raising(StorageError("cut short"), on="copy", key="data/shown")
        document = case.restore()
        assert (document["restored"], document["already_there"], document["failed"]) == (4, 1, 0)
        assert document["collectable_again"] == 2

    def it_copies_with_as_many_threads_as_it_may(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "THREADS", 40)  # more than any machine's default
        together = threading.Barrier(40)
        copy = type(case.store.store).copy

        def slow(self: Any, *args: Any, **more: Any) -> Any:
            together.wait(timeout=60)
            return copy(self, *args, **more)

        monkeypatch.setattr(type(case.store.store), "copy", slow)
        case.copies(*(f"data/{n:02}" for n in range(40)))
        assert case.restore()["restored"] == 40

    def it_counts_what_somebody_wrote_at_the_same_moment_as_there(self, case: Case) -> None:
        case.copies("data/a", "data/b")

        def write(name: str, args: tuple[Any, ...]) -> None:
            if name == "copy" and args[1] == "data/b":
                put_object(case.folder, "data/b", b"another object")
                raise WriteConflict("somebody wrote there")

        case.store.before = write
        document = case.restore()
        assert (document["restored"], document["already_there"], document["failed"]) == (1, 1, 0)
        assert document["note"].startswith("1 object was not replaced, because an object of a different size")

    def it_counts_an_object_as_restored_if_its_own_lost_request_conflicts_with_the_next(
        self, case: Case
    ) -> None:
        case.copies("data/a")
        case.store.after = raising(WriteConflict("somebody wrote there"), on="copy")
        document = case.restore()
        assert (document["restored"], document["already_there"], document["note"]) == (1, 0, "")

    def it_says_that_it_lost_the_lease_while_it_copied(
        self, case: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "THREADS", 1)
        lost = threading.Event()
        case.copies(*(f"data/{n:03}" for n in range(100)))
        case.now = lambda: NOW + timedelta(minutes=case.order.count("copy"))

        def is_lost() -> bool:
            if "copy" in case.order:
                lost.set()
            return lost.is_set()

        def wait(name: str, args: tuple[Any, ...]) -> None:
            case.note(name, args)
            if name == "copy" and args[1] != "data/000":
                assert lost.wait(60)

        case.lease_lost, case.store.before = is_lost, wait
        document = case.restore()
        assert document["failed"] > 0
        assert set(document["failures"].values()) == {"prod/lake: another run took it over"}

    def it_reports_failures_when_the_store_cannot_be_asked_either(self, case: Case) -> None:
        case.copies("data/a")
        finds: list[object] = []

        def fail(name: str, args: tuple[Any, ...]) -> None:
            if name == "copy":
                raise StorageError("no network")
            if name == "find" and finds and args[0]:
                raise StorageError("no network")
            if name == "find":
                finds.append(args)

        case.store.before = fail
        assert case.restore()["failures"] == {"data/a": "no network; the store did not confirm the restore"}

    def it_counts_a_copy_as_failed_when_another_object_was_there_and_is_gone(self, case: Case) -> None:
        case.copies("data/a")
        case.store.before = raising(WriteConflict("taken"), on="copy")
        document = case.restore()
        assert (document["restored"], document["already_there"], document["failed"]) == (0, 0, 1)
        assert document["failures"] == {
            "data/a": "another object was written to the address during the restore"
        }

    def it_names_some_failures_and_counts_all(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "KEYS_A_LEASE", 60)
        names = [f"data/{n:03}" for n in range(NAMED + 1)]
        case.copies(*names)
        case.store.before = raising(StorageError("no network"), on="copy")
        document = case.restore()
        assert document["failed"] == NAMED + 1
        assert [*document["failures"]] == names[:NAMED]

    def it_restores_an_object_that_a_listing_still_shows_after_its_deletion(self, case: Case) -> None:
        case.copies("data/a", "data/b")
        put_object(case.folder, "data/b", b"copy")
        late = StoredObject("data/a", 4, 500_000_000, "deleted")
        find = case.store.store.find
        case.store.find = lambda keys: {"data/a": late, **find(keys)}  # type: ignore[attr-defined]
        document = case.restore()
        assert (document["restored"], document["already_there"]) == (1, 1)
        assert case.back() == {"data/a", "data/b"}

    def it_renews_the_lease_with_every_batch(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "KEYS_A_LEASE", 2)
        case.copies(*(f"data/{n}" for n in range(5)))
        put_object(case.folder, "data/2", b"copy")
        document = case.restore()
        assert (document["restored"], document["already_there"]) == (4, 1)
        assert case.order[3:] == ["renew", "copy", "copy", "renew", "copy", "renew", "copy", "released"]
        assert [keys for (keys,) in case.store.called("find") if keys] == [
            ["data/0", "data/1"],
            ["data/2", "data/3"],
            ["data/4"],
        ]
        assert sum(case.steps) == 5

    def it_renews_the_lease_once_a_minute_while_it_copies(self, case: Case) -> None:
        case.copies("data/a", "data/b")
        case.now = lambda: NOW + timedelta(minutes=case.order.count("copy"))
        assert case.restore()["restored"] == 2
        assert case.order.count("renew") > 2  # two before the first copy

    @pytest.mark.parametrize(
        ("how", "why"),
        [
            ("lost lease", "prod/lake: another run took it over"),
            ("no answer", "no network"),
            ("signal", STOPPED),
        ],
    )
    def it_reports_what_came_back_before_it_had_to_stop(
        self, case: Case, monkeypatch: pytest.MonkeyPatch, how: str, why: str
    ) -> None:
        monkeypatch.setattr(module, "KEYS_A_LEASE", 1)
        case.copies("data/a", "data/b", "data/c")
        copied = lambda: "copy" in case.order  # noqa: E731
        if how == "lost lease":
            case.lease_lost = copied
        elif how == "signal":
            case.stopped = copied
        else:

            def fail(name: str, args: tuple[Any, ...]) -> None:
                if name == "find" and copied():
                    raise StorageError("no network")
                case.note(name, args)

            case.store.before = fail
        document = case.restore()
        assert case.back() == {"data/a"}
        assert (document["restored"], document["failed"]) == (1, 2)
        assert document["failures"] == {"data/b": why, "data/c": why}
        (journal,) = case.ports.state.list_keys("history/")
        assert json.loads(case.ports.state.read(journal).data)["repositories"]["prod/lake"]["counts"] == {
            "restored": 1,
            "already_there": 0,
            "failed": 2,
        }

    def it_never_copies_over_what_is_there(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        case.copies("data/a")
        asked: list[dict[str, Any]] = []
        copy = case.store.store.copy
        monkeypatch.setattr(
            type(case.store.store),
            "copy",
            lambda self, *args, **more: (asked.append(more), copy(*args, **more)),
        )
        case.restore()
        assert asked == [{"create": True}]
