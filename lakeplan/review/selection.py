"""Selects the repositories of a command, and reads their histories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from lakeplan.errors import LakeplanError, NotFound, RepositoryNotFound, UsageError
from lakeplan.formats.refs import read_refs
from lakeplan.lakefs.protocols import LakeFSReader, MetadataReader
from lakeplan.retention.graph import CommitGraph, missing_heads
from lakeplan.retention.patterns import REPOSITORY_NAMES, matches, names_repository, share_a_name
from lakeplan.tree.tree import DesiredTree, Tree
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.pins import may_be_pin
from lakeplan.values.plan import Failure, Plan, RepositoryPlan
from lakeplan.values.repository import Branch, Commit, Refs, RefsDumpIds, Repository


@dataclass(frozen=True)
class Selection:
    """Selects repositories by globs over ``name`` or ``server/name``, an owner and a server. An empty
    selection selects all."""

    targets: tuple[str, ...] = ()
    owner: str | None = None
    server: str | None = None

    def takes(self, repository: DesiredRepository) -> bool:
        return self.takes_named(repository.server, repository.name, repository.owner)

    def takes_named(self, server: str, name: str, owner: str | None) -> bool:
        if self.server is not None and server != self.server:
            return False
        if self.owner is not None and owner != self.owner:
            return False
        return not self.targets or any(names_repository(t, server, name) for t in self.targets)

    def takes_key(self, key: str) -> bool:
        """Return whether ``server/name`` is selected, regardless of its owner."""
        server, _, name = key.partition("/")
        return self.takes_named(server, name, self.owner)

    def may_take(self, glob: DesiredRepository) -> bool:
        """Return whether a repository that a glob names (``DesiredTree.globs``) may be selected."""
        if self.server not in (None, glob.server) or self.owner not in (None, glob.owner):
            return False
        return not self.targets or any(_share(target, glob) for target in self.targets)

    @property
    def everything(self) -> bool:
        return not self.targets and self.owner is None and self.server is None


def _share(target: str, glob: DesiredRepository) -> bool:
    server, slash, name = target.rpartition("/")
    return (not slash or matches(glob.server, server)) and share_a_name(name, glob.name, REPOSITORY_NAMES)


def check_server(tree: DesiredTree, server: str | None) -> None:
    """Raises UsageError if the tree does not have the server."""
    if server is not None and server not in tree.servers:
        raise UsageError(f"the tree has no server {server!r}", hint=f"Use one of {', '.join(tree.servers)}.")


def one_repository(tree: Tree, repository: str) -> tuple[str, str]:
    """(server, name) of ``name`` or ``server/name``. A repository that no entry names is looked up on the
    tree's only server. Raises UsageError when several servers could be meant."""
    server, slash, name = repository.rpartition("/")
    if slash:
        check_server(tree, server)
        return server, name
    servers = tree.servers_of(repository) or list(tree.servers)
    if len(servers) != 1:
        raise UsageError(
            f"repository {repository!r} may be on any of several servers: {', '.join(servers)}",
            hint=f"Include the server, for example {servers[0]}/{repository}",
        )
    return servers[0], repository


def find_repository(tree: Tree, reader: LakeFSReader, server: str, name: str) -> Repository:
    """The repository on its server. Raises UsageError when neither the server nor the tree knows the name,
    ServerError (RepositoryNotFound) when the tree names it and the server has none."""
    try:
        return reader.get_repository(name)
    except RepositoryNotFound as error:
        if name in tree.directory.exact_names(server):
            raise
        raise UsageError(error.message, where=error.where, hint=error.hint) from error


def targeted(plan: Plan, globs: Sequence[str], plan_file: Path) -> list[RepositoryPlan]:
    """Repositories of a plan that ``--target`` names. Raises UsageError when it names none of them."""
    matching = [r for r in plan.repositories if any(names_repository(g, r.server, r.name) for g in globs)]
    if globs and not matching:
        raise UsageError(
            "no repository in the plan matches --target",
            where=str(plan_file),
            hint=f"Run `lakeplan show {plan_file}` to list their names. Quote globs, for example 'team-*'.",
        )
    return matching


