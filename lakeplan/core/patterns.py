"""Branch patterns turned into exact rules: GC rules on a server know no globs (api.md).

A branch that several patterns match gets the largest days, as lakeFS keeps by the most generous branch; an
exact rule counts instead of every pattern (the design's "The tree").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakeplan.core.globs import matches
from lakeplan.model.desired import BranchRule, GcDesired
from lakeplan.model.rules import GcRules


@dataclass(frozen=True)
class Lowered:
    """An exact rule that keeps a branch for fewer days than a pattern that matches it would."""

    exact: BranchRule
    pattern: BranchRule


@dataclass(frozen=True)
class Expansion:
    """``rules`` is what the server is to store. ``by_branch`` says which rule gave each branch its days.
    ``unmatched`` are patterns that match none of the branches; ``unknown`` exact rules whose branch is not
    among them (their rules are stored all the same, as lakeFS allows)."""

    rules: GcRules
    by_branch: Mapping[str, BranchRule]
    lowered: tuple[Lowered, ...]
    unmatched: tuple[BranchRule, ...]
    unknown: tuple[BranchRule, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reviewer should know, one line each. Unknown branches are left to the caller, who may have
        expanded over fewer branches than there are."""
        lowered = tuple(
            f"{low.exact.source}: branch {low.exact.name!r} has {low.exact.retention_days} days of its own, "
            f"fewer than the {low.pattern.retention_days} of the pattern {low.pattern.name!r} "
            f"({low.pattern.source})"
            for low in self.lowered
        )
        unmatched = tuple(f"{r.source}: the pattern {r.name!r} matches no branch" for r in self.unmatched)
        return lowered + unmatched


def expand(gc: GcDesired, branches: Iterable[str]) -> Expansion:
    """Exact rules for every branch that some rule names or matches, also where the days equal the default:
    the default may change, the rule was asked for. Of two patterns with equal days the first by name gives
    the rule."""
    names = sorted(set(branches))
    exact = {rule.name: rule for rule in gc.branches if not rule.is_pattern}
    patterns = sorted((r for r in gc.branches if r.is_pattern), key=lambda r: (-r.retention_days, r.name))
    by_branch: dict[str, BranchRule] = dict(exact)
    lowered: list[Lowered] = []
    matched: set[str] = set()
    for name in names:
        fitting = [rule for rule in patterns if matches(name, rule.name)]
        matched.update(rule.name for rule in fitting)
        if not fitting:
            continue
        largest = fitting[0]
        own = by_branch.setdefault(name, largest)
        if own is exact.get(name) and own.retention_days < largest.retention_days:
            lowered.append(Lowered(own, largest))
    days = {name: rule.retention_days for name, rule in by_branch.items()}
    return Expansion(
        rules=GcRules(gc.default_retention_days, days),
        by_branch=dict(sorted(by_branch.items())),
        lowered=tuple(lowered),
        unmatched=tuple(rule for rule in patterns if rule.name not in matched),
        unknown=tuple(rule for name, rule in sorted(exact.items()) if name not in set(names)),
    )
