"""What only lakeFS Enterprise has: branch lifecycle policies and object lifecycle rules."""

from __future__ import annotations

import re
import secrets
from fnmatch import translate

from lakeplan.sandbox.handlers.settings import check_if_match, etag_of, set_allowed
from lakeplan.sandbox.messages import (
    NO_CONTENT,
    Fields,
    Request,
    Response,
    bad_request,
    json_response,
    not_found,
)
from lakeplan.sandbox.routing import Route
from lakeplan.sandbox.service import Service
from lakeplan.sandbox.settings import BRANCH_LIFECYCLE, OBJECT_LIFECYCLE

MAX_POLICY_ID = 32
_OBJECT_RULE_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def get_policies(service: Service, request: Request) -> Response:
    """Unset policies are an empty list with an empty ETag."""
    policies = service.settings.get(service.repository(request).id, BRANCH_LIFECYCLE)
    return json_response(200, {"policies": policies or []}, {"ETag": etag_of(policies)})


def set_policies(service: Service, request: Request) -> Response:
    """Replaces the list and answers with it, ids assigned."""
    repository = service.writable(request)
    body = request.object()
    policies = [_policy(policy, repository.default_branch) for policy in body.objects("policies")]
    ids = [policy["id"] for policy in policies]
    if len(set(ids)) != len(ids):
        raise bad_request("policy ids must be unique")
    check_if_match(request, service.settings.get(repository.id, BRANCH_LIFECYCLE))
    service.settings.put(repository.id, BRANCH_LIFECYCLE, policies)
    return json_response(200, {"policies": policies}, {"ETag": etag_of(policies)})


def delete_policies(service: Service, request: Request) -> Response:
    """Idempotent; the API takes no If-Match here."""
    repository = service.writable(request)
    service.settings.unset(repository.id, BRANCH_LIFECYCLE)
    return NO_CONTENT


def _policy(body: Fields, default_branch: str) -> dict[str, object]:
    patterns = body.strings("name_patterns")
    if not patterns or not all(patterns):
        raise body.fault("name_patterns", "at least one pattern is needed, and none may be empty")
    if any(re.fullmatch(translate(pattern), default_branch) for pattern in patterns):
        raise body.fault("name_patterns", f"a pattern matches the default branch {default_branch}")
    id = body.string("id", "") or f"pol-{secrets.token_hex(4)}"
    if len(id) > MAX_POLICY_ID or re.search(r"\s", id):
        raise body.fault("id", f"at most {MAX_POLICY_ID} characters, no white space")
    policy: dict[str, object] = {"id": id, "name_patterns": patterns}
    for name in ("max_age", "max_inactivity_time"):
        if body.has(name):
            seconds = body.integer(name)
            if seconds <= 0:
                raise body.fault(name, "must be greater than zero")
            policy[name] = seconds
    if not policy.keys() & {"max_age", "max_inactivity_time"}:
        raise body.fault("max_age", "max_age or max_inactivity_time is needed")
    if body.has("description"):
        policy["description"] = body.string("description")
    return policy


def get_object_rules(service: Service, request: Request) -> Response:
    rules = service.settings.get(service.repository(request).id, OBJECT_LIFECYCLE)
    if rules is None:
        raise not_found()
    return json_response(200, {"rules": rules}, {"ETag": etag_of(rules)})


def set_object_rules(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    rules = [_object_rule(rule) for rule in request.object().objects("rules")]
    if len({rule["id"] for rule in rules}) != len(rules):
        raise bad_request("rule ids must be unique")
    check_if_match(request, service.settings.get(repository.id, OBJECT_LIFECYCLE))
    service.settings.put(repository.id, OBJECT_LIFECYCLE, rules)
    return NO_CONTENT


def delete_object_rules(service: Service, request: Request) -> Response:
    service.settings.unset(service.writable(request).id, OBJECT_LIFECYCLE)
    return NO_CONTENT


def _object_rule(body: Fields) -> dict[str, object]:
    id, prefix, branches = body.string("id"), body.string("prefix", ""), body.strings("branches")
    if not _OBJECT_RULE_ID.fullmatch(id):
        raise body.fault("id", "at most 64 lower-case letters, digits and dashes")
    if not branches:
        raise body.fault("branches", "at least one branch is needed")
    if prefix and not prefix.endswith("/"):
        raise body.fault("prefix", 'must be "" or end in "/"')
    days = body.integer("expire_after_days")
    if days < 1:
        raise body.fault("expire_after_days", "must be at least 1")
    rule: dict[str, object] = {"id": id, "branches": branches, "prefix": prefix, "expire_after_days": days}
    if body.has("description"):
        rule["description"] = body.string("description")
    return rule


_POLICIES = "/repositories/{repository}/settings/branch_lifecycle/policies"
_OBJECTS = "/repositories/{repository}/settings/object_lifecycle"

ROUTES = (
    Route("GET", _POLICIES, get_policies),
    Route("PUT", _POLICIES, set_policies),
    Route("DELETE", _POLICIES, delete_policies),
    Route("GET", "/repositories/{repository}/settings/branch_lifecycle/set_allowed", set_allowed),
    Route("GET", _OBJECTS, get_object_rules),
    Route("PUT", _OBJECTS, set_object_rules),
    Route("DELETE", _OBJECTS, delete_object_rules),
)
