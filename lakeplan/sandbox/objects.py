"""Handlers of objects: upload, read, stat, copy, delete, staging, listings, diffs."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from email.utils import formatdate

from lakeplan.formats.namespace import time_of
from lakeplan.sandbox import graph
from lakeplan.sandbox.messages import (
    NO_CONTENT,
    ApiError,
    Fields,
    Request,
    Response,
    bad_request,
    json_response,
    not_found,
    on_repository,
    on_writable,
    page,
    page_of_paths,
    prefixed,
    read_part,
)
from lakeplan.sandbox.service import CANNOT_WRITE, OpenRepository, Service
from lakeplan.sandbox.state import PRESIGNED_PATH
from lakeplan.values.records import LAST_SECOND
from lakeplan.values.repository import AddressType, Entry

DEFAULT_CONTENT_TYPE = "application/octet-stream"
MAX_PATHS_TO_DELETE = 1000
_METADATA_HEADER = "x-lakefs-meta-"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


def object_row(repo: OpenRepository, entry: Entry) -> dict[str, object]:
    return {
        "checksum": entry.e_tag,
        "content_type": entry.content_type,
        "metadata": dict(entry.metadata),
        "mtime": entry.last_modified_us // 1_000_000,
        "path": entry.path,
        "path_type": "object",
        "physical_address": repo.full_address(entry),
        "size_bytes": entry.size,
    }


@on_writable("POST", "/branches/{branch}/objects")
def upload(repo: OpenRepository, request: Request, branch: str) -> Response:
    path = request.required("path")
    _check_branch(repo, branch)
    _check_conditions(repo, request, branch, path)
    repo.check_not_protected(branch, CANNOT_WRITE)
    content_type = request.headers.get("content-type", "") or DEFAULT_CONTENT_TYPE
    data = request.body
    if content_type.startswith("multipart/form-data"):
        data, content_type = read_part(data, content_type, "content")
    metadata = {
        name[len(_METADATA_HEADER) :]: value
        for name, value in request.headers.items()
        if name.startswith(_METADATA_HEADER)
    }
    return _stored(repo, branch, path, data, content_type, metadata)


def _stored(
    repo: OpenRepository, branch: str, path: str, data: bytes, content_type: str, metadata: Mapping[str, str]
) -> Response:
    """Writes the bytes to a new address of the namespace, and stages them."""
    address = repo.service.object_paths.new()
    repo.namespace.write(address, data)
    entry = Entry(
        path=path,
        address=address,
        address_type=AddressType.RELATIVE,
        size=len(data),
        last_modified_us=repo.service.now_us(),
        e_tag=hashlib.md5(data, usedforsecurity=False).hexdigest(),
        content_type=content_type,
        metadata=tuple(sorted(metadata.items())),
    )
    repo.stage_entry(branch, entry)
    return json_response(201, object_row(repo, entry))


@on_repository("GET", "/refs/{ref}/objects")
def get_object(repo: OpenRepository, request: Request, ref: str) -> Response:
    """The bytes, or 410 if the collector deleted them. Only this answer proves that they exist."""
    entry = repo.find_entry(ref, request.required("path"))
    data = repo.read_object(entry)
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


@on_repository("HEAD", "/refs/{ref}/objects")
def head_object(repo: OpenRepository, request: Request, ref: str) -> Response:
    """The metadata only. Answers 200 for collected objects too."""
    entry = repo.find_entry(ref, request.required("path"))
    size = {"Accept-Ranges": "bytes", "Content-Length": str(entry.size)}
    return Response(200, b"", {**_headers(entry), **size})


@on_repository("GET", "/refs/{ref}/objects/stat")
def stat_object(repo: OpenRepository, request: Request, ref: str) -> Response:
    return json_response(200, object_row(repo, repo.find_entry(ref, request.required("path"))))


@on_writable("POST", "/branches/{branch}/objects/copy")
def copy_object(repo: OpenRepository, request: Request, branch: str) -> Response:
    """Copies the bytes of an object to a new address."""
    path, body = request.required("dest_path"), request.object()
    source = body.string("src_path")
    _check_branch(repo, branch)
    repo.check_not_protected(branch, CANNOT_WRITE)
    if body.boolean("shallow"):
        raise ApiError(501, "Not Implemented")
    entry = repo.find_entry(body.string("src_ref", "") or branch, source)
    data = repo.read_object(entry)
    if data is None:
        raise ApiError(410, "No data")
    return _stored(repo, branch, path, data, entry.content_type, dict(entry.metadata))


@on_writable("DELETE", "/branches/{branch}/objects")
def delete_object(repo: OpenRepository, request: Request, branch: str) -> Response:
    path = request.required("path")
    repo.branch(branch)
    repo.check_not_protected(branch, CANNOT_WRITE)
    _delete(repo, branch, path)
    return NO_CONTENT


@on_writable("POST", "/branches/{branch}/objects/delete")
def delete_objects(repo: OpenRepository, request: Request, branch: str) -> Response:
    """Deletes several objects. Missing objects or a missing branch are no error."""
    paths = request.object().strings("paths")
    if len(paths) > MAX_PATHS_TO_DELETE:
        raise ApiError(400, f"request size exceeded, max paths is set to {MAX_PATHS_TO_DELETE}")
    if repo.find_branch(branch) is None:
        return json_response(200, {"errors": []})
    try:
        repo.check_not_protected(branch, CANNOT_WRITE)
    except ApiError as error:
        errors = [{"message": error.message, "path": path, "status_code": error.status} for path in paths]
        return json_response(200, {"errors": errors})
    for path in paths:
        _delete(repo, branch, path)
    return json_response(200, {"errors": []})


def _delete(repo: OpenRepository, branch: str, path: str) -> None:
    if path in repo.tree_of(repo.head(branch)):
        repo.stage(branch, path, None)
    else:
        repo.unstage(branch, path)
    repo.touch_branch(branch)


def _check_branch(repo: OpenRepository, branch: str) -> None:
    if repo.find_branch(branch) is None:
        raise ApiError(404, f"branch '{branch}' not found")


def _headers(entry: Entry) -> dict[str, str]:
    return {
        "Content-Type": entry.content_type or DEFAULT_CONTENT_TYPE,
        "ETag": f'"{entry.e_tag}"',
        "Last-Modified": formatdate(_calendar_seconds(entry.last_modified_us), usegmt=True),
    }


def _check_conditions(repo: OpenRepository, request: Request, branch: str, path: str) -> None:
    """Checks ``If-None-Match: *`` and ``If-Match: <ETag>`` of an upload."""
    none_match, match = request.headers.get("if-none-match"), request.headers.get("if-match")
    if none_match is None and match is None:
        return
    if none_match not in (None, "*"):
        raise ApiError(400, 'Unsupported value for If-None-Match - Only "*" is supported')
    present: Entry | None
    try:
        present = repo.find_entry(branch, path)
    except ApiError as error:
        if error.status != 404:
            raise
        present = None
    if none_match and present is not None:
        raise ApiError(412, "path already exists")
    if match is not None and (present is None or present.e_tag != match.strip('"')):
        raise ApiError(412, "Precondition failed") if present else not_found()


LINKABLE_SECONDS = 24 * 3600


@on_writable("PUT", "/branches/{branch}/objects")
def stage_object(repo: OpenRepository, request: Request, branch: str) -> Response:
    """Puts an address under a path. An address of the repository's own is accepted, whatever its age."""
    path = request.required("path")
    _check_branch(repo, branch)
    body = request.object()
    entry = _entry(repo, path, body.string("physical_address"), body)
    repo.check_not_protected(branch, CANNOT_WRITE)
    repo.stage_entry(branch, entry)
    row = object_row(repo, entry)
    if not row["metadata"]:
        del row["metadata"]
    return json_response(201, row)


