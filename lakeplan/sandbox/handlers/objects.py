"""Objects of a branch or reference: upload, read, stat, copy, delete."""

from __future__ import annotations

import hashlib
import re
from email.utils import formatdate

from lakeplan.model.objects import AddressType, Entry
from lakeplan.model.repository import Repository
from lakeplan.sandbox import committing
from lakeplan.sandbox.addresses import full_address, read_object
from lakeplan.sandbox.messages import NO_CONTENT, ApiError, Request, Response, json_response, not_found
from lakeplan.sandbox.multipart import read_part
from lakeplan.sandbox.naming import missing_branch
from lakeplan.sandbox.protection import CANNOT_WRITE, check_not_protected
from lakeplan.sandbox.routing import Route
from lakeplan.sandbox.service import Service

DEFAULT_CONTENT_TYPE = "application/octet-stream"
MAX_PATHS_TO_DELETE = 1000
_METADATA_HEADER = "x-lakefs-meta-"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


def shown(service: Service, repository: Repository, entry: Entry) -> dict[str, object]:
    return {
        "checksum": entry.e_tag,
        "content_type": entry.content_type,
        "metadata": dict(entry.metadata),
        "mtime": entry.last_modified_us // 1_000_000,
        "path": entry.path,
        "path_type": "object",
        "physical_address": full_address(service, repository, entry),
        "size_bytes": entry.size,
    }


