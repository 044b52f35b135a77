"""What the workflow asks GitHub: the one comment of a pull request, and the plan that was reviewed in it.

``comment FILE`` updates the comment that begins with the first line of FILE (lakeplan's marker), or makes it;
PAGE_URL, when it is set, is linked below.
``find-plan`` finds the artifact that this workflow made for the pull request of merged commit GITHUB_SHA:
by the workflow's path, the event, the base branch, the head repository and the head commit. It gives its name
and run to the steps after it (GITHUB_OUTPUT). Python alone is needed.
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
from urllib.parse import quote

PAGE = 100
LIMIT = 65_536
"""Bytes of a comment, as lakeplan cuts it."""


def call(method: str, path: str, body: Any = None) -> Any:
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    request = urllib.request.Request(
        f"{api}/repos/{os.environ['GITHUB_REPOSITORY']}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
        },
    )
    # A redirect gets no token: it may lead to another host.
    request.add_unredirected_header("Authorization", f"Bearer {os.environ['GITHUB_TOKEN']}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:500]}")


def pages(path: str, key: str | None = None) -> Iterator[Any]:
    number = 1
    while True:
        found = call("GET", f"{path}{'&' if '?' in path else '?'}per_page={PAGE}&page={number}")
        items = found if key is None else found[key]
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
    number = int(os.environ["PULL_REQUEST"])
    for old in pages(f"/issues/{number}/comments"):
        # Only a bot's own: a person could write the marker too.
        if old["user"]["type"] == "Bot" and old["body"].startswith(marker):
            call("PATCH", f"/issues/comments/{int(old['id'])}", {"body": body})
            print(f"updated {old['html_url']}")
            return
    print(f"made {call('POST', f'/issues/{number}/comments', {'body': body})['html_url']}")


def find_plan() -> None:
    commit, branch = os.environ["GITHUB_SHA"], os.environ["GITHUB_REF_NAME"]
    merged = [
        p
        for p in pages(f"/commits/{commit}/pulls")
        if p["merged_at"] and p["merge_commit_sha"] == commit and p["base"]["ref"] == branch
    ]
    if len(merged) != 1:
        sys.exit(
            f"{commit} is the merge of {len(merged)} pull requests into {branch}:"
            " nothing that was reviewed to apply"
        )
    pull = merged[0]
    number, head = pull["number"], pull["head"]["sha"]
    others = sorted({p["base"]["ref"] for p in pages(f"/commits/{head}/pulls") if is_other(p, pull)})
    if others:
        # The run of that pull request has the same head and path, and another branch's workflow file.
        sys.exit(
            f"{head} is the head of a pull request into {', '.join(others)}, too: plan it again in a new one"
        )
    moved = [
        event["created_at"]
        for event in pages(f"/issues/{number}/timeline")
        if event.get("event") == "base_ref_changed"
    ]
    name = f"lakeplan-{number}-{head}"
    named = [a for a in pages(f"/actions/artifacts?name={quote(name)}", "artifacts") if a["name"] == name]
    found = [a for a in named if not a["expired"] and is_ours(a["workflow_run"]["id"], pull, moved)]
    if not found:
        sys.exit(f"there is no plan {name} (any more): open a pull request that plans it again")
    newest = max(found, key=lambda a: a["id"])
    with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as output:
        output.write(f"name={name}\nrun-id={int(newest['workflow_run']['id'])}\n")
    print(f"the plan of pull request {number} at {head}")


def is_other(other: Any, pull: Any) -> bool:
    """Whether a pull request proposes the same head commit for another branch."""
    return other["head"]["sha"] == pull["head"]["sha"] and other["base"]["ref"] != pull["base"]["ref"]


def is_ours(run_id: int, pull: Any, moved: list[str]) -> bool:
    """Whether a run is this workflow's, for this pull request: an artifact's name says nothing, since every
    run of the repository may choose it. ``moved``: when the pull request got another base branch."""
    run = call("GET", f"/actions/runs/{int(run_id)}")
    repository = os.environ["GITHUB_REPOSITORY"]
    # org/trees/.github/workflows/lakeplan.yml@refs/heads/main
    path = os.environ["GITHUB_WORKFLOW_REF"].partition("@")[0].removeprefix(f"{repository}/")
    return (
        run["path"].partition("@")[0] == path
        and run["event"] == "pull_request"
        and run["head_sha"] == pull["head"]["sha"]
        and run["head_branch"] == pull["head"]["ref"]
        and (run["head_repository"] or {}).get("full_name") == repository
        and (pull["head"]["repo"] or {}).get("full_name") == repository
        and not any(moment >= run["created_at"] for moment in moved)
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["comment", file]:
            comment(Path(file))
        case ["find-plan"]:
            find_plan()
        case _:
            sys.exit("usage: pull_request.py comment FILE | find-plan")
