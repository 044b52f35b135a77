"""Verdicts per commit for every rule set of a run: what the server will do, what the documented rule keeps,
and who keeps it. Plain Python: this is all that ``--commits-only`` needs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo

from lakeplan.core.retention import (
    BranchSets,
    CommitGraph,
    DocumentedVerdict,
    branch_sets,
    documented_verdict,
    limit_us,
    server_verdict,
)
from lakeplan.model.rules import GcRules
from lakeplan.simulation.rulesets import RuleSet, RuleSetBits


@dataclass(frozen=True)
class Judged:
    """One rule set over a history. Flags are per commit number; ``dangling`` is 1 where a walk from a
    dangling commit keeps a commit under the documented rule."""

    rule_set: RuleSet
    server: bytearray
    documented: DocumentedVerdict
    branches: BranchSets
    dangling: bytearray

    @property
    def dangling_bit(self) -> int:
        """Bit of the holder that stands for all dangling starts, after the branches' bits."""
        return 1 << len(self.branches.names)

    def holders(self, commit: int) -> int:
        """Who keeps a commit under the documented rule, as bits."""
        mask = self.branches.masks[self.branches.of_commit[commit]]
        return mask | self.dangling_bit if self.dangling[commit] else mask

    def mask(self, commit: int, bits: RuleSetBits) -> int:
        return (bits.server if self.server[commit] else 0) | (
            bits.documented if self.documented.active[commit] else 0
        )

    @property
    def commits_at_risk(self) -> int:
        """Commits that the server lets go and the documented rule keeps."""
        return sum(
            kept and not active for kept, active in zip(self.documented.active, self.server, strict=True)
        )

    def commits_of_branches(self) -> list[int]:
        """How many commits each branch keeps, in the order of ``branches.names``."""
        shared: dict[int, int] = {}
        for position in self.branches.of_commit:
            shared[position] = shared.get(position, 0) + 1
        counts = [0] * len(self.branches.names)
        for position, commits in shared.items():
            mask = self.branches.masks[position]
            while mask:
                lowest = mask & -mask
                counts[lowest.bit_length() - 1] += commits
                mask ^= lowest
        return counts


def judge(graph: CommitGraph, rule_set: RuleSet, as_of: datetime, zone: tzinfo) -> Judged:
    """All verdicts of a rule set at a moment (aware), with the server in ``zone``."""
    rules = rule_set.rules
    return Judged(
        rule_set,
        server_verdict(graph, rules, as_of, zone),
        documented_verdict(graph, rules, as_of, zone),
        branch_sets(graph, rules, as_of, zone),
        kept_by_dangling(graph, rules, as_of, zone),
    )


def kept_by_dangling(graph: CommitGraph, rules: GcRules, as_of: datetime, zone: tzinfo) -> bytearray:
    """Per commit number, 1 when the documented walk from some dangling commit keeps it (retention.md: default
    days; a dangling start is treated as having a child of its own date)."""
    limit = limit_us(as_of, rules.default_retention_days, zone)
    below, kept = bytearray(len(graph)), bytearray(len(graph))
    for start in graph.dangling:
        below[start] = 1
        kept[start] = graph.creation_us[start] > limit
    for commit in graph.order:
        parent = graph.main_parent[commit]
        if below[commit] and parent >= 0:
            below[parent] = 1
            if graph.creation_us[commit] > limit:
                kept[parent] = 1
    return kept
