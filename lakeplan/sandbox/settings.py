"""Handlers of repositories, rules, policies, configuration, metadata files, and of lakeFS's collection."""

from __future__ import annotations

import hashlib
import json
import random
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass
from fnmatch import translate

from lakeplan.formats.collector import write_commits_csv, write_gc_rules, write_uncommitted
from lakeplan.formats.namespace import (
    GC_PREFIX,
    GC_RULES_KEY,
    commits_csv_key,
    metadata_key,
    uncommitted_prefix,
)
from lakeplan.formats.ranges import is_file_id
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import server_verdict
from lakeplan.sandbox.branches import first_commit
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
    on_repository,
    on_writable,
    paged,
    route,
)
from lakeplan.sandbox.service import BRANCH_PROTECTION, OpenRepository, Service
from lakeplan.sandbox.state import SCHEME
from lakeplan.values.repository import Repository
from lakeplan.values.rules import GcRules

DUMP_TASK = "dump"
GC_RULES = "gc_rules"
BRANCH_LIFECYCLE = "branch_lifecycle"
OBJECT_LIFECYCLE = "object_lifecycle"
METADATA = "metadata"
NO_PRESIGN = "local adapter presigned URL: operation not supported"


@on_repository("GET", "/metadata/object/{type}/{id}")
def get_object(repo: OpenRepository, request: Request, type: str, id: str) -> Response:
    """The file, or with ``presign`` a redirect to a link, whether or not the file exists."""
    if type not in ("range", "meta_range"):
        raise bad_request('parameter "type" in path has an error: value is not one of the allowed values')
    if request.flag("presign"):
        if not repo.service.options.presign:
            raise bad_request(NO_PRESIGN)
        key = metadata_key(id)
        url = repo.service.presigner.link(request.base_url, repo.id, key, repo.service.now())
        return Response(302, b"", {"Location": url})
    # A server looks for no more than a file of that name; only ids can be one here.
    data = repo.namespace.read(metadata_key(id)) if is_file_id(id) else None
    if data is None:
        raise ApiError(410, "No data")
    return Response(200, data, {"Content-Type": "application/octet-stream"})


@on_repository("GET", "/metadata/meta_range/{id}")
@on_repository("GET", "/metadata/range/{id}")
def get_location(repo: OpenRepository, request: Request, id: str) -> Response:
    """Return where the file of an id would be, whether or not it exists."""
    location = metadata_key(id)
    return json_response(200, {"location": location}, {"Location": location})


@on_repository("PUT", "/refs/dump")
def dump(repo: OpenRepository, request: Request) -> Response:
    ids = repo.dump_refs(manifest=True)
    return json_response(201, asdict(ids))


@on_repository("POST", "/dump")
def start_dump(repo: OpenRepository, request: Request) -> Response:
    """Dumps immediately, but answers like a task. Writes no manifest."""
    ids = repo.dump_refs(manifest=False)
    task = "DR" + secrets.token_urlsafe(15)
    status = {"done": True, "id": task, "refs": asdict(ids), "update_time": repo.service.timestamp()}
    repo.put_document(DUMP_TASK, task, status)
    return json_response(202, {"id": task})


@on_repository("GET", "/dump")
def dump_status(repo: OpenRepository, request: Request) -> Response:
    return json_response(200, repo.document(DUMP_TASK, request.required("task_id")))


UNSET_ETAG = ""


def stored_rules(repo: OpenRepository) -> GcRules | None:
    """The stored rules, or None if there are none."""
    value = repo.setting(GC_RULES)
    return None if value is None else GcRules(**value)


@on_repository("GET", "/settings/gc_rules")
def get_gc_rules(repo: OpenRepository, request: Request) -> Response:
    rules = stored_rules(repo)
    if rules is None:
        raise not_found()
    body = rules.to_body()
    # On the server this is a map, so the order is not guaranteed.
    random.shuffle(body["branches"])
    return json_response(200, {**body, "branches": body["branches"] or None})


@on_writable("PUT", "/settings/gc_rules")
def set_gc_rules(repo: OpenRepository, request: Request) -> Response:
    body = request.object()
    rules = GcRules(
        _days(body, "default_retention_days"),
        # The last of several entries for a branch counts.
        {b.string("branch_id"): _days(b, "retention_days") for b in body.objects("branches")},
    )
    store_rules(repo, rules)
    return NO_CONTENT


@on_writable("DELETE", "/settings/gc_rules")
def delete_gc_rules(repo: OpenRepository, request: Request) -> Response:
    store_rules(repo, None)
    return NO_CONTENT


