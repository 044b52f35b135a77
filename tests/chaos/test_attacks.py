"""The attacks of issue 13 that delete data, each as a user or bad luck would make it.

The checker judges: these only lead there. A line that is not fixed yet is marked; once it is, the mark has to
go (``strict``).
"""

from __future__ import annotations

import pytest

from lakeplan.errors import LakeplanError
from tests.chaos.checker import RULES, Violation
from tests.chaos.faults import Interruption, Killed
from tests.chaos.operators import Operator
from tests.chaos.taken_back import FIXES
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


def test_a_branch_under_a_hold_is_deleted_by_branches_run(operator, world, repo) -> None:
    world.policies = [{"id": "old", "patterns": ["feature-*"], "max_age": "3d"}]
    world.holds = [{"branch": "feature-x", "reason": "legal"}]
    repo.branch("feature-x")
    try_to(operator.branches)
    world.lake.clock.advance(days=4)
    try_to(operator.branches)


def after_a_notice(operator, world, repo, change) -> None:
    """A notice of feature-x was accepted; ``change`` comes before its period is over."""
    world.policies = [{"id": "old", "patterns": ["feature-*"], "max_age": "3d"}]
    world.branch_settings = {"notice_period": "3d"}
    repo.branch("feature-x")
    operator.branches()
    world.lake.clock.advance(days=4)
    operator.branches()
    assert len(world.channel.accepted) == 1
    change()
    world.lake.clock.advance(days=4)
    operator.branches()


def test_a_branch_is_deleted_by_a_notice_and_the_checker_agrees(operator, world, repo) -> None:
    after_a_notice(operator, world, repo, lambda: None)
    assert "feature-x" not in world.truth.history("repo1").branches
    assert operator.checker.done["branches deleted after a notice"] == 1


def test_a_notice_is_about_another_head(operator, world, repo) -> None:
    after_a_notice(operator, world, repo, lambda: repo.commit(0, "feature-x", b=b"1"))
    assert "feature-x" in world.truth.history("repo1").branches


def test_a_branch_was_exempt_after_its_notice(operator, world, repo) -> None:
    def exempt() -> None:
        operator.exempt("feature-x", 24 * 30)
        world.lake.clock.advance(days=1)
        operator.exempt("feature-x", None)

    after_a_notice(operator, world, repo, exempt)
    assert "feature-x" in world.truth.history("repo1").branches


def test_a_run_follows_a_notice_at_once(operator, world, repo) -> None:
    after_a_notice(operator, world, repo, lambda: try_to(operator.branches))


def test_a_branch_is_exempt(operator, world, repo) -> None:
    world.policies = [{"id": "old", "patterns": ["feature-*"], "max_age": "3d"}]
    repo.branch("feature-x")
    operator.branches()
    operator.exempt("feature-x", 24 * 30)
    world.lake.clock.advance(days=4)
    operator.branches()
    assert "feature-x" in world.truth.history("repo1").branches


@pytest.mark.parametrize("kind", ["kill before", "kill after", "lost answer", "store error"])
@pytest.mark.parametrize("call", ["channel", "state write notices"])
def test_a_notice_is_interrupted(operator, world, repo, kind, call) -> None:
    world.policies = [{"id": "old", "patterns": ["feature-*"], "max_age": "3d"}]
    world.branch_settings = {"notice_period": "3d"}
    repo.branch("feature-x")
    operator.branches()
    world.lake.clock.advance(days=4)
    interruption = Interruption(kind, 1, only=call)
    try:
        operator.branches(interruption)
    except Killed:
        assert kind.startswith("kill")
    for _ in range(3):
        world.lake.clock.advance(days=4)
        operator.branches()
    assert "feature-x" not in world.truth.history("repo1").branches


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


def test_the_branch_of_a_hold_moves_away(operator, world, repo) -> None:
    """The hold still matches the branch; what it kept before is in no history of it any more."""
    world.holds = [{"branch": "feature-x", "reason": "legal"}]
    old = oldest_commit(world)
    repo.branch("feature-x", old)
    mark = operator.mark()
    repo.drop_branch("feature-x")
    repo.branch(
        "feature-x", min(c.id for c in world.truth.history("repo1").commits.values() if not c.parents)
    )
    world.lake.clock.advance(days=2)
    mark = try_to(operator.mark)
    if not isinstance(mark, LakeplanError):
        operator.approve(mark)
        operator.sweep(mark)


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


