"""Commits, the log, and writes that make a commit: merge, revert, cherry-pick."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from lakeplan.model.refs import Commit
from lakeplan.model.repository import Repository
from lakeplan.sandbox import committing
from lakeplan.sandbox.graph import log
from lakeplan.sandbox.messages import (
    NO_CONTENT,
    ApiError,
    Request,
    Response,
    bad_request,
    json_response,
    not_found,
    page,
)
from lakeplan.sandbox.protection import CANNOT_COMMIT, check_not_protected
from lakeplan.sandbox.routing import Route
from lakeplan.sandbox.service import Service


def shown(commit: Commit) -> dict[str, object]:
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


def get_commit(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    try:
        return json_response(200, shown(service.commit_of(repository, request.params["commit"])))
    except ApiError as error:
        raise not_found("commit not found") if error.status == 404 else error from None


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
    return page([shown(c) for c in chosen], has_more=more, next_offset=chosen[-1].id if chosen else "")


def create_commit(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    branch = request.params["branch"]
    body = request.object()
    message = body.string("message")
    service.records.branch(repository.id, branch)
    check_not_protected(service, repository, branch, CANNOT_COMMIT)
    commit = committing.commit_staged(
        service,
        repository,
        branch,
        message=message,
        metadata=body.mapping("metadata", {}),
        date=body.integer("date") if body.has("date") else None,
        allow_empty=body.boolean("allow_empty"),
    )
    return json_response(201, shown(commit))


def merge(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    branch = request.params["branch"]
    body = request.object(optional=True)
    service.records.branch(repository.id, branch)
    try:
        commit = committing.merge_into(
            service,
            repository,
            request.params["ref"],
            branch,
            message=body.string("message", ""),
            metadata=body.mapping("metadata", {}),
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


def revert(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    branch = request.params["branch"]
    body = request.object()
    overrides = body.child("commit_overrides") if body.has("commit_overrides") else None
    service.records.branch(repository.id, branch)
    committing.revert(
        service,
        repository,
        branch,
        body.string("ref"),
        parent_number=body.integer("parent_number"),
        message=overrides.string("message", "") if overrides else "",
        metadata=overrides.mapping("metadata", {}) if overrides else {},
        allow_empty=body.boolean("allow_empty"),
    )
    return NO_CONTENT


def cherry_pick(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    branch = request.params["branch"]
    body = request.object()
    overrides = body.child("commit_overrides") if body.has("commit_overrides") else None
    service.records.branch(repository.id, branch)
    commit = committing.cherry_pick(
        service,
        repository,
        branch,
        body.string("ref"),
        parent_number=body.integer("parent_number") if body.has("parent_number") else None,
        message=overrides.string("message", "") if overrides else "",
        metadata=overrides.mapping("metadata") if overrides and overrides.has("metadata") else None,
    )
    return json_response(201, shown(commit))


def _ref(service: Service, repository: Repository, ref: str, what: str) -> str:
    try:
        return service.resolve(repository, ref).commit_id
    except ApiError as error:
        raise ApiError(error.status, f"{what}: {error.message}") from None


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


ROUTES = (
    Route("GET", "/repositories/{repository}/commits/{commit}", get_commit),
    Route("GET", "/repositories/{repository}/refs/{ref}/commits", log_commits),
    Route("POST", "/repositories/{repository}/branches/{branch}/commits", create_commit),
    Route("POST", "/repositories/{repository}/refs/{ref}/merge/{branch}", merge),
    Route("POST", "/repositories/{repository}/branches/{branch}/revert", revert),
    Route("POST", "/repositories/{repository}/branches/{branch}/cherry-pick", cherry_pick),
)