def store_rules(repo: OpenRepository, rules: GcRules | None) -> None:
    """Stores rules, or removes them for None, also in the namespace, where a real server keeps them."""
    if rules is not None and not rules.default_retention_days and not rules.branches:
        # Such a message has no bytes in protobuf, and an empty file means no rules.
        rules = None
    repo.namespace.write(GC_RULES_KEY, write_gc_rules(rules))
    if rules is None:
        repo.unset(GC_RULES)
    else:
        repo.set(GC_RULES, asdict(rules))


@route("GET", "/repositories/{repository}/gc/rules/set_allowed")
@route("GET", "/repositories/{repository}/branch_protection/set_allowed")
@route("GET", "/repositories/{repository}/settings/branch_lifecycle/set_allowed", flavor="enterprise")
def set_allowed(service: Service, request: Request, repository: str) -> Response:
    """Checks the permission only: a repository that does not exist gets the same answer."""
    return NO_CONTENT


def etag_of(value: object) -> str:
    """The ETag for If-Match, or "" if unset."""
    if not value:
        return UNSET_ETAG
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def replace_setting(repo: OpenRepository, request: Request, name: str, value: object) -> None:
    """Replaces a setting. Raises ApiError 412 if the caller has read another value than the current one."""
    e_tag = request.headers.get("if-match")
    if e_tag == "":
        raise ApiError(400, "Invalid format for parameter If-Match: parameter 'If-Match' is empty")
    if e_tag is not None and e_tag.strip('"') != etag_of(repo.setting(name)):
        raise ApiError(412, "Precondition failed")
    repo.set(name, value)


@on_repository("GET", "/settings/branch_protection")
def get_branch_protection(repo: OpenRepository, request: Request) -> Response:
    rules = repo.setting(BRANCH_PROTECTION) or []
    return json_response(200, rules, {"ETag": etag_of(rules)})


@on_repository("PUT", "/settings/branch_protection")
def set_branch_protection(repo: OpenRepository, request: Request) -> Response:
    rules = request.json()
    if not isinstance(rules, list):
        raise ApiError(400, "request body has an error: doesn't match schema: value must be an array")
    wrapped = Fields({"rules": rules}).objects("rules")
    patterns = [{"pattern": rule.string("pattern")} for rule in wrapped]
    if any(not rule["pattern"] for rule in patterns):
        raise ApiError(400, "request body has an error: doesn't match schema: minimum string length is 1")
    replace_setting(repo, request, BRANCH_PROTECTION, patterns)
    return NO_CONTENT


def _days(body: Fields, name: str) -> int:
    """The days in 32 bits. Higher bits are cut off."""
    value = body.integer(name) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


MAX_POLICY_ID = 32
_OBJECT_RULE_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@on_repository("GET", "/settings/branch_lifecycle/policies", flavor="enterprise")
def get_policies(repo: OpenRepository, request: Request) -> Response:
    """Unset policies are an empty list with an empty ETag."""
    policies = repo.setting(BRANCH_LIFECYCLE)
    return json_response(200, {"policies": policies or []}, {"ETag": etag_of(policies)})


@on_writable("PUT", "/settings/branch_lifecycle/policies", flavor="enterprise")
def set_policies(repo: OpenRepository, request: Request) -> Response:
    """Replaces the list and answers with it, ids assigned."""
    body = request.object()
    policies = [_policy(policy, repo.info.default_branch) for policy in body.objects("policies")]
    ids = [policy["id"] for policy in policies]
    if len(set(ids)) != len(ids):
        raise bad_request("policy ids must be unique")
    replace_setting(repo, request, BRANCH_LIFECYCLE, policies)
    return json_response(200, {"policies": policies}, {"ETag": etag_of(policies)})


@on_writable("DELETE", "/settings/branch_lifecycle/policies", flavor="enterprise")
def delete_policies(repo: OpenRepository, request: Request) -> Response:
    """Deletes the policies. May be repeated. The API takes no If-Match here."""
    repo.unset(BRANCH_LIFECYCLE)
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


@on_repository("GET", "/settings/object_lifecycle", flavor="enterprise")
def get_object_rules(repo: OpenRepository, request: Request) -> Response:
    rules = repo.setting(OBJECT_LIFECYCLE)
    if rules is None:
        raise not_found()
    return json_response(200, {"rules": rules}, {"ETag": etag_of(rules)})