def lost_globs(tree: DesiredTree, server: str, selection: Selection) -> list[DesiredRepository]:
    """Globs that may name selected repositories on a server that cannot be listed. They are reported as
    failed if nothing else on the server is, so that omitted repositories do not pass for inspected ones."""
    return [glob for glob in tree.globs(server) if selection.may_take(glob)]


def failure_of(error: LakeplanError) -> Failure:
    return Failure(error.message, where=error.where, hint=error.hint, exit_code=int(error.exit_code))


RefsReader: TypeAlias = Callable[[], tuple[Refs, tuple[str, ...]]]
"""Returns refs, and a description of what could not be read (see ``read_all_refs``)."""


def read_graph(
    reader: LakeFSReader, repository: str, *, read_only: bool
) -> tuple[CommitGraph, tuple[str, ...]]:
    """Return the commit graph, and a description of what could not be read (see ``read_all_refs``)."""
    refs, blind_to = read_all_refs(reader, repository, read_only=read_only)
    return CommitGraph.from_refs(refs), blind_to


def read_all_refs(reader: LakeFSReader, repository: str, *, read_only: bool) -> tuple[Refs, tuple[str, ...]]:
    """Return commits, branches and tags, and a description of what could not be read.

    A refs dump has everything, including dangling commits. Under load, a HEAD can be missing from the dump,
    and is then fetched (lakefs/api.md). ``read_only`` requests no dump and reads the logs instead. Raises
    ServerError, StorageError or FormatError.
    """
    if read_only:
        return _refs_from_logs(reader, repository), (DANGLING_UNSEEN,)
    ids = reader.dump_refs(repository)
    return read_dump(reader, repository, ids, reader.metadata_reader(repository)), ()


def read_dump(reader: LakeFSReader, repository: str, ids: RefsDumpIds, metadata: MetadataReader) -> Refs:
    """Return the refs of a dump, completed with HEADs that it lacks. Raises like ``read_all_refs``."""
    return _with_missing_heads(reader, repository, read_refs(ids, metadata.read_metadata))


DANGLING_UNSEEN = "commits that no branch or tag reaches (--read-only requests no refs dump)"


def _with_missing_heads(reader: LakeFSReader, repository: str, refs: Refs) -> Refs:
    """Adds HEADs, and their ancestors, that were created while the dump was written."""
    known = {c.id for c in refs.commits}
    added: list[Commit] = []
    wanted = list(missing_heads(refs))
    while wanted:
        commit_id = wanted.pop()
        if commit_id in known:
            continue
        try:
            commit = reader.get_commit(repository, commit_id)
        except NotFound as error:
            raise _on_branch(error, refs, commit_id) from error
        known.add(commit.id)
        added.append(commit)
        wanted.extend(parent for parent in commit.parents if parent not in known)
    return replace(refs, commits=(*refs.commits, *added)) if added else refs


def _on_branch(error: NotFound, refs: Refs, commit_id: str) -> LakeplanError:
    """Return the error, with the branch whose HEAD the server does not find."""
    branch = next((branch.id for branch in refs.branches if branch.commit_id == commit_id), None)
    if branch is None or isinstance(error, RepositoryNotFound):
        return error
    return error.replaced(
        message=f"branch {branch} is at commit {commit_id[:12]}: {error.message}",
        hint="If this error persists for ten minutes, delete the branch. lakeFS created it at a commit that"
        " does not exist, and lakeFS garbage collection would crash the server.",
    )


def _refs_from_logs(reader: LakeFSReader, repository: str) -> Refs:
    pins = (Branch(pin.id, pin.commit_id) for pin in reader.list_pins(repository) if may_be_pin(pin))
    branches = (*reader.list_branches(repository), *pins)
    tags = tuple(reader.list_tags(repository))
    commits: dict[str, Commit] = {}
    for head in (*(b.commit_id for b in branches), *(t.commit_id for t in tags)):
        if head in commits:
            continue
        for commit in reader.log_commits(repository, head):
            commits[commit.id] = commit
    return Refs(tuple(commits.values()), branches, tags)
