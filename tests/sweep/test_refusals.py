"""Objects and marks that are refused, each by name: at the mark, the approval and the sweep."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.errors import (
    DataGone,
    FormatError,
    GateRefused,
    LakeplanError,
    LeaseHeld,
    PermissionDenied,
    StalePlan,
    StorageError,
    StorageNotFound,
    UsageError,
)
from lakeplan.formats.namespace import KNOWN_FILE, MARK_FILE, OWNER_KEY, mark_prefix
from lakeplan.formats.ranges import read_metarange
from lakeplan.review import selection
from lakeplan.state.clocks import Clocks
from lakeplan.state.store import Lease
from lakeplan.stores.open import SweepStore
from lakeplan.sweep.judge import approve
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.ports import RefsMemory
from lakeplan.sweep.records import load_approval
from lakeplan.sweep.run import HELD_AGAIN, check_may_run, run_sweep
from lakeplan.values.repository import Refs, Repository
from lakeplan.values.simulation import Status, UncommittedRun
from lakeplan.values.sweep import StoreFacts
from tests.sweeping.lake import LakeRepository
from tests.sweeping.stores import FaultyStore, raising
from tests.sweeping.world import SweepWorld


def range_of(repo: LakeRepository, ref: str) -> str:
    """The id of a range of a commit."""
    commit = repo.call("GET", f"/commits/{repo_commit(repo, ref)}").json()
    data = (repo.folder / "_lakefs" / commit["meta_range_id"]).read_bytes()
    return read_metarange(data, name="m")[0].id


def repo_commit(repo: LakeRepository, ref: str) -> str:
    return str(repo.call("GET", f"/refs/{ref}/commits", params={"amount": 1}).json()["results"][0]["id"])


def nothing_is_marked(repo: LakeRepository) -> bool:
    return not list((repo.folder / "_lakeplan").glob(f"marks/*/{MARK_FILE}"))


class DescribeMarking:
    def it_refuses_without_rules(self, world: SweepWorld, repo: LakeRepository) -> None:
        repo.call("DELETE", "/settings/gc_rules")
        with pytest.raises(LakeplanError, match="no GC rules are set"):
            world.mark()
        assert nothing_is_marked(repo)

    @pytest.mark.parametrize("ref", ["main", "main~1", "main~3"])
    def it_refuses_a_damaged_range_of_any_commit(
        self, world: SweepWorld, repo: LakeRepository, ref: str
    ) -> None:
        path = repo.folder / "_lakefs" / range_of(repo, ref)
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 0xFF
        path.write_bytes(bytes(data))
        with pytest.raises(FormatError):
            world.mark()
        assert nothing_is_marked(repo)

    @pytest.mark.parametrize("ref", ["main", "main~3"])
    def it_refuses_a_missing_range_of_any_commit(
        self, world: SweepWorld, repo: LakeRepository, ref: str
    ) -> None:
        (repo.folder / "_lakefs" / range_of(repo, ref)).unlink()
        with pytest.raises((DataGone, StorageNotFound)):
            world.mark()
        assert nothing_is_marked(repo)

    def it_refuses_a_repository_without_branches(
        self, world: SweepWorld, repo: LakeRepository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _change_refs(monkeypatch, lambda refs: replace(refs, branches=()))
        with pytest.raises(LakeplanError, match="no branches") as caught:
            world.mark()
        assert caught.value.where == "prod/repo1"

    def it_refuses_a_head_that_neither_dump_nor_server_has(
        self, world: SweepWorld, repo: LakeRepository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        head = repo_commit(repo, "main")

        def without(refs: Refs) -> Refs:
            return replace(refs, commits=tuple(c for c in refs.commits if c.id != head))

        _change_dumps(monkeypatch, without)
        assert world.mark().to_delete.objects == 2, "a HEAD that the server can give is fetched"
        world.lake.handle.faults.deny(f"GET .*/commits/{head}", status=404, message="commit not found")
        with pytest.raises(
            LakeplanError, match=f"branch main is at commit {head[:12]}: .*not found"
        ) as raised:
            world.mark()
        assert "delete the branch" in raised.value.hint

    def it_skips_a_read_only_repository(self, world: SweepWorld, repo: LakeRepository) -> None:
        other = world.lake.repository("repo2")
        other.set_rules(7)
        other.upload("a.bin", b"old")
        world.lake.clock.advance(days=2)
        world.lake.call(
            "POST",
            "/repositories",
            json={
                "name": "repo3",
                "storage_namespace": "local://repo3",
                "default_branch": "main",
                "read_only": True,
            },
        )
        report = world.mark_all()
        assert [mark.key for mark in report.marks] == ["prod/repo1", "prod/repo2"]
        assert list(report.skipped) == ["prod/repo3"]
        assert "read-only" in report.skipped["prod/repo3"]
        assert report.exit_code == 0

    @pytest.mark.parametrize(
        ("namespace", "how"),
        [
            ("local://repo1/", "the same storage namespace"),
            ("local://repo1/data/inner", "inside this repository's"),
            ("local://outer", ""),
        ],
    )
    def it_refuses_a_namespace_that_is_shared(
        self,
        world: SweepWorld,
        repo: LakeRepository,
        monkeypatch: pytest.MonkeyPatch,
        namespace: str,
        how: str,
    ) -> None:
        world.lake.repository("other", "local://elsewhere")
        reader = world.ports().reader("prod")
        shared = [
            replace(r, storage_namespace=namespace) if r.id == "other" else r
            for r in reader.list_repositories()
        ]
        monkeypatch.setattr(type(reader), "list_repositories", lambda self, prefix="": iter(shared))
        if how:
            with pytest.raises(LakeplanError, match=how):
                world.mark()
        else:
            world.mark()

    def it_refuses_a_namespace_that_lies_inside_another_s(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        world.lake.repository("repo2", "local://repo1/data/inner").set_rules(7)
        report = world.mark_all()
        assert report.marks == []
        assert "inside" in report.failed["prod/repo1"].message
        assert "contains" in report.failed["prod/repo2"].message
        assert report.exit_code == 1

    @pytest.mark.parametrize(
        "owner",
        [
            {"server": "https://another", "repository": "repo1"},
            {"server": None, "repository": "repo9"},
        ],
    )
    def it_refuses_a_namespace_that_belongs_to_another(
        self, world: SweepWorld, repo: LakeRepository, owner: dict[str, str | None]
    ) -> None:
        owner["server"] = owner["server"] or world.lake.handle.endpoint_url
        world.site().store.create(OWNER_KEY, json.dumps(owner).encode())
        with pytest.raises(LakeplanError, match="belongs to"):
            world.mark()

    @pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff"])
    def it_refuses_an_owner_that_it_cannot_read(
        self, world: SweepWorld, repo: LakeRepository, data: bytes
    ) -> None:
        world.site().store.create(OWNER_KEY, data)
        with pytest.raises(LakeplanError, match="owner cannot be read"):
            world.mark()

    def it_refuses_soft_delete(self, world: SweepWorld, repo: LakeRepository) -> None:
        class Soft(FaultyStore):
            def facts(self) -> StoreFacts:
                return StoreFacts(versioned=False, soft_delete=True)

        world.wrap = Soft
        with pytest.raises(LakeplanError, match="soft delete is on"):
            world.mark()

    def it_refuses_rules_that_change_while_it_looks(self, world: SweepWorld, repo: LakeRepository) -> None:
        world.between = lambda: repo.set_rules(60)
        with pytest.raises(StalePlan, match="rules changed while the command ran"):
            world.mark()

    @pytest.mark.parametrize(
        ("on", "key"),
        [("list_objects", ""), ("create", MARK_FILE), ("create", "going/"), ("read", "listing/")],
    )
    def it_leaves_no_mark_when_the_store_fails(
        self, world: SweepWorld, repo: LakeRepository, on: str, key: str
    ) -> None:
        def broken(store: SweepStore) -> FaultyStore:
            faulty = FaultyStore(store)
            faulty.before = raising(StorageError("no space left"), on=on, key=key)
            return faulty

        world.wrap = broken
        with pytest.raises(StorageError):
            world.mark()
        assert nothing_is_marked(repo)
        world.wrap = lambda store: store
        assert world.mark().to_delete.objects == 2

    def it_lets_one_repository_fail_alone(self, world: SweepWorld, repo: LakeRepository) -> None:
        world.lake.repository("repo2").upload("a.bin", b"old")  # no rules
        world.lake.clock.advance(days=2)
        report = world.mark_all()
        assert [mark.key for mark in report.marks] == ["prod/repo1"]
        assert list(report.failed) == ["prod/repo2"]
        assert report.exit_code == 3


class DescribeApproving:
    def it_records_a_reason_that_is_not_utf_8(self, world: SweepWorld, repo: LakeRepository) -> None:
        """As a terminal may pass it on."""
        mark = world.mark()
        site, stored, reason = world.site(), world.stored(mark), "ticket \udcfc"
        run, overrides = world.run_of(), world.gate_overrides
        approve(site, stored, world.state, run, reason=reason, overrides=overrides)
        assert load_approval(world.state, stored).reason == reason
        assert world.run(mark).finished

    def it_needs_a_reason(self, world: SweepWorld, repo: LakeRepository) -> None:
        mark = world.mark()
        with pytest.raises(UsageError, match="needs a reason"):
            approve(
                world.site(),
                world.stored(mark),
                world.state,
                world.run_of(),
                reason="  ",
                overrides=world.gate_overrides,
            )

    def it_refuses_an_empty_mark(self, world: SweepWorld, repo: LakeRepository) -> None:
        repo.set_rules(60)
        mark = world.mark()
        with pytest.raises(UsageError, match="nothing to approve"):
            world.approve(mark)
        with pytest.raises(GateRefused, match="no objects to delete") as refused:
            world.run(mark)
        assert "approve" not in refused.value.hint

    @pytest.mark.parametrize(
        ("sweep", "safety", "gate"),
        [
            ({"min_age": "1h"}, {}, "min-age"),
            ({"max_objects": 1}, {}, "sweep-limit"),
            ({"max_bytes": 10}, {}, "sweep-limit"),
            ({}, {"max_expired_objects_percent": 30}, "expired-objects"),
            ({}, {"max_expired_bytes": 10}, "expired-bytes"),
        ],
    )
    def it_refuses_while_a_gate_is_shut_and_opens_it_by_name(
        self,
        world: SweepWorld,
        repo: LakeRepository,
        sweep: dict[str, object],
        safety: dict[str, object],
        gate: str,
    ) -> None:
        world.sweep |= sweep
        world.safety |= safety
        mark = world.mark()
        with pytest.raises(GateRefused, match=gate):
            world.approve(mark)
        with pytest.raises(GateRefused, match="is not approved"):
            world.run(mark)
        world.allowed = frozenset({gate})
        assert world.sweep_of(mark)["deleted"]["objects"] == 2

    def it_refuses_while_a_repository_of_the_server_cannot_be_read(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        world.lake.repository("secret")
        world.lake.handle.faults.deny(".*/repositories/secret/.*")
        mark = world.mark()
        assert list(mark.unreadable) == ["secret"]
        with pytest.raises(GateRefused, match="could not read 1 other repository on the server \\(secret\\)"):
            world.approve(mark)


class Narrow:
    """A reader whose user may list and read ``repo1`` only: lakeFS leaves the others out of its list."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def list_repositories(self, prefix: str = "") -> list[Repository]:
        return [one for one in self._reader.list_repositories(prefix) if one.id == "repo1"]

    def get_repository(self, repository: str) -> Repository:
        if repository != "repo1":
            raise PermissionDenied("cannot read the repository: the operation requires fs:ReadRepository")
        found: Repository = self._reader.get_repository(repository)
        return found


