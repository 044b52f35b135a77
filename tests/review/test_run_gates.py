"""Gates over what ``branches run`` would delete: they stop that command, and never an apply."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timezone

import pytest

from lakeplan.review.gates import GateOverrides, plan_gates, repository_gates
from lakeplan.values.branches import BranchRow, Consequence
from lakeplan.values.desired import Override, Safety, Source
from lakeplan.values.plan import BranchesPlan, Failure, Plan, RepositoryPlan
from lakeplan.values.rules import Action

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
SHUT = GateOverrides(frozenset(), (), NOW.date())
TWO = Safety(max_deleted_branches=2)


def row(name: str, *tags: str, commits: int = 1) -> BranchRow:
    return BranchRow(
        *(name, "c", False, "delete", "policy", "quiet", NOW, None, NOW, None, NOW, None, 0, False, ()),
        tags=tags,
        safe_until=NOW,
        follows=Consequence(commits, tags=tags if commits else ()),
        notes=(),
    )


def a_plan(*rows: BranchRow, name: str = "analytics", **changes: object) -> RepositoryPlan:
    kept = replace(row("main"), verdict="keep", reason="default_branch")
    plan = RepositoryPlan(
        *("prod", name, name, "http://127.0.0.1", "0"),
        action=Action.NONE,
        before=None,
        after=None,
        lifecycle=BranchesPlan(NOW, (*rows, kept)),
    )
    return replace(plan, **changes)  # type: ignore[arg-type]


def many(count: int) -> list[BranchRow]:
    return [row(f"f-{n}") for n in range(count)]


def opened(*notes: tuple[str, float | None]) -> GateOverrides:
    said = tuple(
        Override(repository, "deleted-branches", limit, "spring", date(2099, 1, 1), Source("a", 1, 1))
        for repository, limit in notes
    )
    return GateOverrides(frozenset(), said, date(2026, 1, 1))


@pytest.mark.parametrize(("count", "outcome"), [(1, "passed"), (2, "passed"), (3, "refused")])
def it_counts_what_one_run_would_delete_without_any_write(count: int, outcome: str) -> None:
    (gate,) = repository_gates(a_plan(*many(count)), TWO, SHUT)
    assert (gate.gate, gate.outcome.value, gate.value) == ("deleted-branches", outcome, count)
    assert (gate.scope, gate.limit, gate.unit, gate.horizon) == ("prod/analytics", 2, "branches", "now")
    assert gate.stops == "lifecycle run"
    branches = "1 branch" if count == 1 else f"{count} branches"
    assert gate.message == f"{branches} would be deleted by `lakeplan branches run`; the limit is 2"


def it_has_nothing_to_say_when_no_branch_goes_or_there_is_no_limit() -> None:
    assert repository_gates(a_plan(), TWO, SHUT) == ()
    assert repository_gates(a_plan(*many(9)), Safety(max_deleted_branches=None), SHUT) == ()
    assert repository_gates(a_plan(*many(9), failure=Failure("broken")), TWO, SHUT) == ()


def it_does_not_block_an_apply() -> None:
    repository = a_plan(*many(3))
    repository = replace(repository, gates=repository_gates(repository, TWO, SHUT))
    plan = Plan(NOW, "0", "0", None, (repository,), gates=plan_gates([repository], TWO, SHUT))
    assert [gate.scope for gate in plan.refused] == ["prod/analytics"]
    assert plan.blocked == ()


def it_refuses_once_what_has_one_cause() -> None:
    judged = []
    for name in ("analytics", "streams"):
        repository = a_plan(*many(3), name=name)
        judged.append(replace(repository, gates=repository_gates(repository, TWO, SHUT)))
    assert plan_gates(judged[:1], TWO, SHUT) == ()
    (both,) = plan_gates(judged, TWO, SHUT)
    assert (both.outcome.value, both.value) == ("refused", 6)
    small = [a_plan(row("f-1"), row("f-2"), name=name) for name in ("analytics", "streams")]
    (sum_alone,) = plan_gates(
        [replace(one, gates=repository_gates(one, TWO, SHUT)) for one in small], TWO, SHUT
    )
    assert (sum_alone.outcome.value, sum_alone.value) == ("refused", 4)


@pytest.mark.parametrize(
    ("overrides", "outcome"),
    [
        (opened(("analytics", None)), "overridden"),
        (opened(("analytics", 3)), "overridden"),
        (opened(("analytics", 2)), "refused"),
        (opened(("other", None)), "refused"),
        (GateOverrides(frozenset({"deleted-branches"}), (), NOW.date()), "allowed"),
    ],
)
def it_opens_as_other_gates_do(overrides: GateOverrides, outcome: str) -> None:
    (gate,) = repository_gates(a_plan(*many(3)), TWO, overrides)
    assert gate.outcome.value == outcome


def it_counts_all_repositories_together() -> None:
    plans = [a_plan(*many(2), name=name) for name in ("a", "b")]
    found = plan_gates(plans, TWO, SHUT)
    assert [(g.outcome.value, g.value, g.scope, g.stops) for g in found] == [
        ("refused", 4, "plan", "lifecycle run")
    ]


def it_is_overridden_over_all_when_it_is_in_each_that_deletes() -> None:
    def outcome(overrides: GateOverrides, of_b: int = 3) -> str:
        plans = [a_plan(*many(3), name="a"), a_plan(*many(of_b), name="b")]
        plans = [
            replace(p, gates=repository_gates(p, TWO, overrides)) for p in (*plans, a_plan(name="quiet"))
        ]
        (gate,) = plan_gates(plans, TWO, overrides)
        return gate.outcome.value

    assert outcome(opened(("a", None), ("b", None))) == "overridden"
    assert outcome(opened(("a", None))) == "refused"
    assert outcome(opened(("a", None)), of_b=1) == "refused", (
        "one branch is deleted where nothing is overridden"
    )


class DescribeTags:
    def it_warns_of_those_whose_commits_go_with_a_branch(self) -> None:
        warn = replace(TWO, on_tag_loss="warn")
        gates = repository_gates(a_plan(row("f-1", "v1"), row("f-2", "v2", "v3")), warn, SHUT)
        (gate,) = [g for g in gates if g.gate == "tag-loss"]
        assert (gate.outcome.value, gate.value, gate.stops) == ("warned", 3, "lifecycle run")
        assert (gate.scope, gate.limit, gate.unit, gate.horizon) == ("prod/analytics", 0, "tags", "now")
        assert gate.message == (
            "3 tags (v1, v2, v3) may lose data once `lakeplan branches run` deletes f-1, f-2,"
            " because a tag does not keep data"
        )

    def it_names_five_of_several(self) -> None:
        rows = [row(f"f-{n}", f"v{n}", "all") for n in range(7)]
        gate = repository_gates(a_plan(*rows), TWO, SHUT)[-1]
        assert gate.value == 8
        assert "8 tags (all, v0, v1, v2, v3 and 3 more) may" in gate.message
        assert "deletes f-0, f-1, f-2, f-3, f-4 and 2 more, because" in gate.message
        (one,) = [g for g in repository_gates(a_plan(row("f-0", "v0")), TWO, SHUT) if g.gate == "tag-loss"]
        assert "1 tag (v0) may" in one.message

    def it_refuses_by_default_and_opens_like_any_gate(self) -> None:
        def outcome(overrides: GateOverrides) -> str:
            gates = repository_gates(a_plan(row("f-1", "v1")), TWO, overrides)
            return next(g.outcome.value for g in gates if g.gate == "tag-loss")

        assert outcome(SHUT) == "refused"
        assert outcome(replace(SHUT, allowed=frozenset({"tag-loss"}))) == "allowed"

    def it_is_quiet_when_nothing_follows_or_nobody_asks(self) -> None:
        kept = a_plan(row("f-1", "v1", commits=0))
        assert [g.gate for g in repository_gates(kept, TWO, SHUT)] == ["deleted-branches"]
        stays = replace(row("f-1", "v1"), verdict="keep", reason="kept")
        unknown = replace(row("f-2", "v2"), follows=None)
        assert [g.gate for g in repository_gates(a_plan(stays, unknown), TWO, SHUT)] == ["deleted-branches"]
        lost = a_plan(row("f-1", "v1"))
        quiet = replace(TWO, on_tag_loss="ignore")
        assert [g.gate for g in repository_gates(lost, quiet, SHUT)] == ["deleted-branches"]
