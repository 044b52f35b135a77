"""Handlers of repositories, rules, policies, configuration, metadata files, and of lakeFS's collection."""

from __future__ import annotations

import hashlib
import json
import random
import re
import secrets
from dataclasses import asdict
from datetime import timezone
from fnmatch import translate

from lakeplan.formats.collector import write_commits_csv, write_uncommitted
from lakeplan.formats.namespace import (
    GC_PREFIX,
    GC_RULES_KEY,
    commits_csv_key,
    metadata_key,
    uncommitted_prefix,
)
from lakeplan.formats.ranges import is_file_id
from lakeplan.formats.wire import write_gc_rules
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import server_verdict
from lakeplan.sandbox.committing import first_commit
from lakeplan.sandbox.messages import (
    NO_CONTENT,
    REPOSITORY,
    ApiError,
    Fields,
    Request,
    Response,
    bad_request,
    check_branch_name,
    check_repository_name,
    json_response,
    not_found,
    paged,
)
from lakeplan.sandbox.service import Mark, Service, collect, dump_refs, read_token, route, write_token
from lakeplan.sandbox.storage import (
    BRANCH_LIFECYCLE,
    BRANCH_PROTECTION,
    GC_RULES,
    METADATA,
    OBJECT_LIFECYCLE,
    SCHEME,
)
from lakeplan.values.repository import Repository
from lakeplan.values.rules import GcRules

DUMP_TASK = "dump"
NO_PRESIGN = "local adapter presigned URL: operation not supported"


@route("GET", "/repositories/{repository}/metadata/object/{type}/{id}")
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


@route("GET", "/repositories/{repository}/metadata/meta_range/{id}")
@route("GET", "/repositories/{repository}/metadata/range/{id}")
def get_location(service: Service, request: Request) -> Response:
    """Where the file of an id would be: a server does not look whether it is."""
    service.repository(request)
    location = metadata_key(request.params["id"])
    return json_response(200, {"location": location}, {"Location": location})


@route("PUT", "/repositories/{repository}/refs/dump")
def dump(service: Service, request: Request) -> Response:
    ids = dump_refs(service, service.repository(request), manifest=True)
    return json_response(201, asdict(ids))


@route("POST", "/repositories/{repository}/dump")
def start_dump(service: Service, request: Request) -> Response:
    """The task is done at once; the answers are those of a task. It writes no manifest."""
    repository = service.repository(request)
    ids = dump_refs(service, repository, manifest=False)
    task = "DR" + secrets.token_urlsafe(15)
    status = {"done": True, "id": task, "refs": asdict(ids), "update_time": timestamp(service)}
    service.settings.put_document(repository.id, DUMP_TASK, task, status)
    return json_response(202, {"id": task})


