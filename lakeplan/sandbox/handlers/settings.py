"""GC rules and branch protection."""

from __future__ import annotations

import hashlib
import json
import random

from lakeplan.formats.gc_rules import write_gc_rules
from lakeplan.formats.namespace import GC_RULES_KEY
from lakeplan.model.repository import Repository
from lakeplan.model.rules import GcRules
from lakeplan.sandbox.messages import (
    NO_CONTENT,
    ApiError,
    Fields,
    Request,
    Response,
    json_response,
    not_found,
)
from lakeplan.sandbox.routing import Route
from lakeplan.sandbox.service import Service
from lakeplan.sandbox.settings import BRANCH_PROTECTION, GC_RULES

UNSET_ETAG = ""


def stored_rules(service: Service, repository: Repository) -> GcRules | None:
    """The rules as a server reads them back: zeros and nothing else are no rules at all."""
    value = service.settings.get(repository.id, GC_RULES)
    if value is None:
        return None
    return GcRules(value["default_retention_days"], value["branches"])


def get_gc_rules(service: Service, request: Request) -> Response:
    rules = stored_rules(service, service.repository(request))
    if rules is None:
        raise not_found()
    branches = [{"branch_id": b, "retention_days": d} for b, d in rules.branches.items()]
    # On the server this is a map, and its order is nobody's promise.
    random.shuffle(branches)
    body = {"branches": branches or None, "default_retention_days": rules.default_retention_days}
    return json_response(200, body)


def set_gc_rules(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    body = request.object()
    rules = GcRules(
        _days(body, "default_retention_days"),
        # The last of several entries for a branch counts.
        {b.string("branch_id"): _days(b, "retention_days") for b in body.objects("branches")},
    )
    store_rules(service, repository, rules)
    return NO_CONTENT


def delete_gc_rules(service: Service, request: Request) -> Response:
    store_rules(service, service.writable(request), None)
    return NO_CONTENT


def store_rules(service: Service, repository: Repository, rules: GcRules | None) -> None:
    """Stores rules beside the data too, where the server itself keeps them."""
    if rules is not None and not rules.default_retention_days and not rules.branches:
        # Such a message has no bytes in protobuf, and an empty file means no rules.
        rules = None
    service.namespace(repository).write(GC_RULES_KEY, write_gc_rules(rules))
    if rules is None:
        service.settings.unset(repository.id, GC_RULES)
    else:
        value = {"default_retention_days": rules.default_retention_days, "branches": dict(rules.branches)}
        service.settings.put(repository.id, GC_RULES, value)


def set_allowed(service: Service, request: Request) -> Response:
    """Asks for the permission only: a repository that does not exist gets the same answer."""
    return NO_CONTENT


def etag_of(value: object) -> str:
    """A validator for If-Match; "" while unset."""
    if not value:
        return UNSET_ETAG
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def check_if_match(request: Request, current: object) -> None:
    """Raises ApiError 412 when the caller saw another value."""
    wanted = request.headers.get("if-match")
    if wanted is None:
        return
    if not wanted:
        raise ApiError(400, "Invalid format for parameter If-Match: parameter 'If-Match' is empty")
    if wanted.strip('"') != etag_of(current):
        raise ApiError(412, "Precondition failed")


def get_branch_protection(service: Service, request: Request) -> Response:
    rules = service.settings.get(service.repository(request).id, BRANCH_PROTECTION) or []
    return json_response(200, rules, {"ETag": etag_of(rules)})


def set_branch_protection(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    rules = request.json()
    if not isinstance(rules, list):
        raise ApiError(400, "request body has an error: doesn't match schema: value must be an array")
    wrapped = Fields({"rules": rules}).objects("rules")
    patterns = [{"pattern": rule.string("pattern")} for rule in wrapped]
    if any(not rule["pattern"] for rule in patterns):
        raise ApiError(400, "request body has an error: doesn't match schema: minimum string length is 1")
    check_if_match(request, service.settings.get(repository.id, BRANCH_PROTECTION))
    service.settings.put(repository.id, BRANCH_PROTECTION, patterns)
    return NO_CONTENT


def _days(body: Fields, name: str) -> int:
    """Days are stored in 32 bits, and what does not fit is cut off."""
    value = body.integer(name) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


_RULES = "/repositories/{repository}/settings/gc_rules"
_PROTECTION = "/repositories/{repository}/settings/branch_protection"

ROUTES = (
    Route("GET", _RULES, get_gc_rules),
    Route("PUT", _RULES, set_gc_rules),
    Route("DELETE", _RULES, delete_gc_rules),
    Route("GET", "/repositories/{repository}/gc/rules/set_allowed", set_allowed),
    Route("GET", _PROTECTION, get_branch_protection),
    Route("PUT", _PROTECTION, set_branch_protection),
    Route("GET", "/repositories/{repository}/branch_protection/set_allowed", set_allowed),
)
