"""Which value of a setting is stricter, and how two values combine, for every setting of a tree.

A value is stricter when less is deleted, later, or with more inspection. ``plan --base`` lists what a change
weakens and is judged by the stricter of both trees; ``apply --sweep`` sweeps by it. ``sweep run`` keeps to
the stricter of the approval's and today's settings, ``branches run`` to that of a reviewed plan and today's.
Blocks of settings declare their rules with
their fields (``values/declare``); the rest is listed here. A setting of the schemas without a rule fails a
test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from itertools import chain
from typing import Any, Literal, TypeVar

from lakeplan.values.declare import (
    ALL_OF_BOTH,
    LESS,
    POLICY,
    UNLIMITED,
    Rule,
    Setting,
    SinceMark,
    least,
    neutral,
    unordered,
)
from lakeplan.values.desired import (
    BOUNDS,
    SAFETY,
    DesiredRepository,
    GcDesired,
    Override,
    Safety,
    ServerConfig,
    Source,
)
from lakeplan.values.notify import NotifyConfig
from lakeplan.values.pins import PINS
from lakeplan.values.plan import Loosening, Plan, SweepGuard
from lakeplan.values.settings import LIFECYCLE, LifecycleSettings, duration_text
from lakeplan.values.sweep import SWEEP, Hold, SweepSettings

Block = TypeVar("Block")


def all_holds(*several: Iterable[Hold]) -> tuple[Hold, ...]:
    """Every hold of any of them; of two on the same thing the one that ends later."""
    found: dict[tuple[str, str], Hold] = {}
    for hold in (hold for holds in several for hold in holds):
        known = found.get((hold.kind, hold.name))
        if known is None or ends(hold) > ends(known):
            found[hold.kind, hold.name] = hold
    return tuple(found.values())


def ends(hold: Hold) -> date:
    """The last day of a hold; the last day there is where it has no end."""
    return hold.until if hold.until is not None else date.max


_REVIEWED_FIRST = (LESS, POLICY, ALL_OF_BOTH)
SAFETY_REVIEWED = tuple(sorted(SAFETY, key=lambda setting: _REVIEWED_FIRST.index(setting.rule)))
"""In the order in which a review lists them: limits, what gates do, lists."""
TREE = (
    *BOUNDS,
    Setting("unmanaged", "unmanaged", POLICY),
    Setting("checks", "checks", ALL_OF_BOTH),
    Setting(
        "manages",
        "manages",
        unordered("other repositories are neither managed nor reported; what is left out loses its holds"),
    ),
    Setting(
        "state.url",
        "state_url",
        unordered(
            "the state knows which repositories were applied before; others that globs name are a gate"
        ),
    ),
    Setting(
        "notify",
        "notify",
        Rule(
            lambda then, now: now if then is None else then,
            why="other people would get the notice before branches are deleted",
        ),
    ),
    Setting("approvers", "approvers", unordered("other people could approve marks by a comment")),
)
SERVER = (
    Setting(
        "servers.branch_lifecycle.engine",
        "branch_lifecycle_engine",
        unordered("each engine deletes branches by rules of its own"),
    ),
    Setting(
        "servers.time_zone",
        "time_zone",
        unordered("retention days end at another hour, so that other commits may expire"),
    ),
)
_SAME_HOLD = "identifies the hold; one that is missing at the head is listed as dropped"
_DAYS = Rule(max, why="a plan simulates a change; a sweep keeps what the server's or the tree's days keep")
_NAMES = "names what the days are for; a plan expands and simulates it"
_PINS = "a plan lists every pin that is no longer required and what only it protects, and gates judge it"
_SIMULATED = "a plan shows every change and what it deletes, and gates judge it"
_ENTRIES = "decides which settings an entry gets; the resolved settings are compared"
_POLICY = ("id", "patterns", "max_age", "max_idle_age", "max_inactivity_time", "description", "remove")
_POLICY_KEYS = ("file", "policies", *(f"policies.{key}" for key in _POLICY))
_ELSEWHERE = {
    "holds.prefix": neutral(_SAME_HOLD),
    "holds.branch": neutral(_SAME_HOLD),
    "holds.tag": neutral(_SAME_HOLD),
    "holds.commit": neutral(_SAME_HOLD),
    "holds.until": Rule(max, why="of two holds on the same thing the one that ends later (all_holds)"),
    "holds.reason": neutral("people read it; nothing is decided by it"),
    "holds.remove": neutral("drops an inherited hold, which is listed as dropped"),
    "gc.default_retention_days": _DAYS,
    "gc.branches": neutral(_NAMES),
    "gc.branches.branch_id": neutral(_NAMES),
    "gc.branches.pattern": neutral(_NAMES),
    "gc.branches.retention_days": _DAYS,
    "gc.branches.min_commits": neutral(_PINS),
    "gc.branches.keep": neutral(_PINS),
    "gc.branches.keep.daily": neutral(_PINS),
    "gc.branches.keep.weekly": neutral(_PINS),
    "gc.branches.keep.monthly": neutral(_PINS),
    "gc.branches.remove": neutral("drops inherited days; a plan simulates the days that are left"),
    "gc.file": neutral("the rules in the file are compared like those in the tree"),
    **{f"branch_lifecycle.{key}": neutral(_SIMULATED) for key in _POLICY_KEYS},
    "object_lifecycle": neutral(_SIMULATED),
    "overrides": neutral("new or wider ones are listed one by one (loosening._opened)"),
    "servers": neutral("servers are paired by their endpoints; one that is lost is listed (base_pairs)"),
    "servers.endpoint_url": neutral("pairs the servers of both trees (base_pairs)"),
    "servers.branch_lifecycle": neutral("its settings have entries of their own"),
    "servers.branch_lifecycle.schedule": neutral(
        "forecasts when the server's own job runs; nothing is decided by it"
    ),
    "servers.cost_per_gb_month": neutral("figures for people; nothing is decided by it"),
    "servers.storages": neutral("where storage is read; a sweep checks that it is the repository's"),
    "defaults": neutral(_ENTRIES),
    "profiles": neutral(_ENTRIES),
    "include": neutral(_ENTRIES),
    "repositories": neutral(_ENTRIES),
    "server": neutral(_ENTRIES),
    "use": neutral(_ENTRIES),
    "owner": neutral("selects repositories for a command; nothing is decided by it"),
    "name": neutral("a repository that another name has claimed is refused (lakeplan.review.claims)"),
    "simulation": neutral("both runners give the same answers; nothing is decided by it"),
    "apiVersion": neutral("there is one version"),
}
JUDGED_ELSEWHERE = tuple(Setting(path, "", rule) for path, rule in _ELSEWHERE.items())


def stricter(table: Iterable[Setting], then: Block, now: Block) -> Block:
    """``now``, with the stricter of both values in every setting of the table."""
    values = {s.field: s.rule.combine(getattr(then, s.field), getattr(now, s.field)) for s in table}
    return replace(now, **values)  # type: ignore[type-var]  # a block is a dataclass


def weakened(table: Iterable[Setting], before: Block, after: Block) -> Iterator[tuple[Setting, Any, Any]]:
    """Every setting that ``after`` has weaker than ``before``, with both values."""
    for setting in table:
        old, new = getattr(before, setting.field), getattr(after, setting.field)
        if setting.rule.weakens(old, new):
            yield setting, old, new


def stricter_safety(then: Safety, now: Safety) -> Safety:
    return stricter(SAFETY_REVIEWED, then, now)


def stricter_sweep(then: SweepSettings, now: SweepSettings) -> SweepSettings:
    return stricter(SWEEP, then, now)


def stricter_lifecycle(then: LifecycleSettings, now: LifecycleSettings) -> LifecycleSettings:
    return stricter(LIFECYCLE, then, now)


def since_mark(
    marked: SweepSettings, tree_then: SweepSettings, tree_now: SweepSettings
) -> tuple[SweepSettings, tuple[Setting, ...]]:
    """The settings that a sweep of a mark keeps to, and those because of which the mark cannot be swept.
    ``marked``: what the mark was made with, which a person's options may have changed; what the tree has
    not tightened since stays as they chose it. Limits are today's: gates judge the mark by them."""
    settings, refused = marked, []
    for setting in SWEEP:
        name, rule = setting.field, setting.rule
        then, now, used = (getattr(block, name) for block in (tree_then, tree_now, marked))
        if not rule.knows_stricter or setting.since_mark is SinceMark.GATE:
            settings = replace(settings, **{name: now})
            continue
        changed = setting.since_mark is SinceMark.ANY_CHANGE and now != used
        if not changed and not (rule.weakens(now, then) and rule.weakens(now, used)):
            continue
        if setting.since_mark in (SinceMark.NEW_MARK, SinceMark.ANY_CHANGE):
            refused.append(setting)
        else:
            settings = replace(settings, **{name: rule.combine(used, now)})
    return settings, tuple(refused)


