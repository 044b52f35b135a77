"""What a tree lets through that its base did not, and the stricter of both: a change that is under review
must not open its own gate unseen.

Limits are judged by the stricter of both trees. Acknowledgements are reviewed openings: they count, and
those that are new against the base are listed with everything else that is looser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal, TypeVar

from lakeplan.model.desired import Acknowledgement, DesiredRepository, GcDesired, Safety, Source
from lakeplan.model.plan import Loosening, Plan

Policy = Literal["ignore", "warn", "fail"]
Number = TypeVar("Number", int, float)
TREE = "tree"
UNLIMITED = "unlimited"
ABSENT = "not there"
POLICIES: tuple[Policy, ...] = ("ignore", "warn", "fail")
"""From the loosest to the strictest."""

_LIMITS = ("max_expired_objects_percent", "max_expired_bytes", "max_deleted_branches")
_TIMES = {"impact_tolerance_percent": "impact_tolerance_percent", "max_plan_age_seconds": "max_plan_age"}
_POLICIES = ("on_tag_loss", "on_server_divergence")


@dataclass(frozen=True)
class Guards:
    """What of a tree decides how much a plan may do. Days are inclusive; ``places`` maps a path such as
    ``safety.max_expired_bytes`` to where it stands."""

    safety: Safety = field(default_factory=Safety)
    min_retention_days: int = 1
    max_retention_days: int = 36500
    unmanaged: Policy = "warn"
    state_url: str | None = None
    acknowledgements: tuple[Acknowledgement, ...] = ()
    places: Mapping[str, Source] = field(default_factory=dict)


def stricter_safety(one: Safety, other: Safety) -> Safety:
    """Of every limit the one that lets less through."""
    return Safety(
        max_expired_objects_percent=least(one.max_expired_objects_percent, other.max_expired_objects_percent),
        max_expired_bytes=least(one.max_expired_bytes, other.max_expired_bytes),
        max_deleted_branches=least(one.max_deleted_branches, other.max_deleted_branches),
        protected_tags=tuple(dict.fromkeys((*one.protected_tags, *other.protected_tags))),
        on_tag_loss=stricter_policy(one.on_tag_loss, other.on_tag_loss),
        on_server_divergence=stricter_policy(one.on_server_divergence, other.on_server_divergence),
        impact_tolerance_percent=min(one.impact_tolerance_percent, other.impact_tolerance_percent),
        max_plan_age_seconds=min(one.max_plan_age_seconds, other.max_plan_age_seconds),
    )


def stricter_policy(one: Policy, other: Policy) -> Policy:
    return max(one, other, key=POLICIES.index)


def held_to(plan: Plan, safety: Safety) -> Safety:
    """A tree's limits, but for an apply of ``plan`` no looser than those it was reviewed with."""
    tolerance = least(plan.impact_tolerance_percent, safety.impact_tolerance_percent)
    age = least(plan.max_plan_age_seconds, safety.max_plan_age_seconds)
    assert tolerance is not None
    assert age is not None
    return replace(safety, impact_tolerance_percent=tolerance, max_plan_age_seconds=age)


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
    """Everything of the tree as a whole that ``head`` lets through and ``base`` does not, in fixed order."""
    return tuple(
        Loosening(TREE, path, before, after, _place(head, path))
        for path, before, after in (*_limits(base, head), *_other(base, head))
    ) + tuple(_opened(base, head, today))


def _limits(base: Guards, head: Guards) -> Iterator[tuple[str, str, str]]:
    for name in _LIMITS:
        before, after = getattr(base.safety, name), getattr(head.safety, name)
        if least(before, after) != after:
            yield f"safety.{name}", _figure(name, before), _figure(name, after)
    for name, key in _TIMES.items():
        before, after = getattr(base.safety, name), getattr(head.safety, name)
        if after > before:
            yield f"safety.{key}", _figure(name, before), _figure(name, after)
    for name in _POLICIES:
        before, after = getattr(base.safety, name), getattr(head.safety, name)
        if POLICIES.index(after) < POLICIES.index(before):
            yield f"safety.{name}", before, after
    gone = [t for t in base.safety.protected_tags if t not in head.safety.protected_tags]
    if gone:
        yield "safety.protected_tags", ", ".join(gone), ABSENT


def _other(base: Guards, head: Guards) -> Iterator[tuple[str, str, str]]:
    if head.min_retention_days < base.min_retention_days:
        yield "bounds.min_retention_days", str(base.min_retention_days), str(head.min_retention_days)
    if head.max_retention_days > base.max_retention_days:
        yield "bounds.max_retention_days", str(base.max_retention_days), str(head.max_retention_days)
    if POLICIES.index(head.unmanaged) < POLICIES.index(base.unmanaged):
        yield "unmanaged", base.unmanaged, head.unmanaged
    if head.state_url != base.state_url:
        # The state says which repositories were applied before: others that a glob names are a gate.
        yield "state.url", base.state_url or "the default", head.state_url or "the default"


