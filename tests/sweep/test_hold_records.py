"""Records of what holds kept, file by file; whole sweeps are in test_holds."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from lakeplan.errors import FormatError, StorageError
from lakeplan.formats.ranges import write_metarange, write_range
from lakeplan.sweep import hold_records as module
from lakeplan.sweep.hold_records import LEAST_GRACE, keep_held, recorded_holds
from lakeplan.values.repository import AddressType, Branch, Commit, Entry, Refs, Tag
from lakeplan.values.sweep import Deletion, HeldCommit, Hold, Versions
from tests.sweeping.stores import FaultyStore, folder_store, put_object, raising

NOW = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
HOLDS = "_lakeplan/holds/"
Kind = Literal["prefix", "branch", "tag", "commit"]


def folder(kind: str, name: str) -> str:
    return f"{HOLDS}{kind}-{hashlib.sha256(name.encode()).hexdigest()[:32]}/"


class OneByOne(FaultyStore):
    batch_size = 2

    def delete(self, keys: Any, **more: Any) -> Any:
        assert len(keys) <= 2
        assert more.keys() == {"versions", "expected"}
        assert more["versions"] is Versions.MARKER
        return super().delete(keys, **more)


@dataclass
class Case:
    """A repository whose ``main`` has commits ``c1`` to ``c3``, each made from the one before."""

    path: Path
    holds: tuple[Hold, ...] = ()
    commits: list[Commit] = field(default_factory=list)
    branches: dict[str, str] = field(default_factory=lambda: {"main": "c3"})
    tags: dict[str, str] = field(default_factory=dict)
    settle: timedelta = timedelta()
    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = OneByOne(folder_store(self.path))
        self.commits = [Commit("c1", 1, ""), Commit("c2", 2, "", ("c1",)), Commit("c3", 3, "", ("c2",))]

    def site(self, *holds: Hold) -> Any:
        sweep = SimpleNamespace(settle_seconds=int(self.settle.total_seconds()))
        return SimpleNamespace(
            key="prod/lake",
            desired=SimpleNamespace(name="lake", holds=holds, sweep=sweep),
            reader=SimpleNamespace(metadata_reader=self.reader),
            store=self.store,
        )

    def keep(self, *holds: Hold, at: datetime = NOW) -> set[HeldCommit]:
        self.store.calls.clear()
        refs = Refs(
            tuple(self.commits),
            tuple(Branch(*each) for each in self.branches.items()),
            tuple(Tag(*each) for each in self.tags.items()),
        )
        kept = keep_held(self.site(*holds), refs, at)
        assert len(set(kept)) == len(kept)
        return set(kept)

    def recorded(self, *holds: Hold, at: datetime = NOW) -> set[HeldCommit]:
        """What a command that writes nothing knows."""
        self.store.calls.clear()
        found = recorded_holds(self.store, holds, at)
        assert self.written() == self.store.called("delete") == []
        return set(found)

    def reader(self, repository: str) -> Any:
        assert repository == "lake"
        return SimpleNamespace(read_metadata=self.read_metadata)

    def read_metadata(self, kind: str, id: str) -> bytes:
        self.asked.append((kind, id))
        return self.files[kind, id]

    def state(self, *ranges: list[str]) -> str:
        """The id of a metarange with these paths."""
        infos = []
        for paths in ranges:
            info, data = write_range(Entry(path, "a", AddressType.RELATIVE, 1) for path in paths)
            self.files["range", info.id] = data
            infos.append(info)
        id, data = write_metarange(infos)
        self.files["meta_range", id] = data
        return id

    def there(self) -> set[str]:
        return {one.key for one in self.store.store.list_objects(HOLDS)}

    def written(self) -> list[str]:
        return [key for key, _ in self.store.called("put")]


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr("os.fsync", lambda handle: None)
    return Case(tmp_path / "ns")


BRANCH = Hold("branch", "ma*", date(2026, 6, 30), "legal")
ON_BRANCH = folder("branch", "ma*")


def it_records_what_holds_name_each_in_a_file(case: Case) -> None:
    case.tags = {"v1": "c1"}
    tag = Hold("tag", "v1")
    kept = {HeldCommit("branch", "ma*", "c3", BRANCH.until), HeldCommit("tag", "v1", "c1")}
    assert case.keep(BRANCH, tag) == kept
    first, second = f"{ON_BRANCH}c3.json", f"{folder('tag', 'v1')}c1.json"
    assert case.there() == {first, second}
    assert case.store.read(first) == (
        b'{"at": "2026-03-31T12:00:00+00:00", "commit": "c3", "kind": "branch", "name": "ma*",'
        b' "reason": "legal", "until": "2026-06-30"}\n'
    )
    assert json.loads(case.store.read(second))["until"] is None
    assert (case.keep(BRANCH, tag), case.written()) == (kept, []), "nothing is written twice"


def it_keeps_what_was_recorded_when_nothing_is_of_the_name_any_more(case: Case) -> None:
    case.branches["main"], case.tags = "c2", {"v1": "c3"}
    holds = [Hold("branch", "main"), Hold("tag", "v1")]
    case.keep(*holds)
    case.branches, case.tags = {}, {}
    assert {held.commit_id for held in case.keep(*holds)} == {"c2", "c3"}


def it_records_the_newest_of_a_line_of_commits_for_a_branch_only(case: Case) -> None:
    case.branches["main"], case.tags = "c1", {"v1": "c1"}
    holds = [Hold("branch", "main"), Hold("tag", "v1")]
    case.keep(*holds)
    case.branches["main"], case.tags = "c3", {"v1": "c3"}
    kept = {(held.kind, held.commit_id) for held in case.keep(*holds)}
    assert kept == {("branch", "c3"), ("tag", "c1"), ("tag", "c3")}
    assert case.there() == {
        f"{folder('branch', 'main')}c3.json",
        f"{folder('tag', 'v1')}c1.json",
        f"{folder('tag', 'v1')}c3.json",
    }


def it_records_what_is_new_among_what_was_recorded(case: Case) -> None:
    hold = Hold("tag", "v*")
    case.commits += [Commit(f"d{n}", 4 + n, "", ("c3",)) for n in range(12)]
    case.tags = {f"v{n}": f"d{n}" for n in range(11)}
    case.keep(hold)
    case.tags["v11"] = "d11"
    assert {held.commit_id for held in case.keep(hold)} == {f"d{n}" for n in range(12)}
    assert case.written() == [f"{folder('tag', 'v*')}d11.json"]


def it_keeps_what_a_branch_had_before_it_was_reset_or_moved_to_an_unknown_commit(case: Case) -> None:
    case.keep(BRANCH)
    case.branches["main"] = "c2"
    assert {held.commit_id for held in case.keep(BRANCH)} == {"c2", "c3"}
    case.branches["main"] = "unknown"
    assert {held.commit_id for held in case.keep(BRANCH)} == {"c2", "c3", "unknown"}


def it_follows_the_last_day_of_a_hold(case: Case) -> None:
    case.keep(BRANCH)
    case.branches["main"] = "c2"
    longer = replace(BRANCH, until=None)
    assert {(held.commit_id, held.until) for held in case.keep(longer)} == {("c2", None), ("c3", None)}
    assert sorted(case.written()) == [f"{ON_BRANCH}c2.json", f"{ON_BRANCH}c3.json"]
    assert case.keep(longer) == {HeldCommit("branch", "ma*", id) for id in ("c2", "c3")}
    assert case.written() == []


class DescribeWhatIsRecorded:
    def it_is_what_holds_named_when_last_inspected(self, case: Case) -> None:
        case.tags = {"v1": "c1"}
        holds = BRANCH, Hold("tag", "v1")
        assert case.recorded(*holds) == set()
        kept = case.keep(*holds)
        case.branches, case.tags = {}, {}
        assert case.recorded(*holds) == kept

    def it_counts_on_a_hold_s_last_day_and_not_after_it(self, case: Case) -> None:
        kept = case.keep(BRANCH)
        assert case.recorded(BRANCH, at=datetime(2026, 6, 30, 23, 59, tzinfo=timezone.utc)) == kept
        assert case.recorded(BRANCH, at=datetime(2026, 7, 1, tzinfo=timezone.utc)) == set()

    def it_counts_while_a_removed_hold_still_keeps(self, case: Case) -> None:
        kept = case.keep(BRANCH)
        assert case.recorded() == kept
        case.keep()
        assert case.recorded() == kept

    def it_has_nothing_of_a_release_alone(self, case: Case) -> None:
        put_object(case.path, f"{ON_BRANCH}released.json", b'{"at": "2026-03-01T12:00:00+00:00"}')
        assert case.recorded(BRANCH) == set()


class DescribeAHoldThatIsNotInTheTree:
    @pytest.mark.parametrize("settle", [timedelta(), 3 * DAY])
    def it_keeps_for_a_day_or_as_long_as_rules_settle(
        self, case: Case, settle: timedelta, caplog: pytest.LogCaptureFixture
    ) -> None:
        case.settle = settle
        kept = case.keep(BRANCH)
        assert case.keep() == kept
        end = NOW + max(LEAST_GRACE, settle)
        assert caplog.messages == [
            "prod/lake: the hold on branch 'ma*' was removed from the tree or shortened;"
            f" its data is kept until {end:%Y-%m-%d %H:%M} UTC"
        ]
        released = f"{ON_BRANCH}released.json"
        assert case.store.read(released) == b'{"at": "2026-03-31T12:00:00+00:00"}\n'
        assert case.keep(at=end - SECOND) == kept
        assert case.written() == []
        assert case.keep(at=end) == set()
        assert case.there() == set()

    def it_keeps_beside_others_that_are_not(self, case: Case) -> None:
        case.tags = {f"v{n}": "c1" for n in range(6)}
        kept = case.keep(*(Hold("tag", name) for name in case.tags))
        assert len(kept) == 6
        case.keep()
        assert case.keep() == kept

    def it_keeps_for_as_long_again_once_it_was_back(self, case: Case) -> None:
        kept = case.keep(BRANCH)
        case.keep()
        assert case.keep(BRANCH, at=NOW + DAY) == kept
        assert case.there() == {f"{ON_BRANCH}c3.json"}
        assert case.keep(at=NOW + DAY) == kept
        assert case.keep(at=NOW + 2 * DAY - SECOND) == kept
        assert case.keep(at=NOW + 2 * DAY) == set()

    def it_ends_with_its_last_day(self, case: Case) -> None:
        kept = case.keep(replace(BRANCH, until=NOW.date()))
        assert case.keep() == kept
        assert case.keep(at=datetime(2026, 4, 1, tzinfo=timezone.utc)) == set()
        assert case.there() == set()

    def it_keeps_for_a_day_where_the_tree_has_an_earlier_last_day_that_is_over(self, case: Case) -> None:
        kept = case.keep(BRANCH)
        shortened = replace(BRANCH, until=NOW.date() - DAY)
        assert case.keep(shortened) == kept
        assert case.keep(shortened, at=NOW + DAY - SECOND) == kept
        assert case.keep(shortened, at=NOW + DAY) == set()

    def it_ends_with_the_last_day_of_all_that_it_kept(self, case: Case) -> None:
        case.keep(BRANCH)
        file = case.path / f"{ON_BRANCH}c3.json"
        content = {**json.loads(file.read_bytes()), "commit": "c9", "until": "2026-03-30"}
        put_object(case.path, f"{ON_BRANCH}c9.json", json.dumps(content).encode())
        assert len(case.keep()) == 2

    def it_keeps_while_its_release_is_in_the_future(self, case: Case) -> None:
        kept = case.keep(BRANCH)
        put_object(case.path, f"{ON_BRANCH}released.json", b'{"at": "8999-01-01T12:00:00+00:00"}')
        assert case.keep() == kept

    def it_says_nothing_of_other_holds(self, case: Case) -> None:
        other = Hold("branch", "main")
        case.keep(BRANCH, other)
        case.keep(other)
        kept = {HeldCommit("branch", "main", "c3")}
        assert case.keep(other, at=NOW + DAY) == kept
        assert case.there() == {f"{folder('branch', 'main')}c3.json"}


def it_ends_a_hold_of_the_tree_with_its_last_day(case: Case) -> None:
    case.keep(BRANCH)
    case.keep()
    assert case.keep(BRANCH, Hold("branch", "main"), at=datetime(2026, 7, 1, tzinfo=timezone.utc)) == {
        HeldCommit("branch", "main", "c3")
    }
    assert case.there() == {f"{folder('branch', 'main')}c3.json"}


class DescribeAnInterruptedRemoval:
    def it_removes_the_release_last(self, case: Case) -> None:
        """Else a machine where the hold is back in the tree would not know that its commits are removed."""
        case.tags = {"v1": "c1", "v2": "c2", "v3": "c3"}
        tags = Hold("tag", "v*")
        case.keep(tags)
        case.keep()
        case.keep(at=NOW + DAY)
        *others, last = (keys for (keys,) in case.store.called("delete"))
        assert last == (f"{folder('tag', 'v*')}released.json",)
        assert [*map(len, others)] == [2, 1]

    @pytest.mark.parametrize("moment", [0, 1])
    def it_keeps_what_another_machine_records_meanwhile(self, case: Case, moment: int) -> None:
        """An old tree has no hold any more. In a newer one it is back, whose branch is then deleted."""
        kept = case.keep(BRANCH)
        case.keep()
        other = Case(case.path)
        before, after = case.store.before, case.store.after

        def put_back(name: str, args: tuple[Any, ...]) -> None:
            if name == "delete":
                case.store.before, case.store.after = before, after
                assert other.keep(BRANCH, at=NOW + DAY) == kept

        if moment:
            case.store.after = put_back
            case.keep(at=NOW + DAY)
        else:
            case.store.before = put_back
            with pytest.raises(StorageError, match="changed"):
                case.keep(at=NOW + DAY)
        other.branches = {}
        assert other.keep(BRANCH, at=NOW + DAY) == kept

    def it_fails_where_another_machine_removes_a_record_that_it_reads(self, case: Case) -> None:
        case.keep(BRANCH)
        case.keep()
        other, after = Case(case.path), case.store.after

        def remove(name: str, args: tuple[Any, ...]) -> None:
            if name == "read":
                case.store.after = after
                assert other.keep(at=NOW + DAY) == set()

        case.store.after = remove
        with pytest.raises(StorageError, match="does not exist"):
            case.keep(BRANCH, at=NOW + DAY)

    def it_says_that_the_store_refused(self, case: Case) -> None:
        case.keep(BRANCH)
        case.keep()
        released = f"{ON_BRANCH}released.json"
        case.store.refuses = lambda key: Deletion(key, "AccessDenied") if key == released else None
        for holds, left in ([BRANCH], {f"{ON_BRANCH}c3.json"}), ([], set()), ([BRANCH], set()):
            with pytest.raises(StorageError, match="AccessDenied") as caught:
                case.keep(*holds, at=NOW + DAY)
            assert caught.value.where == f"{case.store.url}/{released}"
            assert case.there() == {*left, released}

    def it_ignores_a_release_of_nothing(self, case: Case) -> None:
        put_object(case.path, f"{ON_BRANCH}released.json", b'{"at": "2026-03-01T12:00:00+00:00"}')
        assert case.keep() == set()
        kept = case.keep(BRANCH)
        assert case.there() == {f"{ON_BRANCH}c3.json"}
        assert case.keep() == kept


class DescribeAPrefix:
    PREFIX = Hold("prefix", "m/")
    ON_PREFIX = folder("prefix", "m/")

    def held(self, case: Case) -> str:
        (held,) = case.keep(self.PREFIX)
        assert held == HeldCommit("prefix", "m/", held.commit_id)
        assert case.there() == {f"{self.ON_PREFIX}{held.commit_id or 'none'}.json"}
        return held.commit_id

    def commit(self, case: Case, *states: str) -> None:
        """Commits ``c1`` … with these metaranges, the last one the newest."""
        case.commits = [Commit(f"c{n}", n, state) for n, state in enumerate(states, start=1)]

    @pytest.mark.parametrize(
        ("ranges", "found"),
        [
            ([["m/a", "z"]], True),
            ([["a", "m/z"]], True),
            ([["a", "m/b", "z"]], True),
            ([["a", "c"], ["m/", "m/x"]], True),
            ([["a", "c"], ["l", "n"]], False),
            ([["a", "b"]], False),
            ([["n", "z"]], False),
            ([["a", "am/b", "z"]], False),
        ],
    )
    def it_keeps_a_commit_that_has_a_path_below_it(
        self, case: Case, ranges: list[list[str]], found: bool
    ) -> None:
        self.commit(case, case.state(*ranges))
        assert self.held(case) == ("c1" if found else "")

    def it_keeps_the_newest_of_them_and_reads_no_more(self, case: Case) -> None:
        old, new, other = case.state(["m/old"]), case.state(["a", "m/new", "z"]), case.state(["x"])
        self.commit(case, old, new, other, "", other)
        assert self.held(case) == "c2"
        kinds = [kind for kind, _ in case.asked]
        assert kinds == ["meta_range", "meta_range", "range"], "each state once"
        case.asked.clear()
        assert (self.held(case), case.asked) == ("c2", []), "once found, it is not searched for again"

    def it_takes_the_first_of_commits_of_one_moment(self, case: Case) -> None:
        state = case.state(["m/a"])
        case.commits = [Commit("c2", 1, state), Commit("c1", 1, state)]
        assert self.held(case) == "c1"

    def it_reads_a_range_once(self, case: Case) -> None:
        wide = ["a", "z"]
        self.commit(case, case.state(wide, ["zz"]), case.state(wide))
        assert self.held(case) == ""
        assert [kind for kind, _ in case.asked] == ["meta_range", "range", "meta_range"]

    @pytest.mark.parametrize(("limit", "found"), [(2, "c1"), (1, "")])
    def it_searches_in_so_many_states(
        self, case: Case, limit: int, found: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MAX_METARANGES", limit)
        self.commit(case, case.state(["m/a"]), case.state(["x"]), "")
        assert self.held(case) == found

    @pytest.mark.parametrize(("limit", "found"), [(2, "c1"), (1, "")])
    def it_searches_in_so_many_ranges(
        self, case: Case, limit: int, found: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MAX_RANGES", limit)
        self.commit(case, case.state(["a", "m/a", "z"]), case.state(["b", "z"]))
        assert self.held(case) == found

    def it_searches_again_while_none_was_found(self, case: Case, caplog: pytest.LogCaptureFixture) -> None:
        assert self.held(case) == ""
        assert caplog.messages == ["prod/lake: the hold on prefix 'm/' matches no path in recent commits"]
        self.commit(case, case.state(["m/a"]))
        assert self.held(case) == "c1"

    def it_never_is_without_a_record_when_its_store_fails(self, case: Case) -> None:
        """Then a hold that is removed from the tree would end at once."""
        self.held(case)
        self.commit(case, case.state(["m/a"]))
        case.store.before = raising(StorageError("no answer"), on="put", key=self.ON_PREFIX)
        with pytest.raises(StorageError):
            case.keep(self.PREFIX)
        assert case.there() == {f"{self.ON_PREFIX}none.json"}
        case.store.before = raising(StorageError("no answer"), on="delete")
        with pytest.raises(StorageError):
            case.keep(self.PREFIX)
        assert case.there() == {f"{self.ON_PREFIX}none.json", f"{self.ON_PREFIX}c1.json"}
        case.store.before = lambda *_: None
        assert case.keep(self.PREFIX) >= {HeldCommit("prefix", "m/", "c1")}
        assert case.keep() >= {HeldCommit("prefix", "m/", "c1")}, "it ends after a day"

    def it_reads_no_range_that_begins_after_it_or_ends_before_it(self, case: Case) -> None:
        self.commit(case, case.state(["a", "l"], ["n", "z"]))
        assert self.held(case) == ""
        assert [kind for kind, _ in case.asked] == ["meta_range"]

    def it_takes_names_that_are_not_utf_8(self, case: Case) -> None:
        name = "m\udcff/"
        self.commit(case, case.state(["a", "z"]))
        case.keep(Hold("prefix", name))
        digest = hashlib.sha256(b"m\xff/").hexdigest()[:32]
        assert case.there() == {f"{HOLDS}prefix-{digest}/none.json"}

    def it_refuses_a_range_that_is_another(self, case: Case) -> None:
        id = case.state(["a", "m/b", "z"])
        self.commit(case, id)
        (range_id,) = (id for kind, id in case.files if kind == "range")
        _, data = write_range([Entry("a", "b", AddressType.RELATIVE, 1)])
        case.files["range", range_id] = data
        with pytest.raises(FormatError) as caught:
            case.keep(self.PREFIX)
        assert caught.value.where == range_id

    def it_names_a_metarange_that_is_none(self, case: Case) -> None:
        self.commit(case, "abc")
        case.files["meta_range", "abc"] = b""
        with pytest.raises(FormatError) as caught:
            case.keep(self.PREFIX)
        assert caught.value.where == "abc"


GOOD = {"kind": "branch", "name": "ma*", "commit": "c3", "until": None}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("c3.json", {**GOOD, "kind": "tag"}),
        ("c3.json", {**GOOD, "name": "other"}),
        ("c3.json", {**GOOD, "commit": "c2"}),
        ("c3.json", {**GOOD, "until": "soon"}),
        ("c3.json", {**GOOD, "until": 7}),
        ("c3.json", {**GOOD, "at": "2026-03-31T12:00:00Z", "until": "soon"}),
        ("c3.json", {key: GOOD[key] for key in ("kind", "name", "commit")}),
        ("c3.json", []),
        ("c3.json", "x"),
        ("released.json", {}),
        ("released.json", {"at": 7}),
        ("released.json", {"at": "2026-03-31T12:00:00"}),
        ("released.json", {"at": "9001-01-01T00:00:00+00:00"}),
        ("none.json", GOOD),
    ],
)
def it_refuses_a_damaged_record(case: Case, file: str, content: object) -> None:
    put_object(case.path, f"{ON_BRANCH}{file}", json.dumps(content).encode())
    with pytest.raises(FormatError, match="the record of held commits is damaged") as caught:
        case.keep(BRANCH)
    assert caught.value.where == f"{case.store.url}/{ON_BRANCH}{file}"
    assert (
        caught.value.hint
        == "Restore the record from a backup. Delete it only if the data that the hold kept may be deleted."
    )
