"""What keeps a branch that a policy lets go: the ``lifecycle`` settings of the tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from lakeplan.core.globs import matches
from lakeplan.core.lifecycle.verdicts import takes
from lakeplan.model.branches import BranchOutlook, Keep
from lakeplan.model.lifecycle import LifecycleSettings, Policy

_DIALECT = re.compile(r"\[[^\]]*\]?|\{[^}]*\}?|\\.?|[\]},!^]")
"""What a glob of a branch protection rule may have beside ``*``, ``?`` and characters of branch names."""

_NEVER = datetime.min.replace(tzinfo=timezone.utc)


def is_exempt(branch_id: str, settings: LifecycleSettings) -> bool:
    return any(matches(branch_id, pattern) for pattern in settings.exempt)


def is_protected(branch_id: str, patterns: Iterable[str]) -> bool:
    """Whether a branch protection rule may match a branch. Rules are globs of another dialect than policies:
    every class, group and escape counts as ``*``, which matches all that it could mean."""
    return any(p == branch_id or matches(branch_id, _DIALECT.sub("*", p)) for p in patterns)


def keeper_of(
    outlook: BranchOutlook,
    settings: LifecycleSettings,
    *,
    merged: bool | None = None,
    protected: Iterable[str] = (),
) -> Keep | None:
    """The first setting that keeps a branch. ``merged`` None: it is not known, which keeps a branch under
    ``require_merged``. ``protected`` are the patterns of the repository's branch protection rules."""
    if is_exempt(outlook.id, settings):
        return Keep.EXEMPT
    staged = outlook.staged
    if settings.keep_with_uncommitted and staged is not None and (staged.changes or staged.more):
        return Keep.UNCOMMITTED
    if settings.keep_with_open_pull_request and outlook.pulls:
        return Keep.OPEN_PULL_REQUEST
    if settings.keep_protected and is_protected(outlook.id, protected):
        return Keep.PROTECTED
    if settings.require_merged and merged is not True:
        return Keep.NOT_MERGED
    return None


def keep(outlook: BranchOutlook, why: Keep) -> BranchOutlook:
    """The same branch, staying. The policy that would let it go, and since when, remain to be seen."""
    return replace(outlook, verdict=replace(outlook.verdict, kept_by=why))


def spare_newest(
    outlooks: Mapping[str, BranchOutlook], policies: Sequence[Policy], min_keep: int
) -> dict[str, BranchOutlook]:
    """``min_keep``: of the branches that a policy matches at least so many stay, whichever policy would be
    the deleter; what is spared is what was written last (then: the first by name)."""
    after = dict(outlooks)
    if not min_keep:
        return after
    for policy in policies:
        matched = [o for o in after.values() if takes(policy, o.id)]
        staying = sum(1 for o in matched if not o.verdict.goes)
        going = sorted(
            (o for o in matched if o.verdict.goes),
            key=lambda o: (-(o.facts.last_write or o.facts.created or _NEVER).timestamp(), o.id),
        )
        for outlook in going[: max(0, min_keep - staying)]:
            after[outlook.id] = keep(outlook, Keep.MIN_KEEP)
    return after
