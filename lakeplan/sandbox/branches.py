"""Handlers of branches, tags and commits."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from lakeplan.sandbox import committing
from lakeplan.sandbox.committing import Place, Words
from lakeplan.sandbox.graph import log
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
    page,
    paged,
    prefixed,
)
from lakeplan.sandbox.records import BranchRecord
from lakeplan.sandbox.service import (
    CANNOT_COMMIT,
    CANNOT_WRITE,
    PROTECTED,
    Service,
    check_not_protected,
    route,
)
from lakeplan.values.repository import Commit, Repository, Tag

_RESET_TYPES = ("object", "common_prefix", "reset")


def shown_branch(service: Service, branch: BranchRecord) -> dict[str, object]:
    """A branch as answers show it. Only the Enterprise flavour knows when it was made and last written."""
    answer: dict[str, object] = {"commit_id": branch.commit_id, "id": branch.id}
    if service.enterprise:
        answer |= {"creation_date": branch.created, "update_date": branch.updated}
    return answer


@route("GET", "/repositories/{repository}/branches")
def list_branches(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    found = service.records.branches(repository.id, show_hidden=request.flag("show_hidden"))
    return paged(request, [(b.id, shown_branch(service, b)) for b in found])


@route("GET", "/repositories/{repository}/branches/{branch}")
def get_branch(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    return json_response(
        200, shown_branch(service, service.records.branch(repository.id, request.params["branch"]))
    )


@route("POST", "/repositories/{repository}/branches")
def create_branch(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    body = request.object()
    name, source = body.string("name"), body.string("source")
    check_branch_name(name)
    with prefixed(f"source reference '{source}'"):
        commit_id = service.resolve(repository, source).commit_id
    service.records.add_branch(repository.id, name, commit_id, hidden=body.boolean("hidden"))
    return Response(201, commit_id.encode(), {"Content-Type": "text/plain; charset=utf-8"})


@route("DELETE", "/repositories/{repository}/branches/{branch}")
def delete_branch(service: Service, request: Request) -> Response:
    """Staged changes go with the branch; its commits stay and dangle. Protection does not stop it."""
    repository = service.writable(request)
    branch = request.params["branch"]
    if branch == repository.default_branch:
        raise ApiError(403, "cannot delete repository default branch")
    service.records.branch(repository.id, branch)
    service.staging.clear(repository.id, branch)
    service.records.drop_branch(repository.id, branch)
    return NO_CONTENT


@route("PUT", "/repositories/{repository}/branches/{branch}")
def reset_staged(service: Service, request: Request) -> Response:
    """Forgets staged changes: of an object, of a prefix, or all."""
    repository = service.writable(request)
    branch = request.params["branch"]
    body = request.object()
    kind = body.string("type")
    if kind not in _RESET_TYPES:
        raise body.fault("type", f"value is not one of the allowed values {list(_RESET_TYPES)}")
    service.records.branch(repository.id, branch)
    check_not_protected(service, repository, branch, CANNOT_WRITE)
    _forget(service, repository, branch, kind, body)
    service.records.touch_branch(repository.id, branch)
    return NO_CONTENT


@route("PUT", "/repositories/{repository}/branches/{branch}/hard_reset")
def hard_reset(service: Service, request: Request) -> Response:
    """Moves a branch to another commit. What is uncommitted stays staged, over the new commit."""
    repository = service.writable(request)
    branch, ref = request.params["branch"], request.required("ref")
    service.records.branch(repository.id, branch)
    check_not_protected(service, repository, branch, PROTECTED)
    with prefixed(f"hard-reset {branch} to {ref}"):
        commit_id = service.resolve(repository, ref).commit_id
    service.records.move_branch(repository.id, branch, commit_id)
    return NO_CONTENT


def _forget(service: Service, repository: Repository, branch: str, kind: str, body: Fields) -> None:
    if kind == "reset":
        service.staging.clear(repository.id, branch)
        return
    path = body.string("path", "")
    for staged in service.staging.changes(repository.id, branch):
        if staged == path or (kind == "common_prefix" and staged.startswith(path)):
            service.staging.forget(repository.id, branch, staged)


def shown_tag(tag: Tag) -> dict[str, object]:
    return {"commit_id": tag.commit_id, "id": tag.id}


@route("GET", "/repositories/{repository}/tags")
def list_tags(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    return paged(request, [(tag.id, shown_tag(tag)) for tag in service.records.tags(repository.id)])


@route("POST", "/repositories/{repository}/tags")
def create_tag(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    body = request.object()
    name, ref = body.string("id"), body.string("ref")
    check_tag_name(name)
    tag = Tag(name, service.resolve(repository, ref).commit_id)
    service.records.add_tag(repository.id, tag)
    return json_response(201, shown_tag(tag))


@route("GET", "/repositories/{repository}/tags/{tag}")
def get_tag(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    return json_response(200, shown_tag(service.records.tag(repository.id, request.params["tag"])))


@route("DELETE", "/repositories/{repository}/tags/{tag}")
def delete_tag(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    service.records.drop_tag(repository.id, request.params["tag"])
    return NO_CONTENT


def shown_commit(commit: Commit) -> dict[str, object]:
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


@route("GET", "/repositories/{repository}/commits/{commit}")
def get_commit(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    try:
        return json_response(200, shown_commit(service.commit_of(repository, request.params["commit"])))
    except ApiError as error:
        raise not_found("commit not found") if error.status == 404 else error from None


@route("GET", "/repositories/{repository}/refs/{ref}/commits")
def log_commits(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    start = _ref(service, repository, request.params["ref"], "ref")
    stop = _ref(service, repository, request.text("stop_at"), "stop_at") if request.text("stop_at") else ""
    commits = log(service.records, repository.id, start, first_parent=request.flag("first_parent"))
    after, amount = request.text("after"), request.amount
    if after:
        after_id = _ref(service, repository, after, "from ref")
        for commit in commits:
            if commit.id == after_id:
                break
    since = _since(request.text("since"))
    found: list[Commit] = []
    for commit in islice(commits, amount + 1):
        if commit.creation_us < since:
            break
        found.append(commit)
        if commit.id == stop:
            break
    more = len(found) > amount and not request.flag("limit")
    chosen = found[:amount]
    return page([shown_commit(c) for c in chosen], has_more=more, next_offset=chosen[-1].id if chosen else "")


@route("POST", "/repositories/{repository}/branches/{branch}/commits")
def create_commit(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    branch = request.params["branch"]
    body = request.object()
    message = body.string("message")
    service.records.branch(repository.id, branch)
    check_not_protected(service, repository, branch, CANNOT_COMMIT)
    commit = committing.commit_staged(
        Place(service, repository, branch),
        Words(message, body.mapping("metadata", {})),
        date=body.integer("date") if body.has("date") else None,
        allow_empty=body.boolean("allow_empty"),
    )
    return json_response(201, shown_commit(commit))


@route("POST", "/repositories/{repository}/refs/{ref}/merge/{branch}")
def merge(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    branch = request.params["branch"]
    body = request.object(optional=True)
    service.records.branch(repository.id, branch)
    try:
        commit = committing.merge_into(
            Place(service, repository, branch),
            request.params["ref"],
            Words(body.string("message", ""), body.mapping("metadata", {})),
            strategy=body.string("strategy", ""),
            allow_empty=body.boolean("allow_empty") or body.boolean("force"),
            squash=body.boolean("squash_merge"),
        )
    except ApiError as error:
        if error.status == 409:
            # The one conflict that a server reports without a message.
            return json_response(409, {"reference": ""})
        raise
    return json_response(200, {"reference": commit.id})


@route("POST", "/repositories/{repository}/branches/{branch}/revert")
def revert(service: Service, request: Request) -> Response:
    place, body, overrides = _overriding(service, request)
    committing.revert(
        place,
        body.string("ref"),
        parent_number=body.integer("parent_number"),
        words=_words(overrides),
        allow_empty=body.boolean("allow_empty"),
    )
    return NO_CONTENT


@route("POST", "/repositories/{repository}/branches/{branch}/cherry-pick")
def cherry_pick(service: Service, request: Request) -> Response:
    place, body, overrides = _overriding(service, request)
    commit = committing.cherry_pick(
        place,
        body.string("ref"),
        parent_number=body.integer("parent_number") if body.has("parent_number") else None,
        words=_words(overrides),
    )
    return json_response(201, shown_commit(commit))


def _overriding(service: Service, request: Request) -> tuple[Place, Fields, Fields | None]:
    """Where to, the body, and what in it the new commit is to say."""
    repository = service.writable(request)
    branch = request.params["branch"]
    body = request.object()
    overrides = body.child("commit_overrides") if body.has("commit_overrides") else None
    service.records.branch(repository.id, branch)
    return Place(service, repository, branch), body, overrides


def _words(fields: Fields | None) -> Words:
    if fields is None:
        return Words()
    message = fields.string("message", "")
    return Words(message, fields.mapping("metadata") if fields.has("metadata") else None)


def _ref(service: Service, repository: Repository, ref: str, what: str) -> str:
    with prefixed(what):
        return service.resolve(repository, ref).commit_id


def _since(text: str) -> int:
    """Epoch microseconds of an RFC 3339 time; without one, before everything."""
    if not text:
        return -(2**63)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise bad_request('parameter "since" in query has an error: it is no RFC 3339 time') from None
    if moment.tzinfo is None:
        raise bad_request('parameter "since" in query has an error: it has no time zone')
    return int(moment.timestamp() * 1_000_000)