def upload(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    branch, path = request.params["branch"], request.required("path")
    if service.records.find_branch(repository.id, branch) is None:
        raise missing_branch(branch)
    _check_conditions(service, repository, request, branch, path)
    check_not_protected(service, repository, branch, CANNOT_WRITE)
    content_type = request.headers.get("content-type", "") or DEFAULT_CONTENT_TYPE
    data = request.body
    if content_type.startswith("multipart/form-data"):
        data, content_type = read_part(data, content_type, "content")
    metadata = {
        name[len(_METADATA_HEADER) :]: value
        for name, value in request.headers.items()
        if name.startswith(_METADATA_HEADER)
    }
    entry = store_object(service, repository, path, data, content_type, metadata)
    stage(service, repository, branch, entry)
    return json_response(201, shown(service, repository, entry))


def store_object(
    service: Service,
    repository: Repository,
    path: str,
    data: bytes,
    content_type: str,
    metadata: dict[str, str],
) -> Entry:
    """Writes the bytes to a new address of the namespace."""
    address = service.object_paths.new()
    service.namespace(repository).write(address, data)
    return Entry(
        path=path,
        address=address,
        address_type=AddressType.RELATIVE,
        size=len(data),
        last_modified_us=service.now_us(),
        e_tag=hashlib.md5(data, usedforsecurity=False).hexdigest(),
        content_type=content_type,
        metadata=tuple(sorted(metadata.items())),
    )


def stage(service: Service, repository: Repository, branch: str, entry: Entry) -> None:
    service.staging.put(repository.id, branch, entry.path, entry)
    service.records.touch_branch(repository.id, branch)


def get_object(service: Service, request: Request) -> Response:
    """The bytes, or 410 when the collector took them: the one answer that proves they are there."""
    repository = service.repository(request)
    entry = committing.find_entry(service, repository, request.params["ref"], request.required("path"))
    data = read_object(service, repository, entry)
    headers = _headers(entry)
    if data is None:
        raise ApiError(410, "No data", headers={"ETag": headers["ETag"]})
    headers["Content-Disposition"] = "attachment"
    wanted = _RANGE.fullmatch(request.headers.get("range", ""))
    if not wanted:
        return Response(200, data, headers)
    first, last = int(wanted[1]), min(int(wanted[2] or len(data) - 1), len(data) - 1)
    if first > last:
        raise ApiError(416, "Requested Range Not Satisfiable")
    headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
    return Response(206, data[first : last + 1], headers)


def head_object(service: Service, request: Request) -> Response:
    """Metadata only: it says 200 for collected objects too."""
    repository = service.repository(request)
    entry = committing.find_entry(service, repository, request.params["ref"], request.required("path"))
    return Response(
        200, b"", {**_headers(entry), "Accept-Ranges": "bytes", "Content-Length": str(entry.size)}
    )


def stat_object(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    entry = committing.find_entry(service, repository, request.params["ref"], request.required("path"))
    return json_response(200, shown(service, repository, entry))


def copy_object(service: Service, request: Request) -> Response:
    """A copy has bytes of its own, at a new address."""
    repository = service.writable(request)
    branch, path = request.params["branch"], request.required("dest_path")
    body = request.object()
    source = body.string("src_path")
    if service.records.find_branch(repository.id, branch) is None:
        raise missing_branch(branch)
    check_not_protected(service, repository, branch, CANNOT_WRITE)
    if body.boolean("shallow"):
        raise ApiError(501, "Not Implemented")
    entry = committing.find_entry(service, repository, body.string("src_ref", "") or branch, source)
    data = read_object(service, repository, entry)
    if data is None:
        raise ApiError(410, "No data")
    copied = store_object(service, repository, path, data, entry.content_type, dict(entry.metadata))
    stage(service, repository, branch, copied)
    return json_response(201, shown(service, repository, copied))


def delete_object(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    branch, path = request.params["branch"], request.required("path")
    service.records.branch(repository.id, branch)
    check_not_protected(service, repository, branch, CANNOT_WRITE)
    _delete(service, repository, branch, path)
    return NO_CONTENT


def delete_objects(service: Service, request: Request) -> Response:
    """Several at once. What is not there, branch included, is no error."""
    repository = service.writable(request)
    branch, paths = request.params["branch"], request.object().strings("paths")
    if len(paths) > MAX_PATHS_TO_DELETE:
        raise ApiError(400, f"request size exceeded, max paths is set to {MAX_PATHS_TO_DELETE}")
    if service.records.find_branch(repository.id, branch) is None:
        return json_response(200, {"errors": []})
    try:
        check_not_protected(service, repository, branch, CANNOT_WRITE)
    except ApiError as error:
        errors = [{"message": error.message, "path": path, "status_code": error.status} for path in paths]
        return json_response(200, {"errors": errors})
    for path in paths:
        _delete(service, repository, branch, path)
    return json_response(200, {"errors": []})


def _delete(service: Service, repository: Repository, branch: str, path: str) -> None:
    if path in committing.head_tree(service, repository, branch):
        service.staging.put(repository.id, branch, path, None)
    else:
        service.staging.forget(repository.id, branch, path)
    service.records.touch_branch(repository.id, branch)


def _headers(entry: Entry) -> dict[str, str]:
    return {
        "Content-Type": entry.content_type or DEFAULT_CONTENT_TYPE,
        "ETag": f'"{entry.e_tag}"',
        "Last-Modified": formatdate(entry.last_modified_us / 1_000_000, usegmt=True),
    }


def _check_conditions(
    service: Service, repository: Repository, request: Request, branch: str, path: str
) -> None:
    """``If-None-Match: *`` and ``If-Match: <ETag>`` of an upload."""
    none_match, match = request.headers.get("if-none-match"), request.headers.get("if-match")
    if none_match is None and match is None:
        return
    if none_match not in (None, "*"):
        raise ApiError(400, 'Unsupported value for If-None-Match - Only "*" is supported')
    present: Entry | None
    try:
        present = committing.find_entry(service, repository, branch, path)
    except ApiError as error:
        if error.status != 404:
            raise
        present = None
    if none_match and present is not None:
        raise ApiError(412, "path already exists")
    if match is not None and (present is None or present.e_tag != match.strip('"')):
        raise ApiError(412, "Precondition failed") if present else not_found()


ROUTES = (
    Route("POST", "/repositories/{repository}/branches/{branch}/objects", upload),
    Route("DELETE", "/repositories/{repository}/branches/{branch}/objects", delete_object),
    Route("POST", "/repositories/{repository}/branches/{branch}/objects/delete", delete_objects),
    Route("POST", "/repositories/{repository}/branches/{branch}/objects/copy", copy_object),
    Route("GET", "/repositories/{repository}/refs/{ref}/objects", get_object),
    Route("HEAD", "/repositories/{repository}/refs/{ref}/objects", head_object),
    Route("GET", "/repositories/{repository}/refs/{ref}/objects/stat", stat_object),
)
