"""Which of two values of a setting is stricter, and how they combine.

With the stricter value, lakeplan deletes less or later, or inspects more before it deletes. ``plan --base``
lists what a change weakens and judges the change by the stricter values of both trees, which ``apply
--sweep`` also uses. ``sweep run`` uses the stricter of the settings at the approval and today, and ``branches
run`` the stricter of those in a reviewed plan and today. Blocks of settings declare their rules with their
fields (``values/declare``). The other rules are here. ``tests/review/test_strictness.py`` lists every setting
that needs no rule, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from functools import lru_cache
from itertools import chain
from typing import Any, Literal, TypeVar

from lakeplan.retention.patterns import BRANCH_NAMES, Budget, TooManyGlobs, expand, witness
from lakeplan.review.differences import item_name, item_values
from lakeplan.values.declare import (
    ALL_OF_BOTH,
    LESS,
    POLICY,
    UNLIMITED,
    Order,
    Rule,
    Setting,
    SinceMark,
    lower_limit,
    unordered,
)
from lakeplan.values.desired import (
    BOUNDS,
    BRANCH_SETTINGS,
    SAFETY,
    BranchRule,
    BranchSettings,
    Cleared,
    DesiredRepository,
    GcDesired,
    GcSetting,
    ObjectRule,
    ObjectRulesDesired,
    Override,
    PoliciesDesired,
    Safety,
    ServerConfig,
    Source,
    duration_text,
)
from lakeplan.values.desired import Policy as BranchPolicy
from lakeplan.values.notify import NotifyConfig
from lakeplan.values.pins import PINS, Kept
from lakeplan.values.plan import Plan, RepositoryPlan, SweepGuard, WeakenedSetting
from lakeplan.values.sweep import SWEEP, Hold, SweepSettings

Block = TypeVar("Block")


def all_holds(*several: Iterable[Hold]) -> tuple[Hold, ...]:
    """Return all holds. Of two holds on the same data, the one that ends later is returned."""
    by_name: dict[tuple[str, str], Hold] = {}
    for hold in (hold for holds in several for hold in holds):
        known = by_name.get((hold.kind, hold.name))
        if known is None or last_day(hold) > last_day(known):
            by_name[hold.kind, hold.name] = hold
    return tuple(by_name.values())


def last_day(hold: Hold) -> date:
    """Return the last day of a hold, or ``date.max`` if it has no end."""
    return hold.until if hold.until is not None else date.max


_REVIEWED_FIRST = (LESS, POLICY, ALL_OF_BOTH)
SAFETY_REVIEWED = tuple(sorted(SAFETY, key=lambda setting: _REVIEWED_FIRST.index(setting.rule)))
"""In the order of a review: limits, what gates do, lists."""
TREE = (
    *BOUNDS,
    Setting("unmanaged", "unmanaged", POLICY),
    Setting("checks", "checks", ALL_OF_BOTH),
    Setting(
        "manages",
        "manages",
        unordered("excluded repositories are neither managed nor reported, and lose their holds"),
    ),
    Setting(
        "state.url",
        "state_url",
        unordered(
            "the state records which repositories were applied, and a gate refuses any other repository"
            " that a glob matches"
        ),
    ),
    Setting(
        "notify",
        "notify",
        Rule(
            lambda then, now: now if then is None else then,
            why="different people would get the notice before branches are deleted",
        ),
    ),
    Setting(
        "name",
        "name",
        unordered(
            "repositories claimed by a tree with the new name are treated as repositories of this tree"
        ),
    ),
    Setting("approvers", "approvers", unordered("different people could approve marks by a comment")),
)
SERVER = (
    Setting(
        "servers.branch_lifecycle.engine",
        "branch_lifecycle_engine",
        unordered("each engine has its own rules for deleting branches"),
    ),
    Setting(
        "servers.time_zone",
        "time_zone",
        unordered("retention days end at a different hour, so different commits may expire"),
    ),
)


def stricter(table: Iterable[Setting], then: Block, now: Block) -> Block:
    """Return ``now`` with the stricter of the two values for every setting in the table."""
    values = {s.field: s.rule.combine(getattr(then, s.field), getattr(now, s.field)) for s in table}
    return replace(now, **values)  # type: ignore[type-var]  # a block is a dataclass


def weakened(table: Iterable[Setting], before: Block, after: Block) -> Iterator[tuple[Setting, Any, Any]]:
    """Yield every setting that is weaker in ``after`` than in ``before``, with both values."""
    for setting in table:
        old, new = getattr(before, setting.field), getattr(after, setting.field)
        if setting.rule.weakens(old, new):
            yield setting, old, new


def stricter_safety(then: Safety, now: Safety) -> Safety:
    return stricter(SAFETY_REVIEWED, then, now)


def stricter_sweep(then: SweepSettings, now: SweepSettings) -> SweepSettings:
    return stricter(SWEEP, then, now)


def stricter_branch_settings(then: BranchSettings, now: BranchSettings) -> BranchSettings:
    return stricter(BRANCH_SETTINGS, then, now)


def since_mark(
    marked: SweepSettings, tree_then: SweepSettings, tree_now: SweepSettings
) -> tuple[SweepSettings, tuple[Setting, ...]]:
    """Return the settings for the sweep of a mark, and the settings that forbid it. ``marked`` are the
    settings of the mark, which may come from command-line options: they apply as chosen unless the tree has
    become stricter since. Limits are today's, because gates judge the mark by them."""
    settings, refused = marked, []
    for setting in SWEEP:
        name, rule = setting.field, setting.rule
        then, now, used = (getattr(block, name) for block in (tree_then, tree_now, marked))
        if rule.order is not Order.STRICTER or setting.since_mark is SinceMark.GATE:
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
ABSENT = "absent"


