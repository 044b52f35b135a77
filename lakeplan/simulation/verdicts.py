"""The rule sets of a run, the bits of their verdicts, and totals of objects by those bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from enum import IntFlag

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import BranchSets, branch_sets
from lakeplan.retention.rules import DocumentedVerdict, documented_verdict, limit_us, server_verdict
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Amount

RULES, COMPARE = "rules", "compare"


@dataclass(frozen=True)
class RuleSet:
    """``name`` is the value of the ``rule_set`` column."""

    name: str
    rules: GcRules


@dataclass(frozen=True)
class RuleSetBits:
    """The bits of a rule set: ``server`` if the server's walk keeps a commit, ``documented`` if the rule."""

    name: str
    server: int
    documented: int


def bits_of(rule_sets: tuple[RuleSet, ...]) -> tuple[RuleSetBits, ...]:
    return tuple(RuleSetBits(r.name, 1 << 2 * n, 2 << 2 * n) for n, r in enumerate(rule_sets))


@dataclass(frozen=True)
class Judged:
    """The verdicts of one rule set on a history. Flags are per commit number. ``dangling`` is 1 where a walk
    from a dangling commit keeps a commit under the documented rule."""

    rule_set: RuleSet
    server: bytearray
    documented: DocumentedVerdict
    branches: BranchSets
    dangling: bytearray

    def holders(self, commit: int) -> int:
        """Return the holders of each commit under the documented rule as bits: one for each branch, and one
        for all dangling commits."""
        mask = self.branches.masks[self.branches.of_commit[commit]]
        return mask | self.dangling[commit] << len(self.branches.names)

    def mask(self, commit: int, bits: RuleSetBits) -> int:
        return (bits.server if self.server[commit] else 0) | (
            bits.documented if self.documented.active[commit] else 0
        )

    @property
    def commits_at_risk(self) -> int:
        """The number of commits that expire on the server although the documented rule keeps them."""
        return sum(
            kept and not active for kept, active in zip(self.documented.active, self.server, strict=True)
        )

    def commits_of_branches(self) -> list[int]:
        """The number of commits that each branch keeps, in the order of ``branches.names``."""
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
    """All verdicts of a rule set at ``as_of`` (aware), with the server in ``zone``."""
    rules = rule_set.rules
    return Judged(
        rule_set,
        server_verdict(graph, rules, as_of, zone),
        documented_verdict(graph, rules, as_of, zone),
        branch_sets(graph, rules, as_of, zone),
        kept_by_dangling(graph, rules, as_of, zone),
    )


def kept_by_dangling(graph: CommitGraph, rules: GcRules, as_of: datetime, zone: tzinfo) -> bytearray:
    """For each commit number, 1 if the documented walk from a dangling commit keeps it. These walks have the
    default days, and a dangling commit counts as having a child of the same date (lakefs/retention.md)."""
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


class Sighting(IntFlag):
    """Where an address was seen."""

    ENTRY = 1
    """A commit of the dump holds it by an address that is relative, or full and inside the namespace."""
    ALIAS = 2
    """A commit of any repository has an address that may refer to it: in an unusual spelling, or with the
    same tail at another URL."""
    CANDIDATE = 4
    """An entry has it under a key that a collector may delete: under ``data/`` or directly at the root."""
    LISTED = 8
    """Stored under a key that a collector may delete."""
    OLD = 16
    """Stored, and older than the minimum age."""
    UNCOMMITTED = 32
    """In the newest run of uncommitted addresses."""
    HELD = 128
    """A commit holds it at a path under a prefix that a hold names."""
    FOREIGN = 256
    """A commit of another repository holds it, by its full address."""
    MARKED = 512
    """A mark that is being swept names it."""
    RESIZED = 1024
    """Stored in another size than a kept commit's entry says. Noted only where sizes are compared."""
    OUTSIDE = 2048
    """A full address outside the namespace. Noted only on request."""


NOTHING = Amount()


@dataclass(frozen=True)
class ObjectClass:
    """The ``amount`` of objects with the same sightings, verdicts and holders. ``holders`` number holder
    sets."""

    flags: Sighting
    mask: int
    alias_mask: int
    holders: tuple[int, ...]
    amount: Amount

    @property
    def any_mask(self) -> int:
        return self.mask | self.alias_mask

    def is_candidate(self, listing: bool) -> bool:
        wanted = Sighting.OLD if listing else Sighting.ENTRY | Sighting.CANDIDATE
        return self.flags & wanted == wanted

    def counts(self, listing: bool) -> bool:
        return bool(self.flags & (Sighting.LISTED if listing else Sighting.ENTRY))

    @property
    def is_committed(self) -> bool:
        return bool(self.flags & (Sighting.ENTRY | Sighting.ALIAS))


@dataclass(frozen=True)
class Totals:
    """The figures of one rule set. Every object that counts is in exactly one of ``expired``,
    ``never_committed``, ``kept_by_commits``, ``kept_uncommitted``, ``kept_young`` and ``kept_elsewhere`` (no
    collector lists such a key)."""

    expired: Amount = NOTHING
    never_committed: Amount = NOTHING
    at_risk: Amount = NOTHING
    kept_by_commits: Amount = NOTHING
    kept_uncommitted: Amount = NOTHING
    kept_young: Amount = NOTHING
    kept_elsewhere: Amount = NOTHING
    protected_by_alias: Amount = NOTHING
    missing: Amount = NOTHING

    @property
    def goes(self) -> Amount:
        return self.expired + self.never_committed

    @property
    def kept(self) -> Amount:
        return self.kept_by_commits + self.kept_uncommitted + self.kept_young + self.kept_elsewhere


def totals_of(classes: Iterable[ObjectClass], bits: RuleSetBits, *, listing: bool) -> Totals:
    """The figures of one rule set. ``missing``: objects that kept commits hold and storage lacks."""
    amounts: dict[str, Amount] = {}
    for each in classes:
        for figure in _figures(each, bits, listing=listing):
            amounts[figure] = amounts.get(figure, NOTHING) + each.amount
    return Totals(**amounts)


def _figures(each: ObjectClass, bits: RuleSetBits, *, listing: bool) -> Iterator[str]:
    """The fields of ``Totals`` that count a class."""
    if not each.counts(listing):
        if listing and each.mask & bits.server and each.flags & Sighting.CANDIDATE:
            yield "missing"
    elif each.any_mask & bits.server:
        yield "kept_by_commits"
        if not each.mask & bits.server:
            yield "protected_by_alias"
    elif each.flags & Sighting.UNCOMMITTED:
        yield "kept_uncommitted"
    elif not each.is_candidate(listing):
        yield "kept_young" if listing else "kept_elsewhere"
    else:
        yield "expired" if each.is_committed else "never_committed"
        if each.any_mask & bits.documented:
            yield "at_risk"


@dataclass(frozen=True)
class BranchTotals:
    """The objects that each branch holds, and those that it alone holds, in the order of branches."""

    objects: list[int] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)
    exclusive_objects: list[int] = field(default_factory=list)
    exclusive_bytes: list[int] = field(default_factory=list)