class DescribeAServerThatHidesRepositories:
    @pytest.fixture
    def importer(self, world: SweepWorld, repo: LakeRepository) -> LakeRepository:
        """It holds what expires in ``repo1``."""
        other = world.lake.repository("repo2")
        for address in world.going(world.mark()):
            other.stage(address.rpartition("/")[2], f"local://repo1/{address}")
        other.commit(0)
        return other

    def hide(self, world: SweepWorld) -> None:
        world.readers["prod"] = Narrow(world.ports().reader("prod"))  # type: ignore[assignment]

    def it_approves_no_mark(self, world: SweepWorld, importer: LakeRepository) -> None:
        self.hide(world)
        mark = world.mark()
        assert mark.to_delete.objects == 2
        assert list(mark.unreadable) == ["hidden from these credentials"]
        with pytest.raises(
            GateRefused, match=r"1 other repository on the server \(hidden from these credentials\)"
        ):
            world.approve(mark)

    def it_runs_no_mark_that_was_made_before(self, world: SweepWorld, repo: LakeRepository) -> None:
        mark = world.mark()
        world.approve(mark)
        before = repo.stored()
        self.hide(world)
        with pytest.raises(GateRefused, match="lists only repositories that these credentials may read"):
            world.run(mark)
        assert repo.stored() == before

    def it_is_none_whose_user_may_read_all(self, world: SweepWorld, importer: LakeRepository) -> None:
        mark = world.mark()
        assert (mark.to_delete.objects, mark.unreadable) == (0, {})


