"""The server about itself, and pull requests."""

from __future__ import annotations

from lakeplan.sandbox.handlers.metadata import timestamp
from lakeplan.sandbox.messages import Request, Response, bad_request, json_response, not_found, paged
from lakeplan.sandbox.namespaces import SCHEME
from lakeplan.sandbox.routing import Route
from lakeplan.sandbox.service import Service

VERSION = "1.84.0-sandbox"
ENTERPRISE_VERSION = "1.108.0-sandbox"
PULL = "pull"


def version_of(service: Service) -> dict[str, str]:
    """``version_context`` is what tells the flavours apart."""
    if service.enterprise:
        return {"version": ENTERPRISE_VERSION, "version_context": "lakeFS-Enterprise"}
    return {"version": VERSION, "version_context": "lakeFS"}


def get_version(service: Service, request: Request) -> Response:
    return json_response(200, version_of(service))


def get_config(service: Service, request: Request) -> Response:
    return json_response(
        200,
        {
            "capabilities_config": {},
            "storage_config": _storage(service),
            "storage_config_list": [],
            "ui_config": {},
            "version_config": version_of(service),
        },
    )


def get_storage(service: Service, request: Request) -> Response:
    return json_response(200, _storage(service))


def healthcheck(service: Service, request: Request) -> Response:
    return Response(204)


def _storage(service: Service) -> dict[str, object]:
    return {
        "blockstore_description": "",
        "blockstore_id": "",
        "blockstore_namespace_ValidityRegex": f"^{SCHEME}",
        "blockstore_namespace_example": f"{SCHEME}example-bucket/",
        "blockstore_type": "local",
        "default_namespace_prefix": SCHEME,
        "import_support": False,
        "import_validity_regex": f"^{SCHEME}",
        "pre_sign_multipart_upload": False,
        "pre_sign_support": service.options.presign,
        "pre_sign_support_ui": False,
    }


def list_pulls(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    status = request.text("status", "open")
    if status not in ("open", "closed", "all"):
        raise bad_request('parameter "status" in query has an error: value is not one of the allowed values')
    found = service.settings.documents(repository.id, PULL)
    return paged(request, [(id, pull) for id, pull in found if status in ("all", pull["status"])])


def create_pull(service: Service, request: Request) -> Response:
    """Deleting the source branch later does not close it."""
    repository = service.writable(request)
    body = request.object()
    source, destination = body.string("source_branch"), body.string("destination_branch")
    for branch in (source, destination):
        service.records.branch(repository.id, branch)
    id = service.xids.descending()
    pull = {
        "status": "open",
        "title": body.string("title"),
        "description": body.string("description", ""),
        "author": service.user,
        "creation_date": timestamp(service),
        "destination_branch": destination,
        "id": id,
        "source_branch": source,
    }
    service.settings.put_document(repository.id, PULL, id, pull)
    return json_response(201, {"id": id})


def get_pull(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    pull = service.settings.document(repository.id, PULL, request.params["pull"])
    if pull is None:
        raise not_found()
    return json_response(200, pull)


ROUTES = (
    Route("GET", "/config/version", get_version),
    Route("GET", "/config", get_config),
    Route("GET", "/config/storage", get_storage),
    Route("GET", "/healthcheck", healthcheck, public=True),
    Route("GET", "/repositories/{repository}/pulls", list_pulls),
    Route("POST", "/repositories/{repository}/pulls", create_pull),
    Route("GET", "/repositories/{repository}/pulls/{pull}", get_pull),
)
