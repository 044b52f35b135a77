"""Reading one repository for a plan: what it is, its stored rules, its branches, its commit graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias, assert_never

from lakeplan.app.gather_holds import idle_holds
from lakeplan.app.gather_settings import gather_settings, server_deletes_held, server_policies
from lakeplan.core.diff import action_of, diff_rules
from lakeplan.core.patterns import expand
from lakeplan.core.retention import CommitGraph, missing_heads
from lakeplan.formats.refs_dump import read_refs
from lakeplan.model.desired import Cleared, DesiredRepository, GcDesired, ServerConfig
from lakeplan.model.plan import Action, Failure, RepositoryPlan
from lakeplan.model.refs import Branch, Commit, Refs, RefsDumpIds
from lakeplan.model.repository import Repository
from lakeplan.model.rules import GcRules
from lakeplan.ports.lakefs import LakeFSReader, MetadataReader

DANGLING_UNSEEN = "commits that no branch or tag reaches (no refs dump under --read-only)"

RefsReader: TypeAlias = Callable[[], tuple[Refs, tuple[str, ...]]]
"""Refs, and what could not be seen, in words (see ``read_all_refs``)."""


@dataclass(frozen=True)
class Gathered:
    """A repository's live state beside what the tree asks for, before any impact is known."""

    desired: DesiredRepository
    repository: Repository
    plan: RepositoryPlan


def gather(
    desired: DesiredRepository,
    reader: LakeFSReader,
    server: ServerConfig,
    *,
    as_of: datetime,
    known: bool,
    read_refs: RefsReader,
    expand_over: frozenset[str] | None = None,
) -> Gathered:
    """Reads what a diff needs. ``known``: an earlier apply recorded the repository. ``read_refs`` is called
    where holds need the history. ``expand_over`` limits pattern expansion to those branches (an apply expands
    over the branches of the plan file). Raises ServerError subclasses; ConfigError for policies that a server
    would not take."""
    repository = reader.get_repository(desired.name)
    before = reader.get_gc_rules(desired.name)
    listed: list[Branch] | None = None
    if (
        desired.gc is not None
        or desired.object_lifecycle is not None
        or server_policies(desired, server)
        or server_deletes_held(desired, server, as_of)
    ):
        listed = list(reader.list_branches(desired.name))
    unheld = idle_holds(desired, reader, None if listed is None else [b.id for b in listed], as_of.date())
    listed = listed or []
    branches = {b.id: b.commit_id for b in listed}
    over = branches.keys() if expand_over is None else expand_over
    after, warnings = _proposed(desired, before, over, branches.keys(), known=known)
    later = _unexpanded(desired, over, branches.keys())
    warnings += _stored_oddities(before, branches.keys()) if desired.gc is not None else []
    settings = gather_settings(
        desired,
        reader,
        server,
        repository,
        listed,
        as_of,
        read_refs=lambda: read_refs()[0],
    )
    warnings += (*settings.warnings, *unheld)
    action = action_of(before, after)
    plan = RepositoryPlan(
        server=desired.server,
        name=desired.name,
        entry=desired.entry,
        endpoint_url=server.endpoint_url,
        config_hash=desired.config_hash,
        action=action,
        before=before,
        after=after,
        managed=desired.gc is not None,
        owner=desired.owner,
        source=str(desired.source) if desired.source else "",
        changes=diff_rules(before, after),
        branches=dict(sorted(branches.items())),
        warnings=tuple(warnings),
        unexpanded=later,
        branch_lifecycle=settings.branch_lifecycle,
        object_lifecycle=settings.object_lifecycle,
        creation_date=repository.creation_date,
        storage_namespace=repository.storage_namespace,
        cost_per_gb_month=server.cost_per_gb_month,
        held_deletions=settings.held_deletions,
    )
    plan = replace(plan, adopted=desired.by_glob and not known and plan.writes)
    if repository.read_only and plan.writes:
        plan = replace(
            plan,
            failure=Failure(
                "the repository is read-only: its rules cannot be changed",
                where=desired.key,
                hint="take it out of the tree, or make it writable on the server",
            ),
        )
    return Gathered(desired, repository, plan)


def failed(desired: DesiredRepository, endpoint_url: str, failure: Failure) -> RepositoryPlan:
    """A repository that could not be read at all."""
    return RepositoryPlan(
        server=desired.server,
        name=desired.name,
        entry=desired.entry,
        endpoint_url=endpoint_url,
        config_hash=desired.config_hash,
        action=Action.NONE,
        before=None,
        after=None,
        managed=desired.gc is not None,
        owner=desired.owner,
        source=str(desired.source) if desired.source else "",
        failure=failure,
    )


