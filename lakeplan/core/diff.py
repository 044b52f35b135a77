"""Actual rules against desired rules → changes. No client inside; DeepDiff never decides here."""

from __future__ import annotations

from lakeplan.model.plan import Action, ValueChange
from lakeplan.model.rules import GcRules

DEFAULT_PATH = "default_retention_days"


def action_of(before: GcRules | None, after: GcRules | None) -> Action:
    """Which write, if any, takes a repository from ``before`` to ``after`` (None: not set)."""
    if before == after:
        return Action.NONE
    if before is None:
        return Action.ADD
    return Action.CLEAR if after is None else Action.CHANGE


def branch_path(branch_id: str) -> str:
    return f"branches/{branch_id}"


def diff_rules(before: GcRules | None, after: GcRules | None) -> tuple[ValueChange, ...]:
    """Every value that differs, the default first, then branches by id. Order and representation of
    branches on the server never show."""
    changes = []
    default_before = before.default_retention_days if before else None
    default_after = after.default_retention_days if after else None
    if default_before != default_after:
        changes.append(ValueChange(DEFAULT_PATH, default_before, default_after))
    branches_before = before.branches if before else {}
    branches_after = after.branches if after else {}
    for branch in sorted({*branches_before, *branches_after}):
        old, new = branches_before.get(branch), branches_after.get(branch)
        if old != new:
            changes.append(ValueChange(branch_path(branch), old, new))
    return tuple(changes)
