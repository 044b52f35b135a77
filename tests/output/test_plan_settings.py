"""Policies and object rules in a plan: changes, branches that go, caveats."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from lakeplan.branches.verdicts import EVEREST
from lakeplan.output.comments import render_markdown
from lakeplan.output.explain import render_repository
from lakeplan.output.plan import render_plan
from lakeplan.output.plan_changes import render_pins
from lakeplan.output.text import Page, code
from lakeplan.review.differences import action_of_setting, diff_setting, is_reordering
from lakeplan.values.desired import ObjectRule, Policy
from lakeplan.values.plan import (
    BranchFate,
    Horizon,
    Impact,
    ImpactStatus,
    ObjectRulesPlan,
    PoliciesPlan,
    RepositoryPlan,
)
from lakeplan.values.plan_document import to_document
from lakeplan.values.rules import GcRules

DAY = 86400
FEATURES = Policy("features", ("feature-*", "wip-*"), 7 * DAY, 3 * DAY, "quiet feature branches")
STORED = (replace(FEATURES, max_age_seconds=14 * DAY), Policy("pol-a3f9c821", ("tmp-*",), DAY))
WANTED = (FEATURES, Policy(None, ("release-*",), 90 * DAY))
RAW = ObjectRule("raw-90d", ("main",), "raw/", 90)
FIRST = "the server's job (schedule '0 * * * *', UTC) can delete the first branch at 2026-03-31T13:00Z"


def policies(before: Any, after: Any, **fields: Any) -> PoliciesPlan:
    made = PoliciesPlan(
        action_of_setting(before, after),
        server_etag='"e1"',
        changes=diff_setting(before, after),
        before=before,
        after=after,
        reordered=is_reordering(before, after),
    )
    return replace(made, **fields)


def object_rules(before: Any, after: Any, *notes: str) -> ObjectRulesPlan:
    changes = diff_setting(before, after)
    return ObjectRulesPlan(action_of_setting(before, after), "", changes, notes, before, after)


@pytest.fixture
def fates(plans: Any) -> tuple[BranchFate, ...]:
    def at(days: float | None) -> Any:
        return None if days is None else plans.as_of + timedelta(days=days)

    def fate(name: str, created: float, written: Any, goes: Any, before: Any) -> BranchFate:
        return BranchFate(
            name, "a1" * 32, at(created), at(written), "features", at(goes), at(before), idle=name != "wip-3"
        )

    return (
        fate("feature-login-and-everything-that-comes-with-it", -30, -12, -9, -2),
        fate("feature-2", -20, None, -13, None),
        fate("wip-3", -1, -0.5, 6, None),
        fate("tmp-1", -20, -20, None, -19),
    )


@pytest.fixture
def full(plans: Any, fates: Any) -> Any:
    """A change of policies with branches that go, the same elsewhere, a reordering, a clear, object rules."""
    nothing = plans.horizons((90, 90), dict.fromkeys(Horizon, 0))
    quiet = Impact(ImpactStatus.UNAFFECTED, "no commit's verdict changes", nothing)

    def repository(name: str, **fields: Any) -> RepositoryPlan:
        rules = GcRules(21, {"main": 28})
        return plans.repository(name, rules, rules, impact=quiet, **fields)

    changed = policies(
        STORED,
        WANTED,
        fates=fates,
        deletions={"now": 1, "plus_7_days": 2, "plus_30_days": 2},
        notes=(FIRST, EVEREST, "3 branches have no recorded creation time"),
    )
    order = policies((*STORED,), (STORED[1], STORED[0]), notes=("only the order of the policies changes",))
    return plans.make(
        repository("analytics", branch_lifecycle=changed),
        repository("events", branch_lifecycle=replace(changed, fates=(), deletions={}, notes=())),
        repository("logs", branch_lifecycle=order),
        repository("raw", object_lifecycle=object_rules(None, (RAW,), "not simulated here")),
        repository("scratch", branch_lifecycle=policies(STORED[:1], None)),
    )


def flat(text: str) -> str:
    return " ".join(text.split())


class DescribeOutput:
    @pytest.mark.parametrize("width", [80, 160])
    def it_is_what_was_looked_at(self, full: Any, show: Any, golden_output: Any, width: int) -> None:
        golden_output(f"policies-{width}", show(render_plan, to_document(full), width))

    @pytest.mark.parametrize("width", [80, 160])
    def it_is_what_was_looked_at_for_one_repository(
        self, full: Any, show: Any, golden_output: Any, width: int
    ) -> None:
        document = to_document(full)["repositories"][0]
        golden_output(f"policies-show-{width}", show(render_repository, document, width))


def it_says_that_a_reordering_has_no_effect(full: Any, show: Any) -> None:
    text = flat(show(render_plan, to_document(full), 160))
    assert "features | pol-a3f9c821 → pol-a3f9c821 | features" in text
    assert "no effect on which branches are deleted" in text


def it_shows_durations_as_people_write_them(full: Any, show: Any) -> None:
    assert "~ features max_age 14d → 7d" in flat(show(render_plan, to_document(full), 160))


def it_counts_repositories_whose_policies_change(full: Any, show: Any) -> None:
    text = flat(show(render_plan, to_document(full), 160))
    assert "Plan: 1 to add, 3 to change, 1 to clear, 0 unchanged." in text


def it_never_says_that_nothing_expires_where_object_rules_expire_objects(full: Any, show: Any) -> None:
    text = flat(show(render_plan, to_document(full), 160))
    assert "Nothing expires in prod/analytics, prod/events, prod/logs, prod/scratch." in text
    assert "so their expirations are unknown in prod/raw" in text
    assert "UNKNOWN in 1 repository" in text


def it_marks_every_idle_verdict_where_the_caveat_stands(full: Any, show: Any) -> None:
    text = show(render_plan, to_document(full), 160)
    assert sum("idle*" in line for line in text.splitlines() if "feature-" in line) == 2
    assert any("Everest" in line for line in text.splitlines())


def it_sums_up_very_many_repositories(plans: Any, show: Any) -> None:
    one = policies(None, (FEATURES,), deletions={"now": 3, "plus_7_days": 4, "plus_30_days": 5})
    rules = GcRules(21, {})
    plan = plans.make(*(plans.repository(f"r{n:02}", rules, rules, branch_lifecycle=one) for n in range(12)))
    text = show(render_plan, to_document(plan), 80)
    assert "12 repositories with identical changes" in text
    assert any(line.split() == ["prod/r03", "3", "4", "5"] for line in text.splitlines())


def it_shows_every_setting_in_a_comment_too(full: Any) -> None:
    text = render_markdown(to_document(full), tree=".")
    assert "branch lifecycle policies" in text
    assert "object lifecycle rules" in text
    assert "branches newly deleted: 1 now, 2 within 30 days" in text
    assert "feature-2" in text
    for change in (c for r in full.repositories if r.branch_lifecycle for c in r.branch_lifecycle.changes):
        assert code(change.item) in text


def pinned(**more: Any) -> Any:
    pin = {
        "branch_id": "lakeplan-pin-0123456789ab",
        "state": "missing",
        "retention_days": 3_650,
        "reasons": ["tag v2026.03", "the last 5 commits of main"],
        "objects": 41_200,
        "size_bytes": 106_048_800_000,
        **more,
    }
    pins = {"blocked": [], "pins": [pin]}
    return {"repositories": [{"server": "prod", "name": "lake", "failure": None, "pins": pins}]}


def pins_of(document: Any, console: Console) -> None:
    render_pins(Page(console), document)


def it_shows_a_pin_whole_where_no_table_fits(show: Any) -> None:
    lines = show(pins_of, pinned(), 80).splitlines()
    assert [line.rstrip() for line in lines[-3:]] == [
        "   +  lakeplan-pin-0123456789ab: missing, rule 3,650 days",
        "      for tag v2026.03, the last 5 commits of main",
        "      protected only by this pin: 41,200 objects, 106.0 GB",
    ]
    (row,) = [line for line in show(pins_of, pinned(), 160).splitlines() if "lakeplan-pin" in line]
    assert "106.0 GB" in row


def it_says_of_a_retired_pin_that_nobody_asks_for_it(show: Any) -> None:
    text = show(pins_of, pinned(state="retired", retention_days=None, objects=None, size_bytes=None), 60)
    assert "      no longer required\n" in text
    assert "rule default" in text


def it_cuts_no_impact_and_no_branch_that_policies_delete_from_a_comment(plans: Any) -> None:
    days = {f"b{number:05}": number for number in range(1, 3_000)}
    before, after = GcRules(28, days), GcRules(28, {name: 2 * number for name, number in days.items()})
    fate = BranchFate("old|one", "ab" * 32, plans.as_of, None, "features", plans.as_of, None)
    made = policies(STORED, WANTED, fates=(fate,), deletions={"now": 1, "plus_30_days": 1})
    long = plans.repository("long", before, after, branch_lifecycle=made)
    text = render_markdown(to_document(plans.make(long)))
    assert "the changes of 1 repository (<code>prod/long</code>)" in text
    assert "#### <code>prod/long</code>\n\nImpact: " in text
    assert "branches newly deleted: 1 now, 1 within 30 days: old&#124;one" in text
