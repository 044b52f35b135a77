"""Which branches legal holds keep: those they name, and those that alone lead to what they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from lakeplan.branches.recall import Readers
from lakeplan.errors import LakeplanError
from lakeplan.formats.ranges import read_metarange
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.retention.keep import commits_named, names_branch, needed_branches, own_commits
from lakeplan.review.strictness import all_holds
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.branches import BranchOutlook
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.repository import Refs
from lakeplan.values.sweep import Hold

MAX_OWN_COMMITS = 200
"""Of a branch with more commits of its own the metaranges are not read: a held prefix keeps it."""


def with_other_names(
    desired: DesiredRepository, tree: DesiredTree, readers: Callable[[str], Readers]
) -> DesiredRepository:
    """The repository with what other entries hold of it: another server of the tree may be this one by
    another name of its host. A server that does not answer is none."""
    others = [
        other
        for server in tree.servers
        if server != desired.server
        for other in tree.resolve(server, [desired.name])
        if other.name == desired.name and other.holds
    ]
    found = desired.holds
    ours = _identity(readers, desired) if others else None
    for other in others:
        if ours is not None and _identity(readers, other) == ours:
            found = all_holds(found, other.holds)
    return replace(desired, holds=found)


def _identity(readers: Callable[[str], Readers], desired: DesiredRepository) -> tuple[int, str] | None:
    """What two names of one repository share; None where its server does not say."""
    try:
        repository = readers(desired.server).refs.get_repository(desired.name)
    except LakeplanError:
        return None
    return repository.creation_date, repository.storage_namespace


def held_branches(
    holds: Sequence[Hold], refs: Refs, leaving: Mapping[str, BranchOutlook], metadata: MetadataReader
) -> set[str]:
    """Of the branches that would be deleted together, those that unexpired holds keep. Raises what reading
    metadata raises."""
    prefixes = tuple(hold.name for hold in holds if hold.kind == "prefix")
    found = {name for name in leaving if names_branch(holds, name)}
    found |= {name for name, outlook in leaving.items() if prefixes and _stages(outlook, prefixes)}
    leaving_still = leaving.keys() - found
    if prefixes and leaving_still:
        found |= _with_paths(refs, leaving_still, prefixes, metadata)
    if prefixes or any(hold.kind == "commit" for hold in holds):
        # made while the refs were read: what it leads to is not known
        found |= leaving.keys() - {branch.id for branch in refs.branches}
    named = {commit for hold in holds for commit in commits_named(hold, refs)}
    return found | needed_branches(refs, leaving.keys() - found, named)


def _stages(outlook: BranchOutlook, prefixes: tuple[str, ...]) -> bool:
    """Whether uncommitted changes are below a held prefix, as far as their listing shows."""
    staged = outlook.staged
    return staged is not None and (
        staged.more or any(change.path.startswith(prefixes) for change in staged.changes)
    )


def _with_paths(
    refs: Refs, leaving: Iterable[str], prefixes: Sequence[str], metadata: MetadataReader
) -> set[str]:
    """Branches of whose own commits some range may have a path below a prefix that the commits before them do
    not have."""
    commits = {commit.id: commit for commit in refs.commits}
    ranges: dict[str, frozenset[str]] = {}

    def below(commit_id: str) -> frozenset[str]:
        metarange = commits[commit_id].meta_range_id
        if metarange not in ranges:
            ranges[metarange] = _ranges_below(metarange, prefixes, metadata)
        return ranges[metarange]

    found = set()
    for name, own in own_commits(refs, set(leaving)).items():
        if len(own) > MAX_OWN_COMMITS:
            found.add(name)
            continue
        before = {p for commit in own for p in commits[commit].parents if p in commits} - own
        known = frozenset[str]().union(*map(below, before))
        if any(below(commit) - known for commit in own):
            found.add(name)
    return found


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
