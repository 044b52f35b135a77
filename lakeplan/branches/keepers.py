"""Finds reasons to keep a branch that a policy would delete: settings, uncommitted changes and holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from lakeplan.branches.recall import Readers
from lakeplan.branches.verdicts import takes
from lakeplan.errors import LakeplanError
from lakeplan.formats.ranges import read_metarange
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.retention.keep import commits_named, names_branch, needed_branches, own_commits
from lakeplan.retention.patterns import matches
from lakeplan.review.strictness import all_holds
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.branches import NOTHING_STAGED, BranchOutlook, Keep, StagedData
from lakeplan.values.desired import BranchSettings, DesiredRepository, Policy
from lakeplan.values.repository import Refs
from lakeplan.values.sweep import Hold

_DIALECT = re.compile(r"\[[^\]]*\]?|\{[^}]*\}?|\\.?|[\]},!^]")
"""Syntax in globs of branch protection rules, other than ``*``, ``?`` and the characters of branch names."""

_NEVER = datetime.min.replace(tzinfo=timezone.utc)


def is_exempt(branch_id: str, settings: BranchSettings) -> bool:
    return any(matches(branch_id, pattern) for pattern in settings.exempt)


def is_protected(branch_id: str, patterns: Iterable[str]) -> bool:
    """Whether a branch protection rule may match a branch. The syntax of these globs differs from that of
    policies: every class, group and escape counts as ``*``, which matches at least as much."""
    return any(p == branch_id or matches(branch_id, _DIALECT.sub("*", p)) for p in patterns)


def keeper_of(
    outlook: BranchOutlook,
    settings: BranchSettings,
    *,
    merged: bool | None = None,
    protected: Iterable[str] = (),
) -> Keep | None:
    """The first setting that keeps a branch, if any. ``merged`` None: unknown, so ``require_merged`` keeps
    the branch. ``protected`` are the patterns of the repository's branch protection rules."""
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
    """The same branch, kept for this reason. The policy that would delete it, and since when, stay
    visible."""
    return replace(outlook, verdict=replace(outlook.verdict, kept_by=why))


def spare_newest(
    outlooks: Mapping[str, BranchOutlook], policies: Sequence[Policy], min_keep: int
) -> dict[str, BranchOutlook]:
    """The branches with ``min_keep`` applied: at least this many of the branches that a policy matches are
    kept, whichever policy would delete them. The last written ones are kept, then the first by name."""
    after = dict(outlooks)
    if not min_keep:
        return after
    for policy in policies:
        matched = [o for o in after.values() if takes(policy, o.id)]
        kept = sum(1 for o in matched if not o.verdict.deletes)
        expired = sorted(
            (o for o in matched if o.verdict.deletes),
            key=lambda o: (-(o.facts.last_write or o.facts.created or _NEVER).timestamp(), o.id),
        )
        for outlook in expired[: max(0, min_keep - kept)]:
            after[outlook.id] = keep(outlook, Keep.MIN_KEEP)
    return after


WrittenAt = Callable[[str], "datetime | None"]
"""Returns when the object at a path was written, or None if it is gone."""


@dataclass(frozen=True)
class UncommittedWrites:
    """The uncommitted changes of a branch. ``written``: they count as a write at this moment (epoch seconds).
    ``staged_at``: the time of their newest object."""

    data: StagedData
    written: int | None = None
    staged_at: int | None = None


def uncommitted_writes(
    data: StagedData, before: str | None, now: int, written_at: WrittenAt | None
) -> UncommittedWrites:
    """When uncommitted changes count as written. ``before`` is their fingerprint at the last inspection
    (None: there was none). They count as written now if they differ from the last inspection, if there are
    more than are listed, if a deletion is new, or if an object vanished while it was read. Otherwise the
    times of the objects count. ``written_at`` None: times are not needed, because any uncommitted change
    keeps the branch."""
    known = before == data.fingerprint
    if before is not None and not known:
        return UncommittedWrites(data, written=now)
    if data.fingerprint == NOTHING_STAGED:
        return UncommittedWrites(data)
    if data.more or (not known and any(c.kind == "removed" for c in data.changes)):
        return UncommittedWrites(data, written=now)
    if written_at is None:
        return UncommittedWrites(data)
    newest = 0
    for change in data.changes:
        if change.kind == "removed":
            continue
        moment = written_at(change.path)
        if moment is None:
            return UncommittedWrites(data, written=now)
        newest = max(newest, int(moment.timestamp()))
    return UncommittedWrites(data, staged_at=newest or None)


