"""Ranges and metaranges by id, and refs dumps."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from datetime import timezone

from lakeplan.formats.namespace import metadata_key
from lakeplan.formats.range_data import is_file_id
from lakeplan.sandbox.dumps import dump_refs
from lakeplan.sandbox.messages import ApiError, Request, Response, bad_request, json_response, not_found
from lakeplan.sandbox.routing import Route
from lakeplan.sandbox.service import Service

DUMP_TASK = "dump"
NO_PRESIGN = "local adapter presigned URL: operation not supported"


def get_object(service: Service, request: Request) -> Response:
    """The file; with ``presign`` a redirect to a link, whether or not the file is there."""
    repository = service.repository(request)
    if request.params["type"] not in ("range", "meta_range"):
        raise bad_request('parameter "type" in path has an error: value is not one of the allowed values')
    id = request.params["id"]
    if request.flag("presign"):
        if not service.options.presign:
            raise bad_request(NO_PRESIGN)
        key = metadata_key(id)
        url = service.presigner.link(request.base_url, repository.id, key, service.now())
        return Response(302, b"", {"Location": url})
    # A server looks for no more than a file of that name; only ids can be one here.
    data = service.namespace(repository).read(metadata_key(id)) if is_file_id(id) else None
    if data is None:
        raise ApiError(410, "No data")
    return Response(200, data, {"Content-Type": "application/octet-stream"})


def get_location(service: Service, request: Request) -> Response:
    """Where the file of an id would be: a server does not look whether it is."""
    service.repository(request)
    location = metadata_key(request.params["id"])
    return json_response(200, {"location": location}, {"Location": location})


def dump(service: Service, request: Request) -> Response:
    ids = dump_refs(service, service.repository(request), manifest=True)
    return json_response(201, asdict(ids))


def start_dump(service: Service, request: Request) -> Response:
    """The task is done at once; the answers are those of a task. It writes no manifest."""
    repository = service.repository(request)
    ids = dump_refs(service, repository, manifest=False)
    task = "DR" + secrets.token_urlsafe(15)
    status = {"done": True, "id": task, "refs": asdict(ids), "update_time": timestamp(service)}
    service.settings.put_document(repository.id, DUMP_TASK, task, status)
    return json_response(202, {"id": task})


def dump_status(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    status = service.settings.document(repository.id, DUMP_TASK, request.required("task_id"))
    if status is None:
        raise not_found()
    return json_response(200, status)


def timestamp(service: Service) -> str:
    """RFC 3339 in UTC, as tasks and pull requests have it."""
    moment = service.options.clock().astimezone(timezone.utc)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


ROUTES = (
    Route("GET", "/repositories/{repository}/metadata/object/{type}/{id}", get_object),
    Route("GET", "/repositories/{repository}/metadata/meta_range/{id}", get_location),
    Route("GET", "/repositories/{repository}/metadata/range/{id}", get_location),
    Route("PUT", "/repositories/{repository}/refs/dump", dump),
    Route("POST", "/repositories/{repository}/dump", start_dump),
    Route("GET", "/repositories/{repository}/dump", dump_status),
)