@route("GET", "/repositories/{repository}/dump")
def dump_status(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    return json_response(
        200, service.settings.document(repository.id, DUMP_TASK, request.required("task_id"))
    )


def timestamp(service: Service) -> str:
    """RFC 3339 in UTC, as tasks and pull requests have it."""
    moment = service.options.clock().astimezone(timezone.utc)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


UNSET_ETAG = ""


def stored_rules(service: Service, repository: Repository) -> GcRules | None:
    """The rules as a server reads them back: zeros and nothing else are no rules at all."""
    value = service.settings.get(repository.id, GC_RULES)
    if value is None:
        return None
    return GcRules(value["default_retention_days"], value["branches"])


@route("GET", "/repositories/{repository}/settings/gc_rules")
def get_gc_rules(service: Service, request: Request) -> Response:
    rules = stored_rules(service, service.repository(request))
    if rules is None:
        raise not_found()
    branches = [{"branch_id": b, "retention_days": d} for b, d in rules.branches.items()]
    # On the server this is a map, and its order is nobody's promise.
    random.shuffle(branches)
    body = {"branches": branches or None, "default_retention_days": rules.default_retention_days}
    return json_response(200, body)


@route("PUT", "/repositories/{repository}/settings/gc_rules")
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


@route("DELETE", "/repositories/{repository}/settings/gc_rules")
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


@route("GET", "/repositories/{repository}/gc/rules/set_allowed")
@route("GET", "/repositories/{repository}/branch_protection/set_allowed")
@route("GET", "/repositories/{repository}/settings/branch_lifecycle/set_allowed", flavor="enterprise")
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


@route("GET", "/repositories/{repository}/settings/branch_protection")
def get_branch_protection(service: Service, request: Request) -> Response:
    rules = service.settings.get(service.repository(request).id, BRANCH_PROTECTION) or []
    return json_response(200, rules, {"ETag": etag_of(rules)})


@route("PUT", "/repositories/{repository}/settings/branch_protection")
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


MAX_POLICY_ID = 32
_OBJECT_RULE_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@route("GET", "/repositories/{repository}/settings/branch_lifecycle/policies", flavor="enterprise")
def get_policies(service: Service, request: Request) -> Response:
    """Unset policies are an empty list with an empty ETag."""
    policies = service.settings.get(service.repository(request).id, BRANCH_LIFECYCLE)
    return json_response(200, {"policies": policies or []}, {"ETag": etag_of(policies)})


@route("PUT", "/repositories/{repository}/settings/branch_lifecycle/policies", flavor="enterprise")
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


@route("DELETE", "/repositories/{repository}/settings/branch_lifecycle/policies", flavor="enterprise")
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


@route("GET", "/repositories/{repository}/settings/object_lifecycle", flavor="enterprise")
def get_object_rules(service: Service, request: Request) -> Response:
    rules = service.settings.get(service.repository(request).id, OBJECT_LIFECYCLE)
    if rules is None:
        raise not_found()
    return json_response(200, {"rules": rules}, {"ETag": etag_of(rules)})


@route("PUT", "/repositories/{repository}/settings/object_lifecycle", flavor="enterprise")
def set_object_rules(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    rules = [_object_rule(rule) for rule in request.object().objects("rules")]
    if len({rule["id"] for rule in rules}) != len(rules):
        raise bad_request("rule ids must be unique")
    check_if_match(request, service.settings.get(repository.id, OBJECT_LIFECYCLE))
    service.settings.put(repository.id, OBJECT_LIFECYCLE, rules)
    return NO_CONTENT


@route("DELETE", "/repositories/{repository}/settings/object_lifecycle", flavor="enterprise")
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


VERSION = "1.84.0-sandbox"
ENTERPRISE_VERSION = "1.108.0-sandbox"
PULL = "pull"


def version_of(service: Service) -> dict[str, str]:
    """``version_context`` is what tells the flavours apart."""
    if service.enterprise:
        return {"version": ENTERPRISE_VERSION, "version_context": "lakeFS-Enterprise"}
    return {"version": VERSION, "version_context": "lakeFS"}


@route("GET", "/config/version")
def get_version(service: Service, request: Request) -> Response:
    return json_response(200, version_of(service))


@route("GET", "/config")
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


@route("GET", "/config/storage")
def get_storage(service: Service, request: Request) -> Response:
    return json_response(200, _storage(service))


@route("GET", "/healthcheck", public=True)
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


@route("GET", "/repositories/{repository}/pulls")
def list_pulls(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    status = request.text("status", "open")
    if status not in ("open", "closed", "all"):
        raise bad_request('parameter "status" in query has an error: value is not one of the allowed values')
    found = service.settings.documents(repository.id, PULL)
    return paged(request, [(id, pull) for id, pull in found if status in ("all", pull["status"])])


@route("POST", "/repositories/{repository}/pulls")
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


@route("GET", "/repositories/{repository}/pulls/{pull}")
def get_pull(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    return json_response(200, service.settings.document(repository.id, PULL, request.params["pull"]))


def shown(repository: Repository) -> dict[str, object]:
    return {
        "creation_date": repository.creation_date,
        "default_branch": repository.default_branch,
        "id": repository.id,
        "read_only": repository.read_only,
        "storage_id": repository.storage_id,
        "storage_namespace": repository.storage_namespace,
    }


@route("GET", "/repositories")
def list_repositories(service: Service, request: Request) -> Response:
    return paged(request, [(r.id, shown(r)) for r in service.records.repositories()])


@route("POST", "/repositories")
def create_repository(service: Service, request: Request) -> Response:
    body = request.object()
    name, url = body.matching("name", REPOSITORY), body.string("storage_namespace")
    default_branch = body.string("default_branch", "main") or "main"
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


@route("GET", "/repositories/{repository}")
def get_repository(service: Service, request: Request) -> Response:
    check_repository_name(request.params["repository"])
    return json_response(200, shown(service.repository(request)))


@route("DELETE", "/repositories/{repository}")
def delete_repository(service: Service, request: Request) -> Response:
    """The state goes; the files of the namespace stay, as on a real server."""
    repository = service.repository(request)
    if repository.read_only and not request.flag("force"):
        raise ApiError(403, "read-only repository")
    service.records.drop_repository(repository.id)
    return NO_CONTENT


@route("GET", "/repositories/{repository}/metadata")
def get_metadata(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    return json_response(200, service.settings.get(repository.id, METADATA) or {})


@route("POST", "/repositories/{repository}/metadata")
def set_metadata(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    added = request.object().mapping("metadata")
    present = service.settings.get(repository.id, METADATA) or {}
    service.settings.put(repository.id, METADATA, {**present, **added})
    return NO_CONTENT


@route("DELETE", "/repositories/{repository}/metadata")
def delete_metadata(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    gone = set(request.object().strings("keys"))
    present = service.settings.get(repository.id, METADATA) or {}
    service.settings.put(repository.id, METADATA, {k: v for k, v in present.items() if k not in gone})
    return NO_CONTENT


COMMITS_TASK = "prepare_commits"


@route("POST", "/repositories/{repository}/gc/prepare_commits")
def prepare_commits(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    answer = _prepare(service, repository)
    if service.options.presign:
        key = commits_csv_key(str(answer["run_id"]))
        answer["gc_commits_presigned_url"] = service.presigner.link(
            request.base_url, repository.id, key, service.now()
        )
    return json_response(201, answer)


@route("POST", "/repositories/{repository}/gc/prepare_commits/async")
def start_prepare_commits(service: Service, request: Request) -> Response:
    """Done at once, told by the status. Missing rules are the task's error, not this call's."""
    repository = service.writable(request)
    task = "GCPC" + secrets.token_urlsafe(15)
    status: dict[str, object] = {"completed": True, "task_id": task, "update_time": timestamp(service)}
    try:
        status["result"] = _prepare(service, repository)
    except ApiError as error:
        status["error"] = {"message": error.message}
    service.settings.put_document(repository.id, COMMITS_TASK, task, status)
    return json_response(202, {"id": task})


@route("GET", "/repositories/{repository}/gc/prepare_commits/status")
def prepare_commits_status(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    return json_response(200, service.settings.document(repository.id, COMMITS_TASK, request.required("id")))


@route("POST", "/repositories/{repository}/gc/prepare_uncommited")
def prepare_uncommitted(service: Service, request: Request) -> Response:
    """One file of uncommitted addresses; a token when more are to come. Nothing staged: no file at all."""
    repository = service.writable(request)
    body = request.object(optional=True)
    token = body.string("continuation_token", "")
    mark = read_token(token) if token else Mark(service.xids.descending(), "", "")
    found = collect(service, repository, mark)
    location = ""
    if found.addresses:
        namespace = service.namespace(repository)
        folder = uncommitted_prefix(mark.run_id)
        data = write_uncommitted(found.addresses, found.creation_dates)
        namespace.write(folder + service.xids.ascending(), data)
        location = namespace.full_address(folder)
    answer = {"gc_uncommitted_location": location, "run_id": mark.run_id}
    if found.next is not None:
        answer["continuation_token"] = write_token(found.next)
    return json_response(201, answer)


@route("GET", "/config/garbage-collection")
def config(service: Service, request: Request) -> Response:
    return json_response(200, {"grace_period": 86400})


def _prepare(service: Service, repository: Repository) -> dict[str, object]:
    """Writes ``commits.csv``. Raises ApiError 404 without rules."""
    rules = stored_rules(service, repository)
    if rules is None:
        raise not_found("get gc rules: not found")
    refs = service.records.refs(repository.id)
    graph = CommitGraph.from_refs(refs)
    active = server_verdict(graph, rules, service.options.clock(), service.options.time_zone)
    kept = {graph.ids[i] for i, flag in enumerate(active) if flag}
    csv = write_commits_csv({c.id: c.meta_range_id for c in refs.commits if c.id in kept})
    run_id = service.xids.descending()
    namespace = service.namespace(repository)
    namespace.write(commits_csv_key(run_id), csv)
    return {
        "gc_addresses_location": namespace.full_address(GC_PREFIX + "addresses/"),
        "gc_commits_location": namespace.full_address(commits_csv_key(run_id)),
        "run_id": run_id,
    }