@dataclass(frozen=True)
class Guards:
    """The settings of a tree that limit what a plan may do. Days are inclusive. ``places`` maps a path such
    as ``safety.max_expired_bytes`` to its place in the tree."""

    safety: Safety = field(default_factory=Safety)
    min_retention_days: int = 1
    max_retention_days: int = 36500
    unmanaged: Policy = "warn"
    checks: tuple[str, ...] = ()
    """In the form that people read."""
    manages: str = "every repository"
    """In the form that people read."""
    state_url: str | None = None
    notify: NotifyConfig | None = None
    name: str | None = None
    approvers: str | None = None
    overrides: tuple[Override, ...] = ()
    places: Mapping[str, Source] = field(default_factory=dict)


def held_to(plan: Plan, safety: Safety) -> Safety:
    """Return a tree's limits for an apply of ``plan``, which are never weaker than those of its review."""
    return replace(
        safety,
        impact_tolerance_percent=lower_limit(plan.impact_tolerance_percent, safety.impact_tolerance_percent),
        max_plan_age_seconds=lower_limit(plan.max_plan_age_seconds, safety.max_plan_age_seconds),
    )


def outside_bounds(desired: DesiredRepository, low: int, high: int) -> Iterator[tuple[Source, str, int]]:
    """Yield the place, path and days of every retention period outside ``low`` to ``high`` days."""
    if not isinstance(desired.gc, GcDesired):
        return
    if not low <= desired.gc.default_retention_days <= high:
        yield desired.gc.source, "gc.default_retention_days", desired.gc.default_retention_days
    for rule in desired.gc.branches:
        if not low <= rule.retention_days <= high:
            yield rule.source, f"gc.branches[{rule.name}].retention_days", rule.retention_days


def weakened_settings(base: Guards, head: Guards, today: date) -> tuple[WeakenedSetting, ...]:
    """Return every setting of the whole tree that ``head`` weakens, in a fixed order."""
    changes = chain(weakened(SAFETY_REVIEWED, base.safety, head.safety), weakened(TREE, base, head))
    return tuple(
        WeakenedSetting(WHOLE_TREE, setting.path, *_shown(setting, before, after), _place(head, setting.path))
        for setting, before, after in changes
    ) + tuple(_opened(base, head, today))


