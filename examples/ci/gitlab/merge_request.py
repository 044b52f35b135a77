"""What the pipeline asks GitLab: the one comment of a merge request, and the plan that was reviewed in it.

``comment FILE`` updates the note that begins with the first line of FILE (lakeplan's marker), or makes it;
PAGE_URL, when it is set, is linked below.
``find-plan FILE`` fetches, for the merged commit CI_COMMIT_SHA, what the job ``plan`` kept in the merge
request's own pipeline at its last commit. Python alone is needed.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = 100
LIMIT = 65_536
"""Bytes of a comment, as lakeplan cuts it."""


def call(method: str, path: str, body: Any = None, *, may_miss: bool = False) -> bytes:
    """``may_miss``: returns nothing for what does not exist."""
    request = urllib.request.Request(
        f"{os.environ['CI_API_V4_URL']}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    # A redirect gets no token: artifacts may lie in a store of another host.
    request.add_unredirected_header("PRIVATE-TOKEN", os.environ["REVIEW_TOKEN"])
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        if may_miss and error.code == 404:
            return b""
        sys.exit(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:500]}")


def project() -> str:
    return f"/projects/{int(os.environ['CI_PROJECT_ID'])}"


def pages(path: str) -> Iterator[Any]:
    number = 1
    while True:
        items = json.loads(call("GET", f"{path}?per_page={PAGE}&page={number}"))
        yield from items
        if len(items) < PAGE:
            return
        number += 1


def with_page(body: str) -> str:
    """The comment, with a link to the report page where there is one and the host's limit leaves room."""
    url = os.environ.get("PAGE_URL", "")
    linked = f"{body}\n[Report page]({url})\n"
    return linked if url and len(linked.encode()) <= LIMIT else body


def comment(file: Path) -> None:
    body = with_page(file.read_text(encoding="utf-8"))
    marker = body.splitlines()[0]
    notes = f"{project()}/merge_requests/{int(os.environ['CI_MERGE_REQUEST_IID'])}/notes"
    me = json.loads(call("GET", "/user"))["id"]
    for old in pages(notes):
        # Only our own: a person could write the marker too.
        if old["author"]["id"] == me and old["body"].startswith(marker):
            call("PUT", f"{notes}/{int(old['id'])}", {"body": body})
            print("updated the comment")
            return
    call("POST", notes, {"body": body})
    print("made the comment")


def find_plan(file: Path) -> None:
    commit, branch = os.environ["CI_COMMIT_SHA"], os.environ["CI_COMMIT_BRANCH"]
    names = ("merge_commit_sha", "squash_commit_sha", "sha")
    merged = [
        m
        for m in pages(f"{project()}/repository/commits/{commit}/merge_requests")
        if m["state"] == "merged" and commit in [m[name] for name in names] and is_own(m, branch)
    ]
    if len(merged) != 1:
        sys.exit(
            f"{commit} is the merge of {len(merged)} merge requests of this project into {branch}:"
            " nothing that was reviewed to apply"
        )
    number, head = int(merged[0]["iid"]), merged[0]["sha"]
    jobs = [
        job
        for listed in pages(f"{project()}/merge_requests/{number}/pipelines")
        if is_ours(int(listed["id"]), number, head, commit)
        for job in pages(f"{project()}/pipelines/{int(listed['id'])}/jobs")
        if job["name"] == "plan" and job["artifacts"]
    ]
    if not jobs:
        sys.exit(
            f"there is no plan of merge request {number} at {head} (any more): plan it again in a new one"
        )
    kept = f"{project()}/jobs/{max(int(job['id']) for job in jobs)}/artifacts"
    file.write_bytes(call("GET", f"{kept}/plan.json"))
    objects = call("GET", f"{kept}/plan.json.objects", may_miss=True)
    if objects:
        Path(f"{file}.objects").write_bytes(objects)
    print(f"the plan of merge request {number} at {head}")


def is_own(request: Any, branch: str) -> bool:
    """Of this project's own branch, into the branch that was pushed to."""
    here = int(os.environ["CI_PROJECT_ID"])
    projects = (request["source_project_id"], request["target_project_id"])
    return request["target_branch"] == branch and projects == (here, here)


def is_ours(pipeline_id: int, number: int, head: str, commit: str) -> bool:
    """Whether a pipeline ran for this merge request at its last commit: of that commit, or of its merge into
    a commit that the merged one descends from. Anybody's pipeline may have a job of any name."""
    pipeline = json.loads(call("GET", f"{project()}/pipelines/{pipeline_id}"))
    if (
        pipeline["source"] != "merge_request_event"
        or pipeline["project_id"] != int(os.environ["CI_PROJECT_ID"])
        or not pipeline["ref"].startswith(f"refs/merge-requests/{number}/")
    ):
        return False
    if pipeline["sha"] == head:
        return True
    merge = json.loads(call("GET", f"{project()}/repository/commits/{pipeline['sha']}"))
    others = [parent for parent in merge["parent_ids"] if parent != head]
    if len(others) != 1 or head not in merge["parent_ids"]:
        return False
    refs = f"refs[]={others[0]}&refs[]={commit}"
    return bool(json.loads(call("GET", f"{project()}/repository/merge_base?{refs}"))["id"] == others[0])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["comment", file]:
            comment(Path(file))
        case ["find-plan", file]:
            find_plan(Path(file))
        case _:
            sys.exit("usage: merge_request.py comment FILE | find-plan FILE")
