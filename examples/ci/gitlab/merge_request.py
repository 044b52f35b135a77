"""What the pipeline asks GitLab: the one comment of a merge request, and the plan that was reviewed in it.

``comment FILE`` updates the note that begins with the first line of FILE (lakeplan's marker), or makes it;
PAGE_URL, when it is set, is linked below.
``publish FILE`` keeps a plan as a package named after the merge request and its head commit, and
``find-plan FILE`` fetches it for the merged commit CI_COMMIT_SHA. Python alone is needed.
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


def call(method: str, path: str, body: Any = None, *, as_job: bool = False) -> bytes:
    """``as_job`` uses the job's own token, which may do no more than packages; else REVIEW_TOKEN is used."""
    token = ("JOB-TOKEN", "CI_JOB_TOKEN") if as_job else ("PRIVATE-TOKEN", "REVIEW_TOKEN")
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    request = urllib.request.Request(
        f"{os.environ['CI_API_V4_URL']}{path}",
        method=method,
        data=body if isinstance(body, bytes) or body is None else json.dumps(body).encode(),
        headers={token[0]: os.environ[token[1]], "Content-Type": kind},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
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


def package(number: int, head: str) -> str:
    return f"{project()}/packages/generic/lakeplan/{number}-{head}/plan.json"


def publish(file: Path) -> None:
    # Of merged results pipelines this is the head of the branch, where CI_COMMIT_SHA is the merge commit.
    head = os.environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or os.environ["CI_COMMIT_SHA"]
    number = int(os.environ["CI_MERGE_REQUEST_IID"])
    call("PUT", package(number, head), file.read_bytes(), as_job=True)
    print(f"the plan of merge request {number} at {head}")


def find_plan(file: Path) -> None:
    commit = os.environ["CI_COMMIT_SHA"]
    names = ("merge_commit_sha", "squash_commit_sha", "sha")
    merged = [
        m
        for m in pages(f"{project()}/repository/commits/{commit}/merge_requests")
        if m["state"] == "merged" and commit in [m[name] for name in names]
    ]
    if len(merged) != 1:
        sys.exit(f"{commit} is the merge of {len(merged)} merge requests: nothing that was reviewed to apply")
    number, head = int(merged[0]["iid"]), merged[0]["sha"]
    file.write_bytes(call("GET", package(number, head), as_job=True))
    print(f"the plan of merge request {number} at {head}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["comment", file]:
            comment(Path(file))
        case ["publish", file]:
            publish(Path(file))
        case ["find-plan", file]:
            find_plan(Path(file))
        case _:
            sys.exit("usage: merge_request.py comment FILE | publish FILE | find-plan FILE")
