"""GC rules, their ETag, and what a plan does to one setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypedDict

from lakeplan.values.records import json_digest

ActionName = Literal["add", "change", "clear"]
"""What changes."""


class Action(str, Enum):
    """What happens to a setting of a repository: its GC rules, policies or object rules."""

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


ABSENT_ETAG = "absent"
"""ETag of rules that are not set (the design: ``absent`` when unset)."""


@dataclass(frozen=True)
class GcRules:
    """What ``GET …/settings/gc_rules`` answers, with branch order (random on the server) taken out.

    ``branches`` maps exact branch ids to retention days. Values are kept as the server has them, nonsense
    included (negative, zero, unknown branches): lakefs/api.md, "Nothing is validated".
    """

    default_retention_days: int
    branches: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "branches", dict(sorted(self.branches.items())))

    def __hash__(self) -> int:
        return hash((self.default_retention_days, tuple(self.branches.items())))

    def days_for(self, branch_id: str) -> int:
        """Retention days of a branch: its own rule, or else the default."""
        return self.branches.get(branch_id, self.default_retention_days)

    def to_body(self) -> RulesBody:
        """Branches are sorted by id."""
        return {
            "default_retention_days": self.default_retention_days,
            "branches": [{"branch_id": b, "retention_days": d} for b, d in self.branches.items()],
        }

    @property
    def etag(self) -> str:
        """The digest of the body. GC rules have no ETag on the server (lakefs/api.md): this one is
        lakeplan's own."""
        return json_digest(self.to_body())


class NoRules(Enum):
    """Rules that are not set: nothing expires."""

    NONE = "none"


NO_RULES = NoRules.NONE
RulesBefore = GcRules | NoRules | None
"""Rules at an earlier moment. None: they are not known."""


def etag_of(rules: GcRules | None) -> str:
    """ETag of rules, or ``absent`` when none are set."""
    return ABSENT_ETAG if rules is None else rules.etag
