"""Handlers of lakeFS's collection: commits that are kept, uncommitted data."""

from __future__ import annotations

import secrets

from lakeplan.formats.collector import write_commits_csv
from lakeplan.formats.namespace import GC_PREFIX, commits_csv_key, uncommitted_prefix
from lakeplan.formats.uncommitted import write_uncommitted
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import server_verdict
from lakeplan.sandbox.messages import ApiError, Request, Response, json_response, not_found
from lakeplan.sandbox.service import Mark, Service, collect, read_token, route, write_token
from lakeplan.sandbox.settings import stored_rules, timestamp
from lakeplan.values.repository import Repository

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
