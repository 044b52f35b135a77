"""What goes when, day by day, if nobody writes: commits, branches, and objects where a curve has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from lakeplan.app.report_page.graph import Judged
from lakeplan.core.retention import DocumentedRule, to_us
from lakeplan.core.retention.limits import DAY_US
from lakeplan.model.moments import utc_text
from lakeplan.model.plan import Horizon, RepositoryPlan
from lakeplan.model.rules import GcRules

Json = dict[str, Any]
DAYS = 90
"""How far the page looks. Branches are known for thirty days only, as the plan has them."""


def timeline_document(
    plan: RepositoryPlan, judged: Judged | None, curve: Mapping[str, Any] | None, as_of: datetime
) -> Json:
    """``days``: one row per day on which something goes. Day 0 is now; day n ends n times 24 hours later.
    Commits go by the documented rule, under the stored and the proposed rules (None: no history, or no rules
    are set, so that nothing goes). ``objects`` come from the horizon of a curve, when one was given."""
    stored = None if judged is None else _commits(judged, plan.before, as_of)
    proposed = None if judged is None else _commits(judged, plan.after, as_of)
    branches = _branches(plan, as_of)
    objects = _objects(curve)
    days = sorted({*(stored or ()), *(proposed or ()), *branches, *objects})
    return {
        "key": plan.key,
        "start": utc_text(as_of),
        "span": DAYS,
        "has_commits": judged is not None,
        "has_objects": curve is not None and curve["horizon"] is not None,
        "moments": [
            {
                "day": horizon.days,
                "commits": h.commits_expire,
                "objects": h.objects_expire,
                "size_bytes": h.bytes_expire,
            }
            for horizon in Horizon
            if (h := plan.impact.horizons.get(horizon.value)) is not None
        ],
        "days": [
            {
                "day": day,
                "until": utc_text(as_of + timedelta(days=day)),
                "stored": None if stored is None else stored.get(day, 0),
                "proposed": None if proposed is None else proposed.get(day, 0),
                "branches": branches.get(day, []),
                "objects": objects.get(day, {}).get("objects"),
                "size_bytes": objects.get(day, {}).get("size_bytes"),
            }
            for day in days
        ],
    }


def _commits(judged: Judged, rules: GcRules | None, as_of: datetime) -> dict[int, int] | None:
    """Day → commits that stop being kept on it, from tomorrow's on."""
    if rules is None:
        return None
    now = to_us(as_of)
    kept_until = DocumentedRule(judged.graph, rules).kept_until_us(judged.history.zone)
    last = now + DAYS * DAY_US
    return dict(Counter((until - now) // DAY_US + 1 for until in kept_until if now <= until < last))


def _branches(plan: RepositoryPlan, as_of: datetime) -> dict[int, list[list[str]]]:
    """Day → [branch, policy] of branches that the proposed policies let go by its end."""
    found: dict[int, list[list[str]]] = {}
    policies = plan.branch_lifecycle
    for fate in policies.fates if policies is not None else ():
        if fate.goes_at is not None:
            day = max(0, -(-(to_us(fate.goes_at) - to_us(as_of)) // DAY_US))
            found.setdefault(day, []).append([fate.branch_id, fate.policy])
    return found


def _objects(curve: Mapping[str, Any] | None) -> dict[int, Mapping[str, int]]:
    if curve is None or curve["horizon"] is None:
        return {}
    return {loss["day"]: loss for loss in curve["horizon"]["days_with_losses"] if loss["day"] <= DAYS}