def test_the_ledger_is_lost(operator, world, repo) -> None:
    world.policies = [{"id": "old", "patterns": ["feature-*"], "max_age": "14d"}]
    world.branch_settings = {"assume_created": "head_commit"}
    operator.branches()
    world.memory.records.clear()
    repo.branch("feature-x", oldest_commit(world))
    try_to(operator.branches)
    world.lake.clock.advance(hours=1)
    try_to(operator.branches)


@pytest.mark.parametrize("assumed", ["never", "head_commit"])
def test_an_older_ledger_is_put_back(operator, world, repo, assumed) -> None:
    """A branch that was made again after the copy was taken is as young as it is."""
    world.policies = [{"id": "old", "patterns": ["feature-*"], "max_age": "14d"}]
    world.branch_settings = {"assume_created": assumed}
    repo.branch("feature-x", oldest_commit(world))
    operator.branches()
    older = dict(world.memory.records)
    repo.drop_branch("feature-x")
    operator.branches()
    repo.branch("feature-x", oldest_commit(world))
    operator.branches()
    world.lake.clock.advance(days=13)
    repo.branch("feature-y", oldest_commit(world))
    repo.drop_branch("feature-x")
    operator.branches()
    repo.branch("feature-x", oldest_commit(world))
    world.lake.clock.advance(days=2)
    world.memory.records = older
    try_to(operator.branches)
    assert {"feature-x", "feature-y"} <= world.truth.history("repo1").branches.keys()


@pytest.mark.parametrize("looked", [False, True])
def test_a_branch_is_made_again_at_the_same_head(operator, world, repo, looked) -> None:
    """Between two observations nobody can know. Once a run found it missing, its age starts again."""
    world.policies = [{"id": "old", "patterns": ["feature-*"], "max_age": "3d"}]
    repo.branch("feature-x", oldest_commit(world))
    operator.branches()
    world.lake.clock.advance(days=4)
    repo.drop_branch("feature-x")
    if looked:
        operator.branches()
    repo.branch("feature-x", oldest_commit(world))
    operator.branches()
    assert ("feature-x" in world.truth.heads("repo1")) == looked


def test_a_branch_is_made_again_while_the_answer_of_its_deletion_is_lost(operator, world, repo) -> None:
    world.policies = [{"id": "old", "patterns": ["feature-*"], "max_age": "3d"}]
    repo.branch("feature-x", oldest_commit(world))
    operator.branches()
    world.lake.clock.advance(days=4)

    def again() -> None:
        if "feature-x" not in world.truth.history("repo1").branches:
            repo.branch("feature-x")

    with_work = Interruption("lost answer", 1, only="server DELETE", then=again)
    try_to(operator.branches, with_work)


def test_rules_are_raised_while_the_answer_of_a_write_is_lost(operator, world, repo) -> None:
    world.gc = {"default_retention_days": 5}
    with_raise = Interruption("lost answer", 1, only=f"PUT {RULES}")
    with_raise.then = lambda: repo.set_rules(90)
    try_to(operator.apply, with_raise)


def test_an_object_is_written_again_under_its_key(operator, world, repo) -> None:
    mark = operator.mark()
    operator.approve(mark)
    address = min(operator.checker.going(mark.mark_id))
    (repo.folder / address).write_bytes(b"anew")
    repo.touch(address)
    try_to(operator.sweep, mark)


def test_written_rules_are_read_from_a_cache(operator, world, repo) -> None:
    world.gc = {"default_retention_days": 5}
    report = operator.apply(Interruption("stale", 1, times=3))
    assert [one.outcome.value for one in report.results] == ["applied"]