@on_writable("PUT", "/settings/object_lifecycle", flavor="enterprise")
def set_object_rules(repo: OpenRepository, request: Request) -> Response:
    rules = [_object_rule(rule) for rule in request.object().objects("rules")]
    if len({rule["id"] for rule in rules}) != len(rules):
        raise bad_request("rule ids must be unique")
    replace_setting(repo, request, OBJECT_LIFECYCLE, rules)
    return NO_CONTENT


@on_writable("DELETE", "/settings/object_lifecycle", flavor="enterprise")
def delete_object_rules(repo: OpenRepository, request: Request) -> Response:
    repo.unset(OBJECT_LIFECYCLE)
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
    """The versions in an answer. ``version_context`` distinguishes the flavours."""
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


@on_repository("GET", "/pulls")
def list_pulls(repo: OpenRepository, request: Request) -> Response:
    status = request.text("status", "open")
    if status not in ("open", "closed", "all"):
        raise bad_request('parameter "status" in query has an error: value is not one of the allowed values')
    pulls = repo.documents(PULL)
    return paged(request, [(id, pull) for id, pull in pulls if status in ("all", pull["status"])])


@on_writable("POST", "/pulls")
def create_pull(repo: OpenRepository, request: Request) -> Response:
    """Creates a pull request. Deleting its source branch later does not close it."""
    body = request.object()
    source, destination = body.string("source_branch"), body.string("destination_branch")
    for branch in (source, destination):
        repo.branch(branch)
    id = repo.service.xids.descending()
    pull = {
        "status": "open",
        "title": body.string("title"),
        "description": body.string("description", ""),
        "author": repo.service.user,
        "creation_date": repo.service.timestamp(),
        "destination_branch": destination,
        "id": id,
        "source_branch": source,
    }
    repo.put_document(PULL, id, pull)
    return json_response(201, {"id": id})


@on_repository("GET", "/pulls/{pull}")
def get_pull(repo: OpenRepository, request: Request, pull: str) -> Response:
    return json_response(200, repo.document(PULL, pull))


@route("GET", "/repositories")
def list_repositories(service: Service, request: Request) -> Response:
    return paged(request, [(r.id, asdict(r)) for r in service.repositories.all()])


@route("POST", "/repositories")
def create_repository(service: Service, request: Request) -> Response:
    body = request.object()
    name, url = body.matching("name", REPOSITORY), body.string("storage_namespace")
    default_branch = body.string("default_branch", "main") or "main"
    check_branch_name(default_branch)
    info = Repository(
        name, url, default_branch, service.now(), body.string("storage_id", ""), body.boolean("read_only")
    )
    repo = OpenRepository(service, info)
    namespace = repo.namespace
    service.repositories.add(info)
    row = asdict(info)
    if request.flag("bare"):
        del row["read_only"]
        return json_response(201, row)
    if namespace.in_use:
        raise bad_request(
            f"failed to create repository: found lakeFS objects in the storage ({url}): "
            "storage namespace already in use"
        )
    namespace.claim()
    commit = first_commit(service)
    repo.add_commit(commit)
    repo.add_branch(default_branch, commit.id)
    return json_response(201, row)


@route("GET", "/repositories/{repository}")
def get_repository(service: Service, request: Request, repository: str) -> Response:
    check_repository_name(repository)
    return json_response(200, asdict(service.repositories.get(repository)))


@on_repository("DELETE", "")
def delete_repository(repo: OpenRepository, request: Request) -> Response:
    """Deletes the state. The files of the namespace stay, as on a real server."""
    if repo.info.read_only and not request.flag("force"):
        raise ApiError(403, "read-only repository")
    repo.service.repositories.drop(repo.id)
    return NO_CONTENT


@on_repository("GET", "/metadata")
def get_metadata(repo: OpenRepository, request: Request) -> Response:
    return json_response(200, repo.setting(METADATA) or {})


@on_writable("POST", "/metadata")
def set_metadata(repo: OpenRepository, request: Request) -> Response:
    added = request.object().mapping("metadata")
    present = repo.setting(METADATA) or {}
    repo.set(METADATA, {**present, **added})
    return NO_CONTENT


@on_writable("DELETE", "/metadata")
def delete_metadata(repo: OpenRepository, request: Request) -> Response:
    gone = set(request.object().strings("keys"))
    present = repo.setting(METADATA) or {}
    repo.set(METADATA, {k: v for k, v in present.items() if k not in gone})
    return NO_CONTENT


COMMITS_TASK = "prepare_commits"


@on_writable("POST", "/gc/prepare_commits")
def prepare_commits(repo: OpenRepository, request: Request) -> Response:
    answer = _prepare(repo)
    if repo.service.options.presign:
        key = commits_csv_key(str(answer["run_id"]))
        answer["gc_commits_presigned_url"] = repo.service.presigner.link(
            request.base_url, repo.id, key, repo.service.now()
        )
    return json_response(201, answer)


