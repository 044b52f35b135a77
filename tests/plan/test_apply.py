"""What an apply checks before it writes, by figures alone; tests/e2e has whole applies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.errors import ExitCode, GateRefused, LakeplanError, StalePlan, StorageError, UsageError
from lakeplan.plan import apply as module
from lakeplan.plan.apply import _Limits, check, check_again, narrowed
from lakeplan.review.gates import GateOverrides
from lakeplan.review.selection import Selection
from lakeplan.values.desired import Safety
from lakeplan.values.plan import (
    BranchFate,
    Failure,
    GateOutcome,
    GateResult,
    Impact,
    ImpactStatus,
    Plan,
    PoliciesPlan,
    RepositoryPlan,
)
from lakeplan.values.rules import Action, GcRules
from tests.review.test_ceiling import NOW, impact
from tests.review.test_ceiling import repository as one_repository

LATER = NOW + timedelta(hours=1)


def repository(name: str = "a", **changes: Any) -> RepositoryPlan:
    return one_repository(name=name, **changes)


def a_plan(*repositories: RepositoryPlan, **more: Any) -> Plan:
    return Plan(NOW, "0", "tree", None, repositories, **more)


def limits(*allowed: str, by_repository: Any = None, **more: Any) -> _Limits:
    overrides = GateOverrides(frozenset(allowed), (), date(2026, 1, 1))
    return _Limits(by_repository or {}, more.pop("of_plan", Safety()), overrides, **more)


def gate(
    name: str = "tag-loss", scope: str = "prod/a", outcome: GateOutcome = GateOutcome.REFUSED, **more: Any
) -> GateResult:
    return GateResult(name, scope, outcome, "a reason", **more)


def refusals(reviewed: Plan, live: Plan, of: _Limits | None = None, **more: Any) -> list[str]:
    """The reasons of a refusal, or none."""
    try:
        check(reviewed, live, of or limits(), **{"now": LATER, "force": False, **more})
    except (StalePlan, GateRefused) as error:
        refusal = error
    else:
        return []
    assert all(reason in str(refusal) for reason in refusal.reasons)
    assert refusal.hint.startswith("Run `lakeplan plan` again")
    return list(refusal.reasons)


A, B = repository("a"), repository("b")
LENGTHENS = repository("z", before=GcRules(3), after=GcRules(30))


class DescribeTheOrder:
    def it_is_first_what_lengthens_retention_then_by_name(self) -> None:
        plan = a_plan(B, A, LENGTHENS, repository("none", action=Action.NONE, after=GcRules(30)))
        assert [r.name for r in check(plan, plan, limits(), now=LATER, force=False)] == ["z", "a", "b"]


class DescribeAStalePlan:
    CHANGED = repository("a", config_hash="another")

    def it_is_refused_with_every_reason(self) -> None:
        live = a_plan(self.CHANGED)
        found = refusals(a_plan(A, B), live)
        assert [reason.partition(":")[0] for reason in found] == ["prod/a", "prod/b"]
        assert found[1].endswith("the checked-out tree no longer has an entry for it")

    def it_does_not_concern_what_it_does_not_write(self) -> None:
        idle = replace(A, action=Action.NONE, after=A.before)
        assert refusals(a_plan(idle, B), a_plan(self.CHANGED, B)) == []

    def it_fails_later_where_a_repository_cannot_be_read(self) -> None:
        broken = replace(self.CHANGED, failure=Failure("no answer"))
        assert refusals(a_plan(A, B), a_plan(broken, B)) == []
        assert len(refusals(a_plan(A, B), a_plan(broken, replace(B, config_hash="another")))) == 1

    def it_skips_only_the_comparison_of_rules_when_forced(self) -> None:
        edited = replace(A, before=GcRules(31))
        assert len(refusals(a_plan(A), a_plan(edited))) == 1
        assert refusals(a_plan(A), a_plan(edited), force=True) == []
        assert refusals(a_plan(A), a_plan(self.CHANGED), force=True) != []
        with pytest.raises(StalePlan) as caught:
            check(a_plan(A), a_plan(edited), limits(), now=LATER, force=False)
        assert caught.value.hint.endswith("--force skips only the ETag checks.")
        with pytest.raises(StalePlan) as caught:
            check(a_plan(A), a_plan(self.CHANGED), limits(), now=LATER, force=True)
        assert "--force" not in caught.value.hint


class DescribeRefusals:
    def it_refuses_what_a_gate_of_today_refuses(self) -> None:
        live = a_plan(B, replace(A, gates=(gate(), gate("passes", outcome=GateOutcome.PASSED))))
        (text,) = refusals(a_plan(A, B), live)
        assert text.startswith("prod/a: gate tag-loss: a reason (override with an entry under overrides")
        assert refusals(a_plan(A, B), live, limits("prod/a=tag-loss")) == []
        assert refusals(a_plan(A, B), live, limits("prod/b=tag-loss")) != []

    def it_refuses_what_a_gate_of_the_review_refused(self) -> None:
        reviewed = a_plan(replace(A, gates=(gate(), gate("other", outcome=GateOutcome.ALLOWED))))
        assert len(refusals(reviewed, a_plan(A))) == 1
        assert refusals(reviewed, a_plan(A), limits("a=tag-loss")) == []

    @pytest.mark.parametrize("outcome", [GateOutcome.REFUSED, GateOutcome.ALLOWED, GateOutcome.OVERRIDDEN])
    def it_judges_a_gate_once_by_today(self, outcome: GateOutcome) -> None:
        reviewed, live = (
            a_plan(replace(A, gates=(gate(),))),
            a_plan(replace(A, gates=(gate(outcome=outcome),))),
        )
        assert len(refusals(reviewed, live)) == (1 if outcome is GateOutcome.REFUSED else 0)

    def it_counts_a_gate_of_the_review_that_only_passes_today(self) -> None:
        live = a_plan(replace(A, gates=(gate(outcome=GateOutcome.PASSED),)))
        assert len(refusals(a_plan(replace(A, gates=(gate(),))), live)) == 1

    def it_does_not_let_one_flag_override_a_gate_in_several_repositories(self) -> None:
        live = a_plan(*(replace(r, gates=(gate(scope=r.key),)) for r in (A, B)))
        found = refusals(a_plan(A, B), live, limits("tag-loss"))
        assert ["--allow prod/a=tag-loss" in found[0], "--allow prod/b=tag-loss" in found[1]] == [True, True]

    def it_ignores_gates_of_what_stops_only_other_commands(self) -> None:
        live = a_plan(replace(A, gates=(gate(stops="branches run"),)))
        assert refusals(a_plan(replace(A, gates=(gate(stops="branches run"),))), live) == []

    def it_refuses_an_impact_that_was_unknown_at_the_review(self) -> None:
        reviewed = a_plan(repository(impact=Impact(ImpactStatus.UNKNOWN)))
        (text,) = refusals(reviewed, a_plan(A))
        assert "prod/a: gate unknown-impact: the impact was unknown when the plan was reviewed" in text
        assert refusals(reviewed, a_plan(A), limits("a=unknown-impact")) == []
        judged = replace(A, gates=(gate("unknown-impact", outcome=GateOutcome.OVERRIDDEN),))
        assert refusals(reviewed, a_plan(judged)) == []

    def it_refuses_more_than_the_review_showed(self) -> None:
        (text,) = refusals(a_plan(A), a_plan(repository("a", impact=impact(200))))
        assert text == "prod/a: 200 objects would expire, but the reviewed plan shows 100"
        both = refusals(a_plan(A, B), a_plan(*(repository(n, impact=impact(200)) for n in "ab")))
        assert [text.partition(":")[0] for text in both] == ["prod/a", "prod/b"]
        loose = Safety(impact_tolerance_percent=100)
        grown = a_plan(repository("a", impact=impact(200)))
        assert refusals(a_plan(A), grown, limits(of_plan=loose)) == []
        assert refusals(a_plan(A), grown, limits(by_repository={"prod/a": loose})) == []
        assert refusals(a_plan(A), grown, limits(of_plan=loose, by_repository={"prod/a": Safety()})) != []

    def it_compares_with_the_figures_of_the_next_week_after_a_day(self) -> None:
        reviewed, live = (
            a_plan(repository("a", impact=impact(100, week=200))),
            repository("a", impact=impact(200)),
        )
        assert refusals(reviewed, a_plan(live)) != []
        assert refusals(reviewed, a_plan(live), now=NOW + timedelta(days=2)) == []

    def it_refuses_an_old_plan(self) -> None:
        of = limits(of_plan=Safety(max_plan_age_seconds=60))
        (text,) = refusals(a_plan(A), a_plan(A), of)
        assert "max_plan_age" in text
        assert refusals(a_plan(A), a_plan(A), of, now=NOW) == []

    def it_names_the_age_then_gates_then_what_grew(self) -> None:
        live = a_plan(repository("a", impact=impact(200), gates=(gate(),)))
        found = refusals(a_plan(A), live, limits(of_plan=Safety(max_plan_age_seconds=60)))
        assert ["max_plan_age" in found[0], "gate" in found[1], "200" in found[2]] == [True] * 3

    def it_says_how_to_override_only_if_that_would_help(self) -> None:
        gated, grown = replace(A, gates=(gate(),)), repository("a", impact=impact(200))
        for live, more in ((gated, True), (grown, False), (replace(grown, gates=gated.gates), False)):
            with pytest.raises(GateRefused, match="nothing was written") as caught:
                check(a_plan(A), a_plan(live), limits(), now=LATER, force=False)
            assert ("--allow GATE" in caught.value.hint) is more

    def it_does_not_judge_what_is_done_or_cannot_be_read(self) -> None:
        done = replace(A, before=A.after, gates=(gate(),), impact=impact(900))
        broken = replace(A, failure=Failure("no answer"), gates=(gate(),), impact=impact(900))
        gated = replace(B, gates=(gate(scope="prod/b"),))
        for first in (done, broken):
            assert refusals(a_plan(A), a_plan(first)) == []
            (text,) = refusals(a_plan(A, B), a_plan(first, gated))
            assert text.startswith("prod/b")


class DescribeGatesOfTheWholePlan:
    def it_adds_up_what_is_written(self) -> None:
        of = limits(of_plan=Safety(max_expired_objects_percent=None, max_expired_bytes=1500))
        assert refusals(a_plan(A), a_plan(A), of) == []
        (text,) = refusals(a_plan(A, B), a_plan(A, B), of)
        assert text.startswith("plan: gate expired-bytes")
        live = a_plan(*(replace(r, gates=(gate("expired-bytes", r.key),)) for r in (A, B)))
        each = limits("a=expired-bytes", "b=expired-bytes", of_plan=of.of_plan)
        assert refusals(a_plan(A, B), live, each) == [], "overridden wherever it comes from"
        assert refusals(a_plan(A, replace(B, action=Action.NONE, after=B.before)), a_plan(A, B), of) == []

    def it_refuses_unmanaged_repositories_if_the_tree_does(self) -> None:
        live = a_plan(A, unmanaged=("prod/new",))
        assert refusals(a_plan(A), live) == []
        (text,) = refusals(a_plan(A), live, limits(on_unmanaged="fail"))
        assert text.startswith("plan: gate unmanaged")

    def it_counts_what_refused_at_the_review(self) -> None:
        reviewed = a_plan(
            A,
            gates=(
                gate("unmanaged", "plan"),
                gate("check", "plan"),
                gate("fine", "plan", GateOutcome.PASSED),
            ),
        )
        (text,) = refusals(reviewed, a_plan(A))
        assert text.startswith("plan: gate unmanaged")
        assert refusals(reviewed, a_plan(A), limits("unmanaged")) == []
        both = refusals(reviewed, a_plan(A, unmanaged=("prod/new",)), limits(on_unmanaged="fail"))
        assert len(both) == 1, "today's result counts"

    def it_counts_checks(self) -> None:
        assert len(refusals(a_plan(A), a_plan(A), limits(checks=(gate("check", "plan"),)))) == 1


class DescribeChecks:
    OVERRIDES = GateOverrides(frozenset({"a=check"}), (), date(2026, 1, 1))

    def decided(self, reviewed: Plan, names: Iterable[str] = (), judge: Any = None) -> list[tuple[str, str]]:
        checks: Any = [SimpleNamespace(name=name) for name in names]
        found = module._check_gates(reviewed, a_plan(A), checks, self.OVERRIDES, judge)
        return [(g.scope, g.outcome.value) for g in found]

    def it_runs_them_on_what_would_be_written_where_it_may(self) -> None:
        asked: list[Plan] = []

        def judge(live: Plan) -> tuple[GateResult, ...]:
            asked.append(live)
            return (gate("check", "plan"),)

        assert self.decided(a_plan(A, gates=(gate("check", "other"),)), ["c"], judge) == [("plan", "refused")]
        assert asked == [a_plan(A)]

    def it_counts_the_refusals_of_the_review_otherwise(self) -> None:
        gates = (
            gate("check", "plan"),
            gate("check", "prod/a"),
            gate("check", "plan", GateOutcome.PASSED),
            gate("other", "plan"),
            gate("check", "plan", stops="branches run"),
        )
        assert self.decided(a_plan(A, gates=gates)) == [("plan", "refused"), ("prod/a", "allowed")]

    def it_refuses_one_without_a_result(self) -> None:
        judged = GateResult("check", "plan", GateOutcome.PASSED, "c: fine")
        assert self.decided(a_plan(A, gates=(judged,)), ["c", "d"]) == [("plan", "refused")]
        checks: Any = [SimpleNamespace(name="d")]
        (found,) = module._check_gates(a_plan(A), a_plan(A), checks, self.OVERRIDES, None)
        assert found.message == "d: did not run on this plan"


def with_policies(*branches: str) -> RepositoryPlan:
    """Policies of the server delete these branches now."""
    created = NOW - timedelta(days=50)
    fates = tuple(BranchFate(b, "c", created, None, "p", NOW - timedelta(days=1), None) for b in branches)
    policies = PoliciesPlan(Action.CHANGE, fates=fates, deletions={"now": len(fates)})
    return repository(branch_lifecycle=policies, impact=Impact(ImpactStatus.UNAFFECTED))


def it_deletes_no_branch_that_was_not_reviewed() -> None:
    reviewed, more = a_plan(with_policies("x")), a_plan(with_policies("x", "y"))
    assert refusals(reviewed, reviewed) == []
    assert refusals(reviewed, more) == ["prod/a: 2 branches would be deleted, but the reviewed plan shows 1"]
    other = a_plan(with_policies("y"))
    assert refusals(reviewed, other) == ["prod/a: branches that were not reviewed would be deleted: y"]
    assert check_again(reviewed, reviewed, limits(), (), now=LATER) == reviewed.repositories
    with pytest.raises(StalePlan):
        check_again(reviewed, other, limits(), (), now=LATER)


class DescribeAPlanThatWasMadeAgain:
    MOVED = ("prod/a: the rules on the server have changed",)

    def again(self, reviewed: Plan, live: Plan, of: _Limits | None = None) -> tuple[RepositoryPlan, ...]:
        return check_again(reviewed, live, of or limits(), self.MOVED, now=LATER)

    def none_expires(self, name: str = "a", **more: Any) -> RepositoryPlan:
        return repository(name, **{"impact": impact(0, 0), **more})

    def it_is_written_if_it_deletes_nothing_more(self) -> None:
        reviewed = a_plan(self.none_expires("b"), self.none_expires("a"))
        live = a_plan(
            self.none_expires("b", after=GcRules(7, {"new": 9})), self.none_expires("a", before=GcRules(29))
        )
        assert self.again(reviewed, live) == (live.repositories[1], live.repositories[0])

    def it_is_written_as_reviewed_where_it_is_done(self) -> None:
        reviewed, live = self.none_expires(), self.none_expires(before=GcRules(7), impact=impact(900))
        assert self.again(a_plan(reviewed), a_plan(live)) == (reviewed,)
        with pytest.raises(StalePlan):
            self.again(a_plan(reviewed, self.none_expires("b")), a_plan(live, repository("b")))

    @pytest.mark.parametrize(
        "change", [None, {"failure": Failure("no answer")}, {"config_hash": "another"}, {"creation_date": 9}]
    )
    def it_is_stale_if_more_than_the_server_changed(self, change: Any) -> None:
        live = a_plan() if change is None else a_plan(self.none_expires(**change))
        with pytest.raises(StalePlan) as caught:
            self.again(a_plan(self.none_expires()), live)
        text = "prod/a: it changed again while lakeplan was planning again"
        assert caught.value.reasons == (*self.MOVED, text)
        assert caught.value.hint == "Run `lakeplan plan` again and have it reviewed."

    def it_is_stale_if_it_may_delete_more(self) -> None:
        of = limits(of_plan=Safety(impact_tolerance_percent=100))
        with pytest.raises(StalePlan) as caught:
            self.again(
                a_plan(self.none_expires(), self.none_expires("b")), a_plan(repository(), repository("b")), of
            )
        first, *others = caught.value.reasons
        assert first == self.MOVED[0]
        assert {text.partition(" ")[0] for text in others} == {"prod/a,", "prod/b,"}
        assert (
            others[0]
            == "prod/a, after planning again: 100 objects would expire, but the reviewed plan shows 0"
        )

    def it_is_refused_by_gates_of_today(self) -> None:
        with pytest.raises(GateRefused):
            self.again(a_plan(self.none_expires()), a_plan(self.none_expires(gates=(gate(),))))

    def it_is_only_made_where_nothing_but_the_servers_changed(self) -> None:
        edited = replace(A, before=GcRules(31))
        moved = module._moved(a_plan(A, B), a_plan(edited, B))
        assert [text.partition(":")[0] for text in moved] == ["prod/a"]
        assert module._moved(a_plan(A), a_plan(A)) == ()
        assert module._moved(a_plan(A, B), a_plan(edited)) == ()
        for change in ({"failure": Failure("x")}, {"config_hash": "another"}):
            assert module._moved(a_plan(A, B), a_plan(edited, replace(B, **change))) == ()


class DescribeBranchesThatAreNewerThanThePlan:
    def it_is_those_whose_pattern_has_more_days(self) -> None:
        step = repository(after=GcRules(7, {"old": 20}))
        live = a_plan(
            replace(A, unexpanded={"new": 8, "same": 7, "less": 1, "old": 20}),
            replace(B, unexpanded={"x": 9}),
        )
        later = module._later_branches([step, replace(B, after=None), repository("gone")], live)
        assert later == {"prod/a": {"new"}}

    def it_makes_a_step_write_that_wrote_only_policies(self) -> None:
        step = repository(action=Action.NONE, before=GcRules(7), after=GcRules(7))
        made = module._with_rules(step, GcRules(7, {"new": 9}))
        assert (made.action, made.after) == (Action.CHANGE, GcRules(7, {"new": 9}))


class DescribeASelection:
    def it_narrows_a_plan(self) -> None:
        plan = a_plan(A, B)
        assert narrowed(plan, Selection()) is plan
        assert narrowed(plan, Selection(targets=("b",))).repositories == (B,)
        other = repository("b", server="dev", owner="web")
        for selection in (Selection(owner="web"), Selection(server="dev")):
            assert narrowed(a_plan(A, other, B), selection).repositories == (other,)
        with pytest.raises(UsageError, match="matches no repository"):
            narrowed(plan, Selection(targets=("c",)))


def it_leaves_out_what_is_done() -> None:
    done = replace(A, before=A.after)
    assert module._not_done([A, B], a_plan(done, B)) == [B]
    assert module._not_done([A, B], a_plan(replace(A, failure=Failure("x")))) == []


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (GateRefused("x"), "refused"),
        (StalePlan("x"), "stale"),
        (LakeplanError("x"), "failed"),
        (StorageError("x"), "failed"),
    ],
)
def it_says_how_an_apply_ended_that_wrote_nothing(error: LakeplanError, end: str) -> None:
    assert module.end_of(error) == end
    assert (error.exit_code == ExitCode.REFUSED) is (end == "refused")