def test_a_write_of_rules_is_answered_500(operator, world, repo) -> None:
    world.gc = {"default_retention_days": 5}
    report = operator.apply(Interruption("500 after", 1, only=f"PUT {RULES}"))
    assert [one.outcome.value for one in report.results] == ["applied"]


def test_a_pull_request_is_opened_while_branches_are_deleted(operator, world, repo) -> None:
    world.policies = [{"id": "old", "patterns": ["feature-*"], "max_age": "3d"}]
    repo.branch("feature-x")
    repo.branch("feature-y")
    operator.branches()
    world.lake.clock.advance(days=4)

    def opened() -> None:
        world.lake.clock.advance(hours=1)
        world.wire.pulls.add("feature-y")

    try_to(operator.branches, Interruption("meanwhile", 1, only="server DELETE", meanwhile=opened))
    assert "feature-y" in world.truth.history("repo1").branches


@pytest.mark.parametrize("spelling", ["/{}", "//{}", "/{}?x=1", "/{}#x", "/%64{1}"])
def test_another_repository_names_an_object_by_another_spelling(operator, world, repo, spelling) -> None:
    address = min(operator.checker.expired())
    other = world.repository("repo2")
    other.stage("import", "local://repo1" + spelling.format(address, address[1:]))
    other.commit()
    mark = operator.mark()
    operator.approve(mark)
    operator.sweep(mark)
    assert (repo.folder / address).exists()


def test_the_answer_of_a_copy_is_lost_while_objects_are_restored(operator, world, repo) -> None:
    world.sweep |= {"mode": "quarantine"}
    mark = operator.mark()
    operator.approve(mark)
    operator.sweep(mark)
    document = operator.restore(mark, Interruption("lost answer", 1, only="store copy"))
    assert (document["restored"], document["failed"]) == (3, 0)


def in_another_spelling(operator, world, repo) -> None:
    test_another_repository_names_an_object_by_another_spelling(operator, world, repo, "/{}?x=1")


def with_an_older_ledger(operator, world, repo) -> None:
    test_an_older_ledger_is_put_back(operator, world, repo, "never")


def with_an_older_min_age(operator, world, repo) -> None:
    test_settings_are_tightened_after_the_approval(operator, world, repo, {"min_age": "30d"})


ATTACKS = {
    "today's settings count": with_an_older_min_age,
    "gates are judged again": test_a_gate_is_tightened_after_the_approval,
    "results are what the store shows": test_what_a_killed_sweep_moved_is_held_again,
    "purge inspects": test_a_copy_that_is_needed_again_is_purged,
    "holds keep branches": test_a_branch_under_a_hold_is_deleted_by_branches_run,
    "holds are recorded": test_the_branch_of_a_hold_moves_away,
    "clocks are compared": test_the_clock_of_the_sweep_is_a_day_ahead,
    "automatic compares sets": test_as_many_objects_as_were_shown_but_others,
    "an older ledger is not trusted": with_an_older_ledger,
    "a notice is about a HEAD": test_a_notice_is_about_another_head,
    "an exemption voids a notice": test_a_branch_was_exempt_after_its_notice,
    "a notice takes its time": test_a_run_follows_a_notice_at_once,
    "exemptions keep branches": test_a_branch_is_exempt,
    "writes are sent once": test_a_branch_is_made_again_while_the_answer_of_its_deletion_is_lost,
    "writes are read back for seconds": test_written_rules_are_read_from_a_cache,
    "lost answers are read back": test_a_write_of_rules_is_answered_500,
    "what keeps is fresh": test_a_pull_request_is_opened_while_branches_are_deleted,
    "addresses mean what servers make of them": in_another_spelling,
    "objects are as marked": test_an_object_is_written_again_under_its_key,
}


@pytest.mark.parametrize("name", FIXES)
def test_the_checker_sees_that_a_fix_is_missing(operator, world, repo, name) -> None:
    with FIXES[name].take_back(), pytest.raises(Violation):
        ATTACKS[name](operator, world, repo)


def oldest_commit(world: ChaosWorld) -> str:
    """The oldest one with data."""
    commits = world.truth.history("repo1").commits.values()
    return min((c for c in commits if c.metarange), key=lambda c: c.made_us).id
