"""Lists of objects and of differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakeplan.model.refs import Commit
from lakeplan.model.repository import Repository
from lakeplan.sandbox import committing, merging
from lakeplan.sandbox.graph import merge_base
from lakeplan.sandbox.handlers import objects
from lakeplan.sandbox.listing import page_of_paths
from lakeplan.sandbox.messages import ApiError, Request, Response, bad_request, page
from lakeplan.sandbox.routing import Route
from lakeplan.sandbox.service import Service

_COMMON_PREFIX = "common_prefix"


def list_objects(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    tree = committing.visible_tree(service, repository, request.params["ref"])
    chosen = page_of_paths(request, merging.in_order(tree))
    results: list[object] = []
    for name in chosen.names:
        if name in chosen.prefixes:
            empty = {"checksum": "", "mtime": 0, "physical_address": ""}
            results.append({**empty, "path": name, "path_type": _COMMON_PREFIX})
            continue
        answer = objects.shown(service, repository, tree[name])
        if not answer["metadata"] or request.text("user_metadata", "true") == "false":
            del answer["metadata"]
        results.append(answer)
    return page(results, has_more=chosen.has_more, next_offset=chosen.next_offset)


def diff_uncommitted(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    branch = request.params["branch"]
    tree = committing.head_tree(service, repository, branch)
    changes = committing.effective_changes(service, repository, branch)
    before = {path: tree[path] for path in changes if path in tree}
    found = merging.diff(before, merging.apply_changes(before, changes))
    # Of a staged deletion a server tells nothing, not even the size of what is deleted.
    return _differences(request, [replace(d, size=0) if d.type == "removed" else d for d in found])


def diff_refs(service: Service, request: Request) -> Response:
    """``three_dot``, the default: what the right side brought since both had the same. ``two_dot``: how the
    right side differs from the left."""
    kind = request.text("type", "three_dot")
    if kind not in ("three_dot", "two_dot"):
        raise bad_request('parameter "type" in query has an error: value is not one of the allowed values')
    repository = service.repository(request)
    commits = [_commit_of(service, repository, request.params[side]) for side in ("left", "right")]
    left, right = (committing.tree_of(service, repository, commit) for commit in commits)
    if kind == "two_dot":
        return _differences(request, merging.diff(left, right))
    base = merge_base(service.records, repository.id, commits[0].id, commits[1].id)
    if base is None:
        raise bad_request("no merge base")
    before = committing.tree_of(service, repository, base)
    return _differences(request, merging.diff_from_base(before, left, right))


def _commit_of(service: Service, repository: Repository, ref: str) -> Commit:
    try:
        return service.commit_of(repository, ref)
    except ApiError as error:
        raise ApiError(error.status, f"get commit by ref {ref}: {error.message}") from None


def _differences(request: Request, differences: Sequence[merging.Difference]) -> Response:
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


ROUTES = (
    Route("GET", "/repositories/{repository}/refs/{ref}/objects/ls", list_objects),
    Route("GET", "/repositories/{repository}/branches/{branch}/diff", diff_uncommitted),
    Route("GET", "/repositories/{repository}/refs/{left}/diff/{right}", diff_refs),
)
