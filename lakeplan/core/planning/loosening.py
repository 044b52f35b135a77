"""What a tree weakens against its base (``lakeplan.core.strictness``), and what of it guards an apply and a
sweep: a change that is under review must not override its own gate unseen.

Overrides are reviewed: they count, and those that are new against the base are listed with everything else
that is weaker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from itertools import chain
from typing import Any, Literal

from lakeplan.core.settings.difference import duration_text
from lakeplan.core.strictness import (
    LIFECYCLE,
    SAFETY,
    SERVER,
    SWEEP,
    TREE,
    Setting,
    all_holds,
    ends,
    least,
    stricter_safety,
    stricter_sweep,
    weakened,
)
from lakeplan.model.desired import DesiredRepository, GcDesired, Override, Safety, ServerConfig, Source
from lakeplan.model.plan import Loosening, Plan, SweepGuard
from lakeplan.model.sweep import Hold

Policy = Literal["ignore", "warn", "fail"]
WHOLE_TREE = "tree"
UNLIMITED = "unlimited"
ABSENT = "not there"


@dataclass(frozen=True)
class Guards:
    """What of a tree decides how much a plan may do. Days are inclusive; ``places`` maps a path such as
    ``safety.max_expired_bytes`` to where it stands."""

    safety: Safety = field(default_factory=Safety)
    min_retention_days: int = 1
    max_retention_days: int = 36500
    unmanaged: Policy = "warn"
    state_url: str | None = None
    overrides: tuple[Override, ...] = ()
    places: Mapping[str, Source] = field(default_factory=dict)


def held_to(plan: Plan, safety: Safety) -> Safety:
    """A tree's limits, but for an apply of ``plan`` no looser than those it was reviewed with."""
    return replace(
        safety,
        impact_tolerance_percent=least(plan.impact_tolerance_percent, safety.impact_tolerance_percent),
        max_plan_age_seconds=least(plan.max_plan_age_seconds, safety.max_plan_age_seconds),
    )


def outside_bounds(desired: DesiredRepository, low: int, high: int) -> Iterator[tuple[Source, str, int]]:
    """Every retention outside ``low`` to ``high`` days: where it stands, its name, its days."""
    if not isinstance(desired.gc, GcDesired):
        return
    if not low <= desired.gc.default_retention_days <= high:
        yield desired.gc.source, "gc.default_retention_days", desired.gc.default_retention_days
    for rule in desired.gc.branches:
        if not low <= rule.retention_days <= high:
            yield rule.source, f"gc.branches[{rule.name}].retention_days", rule.retention_days


def loosened(base: Guards, head: Guards, today: date) -> tuple[Loosening, ...]:
    """Everything of the tree as a whole that ``head`` weakens, in fixed order."""
    found = chain(weakened(SAFETY, base.safety, head.safety), weakened(TREE, base, head))
    return tuple(
        Loosening(WHOLE_TREE, setting.path, *_shown(setting, before, after), _place(head, setting.path))
        for setting, before, after in found
    ) + tuple(_opened(base, head, today))


def _opened(base: Guards, head: Guards, today: date) -> Iterator[Loosening]:
    """Overrides that allow more than the base's do. One that expired allows nothing."""
    for note in head.overrides:
        if note.expires < today:
            continue
        same = [n for n in base.overrides if (n.repository, n.gate) == (note.repository, note.gate)]
        if any(_covers(old, note) for old in same):
            continue
        before = "; ".join(_opening(old) for old in same) or ABSENT
        path = f"overrides: {note.gate} of {note.repository}"
        yield Loosening(WHOLE_TREE, path, before, f"{_opening(note)}: {note.reason}", str(note.source))


def _covers(old: Override, new: Override) -> bool:
    enough = old.max is None or (new.max is not None and new.max <= old.max)
    return enough and new.expires <= old.expires


def _opening(note: Override) -> str:
    ceiling = "without a ceiling" if note.max is None else f"up to {note.max:,}"
    return f"{ceiling}, until {note.expires}"


def changed_server(base: ServerConfig, head: ServerConfig) -> Iterator[Loosening]:
    """Settings of a server that decide what is deleted there, where they are others than at the base."""
    where = str(head.source) if head.source else ""
    for setting, before, after in weakened(SERVER, base, head):
        path = f"servers.{head.name}.{setting.path.removeprefix('servers.')}"
        yield Loosening(WHOLE_TREE, path, *_shown(setting, before, after), where)


def loosened_repository(
    base: DesiredRepository, head: DesiredRepository | None, today: date
) -> Iterator[Loosening]:
    """Holds that are dropped or end sooner (not those that are over anyway), and settings of ``sweep`` and
    ``lifecycle`` that are weaker. ``head`` is None when no entry names the repository any more."""
    where = str(head.source) if head is not None and head.source else ""
    mine = {(hold.kind, hold.name): hold for hold in all_holds(head.holds if head is not None else ())}
    for hold in all_holds(base.holds):
        now = mine.get((hold.kind, hold.name))
        if hold.holds_on(today) and (now is None or ends(now) < ends(hold)):
            after = ABSENT if now is None else _hold_end(now)
            yield Loosening(base.key, f"holds[{hold.kind} {hold.name}]", _hold_end(hold), after, where)
    if head is None:
        return
    for setting, old, new in chain(
        weakened(SWEEP, base.sweep, head.sweep), weakened(LIFECYCLE, base.lifecycle, head.lifecycle)
    ):
        place = head.values.get("/" + setting.path.replace(".", "/"))
        yield Loosening(base.key, setting.path, *_shown(setting, old, new), str(place) if place else where)


def guard_of(base: DesiredRepository, head: DesiredRepository) -> SweepGuard | None:
    """What a sweep of ``head`` keeps to until its tree is the base itself; None where it is as strict."""
    guard = SweepGuard(
        stricter_safety(base.safety, head.safety),
        all_holds(head.holds, base.holds),
        stricter_sweep(base.sweep, head.sweep),
    )
    alone = SweepGuard(head.safety, all_holds(head.holds), head.sweep)
    return None if guard == alone else guard


def held_to_guard(desired: DesiredRepository, guard: SweepGuard) -> DesiredRepository:
    """The repository, with the stricter of it and the guard where a sweep is concerned."""
    return replace(
        desired,
        safety=stricter_safety(guard.safety, desired.safety),
        holds=all_holds(desired.holds, guard.holds),
        sweep=stricter_sweep(guard.settings, desired.sweep),
    )


def _hold_end(hold: Hold) -> str:
    return f"until {hold.until}" if hold.until is not None else "without an end"


def _shown(setting: Setting, before: Any, after: Any) -> tuple[str, str]:
    """Both values of a setting as messages show them; of lists only what is missing."""
    if isinstance(before, tuple):
        return ", ".join(item for item in before if item not in after), ABSENT
    return _figure(setting, before), _figure(setting, after)


def _figure(setting: Setting, value: Any) -> str:
    if value is None:
        return "the default" if setting.path == "state.url" else UNLIMITED
    if setting.unit == "seconds":
        return duration_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:,}{ {'percent': ' %', 'bytes': ' bytes'}.get(setting.unit, '') }"
    return str(value.value if isinstance(value, Enum) else value)


def _place(head: Guards, path: str) -> str:
    """Where the value stands; where it was left out, its block; without one, nothing."""
    found = head.places.get(path) or head.places.get(path.partition(".")[0])
    return str(found) if found else ""