def read_graph(
    reader: LakeFSReader, repository: str, *, read_only: bool
) -> tuple[CommitGraph, tuple[str, ...]]:
    """The commit graph, and what could not be seen, in words (see ``read_all_refs``)."""
    refs, blind_to = read_all_refs(reader, repository, read_only=read_only)
    return CommitGraph.from_refs(refs), blind_to


def read_all_refs(reader: LakeFSReader, repository: str, *, read_only: bool) -> tuple[Refs, tuple[str, ...]]:
    """Commits, branches and tags, and what could not be seen, in words.

    A refs dump lists everything, dangling commits too; under load a HEAD can be missing from the dumped
    commits and is then fetched (api.md). ``read_only`` asks for no dump and reads the logs instead.
    Raises ServerError, StorageError or FormatError.
    """
    if read_only:
        return _refs_from_logs(reader, repository), (DANGLING_UNSEEN,)
    ids = reader.dump_refs(repository)
    return read_dump(reader, repository, ids, reader.metadata_reader(repository)), ()


def read_dump(reader: LakeFSReader, repository: str, ids: RefsDumpIds, metadata: MetadataReader) -> Refs:
    """The refs of a dump, with HEADs that it lacks. Raises as ``read_all_refs``."""
    return _with_missing_heads(reader, repository, read_refs(ids, metadata.read_metadata))


def _with_missing_heads(reader: LakeFSReader, repository: str, refs: Refs) -> Refs:
    """Fetches HEADs (and their ancestors) that were made while the dump was written."""
    known = {c.id for c in refs.commits}
    added: list[Commit] = []
    wanted = list(missing_heads(refs))
    while wanted:
        commit_id = wanted.pop()
        if commit_id in known:
            continue
        commit = reader.get_commit(repository, commit_id)
        known.add(commit.id)
        added.append(commit)
        wanted.extend(parent for parent in commit.parents if parent not in known)
    return replace(refs, commits=(*refs.commits, *added)) if added else refs


def _refs_from_logs(reader: LakeFSReader, repository: str) -> Refs:
    branches = tuple(reader.list_branches(repository))
    tags = tuple(reader.list_tags(repository))
    commits: dict[str, Commit] = {}
    for head in (*(b.commit_id for b in branches), *(t.commit_id for t in tags)):
        if head in commits:
            continue
        for commit in reader.log_commits(repository, head):
            commits[commit.id] = commit
    return Refs(tuple(commits.values()), branches, tags)


def _proposed(
    desired: DesiredRepository,
    before: GcRules | None,
    over: Iterable[str],
    live: Iterable[str],
    *,
    known: bool,
) -> tuple[GcRules | None, list[str]]:
    """The rules the tree asks for, and what a reviewer should know of them."""
    match desired.gc:
        case None:
            return before, []
        case Cleared.CLEAR:
            return None, []
        case GcDesired() as gc:
            expansion = expand(gc, over)
            existing = set(live)
            warnings = list(expansion.warnings)
            warnings += [
                f"{rule.source}: rule for branch {rule.name!r}, which does not exist"
                for rule in gc.branches
                if not rule.is_pattern and rule.name not in existing
            ]
            if known:
                warnings += _not_yet_expanded(before, expansion.rules, gc)
            return expansion.rules, warnings
        case _:
            assert_never(desired.gc)


def _unexpanded(desired: DesiredRepository, planned: Iterable[str], live: Iterable[str]) -> dict[str, int]:
    """Branches outside ``planned`` that a pattern would give a rule: reported, not written."""
    if not isinstance(desired.gc, GcDesired):
        return {}
    known, every = set(planned), set(live)
    rules = expand(desired.gc, every).rules
    return {b: rules.branches[b] for b in sorted(every - known) if b in rules.branches}


def _not_yet_expanded(before: GcRules | None, after: GcRules, gc: GcDesired) -> list[str]:
    """Branches that a pattern matches and the stored rules do not name: they appeared since an apply."""
    exact = {rule.name for rule in gc.branches if not rule.is_pattern}
    if before is None or not before.branches:
        return []
    found = [b for b in after.branches if b not in before.branches and b not in exact]
    if not found:
        return []
    names = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    return [f"unexpanded since the last apply, and written by this one: {names}"]


def _stored_oddities(stored: GcRules | None, branches: Iterable[str]) -> list[str]:
    """Values the server stored but should not have (api.md: nothing is validated)."""
    if stored is None:
        return []
    existing = set(branches)
    found = []
    if stored.default_retention_days < 1:
        found.append(f"the server stores {stored.default_retention_days} default days")
    for branch, days in stored.branches.items():
        if days < 1:
            found.append(f"the server stores {days} days for branch {branch!r}")
        if branch not in existing:
            found.append(f"the server stores a rule for branch {branch!r}, which does not exist")
    return found
