"""Handlers of branches, tags and commits, with the refusals of a real server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import islice
from typing import get_args

from lakeplan.formats.refs import compute_commit_id
from lakeplan.sandbox import graph
from lakeplan.sandbox.messages import (
    NO_CONTENT,
    ApiError,
    Fields,
    Request,
    Response,
    bad_request,
    check_branch_name,
    check_tag_name,
    json_response,
    not_found,
    on_repository,
    on_writable,
    page,
    paged,
    prefixed,
)
from lakeplan.sandbox.service import CANNOT_COMMIT, CANNOT_WRITE, PROTECTED, OpenRepository, Service
from lakeplan.sandbox.state import BranchRecord
from lakeplan.values.repository import Commit, Tag

STRATEGY_KEY = ".lakefs.merge.strategy"
NO_CHANGES = "no changes"
_RESET_TYPES = ("object", "common_prefix", "reset")
_STRATEGIES: Mapping[str, graph.Strategy] = {name: name for name in get_args(graph.Strategy)}


def branch_row(repo: OpenRepository, branch: BranchRecord) -> dict[str, object]:
    """A branch in an answer. Only the Enterprise flavour has its creation and last write."""
    row: dict[str, object] = {"commit_id": branch.commit_id, "id": branch.id}
    if repo.service.enterprise:
        row |= {"creation_date": branch.created, "update_date": branch.updated}
    return row


@on_repository("GET", "/branches")
def list_branches(repo: OpenRepository, request: Request) -> Response:
    branches = repo.branches(show_hidden=request.flag("show_hidden"))
    return paged(request, [(b.id, branch_row(repo, b)) for b in branches])


@on_repository("GET", "/branches/{branch}")
def get_branch(repo: OpenRepository, request: Request, branch: str) -> Response:
    return json_response(200, branch_row(repo, repo.branch(branch)))


@on_writable("POST", "/branches")
def create_branch(repo: OpenRepository, request: Request) -> Response:
    body = request.object()
    name, source = body.string("name"), body.string("source")
    check_branch_name(name)
    with prefixed(f"source reference '{source}'"):
        commit_id = repo.resolve(source).commit_id
    repo.add_branch(name, commit_id, hidden=body.boolean("hidden"))
    return Response(201, commit_id.encode(), {"Content-Type": "text/plain; charset=utf-8"})


@on_writable("DELETE", "/branches/{branch}")
def delete_branch(repo: OpenRepository, request: Request, branch: str) -> Response:
    """Deletes a branch with its staged changes, so that its commits dangle. Ignores protection."""
    if branch == repo.info.default_branch:
        raise ApiError(403, "cannot delete repository default branch")
    repo.branch(branch)
    repo.unstage_all(branch)
    repo.drop_branch(branch)
    return NO_CONTENT


@on_writable("PUT", "/branches/{branch}")
def reset_staged(repo: OpenRepository, request: Request, branch: str) -> Response:
    """Discards staged changes of an object, of a prefix, or all."""
    body = request.object()
    kind = body.string("type")
    if kind not in _RESET_TYPES:
        raise body.fault("type", f"value is not one of the allowed values {list(_RESET_TYPES)}")
    repo.branch(branch)
    repo.check_not_protected(branch, CANNOT_WRITE)
    path = "" if kind == "reset" else body.string("path", "")
    for staged in repo.staged(branch):
        if staged == path or (kind != "object" and staged.startswith(path)):
            repo.unstage(branch, staged)
    repo.touch_branch(branch)
    return NO_CONTENT


@on_writable("PUT", "/branches/{branch}/hard_reset")
def hard_reset(repo: OpenRepository, request: Request, branch: str) -> Response:
    """Moves a branch to another commit. Uncommitted changes stay staged, on top of the new commit."""
    ref = request.required("ref")
    repo.branch(branch)
    repo.check_not_protected(branch, PROTECTED)
    with prefixed(f"hard-reset {branch} to {ref}"):
        commit_id = repo.resolve(ref).commit_id
    repo.move_branch(branch, commit_id)
    return NO_CONTENT


@on_repository("GET", "/tags")
def list_tags(repo: OpenRepository, request: Request) -> Response:
    return paged(request, [(tag.id, asdict(tag)) for tag in repo.tags()])


@on_writable("POST", "/tags")
def create_tag(repo: OpenRepository, request: Request) -> Response:
    body = request.object()
    name, ref = body.string("id"), body.string("ref")
    check_tag_name(name)
    tag = Tag(name, repo.resolve(ref).commit_id)
    repo.add_tag(tag)
    return json_response(201, asdict(tag))


@on_repository("GET", "/tags/{tag}")
def get_tag(repo: OpenRepository, request: Request, tag: str) -> Response:
    return json_response(200, asdict(repo.tag(tag)))


@on_writable("DELETE", "/tags/{tag}")
def delete_tag(repo: OpenRepository, request: Request, tag: str) -> Response:
    repo.drop_tag(tag)
    return NO_CONTENT


def commit_row(commit: Commit) -> dict[str, object]:
    return {
        "committer": commit.committer,
        "creation_date": commit.creation_us // 1_000_000,
        "generation": commit.generation,
        "id": commit.id,
        "message": commit.message,
        "meta_range_id": commit.meta_range_id,
        "metadata": dict(commit.metadata),
        "parents": list(commit.parents),
        "version": commit.version,
    }


@on_repository("GET", "/commits/{commit}")
def get_commit(repo: OpenRepository, request: Request, commit: str) -> Response:
    try:
        return json_response(200, commit_row(repo.commit_of(commit)))
    except ApiError as error:
        raise not_found("commit not found") if error.status == 404 else error from None


@on_repository("GET", "/refs/{ref}/commits")
def log_commits(repo: OpenRepository, request: Request, ref: str) -> Response:
    def commit_id(ref: str, what: str) -> str:
        with prefixed(what):
            return repo.resolve(ref).commit_id

    start = commit_id(ref, "ref")
    stop = commit_id(request.text("stop_at"), "stop_at") if request.text("stop_at") else ""
    commits = graph.log(repo, start, first_parent=request.flag("first_parent"))
    after, amount = request.text("after"), request.amount
    if after:
        after_id = commit_id(after, "from ref")
        for commit in commits:
            if commit.id == after_id:
                break
    since = _since(request.text("since"))
    log: list[Commit] = []
    for commit in islice(commits, amount + 1):
        if commit.creation_us < since:
            break
        log.append(commit)
        if commit.id == stop:
            break
    more = len(log) > amount and not request.flag("limit")
    chosen = log[:amount]
    return page([commit_row(c) for c in chosen], has_more=more, next_offset=chosen[-1].id if chosen else "")


def _since(text: str) -> int:
    """Epoch microseconds of an RFC 3339 time. Without a time, a moment before all others."""
    if not text:
        return -(2**63)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise bad_request('parameter "since" in query has an error: it is not an RFC 3339 time') from None
    if moment.tzinfo is None:
        raise bad_request('parameter "since" in query has an error: it has no time zone')
    return int(moment.timestamp() * 1_000_000)


# ---- new commits
@dataclass(frozen=True)
class Texts:
    """The message and metadata that a caller gives a new commit. The server has defaults for empty ones."""

    message: str = ""
    metadata: Mapping[str, str] | None = None


@on_writable("POST", "/branches/{branch}/commits")
def create_commit(repo: OpenRepository, request: Request, branch: str) -> Response:
    """Commits the uncommitted changes. ``date`` is any time in epoch seconds."""
    body = request.object()
    message = body.string("message")
    head = repo.head(branch)
    repo.check_not_protected(branch, CANNOT_COMMIT)
    texts = Texts(message, body.mapping("metadata", {}))
    date = body.integer("date") if body.has("date") else None
    changes = repo.effective_changes(branch)
    if not body.boolean("allow_empty") and not changes:
        raise bad_request(f"commit: {NO_CHANGES}")
    meta_range_id = head.meta_range_id
    if changes or not meta_range_id:
        meta_range_id = repo.save_tree(graph.apply_changes(repo.tree_of(head), changes))
    commit = _new_commit(repo.service, texts, meta_range_id, [head], date)
    return json_response(201, commit_row(_advance(repo, branch, commit)))


@on_writable("POST", "/refs/{ref}/merge/{branch}")
def merge(repo: OpenRepository, request: Request, ref: str, branch: str) -> Response:
    """Merges a reference into a branch. Answers 409 for a conflict, 400 for a branch with staged changes."""
    body = request.object(optional=True)
    repo.branch(branch)
    try:
        return json_response(200, {"reference": _merge(repo, ref, branch, body).id})
    except ApiError as error:
        if error.status == 409:
            # The one conflict that a server reports without a message.
            return json_response(409, {"reference": ""})
        raise


def _merge(repo: OpenRepository, source: str, branch: str, body: Fields) -> Commit:
    message = body.string("message", "") or f"Merge '{source}' into '{branch}'"
    metadata, strategy = body.mapping("metadata", {}), body.string("strategy", "")
    allow_empty = body.boolean("allow_empty") or body.boolean("force")
    squash = body.boolean("squash_merge")
    head = _clean_head(repo, branch)
    with prefixed(f"update branch {branch}: get commit by ref {source}"):
        theirs = repo.commit_of(source)
    if strategy not in _STRATEGIES:
        raise bad_request("argument strategy: invalid value: validation error")
    base = graph.merge_base(repo, theirs.id, head.id)
    if base is None:
        raise bad_request(f"update branch {branch}: no merge base")
    if theirs.meta_range_id == base.meta_range_id and not allow_empty:
        raise bad_request(f"update branch {branch}: {NO_CHANGES}")
    meta_range_id = _merged(repo, base, head, theirs, _STRATEGIES[strategy])
    texts = Texts(message, {**metadata, STRATEGY_KEY: strategy or "default"})
    commit = _new_commit(repo.service, texts, meta_range_id, [head] if squash else [head, theirs])
    # A squash is as deep as what it squashes.
    generation = max(head.generation, theirs.generation) + 1
    return _advance(repo, branch, replace(commit, generation=generation))


@on_writable("POST", "/branches/{branch}/revert")
def revert(repo: OpenRepository, request: Request, branch: str) -> Response:
    """Undoes one commit on a branch by a new one."""
    body = request.object()
    texts, ref = _overrides(repo, branch, body), body.string("ref")
    number, allow_empty = body.integer("parent_number"), body.boolean("allow_empty")
    commit = _commit_by_ref(repo, ref)
    if len(commit.parents) > 1 and number <= 0:
        raise ApiError(409, "must specify 1-based parent number for reverting merge commit")
    parent = _parent_of(repo, commit, max(number, 1)) if number > 0 or commit.parents else None
    head = _clean_head(repo, branch)
    before = parent.meta_range_id if parent else ""
    # Merging the parent, with the commit itself as the base, takes its changes back.
    meta_range_id = _merged(repo, commit, head, replace(commit, meta_range_id=before))
    if meta_range_id == head.meta_range_id and not allow_empty:
        raise bad_request(f"update branch: {NO_CHANGES}")
    texts = Texts(texts.message or f"Revert {ref}", texts.metadata)
    _advance(repo, branch, _new_commit(repo.service, texts, meta_range_id, [head]))
    return NO_CONTENT


@on_writable("POST", "/branches/{branch}/cherry-pick")
def cherry_pick(repo: OpenRepository, request: Request, branch: str) -> Response:
    """Applies the changes of one commit to a branch."""
    body = request.object()
    texts, ref = _overrides(repo, branch, body), body.string("ref")
    number = body.integer("parent_number") if body.has("parent_number") else None
    commit = _commit_by_ref(repo, ref)
    if len(commit.parents) > 1 and number is None:
        raise ApiError(409, "must specify 1-based parent number for cherry-picking merge commit")
    base = _parent_of(repo, commit, number or 1)
    head = _clean_head(repo, branch)
    if base.meta_range_id == commit.meta_range_id:
        raise bad_request(f"update branch: {NO_CHANGES}")
    meta_range_id = _merged(repo, base, head, commit)
    origin = {"cherry-pick-origin": commit.id, "cherry-pick-committer": commit.committer}
    metadata = dict(commit.metadata) if texts.metadata is None else texts.metadata
    texts = Texts(texts.message or commit.message, {**metadata, **origin})
    picked = _new_commit(repo.service, texts, meta_range_id, [head])
    return json_response(201, commit_row(_advance(repo, branch, picked)))


def first_commit(service: Service) -> Commit:
    """The commit that a new repository starts with. It has no objects and no committer."""
    commit = _new_commit(service, Texts("Repository created"), "", [])
    return _named(replace(commit, committer=""))


def _overrides(repo: OpenRepository, branch: str, body: Fields) -> Texts:
    """The message and metadata that a request gives a new commit. Raises ApiError 404 if the branch does not
    exist."""
    fields = body.child("commit_overrides") if body.has("commit_overrides") else Fields({})
    repo.branch(branch)
    return Texts(fields.string("message", ""), fields.mapping("metadata") if fields.has("metadata") else None)


def _commit_by_ref(repo: OpenRepository, ref: str) -> Commit:
    with prefixed(f"get commit from ref {ref}"):
        return repo.commit_of(ref)


def _clean_head(repo: OpenRepository, branch: str) -> Commit:
    """The HEAD of a branch. Raises ApiError 400 if the branch has uncommitted changes."""
    if repo.effective_changes(branch):
        raise bad_request("uncommitted changes (dirty branch)")
    return repo.head(branch)


def _advance(repo: OpenRepository, branch: str, commit: Commit) -> Commit:
    """Makes a commit the HEAD and clears what is staged."""
    repo.add_commit(commit)
    repo.move_branch(branch, commit.id)
    repo.unstage_all(branch)
    return commit


def _parent_of(repo: OpenRepository, commit: Commit, number: int) -> Commit:
    if number > len(commit.parents):
        raise bad_request(f"given commit does not have the given parent number: parent {number}")
    return repo.commit(commit.parents[number - 1])


def _merged(
    repo: OpenRepository, base: Commit, ours: Commit, theirs: Commit, strategy: graph.Strategy = ""
) -> str:
    """The metarange of a three-way merge."""
    if ours.meta_range_id == base.meta_range_id:
        return theirs.meta_range_id
    try:
        merged = graph.merge(repo.tree_of(base), repo.tree_of(ours), repo.tree_of(theirs), strategy)
    except graph.MergeConflict:
        raise ApiError(409, "update branch: conflict found") from None
    return repo.save_tree(merged)


def _new_commit(
    service: Service, texts: Texts, meta_range_id: str, parents: Sequence[Commit], date: int | None = None
) -> Commit:
    return _named(
        Commit(
            id="",
            creation_us=service.now_us() if date is None else date * 1_000_000,
            meta_range_id=meta_range_id,
            parents=tuple(parent.id for parent in parents),
            version=1,
            generation=max((parent.generation for parent in parents), default=0) + 1,
            message=texts.message,
            committer=service.user,
            metadata=tuple(sorted((texts.metadata or {}).items())),
        )
    )


def _named(commit: Commit) -> Commit:
    return replace(commit, id=compute_commit_id(commit))
