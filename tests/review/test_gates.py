"""Which gate refuses, and what opens it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timezone

import pytest

from lakeplan.errors import UsageError
from lakeplan.review.gates import (
    GateOverrides,
    contributes,
    one_by_one,
    percent_text,
    plan_gates,
    repository_gates,
)
from lakeplan.values.desired import Override, Safety, Source
from lakeplan.values.pins import PinRow, PinsPlan, PinState
from lakeplan.values.plan import (
    Failure,
    GateOutcome,
    GateResult,
    Horizon,
    HorizonImpact,
    Impact,
    ImpactStatus,
    ObjectRulesPlan,
    PoliciesPlan,
    RepositoryPlan,
    SettingChange,
    TagLoss,
)
from lakeplan.values.rules import Action, GcRules

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
SHUT = GateOverrides(frozenset(), (), date(2026, 1, 1))


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


def outcomes(
    plan: RepositoryPlan, safety: Safety | None = None, overrides: GateOverrides = SHUT
) -> dict[str, str]:
    return {g.gate: g.outcome.value for g in repository_gates(plan, safety or Safety(), overrides)}


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
    allowed = GateOverrides(frozenset({gate}), (), date(2026, 1, 1))
    assert outcomes(plan, overrides=allowed)[gate] == "allowed"
    assert (
        outcomes(plan, overrides=GateOverrides(frozenset({"other"}), (), date(2026, 1, 1)))[gate] == "refused"
    )


@pytest.mark.parametrize(
    ("expire", "worst"),
    [
        ({"plus_30_days": 40, "plus_7_days": 60, "now": 50}, "plus_7_days"),
        ({"plus_30_days": 40}, "plus_30_days"),
        ({"plus_30_days": 60, "plus_7_days": 60}, "plus_7_days"),
    ],
)
def it_names_the_worst_horizon_in_any_order_and_with_some_missing(expire: dict[str, int], worst: str):
    horizons = {name: horizon(expire=number) for name, number in expire.items()}
    plan = replace(a_plan(horizon()), impact=Impact(ImpactStatus.SIMULATED, horizons=horizons))
    found = [
        *repository_gates(plan, Safety(), SHUT),
        *plan_gates([plan], Safety(), SHUT),
    ]
    named = [gate.horizon for gate in found if gate.gate == "expired-objects"]
    assert named == [worst, worst]


def it_judges_every_horizon_and_takes_the_worst():
    plan = a_plan(horizon(expire=1))
    later = {**plan.impact.horizons, Horizon.MONTH.value: horizon(expire=99)}
    plan = replace(plan, impact=replace(plan.impact, horizons=later))
    (gate,) = [g for g in repository_gates(plan, Safety(), SHUT) if g.gate == "expired-objects"]
    assert gate.outcome is GateOutcome.REFUSED
    assert gate.horizon == "plus_30_days"
    assert gate.value == 99


@pytest.mark.parametrize(
    ("risk", "text"), [(1, "1 object would be deleted although"), (2, "2 objects would")]
)
def it_counts_one_object_at_risk_in_the_singular(risk, text):
    (gate,) = (g for g in repository_gates(a_plan(horizon(risk=risk)), Safety(), SHUT) if g.gate == "at-risk")
    assert gate.message.startswith(text)
    assert gate.message.endswith("keeps it (now)" if risk == 1 else "keeps them (now)")


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
        (note(repository="*/analytics"), "overridden"),
        (note(repository="prod*"), "refused"),  # names no repository, only its server
        (note(repository="p*s"), "refused"),
        (note(max=50), "overridden"),
        (note(max=39), "refused"),
        (note(repository="other"), "refused"),
        (note(gate="expired-bytes"), "refused"),
        (note(expires=date(2025, 12, 31)), "refused"),
        (note(expires=date(2026, 1, 1)), "overridden"),
    ],
)
def it_opens_by_override_within_its_bounds(override: Override, outcome: str):
    overrides = GateOverrides(frozenset(), (override,), date(2026, 1, 1))
    assert outcomes(a_plan(horizon(expire=40)), overrides=overrides)["expired-objects"] == outcome


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
        overrides = GateOverrides(frozenset(allowed), (), date(2026, 1, 1))
        assert outcomes(a_plan(horizon(expire=40)), overrides=overrides)["expired-objects"] == outcome

    @pytest.mark.parametrize(
        ("flag", "hint"),
        [
            ("prod/analytic=clear", "Did you mean --allow prod/analytics=clear"),
            ("analytcs=clear", "Did you mean --allow prod/analytics=clear"),
            ("dev/analytics=clear", "--allow prod/analytics=clear"),
            ("nothing-like-it=clear", "Use a repository that is in this run"),
        ],
    )
    def it_has_to_name_a_repository_of_the_run(self, flag, hint):
        overrides = GateOverrides(frozenset({flag, "analytics=clear", "tag-loss"}), (), date(2026, 1, 1))
        with pytest.raises(UsageError, match=f"--allow {flag}: .* is not in this run") as caught:
            overrides.check_named(["prod/analytics", "prod/raw"])
        assert hint in caught.value.hint

    def it_ends_at_the_last_sign_of_equality(self):
        overrides = GateOverrides(frozenset({"prod/a=b=clear"}), (), date(2026, 1, 1))
        with pytest.raises(
            UsageError, match="--allow prod/a=b=clear: repository prod/a=b is not in this run"
        ):
            overrides.check_named(["prod/a", "a"])

    def it_may_name_any_repository_of_the_run_whether_or_not_a_gate_is_shut_there(self):
        GateOverrides(
            frozenset({"raw=clear", "prod/analytics=clear", "clear"}), (), date(2026, 1, 1)
        ).check_named(["prod/analytics", "prod/raw"])

    @pytest.mark.parametrize("flag", ["prod/a", "a"])
    def it_does_not_reach_a_repository_that_another_server_calls_so(self, flag):
        overrides = GateOverrides(frozenset({f"{flag}=expired-objects"}), (), date(2026, 1, 1))
        imposter = replace(a_plan(horizon(expire=40)), server="evil", name="prod/a")
        assert outcomes(imposter, overrides=overrides)["expired-objects"] == "refused"
        with pytest.raises(UsageError, match="is not in this run"):
            overrides.check_named(["evil/prod/a"])
        overrides = GateOverrides(frozenset({"evil/prod/a=expired-objects"}), (), date(2026, 1, 1))
        overrides.check_named(["evil/prod/a"])
        assert outcomes(imposter, overrides=overrides)["expired-objects"] == "allowed"

    def judged(self, *allowed: str, keys=("prod/a", "prod/b")):
        overrides = GateOverrides(frozenset(allowed), (), date(2026, 1, 1))
        found = {}
        for key in keys:
            plan = replace(a_plan(horizon(expire=40)), server=key.split("/")[0], name=key.split("/")[1])
            found[key] = repository_gates(plan, Safety(), overrides)
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


def told(gates) -> list[tuple[object, ...]]:
    return [(g.gate, g.scope, g.outcome.value, g.message, g.value, g.limit, g.unit, g.horizon) for g in gates]


class DescribeWhatAGateReports:
    """Figures and limits are shown, compared with overrides and kept in plan files."""

    @pytest.mark.parametrize(
        ("expire", "kept", "shown", "outcome"),
        [
            (3_004, 10_000, "30.04", "refused"),
            (30_001, 100_000, "30.001", "refused"),
            (30_000, 100_000, "30.0", "passed"),
            (29_990, 100_000, "30.0", "passed"),
            (40_000, 100_000, "40.0", "refused"),
        ],
    )
    def it_has_the_decimals_that_show_on_which_side_of_the_limit_it_is(self, expire, kept, shown, outcome):
        safety = Safety(max_expired_objects_percent=30.0, max_expired_bytes=None)
        (gate,) = repository_gates(a_plan(horizon(expire=expire, kept=kept)), safety, SHUT)
        assert gate.message.startswith(f"{shown} percent of the kept objects would expire")
        assert gate.outcome.value == outcome

    def it_has_all_decimals_where_eight_do_not_show_it(self):
        assert percent_text(30.00000001, 30) == "30.00000001"
        assert percent_text(30.0000000014, 30) == "30.0000000014"

    def it_counts_pins_once_one_is_missing(self):
        def judged(limit: int, *states: PinState) -> list[tuple[object, ...]]:
            rows = tuple(PinRow(f"c{n}", f"pin-{n}", state) for n, state in enumerate(states))
            plan = a_plan(horizon(), pins=PinsPlan(NOW, rows, limit=limit))
            return [row for row in told(repository_gates(plan, Safety(), SHUT)) if row[0] == "pins"]

        kept, missing, retired = PinState.KEPT, PinState.MISSING, PinState.RETIRED
        place = ("pins", "prod/analytics")
        two, one = "2 pins in total; the limit is", "1 pin in total; the limit is"
        assert judged(1, kept, missing, retired) == [(*place, "refused", f"{two} 1", 2, 1, "pins", "now")]
        assert judged(2, kept, missing, retired) == [(*place, "passed", f"{two} 2", 2, 2, "pins", "now")]
        assert judged(0, missing) == [(*place, "refused", f"{one} 0", 1, 0, "pins", "now")]
        assert judged(1, kept, kept, retired) == []

    def it_is_the_figure_the_limit_and_the_moment_of_the_worst(self):
        horizons = {
            Horizon.NOW.value: horizon(expire=10, size=50),
            Horizon.WEEK.value: horizon(expire=40, size=60, risk=2),
            Horizon.MONTH.value: horizon(expire=40, size=60, risk=2),
        }
        plan = a_plan(horizon(), impact=Impact(ImpactStatus.SIMULATED, horizons=horizons))
        safety = Safety(max_expired_objects_percent=30.0, max_expired_bytes=55)
        assert told(repository_gates(plan, safety, SHUT)) == [
            (
                "expired-objects",
                "prod/analytics",
                "refused",
                "40.0 percent of the kept objects would expire (plus 7 days); the limit is 30.0",
                40.0,
                30.0,
                "percent",
                "plus_7_days",
            ),
            (
                "expired-bytes",
                "prod/analytics",
                "refused",
                "60 bytes would expire (plus 7 days); the limit is 55",
                60,
                55,
                "bytes",
                "plus_7_days",
            ),
            (
                "at-risk",
                "prod/analytics",
                "warned",
                "2 objects would be deleted although the documented rule keeps them (plus 7 days)",
                2,
                0,
                "objects",
                "plus_7_days",
            ),
        ]

    @pytest.mark.parametrize(
        ("changes", "gate", "message"),
        [
            (
                {"adopted": True},
                "adoption",
                "the glob 'analytics' matches this repository for the first time",
            ),
            (
                {"action": Action.CLEAR},
                "clear",
                "all GC rules would be removed; without rules, no collector runs and no storage is reclaimed",
            ),
            (
                {"impact": Impact(ImpactStatus.UNKNOWN, reason="time-out")},
                "unknown-impact",
                "it is unknown which objects would expire: time-out",
            ),
            (
                {"branch_lifecycle": PoliciesPlan(Action.CLEAR)},
                "clear",
                "all branch lifecycle policies would be removed from the server",
            ),
            (
                {
                    "object_lifecycle": ObjectRulesPlan(
                        Action.CHANGE, changes=(SettingChange("all", Action.CHANGE),)
                    )
                },
                "unknown-impact",
                "object lifecycle rules are not simulated, so it is unknown which objects they would expire",
            ),
        ],
    )
    def it_is_a_sentence_where_there_is_no_figure(self, changes, gate, message):
        found = told(repository_gates(a_plan(horizon(), **changes), Safety(), SHUT))
        assert (gate, "prod/analytics", "refused", message, None, None, "", "now") in found

    def it_names_tags_that_would_lose_data(self):
        def tags(count: int):
            lost = tuple(TagLoss(f"v{n}", "c", 1, 1) for n in range(count))
            plan = a_plan(horizon(), impact=Impact(ImpactStatus.SIMULATED, tags=lost))
            return told(repository_gates(plan, Safety(), SHUT))

        place = ("tag-loss", "prod/analytics", "refused")
        text = "would lose data, now or within 30 days:"
        assert tags(1) == [(*place, f"1 tag {text} v0", 1, 0, "tags", "now")]
        assert tags(5) == [(*place, f"5 tags {text} v0, v1, v2, v3, v4", 5, 0, "tags", "now")]
        assert tags(6) == [(*place, f"6 tags {text} v0, v1, v2, v3, v4 and 1 more", 6, 0, "tags", "now")]

    @pytest.mark.parametrize(("policy", "outcome"), [("warn", "warned"), ("fail", "refused")])
    def it_warns_or_refuses_as_the_tree_says(self, policy, outcome):
        lost = (TagLoss("v1", "c", 1, 1),)
        plan = a_plan(horizon(), impact=Impact(ImpactStatus.SIMULATED, tags=lost))
        assert outcomes(plan, Safety(on_tag_loss=policy)) == {"tag-loss": outcome}
        assert outcomes(plan, Safety(on_tag_loss="ignore")) == {}

    def it_counts_branches_that_policies_delete_at_the_worst_moment(self):
        deletions = {Horizon.NOW.value: 1, Horizon.WEEK.value: 3, Horizon.MONTH.value: 2}
        plan = a_plan(
            horizon(),
            impact=Impact(ImpactStatus.SIMULATED),
            branch_lifecycle=PoliciesPlan(Action.CHANGE, deletions=deletions),
        )
        found = ("deleted-branches", "prod/analytics")
        text = "3 branches would be deleted by policy (plus 7 days); the limit is"
        for limit, outcome in ((3, "passed"), (2, "refused")):
            assert told(repository_gates(plan, Safety(max_deleted_branches=limit), SHUT)) == [
                (*found, outcome, f"{text} {limit}", 3, limit, "branches", "plus_7_days")
            ]
        assert repository_gates(plan, Safety(max_deleted_branches=None), SHUT) == ()
        none = replace(plan, branch_lifecycle=PoliciesPlan(Action.CHANGE))
        assert [g.value for g in repository_gates(none, Safety(max_deleted_branches=0), SHUT)] == [0]
        quiet = replace(plan, branch_lifecycle=PoliciesPlan(Action.NONE, deletions=deletions))
        assert repository_gates(quiet, Safety(max_deleted_branches=0), SHUT) == ()

    @pytest.mark.parametrize("action", [Action.NONE, Action.CHANGE])
    def it_names_a_held_branch_that_a_server_would_delete(self, action):
        plan = a_plan(horizon(), action=action, held_deletions=("legal-1",))
        place = ("held-branch", "prod/analytics", "refused")
        text = "the server's policies would delete a held branch: legal-1"
        assert (*place, text, 1, 0, "branches", "now") in told(repository_gates(plan, Safety(), SHUT))
        plan = replace(plan, held_deletions=("legal-1", "legal-2", "legal-3"))
        found = told(repository_gates(plan, Safety(), SHUT))
        assert (*place, f"{text} (and 2 more)", 3, 0, "branches", "now") in found
        two = told(repository_gates(replace(plan, held_deletions=("legal-1", "legal-2")), Safety(), SHUT))
        assert (*place, f"{text} (and 1 more)", 2, 0, "branches", "now") in two

    def it_says_what_opened_it_or_would(self):
        def said(*allowed: str, overrides=(), **changes: object) -> str:
            known = GateOverrides(frozenset(allowed), overrides, date(2026, 1, 1))
            gates = repository_gates(a_plan(horizon(expire=40), **changes), Safety(), known)
            return next(g.opens_with for g in gates if g.gate == "expired-objects")

        assert said() == (
            "an entry under overrides in the tree, or --allow prod/analytics=expired-objects at a terminal"
        )
        assert said("expired-objects") == "--allow expired-objects"
        both = ("expired-objects", "analytics=expired-objects")
        assert said(*both) == "--allow analytics=expired-objects"
        assert said(*both, "prod/analytics=expired-objects") == "--allow prod/analytics=expired-objects"
        source = Source("lakeplan.yaml", 1, 1)
        assert said(overrides=(note(gate="clear"), note())) == f"overridden at {source}: because"

    def it_names_how_many_repositories_one_flag_would_open(self):
        plans = [a_plan(horizon(expire=40), name=name) for name in ("a", "b", "c")]
        overrides = GateOverrides(frozenset({"expired-objects"}), (), date(2026, 1, 1))
        found = one_by_one({p.key: repository_gates(p, Safety(), overrides) for p in plans})
        assert [g.opens_with for g in found["prod/b"] if g.gate == "expired-objects"] == [
            "--allow prod/b=expired-objects at a terminal;"
            " --allow expired-objects would override this gate in 3 repositories"
        ]
        assert [g.outcome.value for g in found["prod/b"]] == ["refused", "passed"]


def it_names_the_first_of_the_worst_moments():
    for gate in repository_gates(a_plan(horizon(expire=40, size=1, risk=1)), Safety(), SHUT):
        assert gate.horizon == "now"


def it_refuses_what_a_plan_file_says_was_allowed():
    edited = GateResult("clear", "prod/analytics", GateOutcome.ALLOWED, "all rules are removed")
    for repository in (None, a_plan(horizon())):
        assert SHUT.decide(edited, repository).outcome is GateOutcome.REFUSED


def it_leaves_a_gate_alone_that_has_no_figure_for_an_override_with_a_bound():
    overrides = GateOverrides(frozenset(), (note(gate="adoption", max=5),), date(2026, 1, 1))
    assert outcomes(a_plan(horizon(), adopted=True), overrides=overrides)["adoption"] == "refused"
    overrides = GateOverrides(frozenset(), (note(gate="adoption"),), date(2026, 1, 1))
    assert outcomes(a_plan(horizon(), adopted=True), overrides=overrides)["adoption"] == "overridden"
    overrides = GateOverrides(frozenset(), (note(max=40),), date(2026, 1, 1))
    assert outcomes(a_plan(horizon(expire=40)), overrides=overrides)["expired-objects"] == "overridden"


def it_has_no_gate_for_a_limit_that_the_tree_does_not_set():
    none = Safety(max_expired_objects_percent=None, max_expired_bytes=None)
    assert outcomes(a_plan(horizon(expire=99, size=10**15)), none) == {}
    some = Safety(max_expired_objects_percent=None)
    assert outcomes(a_plan(horizon(expire=99)), some) == {"expired-bytes": "passed"}


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
        overrides = GateOverrides(frozenset(), (note(repository="analytics"),), date(2026, 1, 1))
        one = a_plan(horizon(expire=90))
        one = replace(one, gates=repository_gates(one, Safety(), overrides))
        quiet = a_plan(horizon(expire=0), name="quiet")
        (gate,) = [g for g in plan_gates([one, quiet], Safety(), overrides) if g.gate == "expired-objects"]
        assert gate.outcome is GateOutcome.OVERRIDDEN
        idle = a_plan(horizon(expire=90), name="idle", action=Action.NONE)
        (gate,) = [g for g in plan_gates([one, idle], Safety(), overrides) if g.gate == "expired-objects"]
        assert gate.outcome is GateOutcome.OVERRIDDEN, "what writes nothing adds nothing"
        for expire in (90, 1):
            other = a_plan(horizon(expire=expire), name="other")
            (gate,) = [
                g for g in plan_gates([one, other], Safety(), overrides) if g.gate == "expired-objects"
            ]
            assert gate.outcome is GateOutcome.REFUSED

    @pytest.mark.parametrize(
        ("gates", "outcome"),
        [
            ([("expired-objects", "apply")], "overridden"),
            ([], "refused"),
            ([("expired-bytes", "apply")], "refused"),
            ([("expired-objects", "lifecycle run")], "refused"),
        ],
    )
    def it_counts_only_overrides_of_the_same_gate(self, gates, outcome):
        judged = GateResult("expired-objects", "plan", GateOutcome.REFUSED, "")
        of_each = [[replace(judged, gate=g, stops=s, outcome=GateOutcome.ALLOWED)] for g, s in gates]
        assert SHUT.decide_whole(judged, of_each).outcome.value == outcome

    def it_is_not_overridden_where_some_contributor_expires_objects_later(self):
        overrides = GateOverrides(frozenset(), (note(repository="analytics"),), date(2026, 1, 1))
        one = a_plan(horizon(expire=90))
        one = replace(one, gates=repository_gates(one, Safety(), overrides))
        horizons = {Horizon.NOW.value: horizon(), Horizon.WEEK.value: horizon(expire=1)}
        later = a_plan(horizon(), name="later", impact=Impact(ImpactStatus.SIMULATED, horizons=horizons))
        (gate,) = [g for g in plan_gates([one, later], Safety(), overrides) if g.gate == "expired-objects"]
        assert gate.outcome is GateOutcome.REFUSED

    def it_repeats_a_refusal_unless_the_only_contributor_refuses_by_the_same_gate(self):
        one = a_plan(horizon(expire=90))
        refused = repository_gates(one, Safety(), SHUT)
        other = tuple(
            replace(g, outcome=GateOutcome.PASSED) if g.gate == "expired-objects" else g for g in refused
        )
        other = (*other, GateResult("clear", "prod/analytics", GateOutcome.REFUSED, ""))
        for gates, named in ((refused, False), (other, True)):
            found = plan_gates([replace(one, gates=gates)], Safety(), SHUT)
            assert ("expired-objects" in [g.gate for g in found]) is named

    def it_stays_passed_where_every_contributor_is_overridden(self):
        overrides = GateOverrides(frozenset(), (note(repository="analytics"),), date(2026, 1, 1))
        strict = Safety(max_expired_objects_percent=10)
        one = a_plan(horizon(expire=20))
        one = replace(one, gates=repository_gates(one, strict, overrides))
        assert [g.outcome for g in one.gates if g.gate == "expired-objects"] == [GateOutcome.OVERRIDDEN]
        (gate,) = [g for g in plan_gates([one], Safety(), overrides) if g.gate == "expired-objects"]
        assert gate.outcome is GateOutcome.PASSED

    @pytest.mark.parametrize(("policy", "outcome"), [("warn", "warned"), ("fail", "refused")])
    def it_speaks_of_unmanaged_repositories(self, policy, outcome):
        (gate,) = plan_gates([], Safety(), SHUT, unmanaged=("prod/x",), on_unmanaged=policy)
        assert gate.outcome.value == outcome

    def it_counts_unmanaged_repositories(self):
        (gate,) = plan_gates([], Safety(), SHUT, unmanaged=("prod/x", "prod/y"))
        assert told([gate]) == [
            (
                "unmanaged",
                "plan",
                "warned",
                "2 repositories on the servers have no entry in the tree",
                2,
                None,
                "repositories",
                "now",
            )
        ]
        (gate,) = plan_gates([], Safety(), SHUT, unmanaged=("prod/x",), on_unmanaged="fail")
        assert gate.message == "1 repository on the servers has no entry in the tree"
        assert (
            gate.opens_with
            == 'an entry under overrides (repository: "*") in the tree, or --allow unmanaged at a terminal'
        )
        allowed = GateOverrides(frozenset({"unmanaged"}), (), date(2026, 1, 1))
        (gate,) = plan_gates([], Safety(), allowed, unmanaged=("prod/x",), on_unmanaged="fail")
        assert gate.outcome is GateOutcome.ALLOWED

    def it_leaves_out_what_failed_and_what_writes_nothing(self):
        idle = a_plan(horizon(expire=99), action=Action.NONE)
        broken = replace(a_plan(horizon(expire=99)), failure=Failure("broken"))
        assert plan_gates([idle, broken], Safety(), SHUT) == ()
        assert repository_gates(broken, Safety(), SHUT) == ()

    def it_goes_on_past_a_gate_that_passes(self):
        policies = PoliciesPlan(Action.CHANGE, deletions={Horizon.NOW.value: 9})
        plan = a_plan(horizon(expire=1), branch_lifecycle=policies)
        found = plan_gates([plan, replace(plan, name="b")], Safety(max_deleted_branches=10), SHUT)
        assert [(g.gate, g.outcome.value, g.value, g.scope) for g in found] == [
            ("expired-objects", "passed", 1.0, "plan"),
            ("expired-bytes", "passed", 0, "plan"),
            ("deleted-branches", "refused", 18, "plan"),
        ]

    @pytest.mark.parametrize(
        ("override", "outcome"),
        [
            (note(repository="*"), "overridden"),
            (note(repository="*", max=39), "refused"),
            (note(repository="*", expires=date(2025, 12, 31)), "refused"),
            (note(repository="prod/*"), "refused"),
        ],
    )
    def it_takes_overrides_of_every_repository_only(self, override, outcome):
        overrides = GateOverrides(frozenset(), (override,), date(2026, 1, 1))
        (gate,) = [
            g for g in plan_gates([a_plan(horizon(expire=40))], Safety(), overrides) if g.unit == "percent"
        ]
        assert gate.outcome.value == outcome

    def it_says_that_each_repository_was_opened(self):
        overrides = GateOverrides(
            frozenset(), (note(gate="deleted-branches", repository="analytics"),), NOW.date()
        )
        policies = PoliciesPlan(Action.CHANGE, deletions={Horizon.MONTH.value: 99})
        one = a_plan(horizon(expire=1), branch_lifecycle=policies)
        one = replace(one, gates=repository_gates(one, Safety(), overrides))
        quiet = a_plan(horizon(expire=1), name="quiet", branch_lifecycle=PoliciesPlan(Action.CHANGE))
        (gate,) = [g for g in plan_gates([one, quiet], Safety(), overrides) if g.gate == "deleted-branches"]
        assert gate.outcome is GateOutcome.OVERRIDDEN
        assert gate.opens_with == "overridden in every repository that contributes to this figure"

    def it_sums_what_was_read_at_each_moment(self):
        def at(expire: int) -> Impact:
            return Impact(ImpactStatus.SIMULATED, horizons={Horizon.WEEK.value: horizon(expire, size=expire)})

        unread = HorizonImpact(NOW, 10, 9, 1, 0, 0)
        plans = [
            a_plan(horizon(), impact=at(10)),
            a_plan(horizon(), name="b", impact=at(30)),
            a_plan(
                horizon(),
                name="c",
                impact=Impact(ImpactStatus.UNKNOWN, horizons={Horizon.WEEK.value: unread}),
            ),
        ]
        found = [(g.gate, g.value, g.horizon) for g in plan_gates(plans, Safety(), SHUT)]
        assert found == [("expired-objects", 20.0, "plus_7_days"), ("expired-bytes", 40, "plus_7_days")]
        (percent, _) = repository_gates(plans[0], Safety(), SHUT)
        assert "(plus 7 days)" in percent.message

    def it_ignores_unmanaged_repositories_when_told(self):
        assert plan_gates([], Safety(), SHUT, unmanaged=("prod/x",), on_unmanaged="ignore") == ()

    def it_tells_who_contributes_to_a_gate(self):
        deletes = PoliciesPlan(Action.CHANGE, deletions={Horizon.WEEK.value: 1})
        expiring = a_plan(horizon(expire=1))
        deleting = a_plan(horizon(), branch_lifecycle=deletes)

        def gates_of(plan: RepositoryPlan) -> list[str]:
            names = ("expired-objects", "expired-bytes", "deleted-branches", "unmanaged")
            gates = [GateResult(name, "*", GateOutcome.REFUSED, "") for name in names]
            return [gate.gate for gate in gates if contributes(plan, gate)]

        assert gates_of(expiring) == ["expired-objects", "expired-bytes"]
        assert gates_of(deleting) == ["deleted-branches"]
        assert gates_of(a_plan(horizon())) == []