def _opened(base: Guards, head: Guards, today: date) -> Iterator[WeakenedSetting]:
    """Yield the overrides that allow more than those of the base. An expired override allows nothing."""
    for note in head.overrides:
        if note.expires < today:
            continue
        same = [n for n in base.overrides if (n.repository, n.gate) == (note.repository, note.gate)]
        if any(_covers(old, note) for old in same):
            continue
        before = "; ".join(_opening(old) for old in same) or ABSENT
        path = f"overrides: {note.gate} of {note.repository}"
        yield WeakenedSetting(WHOLE_TREE, path, before, f"{_opening(note)}: {note.reason}", str(note.source))


def _covers(old: Override, new: Override) -> bool:
    enough = old.max is None or (new.max is not None and new.max <= old.max)
    return enough and new.expires <= old.expires


def _opening(note: Override) -> str:
    ceiling = "no maximum" if note.max is None else f"up to {note.max:,}"
    return f"{ceiling}, until {note.expires}"


def changed_server(base: ServerConfig, head: ServerConfig) -> Iterator[WeakenedSetting]:
    """Yield the changed settings of a server that decide what is deleted on it."""
    where = str(head.source) if head.source else ""
    for setting, before, after in weakened(SERVER, base, head):
        path = f"servers.{head.name}.{setting.path.removeprefix('servers.')}"
        yield WeakenedSetting(WHOLE_TREE, path, *_shown(setting, before, after), where)


def weakened_repository(
    base: DesiredRepository, head: DesiredRepository | None, today: date
) -> Iterator[WeakenedSetting]:
    """Yield holds that are dropped or end sooner, except expired ones, weaker settings of ``sweep``,
    ``branch_lifecycle`` and ``pins``, and a new owner if notices about branches no longer reach the old
    owner. ``head`` is None if no entry names the repository now."""
    where = str(head.source) if head is not None and head.source else ""
    kept = {(hold.kind, hold.name): hold for hold in all_holds(head.holds if head is not None else ())}
    for hold in all_holds(base.holds):
        now = kept.get((hold.kind, hold.name))
        if hold.holds_on(today) and (now is None or last_day(now) < last_day(hold)):
            after = ABSENT if now is None else _hold_end(now)
            yield WeakenedSetting(base.key, f"holds[{hold.kind} {hold.name}]", _hold_end(hold), after, where)
    if head is None:
        return
    if base.notice_channel and head.owner != base.owner and head.notice_channel != base.notice_channel:
        # Notices of deletions go elsewhere. A change of ``notify`` is listed once, for the whole tree.
        place = head.values.get("/owner")
        before, after = base.owner or ABSENT, head.owner or ABSENT
        yield WeakenedSetting(base.key, "owner", before, after, str(place) if place else where)
    for setting, old, new in chain(
        weakened(SWEEP, base.sweep, head.sweep),
        weakened(BRANCH_SETTINGS, base.branch_settings, head.branch_settings),
        weakened(PINS, base.pins, head.pins),
    ):
        place = head.values.get("/" + setting.path.replace(".", "/"))
        yield WeakenedSetting(
            base.key, setting.path, *_shown(setting, old, new), str(place) if place else where
        )


def weaker_later(
    base: DesiredRepository,
    head: DesiredRepository,
    changed: Collection[str],
    *,
    runs_policies: bool,
    shown_policies: Collection[str] = (),
) -> Iterator[WeakenedSetting]:
    """Yield changes for future branches and commits that a plan does not show: patterns of ``gc.branches``
    with fewer days than in the base tree, unless a branch whose days the plan changes (``changed``) has its
    days from them, rules by which fewer of the newest commits get pins, and, with ``runs_policies``, policies
    that delete more or sooner, except ``shown_policies``."""
    if isinstance(base.gc, GcDesired) and head.gc is not Cleared.CLEAR:
        yield from _weaker_rules(base.key, base.gc, head.gc, changed)
    old = base.branch_lifecycle.policies if isinstance(base.branch_lifecycle, PoliciesDesired) else ()
    if runs_policies and isinstance(head.branch_lifecycle, PoliciesDesired):
        for policy, place in zip(head.branch_lifecycle.policies, head.branch_lifecycle.sources, strict=True):
            name = item_name(policy)
            if name not in shown_policies and not any(_deletes_no_more(policy, other) for other in old):
                before = "; ".join(_policy_text(other) for other in old if item_name(other) == name) or ABSENT
                path = f"branch_lifecycle.policies[{name}]"
                yield WeakenedSetting(base.key, path, before, _policy_text(policy), str(place))


