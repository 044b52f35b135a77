"""``/repositories`` and the key-value map on a repository."""

from __future__ import annotations

from lakeplan.model.repository import Repository
from lakeplan.sandbox.committing import first_commit
from lakeplan.sandbox.messages import (
    NO_CONTENT,
    ApiError,
    Request,
    Response,
    bad_request,
    json_response,
    paged,
)
from lakeplan.sandbox.naming import check_branch_name, check_repository_name
from lakeplan.sandbox.routing import Route
from lakeplan.sandbox.service import Service
from lakeplan.sandbox.settings import METADATA


def shown(repository: Repository) -> dict[str, object]:
    return {
        "creation_date": repository.creation_date,
        "default_branch": repository.default_branch,
        "id": repository.id,
        "read_only": repository.read_only,
        "storage_id": repository.storage_id,
        "storage_namespace": repository.storage_namespace,
    }


def list_repositories(service: Service, request: Request) -> Response:
    return paged(request, [(r.id, shown(r)) for r in service.records.repositories()])


def create_repository(service: Service, request: Request) -> Response:
    body = request.object()
    name, url = body.string("name"), body.string("storage_namespace")
    default_branch = body.string("default_branch", "main") or "main"
    check_repository_name(name)
    check_branch_name(default_branch)
    repository = Repository(
        name, url, default_branch, service.now(), body.string("storage_id", ""), body.boolean("read_only")
    )
    namespace = service.namespaces.open(url)
    service.records.add_repository(repository)
    bare = request.flag("bare")
    if not bare:
        if namespace.in_use:
            raise bad_request(
                f"failed to create repository: found lakeFS objects in the storage ({url}): "
                "storage namespace already in use"
            )
        namespace.claim()
        commit = first_commit(service)
        service.records.add_commit(name, commit)
        service.records.add_branch(name, default_branch, commit.id)
    answer = shown(repository)
    if bare:
        del answer["read_only"]
    return json_response(201, answer)


def get_repository(service: Service, request: Request) -> Response:
    check_repository_name(request.params["repository"])
    return json_response(200, shown(service.repository(request)))


def delete_repository(service: Service, request: Request) -> Response:
    """The state goes; the files of the namespace stay, as on a real server."""
    repository = service.repository(request)
    if repository.read_only and not request.flag("force"):
        raise ApiError(403, "read-only repository")
    service.records.drop_repository(repository.id)
    return NO_CONTENT


def get_metadata(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    return json_response(200, service.settings.get(repository.id, METADATA) or {})


def set_metadata(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    added = request.object().mapping("metadata")
    present = service.settings.get(repository.id, METADATA) or {}
    service.settings.put(repository.id, METADATA, {**present, **added})
    return NO_CONTENT


def delete_metadata(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    gone = set(request.object().strings("keys"))
    present = service.settings.get(repository.id, METADATA) or {}
    service.settings.put(repository.id, METADATA, {k: v for k, v in present.items() if k not in gone})
    return NO_CONTENT


ROUTES = (
    Route("GET", "/repositories", list_repositories),
    Route("POST", "/repositories", create_repository),
    Route("GET", "/repositories/{repository}", get_repository),
    Route("DELETE", "/repositories/{repository}", delete_repository),
    Route("GET", "/repositories/{repository}/metadata", get_metadata),
    Route("POST", "/repositories/{repository}/metadata", set_metadata),
    Route("DELETE", "/repositories/{repository}/metadata", delete_metadata),
)
