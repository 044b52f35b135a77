"""Commits: of staged changes, merges, reverts and cherry-picks, with the refusals of a real server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from lakeplan.formats.refs import compute_commit_id
from lakeplan.sandbox import graph
from lakeplan.sandbox.graph import merge_base
from lakeplan.sandbox.messages import ApiError, bad_request, not_found, prefixed
from lakeplan.sandbox.service import Service
from lakeplan.values.objects import Entry
from lakeplan.values.repository import Commit, Repository

STRATEGY_KEY = ".lakefs.merge.strategy"
NO_CHANGES = "no changes"


def head_tree(service: Service, repository: Repository, branch: str) -> graph.Tree:
    """What the branch's HEAD holds."""
    head = service.records.branch(repository.id, branch).commit_id
    return tree_of(service, repository, service.records.commit(repository.id, head))


def tree_of(service: Service, repository: Repository, commit: Commit) -> graph.Tree:
    return service.trees.load(service.namespace(repository), commit.meta_range_id)


def visible_tree(service: Service, repository: Repository, ref: str) -> graph.Tree:
    """What a reference shows: staged changes over the HEAD when it is a branch."""
    resolved = service.resolve(repository, ref)
    tree = tree_of(service, repository, service.records.commit(repository.id, resolved.commit_id))
    if resolved.branch is None:
        return tree
    changes = service.staging.changes(repository.id, resolved.branch.id)
    return graph.apply_changes(tree, changes) if changes else tree


def find_entry(service: Service, repository: Repository, ref: str, path: str) -> Entry:
    """The object that a reference shows at a path. Raises ApiError 404."""
    resolved = service.resolve(repository, ref)
    if resolved.branch is not None:
        staged, entry = service.staging.find(repository.id, resolved.branch.id, path)
        if staged and entry is None:
            raise not_found()
        if entry is not None:
            return entry
    commit = service.records.commit(repository.id, resolved.commit_id)
    found = tree_of(service, repository, commit).get(path)
    if found is None:
        raise not_found()
    return found


def effective_changes(service: Service, repository: Repository, branch: str) -> dict[str, Entry | None]:
    """Staged changes that change anything: not the same object again, no deletion of nothing."""
    tree = head_tree(service, repository, branch)
    changes = service.staging.changes(repository.id, branch)
    return {path: entry for path, entry in changes.items() if not graph.same(tree.get(path), entry)}


@dataclass(frozen=True)
class Place:
    """The branch that a new commit goes to."""

    service: Service
    repository: Repository
    branch: str

    def clean_head(self) -> Commit:
        """The HEAD. Raises ApiError 400 when changes are uncommitted over it."""
        head = self.service.records.branch(self.repository.id, self.branch).commit_id
        if effective_changes(self.service, self.repository, self.branch):
            raise bad_request("uncommitted changes (dirty branch)")
        return self.service.records.commit(self.repository.id, head)

    def commit_by_ref(self, ref: str) -> Commit:
        with prefixed(f"get commit from ref {ref}"):
            return self.service.commit_of(self.repository, ref)

    def advance(self, commit: Commit) -> Commit:
        """Makes a commit the HEAD; nothing stays staged."""
        self.service.records.add_commit(self.repository.id, commit)
        self.service.records.move_branch(self.repository.id, self.branch, commit.id)
        self.service.staging.clear(self.repository.id, self.branch)
        return commit


@dataclass(frozen=True)
class Words:
    """What a caller gives a new commit to say; without them it says what a server would."""

    message: str = ""
    metadata: Mapping[str, str] | None = None


def commit_staged(place: Place, words: Words, *, date: int | None, allow_empty: bool) -> Commit:
    """Commits what is uncommitted. ``date`` is epoch seconds and may lie anywhere; None is now."""
    service, repository = place.service, place.repository
    branch = service.records.branch(repository.id, place.branch)
    head = service.records.commit(repository.id, branch.commit_id)
    changes = effective_changes(service, repository, branch.id)
    if not changes and not allow_empty:
        raise bad_request(f"commit: {NO_CHANGES}")
    meta_range_id = head.meta_range_id
    if changes or not meta_range_id:
        tree = graph.apply_changes(tree_of(service, repository, head), changes)
        meta_range_id = service.trees.save(service.namespace(repository), tree)
    return place.advance(_new_commit(service, words, meta_range_id, [head], date))


