"""Where an address was seen, as bits, and objects and bytes by class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntFlag

from lakeplan.simulation.verdicts import RuleSetBits
from lakeplan.values.simulation import Amount


class Seen(IntFlag):
    ENTRY = 1
    """A commit of the dump holds it: its entry is relative, or full and inside the namespace."""
    ALIAS = 2
    """A commit, of any repository, has an address that may mean it: in an unusual spelling, or with the same
    tail at another URL."""
    CANDIDATE = 4
    """An entry whose key may be garbage at all: under ``data/`` or directly at the root."""
    LISTED = 8
    """Stored, under a key that may be garbage."""
    OLD = 16
    """Stored, and older than the minimum age."""
    UNCOMMITTED = 32
    """In the newest run of uncommitted addresses."""
    ERROR = 64
    """No address: ``path`` says what could not be read."""
    HELD = 128
    """A commit holds it at a path under a prefix that a hold names."""
    FOREIGN = 256
    """A commit of another repository holds it, by its full address."""
    MARKED = 512
    """A mark that is being swept names it."""


NOTHING = Amount()


@dataclass(frozen=True)
class ObjectClass:
    """``amount``: how many objects, and their bytes. ``holders``: numbers of holder sets."""

    seen: Seen
    mask: int
    alias_mask: int
    holders: tuple[int, ...]
    amount: Amount

    @property
    def any_mask(self) -> int:
        return self.mask | self.alias_mask

    def is_candidate(self, listing: bool) -> bool:
        wanted = Seen.OLD if listing else Seen.ENTRY | Seen.CANDIDATE
        return self.seen & wanted == wanted

    def counts(self, listing: bool) -> bool:
        return bool(self.seen & (Seen.LISTED if listing else Seen.ENTRY))

    @property
    def is_committed(self) -> bool:
        return bool(self.seen & (Seen.ENTRY | Seen.ALIAS))


@dataclass
class Totals:
    """Of one rule set. Everything that counts is in exactly one of: ``expired``, ``never_committed``,
    ``kept_by_commits``, ``kept_uncommitted``, ``kept_young``, ``kept_elsewhere`` (no collector lists
    such a key)."""

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
    """The figures of one rule set. ``missing``: a kept commit holds it, and it is not stored."""
    totals = Totals()
    for each in classes:
        kept = bool(each.any_mask & bits.server)
        if listing and not each.counts(listing):
            if each.mask & bits.server and each.seen & Seen.CANDIDATE:
                totals.missing += each.amount
            continue
        if not each.counts(listing):
            continue
        if kept:
            totals.kept_by_commits += each.amount
            if not each.mask & bits.server:
                totals.protected_by_alias += each.amount
        elif each.seen & Seen.UNCOMMITTED:
            totals.kept_uncommitted += each.amount
        elif not each.is_candidate(listing):
            if listing:
                totals.kept_young += each.amount
            else:
                totals.kept_elsewhere += each.amount
        else:
            if each.is_committed:
                totals.expired += each.amount
            else:
                totals.never_committed += each.amount
            if each.any_mask & bits.documented:
                totals.at_risk += each.amount
    return totals


@dataclass(frozen=True)
class BranchTotals:
    """In the order of the branches: what each holds, and what it alone holds."""

    objects: list[int] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)
    exclusive_objects: list[int] = field(default_factory=list)
    exclusive_bytes: list[int] = field(default_factory=list)
