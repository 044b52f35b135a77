"""Policies and object rules under the gates and under the plan file as a ceiling."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone

import pytest

from lakeplan.plan.impact import Missing, judge
from lakeplan.retention.graph import CommitGraph
from lakeplan.review import ceiling, gates
from lakeplan.review.differences import action_of_setting, diff_setting
from lakeplan.values.desired import ObjectRule, Override, Policy, Safety, Source
from lakeplan.values.plan import (
    BranchFate,
    GateOutcome,
    Horizon,
    Impact,
    ImpactStatus,
    ObjectRulesPlan,
    PoliciesPlan,
    RepositoryPlan,
)
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import Action, GcRules

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAY = 86400
OLD = (Policy("old", ("f-*",), 30 * DAY),)
NEW = (Policy("old", ("f-*",), 7 * DAY),)
CLOSED = gates.GateOverrides(frozenset(), (), date(2026, 1, 1))


def policies(before=None, after=NEW, **fields) -> PoliciesPlan:
    changes = diff_setting(before, after)
    made = PoliciesPlan(action_of_setting(before, after), '"e"', changes, (), before, after)
    return replace(made, **fields)


def deletions(now: int, week: int, month: int) -> dict[str, int]:
    return {"now": now, "plus_7_days": week, "plus_30_days": month}


def repository(name: str = "a", **fields) -> RepositoryPlan:
    rules = GcRules(7)
    plan = RepositoryPlan("prod", name, name, "http://h", "hash", Action.NONE, rules, rules)
    return replace(plan, impact=Impact(ImpactStatus.UNAFFECTED), **fields)


def outcomes(plan: RepositoryPlan, safety: Safety | None = None, overrides=CLOSED) -> dict[str, GateOutcome]:
    return {g.gate: g.outcome for g in gates.repository_gates(plan, safety or Safety(), overrides)}


class DescribeTheGates:
    @pytest.mark.parametrize(
        ("counts", "outcome"),
        [
            ((0, 0, 20), GateOutcome.PASSED),
            ((0, 0, 21), GateOutcome.REFUSED),
            ((21, 21, 21), GateOutcome.REFUSED),
        ],
    )
    def it_counts_branches_at_the_worst_moment(self, counts, outcome):
        plan = repository(branch_lifecycle=policies(deletions=deletions(*counts)))
        assert outcomes(plan)["deleted-branches"] is outcome

    def it_has_no_limit_when_there_is_none(self):
        plan = repository(branch_lifecycle=policies(deletions=deletions(99, 99, 99)))
        assert "deleted-branches" not in outcomes(plan, Safety(max_deleted_branches=None))

    def it_opens_up_to_what_is_overridden(self):
        note = Override(
            "a", "deleted-branches", 25, "agreed", date(2099, 1, 1), Source("lakeplan.yaml", 1, 1)
        )
        overrides = replace(CLOSED, overrides=(note,))
        for count, outcome in ((25, GateOutcome.OVERRIDDEN), (26, GateOutcome.REFUSED)):
            plan = repository(branch_lifecycle=policies(deletions=deletions(0, 0, count)))
            assert outcomes(plan, overrides=overrides)["deleted-branches"] is outcome

    def it_adds_up_over_the_whole_plan(self):
        plans = [repository(n, branch_lifecycle=policies(deletions=deletions(11, 0, 0))) for n in "ab"]
        (gate,) = [g for g in gates.plan_gates(plans, Safety(), CLOSED) if g.gate == "deleted-branches"]
        assert (gate.outcome, gate.value, gate.horizon) == (GateOutcome.REFUSED, 22, "now")

    @pytest.mark.parametrize("settings", [{"branch_lifecycle": policies(OLD, None)}])
    def it_refuses_to_clear(self, settings):
        assert outcomes(repository(**settings))["clear"] is GateOutcome.REFUSED

    def it_refuses_object_rules_that_nobody_simulated_and_not_their_removal(self):
        rule = (ObjectRule("raw", ("main",), "", 5), ObjectRule("tmp", ("main",), "tmp/", 5))
        for before, after, refused in ((None, rule, True), (rule, rule[:1], False), (rule[:1], rule, True)):
            changes = diff_setting(before, after)
            setting = ObjectRulesPlan(Action.CHANGE, "", changes, (), before, after)
            found = outcomes(repository(object_lifecycle=setting))
            assert ("unknown-impact" in found) is refused

    def it_says_nothing_where_nothing_is_written(self):
        assert outcomes(repository(branch_lifecycle=policies(NEW, NEW))) == {}


class DescribeTheCeiling:
    REVIEWED = repository(branch_lifecycle=policies(OLD, deletions=deletions(10, 10, 10)))

    def reasons(self, *, check_etag=True, reviewed=REVIEWED, **changes) -> list[str]:
        setting = replace(reviewed.branch_lifecycle, **changes)
        live = replace(reviewed, branch_lifecycle=setting)
        return ceiling.stale_reasons(reviewed, live, check_etag=check_etag)

    def it_accepts_what_is_as_it_was(self):
        assert self.reasons() == []

    def it_says_what_changed_on_the_server(self):
        (reason,) = self.reasons(before=(Policy("old", ("f-*",), 60 * DAY),), server_etag='"x"')
        assert "'old' changed (max_age 30d to 60d)" in reason
        assert self.reasons(before=(), server_etag="", check_etag=False) == []

    def it_trusts_the_servers_etag(self):
        (reason,) = self.reasons(server_etag='"x"')
        assert "its ETag differs" in reason

    def it_accepts_what_an_interrupted_run_wrote(self):
        assert self.reasons(before=(replace(NEW[0]),), server_etag='"x"') == []
        live = replace(self.REVIEWED, branch_lifecycle=policies(NEW, NEW))
        assert ceiling.is_done(self.REVIEWED, live)
        assert not ceiling.is_done(self.REVIEWED, self.REVIEWED)

    def it_refuses_another_tree_even_by_force(self):
        (reason,) = self.reasons(after=OLD, check_etag=False)
        assert "differ from the reviewed ones" in reason
        live = replace(self.REVIEWED, branch_lifecycle=None)
        assert "no longer manages" in ceiling.stale_reasons(self.REVIEWED, live, check_etag=False)[0]

    def it_lets_gc_rules_change_that_the_tree_does_not_manage(self):
        reviewed = replace(self.REVIEWED, managed=False)
        live = replace(reviewed, before=GcRules(9), after=GcRules(9))
        assert ceiling.stale_reasons(reviewed, live, check_etag=True) == []
        managed = replace(live, managed=True)
        assert ceiling.stale_reasons(self.REVIEWED, managed, check_etag=True)

    @pytest.mark.parametrize(("count", "refused"), [(10, False), (11, False), (12, True)])
    def it_holds_the_branches_that_go_to_what_was_reviewed(self, count, refused):
        live = replace(self.REVIEWED, branch_lifecycle=policies(OLD, deletions=deletions(count, 0, 0)))
        age = timedelta(hours=1)
        found = ceiling.growth(self.REVIEWED, live, Safety(), age=age, now=NOW)
        assert bool(found) is refused


def it_lets_commits_of_deleted_branches_fall_to_the_default_days():
    ages = {"root": 100, "on-main": 1, "on-f": 20}

    def commit(name: str, *parents: str) -> Commit:
        at = int((NOW - timedelta(days=ages[name])).timestamp() * 1e6)
        return Commit(name, at, f"m-{name}", parents)

    commits = (commit("root"), commit("on-main", "root"), commit("on-f", "root"))
    graph = CommitGraph.from_refs(Refs(commits, (Branch("main", "on-main"), Branch("f-1", "on-f")), ()))
    fate = BranchFate("f-1", "on-f", NOW, None, "old", NOW + timedelta(days=5), None)
    rules = GcRules(10)
    verdicts = judge(graph, rules, rules, NOW, timezone.utc, missing=Missing(policies(fates=(fate,)).deleted))
    assert verdicts.commit_impact(Horizon.NOW).commits_expire == 0
    assert verdicts.commit_impact(Horizon.WEEK).commits_expire == 1
    unset = judge(graph, None, None, NOW, timezone.utc, missing=Missing(policies(fates=(fate,)).deleted))
    assert unset.commit_impact(Horizon.WEEK).commits_expire == 0
