"""Sweeps that were interrupted, or that failed: what they report is what the store shows."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from rich.console import Console

from lakeplan.cli.commands.sweep import exit_code_of
from lakeplan.errors import FormatError, LakeplanError, LeaseHeld, StalePlan, StorageError
from lakeplan.formats.marks import RESULTS, write_part
from lakeplan.formats.namespace import sweep_prefix
from lakeplan.output.sweep import render_sweep
from lakeplan.state.sweeps import read_sweeps
from lakeplan.stores.open import SweepStore
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.records import may_delete, read_summary
from lakeplan.sweep.restore import RestoreOptions, restore
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Status
from lakeplan.values.sweep import Deletion, StoreFacts
from tests.sweeping.lake import LakeRepository
from tests.sweeping.stores import FaultyStore, Killed, raising
from tests.sweeping.world import SweepWorld

OLD = "main~2"
"""The commit of the second version of ``a.bin`` (see conftest): the first two have expired."""


@pytest.fixture
def marked(world: SweepWorld, repo: LakeRepository) -> Mark:
    world.sweep["mode"] = "quarantine"
    mark = world.mark()
    assert mark.to_delete.objects == 2
    world.approve(mark)
    return mark


def hold_again(repo: LakeRepository) -> None:
    """Both expired versions, by a branch from the older one's commit and one from the other's."""
    repo.branch("audit", OLD)
    repo.branch("older", "main~3")


def calls_of(world: SweepWorld, mark: Mark, number: int = 0, when: str = "before") -> list[str]:
    """Runs; the names of the store's calls from the first part on. With a ``number`` (from 1) the run is
    killed before or after that call."""
    calls: list[str] = []

    def count(name: str, args: tuple[object, ...]) -> None:
        if calls or "/begun/" in str(args[:1]):
            calls.append(name)
            if len(calls) == number:
                raise Killed(f"{when} {name}")

    def wrap(store: SweepStore) -> FaultyStore:
        faulty = FaultyStore(store)
        setattr(faulty, when, count)
        return faulty

    world.wrap = wrap
    with suppress(Killed):
        world.run(mark)
    world.wrap = lambda store: store
    return calls


def check_the_report(world: SweepWorld, repo: LakeRepository, mark: Mark) -> None:
    """It equals the store; what is gone and held is counted, and comes back out of quarantine."""
    end = world.run(mark)
    document = world.finish(end)
    there = repo.stored() & set(world.going(mark))
    gone = set(world.going(mark)) - there
    ends = world.ends(mark)
    assert {key for key, (status, _) in ends.items() if status == "deleted"} == gone
    assert {key for key, (status, _) in ends.items() if status == "saved"} == there
    assert document["came_back"] == len(gone)
    assert exit_code_of(document) == (3 if gone else 0)
    if gone:
        brought = restore(world.site(), world.stored(mark), world.ports(), world.run_of(), RestoreOptions())
        assert brought["restored"] == len(gone)
    assert repo.get("audit", "a.bin") == b"second"
    assert repo.get("older", "a.bin") == b"first"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.extended), 3])
def test_a_sweep_that_was_killed_at_any_call_that_writes_reports_what_is_gone(
    world: SweepWorld, repo: LakeRepository, when: str, rows: int
) -> None:
    world.sweep["mode"] = "quarantine"
    world.marker.rows = rows
    mark = _fresh_mark(world, repo)
    calls = calls_of(world, mark)
    restore(world.site(), world.stored(mark), world.ports(), world.run_of(), RestoreOptions())
    world.finish(world.run(mark))
    deleted = 0
    for number, name in enumerate(calls, start=1):
        if name not in ("put", "create", "copy", "delete"):
            continue
        mark = _fresh_mark(world, repo)
        calls_of(world, mark, number, when)
        deleted += len(set(world.going(mark)) - repo.stored())
        hold_again(repo)
        check_the_report(world, repo, mark)
        repo.drop_branch("audit")
        repo.drop_branch("older")
    assert deleted >= 4, "hardly anything was gone when something held it again"


def it_records_in_the_state_what_a_run_that_was_killed_at_its_end_did(
    world: SweepWorld, marked: Mark, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = world.run(marked)

    def kill(*_: object, **__: object) -> None:
        raise Killed("at its end")

    with monkeypatch.context() as patch:
        patch.setattr("lakeplan.sweep.finish.record_sweep", kill)
        with pytest.raises(Killed):
            world.finish(end)
    summary = read_summary(world.site().store, marked.mark_id)
    if summary is None or may_delete(summary):  # as ``sweep run`` and ``sweep abort`` decide
        world.finish(world.run(marked))
    assert read_sweeps(world.state, marked.key)[marked.mark_id].amounts["deleted"].objects == 2


def it_shows_that_the_state_could_not_be_written(
    world: SweepWorld, marked: Mark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError("cannot be used: No space left on device")

    monkeypatch.setattr("lakeplan.sweep.finish.record_sweep", fail)
    console = Console(file=io.StringIO(), width=120)
    render_sweep(world.finish(world.run(marked)), console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "note: the state could not be written: cannot be used: No space left" in shown


def it_records_its_figures_if_the_history_cannot_be_written(
    world: SweepWorld, marked: Mark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError("the storage cannot be reached")

    end = world.run(marked)
    monkeypatch.setattr("lakeplan.state.store.RunJournal.step", fail)
    note = world.finish(end)["note"]
    assert note == "the state could not be written: the storage cannot be reached"
    assert read_sweeps(world.state, "prod/repo1")[marked.mark_id].amounts["deleted"].objects == 2


def _fresh_mark(world: SweepWorld, repo: LakeRepository) -> Mark:
    for address in repo.stored():
        repo.touch(address, age_hours=24 * 5)
    mark = world.mark()
    assert mark.to_delete.objects == 2
    world.approve(mark)
    return mark


def it_counts_what_an_earlier_round_moved_and_something_holds_again(
    world: SweepWorld, repo: LakeRepository, marked: Mark
) -> None:
    """One part, two rounds: the first stops in its middle, without a crash."""
    world.wrap = lambda store: _stopping(store, on="create", key="/results/")
    end = world.run(marked)
    world.wrap = lambda store: store
    assert end.came_back is None, "nobody inspected"
    assert exit_code_of(world.finish(end)) == 3
    hold_again(repo)
    check_the_report(world, repo, marked)


def it_counts_what_something_holds_again_although_the_store_still_lists_it(
    world: SweepWorld, repo: LakeRepository, marked: Mark
) -> None:
    listed = world.site().store.find(sorted(repo.stored()))
    world.finish(world.run(marked))
    hold_again(repo)

    def late(store: SweepStore) -> FaultyStore:
        def find(keys: Sequence[str]) -> dict[str, StoredObject]:
            return {key: listed[key] for key in keys if key in listed} | store.find(keys)

        faulty = FaultyStore(store)
        faulty.find = find  # type: ignore[attr-defined]
        return faulty

    world.wrap = late
    assert world.finish(world.run(marked))["came_back"] == 2


@pytest.mark.parametrize(("versioned", "says"), [(True, True), (None, True), (False, False)])
def it_says_that_older_versions_of_an_object_that_was_gone_may_remain(
    world: SweepWorld, repo: LakeRepository, versioned: bool | None, says: bool
) -> None:
    world.sweep["versions"] = "all"
    mark = world.mark()
    world.approve(mark)
    (repo.folder / min(world.going(mark))).unlink()

    def with_versions(store: SweepStore) -> FaultyStore:
        faulty = FaultyStore(store)
        faulty.facts = lambda: StoreFacts(versioned=versioned, soft_delete=False)  # type: ignore[attr-defined]
        return faulty

    world.wrap = with_versions
    note = "1 object was already gone, so older versions of it may remain"
    assert world.finish(world.run(mark))["not_yet_reclaimed"] == (note if says else "")


def it_inspects_when_it_is_closed(world: SweepWorld, repo: LakeRepository, marked: Mark) -> None:
    world.wrap = lambda store: _stopping(store, on="create", key="/results/")
    world.run(marked)
    world.wrap = lambda store: store
    hold_again(repo)
    document = world.finish(world.close(marked))
    assert document["closed"]
    assert document["deleted"]["objects"] == document["came_back"] == 2
    assert exit_code_of(document) == 3


def it_says_that_it_does_not_know_what_is_held_when_it_could_not_inspect(
    world: SweepWorld, repo: LakeRepository, marked: Mark
) -> None:
    world.wrap = lambda store: _stopping(store, on="create", key="/results/")
    world.run(marked)
    world.wrap = lambda store: store

    def fail() -> None:
        raise StalePlan("the GC rules changed meanwhile")

    world.between = fail
    document = world.finish(world.close(marked))
    assert document["finished"]
    assert document["came_back"] is None
    assert "it is unknown which deleted objects" in document["problem"]
    assert not may_delete(read_summary(world.site().store, marked.mark_id))
    world.between = lambda: None
    world.mark()  # the repository is free again


def it_counts_nothing_as_held_again_that_was_restored(
    world: SweepWorld, repo: LakeRepository, marked: Mark
) -> None:
    world.finish(world.run(marked))
    hold_again(repo)
    assert world.finish(world.run(marked))["came_back"] == 2
    restore(world.site(), world.stored(marked), world.ports(), world.run_of(), RestoreOptions())
    assert world.finish(world.run(marked))["came_back"] == 0


def it_tries_failed_objects_again(world: SweepWorld, repo: LakeRepository) -> None:
    mark = world.mark()
    world.approve(mark)
    world.wrap = lambda store: _refusing(store, lambda key: Deletion(key, "AccessDenied"))
    document = world.finish(world.run(mark))
    assert document["failed"]["objects"] == 2
    world.wrap = lambda store: store
    assert may_delete(read_summary(world.site().store, mark.mark_id))
    document = world.finish(world.run(mark))
    assert (document["failed"]["objects"], document["deleted"]["objects"]) == (0, 2)
    assert document["finished"]
    assert set(world.going(mark)) & repo.stored() == set()


def it_reports_what_a_killed_second_attempt_deleted(world: SweepWorld, repo: LakeRepository) -> None:
    """The earlier summary said that nothing is needed again, and the abort believed the earlier records."""
    mark = world.mark()
    world.approve(mark)
    world.wrap = lambda store: _refusing(store, lambda key: Deletion(key, "AccessDenied"))
    world.finish(world.run(mark))

    kill = raising(Killed("create"), on="create", key="/results/")
    world.wrap = lambda store: FaultyStore(store, before=kill)
    with suppress(Killed):
        world.run(mark)
    assert set(world.going(mark)) & repo.stored() == set()
    world.wrap = lambda store: store
    hold_again(repo)
    with pytest.raises(LakeplanError, match="is not finished"):
        world.mark()
    document = world.finish(world.close(mark))
    assert (document["deleted"]["objects"], document["failed"]["objects"]) == (2, 0)
    assert document["came_back"] == 2


def it_counts_needed_objects_of_which_only_older_versions_are_left(
    world: SweepWorld, repo: LakeRepository
) -> None:
    world.sweep["versions"] = "all"
    mark = world.mark()
    world.approve(mark)

    def wrap(store: SweepStore) -> FaultyStore:
        faulty = FaultyStore(store)
        faulty.facts = lambda: StoreFacts(versioned=True, soft_delete=False)  # type: ignore[attr-defined]
        faulty.delete = lambda keys, **more: [  # type: ignore[method-assign]
            Deletion(answer.key, "1 of 2 versions were not deleted: locked")
            for answer in store.delete(keys, **more)
        ]
        return faulty

    world.wrap = wrap
    world.sweeper.after_round = lambda number: hold_again(repo)
    document = world.finish(world.run(mark))
    assert (document["failed"]["objects"], document["came_back"]) == (2, 2)


def it_deletes_nothing_after_it_was_aborted_while_the_run_began(
    world: SweepWorld, repo: LakeRepository
) -> None:
    mark = world.mark()
    world.approve(mark)
    world.wrap = lambda store: _refusing(store, lambda key: Deletion(key, "AccessDenied"))
    world.finish(world.run(mark))  # a second run reads this summary, and tries the failed objects again
    world.wrap = lambda store: store
    aborted = world.finish(world.close(mark))
    assert (aborted["closed"], aborted["failed"]["objects"]) == (True, 2)
    with pytest.raises(StalePlan, match="was aborted"):
        world.run(mark)
    assert set(world.going(mark)) <= repo.stored()
    assert read_summary(world.site().store, mark.mark_id) == aborted


def it_gives_up_what_fails_twice_in_one_run_each(world: SweepWorld, repo: LakeRepository) -> None:
    mark = world.mark()
    world.approve(mark)
    faulty: list[FaultyStore] = []

    def wrap(store: object) -> FaultyStore:
        faulty.append(_refusing(store, lambda key: Deletion(key, "AccessDenied")))
        return faulty[-1]

    world.wrap = wrap
    world.finish(world.run(mark))
    first = len(faulty)
    end = world.run(mark)
    assert end.amount(Status.FAILED).objects == 2
    assert sum(len(store.called("delete")) for store in faulty[first:]) == 1


def it_refuses_a_repository_that_was_deleted_and_made_again(world: SweepWorld, repo: LakeRepository) -> None:
    mark = world.mark()
    world.approve(mark)
    service = world.lake.handle._sandbox.service
    with service.store.transaction():
        record = service.repositories.get("repo1")
    created = world.site().reader.get_repository("repo1").creation_date
    repo.call("DELETE", "")
    world.lake.clock.advance(hours=1)
    namespace = record.storage_namespace
    (repo.folder / "dummy").unlink(missing_ok=True)
    (repo.folder / "_lakefs/dummy").unlink(missing_ok=True)
    body = {"name": "repo1", "storage_namespace": namespace, "default_branch": "main"}
    world.lake.call("POST", "/repositories", json=body)
    repo.set_rules(7)
    assert world.site().repository.creation_date != created
    before = repo.stored()
    with pytest.raises(StalePlan, match="deleted and created again"):
        world.run(mark)
    assert repo.stored() == before


@pytest.mark.parametrize("versions", ["marker", "all"])
def it_keeps_an_object_that_was_written_again_under_its_key(
    world: SweepWorld, repo: LakeRepository, versions: str
) -> None:
    world.sweep["versions"] = versions
    mark = world.mark()
    world.approve(mark)
    address, other = sorted(world.going(mark))
    path = repo.folder / address
    size = len(path.read_bytes())
    path.write_bytes(b"x" * size)
    repo.touch(address, age_hours=24 * 300)  # as S3 dates an upload in parts: at its start
    world.finish(world.run(mark))
    assert path.read_bytes() == b"x" * size
    assert world.ends(mark)[address] == ("saved", "changed since it was marked")
    assert world.ends(mark)[other] == ("deleted", "")


def _stopping(store: object, *, on: str, key: str) -> FaultyStore:
    faulty = FaultyStore(store)  # type: ignore[arg-type]
    faulty.before = raising(StorageError("cannot be used: No space left on device"), on=on, key=key)
    return faulty


def _refusing(store: object, refuses: Callable[[str], Deletion | None]) -> FaultyStore:
    faulty = FaultyStore(store)  # type: ignore[arg-type]
    faulty.refuses = refuses
    return faulty


def it_names_a_damaged_record_and_goes_on_without_it(
    world: SweepWorld, repo: LakeRepository, marked: Mark
) -> None:
    world.run(marked)
    (record,) = (repo.folder / sweep_prefix(marked.mark_id) / "results").iterdir()
    columns = {"address": ["data/a"], "size_bytes": [1], "status": ["lost"], "reason": [""]}
    record.write_bytes(write_part(columns, RESULTS)[0])
    (record.parent / "notes").write_text("somebody's own file")
    with pytest.raises(FormatError, match="the record of what the sweep did with these objects") as caught:
        world.run(marked)
    assert caught.value.where.endswith(f"results/{record.name}")
    record.unlink()  # as the hint says
    assert world.run(marked).amount(Status.DELETED).objects == 2


def test_a_run_deletes_nothing_after_another_run_took_over_its_lease_and_ended(
    world: SweepWorld, repo: LakeRepository, marked: Mark, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, write = repo.stored(), world.state.write
    lease = "leases/prod/repo1.json"

    def take_over(key: str, data: bytes, *, if_version: str | None) -> str:
        if key.startswith("history/") and (held := world.state.read(lease)) is not None:
            world.state.delete(lease, if_version=held.version)
        return write(key, data, if_version=if_version)

    monkeypatch.setattr(world.state, "write", take_over)
    with pytest.raises(LeaseHeld, match="another run took it over"):
        world.run(marked)
    assert repo.stored() == before


@pytest.mark.parametrize("finished", [False, True])
def it_keeps_the_summary_of_an_abort_while_an_earlier_run_still_ended(
    world: SweepWorld, repo: LakeRepository, marked: Mark, finished: bool
) -> None:
    """The earlier run has released its lease, and its store or state is slow."""
    if not finished:
        world.wrap = lambda store: _stopping(store, on="create", key="/results/")
    slow = world.run(marked)
    world.wrap = lambda store: store
    hold_again(repo)
    aborted = world.finish(world.close(marked))
    document = world.finish(slow)
    assert "the sweep was aborted in the meantime" in document["note"]
    assert read_summary(world.site().store, marked.mark_id) == aborted
    assert read_sweeps(world.state, marked.key)[marked.mark_id].finished
    with pytest.raises(StalePlan, match="was aborted"):
        world.run(marked)


def it_keeps_the_summary_of_a_run_that_finished_while_an_earlier_one_still_ended(
    world: SweepWorld, marked: Mark
) -> None:
    world.wrap = lambda store: _stopping(store, on="create", key="/results/")
    slow = world.run(marked)
    world.wrap = lambda store: store
    finished = world.finish(world.run(marked))
    assert "another run of the sweep ended" in world.finish(slow)["note"]
    assert read_summary(world.site().store, marked.mark_id) == finished
    assert read_sweeps(world.state, marked.key)[marked.mark_id].finished


def it_keeps_what_a_run_that_tried_again_found_while_an_earlier_one_still_ended(
    world: SweepWorld, repo: LakeRepository, marked: Mark
) -> None:
    world.wrap = lambda store: _refusing(store, lambda key: Deletion(key, "AccessDenied"))
    slow = world.run(marked)
    assert (slow.finished, slow.came_back) == (True, 0)

    def revive(key: str) -> None:
        with suppress(Exception):  # the second time
            hold_again(repo)

    world.wrap = lambda store: _refusing(store, revive)
    newer = world.finish(world.run(marked))
    assert newer["came_back"] == 2
    assert "another run of the sweep ended" in world.finish(slow)["note"]
    assert read_summary(world.site().store, marked.mark_id) == newer
    assert read_sweeps(world.state, marked.key)[marked.mark_id].amounts["deleted"].objects == 2


@pytest.mark.parametrize(
    "damage", [lambda data, id: data[:100], lambda data, id: data.replace(id, b"m-of-others")]
)
def it_can_end_a_sweep_whose_summary_is_damaged(
    world: SweepWorld, repo: LakeRepository, marked: Mark, damage: Callable[[bytes, bytes], bytes]
) -> None:
    world.finish(world.run(marked))
    summary = repo.folder / sweep_prefix(marked.mark_id) / "summary.json"
    summary.write_bytes(damage(summary.read_bytes(), marked.mark_id.encode()))
    with pytest.raises(FormatError) as caught:
        world.mark()
    assert f"delete the damaged one and run `lakeplan sweep abort {marked.mark_id}`" in caught.value.hint
    with pytest.raises(FormatError):
        world.run(marked)
    summary.unlink()
    assert world.finish(world.close(marked))["deleted"]["objects"] == 2
    world.mark()
