"""Handlers of objects: upload, read, stat, copy, delete, staging, listings, diffs."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import replace
from email.utils import formatdate

from lakeplan.formats.namespace import time_of
from lakeplan.sandbox import committing, graph
from lakeplan.sandbox.graph import merge_base
from lakeplan.sandbox.messages import (
    NO_CONTENT,
    ApiError,
    Fields,
    Request,
    Response,
    bad_request,
    json_response,
    not_found,
    page,
    prefixed,
    read_part,
)
from lakeplan.sandbox.service import (
    CANNOT_WRITE,
    Service,
    check_not_protected,
    full_address,
    page_of_paths,
    read_object,
    route,
    stored_form,
)
from lakeplan.values.objects import AddressType, Entry
from lakeplan.values.repository import Repository

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


@route("POST", "/repositories/{repository}/branches/{branch}/objects")
def upload(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    branch, path = request.params["branch"], request.required("path")
    _check_branch(service, repository, branch)
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


@route("GET", "/repositories/{repository}/refs/{ref}/objects")
def get_object(service: Service, request: Request) -> Response:
    """The bytes, or 410 when the collector took them: the one answer that proves they are there."""
    repository, entry = _found(service, request)
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


@route("HEAD", "/repositories/{repository}/refs/{ref}/objects")
def head_object(service: Service, request: Request) -> Response:
    """Metadata only: it says 200 for collected objects too."""
    _, entry = _found(service, request)
    return Response(
        200, b"", {**_headers(entry), "Accept-Ranges": "bytes", "Content-Length": str(entry.size)}
    )


@route("GET", "/repositories/{repository}/refs/{ref}/objects/stat")
def stat_object(service: Service, request: Request) -> Response:
    repository, entry = _found(service, request)
    return json_response(200, shown(service, repository, entry))


@route("POST", "/repositories/{repository}/branches/{branch}/objects/copy")
def copy_object(service: Service, request: Request) -> Response:
    """A copy has bytes of its own, at a new address."""
    repository = service.writable(request)
    branch, path = request.params["branch"], request.required("dest_path")
    body = request.object()
    source = body.string("src_path")
    _check_branch(service, repository, branch)
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


@route("DELETE", "/repositories/{repository}/branches/{branch}/objects")
def delete_object(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    branch, path = request.params["branch"], request.required("path")
    service.records.branch(repository.id, branch)
    check_not_protected(service, repository, branch, CANNOT_WRITE)
    _delete(service, repository, branch, path)
    return NO_CONTENT


@route("POST", "/repositories/{repository}/branches/{branch}/objects/delete")
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


def _found(service: Service, request: Request) -> tuple[Repository, Entry]:
    """The object that a request names. Raises ApiError 404."""
    repository = service.repository(request)
    ref, path = request.params["ref"], request.required("path")
    return repository, committing.find_entry(service, repository, ref, path)


def _check_branch(service: Service, repository: Repository, branch: str) -> None:
    if service.records.find_branch(repository.id, branch) is None:
        raise ApiError(404, f"branch '{branch}' not found")


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


LINKABLE_SECONDS = 24 * 3600


@route("PUT", "/repositories/{repository}/branches/{branch}/objects")
def stage_object(service: Service, request: Request) -> Response:
    """Puts an address under a path. An address of the repository's own is taken, whatever its age."""
    repository = service.writable(request)
    branch, path = request.params["branch"], request.required("path")
    _check_branch(service, repository, branch)
    body = request.object()
    address = body.string("physical_address")
    entry = _entry(service, repository, path, address, body)
    check_not_protected(service, repository, branch, CANNOT_WRITE)
    stage(service, repository, branch, entry)
    answer = shown(service, repository, entry)
    if not answer["metadata"]:
        del answer["metadata"]
    return json_response(201, answer)


@route("GET", "/repositories/{repository}/branches/{branch}/staging/backing")
def get_physical_address(service: Service, request: Request) -> Response:
    """An address to upload to, linkable for 24 hours under this path of this branch, as often as one likes.

    Whether the branch is there is not looked at.
    """
    repository = service.writable(request)
    branch, path = request.params["branch"], request.required("path")
    address = service.object_paths.new()
    signed = f"{address},{_signature(service, repository, branch, path, address)}"
    full = service.namespace(repository).full_address(signed)
    return json_response(200, {"physical_address": full, "presigned_url": None})


@route("PUT", "/repositories/{repository}/branches/{branch}/staging/backing")
def link_physical_address(service: Service, request: Request) -> Response:
    """Puts an uploaded object under the path. Addresses outside the namespace need no signature."""
    repository = service.writable(request)
    branch, path = request.params["branch"], request.required("path")
    body = request.object()
    entry = _entry(service, repository, path, body.child("staging").string("physical_address"), body)
    if entry.address_type is AddressType.RELATIVE:
        _check_signature(service, repository, branch, entry)
    _check_branch(service, repository, branch)
    check_not_protected(service, repository, branch, CANNOT_WRITE)
    stage(service, repository, branch, entry)
    return json_response(200, shown(service, repository, entry))


