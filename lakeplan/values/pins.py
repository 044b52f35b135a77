"""Pins, the hidden branches that protect a commit from every collector: names, settings, parts of a plan."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING

from lakeplan.values.declare import ALL_OF_BOTH, COUNT, FLAG, LESS, ON, TAG_GLOBS, setting, settings_of

if TYPE_CHECKING:
    from lakeplan.values.branches import LiveBranch

PREFIX = "lakeplan-pin-"
DIGITS = 12
"""The number of digits of the commit id in a pin's name."""
MOST_PINS = 1_000
NAME_TAKEN = "another branch or pin has this name"
HOLD = "hold on "
"""The beginning of the text of a reason that is a hold."""
ANY_PIN = PREFIX + "[0-9a-f]" * DIGITS
"""A glob that matches the names of all pins."""
_NAME = re.compile(rf"{PREFIX}[0-9a-f]{{{DIGITS}}}")


def pin_name(commit_id: str) -> str:
    """Return the name of the branch that pins a commit. Pins are never moved."""
    return PREFIX + commit_id[:DIGITS]


def is_pin_name(branch_id: str) -> bool:
    return _NAME.fullmatch(branch_id) is not None


def has_pin_commit(branch_id: str, commit_id: str) -> bool:
    """Return whether a branch has the name of a pin and points to the commit in that name."""
    return branch_id == pin_name(commit_id) and is_pin_name(branch_id)


def may_be_pin(branch: LiveBranch) -> bool:
    """Return whether a branch is hidden, has the name of a pin, and points to the commit in that name."""
    return branch.hidden and has_pin_commit(branch.id, branch.commit_id)


@dataclass(frozen=True)
class Pin:
    """A pinned commit. ``days`` is from the rule of the pin, or None for the default. ``reasons`` say why it
    is pinned, such as ``tag v1``. Recorded pins have only the reasons that are holds."""

    commit_id: str
    days: int | None = None
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return pin_name(self.commit_id)

    @property
    def holds(self) -> tuple[str, ...]:
        """The reasons that are holds. They are recorded, because a hold on a branch or tag no longer names
        the commit after the branch or tag is deleted or moved."""
        return tuple(reason for reason in self.reasons if reason.startswith(HOLD))


@dataclass(frozen=True)
class Kept:
    """The number of newest commits on a branch's main line to keep, like restic's ``forget``: the last
    ``commits``, and the newest commit of each of the last days, weeks and months that have one."""

    branches: str
    commits: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0


@dataclass(frozen=True)
class PinSettings:
    """The ``pins`` block: which commits get a pin when they would otherwise lose data."""

    tags: tuple[str, ...] = setting(
        TAG_GLOBS,
        [],
        stricter=ALL_OF_BOTH,
        help="Glob patterns for tags whose commits are pinned. The patterns are added to inherited ones.",
    )
    holds: bool = setting(FLAG, False, stricter=ON, help="Pin the commits that holds list by id.")
    at_risk: bool = setting(
        FLAG,
        False,
        stricter=ON,
        help="Pin commits that the documented rule keeps but the server would let expire.",
    )
    max: int = setting(
        COUNT,
        MOST_PINS,
        stricter=LESS,
        help="Threshold of the pins gate: the maximum number of pins in one repository.",
    )


PINS = settings_of("pins", PinSettings)


class PinState(str, Enum):
    """``MISSING``: must be created. ``STALE``: exists with a different rule than it needs, or with different
    recorded holds. ``RETIRED``: exists, but nothing requires it. ``KEPT``: exists as required."""

    MISSING = "missing"
    STALE = "stale"
    RETIRED = "retired"
    KEPT = "kept"


@dataclass(frozen=True)
class PinRow:
    """A pin in a plan. ``retention_days`` is from the rule that it needs and ``stored_days`` from the rule
    that it has. None means the default. ``objects`` and ``size_bytes`` count the data that only this pin
    protects, now or within 30 days, or None if it was not read."""

    commit_id: str
    branch_id: str
    state: PinState
    retention_days: int | None = None
    reasons: tuple[str, ...] = ()
    objects: int | None = None
    size_bytes: int | None = None
    stored_days: int | None = None


@dataclass(frozen=True)
class PinsPlan:
    """The pins of one repository, by commit id, as judged at ``as_of``. An apply deletes only those that are
    ``RETIRED``. ``foreign`` lists branches that have the name of a pin but are not in any of these states,
    with the reason. ``blocked`` says why no pin is created or deleted now. ``limit`` is ``pins.max``."""

    as_of: datetime
    pins: tuple[PinRow, ...] = ()
    foreign: tuple[str, ...] = ()
    blocked: str = ""
    limit: int = MOST_PINS

    def of(self, *states: PinState) -> tuple[PinRow, ...]:
        return tuple(row for row in self.pins if row.state in states)

    @property
    def retired(self) -> frozenset[str]:
        """The commits of retired pins."""
        return frozenset(row.commit_id for row in self.of(PinState.RETIRED))

    @property
    def incomplete(self) -> str:
        """Return why pins that the tree requires cannot be created now, or "" if they can."""
        return self.blocked or "; ".join(why for why in self.foreign if why.endswith(NAME_TAKEN))

    @property
    def wanted(self) -> int:
        return sum(row.state is not PinState.RETIRED for row in self.pins)

    @property
    def writes(self) -> bool:
        return not self.blocked and any(row.state is not PinState.KEPT for row in self.pins)
