"""GC rules, their ETag, and what a plan does to one setting."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, TypedDict

from lakeplan.values.records import json_digest
from lakeplan.values.records import rules as rules_shape

ActionName = Literal["add", "change", "clear"]
"""An action other than ``none``."""


class Action(str, Enum):
    """The change to a setting of a repository: its GC rules, policies or object rules."""

    ADD = "add"
    CHANGE = "change"
    CLEAR = "clear"
    NONE = "none"

    @property
    def writes(self) -> bool:
        return self is not Action.NONE


class BranchRule(TypedDict):
    branch_id: str
    retention_days: int


class RulesBody(TypedDict):
    """The JSON body of PUT and GET."""

    default_retention_days: int
    branches: list[BranchRule]


MAX_DAYS = 36_500
"""The maximum number of days that a tree may require."""
ABSENT_ETAG = "absent"
"""ETag of rules that are not set (``absent`` in the design)."""


@dataclass(frozen=True)
class GcRules:
    """The rules that ``GET …/settings/gc_rules`` returns. ``branches`` maps exact branch ids to retention
    days, sorted by id, because the server's order is random.

    Values are as the server stores them, including negative ones, zero, and branches that do not exist
    (lakefs/api.md, "Nothing is validated").
    """

    default_retention_days: int
    branches: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "branches", dict(sorted(self.branches.items())))

    def __hash__(self) -> int:
        return hash((self.default_retention_days, tuple(self.branches.items())))

    def days_for(self, branch_id: str) -> int:
        """Return the retention days of a branch from its own rule, or the default."""
        return self.branches.get(branch_id, self.default_retention_days)

    def to_body(self) -> RulesBody:
        """Return the body of PUT, with branches sorted by id."""
        return {
            "default_retention_days": self.default_retention_days,
            "branches": [{"branch_id": b, "retention_days": d} for b, d in self.branches.items()],
        }

    def oddities(self, branches: Collection[str] | None) -> list[str]:
        """Describe implausible values in the rules, because servers validate nothing. ``branches`` are the
        existing branches, or None if unknown."""
        named = {"by default": self.default_retention_days} | {
            f"on branch {branch!r}": days for branch, days in self.branches.items()
        }
        oddities = []
        for where, days in named.items():
            if days < 1:
                cut = " (the number may be a larger one that was truncated to 32 bits)" if days < 0 else ""
                oddities.append(f"{days} retention days {where}: only HEADs are kept{cut}")
            elif days > MAX_DAYS:
                oddities.append(f"{days:,} retention days {where}: more than a century, so nothing expires")
        unknown = () if branches is None else sorted(self.branches.keys() - set(branches))
        return oddities + [f"there is a rule for branch {name!r}, which does not exist" for name in unknown]

    @property
    def etag(self) -> str:
        """The digest of the body. lakeplan computes it, because the server has no ETag for GC rules
        (lakefs/api.md)."""
        return json_digest(self.to_body())


class NoRules(Enum):
    """Rules that are not set: nothing expires."""

    NONE = "none"


NO_RULES = NoRules.NONE
RulesBefore = GcRules | NoRules | None
"""Rules at an earlier moment, or None if they are not known."""


def etag_of(rules: GcRules | None) -> str:
    """Return the ETag of rules, or ``absent`` if none are set."""
    return ABSENT_ETAG if rules is None else rules.etag


def rules_from_body(body: Any) -> GcRules:
    """Return the rules of a JSON body. Raises ValueError for a body that no server can store."""
    rules_shape(body, "rules")
    branches = {rule["branch_id"]: rule["retention_days"] for rule in body["branches"]}
    return GcRules(body["default_retention_days"], branches)