def _opened(base: Guards, head: Guards, today: date) -> Iterator[Loosening]:
    """Acknowledgements that open more than the base's do. One that is over opens nothing."""
    for note in head.acknowledgements:
        if note.expires is not None and note.expires < today:
            continue
        same = [n for n in base.acknowledgements if (n.repository, n.gate) == (note.repository, note.gate)]
        if any(_covers(old, note) for old in same):
            continue
        before = "; ".join(_opening(old) for old in same) or ABSENT
        path = f"acknowledge {note.gate} of {note.repository}"
        yield Loosening(TREE, path, before, f"{_opening(note)}: {note.reason}", str(note.source))


def _covers(old: Acknowledgement, new: Acknowledgement) -> bool:
    enough = old.max is None or (new.max is not None and new.max <= old.max)
    long_enough = old.expires is None or (new.expires is not None and new.expires <= old.expires)
    return enough and long_enough


def _opening(note: Acknowledgement) -> str:
    ceiling = "without a ceiling" if note.max is None else f"up to {note.max:,}"
    return f"{ceiling}, {'without an end' if note.expires is None else f'until {note.expires}'}"


SWEEP_DEFAULTS: Mapping[str, Any] = {
    "automatic": False,
    "min_age": "24h",
    "settle": "24h",
    "margin": "26h",
    "max_objects": 10_000_000,
    "max_bytes": "50TB",
    "rate": None,
    "never_committed": "keep",
    "versions": "marker",
    "verify": "sample",
    "mode": "delete",
    "engine": "builtin",
}
"""The design's defaults of ``sweep``."""
_WORDS: Mapping[str, tuple[str, str]] = {
    "never_committed": ("keep", "collect"),
    "versions": ("marker", "all"),
    "verify": ("all", "sample"),
    "mode": ("quarantine", "delete"),
    "engine": ("builtin", "lakefs-spark-client"),
}
"""Settings that are words, the stricter one first."""
_MORE_IS_STRICTER = frozenset({"min_age", "settle", "margin"})


def loosened_repository(
    base: DesiredRepository,
    head: DesiredRepository | None,
    *,
    measure: Callable[[str, Any], float],
    until: Callable[[str], date],
) -> Iterator[Loosening]:
    """Holds that go or end sooner, and sweep settings that take more. ``head`` is None when no entry names
    the repository any more. ``measure`` gives the size of a sweep setting by its key, ``until`` a date."""
    resolved: Mapping[str, Any] = head.resolved if head is not None else {}
    values = head.values if head is not None else {}
    where = str(head.source) if head is not None and head.source else ""
    mine = {_hold_name(hold): hold for hold in resolved.get("holds", ())}
    old_resolved: Mapping[str, Any] = base.resolved
    for hold in old_resolved.get("holds", ()):
        name, now = _hold_name(hold), mine.get(_hold_name(hold))
        if now is None or _ends_sooner(hold, now, until):
            after = ABSENT if now is None else _hold_end(now)
            yield Loosening(base.key, f"holds[{name}]", _hold_end(hold), after, where)
    if head is None:
        return
    before, after = old_resolved.get("sweep", {}), resolved.get("sweep", {})
    for key, default in SWEEP_DEFAULTS.items():
        old, new = before.get(key, default), after.get(key, default)
        if old != new and _takes_more(key, old, new, measure):
            place = values.get(f"/sweep/{key}")
            yield Loosening(base.key, f"sweep.{key}", _word(old), _word(new), str(place) if place else where)


def _hold_name(hold: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {hold[key]}" for key in ("prefix", "branch", "tag", "commit") if key in hold)


def _hold_end(hold: Mapping[str, Any]) -> str:
    return f"until {hold['until']}" if hold.get("until") else "without an end"


def _ends_sooner(old: Mapping[str, Any], new: Mapping[str, Any], until: Callable[[str], date]) -> bool:
    if not new.get("until"):
        return False
    return not old.get("until") or until(str(new["until"])) < until(str(old["until"]))


def _takes_more(key: str, old: Any, new: Any, measure: Callable[[str, Any], float]) -> bool:
    if key == "automatic":
        return bool(new)
    if key in _WORDS:
        return bool(new == _WORDS[key][1])
    if old is None or new is None:
        return new is None
    less = measure(key, new) < measure(key, old)
    return less if key in _MORE_IS_STRICTER else measure(key, new) > measure(key, old)


def _word(value: Any) -> str:
    if value is None:
        return UNLIMITED
    return str(value).lower() if isinstance(value, bool) else str(value)


def least(one: Number | None, other: Number | None) -> Number | None:
    """The lower of two limits; None is no limit."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return UNLIMITED
    unit = " %" if name.endswith("percent") else {"max_expired_bytes": " bytes"}.get(name, "")
    return f"{value:,}{' s' if name.endswith('seconds') else unit}"


def _place(head: Guards, path: str) -> str:
    """Where the value stands; where it was left out, its block; without one, nothing."""
    found = head.places.get(path) or head.places.get(path.partition(".")[0])
    return str(found) if found else ""