MAX_OWN_COMMITS = 200
"""If a branch has more commits of its own, its metaranges are not read, and any held prefix keeps it."""


def with_other_names(
    desired: DesiredRepository, tree: DesiredTree, readers: Callable[[str], Readers]
) -> DesiredRepository:
    """The repository with the holds of its other entries: another server in the tree may be the same server
    under another host name. A server that does not answer counts as a different one."""
    named = [tree.find(server, desired.name) for server in tree.servers if server != desired.server]
    others = [other for other in named if other is not None and other.holds]
    holds = desired.holds
    identity = _identity(readers, desired) if others else None
    for other in others:
        if identity is not None and _identity(readers, other) == identity:
            holds = all_holds(holds, other.holds)
    return replace(desired, holds=holds)


def _identity(readers: Callable[[str], Readers], desired: DesiredRepository) -> tuple[int, str] | None:
    """A repository's identity under any name, or None if its server does not answer."""
    try:
        repository = readers(desired.server).refs.get_repository(desired.name)
    except LakeplanError:
        return None
    return repository.creation_date, repository.storage_namespace


def held_branches(
    holds: Sequence[Hold],
    refs: Refs,
    leaving: Mapping[str, BranchOutlook],
    metadata: MetadataReader,
    *,
    named: Collection[str] = (),
) -> set[str]:
    """The names of those branches in ``leaving``, which would be deleted together, that ``holds`` keep.
    ``named`` are commits that holds named before. Raises the errors of reading metadata."""
    prefixes = tuple(hold.name for hold in holds if hold.kind == "prefix")
    names = {name for name in leaving if names_branch(holds, name)}
    names |= {name for name, outlook in leaving.items() if prefixes and _stages(outlook, prefixes)}
    leaving_still = leaving.keys() - names
    if prefixes and leaving_still:
        names |= _with_paths(refs, leaving_still, prefixes, metadata)
    if prefixes or any(hold.kind == "commit" for hold in holds):
        # A branch that was created while the refs were read has an unknown history.
        names |= leaving.keys() - {branch.id for branch in refs.branches}
    held = {commit for hold in holds for commit in commits_named(hold, refs)}.union(named)
    return names | needed_branches(refs, leaving.keys() - names, held)


def _stages(outlook: BranchOutlook, prefixes: tuple[str, ...]) -> bool:
    """Whether uncommitted changes are, or may be, below a held prefix."""
    staged = outlook.staged
    return staged is not None and (
        staged.more or any(change.path.startswith(prefixes) for change in staged.changes)
    )


def _with_paths(
    refs: Refs, leaving: Iterable[str], prefixes: Sequence[str], metadata: MetadataReader
) -> set[str]:
    """Branches whose own commits have a range, not in the commits before them, that may contain a path below
    a prefix."""
    commits = {commit.id: commit for commit in refs.commits}
    ranges: dict[str, frozenset[str]] = {}

    def below(commit_id: str) -> frozenset[str]:
        metarange = commits[commit_id].meta_range_id
        if metarange not in ranges:
            ranges[metarange] = _ranges_below(metarange, prefixes, metadata)
        return ranges[metarange]

    matching = set()
    for name, ids in own_commits(refs, set(leaving)).items():
        if len(ids) > MAX_OWN_COMMITS:
            matching.add(name)
            continue
        before = {p for commit in ids for p in commits[commit].parents if p in commits} - ids
        known = frozenset[str]().union(*map(below, before))
        if any(below(commit) - known for commit in ids):
            matching.add(name)
    return matching


def _ranges_below(metarange: str, prefixes: Sequence[str], metadata: MetadataReader) -> frozenset[str]:
    if not metarange:
        return frozenset()
    keys = [prefix.encode(errors="surrogateescape") for prefix in prefixes]
    listed = read_metarange(metadata.read_metadata("meta_range", metarange), name=metarange)
    return frozenset(
        info.id
        for info in listed
        if any(info.max_key >= key and (info.min_key <= key or info.min_key.startswith(key)) for key in keys)
    )
