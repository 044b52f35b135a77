"""What a simulation counts, and which runner reads the ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict


class RunnerChoiceRow(TypedDict):
    name: str
    reason: str


@dataclass(frozen=True)
class RunnerChoice:
    """``name`` and the reason, for documents and logs."""

    name: str
    reason: str

    def to_row(self) -> RunnerChoiceRow:
        return {"name": self.name, "reason": self.reason}


MAX_VERDICT_BITS = 62
"""Masks travel as a signed 64-bit column."""


@dataclass(frozen=True)
class Transition:
    """An object expires when any ``before`` bit is set in its mask and no ``after`` bit is."""

    before: int
    after: int

    def expires(self, mask: int) -> bool:
        return bool(mask & self.before) and not mask & self.after


class AmountRow(TypedDict):
    objects: int
    size_bytes: int


@dataclass(frozen=True)
class Amount:
    """Distinct objects (by address inside the namespace) and their bytes."""

    objects: int = 0
    size_bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.objects + other.objects, self.size_bytes + other.size_bytes)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.objects - other.objects, self.size_bytes - other.size_bytes)

    def to_row(self) -> AmountRow:
        return {"objects": self.objects, "size_bytes": self.size_bytes}

    @classmethod
    def from_row(cls, row: AmountRow) -> Amount:
        return cls(row["objects"], row["size_bytes"])


def total_of(amounts: Iterable[Amount]) -> Amount:
    return sum(amounts, Amount())


@dataclass(frozen=True)
class PrefixAmount:
    """``prefix`` ends in ``/``, or is "" at depth 0 (everything)."""

    prefix: str
    depth: int
    amount: Amount


class _ByMask:
    """Objects by their mask."""

    by_mask: Mapping[int, Amount]

    def amount(self, transition: Transition) -> Amount:
        """What expires in a transition."""
        return total_of(amount for mask, amount in self.by_mask.items() if transition.expires(mask))

    def kept(self, bits: int) -> Amount:
        """What at least one of ``bits`` keeps, among what was read."""
        return total_of(amount for mask, amount in self.by_mask.items() if mask & bits)


@dataclass(frozen=True)
class StoredAmounts(_ByMask):
    """Which of the objects an S3 inventory has: ``by_mask`` as in ``ImpactResult``. ``created``: its date
    (ISO 8601). ``problem``: why it was not used, as a sentence; the rest is empty then."""

    created: str = ""
    by_mask: Mapping[int, Amount] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class ImpactResult(_ByMask):
    """``by_mask``: objects of the namespace by their mask, over every range that was read.

    When no range can change sides in any transition nothing is read: ``by_mask`` is then empty and
    ``ranges_read`` 0, and all transitions are zero. ``prefixes`` holds at most the 1,000 largest rows.
    Figures come from metadata alone, so they say *at most*: what is no longer stored cannot go. ``shown`` are
    records of the objects that were to be named (``lakeplan.values.plan_parts``); None: there are too many.
    ``runner``: who read; None where nothing was read. ``stored``: which of the objects are stored; it lowers
    none of the other figures.
    """

    by_mask: Mapping[int, Amount]
    prefixes: tuple[PrefixAmount, ...] = ()
    tags: Mapping[str, Amount] = field(default_factory=dict)
    ranges_read: int = 0
    entries_read: int = 0
    shown: bytes | None = b""
    runner: RunnerChoice | None = None
    stored: StoredAmounts | None = None