def _check_signature(service: Service, repository: Repository, branch: str, entry: Entry) -> None:
    address, comma, signature = entry.address.rpartition(",")
    if not comma:
        raise bad_request("address is not signed: link address invalid")
    expected = _signature(service, repository, branch, entry.path, address)
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        raise bad_request("invalid address signature: invalid address")
    # An address carries the second it was made in.
    if service.now() - time_of(address.rpartition("/")[2]) > LINKABLE_SECONDS:
        raise bad_request("link address expired")


def _signature(service: Service, repository: Repository, branch: str, path: str, address: str) -> str:
    """43 characters over everything that a link is for. The secret outlives a restart."""
    secret = service.options.secret_access_key.encode()
    text = "\n".join((repository.id, branch, path, address))
    digest = hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return urlsafe_b64encode(digest).decode().rstrip("=")


def _entry(service: Service, repository: Repository, path: str, address: str, body: Fields) -> Entry:
    stored, kind = stored_form(repository, address)
    mtime = body.integer("mtime") * 1_000_000 if body.has("mtime") else service.now_us()
    metadata = body.mapping("user_metadata", {}) or body.mapping("metadata", {})
    return Entry(
        path=path,
        address=stored,
        address_type=kind,
        size=body.integer("size_bytes"),
        last_modified_us=mtime,
        e_tag=body.string("checksum"),
        content_type=body.string("content_type", DEFAULT_CONTENT_TYPE),
        metadata=tuple(sorted(metadata.items())),
    )


_COMMON_PREFIX = "common_prefix"


@route("GET", "/repositories/{repository}/refs/{ref}/objects/ls")
def list_objects(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    tree = committing.visible_tree(service, repository, request.params["ref"])
    chosen = page_of_paths(request, graph.in_order(tree))
    results: list[object] = []
    for name in chosen.names:
        if name in chosen.prefixes:
            empty = {"checksum": "", "mtime": 0, "physical_address": ""}
            results.append({**empty, "path": name, "path_type": _COMMON_PREFIX})
            continue
        answer = shown(service, repository, tree[name])
        if not answer["metadata"] or request.text("user_metadata", "true") == "false":
            del answer["metadata"]
        results.append(answer)
    return page(results, has_more=chosen.has_more, next_offset=chosen.next_offset)


@route("GET", "/repositories/{repository}/branches/{branch}/diff")
def diff_uncommitted(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    branch = request.params["branch"]
    tree = committing.head_tree(service, repository, branch)
    changes = committing.effective_changes(service, repository, branch)
    before = {path: tree[path] for path in changes if path in tree}
    found = graph.diff(before, graph.apply_changes(before, changes))
    # Of a staged deletion a server tells nothing, not even the size of what is deleted.
    return _differences(request, [replace(d, size=0) if d.type == "removed" else d for d in found])


@route("GET", "/repositories/{repository}/refs/{left}/diff/{right}")
def diff_refs(service: Service, request: Request) -> Response:
    """``three_dot``, the default: what the right side brought since both had the same. ``two_dot``: how the
    right side differs from the left."""
    kind = request.text("type", "three_dot")
    if kind not in ("three_dot", "two_dot"):
        raise bad_request('parameter "type" in query has an error: value is not one of the allowed values')
    repository = service.repository(request)
    commits = []
    for ref in (request.params["left"], request.params["right"]):
        with prefixed(f"get commit by ref {ref}"):
            commits.append(service.commit_of(repository, ref))
    left, right = (committing.tree_of(service, repository, commit) for commit in commits)
    if kind == "two_dot":
        return _differences(request, graph.diff(left, right))
    base = merge_base(service.records, repository.id, commits[0].id, commits[1].id)
    if base is None:
        raise bad_request("no merge base")
    before = committing.tree_of(service, repository, base)
    return _differences(request, graph.diff_from_base(before, left, right))


def _differences(request: Request, differences: Sequence[graph.Difference]) -> Response:
    by_path = {d.path: d for d in differences}
    chosen = page_of_paths(request, by_path)
    results: list[object] = []
    for name in chosen.names:
        if name in chosen.prefixes:
            results.append({"path": name, "path_type": _COMMON_PREFIX, "type": "prefix_changed"})
        else:
            d = by_path[name]
            results.append({"path": d.path, "path_type": "object", "size_bytes": d.size, "type": d.type})
    return page(results, has_more=chosen.has_more, next_offset=chosen.next_offset)