def _weaker_rules(
    key: str, base: GcDesired, head: GcSetting, changed: Collection[str]
) -> Iterator[WeakenedSetting]:
    now = {rule.key: rule for rule in head.branches} if isinstance(head, GcDesired) else {}
    default = head.default_retention_days if isinstance(head, GcDesired) else 0
    shown = set(_rules_of(base, head, changed))
    for old in base.branches:
        new = now.get(old.key)
        days = default if new is None else new.retention_days
        kept = _kept_counts(old.kept), _kept_counts(None if new is None else new.kept)
        is_shown = not old.is_pattern or (old, new) in shown
        if (days < old.retention_days and not is_shown) or any(a < b for b, a in zip(*kept, strict=True)):
            after = ABSENT if new is None else _rule_text(new)
            place = "" if not isinstance(head, GcDesired) else (new or head).source
            yield WeakenedSetting(key, f"gc.branches[{old.name}]", _rule_text(old), after, str(place))
    patterns = tuple(rule.name for rule in base.branches if rule.is_pattern)
    for new in now.values():
        if not new.is_pattern or new.retention_days >= base.default_retention_days or (None, new) in shown:
            continue
        # Branches that no pattern of the base tree matches would have its default.
        if new.name not in patterns and _may_match(new.name, patterns):
            before, after = f"{base.default_retention_days:,} days", _rule_text(new)
            yield WeakenedSetting(key, f"gc.branches[{new.name}]", before, after, str(new.source))


def weaker_on_server(
    base: DesiredRepository, head: DesiredRepository, plan: RepositoryPlan
) -> Iterator[WeakenedSetting]:
    """Yield days of ``gc`` that are fewer than in the base tree, and object rules that expire more, which the
    plan does not show as such, because somebody has already set them on the server."""
    yield from _object_rules_on_server(base, head, plan)
    old, new, stored = base.gc, head.gc, plan.before
    if not isinstance(old, GcDesired) or not isinstance(new, GcDesired) or stored is None:
        return
    exact = {rule.name for rule in (*old.branches, *new.branches) if not rule.is_pattern}
    before, after = (expand(gc, exact) for gc in (old, new))
    default = new.default_retention_days
    lowered = [
        (f"gc.branches[{name}]", before.rules.days_for(name), days, rule.source if rule else new.source)
        for name in sorted(exact)
        for days, rule in [(after.rules.days_for(name), after.by_branch.get(name))]
        if stored.days_for(name) <= days
    ]
    if stored.default_retention_days <= default:
        lowered.insert(0, ("gc.default_retention_days", old.default_retention_days, default, new.source))
    for path, more, days, source in lowered:
        if days < more:
            yield WeakenedSetting(base.key, path, f"{more:,} days", f"{days:,} days", str(source))


def _object_rules_on_server(
    base: DesiredRepository, head: DesiredRepository, plan: RepositoryPlan
) -> Iterator[WeakenedSetting]:
    rules, shown = plan.object_lifecycle, head.object_lifecycle
    if rules is None or not isinstance(shown, ObjectRulesDesired):
        return
    changed = {change.item for change in rules.changes}
    old = base.object_lifecycle.rules if isinstance(base.object_lifecycle, ObjectRulesDesired) else ()
    for rule in shown.rules:
        if rule.id not in changed and not any(_expires_no_more(rule, other) for other in old):
            before = "; ".join(_object_rule_text(other) for other in old if other.id == rule.id) or ABSENT
            path = f"object_lifecycle.rules[{rule.id}]"
            yield WeakenedSetting(base.key, path, before, _object_rule_text(rule), str(shown.source))


def _expires_no_more(rule: ObjectRule, other: ObjectRule) -> bool:
    """Return whether ``other`` expires every object that ``rule`` expires, and not later."""
    return (
        set(rule.branches) <= set(other.branches)
        and rule.prefix.startswith(other.prefix)
        and rule.expire_after_days >= other.expire_after_days
    )


