"""The results of simulations, marks and sweeps, and the runner that reads the ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypedDict


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


class MarkClass(str, Enum):
    """The reason why an object is in a mark. ``deleted_classes`` returns those that a sweep may delete."""

    BACKLOG = "backlog"
    """Already expired under the rules before their last change."""
    NEWLY_EXPIRED = "newly_expired"
    """Expired because of the last rule change that lakeplan recorded."""
    NEVER_COMMITTED = "never_committed"
    """In no commit, and not an uncommitted change when the mark was made."""
    AT_RISK = "at_risk"
    """The server would delete it, but the documented rule keeps it. Kept."""
    PROTECTED = "protected"
    """A protected tag, a hold, or another repository's address keeps it. Kept."""
    UNCERTAIN_ADDRESS = "uncertain_address"
    """A full address that is spelled unusually, or whose location is unknown, may refer to it. Kept."""
    NEAR_LIMIT = "near_limit"
    """Its last commit is within ``margin`` of its cutoff, or only the freshly expanded rules keep it.
    Kept."""


MarkStage = Literal["marked", "approved", "begun"]
"""``begun``: objects may have been deleted."""


EXPIRED_CLASSES = (MarkClass.BACKLOG, MarkClass.NEWLY_EXPIRED)


def deleted_classes(never_committed: Literal["keep", "collect"]) -> tuple[MarkClass, ...]:
    """Return the classes that a sweep with this ``never_committed`` may delete."""
    return EXPIRED_CLASSES if never_committed == "keep" else (*EXPIRED_CLASSES, MarkClass.NEVER_COMMITTED)


class PartRow(TypedDict):
    name: str
    rows: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Part:
    """A Parquet file of a mark. ``sha256`` is of the file, and a part that does not match is never used."""

    name: str
    rows: int
    size_bytes: int
    """The size of the objects that it lists."""
    sha256: str


@dataclass(frozen=True)
class Marked:
    """The result of a mark: parts that list what may be deleted (``going``) and what is kept, amounts by
    class, and the runner."""

    going: tuple[Part, ...]
    kept: tuple[Part, ...]
    amounts: Mapping[MarkClass, Amount]
    runner: RunnerChoice | None = None

    def amount(self, *classes: MarkClass) -> Amount:
        return total_of(self.amounts.get(each, Amount()) for each in classes)


class Status(str, Enum):
    """The result of a sweep for one marked object."""

    DELETED = "deleted"
    FAILED = "failed"
    SAVED = "saved"


Outcome = Literal["deleted", "failed", "saved", "pending"]
"""A ``Status``, or ``pending`` for objects without one."""


@dataclass(frozen=True)
class PartResult:
    """The result of a sweep for the objects of one part, by status, with bytes as listed at the mark.
    ``reasons`` counts objects by why they failed or were saved. ``verified`` counts objects that were
    requested again and no longer existed."""

    name: str
    amounts: Mapping[Status, Amount]
    reasons: Mapping[str, int] = field(default_factory=dict)
    verified: int = 0


@dataclass(frozen=True)
class UncommittedRun:
    """A run of uncommitted addresses. ``location`` is the URL of its folder; "" for an answer that lists
    nothing, which covers branches and paths from ``first`` on, before ``end`` (None: all)."""

    run_id: str
    location: str
    first: tuple[str, str] = ("", "")
    end: tuple[str, str] | None = None

    def covers(self, branch: str, path: str) -> bool:
        return self.first <= (branch, path) and (self.end is None or (branch, path) < self.end)
