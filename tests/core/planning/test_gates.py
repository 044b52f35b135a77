"""Which gate refuses, and what opens it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timezone

import pytest

from lakeplan.core.planning.gates import Openers, one_by_one, plan_gates, repository_gates
from lakeplan.errors import UsageError
from lakeplan.model.desired import Override, Safety, Source
from lakeplan.model.plan import (
    Action,
    GateOutcome,
    Horizon,
    HorizonImpact,
    Impact,
    ImpactStatus,
    RepositoryPlan,
    TagLoss,
)
from lakeplan.model.rules import GcRules

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
SHUT = Openers(frozenset(), (), date(2026, 1, 1))


def horizon(expire: int = 0, kept: int = 100, size: int = 0, risk: int = 0) -> HorizonImpact:
    return HorizonImpact(NOW, 10, 9, 1, 0, 0, expire, size, kept, kept * 10, risk, 0)


def a_plan(now: HorizonImpact, **changes: object) -> RepositoryPlan:
    horizons = {h.value: now for h in Horizon}
    plan = RepositoryPlan(
        server="prod",
        name="analytics",
        entry="analytics",
        endpoint_url="http://127.0.0.1",
        config_hash="0",
        action=Action.CHANGE,
        before=GcRules(30),
        after=GcRules(7),
        impact=Impact(ImpactStatus.SIMULATED, horizons=horizons),
    )
    return replace(plan, **changes)  # type: ignore[arg-type]


def outcomes(plan: RepositoryPlan, safety: Safety | None = None, openers: Openers = SHUT) -> dict[str, str]:
    return {g.gate: g.outcome.value for g in repository_gates(plan, safety or Safety(), openers)}


def it_passes_what_stays_within_the_limits():
    assert outcomes(a_plan(horizon(expire=30))) == {"expired-objects": "passed", "expired-bytes": "passed"}


@pytest.mark.parametrize(
    ("plan", "gate"),
    [
        (a_plan(horizon(expire=31)), "expired-objects"),
        (a_plan(horizon(expire=1, size=5 * 10**12 + 1)), "expired-bytes"),
        (a_plan(horizon(), adopted=True), "adoption"),
        (a_plan(horizon(), action=Action.CLEAR, after=None), "clear"),
        (a_plan(horizon(), impact=Impact(ImpactStatus.UNKNOWN, reason="time-out")), "unknown-impact"),
        (
            a_plan(horizon(), impact=Impact(ImpactStatus.SIMULATED, tags=(TagLoss("v1", "c", 1, 1),))),
            "tag-loss",
        ),
    ],
)
def it_refuses(plan: RepositoryPlan, gate: str):
    assert outcomes(plan)[gate] == "refused"
    allowed = Openers(frozenset({gate}), (), date(2026, 1, 1))
    assert outcomes(plan, openers=allowed)[gate] == "allowed"
    assert outcomes(plan, openers=Openers(frozenset({"other"}), (), date(2026, 1, 1)))[gate] == "refused"


def it_judges_every_horizon_and_takes_the_worst():
    plan = a_plan(horizon(expire=1))
    later = {**plan.impact.horizons, Horizon.MONTH.value: horizon(expire=99)}
    plan = replace(plan, impact=replace(plan.impact, horizons=later))
    (gate,) = [g for g in repository_gates(plan, Safety(), SHUT) if g.gate == "expired-objects"]
    assert gate.outcome is GateOutcome.REFUSED
    assert gate.horizon == "plus_30_days"
    assert gate.value == 99


def it_warns_of_objects_at_risk_by_default_and_refuses_when_told():
    plan = a_plan(horizon(expire=3, risk=2))
    assert outcomes(plan)["at-risk"] == "warned"
    assert outcomes(plan, Safety(on_server_divergence="fail"))["at-risk"] == "refused"
    assert "at-risk" not in outcomes(plan, Safety(on_server_divergence="ignore"))


def note(**values: object) -> Override:
    given = {
        "repository": "analytics",
        "gate": "expired-objects",
        "max": None,
        "expires": date(2099, 1, 1),
        **values,
    }
    return Override(reason="because", source=Source("lakeplan.yaml", 1, 1), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("override", "outcome"),
    [
        (note(), "overridden"),
        (note(repository="prod/*"), "overridden"),
        (note(max=50), "overridden"),
        (note(max=39), "refused"),
        (note(repository="other"), "refused"),
        (note(gate="expired-bytes"), "refused"),
        (note(expires=date(2025, 12, 31)), "refused"),
        (note(expires=date(2026, 1, 1)), "overridden"),
    ],
)
def it_opens_by_override_within_its_bounds(override: Override, outcome: str):
    openers = Openers(frozenset(), (override,), date(2026, 1, 1))
    assert outcomes(a_plan(horizon(expire=40)), openers=openers)["expired-objects"] == outcome


class DescribeAllow:
    @pytest.mark.parametrize(
        ("allowed", "outcome"),
        [
            ({"expired-objects"}, "allowed"),
            ({"analytics=expired-objects"}, "allowed"),
            ({"prod/analytics=expired-objects"}, "allowed"),
            ({"prod/analytics=expired-bytes"}, "refused"),
            ({"other=expired-objects", "prod/other=expired-objects"}, "refused"),
            ({"analytic*=expired-objects", "*=expired-objects"}, "refused"),
        ],
    )
    def it_is_for_the_repository_that_it_names(self, allowed, outcome):
        openers = Openers(frozenset(allowed), (), date(2026, 1, 1))
        assert outcomes(a_plan(horizon(expire=40)), openers=openers)["expired-objects"] == outcome

    @pytest.mark.parametrize(
        ("flag", "hint"),
        [
            ("prod/analytic=clear", "did you mean --allow prod/analytics=clear"),
            ("analytcs=clear", "did you mean --allow prod/analytics=clear"),
            ("dev/analytics=clear", "--allow prod/analytics=clear"),
            ("nothing-like-it=clear", "Name a repository of this run"),
        ],
    )
    def it_has_to_name_a_repository_of_the_run(self, flag, hint):
        openers = Openers(frozenset({flag, "analytics=clear", "tag-loss"}), (), date(2026, 1, 1))
        with pytest.raises(UsageError, match=f"--allow {flag}: .* is not among") as caught:
            openers.check_named(["prod/analytics", "prod/raw"])
        assert hint in caught.value.hint

    def it_may_name_any_repository_of_the_run_whether_or_not_a_gate_is_shut_there(self):
        Openers(frozenset({"raw=clear", "prod/analytics=clear", "clear"}), (), date(2026, 1, 1)).check_named(
            ["prod/analytics", "prod/raw"]
        )

    def judged(self, *allowed: str, keys=("prod/a", "prod/b")):
        openers = Openers(frozenset(allowed), (), date(2026, 1, 1))
        found = {}
        for key in keys:
            plan = replace(a_plan(horizon(expire=40)), server=key.split("/")[0], name=key.split("/")[1])
            found[key] = repository_gates(plan, Safety(), openers)
        named = one_by_one(found)
        return [g for key in keys for g in named[key] if g.gate == "expired-objects"]

    def it_overrides_no_gate_of_several_repositories_at_once(self):
        one, two = self.judged("expired-objects")
        assert {one.outcome, two.outcome} == {GateOutcome.REFUSED}
        assert one.opens_with.startswith("--allow prod/a=expired-objects at a terminal")
        assert two.opens_with.startswith("--allow prod/b=expired-objects at a terminal")

    def it_takes_a_name_on_two_servers_for_several(self):
        assert {g.outcome for g in self.judged("a=expired-objects", keys=("one/a", "two/a"))} == {
            GateOutcome.REFUSED
        }

    def it_overrides_each_by_its_own_flag_and_one_alone_without(self):
        each = self.judged("prod/a=expired-objects", "prod/b=expired-objects")
        assert {g.outcome for g in each} == {GateOutcome.ALLOWED}
        rest = self.judged("prod/a=expired-objects", "expired-objects")
        assert {g.outcome for g in rest} == {GateOutcome.ALLOWED}


def it_does_not_gate_what_writes_nothing():
    assert outcomes(a_plan(horizon(expire=99), action=Action.NONE)) == {}


class DescribeTheWholePlan:
    def it_sums_over_repositories(self):
        small = a_plan(horizon(expire=20, kept=100))
        large = a_plan(horizon(expire=400, kept=900), name="events")
        gates = plan_gates([small, large], Safety(), SHUT)
        (gate,) = [g for g in gates if g.gate == "expired-objects"]
        assert gate.value == pytest.approx(42.0)
        assert gate.outcome is GateOutcome.REFUSED
        assert gate.scope == "plan"

    def it_counts_as_overridden_when_every_contributor_is(self):
        openers = Openers(frozenset(), (note(repository="analytics"),), date(2026, 1, 1))
        one = a_plan(horizon(expire=90))
        one = replace(one, gates=repository_gates(one, Safety(), openers))
        quiet = a_plan(horizon(expire=0), name="quiet")
        (gate,) = [g for g in plan_gates([one, quiet], Safety(), openers) if g.gate == "expired-objects"]
        assert gate.outcome is GateOutcome.OVERRIDDEN
        other = a_plan(horizon(expire=90), name="other")
        (gate,) = [g for g in plan_gates([one, other], Safety(), openers) if g.gate == "expired-objects"]
        assert gate.outcome is GateOutcome.REFUSED

    @pytest.mark.parametrize(("policy", "outcome"), [("warn", "warned"), ("fail", "refused")])
    def it_speaks_of_unmanaged_repositories(self, policy, outcome):
        (gate,) = plan_gates([], Safety(), SHUT, unmanaged=("prod/x",), on_unmanaged=policy)
        assert gate.outcome.value == outcome

    def it_ignores_unmanaged_repositories_when_told(self):
        assert plan_gates([], Safety(), SHUT, unmanaged=("prod/x",), on_unmanaged="ignore") == ()
