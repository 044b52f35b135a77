"""The verdict on one branch: facts and policies in, delete or keep out (branch-lifecycle.md).

Thresholds are elapsed seconds between moments in UTC: a week is 604,800 seconds whatever a calendar does.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from lakeplan.core.globs import matches
from lakeplan.model.branches import BranchVerdict, Keep
from lakeplan.model.lifecycle import BranchFacts, Policy

END_OF_TIME = datetime.max.replace(tzinfo=timezone.utc)


def names_of(policies: Sequence[Policy]) -> list[str]:
    """What each policy is called: its id, or its place in the list."""
    return [policy.id or f"policy {number}" for number, policy in enumerate(policies, 1)]


def default_branch_problems(policies: Sequence[Policy], default_branch: str) -> list[str]:
    """One line for each pattern that matches the default branch, naming both: the server rejects such
    policies, and lakeplan would never delete that branch."""
    return [
        f"{name}: its pattern {pattern!r} matches the default branch {default_branch!r}"
        for name, policy in zip(names_of(policies), policies, strict=True)
        for pattern in policy.patterns
        if matches(default_branch, pattern)
    ]


def takes(policy: Policy, branch_id: str) -> bool:
    """Whether any of its patterns matches."""
    return any(matches(branch_id, pattern) for pattern in policy.patterns)


def crossing(policy: Policy, created: datetime, last_write: datetime | None) -> datetime:
    """When a branch has crossed every threshold of a policy, if nobody writes. Without a recorded last write
    the creation time counts."""
    moments = []
    if policy.max_age_seconds is not None:
        moments.append(_later(created, policy.max_age_seconds))
    if policy.max_idle_seconds is not None:
        moments.append(_later(last_write or created, policy.max_idle_seconds))
    return max(moments, default=END_OF_TIME)


def judge_branch(
    facts: BranchFacts,
    policies: Sequence[Policy],
    as_of: datetime,
    *,
    default_branch: str,
    read_only: bool = False,
) -> BranchVerdict:
    """Delete or keep. The first policy that matches with all its thresholds crossed is the deleter; order
    decides nothing else."""
    if facts.branch_id == default_branch:
        return BranchVerdict(Keep.DEFAULT_BRANCH)
    if read_only:
        return BranchVerdict(Keep.READ_ONLY)
    if facts.created is None:
        return BranchVerdict(Keep.NO_CREATION_TIME)
    found = [
        (crossing(policy, facts.created, facts.last_write), name)
        for name, policy in zip(names_of(policies), policies, strict=True)
        if takes(policy, facts.branch_id)
    ]
    for moment, name in found:
        if moment <= as_of:
            return BranchVerdict(None, policy=name, since=moment)
    if not found:
        return BranchVerdict(Keep.NO_POLICY)
    due, name = min(found, key=lambda pair: pair[0])
    return BranchVerdict(Keep.NOT_CROSSED, policy=name, due=None if due == END_OF_TIME else due)


def _later(moment: datetime, seconds: int) -> datetime:
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return END_OF_TIME