@on_writable("GET", "/branches/{branch}/staging/backing")
def get_physical_address(repo: OpenRepository, request: Request, branch: str) -> Response:
    """An upload address, which may be linked repeatedly within 24 hours at this path of this branch.

    Whether the branch exists is not checked.
    """
    path = request.required("path")
    address = repo.service.object_paths.new()
    full = repo.namespace.full_address(f"{address},{_signature(repo, branch, path, address)}")
    return json_response(200, {"physical_address": full, "presigned_url": None})


@on_writable("PUT", "/branches/{branch}/staging/backing")
def link_physical_address(repo: OpenRepository, request: Request, branch: str) -> Response:
    """Puts an uploaded object under the path. Addresses outside the namespace need no signature."""
    path, body = request.required("path"), request.object()
    entry = _entry(repo, path, body.child("staging").string("physical_address"), body)
    if entry.address_type is AddressType.RELATIVE:
        _check_signature(repo, branch, entry)
    _check_branch(repo, branch)
    repo.check_not_protected(branch, CANNOT_WRITE)
    repo.stage_entry(branch, entry)
    return json_response(200, object_row(repo, entry))


def _check_signature(repo: OpenRepository, branch: str, entry: Entry) -> None:
    address, comma, signature = entry.address.rpartition(",")
    if not comma:
        raise bad_request("address is not signed: link address invalid")
    expected = _signature(repo, branch, entry.path, address)
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        raise bad_request("invalid address signature: invalid address")
    # An address carries the second it was made in.
    if repo.service.now() - time_of(address.rpartition("/")[2]) > LINKABLE_SECONDS:
        raise bad_request("link address expired")


