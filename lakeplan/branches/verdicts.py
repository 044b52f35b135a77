"""Judges branches: from facts and policies to delete or keep (lakefs/branch-lifecycle.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from itertools import product

from lakeplan import limits
from lakeplan.errors import ConfigError
from lakeplan.retention.patterns import BRANCH_NAMES, Budget, TooManyGlobs, is_glob, matches, share_a_name
from lakeplan.values.branches import BranchOutlook, BranchVerdict, Keep
from lakeplan.values.desired import BranchFacts, DesiredRepository, Evidence, PoliciesDesired, Policy
from lakeplan.values.plan import BranchFate
from lakeplan.values.repository import Branch
from lakeplan.values.sweep import Hold
from lakeplan.values.units import parse_cron

END_OF_TIME = datetime.max.replace(tzinfo=timezone.utc)


def with_names(policies: Sequence[Policy] | None) -> list[tuple[str, Policy]]:
    """Every policy with its name for people: its id, or its place in the list."""
    return [(policy.id or f"policy {number}", policy) for number, policy in enumerate(policies or (), 1)]


def check_default_branch(desired: DesiredRepository, default_branch: str) -> None:
    """Raises ConfigError if a pattern matches the default branch (lakefs/branch-lifecycle.md). Its message
    has the pattern, the branch and the place in the tree."""
    setting = desired.branch_lifecycle
    if not isinstance(setting, PoliciesDesired):
        return
    if problems := default_branch_problems(setting.policies, default_branch):
        raise ConfigError(
            "; ".join(problems),
            where=f"{desired.key} at {setting.source}",
            hint="Narrow the pattern. The default branch is never deleted, and servers refuse such policies.",
        )


def default_branch_problems(policies: Sequence[Policy], default_branch: str) -> list[str]:
    """A line with the policy, the pattern and the branch for each pattern that matches the default branch."""
    return [
        f"{name}: its pattern {pattern!r} matches the default branch {default_branch!r}"
        for name, policy in with_names(policies)
        for pattern in policy.patterns
        if matches(default_branch, pattern)
    ]


def takes(policy: Policy, branch_id: str) -> bool:
    """Whether a pattern of the policy matches a branch."""
    return any(matches(branch_id, pattern) for pattern in policy.patterns)


def crossing(policy: Policy, created: datetime, last_write: datetime | None) -> datetime:
    """The moment at which a branch crosses the last threshold of a policy, assuming no new writes. Without a
    recorded last write, the creation time counts."""
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
    """The verdict on a branch. The first matching policy whose thresholds are all crossed deletes it. The
    order of policies has no other effect."""
    if facts.branch_id == default_branch:
        return BranchVerdict(Keep.DEFAULT_BRANCH)
    if read_only:
        return BranchVerdict(Keep.READ_ONLY)
    if facts.created is None:
        return BranchVerdict(Keep.NO_CREATION_TIME)
    crossings = [
        (crossing(policy, facts.created, facts.last_write), name)
        for name, policy in with_names(policies)
        if takes(policy, facts.branch_id)
    ]
    for moment, name in crossings:
        if moment <= as_of:
            return BranchVerdict(None, policy=name, since=moment)
    if not crossings:
        return BranchVerdict(Keep.NO_POLICY)
    due, name = min(crossings, key=lambda pair: pair[0])
    return BranchVerdict(Keep.NOT_CROSSED, policy=name, due=None if due == END_OF_TIME else due)


def _later(moment: datetime, seconds: int) -> datetime:
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return END_OF_TIME


LOOK_AHEAD = timedelta(days=30)
EVEREST = (
    "writes through an Everest mount are not visible until they are synced, so a branch with unsynced writes"
    " may look idle"
)
"""A caveat (lakefs/branch-lifecycle.md): unsynced Everest mounts do not reset the idle clock."""


def facts_of(branch: Branch) -> BranchFacts:
    """Return what an Enterprise server records about a branch. A branch without a creation time is exempt."""
    created, written = _moment(branch.creation_date), _moment(branch.update_date)
    return BranchFacts(
        branch.id,
        branch.commit_id,
        created,
        Evidence.SERVER if created else None,
        written,
        Evidence.SERVER if written else None,
    )


def fates_of(
    branches: Iterable[Branch],
    stored: Sequence[Policy] | None,
    wanted: Sequence[Policy] | None,
    as_of: datetime,
    *,
    default_branch: str,
) -> tuple[BranchFate, ...]:
    """Every branch that the stored or the wanted policies delete within 30 days of ``as_of``, soonest
    first."""
    fates = []
    idle = {name: p.max_idle_seconds is not None for name, p in with_names(wanted)}
    for branch in branches:
        facts = facts_of(branch)
        if facts.created is None:
            continue
        after, policy = _goes_at(facts, wanted or (), as_of, default_branch)
        before, old_policy = _goes_at(facts, stored or (), as_of, default_branch)
        if after is None and before is None:
            continue
        fates.append(
            BranchFate(
                branch.id,
                branch.commit_id,
                facts.created,
                facts.last_write,
                policy or old_policy,
                after,
                before,
                idle=idle.get(policy, False),
            )
        )
    return tuple(sorted(fates, key=lambda f: (f.goes_at is None, f.goes_at or f.before_at, f.branch_id)))


def _goes_at(
    facts: BranchFacts, policies: Sequence[Policy], as_of: datetime, default_branch: str
) -> tuple[datetime | None, str]:
    verdict = judge_branch(facts, policies, as_of, default_branch=default_branch)
    moment = verdict.since if verdict.deletes else verdict.due
    if moment is None or moment > as_of + LOOK_AHEAD:
        return None, ""
    return moment, verdict.policy or ""


def held_deletions(
    holds: Sequence[Hold],
    branches: Iterable[Branch],
    policies: Sequence[Policy],
    as_of: datetime,
    *,
    default_branch: str,
    read_only: bool = False,
) -> tuple[str, ...]:
    """Sentences about branches that policies would delete while one of ``holds`` names them. If no existing
    branch is among them, pairs of a policy's pattern and a hold's glob that could match the same branch."""
    if read_only:
        return ()
    by_branch = [hold for hold in holds if hold.kind == "branch"]
    sentences = []
    for branch in branches:
        named = [hold for hold in by_branch if matches(branch.id, hold.name)]
        going = deleted_while_held(named, [branch], policies, as_of, default_branch=default_branch)
        for verdict in (outlook.verdict for outlook in going.values()):
            at = as_of if verdict.deletes else verdict.due
            sentences.append(f"{branch.id} ({verdict.policy}, at {at:%Y-%m-%d})")
    if sentences:
        return tuple(sentences)
    budget = Budget(limits.GLOB_PAIRS)
    for name, policy in with_names(policies):
        moment = crossing(policy, as_of, as_of)
        globs = [hold for hold in by_branch if is_glob(hold.name) and hold.holds_on(moment.date())]
        for hold, pattern in product(globs, policy.patterns):
            both = f"the hold {hold.name!r} and the pattern {pattern!r} of {name}"
            try:
                budget.spend(len(hold.name) + len(pattern))
                if share_a_name(hold.name, pattern, BRANCH_NAMES):
                    sentences.append(f"any branch that both {both} match")
            except TooManyGlobs:  # too many to compare, so they may match the same branch
                return (
                    *sentences,
                    f"any branch that both {both} match, or that a later pair of hold and pattern matches",
                )
    return tuple(sentences)


def deleted_while_held(
    holds: Sequence[Hold],
    branches: Iterable[Branch],
    policies: Sequence[Policy],
    as_of: datetime,
    *,
    default_branch: str,
) -> dict[str, BranchOutlook]:
    """Branches that policies delete before the last of ``holds`` ends, by name."""
    deleted = {}
    for branch in branches:
        facts = facts_of(branch)
        verdict = judge_branch(facts, policies, as_of, default_branch=default_branch)
        moment = verdict.since if verdict.deletes else verdict.due
        if moment is not None and any(hold.holds_on(max(moment, as_of).date()) for hold in holds):
            deleted[branch.id] = BranchOutlook(facts, verdict)
    return deleted


def first_deletion(
    fates: Iterable[BranchFate], as_of: datetime, schedule: str, zone: tzinfo
) -> datetime | None:
    """The first run of the server's job that deletes a branch, or None if no branch expires soon. Raises
    ValueError for an invalid schedule."""
    moments = [fate.goes_at for fate in fates if fate.goes_at is not None]
    if not moments:
        return None
    # A run at exactly the moment of the crossing deletes the branch.
    start = max(as_of, min(moments)) - timedelta(microseconds=1)
    return parse_cron(schedule).next_after(start, zone)


def _moment(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
