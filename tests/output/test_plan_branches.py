"""Branches that ``branches run`` deletes, in a plan as people and pull requests see it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lakeplan.output.comments import render_markdown
from lakeplan.output.explain import render_repository
from lakeplan.output.plan import render_plan
from lakeplan.values.branches import BranchRow, Consequence, MomentTotal, OnlyHere
from lakeplan.values.desired import Evidence
from lakeplan.values.plan import BranchesPlan
from lakeplan.values.plan_document import to_document
from lakeplan.values.rules import GcRules


def row(plans: Any, name: str, reason: str = "policy", **fields: Any) -> BranchRow:
    goes = reason == "policy"
    plain = BranchRow(
        branch_id=name,
        commit_id="ab" * 32,
        hidden=False,
        verdict="delete" if goes else "keep",
        reason=reason,
        policy="features" if goes or reason == "not_crossed" else None,
        since=plans.as_of - timedelta(days=2) if goes else None,
        due=None,
        created=plans.as_of - timedelta(days=40),
        created_evidence=Evidence.OBSERVED,
        last_write=plans.as_of - timedelta(days=9),
        last_write_evidence=Evidence.HEAD_COMMIT,
        uncommitted=0 if goes else None,
        uncommitted_more=False,
        pulls=(),
        tags=(),
        safe_until=plans.as_of + timedelta(days=12) if goes else None,
        follows=Consequence(3, 1_200, 4_500_000) if goes else None,
        notes=(),
    )
    return replace(plain, **fields)


def branches(plans: Any, *rows: BranchRow, **fields: Any) -> BranchesPlan:
    going = sum(1 for r in rows if r.is_deleted)
    total = MomentTotal(plans.as_of, 6, 2_400, 9_000_000)
    return BranchesPlan(
        plans.as_of,
        tuple(sorted(rows, key=lambda r: r.branch_id)),
        observed_since=plans.as_of - timedelta(days=60),
        deletions={"now": going, "plus_7_days": going + 1, "plus_30_days": going + 1},
        totals=dict.fromkeys(("now", "plus_7_days", "plus_30_days", "settled"), total) if going else {},
        **fields,
    )


def full(plans: Any) -> BranchesPlan:
    """A branch with every possible note, once."""
    return branches(
        plans,
        row(plans, "feature-login-and-everything-that-comes-with-it", tags=("v1", "v2")),
        row(plans, "feature-2", uncommitted=1_000, uncommitted_more=True, hidden=True),
        row(plans, "feature-3", pulls=("17",), follows=Consequence(0, 0, 0)),
        row(plans, "feature-young", "not_crossed", due=plans.as_of + timedelta(days=5)),
        row(plans, "feature-open", "open_pull_request", policy="features"),
        row(plans, "main", "default_branch"),
        row(plans, "other", "no_policy"),
    )


def document(plans: Any, *found: BranchesPlan) -> Any:
    rules = GcRules(21, {})
    repositories = [
        plans.repository(f"analytics-{number}", rules, rules, lifecycle=one)
        for number, one in enumerate(found)
    ]
    return to_document(plans.make(*repositories))


@pytest.mark.parametrize("width", [80, 160])
def it_looks_as_reviewed(plans: Any, show: Any, golden_output: Any, width: int) -> None:
    shown = show(render_plan, document(plans, full(plans)), width)
    golden_output(f"plan-branches-{width}", shown)
    assert all(len(line) <= width for line in shown.splitlines())


def it_looks_as_reviewed_in_a_comment(plans: Any, golden_output: Any) -> None:
    golden_output("plan-branches-markdown", render_markdown(document(plans, full(plans))))


def it_shows_what_goes_and_counts_the_rest_of_very_many(plans: Any, show: Any) -> None:
    many = branches(
        plans,
        *(row(plans, f"feature-{n:05}") for n in range(300)),
        *(row(plans, f"quiet-{n:05}", "no_policy") for n in range(9_700)),
    )
    text = show(render_plan, document(plans, many), 100)
    assert text.count("feature-0") == 20
    assert "and 280 more to be deleted" in text
    assert "9,700 branches kept: no policy matches (9,700)" in text
    assert "Branches: 300 to be deleted by `lakeplan branches run`, 9,700 kept" in text
    assert len(text.splitlines()) < 60


def it_shows_very_many_repositories_in_one_table(plans: Any, show: Any) -> None:
    quiet = branches(plans, row(plans, "main", "default_branch"))
    text = show(render_plan, document(plans, full(plans), *[quiet] * 30), 100)
    assert "feature-3" in text
    assert text.count("prod/analytics-") == 31
    assert len(text.splitlines()) < 70


def it_shows_every_branch_of_one_repository_when_asked(plans: Any, show: Any) -> None:
    many = branches(plans, *(row(plans, f"feature-{n:03}") for n in range(50)))
    text = show(render_repository, document(plans, many)["repositories"][0], 100)
    assert text.count("feature-0") == 50


def it_shows_what_stale_branches_hold_alone_the_most_first(plans: Any, show: Any) -> None:
    since = plans.as_of - timedelta(days=200)
    held = [OnlyHere(since, 1, n, n * 10**9) for n in range(8)] + [OnlyHere(since, 2)]
    rows = [row(plans, f"quiet-{n}", "no_policy", only_here=only) for n, only in enumerate(held)]
    going = row(plans, "feature-1", only_here=OnlyHere(since, 3, 70, 10**12))
    found = branches(plans, *rows, going)
    shown = document(plans, found)
    shown["repositories"][0]["cost_per_gb_month"] = {"amount": 0.1, "currency": "USD"}
    text = show(render_plan, shown, 80)
    part = text[
        text.index("10 stale branches, and the committed data that each alone keeps (upper bounds)") :
    ].splitlines()
    assert [line.split()[0] for line in part[3:8]] == [
        "quiet-8",
        "feature-1",
        "quiet-7",
        "quiet-6",
        "quiet-5",
    ]
    assert part[3].split()[1:] == ["2025-09-12", "2", "unknown", "unknown", "unknown"]
    assert part[4].split()[1:] == ["2025-09-12", "3", "70", "1.0", "TB", "100.00"]
    assert part[8].strip() == "and 5 more"
    comment = render_markdown(shown)
    assert "| <code>feature-1</code> | 2025-09-12 | 3 | 70 | 1.0 TB | 100.00 |" in comment
    assert "quiet-4" not in comment[comment.index("| stale branch |") :]
    assert "\nand 5 more stale branches in the plan file\n" in comment


@pytest.mark.parametrize(
    ("number", "text"), [(19, "19 stale branches, "), (20, "the 20 stale branches that ")]
)
def it_says_that_only_the_longest_idle_are_counted(plans: Any, show: Any, number: int, text: str) -> None:
    only = OnlyHere(plans.as_of - timedelta(days=200), 1, 1, 1)
    rows = [row(plans, f"quiet-{n:02}", "no_policy", only_here=only) for n in range(number)]
    shown = show(render_plan, document(plans, branches(plans, row(plans, "feature-1"), *rows)), 80)
    assert f"  {text}" in shown


def it_says_that_it_could_not_look(plans: Any, show: Any) -> None:
    blind = document(plans, BranchesPlan(plans.as_of, unknown="no permission"))
    text = show(render_plan, blind, 100)
    assert "the branches to delete could not be determined" in text
    assert "no permission" in render_markdown(blind)


def it_does_not_take_unread_objects_for_none(plans: Any, show: Any) -> None:
    unread = row(plans, "feature-1", follows=Consequence(3))
    found = branches(plans, unread, objects_unknown="not simulated (--no-simulate)")
    found = replace(found, totals={n: replace(t, objects=None) for n, t in found.totals.items()})
    text = show(render_plan, document(plans, found), 120)
    assert "3 commits, objects unknown" in text
    assert "the data that expires as a result is unknown" in " ".join(text.split())


def it_shows_branches_that_are_deleted_within_30_days_if_none_is_deleted_now(plans: Any, show: Any) -> None:
    soon = row(plans, "idle|one", "not_crossed", due=plans.as_of + timedelta(days=3))
    never = row(plans, "main", "default_branch")
    made = document(plans, branches(plans, never, soon))
    comment = render_markdown(made)
    summary = "Branches: none to delete now, 2 kept, 1 of them for at most 30 days."
    assert summary in comment
    assert summary in " ".join(show(render_plan, made, 120).split())
    assert "0 branches now, 1 within 7 days, 1 within 30 days" in comment
    assert "Deleted later: <code>idle&#124;one</code>\n" in comment
