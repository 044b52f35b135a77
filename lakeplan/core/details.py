"""Differences in words, for messages. Never for decisions: those compare dataclasses (``core.diff``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeplan.model.rules import GcRules

MAX_DETAILS = 5


def explain_rules(before: GcRules | None, after: GcRules | None) -> str:
    """What became of stored rules, such as ``default_retention_days 21 → 30; branch dev set to 7``.

    At most five differences are named; "" when there are none.
    """
    if before is None or after is None:
        return "" if before == after else ("they were not set before" if before is None else "they are gone")
    found = _differences(_flat(before), _flat(after))
    more = f"; and {len(found) - MAX_DETAILS} more" if len(found) > MAX_DETAILS else ""
    return "; ".join(found[:MAX_DETAILS]) + more


def _flat(rules: GcRules) -> dict[str, int]:
    branches = {f"branch {name}": days for name, days in rules.branches.items()}
    return {"default_retention_days": rules.default_retention_days, **branches}


def _differences(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    # Imported where it is needed: it takes longer to load than most commands take to run.
    from deepdiff import DeepDiff

    # By default DeepDiff passes over keys that begin with "__", which are legal branch names, and takes
    # mappings that share few keys for one changed value.
    delta: Mapping[str, Any] = DeepDiff(
        before, after, view="tree", ignore_private_variables=False, threshold_to_diff_deeper=0
    )
    keys = sorted(str(item.path(output_format="list")[0]) for kind in delta.values() for item in kind)
    return [_text(key, before.get(key), after.get(key)) for key in keys]


def _text(key: str, before: int | None, after: int | None) -> str:
    if after is None:
        return f"{key} taken out"
    return f"{key} set to {after}" if before is None else f"{key} {before} → {after}"