Policy = Literal["ignore", "warn", "fail"]
WHOLE_TREE = "tree"
ABSENT = "not there"


@dataclass(frozen=True)
class Guards:
    """What of a tree decides how much a plan may do. Days are inclusive; ``places`` maps a path such as
    ``safety.max_expired_bytes`` to where it is."""

    safety: Safety = field(default_factory=Safety)
    min_retention_days: int = 1
    max_retention_days: int = 36500
    unmanaged: Policy = "warn"
    checks: tuple[str, ...] = ()
    """As people read them."""
    manages: str = "every repository"
    """As people read it."""
    state_url: str | None = None
    notify: NotifyConfig | None = None
    approvers: str | None = None
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
    """Every retention outside ``low`` to ``high`` days: where it is, its name, its days."""
    if not isinstance(desired.gc, GcDesired):
        return
    if not low <= desired.gc.default_retention_days <= high:
        yield desired.gc.source, "gc.default_retention_days", desired.gc.default_retention_days
    for rule in desired.gc.branches:
        if not low <= rule.retention_days <= high:
            yield rule.source, f"gc.branches[{rule.name}].retention_days", rule.retention_days


def loosened(base: Guards, head: Guards, today: date) -> tuple[Loosening, ...]:
    """Everything of the tree as a whole that ``head`` weakens, in fixed order."""
    found = chain(weakened(SAFETY_REVIEWED, base.safety, head.safety), weakened(TREE, base, head))
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
    ``branch_lifecycle`` that are weaker. ``head`` is None when no entry names the repository any more."""
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
        weakened(SWEEP, base.sweep, head.sweep),
        weakened(LIFECYCLE, base.lifecycle_settings, head.lifecycle_settings),
        weakened(PINS, base.pins, head.pins),
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


_NOT_SET = {"state.url": "the default", "notify": ABSENT, "approvers": "no team"}


def _figure(setting: Setting, value: Any) -> str:
    if value is None:
        return _NOT_SET.get(setting.path, UNLIMITED)
    if setting.unit == "seconds":
        return duration_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:,}{ {'percent': ' %', 'bytes': ' bytes'}.get(setting.unit, '') }"
    return str(value.value if isinstance(value, Enum) else value)


def _place(head: Guards, path: str) -> str:
    """Where the value is; where it was left out, its block; without one, nothing."""
    found = head.places.get(path) or head.places.get(path.partition(".")[0])
    return str(found) if found else ""
