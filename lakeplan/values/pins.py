"""Pins, hidden branches that keep a commit from every collector: names, settings, what a plan says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from lakeplan.values.branches import LiveBranch
from lakeplan.values.declare import ALL_OF_BOTH, COUNT, FLAG, ON, TAG_GLOBS, neutral, setting, settings_of

PREFIX = "lakeplan-pin-"
DIGITS = 12
"""Of the commit id in a pin's name."""
MOST_PINS = 1_000
NAME_TAKEN = "the name is taken"
HOLD = "hold on "
"""How a reason begins that is a hold."""
ANY_PIN = PREFIX + "[0-9a-f]" * DIGITS
"""The glob of all names of pins."""
_NAME = re.compile(rf"{PREFIX}[0-9a-f]{{{DIGITS}}}")


def pin_name(commit_id: str) -> str:
    """The branch that pins a commit. A pin is never moved, so its name may say where it is."""
    return PREFIX + commit_id[:DIGITS]


def is_pin_name(branch_id: str) -> bool:
    return _NAME.fullmatch(branch_id) is not None


def has_pin_commit(branch_id: str, commit_id: str) -> bool:
    """Whether a branch is at the commit in its name, as pins do."""
    return branch_id == pin_name(commit_id) and is_pin_name(branch_id)


def may_be_pin(branch: LiveBranch) -> bool:
    """Whether a branch is hidden and is at the commit in its name."""
    return branch.hidden and has_pin_commit(branch.id, branch.commit_id)


@dataclass(frozen=True)
class Pin:
    """A pinned commit. ``days`` is its own rule, or None for the default days; ``reasons`` say why,
    such as ``tag v1``. Of a pin on record they are its ``holds`` alone."""

    commit_id: str
    days: int | None = None
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return pin_name(self.commit_id)

    @property
    def holds(self) -> tuple[str, ...]:
        """The reasons that are holds. They are recorded: a hold on a branch or a tag names nothing more once
        somebody deletes or moves it."""
        return tuple(reason for reason in self.reasons if reason.startswith(HOLD))


@dataclass(frozen=True)
class Kept:
    """How many of the newest commits of a branch's main line to keep, as restic's ``forget`` counts them:
    the last ``commits``, and the newest of each of the last days, weeks and months that have any."""

    branches: str
    commits: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0


@dataclass(frozen=True)
class PinSettings:
    """The ``pins`` block: which commits get a pin, once they would otherwise lose data."""

    tags: tuple[str, ...] = setting(
        TAG_GLOBS,
        [],
        stricter=ALL_OF_BOTH,
        help="Pin the commits of tags that these globs match. Inherited globs are kept.",
    )
    holds: bool = setting(FLAG, False, stricter=ON, help="Pin the commits that holds name.")
    at_risk: bool = setting(
        FLAG,
        False,
        stricter=ON,
        help="Pin commits that the documented rule keeps and the server would let expire.",
    )
    max: int = setting(
        COUNT,
        MOST_PINS,
        stricter=neutral("limits what is written, not what is deleted"),
        help="Gate pins: pins of one repository.",
    )


PINS = settings_of("pins", PinSettings)


class PinState(str, Enum):
    """``MISSING``: to be made; ``STALE``: there, with another rule than it needs or other holds on record;
    ``RETIRED``: there, and nothing requires it; ``KEPT``: as it should be."""

    MISSING = "missing"
    STALE = "stale"
    RETIRED = "retired"
    KEPT = "kept"


@dataclass(frozen=True)
class PinRow:
    """One pin. ``retention_days`` is the rule it is to have, ``stored_days`` the one that it has; None: the
    default days. ``objects`` and ``size_bytes``: data that it alone protects, now or within 30 days; None
    where they were not read."""

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
    """The pins of one repository, by commit id. ``retire``: only these may be deleted by an apply.
    ``foreign``: branches that are named like pins and are not this state's, with why. ``blocked``: why no pin
    is made or deleted now. ``limit``: ``pins.max``. ``as_of`` is the moment that they were judged at."""

    as_of: datetime
    pins: tuple[PinRow, ...] = ()
    foreign: tuple[str, ...] = ()
    blocked: str = ""
    limit: int = MOST_PINS

    def of(self, *states: PinState) -> tuple[PinRow, ...]:
        return tuple(row for row in self.pins if row.state in states)

    @property
    def incomplete(self) -> str:
        """Why pins that the tree requires cannot be made now; empty when they can."""
        return self.blocked or "; ".join(why for why in self.foreign if why.endswith(NAME_TAKEN))

    @property
    def wanted(self) -> int:
        return sum(row.state is not PinState.RETIRED for row in self.pins)

    @property
    def writes(self) -> bool:
        return not self.blocked and any(row.state is not PinState.KEPT for row in self.pins)