@on_writable("POST", "/gc/prepare_commits/async")
def start_prepare_commits(repo: OpenRepository, request: Request) -> Response:
    """Runs the task immediately. Missing rules are the task's error, not this call's."""
    task = "GCPC" + secrets.token_urlsafe(15)
    status: dict[str, object] = {"completed": True, "task_id": task, "update_time": repo.service.timestamp()}
    try:
        status["result"] = _prepare(repo)
    except ApiError as error:
        status["error"] = {"message": error.message}
    repo.put_document(COMMITS_TASK, task, status)
    return json_response(202, {"id": task})


@on_repository("GET", "/gc/prepare_commits/status")
def prepare_commits_status(repo: OpenRepository, request: Request) -> Response:
    return json_response(200, repo.document(COMMITS_TASK, request.required("id")))


@dataclass(frozen=True)
class Mark:
    """Where the next file of a run begins: at a path of a branch, or for "" at the first."""

    run_id: str
    branch: str
    path: str


@on_writable("POST", "/gc/prepare_uncommited")
def prepare_uncommitted(repo: OpenRepository, request: Request) -> Response:
    """One file of uncommitted addresses, and a token if more follow. No file if nothing is staged."""
    body = request.object(optional=True)
    token, xids = body.string("continuation_token", ""), repo.service.xids
    mark = _read_token(token) if token else Mark(xids.descending(), "", "")
    addresses, following = _uncommitted(repo, mark)
    location = ""
    if addresses:
        folder = uncommitted_prefix(mark.run_id)
        data = write_uncommitted([address for address, _ in addresses], [date for _, date in addresses])
        repo.namespace.write(folder + xids.ascending(), data)
        location = repo.namespace.full_address(folder)
    answer = {"gc_uncommitted_location": location, "run_id": mark.run_id}
    if following is not None:
        answer["continuation_token"] = urlsafe_b64encode(json.dumps(asdict(following)).encode()).decode()
    return json_response(201, answer)


def _read_token(token: str) -> Mark:
    """Raises ApiError 400 for a token that this server did not issue."""
    try:
        return Mark(**json.loads(urlsafe_b64decode(token.encode())))
    except (ValueError, TypeError):  # binascii.Error is a ValueError
        raise bad_request("invalid continuation token") from None


def _uncommitted(repo: OpenRepository, mark: Mark) -> tuple[list[tuple[str, int]], Mark | None]:
    """The next addresses of a run, relative to the namespace, each with epoch seconds: as many as a file may
    hold, and where the next file begins. Hidden branches count too. Since 2024, lakeFS lists a diff,
    which omits what equals the HEAD's object, although reading the branch gives the staged address (read in
    pkg/catalog/gc_write_uncommitted.go)."""
    addresses: list[tuple[str, int]] = []
    for branch in repo.branches(show_hidden=True):
        for path, entry in sorted(repo.effective_changes(branch.id).items()):
            address = repo.relative_address(entry) if entry is not None else None
            if entry is None or address is None or (branch.id, path) < (mark.branch, mark.path):
                continue
            if len(addresses) == repo.service.options.max_uncommitted_per_file:
                return addresses, Mark(mark.run_id, branch.id, path)
            addresses.append((address, entry.last_modified_us // 1_000_000))
    return addresses, None


@route("GET", "/config/garbage-collection")
def config(service: Service, request: Request) -> Response:
    return json_response(200, {"grace_period": 86400})


def _prepare(repo: OpenRepository) -> dict[str, object]:
    """Writes ``commits.csv``. Raises ApiError 404 without rules."""
    service, rules = repo.service, stored_rules(repo)
    if rules is None:
        raise not_found("get gc rules: not found")
    refs = repo.refs()
    graph = CommitGraph.from_refs(refs)
    active = server_verdict(graph, rules, service.options.clock(), service.options.time_zone)
    kept = {graph.ids[i] for i, flag in enumerate(active) if flag}
    csv = write_commits_csv({c.id: c.meta_range_id for c in refs.commits if c.id in kept})
    run_id = service.xids.descending()
    namespace = repo.namespace
    namespace.write(commits_csv_key(run_id), csv)
    return {
        "gc_addresses_location": namespace.full_address(GC_PREFIX + "addresses/"),
        "gc_commits_location": namespace.full_address(commits_csv_key(run_id)),
        "run_id": run_id,
    }
