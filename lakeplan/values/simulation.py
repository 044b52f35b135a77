"""The results of a simulation, and the runner that reads the ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict


class RunnerChoiceRow(TypedDict):
    name: str
    reason: str


@dataclass(frozen=True)
class RunnerChoice:
    """The runner that was chosen and why, for documents and logs."""

    name: str
    reason: str

    def to_row(self) -> RunnerChoiceRow:
        return {"name": self.name, "reason": self.reason}


MAX_VERDICT_BITS = 62
"""Masks are stored in a signed 64-bit column."""


@dataclass(frozen=True)
class Transition:
    """A change by which an object expires if its mask has a ``before`` bit and no ``after`` bit, or if it
    expires in one of the ``others``."""

    before: int
    after: int
    others: tuple[Transition, ...] = ()

    def expires(self, mask: int) -> bool:
        alone = bool(mask & self.before) and not mask & self.after
        return alone or any(other.expires(mask) for other in self.others)

    @property
    def bits(self) -> tuple[tuple[int, int], ...]:
        """The ``before`` and ``after`` bits of this transition and of the others."""
        return ((self.before, self.after), *(pair for other in self.others for pair in other.bits))


class AmountRow(TypedDict):
    objects: int
    size_bytes: int


@dataclass(frozen=True)
class Amount:
    """A number of distinct objects (by address inside the namespace) and their bytes."""

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


def total_row(rows: Iterable[AmountRow]) -> AmountRow:
    """Return the sum of amounts in documents. Their other keys are ignored."""
    return total_of(map(Amount.from_row, rows)).to_row()


@dataclass(frozen=True)
class PrefixAmount:
    """The amount below a prefix, which ends in ``/`` or is "" at depth 0 (everything)."""

    prefix: str
    depth: int
    amount: Amount


class _ByMask:
    """Amounts of objects by their mask."""

    by_mask: Mapping[int, Amount]

    def amount(self, transition: Transition) -> Amount:
        """Return the amount that expires in a transition."""
        return total_of(amount for mask, amount in self.by_mask.items() if transition.expires(mask))


@dataclass(frozen=True)
class StoredAmounts(_ByMask):
    """The objects of a result that an S3 inventory lists, by mask as in ``ImpactResult``. ``created`` is the
    date of the inventory (ISO 8601). If it was not used, ``problem`` says why, and the rest is empty."""

    created: str = ""
    by_mask: Mapping[int, Amount] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class ImpactResult(_ByMask):
    """The objects of a namespace by their mask, from every range that was read.

    Nothing is read if no object can expire in any transition: ``by_mask`` is then empty, ``ranges_read`` is
    0, and all transitions are zero. ``prefixes`` has at most the 1,000 largest rows. Figures are upper
    bounds: they come from metadata, which also names objects that are no longer stored. ``shown`` are the
    records of the objects that were requested by name (``plan.Shown``), or None if there are
    too many. ``runner`` is None if nothing was read. ``stored`` does not reduce the other figures.
    """

    by_mask: Mapping[int, Amount]
    prefixes: tuple[PrefixAmount, ...] = ()
    tags: Mapping[str, Amount] = field(default_factory=dict)
    ranges_read: int = 0
    entries_read: int = 0
    shown: bytes | None = b""
    runner: RunnerChoice | None = None
    stored: StoredAmounts | None = None