def _signature(repo: OpenRepository, branch: str, path: str, address: str) -> str:
    """43 characters that sign everything about a link. The secret survives a restart."""
    secret = repo.service.options.secret_access_key.encode()
    text = "\n".join((repo.id, branch, path, address))
    digest = hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return urlsafe_b64encode(digest).decode().rstrip("=")


def _calendar_seconds(us: int) -> int:
    """The nearest second that a header can have. Clients choose the time of an object."""
    return max(0, min(us // 1_000_000, LAST_SECOND))


def _entry(repo: OpenRepository, path: str, address: str, body: Fields) -> Entry:
    stored, kind = repo.stored_form(address)
    mtime = body.integer("mtime") * 1_000_000 if body.has("mtime") else repo.service.now_us()
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


@on_repository("GET", "/refs/{ref}/objects/ls")
def list_objects(repo: OpenRepository, request: Request, ref: str) -> Response:
    tree = repo.visible_tree(ref)

    def row(path: str) -> dict[str, object]:
        row = object_row(repo, tree[path])
        if not row["metadata"] or request.text("user_metadata", "true") == "false":
            del row["metadata"]
        return row

    empty = {"checksum": "", "mtime": 0, "physical_address": ""}
    return _listing(request, graph.in_order(tree), row, empty)


@on_repository("GET", "/branches/{branch}/diff")
def diff_uncommitted(repo: OpenRepository, request: Request, branch: str) -> Response:
    tree = repo.tree_of(repo.head(branch))
    changes = repo.effective_changes(branch)
    before = {path: tree[path] for path in changes if path in tree}
    differences = graph.diff(before, graph.apply_changes(before, changes))
    # Of a staged deletion a server shows nothing, not even the size of what is deleted.
    return _differences(request, [replace(d, size=0) if d.type == "removed" else d for d in differences])


@on_repository("GET", "/refs/{left}/diff/{right}")
def diff_refs(repo: OpenRepository, request: Request, left: str, right: str) -> Response:
    """``three_dot``, the default: what the right side brought since both had the same. ``two_dot``: how the
    right side differs from the left."""
    kind = request.text("type", "three_dot")
    if kind not in ("three_dot", "two_dot"):
        raise bad_request('parameter "type" in query has an error: value is not one of the allowed values')
    commits = []
    for ref in (left, right):
        with prefixed(f"get commit by ref {ref}"):
            commits.append(repo.commit_of(ref))
    trees = [repo.tree_of(commit) for commit in commits]
    if kind == "two_dot":
        return _differences(request, graph.diff(*trees))
    base = graph.merge_base(repo, commits[0].id, commits[1].id)
    if base is None:
        raise bad_request("no merge base")
    return _differences(request, graph.diff_from_base(repo.tree_of(base), *trees))


def _differences(request: Request, differences: Sequence[graph.Difference]) -> Response:
    by_path = {d.path: d for d in differences}

    def row(path: str) -> dict[str, object]:
        difference = by_path[path]
        return {"path": path, "path_type": "object", "size_bytes": difference.size, "type": difference.type}

    return _listing(request, by_path, row, {"type": "prefix_changed"})


def _listing(
    request: Request,
    paths: Iterable[str],
    row: Callable[[str], Mapping[str, object]],
    of_prefix: Mapping[str, object],
) -> Response:
    """A page of ``paths``: the rows of paths, and ``of_prefix`` for what a delimiter cuts off."""
    chosen = page_of_paths(request, paths)
    rows = [
        {**of_prefix, "path": name, "path_type": "common_prefix"} if name in chosen.prefixes else row(name)
        for name in chosen.names
    ]
    return page(rows, has_more=chosen.has_more, next_offset=chosen.next_offset)


def read_by_link(service: Service, request: Request) -> Response:
    """A file by link, as an object store gives it: no lakeFS credentials, and its own errors."""
    repository, _, key = request.path[len(PRESIGNED_PATH) + 1 :].partition("/")
    expires, signature = request.text("expires"), request.text("signature")
    if request.method != "GET" or not service.presigner.allows(
        repository, key, expires, signature, service.now()
    ):
        raise ApiError(403, "the link has expired, or was not signed by this sandbox")
    with service.store.transaction():
        data = service.open(repository).namespace.read(key)
    if data is None:
        raise not_found("no such key")
    return Response(200, data, {"Content-Type": DEFAULT_CONTENT_TYPE})
