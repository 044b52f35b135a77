"""Objects that a client wrote itself: staging an address, and addresses handed out for direct upload."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode

from lakeplan.formats.xid import time_of
from lakeplan.model.objects import AddressType, Entry
from lakeplan.model.repository import Repository
from lakeplan.sandbox.addresses import stored_form
from lakeplan.sandbox.handlers.objects import DEFAULT_CONTENT_TYPE, shown, stage
from lakeplan.sandbox.messages import Fields, Request, Response, bad_request, json_response
from lakeplan.sandbox.naming import missing_branch
from lakeplan.sandbox.protection import CANNOT_WRITE, check_not_protected
from lakeplan.sandbox.routing import Route
from lakeplan.sandbox.service import Service

LINKABLE_SECONDS = 24 * 3600


def stage_object(service: Service, request: Request) -> Response:
    """Puts an address under a path. An address of the repository's own is taken, whatever its age."""
    repository = service.writable(request)
    branch, path = request.params["branch"], request.required("path")
    if service.records.find_branch(repository.id, branch) is None:
        raise missing_branch(branch)
    body = request.object()
    address = body.string("physical_address")
    entry = _entry(service, repository, path, address, body)
    check_not_protected(service, repository, branch, CANNOT_WRITE)
    stage(service, repository, branch, entry)
    answer = shown(service, repository, entry)
    if not answer["metadata"]:
        del answer["metadata"]
    return json_response(201, answer)


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


def link_physical_address(service: Service, request: Request) -> Response:
    """Puts an uploaded object under the path. Addresses outside the namespace need no signature."""
    repository = service.writable(request)
    branch, path = request.params["branch"], request.required("path")
    body = request.object()
    entry = _entry(service, repository, path, body.child("staging").string("physical_address"), body)
    if entry.address_type is AddressType.RELATIVE:
        _check_signature(service, repository, branch, entry)
    if service.records.find_branch(repository.id, branch) is None:
        raise missing_branch(branch)
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


ROUTES = (
    Route("PUT", "/repositories/{repository}/branches/{branch}/objects", stage_object),
    Route("GET", "/repositories/{repository}/branches/{branch}/staging/backing", get_physical_address),
    Route("PUT", "/repositories/{repository}/branches/{branch}/staging/backing", link_physical_address),
)
