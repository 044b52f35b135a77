"""Branches: list, make, delete, and throw staged changes or commits away."""

from __future__ import annotations

from lakeplan.model.repository import Repository
from lakeplan.sandbox.messages import NO_CONTENT, ApiError, Fields, Request, Response, json_response, paged
from lakeplan.sandbox.naming import check_branch_name
from lakeplan.sandbox.protection import CANNOT_WRITE, PROTECTED, check_not_protected
from lakeplan.sandbox.records import BranchRecord
from lakeplan.sandbox.routing import Route
from lakeplan.sandbox.service import Service

_RESET_TYPES = ("object", "common_prefix", "reset")


def shown(service: Service, branch: BranchRecord) -> dict[str, object]:
    """A branch as answers show it. Only the Enterprise flavour knows when it was made and last written."""
    answer: dict[str, object] = {"commit_id": branch.commit_id, "id": branch.id}
    if service.enterprise:
        answer |= {"creation_date": branch.created, "update_date": branch.updated}
    return answer


def list_branches(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    found = service.records.branches(repository.id, show_hidden=request.flag("show_hidden"))
    return paged(request, [(b.id, shown(service, b)) for b in found])


def get_branch(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    return json_response(200, shown(service, service.records.branch(repository.id, request.params["branch"])))


def create_branch(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    body = request.object()
    name, source = body.string("name"), body.string("source")
    check_branch_name(name)
    try:
        commit_id = service.resolve(repository, source).commit_id
    except ApiError as error:
        raise ApiError(error.status, f"source reference '{source}': {error.message}") from None
    service.records.add_branch(repository.id, name, commit_id, hidden=body.boolean("hidden"))
    return Response(201, commit_id.encode(), {"Content-Type": "text/plain; charset=utf-8"})


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


def hard_reset(service: Service, request: Request) -> Response:
    """Moves a branch to another commit. What is staged stays staged, over the new commit."""
    repository = service.writable(request)
    branch, ref = request.params["branch"], request.required("ref")
    service.records.branch(repository.id, branch)
    check_not_protected(service, repository, branch, PROTECTED)
    try:
        commit_id = service.resolve(repository, ref).commit_id
    except ApiError as error:
        raise ApiError(error.status, f"hard-reset {branch} to {ref}: {error.message}") from None
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


ROUTES = (
    Route("GET", "/repositories/{repository}/branches", list_branches),
    Route("POST", "/repositories/{repository}/branches", create_branch),
    Route("GET", "/repositories/{repository}/branches/{branch}", get_branch),
    Route("PUT", "/repositories/{repository}/branches/{branch}", reset_staged),
    Route("DELETE", "/repositories/{repository}/branches/{branch}", delete_branch),
    Route("PUT", "/repositories/{repository}/branches/{branch}/hard_reset", hard_reset),
)
