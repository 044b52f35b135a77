"""The attacks of issue 13 that delete data, each as a user or bad luck would make it.

The checker judges: these only lead there. A line that is not fixed yet is marked; once it is, the mark has to
go (``strict``).
"""

from __future__ import annotations

import pytest

from lakeplan.errors import LakeplanError
from tests.chaos.checker import Violation
from tests.chaos.faults import Interruption, Killed
from tests.chaos.operators import Operator
from tests.chaos.world import ChaosWorld
from tests.sweeping.lake import LakeRepository


def open_line(line: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(raises=Violation, strict=True, reason=f"issue 13, {line}")


def try_to(command, *args, **more):
    """Refused is fine."""
    try:
        return command(*args, **more)
    except LakeplanError as error:
        return error


def test_a_sweep_deletes_and_the_checker_agrees(operator: Operator, repo: LakeRepository) -> None:
    mark = operator.mark()
    operator.approve(mark)
    document = operator.sweep(mark)
    assert document["deleted"]["objects"] == 3
    assert operator.checker.done["objects deleted"] == 3


@pytest.mark.parametrize(
    "tightened", [{"min_age": "30d"}, {"never_committed": "keep"}], ids=lambda value: next(iter(value))
)
def test_settings_are_tightened_after_the_approval(operator, world, repo, tightened) -> None:
    world.sweep |= {"never_committed": "collect"}
    stray = repo.folder / "data/stray"
    stray.write_bytes(b"stray")
    repo.touch("data/stray", age_hours=72)
    mark = operator.mark()
    operator.approve(mark)
    world.sweep |= tightened
    world.lake.clock.advance(hours=1)
    try_to(operator.sweep, mark)


def test_a_gate_is_tightened_after_the_approval(operator, world, repo) -> None:
    mark = operator.mark()
    operator.approve(mark)
    world.safety = {"max_expired_objects_percent": 1}
    try_to(operator.sweep, mark)


def test_days_are_raised_in_the_tree_after_the_approval(operator, world, repo) -> None:
    mark = operator.mark()
    operator.approve(mark)
    world.gc = "clear"
    try_to(operator.sweep, mark)


def test_what_a_killed_sweep_moved_is_held_again(operator, world, repo) -> None:
    world.sweep |= {"mode": "quarantine"}
    mark = operator.mark()
    operator.approve(mark)
    with pytest.raises(Killed):
        operator.sweep(mark, Interruption("kill after", 1, only="store delete"))
    repo.branch("again", oldest_commit(world))
    try_to(operator.sweep, mark)


def test_a_copy_that_is_needed_again_is_purged(operator, world, repo) -> None:
    world.sweep |= {"mode": "quarantine"}
    mark = operator.mark()
    operator.approve(mark)
    operator.sweep(mark)
    repo.branch("again", oldest_commit(world))
    world.lake.clock.advance(days=30)
    try_to(operator.purge)


def test_a_branch_under_a_hold_is_deleted_by_lifecycle_run(operator, world, repo) -> None:
    world.policies = [{"id": "old", "patterns": ["feature-*"], "max_age": "3d"}]
    world.holds = [{"branch": "feature-x", "reason": "legal"}]
    repo.branch("feature-x")
    try_to(operator.lifecycle)
    world.lake.clock.advance(days=4)
    try_to(operator.lifecycle)


def test_the_branch_of_a_hold_is_deleted_by_somebody(operator, world, repo) -> None:
    world.holds = [{"branch": "feature-x", "reason": "legal"}]
    repo.branch("feature-x", oldest_commit(world))
    try_to(operator.mark)
    repo.drop_branch("feature-x")
    world.lake.clock.advance(days=2)
    mark = try_to(operator.mark)
    if not isinstance(mark, LakeplanError):
        try_to(operator.approve, mark)
        try_to(operator.sweep, mark)


def test_the_clock_of_the_sweep_is_a_day_ahead(operator, world, repo) -> None:
    world.sweep["settle"] = "24h"
    world.gc = {"default_retention_days": 5}
    operator.apply()
    mark = operator.mark()
    operator.approve(mark)
    world.lake.clock.advance(hours=1)
    try_to(operator.sweep, mark, skew_hours=25)


def test_as_many_objects_as_were_shown_but_others(operator, world, repo) -> None:
    world.sweep["automatic"] = True
    shown = operator.checker.expired()
    repo.branch("again", oldest_commit(world))
    world.lake.clock.advance(days=8)
    try_to(operator.automatic, shown)


def test_an_older_ledger_is_put_back(operator, world, repo) -> None:
    world.policies = [{"id": "old", "patterns": ["feature-*"], "max_age": "14d"}]
    world.lifecycle = {"assume_created": "head_commit"}
    operator.lifecycle()
    world.memory.records.clear()
    repo.branch("feature-x", oldest_commit(world))
    try_to(operator.lifecycle)


def test_a_branch_is_made_again_while_the_answer_of_its_deletion_is_lost(operator, world, repo) -> None:
    world.policies = [{"id": "old", "patterns": ["feature-*"], "max_age": "3d"}]
    repo.branch("feature-x", oldest_commit(world))
    operator.lifecycle()
    world.lake.clock.advance(days=4)

    def again() -> None:
        if "feature-x" not in world.truth.history("repo1").branches:
            repo.branch("feature-x")

    with_work = Interruption("lost answer", 1, only="server DELETE", then=again)
    try_to(operator.lifecycle, with_work)


def test_rules_are_raised_while_the_answer_of_a_write_is_lost(operator, world, repo) -> None:
    world.gc = {"default_retention_days": 5}
    with_raise = Interruption("lost answer", 1, only="PUT /api/v1/repositories/repo1/settings/gc_rules")
    with_raise.then = lambda: repo.set_rules(90)
    try_to(operator.apply, with_raise)


def test_an_object_is_written_again_under_its_key(operator, world, repo) -> None:
    mark = operator.mark()
    operator.approve(mark)
    address = min(operator.checker.going(mark.mark_id))
    (repo.folder / address).write_bytes(b"anew")
    repo.touch(address)
    try_to(operator.sweep, mark)


def test_the_answer_of_a_copy_is_lost_while_objects_are_restored(operator, world, repo) -> None:
    world.sweep |= {"mode": "quarantine"}
    mark = operator.mark()
    operator.approve(mark)
    operator.sweep(mark)
    document = operator.restore(mark, Interruption("lost answer", 1, only="store copy"))
    assert (document["restored"], document["failed"]) == (3, 0)


def oldest_commit(world: ChaosWorld) -> str:
    """The oldest one with data."""
    commits = world.truth.history("repo1").commits.values()
    return min((c for c in commits if c.metarange), key=lambda c: c.made_us).id
