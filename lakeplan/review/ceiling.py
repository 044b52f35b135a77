"""The ceiling of an apply: it may do nothing beyond what was reviewed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from lakeplan.review.differences import same_setting, what_changed
from lakeplan.values.desired import Safety, duration_text
from lakeplan.values.plan import (
    Bit,
    Horizon,
    HorizonImpact,
    Impact,
    ImpactStatus,
    ObjectRulesPlan,
    Plan,
    PoliciesPlan,
    RepositoryPlan,
)
from lakeplan.values.rules import Action, GcRules
from lakeplan.values.units import count_of

MAX_DETAILS = 5


def explain_rules(before: GcRules | None, after: GcRules | None) -> str:
    """Return how stored rules changed, such as ``branch dev set to 7; default_retention_days 21 → 30``.

    At most five differences are listed. The text is "" if there are none.
    """
    if before is None or after is None:
        return (
            ""
            if before == after
            else ("no rules were set before" if before is None else "the rules were removed")
        )
    differences = _differences(_flat(before), _flat(after))
    more = f"; and {len(differences) - MAX_DETAILS} more" if len(differences) > MAX_DETAILS else ""
    return "; ".join(differences[:MAX_DETAILS]) + more


def _flat(rules: GcRules) -> dict[str, int]:
    branches = {f"branch {name}": days for name, days in rules.branches.items()}
    return {"default_retention_days": rules.default_retention_days, **branches}


def _differences(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    # Imported here because it takes longer to load than most commands take to run.
    from deepdiff import DeepDiff

    # By default, DeepDiff treats mappings that share few keys as one changed value.
    delta: Mapping[str, Any] = DeepDiff(before, after, view="tree", threshold_to_diff_deeper=0)
    keys = sorted(str(item.path(output_format="list")[0]) for kind in delta.values() for item in kind)
    return [_text(key, before.get(key), after.get(key)) for key in keys]


def _text(key: str, before: int | None, after: int | None) -> str:
    if after is None:
        return f"{key} removed"
    return f"{key} set to {after}" if before is None else f"{key} {before} → {after}"


SettingPlans = PoliciesPlan | ObjectRulesPlan
DAY = timedelta(days=1)
OBJECTS_FILE = "PLAN.objects"
"""The name of the file beside a plan file, in messages."""
CLOCK_SKEW = timedelta(hours=1)
"""How far the clock of the machine that planned may be ahead of the clock of the machine that applies."""


def stale_reasons(reviewed: RepositoryPlan, live: RepositoryPlan | None, *, check_etag: bool) -> list[str]:
    """Return why the plan of a repository is stale, or nothing if it is not stale or was already applied.

    ``live`` is the same repository planned again from the checked-out tree, over the branches of the plan.
    """
    if live is None:
        return ["the checked-out tree no longer has an entry for it"]
    if not _same_server(reviewed, live):
        return [
            f"the server's endpoint_url is {live.endpoint_url} in the tree, but {reviewed.endpoint_url} in"
            " the plan"
        ]
    if not reviewed.is_of(live.creation_date, live.storage_namespace):
        return ["it is a different repository with the same name, created after the plan"]
    reasons = []
    if live.config_hash != reviewed.config_hash:
        reasons.append("its configuration in the tree differs from the reviewed one")
    # The tree decides whether rules are managed. A plan file that says otherwise may still have rules to
    # write.
    written = reviewed.managed or reviewed.action.writes
    if live.managed != reviewed.managed or (written and live.after_etag != reviewed.after_etag):
        reasons.append("the rules that would be written differ from the reviewed ones")
    left_out = _left_out(live)
    if left_out:
        reasons.append(
            "the plan omits branches that have rules on the server and would get longer retention from"
            f" patterns: {left_out}"
        )
    if (
        reviewed.managed
        and check_etag
        and live.before_etag not in (reviewed.before_etag, reviewed.after_etag)
    ):
        reasons.append(
            f"the rules on the server have changed: their ETag is {live.before_etag[:12]}, but the plan"
            f" recorded {reviewed.before_etag[:12]} ({explain_rules(reviewed.before, live.before)})"
        )
    now = {setting.kind: setting for setting in live.settings}
    for setting in reviewed.settings:
        current = now.get(setting.kind)
        if current is None:
            reasons.append(f"the tree no longer manages its {setting.kind.label} on the server")
        else:
            reasons += _setting_reasons(setting, current, check_etag=check_etag)
    return reasons


def _same_server(reviewed: RepositoryPlan, live: RepositoryPlan) -> bool:
    return live.endpoint_url.rstrip("/") == reviewed.endpoint_url.rstrip("/")


def only_moved(reviewed: RepositoryPlan, live: RepositoryPlan | None) -> bool:
    """Return whether a stale repository is still the reviewed one with the reviewed configuration, so that
    only its branches, or the settings that the server stores, have changed."""
    if live is None or not _same_server(reviewed, live):
        return False
    now = {setting.kind: setting.after_etag for setting in live.settings}
    return (
        reviewed.is_of(live.creation_date, live.storage_namespace)
        and live.config_hash == reviewed.config_hash
        and live.managed == reviewed.managed
        and live.after_etag == reviewed.after_etag
        and all(now.get(setting.kind) == setting.after_etag for setting in reviewed.settings)
    )


def outside(reviewed: RepositoryPlan, live: RepositoryPlan, *, age: timedelta, now: datetime) -> list[str]:
    """Return why a plan that was made again might delete something that was not reviewed, or nothing if it
    cannot do so.

    Stricter than ``growth``: there is no tolerance, and both plans must name everything that would be
    deleted, because equal numbers may mean different objects. Retention that someone has lengthened since
    must not shrink."""
    texts = growth(reviewed, live, Safety(impact_tolerance_percent=0), age=age, now=now)
    more = sorted(_written(live) - _written(reviewed))
    if more:
        texts.append(f"its {' and '.join(more)} would be written, but the reviewed plan did not include that")
    if longer := _given_longer(reviewed, live):
        texts.append(
            f"retention was lengthened after the plan was created, and this apply would undo that: {longer}"
        )
    texts += _of_policies(reviewed.branch_lifecycle, live.branch_lifecycle, now)
    if reviewed.impact.status is ImpactStatus.UNKNOWN or not _names_all(live):
        texts.append("it is unknown which objects would be deleted")
    if any(isinstance(s, ObjectRulesPlan) and s.action.writes and s.tightened for s in live.settings):
        texts.append("it is unknown which objects its object lifecycle rules would delete")
    return texts


def _given_longer(reviewed: RepositoryPlan, live: RepositoryPlan) -> str:
    """Return the stored days that exceed both the days at the review and the days that would be written. The
    data that they keep may expire on any later day, so the objects that expire now prove nothing."""
    then, now, after = reviewed.before, live.before, live.after
    if after is None or then is None or not live.action.writes:
        return ""
    if now is None:
        return "the GC rules were removed"
    longer = []
    if now.default_retention_days > max(then.default_retention_days, after.default_retention_days):
        longer.append(f"default_retention_days {now.default_retention_days}")
    longer += [
        f"branch {name} {now.days_for(name)}"
        for name in sorted({*then.branches, *now.branches, *after.branches})
        if now.days_for(name) > max(then.days_for(name), after.days_for(name))
    ]
    return ", ".join(longer[:MAX_DETAILS])


def _of_policies(then: PoliciesPlan | None, live: PoliciesPlan | None, now: datetime) -> list[str]:
    """Return policies that would not be changed as reviewed, and branches that would be deleted with commits
    that are newer than the review."""
    if then is None or live is None or not live.action.writes:
        return []
    changes = [c for c in live.changes if c.action is not Action.CLEAR and not live.reordered]
    others = [c.item for c in changes if c not in then.changes]
    texts = []
    if others:
        texts.append(f"its policies would change in ways that were not reviewed: {', '.join(others[:5])}")
    heads = {(f.branch_id, f.commit_id) for f in then.fates}
    moved = [f.branch_id for f in live.fates if f.newly(now) and (f.branch_id, f.commit_id) not in heads]
    if moved:
        texts.append(
            "branches that would be deleted now point to commits that were not reviewed:"
            f" {', '.join(sorted(moved)[:5])}"
        )
    return texts


def _names_all(plan: RepositoryPlan) -> bool:
    """Return whether a plan names every object that would expire now, or no object can expire."""
    impact = plan.impact
    if impact.status is ImpactStatus.UNAFFECTED:
        return True
    if impact.status is ImpactStatus.SIMULATED:
        return impact.shown is not None or (impact.now is not None and impact.now.objects_expire == 0)
    return impact.status is ImpactStatus.NOT_ASKED and not plan.action.writes


def _written(plan: RepositoryPlan) -> set[str]:
    rules = {"GC rules"} if plan.action.writes else set()
    return rules | {setting.kind.label for setting in plan.settings if setting.action.writes}


def _left_out(live: RepositoryPlan) -> str:
    """Return branches that the plan file omits although the server has a rule for them, and whose pattern
    would give them more days. They existed before the plan."""
    if live.before is None or live.after is None:
        return ""
    ruled, days = live.before.branches, live.after.days_for
    names = sorted(b for b, more in live.unexpanded.items() if b in ruled and more > days(b))
    return ", ".join(names[:5])


def _setting_reasons(reviewed: SettingPlans, live: SettingPlans, *, check_etag: bool) -> list[str]:
    """Return why a setting is stale. A different ETag means a change, unless the stored list is the reviewed
    one."""
    what = reviewed.kind.label
    if live.after_etag != reviewed.after_etag:
        return [f"the {what} that would be written differ from the reviewed ones"]
    if not check_etag or same_setting(live.before, reviewed.after):
        return []
    if live.server_etag == reviewed.server_etag and same_setting(live.before, reviewed.before):
        return []
    changed = what_changed(reviewed.before, live.before)
    return [f"the {what} on the server have changed: {changed}"]


def is_done(reviewed: RepositoryPlan, live: RepositoryPlan) -> bool:
    """Return whether the server already has everything that was reviewed, from an earlier, interrupted
    run."""
    now = {setting.kind: setting for setting in live.settings}
    rules = not reviewed.managed or live.before_etag == reviewed.after_etag
    pins = live.pins is None or not live.pins.writes
    return (
        rules
        and pins
        and all(
            setting.kind in now and same_setting(now[setting.kind].before, setting.after)
            for setting in reviewed.settings
        )
    )


def growth(
    reviewed: RepositoryPlan, live: RepositoryPlan, safety: Safety, *, age: timedelta, now: datetime
) -> list[str]:
    """Return how the current impact exceeds the reviewed one by more than the tolerance, in figures and in
    objects, commits and branches that the plan did not name.

    The number of objects at risk may not grow at all. A plan older than a day is also compared with its
    figures for 7 days later, because commits expire by time alone.
    """
    texts = _branch_growth(reviewed, live, safety, age, now)
    if reviewed.impact.status is ImpactStatus.UNKNOWN:
        # The gate for unknown impacts was overridden. The known figures still count.
        return texts + _more_commits(reviewed, live, safety, age) + _new_tags(reviewed, live)
    if live.impact.status is ImpactStatus.UNKNOWN:
        return [*texts, f"it is no longer known which objects would expire: {live.impact.reason}"]
    current = live.impact.now
    if current is None:
        return texts
    for noun, measure in (("object", "objects_expire"), ("byte", "bytes_expire")):
        ceiling = _ceiling(reviewed.impact, measure, age)
        value = getattr(current, measure) or 0
        if value > ceiling * (1 + safety.impact_tolerance_percent / 100):
            texts.append(_more(value, noun, "would expire", ceiling))
    texts += _not_named(reviewed, live, safety, age, "object", (Bit.NOW, Bit.WEEK))
    ceiling, value = _ceiling(reviewed.impact, "objects_at_risk", age), current.objects_at_risk or 0
    if value > ceiling:
        texts.append(_more(value, "object", "would be at risk", ceiling))
    return texts + _new_tags(reviewed, live)


def _more(value: int, noun: str, what: str, ceiling: int) -> str:
    return f"{count_of(value, noun)} {what}, but the reviewed plan shows {ceiling:,}"


def _new_tags(reviewed: RepositoryPlan, live: RepositoryPlan) -> list[str]:
    """Return tags that would lose data and were not reviewed. A tag that was moved to another commit counts
    as new."""
    known = {(t.tag, t.commit_id) for t in reviewed.impact.tags}
    new = sorted(t.tag for t in live.impact.tags if (t.tag, t.commit_id) not in known)
    return [f"tags that were not reviewed would lose data: {', '.join(new)}"] if new else []


def _more_commits(
    reviewed: RepositoryPlan, live: RepositoryPlan, safety: Safety, age: timedelta
) -> list[str]:
    """Return how many more commits expire than were reviewed, if the graph was read then."""
    if reviewed.impact.now is None or live.impact.now is None:
        return []
    ceiling = _ceiling(reviewed.impact, "commits_expire", age)
    value = live.impact.now.commits_expire
    if value > ceiling * (1 + safety.impact_tolerance_percent / 100):
        return [_more(value, "commit", "would expire", ceiling)]
    return _not_named(reviewed, live, safety, age, "commit", (Bit.COMMIT_NOW, Bit.COMMIT_WEEK))


def _not_named(
    reviewed: RepositoryPlan,
    live: RepositoryPlan,
    safety: Safety,
    age: timedelta,
    noun: str,
    bits: tuple[Bit, Bit],
) -> list[str]:
    """Return objects or commits that expire now and that the plan did not name, beyond the tolerance."""
    current = live.impact.shown.read() if live.impact.shown is not None else None
    shown = reviewed.impact.shown
    if (
        current is None
        and shown is not None
        and live.impact.now is not None
        and live.impact.now.objects_expire
    ):
        return [f"too many {noun}s would expire now to compare each one with the plan"]
    if current is None or not current.count(bits[0]):
        return []
    named = shown.read() if shown is not None else None
    if named is None:
        return [f"the plan does not list the {noun}s that expire, or its file {OBJECTS_FILE} is missing"]
    either = bits[0] if age <= DAY else bits[0] | bits[1]
    others, known = named.lacks(current.of(bits[0]), either), named.count(either)
    if others <= known * safety.impact_tolerance_percent / 100:
        return []
    new = count_of(others, f"{noun} that was", f"{noun}s that were")
    return [f"{new} not reviewed would expire (the plan lists {count_of(known, noun)})"]


def _branch_growth(
    reviewed: RepositoryPlan, live: RepositoryPlan, safety: Safety, age: timedelta, now: datetime
) -> list[str]:
    """Return branches that the policies would delete now, beyond the reviewed ones and the tolerance."""
    if live.branch_lifecycle is None:
        return []
    shown = reviewed.branch_lifecycle.deletions if reviewed.branch_lifecycle is not None else {}
    horizons = [Horizon.NOW] if age <= DAY else [Horizon.NOW, Horizon.WEEK]
    most = max(shown.get(h.value, 0) for h in horizons)
    value = live.branch_lifecycle.deletions.get(Horizon.NOW.value, 0)
    if value > most * (1 + safety.impact_tolerance_percent / 100):
        return [_more(value, "branch", "would be deleted", most)]
    last = now - age + timedelta(days=max(h.days for h in horizons))
    fates = reviewed.branch_lifecycle.fates if reviewed.branch_lifecycle is not None else ()
    named = {(f.branch_id, f.created) for f in fates if f.newly(last)}
    others = [
        f.branch_id
        for f in live.branch_lifecycle.fates
        if f.newly(now) and (f.branch_id, f.created) not in named
    ]
    if len(others) <= len(named) * safety.impact_tolerance_percent / 100:
        return []
    return [f"branches that were not reviewed would be deleted: {', '.join(sorted(others)[:5])}"]


def _ceiling(impact: Impact, measure: str, age: timedelta) -> int:
    horizons = [Horizon.NOW] if age <= DAY else [Horizon.NOW, Horizon.WEEK]
    shown: Iterable[HorizonImpact | None] = (impact.horizons.get(h.value) for h in horizons)
    return max((getattr(h, measure) or 0 for h in shown if h is not None), default=0)


def too_old(plan: Plan, safety: Safety, now: datetime) -> str | None:
    """Return why a plan cannot be applied because of its age: it is too old, or it was made for a moment in
    the future."""
    age = now - plan.as_of
    if -age > CLOCK_SKEW:
        return "the plan was created for a time in the future (--as-of), so it can be shown but not applied"
    if age.total_seconds() <= safety.max_plan_age_seconds:
        return None
    old, limit = duration_text(math.ceil(age.total_seconds())), duration_text(safety.max_plan_age_seconds)
    return f"the plan is {old} old, but max_plan_age is {limit}"