def merge_into(
    place: Place, source: str, words: Words, *, strategy: str, allow_empty: bool, squash: bool
) -> Commit:
    """Merges a reference into a branch. A conflict is 409, a branch with staged changes 400."""
    service, repository, branch = place.service, place.repository, place.branch
    destination = place.clean_head()
    with prefixed(f"update branch {branch}: get commit by ref {source}"):
        theirs = service.commit_of(repository, source)
    if strategy not in get_args(graph.Strategy):
        raise bad_request("argument strategy: invalid value: validation error")
    base = merge_base(service.records, repository.id, theirs.id, destination.id)
    if base is None:
        raise bad_request(f"update branch {branch}: no merge base")
    if theirs.meta_range_id == base.meta_range_id and not allow_empty:
        raise bad_request(f"update branch {branch}: {NO_CHANGES}")
    meta_range_id = _merged(service, repository, base, destination, theirs, strategy)
    message = words.message or f"Merge '{source}' into '{branch}'"
    metadata = {**(words.metadata or {}), STRATEGY_KEY: strategy or "default"}
    parents = [destination] if squash else [destination, theirs]
    commit = _new_commit(service, Words(message, metadata), meta_range_id, parents)
    # A squash is as deep as what it squashes.
    generation = max(destination.generation, theirs.generation) + 1
    return place.advance(replace(commit, generation=generation))


def revert(place: Place, ref: str, words: Words, *, parent_number: int, allow_empty: bool) -> Commit:
    """Undoes one commit on a branch by a new one."""
    service, repository = place.service, place.repository
    commit = place.commit_by_ref(ref)
    if len(commit.parents) > 1 and parent_number <= 0:
        raise ApiError(409, "must specify 1-based parent number for reverting merge commit")
    parent = _parent_of(service, repository, commit, max(parent_number, 1))
    head = place.clean_head()
    before = parent.meta_range_id if parent else ""
    if before == commit.meta_range_id and not allow_empty:
        raise bad_request(f"update branch: {NO_CHANGES}")
    # Merging the parent, with the commit itself as the base, takes its changes back.
    undone = replace(commit, meta_range_id=before)
    meta_range_id = _merged(service, repository, commit, head, undone, "")
    said = Words(words.message or f"Revert {ref}", words.metadata)
    return place.advance(_new_commit(service, said, meta_range_id, [head]))


def cherry_pick(place: Place, ref: str, words: Words, *, parent_number: int | None) -> Commit:
    """Brings the changes of one commit to a branch."""
    service, repository = place.service, place.repository
    commit = place.commit_by_ref(ref)
    if len(commit.parents) > 1 and parent_number is None:
        raise ApiError(409, "must specify 1-based parent number for cherry-picking merge commit")
    head = place.clean_head()
    base = _parent_of(service, repository, commit, parent_number or 1)
    base = base or replace(commit, meta_range_id="")
    if base.meta_range_id == commit.meta_range_id:
        raise bad_request(f"update branch: {NO_CHANGES}")
    meta_range_id = _merged(service, repository, base, head, commit, "")
    origin = {"cherry-pick-origin": commit.id, "cherry-pick-committer": commit.committer}
    taken = dict(commit.metadata) if words.metadata is None else dict(words.metadata)
    said = Words(words.message or commit.message, {**taken, **origin})
    return place.advance(_new_commit(service, said, meta_range_id, [head]))


def first_commit(service: Service) -> Commit:
    """The commit that a new repository starts with: it holds nothing and nobody made it."""
    commit = _new_commit(service, Words("Repository created"), "", [])
    return _named(replace(commit, committer=""))


def _parent_of(service: Service, repository: Repository, commit: Commit, number: int) -> Commit | None:
    if not commit.parents:
        return None
    if number > len(commit.parents):
        raise bad_request(f"given commit does not have the given parent number: parent {number}")
    return service.records.commit(repository.id, commit.parents[number - 1])


def _merged(
    service: Service, repository: Repository, base: Commit, ours: Commit, theirs: Commit, strategy: str
) -> str:
    """The metarange of a three-way merge."""
    if ours.meta_range_id == base.meta_range_id:
        return theirs.meta_range_id
    trees = [tree_of(service, repository, commit) for commit in (base, ours, theirs)]
    chosen: graph.Strategy = (
        "source-wins" if strategy == "source-wins" else "dest-wins" if strategy == "dest-wins" else ""
    )
    try:
        merged = graph.merge(trees[0], trees[1], trees[2], chosen)
    except graph.MergeConflict:
        raise ApiError(409, "update branch: conflict found") from None
    return service.trees.save(service.namespace(repository), merged)


def _new_commit(
    service: Service, words: Words, meta_range_id: str, parents: Sequence[Commit], date: int | None = None
) -> Commit:
    return _named(
        Commit(
            id="",
            creation_us=service.now_us() if date is None else date * 1_000_000,
            meta_range_id=meta_range_id,
            parents=tuple(parent.id for parent in parents),
            version=1,
            generation=max((parent.generation for parent in parents), default=0) + 1,
            message=words.message,
            committer=service.user,
            metadata=tuple(sorted((words.metadata or {}).items())),
        )
    )


def _named(commit: Commit) -> Commit:
    return replace(commit, id=compute_commit_id(commit))
