"""The plan file as a ceiling: whether what an apply would do now is what was reviewed, and no more."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from lakeplan.core.details import explain_rules
from lakeplan.core.settings import same_setting, what_changed
from lakeplan.model.desired import Safety
from lakeplan.model.plan import Horizon, HorizonImpact, Impact, ImpactStatus, Plan, RepositoryPlan
from lakeplan.model.setting_plan import ObjectRulesPlan, PoliciesPlan

SettingPlans = PoliciesPlan | ObjectRulesPlan
DAY = timedelta(days=1)
CLOCK_SKEW = timedelta(hours=1)
"""How far the clock of the machine that planned may be ahead of the one that applies."""


def stale_reasons(reviewed: RepositoryPlan, live: RepositoryPlan | None, *, check_etag: bool) -> list[str]:
    """Why a reviewed repository no longer is what it was; empty when it is, or when it was applied before.

    ``live`` is the same repository planned again from the checked-out tree, over the branches of the plan.
    """
    if live is None:
        return ["the checked-out tree does not name it any more"]
    if live.endpoint_url.rstrip("/") != reviewed.endpoint_url.rstrip("/"):
        return [f"the tree's server is {live.endpoint_url} and the plan's {reviewed.endpoint_url}"]
    if not reviewed.is_of(live.creation_date, live.storage_namespace):
        return ["it is another repository of the same name, made since the plan"]
    reasons = []
    if live.config_hash != reviewed.config_hash:
        reasons.append("its configuration in the tree differs from the reviewed one")
    if reviewed.managed and live.after_etag != reviewed.after_etag:
        reasons.append("the rules that would be written differ from the reviewed ones")
    if (
        reviewed.managed
        and check_etag
        and live.before_etag not in (reviewed.before_etag, reviewed.after_etag)
    ):
        reasons.append(
            f"the rules on the server changed: ETag {live.before_etag[:12]} is not the plan's"
            f" {reviewed.before_etag[:12]} ({explain_rules(reviewed.before, live.before)})"
        )
    now = {setting.kind: setting for setting in live.settings}
    for setting in reviewed.settings:
        current = now.get(setting.kind)
        if current is None:
            reasons.append(f"the tree does not manage its {setting.kind.label} on the server any more")
        else:
            reasons += _setting_reasons(setting, current, check_etag=check_etag)
    return reasons


def _setting_reasons(reviewed: SettingPlans, live: SettingPlans, *, check_etag: bool) -> list[str]:
    """The server's ETag tells a change, and what changed is said; the reviewed list itself is no change."""
    what = reviewed.kind.label
    if live.after_etag != reviewed.after_etag:
        return [f"the {what} that would be written differ from the reviewed ones"]
    if not check_etag or same_setting(live.before, reviewed.after):
        return []
    if live.server_etag == reviewed.server_etag and same_setting(live.before, reviewed.before):
        return []
    changed = what_changed(reviewed.before, live.before)
    return [f"the {what} on the server changed: {changed}"]


def is_done(reviewed: RepositoryPlan, live: RepositoryPlan) -> bool:
    """The server already has all that was reviewed: an earlier, interrupted run wrote it."""
    now = {setting.kind: setting for setting in live.settings}
    rules = not reviewed.managed or live.before_etag == reviewed.after_etag
    return rules and all(
        setting.kind in now and same_setting(now[setting.kind].before, setting.after)
        for setting in reviewed.settings
    )


def growth(reviewed: RepositoryPlan, live: RepositoryPlan, safety: Safety, *, age: timedelta) -> list[str]:
    """In which figures the impact now exceeds what was reviewed by more than the tolerance.

    Objects at risk may not grow at all. A plan older than a day is held against what it showed for +7 days
    where that is more, since time alone lets commits expire.
    """
    found = _branch_growth(reviewed, live, safety, age)
    if live.impact.commits_digest and live.impact.commits_digest == reviewed.impact.commits_digest:
        return found
    if reviewed.impact.status is ImpactStatus.UNKNOWN:
        # its objects were let through their own gate, unknown as they were; what was known still counts
        return found + _more_commits(reviewed, live, safety, age) + _new_tags(reviewed, live)
    if live.impact.status is ImpactStatus.UNKNOWN:
        return [*found, f"what expires is not known any more: {live.impact.reason}"]
    current = live.impact.now
    if current is None:
        return found
    for name, measure in (("objects", "objects_expire"), ("bytes", "bytes_expire")):
        ceiling = _ceiling(reviewed.impact, measure, age) * (1 + safety.impact_tolerance_percent / 100)
        value = getattr(current, measure) or 0
        if value > ceiling:
            found.append(
                f"{value:,} {name} would expire, {_ceiling(reviewed.impact, measure, age):,} were reviewed"
            )
    at_risk = _ceiling(reviewed.impact, "objects_at_risk", age)
    if (current.objects_at_risk or 0) > at_risk:
        found.append(f"{current.objects_at_risk:,} objects would be at risk, {at_risk:,} were reviewed")
    return found + _new_tags(reviewed, live)


def _new_tags(reviewed: RepositoryPlan, live: RepositoryPlan) -> list[str]:
    """A tag that was moved to another commit is a new one."""
    known = {(t.tag, t.commit_id) for t in reviewed.impact.tags}
    new = sorted(t.tag for t in live.impact.tags if (t.tag, t.commit_id) not in known)
    return [f"tags would lose data that were not reviewed: {', '.join(new)}"] if new else []


def _more_commits(
    reviewed: RepositoryPlan, live: RepositoryPlan, safety: Safety, age: timedelta
) -> list[str]:
    """The commits that expire, where the graph was read at the review."""
    if reviewed.impact.now is None or live.impact.now is None:
        return []
    ceiling = _ceiling(reviewed.impact, "commits_expire", age)
    value = live.impact.now.commits_expire
    if value <= ceiling * (1 + safety.impact_tolerance_percent / 100):
        return []
    return [f"{value:,} commits would expire, {ceiling:,} were reviewed"]


def _branch_growth(
    reviewed: RepositoryPlan, live: RepositoryPlan, safety: Safety, age: timedelta
) -> list[str]:
    """Branches that the policies would let go now, beyond what was reviewed and the tolerance."""
    if live.branch_lifecycle is None:
        return []
    shown = reviewed.branch_lifecycle.deletions if reviewed.branch_lifecycle is not None else {}
    horizons = [Horizon.NOW] if age <= DAY else [Horizon.NOW, Horizon.WEEK]
    most = max(shown.get(h.value, 0) for h in horizons)
    value = live.branch_lifecycle.deletions.get(Horizon.NOW.value, 0)
    if value <= most * (1 + safety.impact_tolerance_percent / 100):
        return []
    return [f"{value:,} branches would go, {most:,} were reviewed"]


def _ceiling(impact: Impact, measure: str, age: timedelta) -> int:
    horizons = [Horizon.NOW] if age <= DAY else [Horizon.NOW, Horizon.WEEK]
    shown: Iterable[HorizonImpact | None] = (impact.horizons.get(h.value) for h in horizons)
    return max((getattr(h, measure) or 0 for h in shown if h is not None), default=0)


def too_old(plan: Plan, safety: Safety, now: datetime) -> str | None:
    """Why a plan may not be applied for its age: too old, or made for a later moment."""
    age = now - plan.as_of
    if -age > CLOCK_SKEW:
        return "the plan shows a moment that is still to come (--as-of): it can be read, not applied"
    if age.total_seconds() <= safety.max_plan_age_seconds:
        return None
    return f"the plan is {age.days} days old; max_plan_age is {safety.max_plan_age_seconds / 86400:g} days"
