"""One deletion, by fakes that count what is asked; test_deleting has whole runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.branches.deleting import (
    Deleter,
    Outcome,
    RepositoryEnd,
    ReviewedBranch,
    is_held_elsewhere,
)
from lakeplan.errors import (
    GateRefused,
    LakeplanError,
    LeaseHeld,
    NotFound,
    PreconditionFailed,
    RepositoryNotFound,
    ServerUnreachable,
    UnexpectedAnswer,
)
from lakeplan.review.run import PAUSES, Run
from lakeplan.values.branches import BranchOutlook, BranchVerdict, Keep, StagedChange, StagedData
from lakeplan.values.desired import BranchFacts, Policy
from lakeplan.values.plan import Failure

NOW = datetime(2026, 3, 31, tzinfo=timezone.utc)
WRITTEN = NOW - timedelta(days=2)
NOTHING = StagedData()
ADDED = StagedData((StagedChange("a", "added", 1),))
SLOW, BUSY = UnexpectedAnswer("slow", status=504), UnexpectedAnswer("busy", status=500)


def outlook(staged: StagedData | None = NOTHING, last_write: datetime | None = WRITTEN) -> BranchOutlook:
    facts = BranchFacts("dev", "c1", NOW - timedelta(days=9), None, last_write, None)
    return BranchOutlook(facts, BranchVerdict(None), staged)


class Case:
    """A branch ``dev`` at ``c1``. ``heads`` are what the next reads of it return (then the last one), and
    ``answers`` those of the next deletions. ``asked`` is in the order of the requests."""

    def __init__(self) -> None:
        self.heads: list[Any] = ["c1"]
        self.answers: list[LakeplanError] = []
        self.keepers: list[Any] = []
        self.staged_now = StagedData()
        self.written_at: datetime | None = None
        self.pin: LakeplanError | None = None
        self.default_branch = "main"
        self.fresh: Iterator[bool] = iter(())
        self.times: Iterator[datetime] = iter(())
        self.asked: list[Any] = []
        self.policy = Policy("p", ("*",), max_idle_seconds=86_400)

    def next(self, values: list[Any]) -> Any:
        value = values.pop(0) if len(values) > 1 else values[0]
        if isinstance(value, Exception):
            raise value
        return value

    def find_branch(self, repository: str, branch: str) -> str | None:
        assert (repository, branch) == ("lake", "dev")
        self.asked.append("head")
        head: str | None = self.next(self.heads)
        return head

    def staged(self, repository: str, branch: str) -> StagedData:
        assert (repository, branch) == ("lake", "dev")
        self.asked.append("staged")
        return self.staged_now

    def object_time(self, repository: str, branch: str, path: str) -> datetime | None:
        assert (repository, branch, path) == ("lake", "dev", "a")
        return self.written_at

    def delete_branch(self, repository: str, branch: str) -> None:
        assert (repository, branch) == ("lake", "dev")
        self.asked.append("delete")
        if self.answers:
            raise self.answers.pop(0)

    def keeper(self, of: BranchOutlook) -> Keep | None:
        assert of.id == "dev"
        self.asked.append("keeper")
        return self.next(self.keepers) if self.keepers else None

    def before_deleting(self, branch: str, commit: str) -> None:
        assert (branch, commit) == ("dev", "c1")
        self.asked.append("pin")
        if self.pin is not None:
            raise self.pin

    def deleter(self, reviewed: Any = None, *, pins: bool = False) -> Deleter:
        note = self.asked.append
        survey: Any = SimpleNamespace(
            desired=SimpleNamespace(name="lake", policies=(self.policy,)),
            repository=SimpleNamespace(default_branch=self.default_branch),
        )
        keeping: Any = SimpleNamespace(
            keeper=self.keeper,
            is_fresh=lambda: next(self.fresh, True),
            stays=lambda branch: note(("stays", branch)),
            forget=lambda: note("forget"),
        )
        readers: Any = SimpleNamespace(
            branches=SimpleNamespace(
                find_branch=self.find_branch, staged=self.staged, written_at=self.object_time
            )
        )
        run = Run("r", {}, lambda: next(self.times, NOW), lambda _: False, sleep=lambda _: note("sleep"))
        made: Any = self if pins else None
        return Deleter(
            survey, readers, self, keeping, run, lambda: note("renew"), reviewed, made  # type: ignore[arg-type]
        )  # fmt: skip

    def delete(self, of: BranchOutlook | None = None, **more: Any) -> tuple[Outcome, bool]:
        of = of or outlook()
        self.end = self.deleter(**more).delete(of)
        assert self.end.outlook is of
        assert self.end.outcome is Outcome.DELETED or self.end.message
        self.stays = ("stays", "dev") in self.asked
        return self.end.outcome, self.end.maybe_deleted


@pytest.fixture
def case() -> Case:
    return Case()


class DescribeADeletion:
    def it_comes_after_everything_that_may_keep_the_branch(self, case: Case) -> None:
        assert case.delete(pins=True) == (Outcome.DELETED, False)
        assert case.asked == ["renew", "keeper", "staged", "head", "pin", "delete"]

    @pytest.mark.parametrize(
        ("answer", "outcome", "maybe", "stays"),
        [
            (PreconditionFailed("a hook"), Outcome.HOOK_REFUSED, False, True),
            (RepositoryNotFound("no repository"), Outcome.FAILED, False, True),
            (NotFound("no branch"), Outcome.GONE, True, False),
            (LakeplanError("denied"), Outcome.FAILED, False, True),
        ],
    )
    def it_ends_as_the_server_answers(
        self, case: Case, answer: LakeplanError, outcome: Outcome, maybe: bool, stays: bool
    ) -> None:
        case.answers = [answer]
        assert case.delete() == (outcome, maybe)
        assert case.stays is stays
        assert case.asked.count("delete") == 1
        assert case.end.message == (answer.message if stays else "another user or process deleted it")

    def it_is_not_done_if_its_pin_cannot_be_changed(self, case: Case) -> None:
        case.pin = GateRefused("a pin")
        assert case.delete(pins=True) == (Outcome.FAILED, False)
        assert "a pin" in case.end.message
        assert "delete" not in case.asked

    def it_is_judged_again_if_the_pin_took_long(self, case: Case) -> None:
        case.fresh = iter([True, False])
        case.keepers = [None, Keep.HELD]
        assert case.delete() == (Outcome.NEWLY_KEPT, False)
        assert "delete" not in case.asked

    def it_waits_for_a_fresh_look_three_times(self, case: Case) -> None:
        case.fresh = iter([False] * 3)
        assert case.delete() == (Outcome.FAILED, False)
        assert case.end.message == "the server took more than 15 seconds to report what keeps the branch"
        assert case.asked.count("renew") == 3
        case.fresh = iter([False, False, True])
        assert case.delete() == (Outcome.DELETED, False)

    @pytest.mark.parametrize(
        ("seconds", "outcome"), [(15, Outcome.DELETED), (16, Outcome.FAILED), (-1, Outcome.FAILED)]
    )
    def it_needs_a_look_of_at_most_fifteen_seconds(
        self, case: Case, seconds: float, outcome: Outcome
    ) -> None:
        late = NOW + timedelta(seconds=seconds)
        case.times = iter([NOW, NOW, late] * 3)  # before, while changes are compared, and after
        assert case.delete()[0] is outcome

    @pytest.mark.parametrize(
        ("failure", "outcome"),
        [
            (RepositoryNotFound("no repository"), Outcome.FAILED),
            (NotFound("no branch"), Outcome.GONE),
            (ServerUnreachable("no answer"), Outcome.FAILED),
        ],
    )
    def it_is_not_done_if_the_branch_cannot_be_read(
        self, case: Case, failure: LakeplanError, outcome: Outcome
    ) -> None:
        case.heads = [failure]
        assert case.delete() == (outcome, False)
        assert (failure.message in case.end.message) is (outcome is Outcome.FAILED) is case.stays
        assert "delete" not in case.asked


class DescribeALostAnswer:
    @pytest.mark.parametrize(
        ("heads", "lost", "outcome", "maybe", "deletions"),
        [
            (["c1", None], SLOW, Outcome.DELETED, False, 1),
            (["c1", "c2"], SLOW, Outcome.MOVED, True, 1),
            (["c1"], SLOW, Outcome.UNCERTAIN, True, 1),
            (["c1"], BUSY, Outcome.DELETED, False, 2),
            (["c1", ServerUnreachable("x")], BUSY, Outcome.UNCERTAIN, True, 1),
            (["c1"] * (1 + len(PAUSES)) + [None], BUSY, Outcome.DELETED, False, 1),
        ],
    )
    def it_is_looked_up(
        self, case: Case, heads: list[Any], lost: LakeplanError, outcome: Outcome, maybe: bool, deletions: int
    ) -> None:
        case.heads, case.answers = [*heads], [lost]
        assert case.delete()[0] is outcome
        assert case.end.maybe_deleted is maybe
        assert case.asked.count("delete") == deletions
        assert (lost.message in case.end.message) is (outcome is Outcome.UNCERTAIN)
        if heads[1:] in ([None], ["c2"]):
            assert "sleep" not in case.asked, "the first answer proves it"
        assert ("forget" in case.asked) is (deletions == 2)

    @pytest.mark.parametrize(
        ("second", "outcome", "maybe"),
        [
            (PreconditionFailed("a hook"), Outcome.HOOK_REFUSED, True),
            (LakeplanError("denied"), Outcome.FAILED, True),
            (NotFound("no branch"), Outcome.GONE, True),
        ],
    )
    def it_may_still_have_been_done_if_a_second_request_fails(
        self, case: Case, second: LakeplanError, outcome: Outcome, maybe: bool
    ) -> None:
        case.answers = [BUSY, second]
        assert case.delete() == (outcome, maybe)
        assert (second.message in case.end.message) is (outcome is not Outcome.GONE)

    def it_is_asked_for_three_times(self, case: Case) -> None:
        case.answers = [BUSY] * 9
        assert case.delete() == (Outcome.FAILED, True)
        assert "busy" in case.end.message
        assert case.asked.count("delete") == 3

    @pytest.mark.parametrize("later", ["keeper", "pin", "not fresh"])
    def it_is_not_asked_for_again_if_something_keeps_the_branch_now(self, case: Case, later: str) -> None:
        case.answers = [BUSY]
        if later == "keeper":
            case.keepers = [None, Keep.HELD]
        elif later == "pin":
            before = case.before_deleting

            def refuse(*args: str) -> None:
                if "delete" in case.asked:
                    raise GateRefused("a pin")
                before(*args)

            case.before_deleting = refuse  # type: ignore[method-assign]
        else:
            case.fresh, case.keepers = iter([True, True, True, False]), [None, None, Keep.HELD]
        outcome, maybe = case.delete(pins=later == "pin")
        assert (outcome, maybe) == (Outcome.FAILED if later == "pin" else Outcome.NEWLY_KEPT, True)
        if later != "pin":
            assert case.end.message.endswith("did not confirm an earlier request to delete the branch")
        assert case.asked.count("delete") == 1

    def it_was_done_if_the_branch_is_gone_before_the_second_request(self, case: Case) -> None:
        case.answers = [BUSY]
        case.heads = ["c1"] * (2 + len(PAUSES)) + [None]
        assert case.delete() == (Outcome.DELETED, False)
        assert case.asked.count("delete") == 1


class DescribeWhatDiffers:
    def it_is_the_head(self, case: Case) -> None:
        case.heads = ["c2"]
        assert case.delete() == (Outcome.MOVED, False)
        assert (case.end.new_head, case.end.message) == ("c2", "its HEAD moved to c2 in the meantime")
        case.heads = [None]
        assert case.delete() == (Outcome.GONE, False)

    def it_is_the_head_even_if_something_was_staged_too(self, case: Case) -> None:
        case.heads, case.staged_now = ["c2"], ADDED
        assert case.delete() == (Outcome.MOVED, False)

    @pytest.mark.parametrize(
        ("judged", "now", "written", "last", "outcome"),
        [
            (None, StagedData(), None, WRITTEN, Outcome.WRITTEN),
            (StagedData(), ADDED, WRITTEN, WRITTEN, Outcome.WRITTEN),
            (ADDED, StagedData(), WRITTEN, WRITTEN, Outcome.WRITTEN),
            (ADDED, ADDED, None, WRITTEN, Outcome.WRITTEN),
            (ADDED, ADDED, WRITTEN, WRITTEN, Outcome.DELETED),
            (ADDED, ADDED, NOW, None, Outcome.DELETED),
            (ADDED, ADDED, WRITTEN + timedelta(seconds=1), WRITTEN, Outcome.WRITTEN),
        ],
    )
    def it_is_what_is_staged(
        self, case: Case, judged: Any, now: StagedData, written: Any, last: Any, outcome: Outcome
    ) -> None:
        case.staged_now, case.written_at = now, written
        assert case.delete(outlook(judged, last))[0] is outcome
        assert ("staged" in case.asked) is (judged is not None)

    def it_is_no_newer_object_if_the_branch_would_be_deleted_anyway(self, case: Case) -> None:
        case.staged_now, case.written_at = ADDED, NOW
        case.policy = Policy("p", ("*",), max_age_seconds=86_400)
        assert case.delete(outlook(ADDED))[0] is Outcome.DELETED

    def it_is_any_newer_object_on_what_is_the_default_branch_now(self, case: Case) -> None:
        case.staged_now, case.written_at, case.default_branch = ADDED, NOW, "dev"
        case.policy = Policy("p", ("*",), max_age_seconds=86_400)
        assert case.delete(outlook(ADDED))[0] is Outcome.WRITTEN

    @pytest.mark.parametrize(
        ("keep", "message"),
        [
            (Keep.HELD, "a hold now keeps this branch, because another branch or tag was moved or deleted"),
            (Keep.NOT_CROSSED, Keep.NOT_CROSSED.value),
        ],
    )
    def it_is_what_keeps_the_branch_now(self, case: Case, keep: Keep, message: str) -> None:
        case.keepers = [keep]
        assert case.delete() == (Outcome.NEWLY_KEPT, False)
        assert case.end.message == message


class DescribeAReviewedPlan:
    @pytest.mark.parametrize(
        ("reviewed", "outcome"),
        [
            ({}, Outcome.NOT_REVIEWED),
            ({"other": ReviewedBranch("c1")}, Outcome.NOT_REVIEWED),
            ({"dev": ReviewedBranch("c0")}, Outcome.MOVED),
            ({"dev": ReviewedBranch("c1")}, Outcome.DELETED),
        ],
    )
    def it_has_every_branch_that_is_deleted(self, case: Case, reviewed: Any, outcome: Outcome) -> None:
        assert case.delete(reviewed=reviewed) == (outcome, False)
        assert case.end.new_head is None

    @pytest.mark.parametrize(
        ("uncommitted", "last_write", "staged", "shown"),
        [
            (0, None, None, True),
            (0, WRITTEN - timedelta(1), StagedData(), True),
            (0, None, ADDED, False),
            (1, None, ADDED, True),
            (1, WRITTEN, ADDED, True),
            (2, WRITTEN - timedelta(seconds=1), ADDED, False),
            (None, WRITTEN - timedelta(seconds=1), ADDED, False),
            (None, None, StagedData(ADDED.changes, more=True), True),
            (1, None, StagedData(ADDED.changes, more=True), False),
            (0, None, StagedData((), more=True), False),
        ],
    )
    def it_shows_all_uncommitted_changes(
        self, uncommitted: int | None, last_write: datetime | None, staged: Any, shown: bool
    ) -> None:
        assert ReviewedBranch("c1", uncommitted, last_write).shows(outlook(staged)) is shown
        if last_write is not None:
            assert ReviewedBranch("c1", uncommitted, last_write).shows(outlook(staged, None)) is (
                uncommitted != 0 or not staged or not staged.changes
            )

    def it_keeps_a_branch_with_others(self, case: Case) -> None:
        assert case.delete(outlook(ADDED), reviewed={"dev": ReviewedBranch("c1")}) == (Outcome.WRITTEN, False)


@pytest.mark.parametrize(
    ("failure", "held"),
    [(None, False), (Failure("x"), False), (Failure("x", exit_code=int(LeaseHeld.exit_code)), True)],
)
def it_knows_that_another_run_has_the_repository(failure: Failure | None, held: bool) -> None:
    desired: Any = None
    assert is_held_elsewhere(RepositoryEnd(desired, failure=failure)) is held
