"""Objects that a client wrote itself: staging an address, and addresses handed out for direct upload."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode

from lakeplan.model.objects import Entry
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
    repository, branch, path = _target(service, request)
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
    """An address to upload to, linkable for 24 hours. It ends in a signature."""
    repository = service.writable(request)
    request.required("path")
    address = service.object_paths.new()
    secret = service.options.secret_access_key.encode()
    digest = hmac.new(secret, f"{repository.id}/{address}".encode(), hashlib.sha256).digest()
    address += "," + urlsafe_b64encode(digest).decode().rstrip("=")
    service.staging.hand_out(repository.id, address, service.now() + LINKABLE_SECONDS)
    full = service.namespace(repository).full_address(address)
    return json_response(200, {"physical_address": full, "presigned_url": None})


def link_physical_address(service: Service, request: Request) -> Response:
    repository, branch, path = _target(service, request)
    body = request.object()
    address = body.child("staging").string("physical_address")
    entry = _entry(service, repository, path, address, body)
    in_namespace = entry.address.startswith("data/")
    if in_namespace and not service.staging.was_handed_out(repository.id, entry.address, service.now()):
        raise bad_request("physical address validation failed: address is not linkable (any more)")
    check_not_protected(service, repository, branch, CANNOT_WRITE)
    stage(service, repository, branch, entry)
    return json_response(200, shown(service, repository, entry))


def _target(service: Service, request: Request) -> tuple[Repository, str, str]:
    repository = service.writable(request)
    branch, path = request.params["branch"], request.required("path")
    if service.records.find_branch(repository.id, branch) is None:
        raise missing_branch(branch)
    return repository, branch, path


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