def _object_rule_text(rule: ObjectRule) -> str:
    """Return a rule without its prefix, which is a path, so that public logs may have it."""
    what = "a prefix of " if rule.prefix else ""
    return f"{what}{item_values(rule)['branches']}: {rule.expire_after_days:,} days"


def _rules_of(
    base: GcDesired, head: GcSetting, branches: Collection[str]
) -> Iterator[tuple[BranchRule | None, BranchRule | None]]:
    """Yield the rule of each branch in both trees, or None where it has the default."""
    before = expand(base, branches).by_branch
    after = expand(head, branches).by_branch if isinstance(head, GcDesired) else {}
    return ((before.get(branch), after.get(branch)) for branch in branches)


@lru_cache  # repositories share profiles
def _may_match(name: str, others: tuple[str, ...]) -> bool:
    """Return whether a pattern may match a branch that none of the others match."""
    try:
        return witness([name], others, BRANCH_NAMES, Budget(_STEPS)) is not None
    except TooManyGlobs:
        return True


_STEPS = 5_000
"""Steps to compare a new pattern with those of the base tree."""


def _kept_counts(kept: Kept | None) -> tuple[int, ...]:
    return (0, 0, 0, 0) if kept is None else (kept.commits, kept.daily, kept.weekly, kept.monthly)


def _rule_text(rule: BranchRule) -> str:
    names = ("min_commits", "daily", "weekly", "monthly")
    kept = (f", {name} {n}" for name, n in zip(names, _kept_counts(rule.kept), strict=True) if n)
    return f"{rule.retention_days:,} days{''.join(kept)}"


def _deletes_no_more(policy: BranchPolicy, other: BranchPolicy) -> bool:
    """Return whether ``other`` deletes every branch that ``policy`` deletes, and not later."""
    limits = (
        (policy.max_age_seconds, other.max_age_seconds),
        (policy.max_idle_seconds, other.max_idle_seconds),
    )
    return set(policy.patterns) <= set(other.patterns) and all(
        theirs is None or (own is not None and own >= theirs) for own, theirs in limits
    )


def _policy_text(policy: BranchPolicy) -> str:
    values = item_values(policy)
    ages = (f"{key} {values[key]}" for key in ("max_age", "max_idle_age") if key in values)
    return f"{', '.join(policy.patterns)}: {', '.join(ages)}"


def guard_of(base: DesiredRepository, head: DesiredRepository) -> SweepGuard | None:
    """Return the settings that a sweep of ``head`` must respect, or None if the base is not stricter and
    every sweep needs an approval. An automatic one must respect them with an older checkout too."""
    guard = SweepGuard(
        stricter_safety(base.safety, head.safety),
        all_holds(head.holds, base.holds),
        stricter_sweep(base.sweep, head.sweep),
    )
    alone = SweepGuard(head.safety, all_holds(head.holds), head.sweep)
    return None if guard == alone and not head.sweep.automatic else guard


def held_to_guard(desired: DesiredRepository, guard: SweepGuard) -> DesiredRepository:
    """Return the repository with the stricter of its own settings for sweeps and those of the guard."""
    return replace(
        desired,
        safety=stricter_safety(guard.safety, desired.safety),
        holds=all_holds(desired.holds, guard.holds),
        sweep=stricter_sweep(guard.settings, desired.sweep),
    )


def _hold_end(hold: Hold) -> str:
    return f"until {hold.until}" if hold.until is not None else "no end date"


def _shown(setting: Setting, before: Any, after: Any) -> tuple[str, str]:
    """Return both values of a setting as messages show them. For a list, only the missing items are shown."""
    if isinstance(before, tuple):
        return ", ".join(item for item in before if item not in after), ABSENT
    return _figure(setting, before), _figure(setting, after)


_NOT_SET = {"state.url": "the default", "notify": ABSENT, "name": ABSENT, "approvers": "no team"}


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
    """Return the place of a value, or of its block if the value is missing, or ""."""
    place = head.places.get(path) or head.places.get(path.partition(".")[0])
    return str(place) if place else ""