class Forgetful:
    """A server that drops what it listed, so many times: a branch is deleted while it lists."""

    def __init__(self, preparer: Any, times: int) -> None:
        self._preparer, self._left = preparer, times

    def prepare_uncommitted(self, repository: str) -> tuple[UncommittedRun, ...]:
        self._left -= 1
        if self._left >= 0:
            return (UncommittedRun("run", ""),)
        found: tuple[UncommittedRun, ...] = self._preparer.prepare_uncommitted(repository)
        return found

    def grace_period_seconds(self) -> int | None:
        found: int | None = self._preparer.grace_period_seconds()
        return found


class DescribeAServerThatDropsUncommittedData:
    @pytest.fixture
    def again(self, world: SweepWorld, repo: LakeRepository) -> set[str]:
        """Addresses of expired objects, one of which is staged again."""
        going = set(world.going(world.mark()))
        repo.stage("again.bin", min(going))
        return going

    def forget(self, world: SweepWorld, times: int) -> None:
        world.ports()
        assert world._connections is not None
        reader, preparer = world._connections
        world._connections = (reader, Forgetful(preparer, times))

    def it_asks_again(self, world: SweepWorld, again: set[str]) -> None:
        self.forget(world, 2)
        assert set(world.going(world.mark())) == again - {min(again)}

    def it_gives_up(self, world: SweepWorld, again: set[str]) -> None:
        self.forget(world, 3)
        with pytest.raises(StalePlan, match="although branch main has uncommitted changes"):
            world.mark()

    @pytest.mark.parametrize(
        ("first", "end", "refused"),
        [
            (("", ""), None, True),
            (("main", ""), ("n", ""), True),
            (("main", "again.bin"), None, True),
            (("", ""), ("main", ""), False),
            (("main", "b"), None, False),
            (("n", ""), None, False),
        ],
    )
    def it_believes_an_answer_among_others_if_nothing_is_uncommitted_where_it_looked(
        self,
        world: SweepWorld,
        again: set[str],
        first: tuple[str, str],
        end: tuple[str, str] | None,
        refused: bool,
    ) -> None:
        """Also if branches were created and deleted meanwhile, which no list of branches shows."""
        world.ports()
        assert world._connections is not None
        reader, real = world._connections
        empty = UncommittedRun("run", "", first, end)
        several: Any = SimpleNamespace(
            prepare_uncommitted=lambda repository: (*real.prepare_uncommitted(repository), empty),
            grace_period_seconds=real.grace_period_seconds,
        )
        world._connections = (reader, several)
        if refused:
            with pytest.raises(StalePlan, match="although branch main has uncommitted changes"):
                world.mark()
        else:
            assert set(world.going(world.mark())) == again - {min(again)}

    def it_believes_it_where_nothing_of_the_namespace_is_uncommitted(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        repo.stage("elsewhere.bin", "local://other/data/object")
        repo.delete("a.bin")
        self.forget(world, 1)
        assert len(world.going(world.mark())) == 2


class DescribeRunning:
    @pytest.fixture
    def mark(self, world: SweepWorld, repo: LakeRepository) -> Mark:
        mark = world.mark()
        world.approve(mark)
        return mark

    @pytest.fixture
    def untouched(self, repo: LakeRepository) -> Callable[[], bool]:
        before = repo.stored()
        return lambda: before <= repo.stored()

    def it_refuses_what_nobody_approved(self, world: SweepWorld, repo: LakeRepository) -> None:
        with pytest.raises(LakeplanError, match="is not approved"):
            world.run(world.mark())

    def it_refuses_a_mark_that_changed(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark, untouched: Callable[[], bool]
    ) -> None:
        path = repo.folder / mark_prefix(mark.mark_id) / MARK_FILE
        path.write_bytes(path.read_bytes().replace(b'"by": "ann', b'"by": "eve'))
        with pytest.raises(StalePlan, match="the mark was changed after it was created") as caught:
            world.run(mark)
        assert f"copy the objects back from _lakeplan/quarantine/{mark.mark_id}/" in caught.value.hint
        assert untouched()

    def it_refuses_a_part_that_changed(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark, untouched: Callable[[], bool]
    ) -> None:
        path = repo.folder / mark_prefix(mark.mark_id) / mark.marked.going[0].name
        path.write_bytes(path.read_bytes() + b"\n")
        end = world.run(mark)
        assert "checksum does not match" in end.problem
        assert not end.finished
        assert untouched()

    def it_refuses_when_what_the_mark_had_seen_changed(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark, untouched: Callable[[], bool]
    ) -> None:
        path = repo.folder / mark_prefix(mark.mark_id) / KNOWN_FILE
        path.write_bytes(path.read_bytes() + b"\n")
        with pytest.raises(StalePlan, match="changed since the mark was created"):
            world.run(mark)
        assert untouched()

    def it_refuses_an_old_mark(self, world: SweepWorld, mark: Mark, untouched: Callable[[], bool]) -> None:
        world.lake.clock.advance(hours=72)
        with pytest.raises(StalePlan, match="older than the limit of 72 hours"):
            world.run(mark)
        assert untouched()

    def it_waits_until_lowered_rules_have_settled(
        self, world: SweepWorld, repo: LakeRepository, untouched: Callable[[], bool]
    ) -> None:
        world.sweep["settle"] = "24h"
        mark = world.mark()  # these rules were never seen before: they may have been lowered just now
        world.approve(mark)
        world.lake.clock.advance(hours=23)
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(mark)
        assert untouched()
        world.lake.clock.advance(hours=1)
        assert world.run(mark).amount(Status.DELETED).objects == 2

    def it_waits_again_when_a_rule_is_lowered_again(self, world: SweepWorld, repo: LakeRepository) -> None:
        world.sweep["settle"] = "24h"
        world.mark()
        world.lake.clock.advance(hours=30)
        repo.set_rules(6)
        lowered = world.mark()
        world.approve(lowered)
        world.lake.clock.advance(hours=5)
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(lowered)
        repo.set_rules(8)  # by way of anything: somebody may have raised them further and lowered them again
        raised = world.mark()
        assert raised.lowered_at == world.now()

    @pytest.mark.parametrize(
        "key",
        [
            "_lakefs/retention/gc/unified/0abc/deleted/part-0.parquet",
            "_lakefs/retention/gc/addresses/run_id=0abc/x.parquet",
        ],
    )
    def it_refuses_when_another_collector_ran_since(
        self, world: SweepWorld, mark: Mark, untouched: Callable[[], bool], key: str
    ) -> None:
        world.site().store.put(key, b"x")
        with pytest.raises(StalePlan, match="collector has run since the mark was created \\(run 0abc\\)"):
            world.run(mark)
        assert untouched()

    def it_refuses_a_second_mark_of_the_same_time(self, world: SweepWorld, repo: LakeRepository) -> None:
        first, second = world.mark(), world.mark()
        world.sweep_of(first)
        world.approve(second)
        with pytest.raises(StalePlan, match="collector has run since"):
            world.run(second)

    def it_refuses_a_new_hold_on_a_prefix(
        self, world: SweepWorld, mark: Mark, untouched: Callable[[], bool]
    ) -> None:
        world.holds = [{"prefix": "a", "reason": "legal"}]
        with pytest.raises(
            StalePlan, match="has a hold on a that was not in force when the mark was created"
        ):
            world.run(mark)
        assert untouched()

    @pytest.mark.parametrize("kind", ["commit", "tag", "branch"])
    def it_saves_what_a_new_hold_names(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark, kind: str
    ) -> None:
        repo.tag("keep", "main~3")
        name = {"commit": repo_commit(repo, "main~3"), "tag": "keep", "branch": "main"}[kind]
        world.holds = [{kind: name, "reason": "legal"}]
        end = world.run(mark)
        assert end.amount(Status.SAVED).objects == (2 if kind == "branch" else 1)
        assert {why for status, why in world.ends(mark).values() if status == "saved"} == {HELD_AGAIN}
        assert repo.get("keep", "a.bin") == b"first"

    def it_refuses_when_the_rules_were_taken_away(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark, untouched: Callable[[], bool]
    ) -> None:
        repo.call("DELETE", "/settings/gc_rules")
        with pytest.raises(LakeplanError, match="no GC rules are set"):
            world.run(mark)
        assert untouched()

    def it_refuses_when_a_new_repository_cannot_be_read(
        self, world: SweepWorld, mark: Mark, untouched: Callable[[], bool]
    ) -> None:
        world.lake.repository("secret")
        world.lake.handle.faults.deny(".*/repositories/secret/.*")
        with pytest.raises(GateRefused, match="secret"):
            world.run(mark)
        assert untouched()

    def it_refuses_when_another_repository_came_into_its_namespace(
        self, world: SweepWorld, mark: Mark, untouched: Callable[[], bool]
    ) -> None:
        world.lake.repository("nested", "local://repo1/data/nested")
        with pytest.raises(LakeplanError, match="inside this repository's"):
            world.run(mark)
        assert untouched()

    def it_refuses_a_mark_of_another_namespace(
        self, world: SweepWorld, mark: Mark, monkeypatch: pytest.MonkeyPatch, untouched: Callable[[], bool]
    ) -> None:
        site = world.site()
        moved = replace(site, repository=replace(site.repository, storage_namespace="local://moved"))
        with pytest.raises(StalePlan, match="another server or namespace"):
            check_may_run(moved, mark, Clocks(world.now(), world.now()), mark.lowered_at)

    def it_refuses_while_another_run_writes_the_repository(
        self, world: SweepWorld, mark: Mark, untouched: Callable[[], bool]
    ) -> None:
        site, stored = world.site(), world.stored(mark)
        run = replace(world.run_of(), is_gone=lambda holder: False)
        with (
            Lease(world.state, site.key, {"user": "bob"}, world.now, lambda holder: False, world.now),
            pytest.raises(LeaseHeld),
        ):
            run_sweep(site, stored, world.ports(), run)
        assert untouched()

    def it_refuses_a_permission_that_is_missing(
        self, world: SweepWorld, mark: Mark, untouched: Callable[[], bool]
    ) -> None:
        world.lake.handle.faults.deny("POST .*/gc/prepare_uncommited")
        with pytest.raises(PermissionDenied):
            world.run(mark)
        assert untouched()


def _change_refs(monkeypatch: pytest.MonkeyPatch, change: Callable[[Refs], Refs]) -> None:
    real = RefsMemory.read
    monkeypatch.setattr(RefsMemory, "read", lambda *args: change(real(*args)))


def _change_dumps(monkeypatch: pytest.MonkeyPatch, change: Callable[[Refs], Refs]) -> None:
    """What a dump under load shows: a HEAD whose commit it lacks (api.md)."""
    real = selection.read_refs
    monkeypatch.setattr(selection, "read_refs", lambda *args: change(real(*args)))
