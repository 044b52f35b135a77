"""A GitHub API on a port: pull requests, comments, artifacts, statuses and runs of one repository.

Every call needs a token of a job with the permission that GitHub names for it. The
store of artifacts is another place, which refuses a token.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.serving import serve

REPOSITORY = "org/trees"
BOT = {"login": "github-actions[bot]", "type": "Bot"}
Answer = tuple[int, Any]
LEVELS = {"none": 0, "read": 1, "write": 2}

ROUTES = (
    ("GET", r"/pulls", "pull-requests:read", "list_pulls"),
    ("GET", r"/pulls/(\d+)", "pull-requests:read", "pull"),
    ("GET", r"/pulls/(\d+)/reviews", "pull-requests:read", "reviews"),
    ("GET", r"/commits/(\w+)/pulls", "pull-requests:read", "pulls_of"),
    ("GET", r"/issues/(\d+)/comments", "pull-requests:read", "list_comments"),
    ("POST", r"/issues/(\d+)/comments", "pull-requests:write", "make_comment"),
    ("GET", r"/issues/comments/(\d+)", "pull-requests:read", "comment"),
    ("PATCH", r"/issues/comments/(\d+)", "pull-requests:write", "change_comment"),
    ("POST", r"/issues/comments/(\d+)/reactions", "pull-requests:write", "react"),
    ("GET", r"/issues/(\d+)/timeline", "pull-requests:read", "timeline"),
    ("POST", r"/statuses/(\w+)", "statuses:write", "make_status"),
    ("GET", r"/actions/artifacts", "actions:read", "list_artifacts"),
    ("GET", r"/actions/artifacts/(\d+)/zip", "actions:read", "download"),
    ("GET", r"/actions/runs", "actions:read", "list_runs"),
    ("GET", r"/actions/runs/(\d+)", "actions:read", "run"),
    ("POST", r"/actions/runs/(\d+)/rerun", "actions:write", "rerun"),
    ("GET", r"/collaborators/([^/]+)/permission", "metadata:read", "permission"),
)


def _label(head: Any) -> str:
    return f"{head['repo']['full_name'].partition('/')[0]}:{head['ref']}"


class FakeGitHub:
    """``tokens`` maps a token to its permissions; ``calls`` has what was asked, with its token."""

    def __init__(self) -> None:
        self.tokens: dict[str, dict[str, str]] = {}
        self.pulls: dict[int, dict[str, Any]] = {}
        self.comments: dict[int, list[dict[str, Any]]] = {}
        self.said: dict[int, dict[str, Any]] = {}
        self.reactions: dict[int, list[str]] = {}
        self.artifacts: list[dict[str, Any]] = []
        self.files: dict[int, bytes] = {}
        self.runs: dict[int, dict[str, Any]] = {}
        self.statuses: list[dict[str, Any]] = []
        self.events: dict[int, list[dict[str, Any]]] = {}
        self.reviews: dict[int, list[dict[str, Any]]] = {}
        self.people: dict[str, str] = {}
        self.teams: dict[str, set[str]] = {}
        self.team_token = "team-token"
        self.calls: list[tuple[str, str, str]] = []
        self.refused: list[str] = []
        self.url = ""
        self._number = 0

    # ---- what a test draws
    def token(self, permissions: dict[str, str]) -> str:
        name = f"ghs_{len(self.tokens)}_of_a_job"
        self.tokens[name] = {"metadata": "read", **permissions}
        return name

    def open_pull(
        self, number: int, head: str, branch: str, *, author: str = "ann", fork: bool = False
    ) -> Any:
        self.pulls[number] = {
            "number": number,
            "state": "open",
            "created_at": "2026-03-31T10:00:00Z",
            "closed_at": None,
            "merged_at": None,
            "merge_commit_sha": None,
            "user": {"login": author},
            "head": {
                "sha": head,
                "ref": branch,
                "repo": {"full_name": "fork/trees" if fork else REPOSITORY},
            },
            "base": {"ref": "main"},
        }
        self.comments.setdefault(number, [])
        return self.pulls[number]

    def merge(self, number: int, commit: str) -> None:
        self.pulls[number] |= {
            "state": "closed",
            "closed_at": "2026-03-31T13:00:00Z",
            "merged_at": "2026-03-31T13:00:00Z",
            "merge_commit_sha": commit,
        }

    def begin_run(self, number: int, *, path: str, event: str, created: str = "2026-03-31T12:00:00Z") -> int:
        """A run of a workflow for a pull request."""
        self._number += 1
        head = self.pulls[number]["head"]
        self.runs[self._number] = {
            "id": self._number,
            "path": path,
            "event": event,
            "status": "completed",
            "head_sha": head["sha"],
            "head_branch": head["ref"],
            "head_repository": head["repo"],
            "created_at": created,
            "attempts": 1,
        }
        return self._number

    def upload(self, name: str, files: dict[str, bytes], run_id: int) -> str:
        self._number += 1
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for file, content in files.items():
                archive.writestr(file, content)
        self.files[self._number] = data.getvalue()
        self.artifacts = [a for a in self.artifacts if a["name"] != name or a["workflow_run"]["id"] != run_id]
        self.artifacts.append(
            {
                "id": self._number,
                "name": name,
                "expired": False,
                "created_at": "2026-03-31T12:30:00Z",
                "workflow_run": {"id": run_id},
            }
        )
        return f"https://host.example/artifacts/{name}"

    def bodies(self, number: int) -> list[str]:
        return [c["body"] for c in self.comments[number]]

    # ---- answers
    def answer(self, method: str, target: str, token: str, body: Any) -> Answer:
        parts = urlsplit(target)
        if parts.path.startswith("/store/"):
            return (
                (400, {"message": "a token came along"}) if token else (200, self.files[int(parts.path[7:])])
            )
        if parts.path.startswith("/orgs/"):
            return self._member(parts.path, token)
        if token not in self.tokens:
            return 401, {"message": "Bad credentials"}
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        path = parts.path.removeprefix(f"/repos/{REPOSITORY}")
        for verb, pattern, needs, name in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and verb == method:
                scope, _, level = needs.partition(":")
                if LEVELS[self.tokens[token].get(scope, "none")] < LEVELS[level]:
                    self.refused.append(f"{method} {path} needs {needs}")
                    return 403, {"message": "Resource not accessible by integration"}
                return self._paged(getattr(self, f"_{name}")(*found.groups(), query=query, body=body), query)
        return 404, {"message": "Not Found"}

    def _paged(self, answer: Answer, query: dict[str, str]) -> Answer:
        status, content = answer
        size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
        for key in (None, "artifacts", "workflow_runs"):
            listed = content if key is None else content.get(key) if isinstance(content, dict) else None
            if isinstance(listed, list):
                cut = listed[size * (page - 1) : size * page]
                return status, cut if key is None else {**content, key: cut}
        return answer

    def _list_pulls(self, query: Any, body: Any) -> Answer:
        found = list(self.pulls.values())
        if query.get("state", "open") != "all":
            found = [p for p in found if p["state"] == query.get("state", "open")]
        if "base" in query:
            found = [p for p in found if p["base"]["ref"] == query["base"]]
        if "head" in query:
            found = [p for p in found if _label(p["head"]) == query["head"]]
        return 200, found

    def _pull(self, number: str, query: Any, body: Any) -> Answer:
        found = self.pulls.get(int(number))
        return (200, found) if found else (404, {"message": "Not Found"})

    def _reviews(self, number: str, query: Any, body: Any) -> Answer:
        return 200, self.reviews.get(int(number), [])

    def _pulls_of(self, commit: str, query: Any, body: Any) -> Answer:
        """As documented: what merged it; of a commit that is not merged yet, what is open."""
        own = [p for p in self.pulls.values() if commit in (p["merge_commit_sha"], p["head"]["sha"])]
        merged = [p for p in own if p["merged_at"]]
        return 200, merged or [p for p in own if p["state"] == "open"]

    def _list_comments(self, number: str, query: Any, body: Any) -> Answer:
        return 200, self.comments[int(number)]

    def _comment(self, comment: str, query: Any, body: Any) -> Answer:
        found = self.said.get(int(comment))
        return (200, found) if found else (404, {"message": "Not Found"})

    def _make_comment(self, number: str, query: Any, body: Any) -> Answer:
        if len(body["body"]) > 65_536:
            return 422, {"message": "body is too long (maximum is 65536 characters)"}
        self._number += 1
        made = {
            "id": self._number,
            "user": BOT,
            "body": body["body"],
            "html_url": f"https://x/{self._number}",
        }
        self.comments[int(number)].append(made)
        return 201, made

    def _change_comment(self, comment: str, query: Any, body: Any) -> Answer:
        for comments in self.comments.values():
            for found in comments:
                if found["id"] == int(comment):
                    found["body"] = body["body"]
                    return 200, found
        return 404, {"message": "Not Found"}

    def _react(self, comment: str, query: Any, body: Any) -> Answer:
        self.reactions.setdefault(int(comment), []).append(body["content"])
        return 201, {}

    def _timeline(self, number: str, query: Any, body: Any) -> Answer:
        return 200, self.events.get(int(number), [])

    def _make_status(self, commit: str, query: Any, body: Any) -> Answer:
        if len(body["description"]) > 140 or body["state"] not in ("success", "failure"):
            return 422, {"message": "Validation Failed"}
        self.statuses.append({"commit": commit, **body})
        return 201, {}

    def _list_artifacts(self, query: Any, body: Any) -> Answer:
        name = query.get("name")
        return 200, {"artifacts": [a for a in self.artifacts if name is None or a["name"] == name]}

    def _download(self, artifact: str, query: Any, body: Any) -> Answer:
        return 302, f"{self.url}/store/{artifact}?sig=secret-signature"

    def _list_runs(self, query: Any, body: Any) -> Answer:
        wanted = query.get("event"), query.get("head_sha")
        return 200, {
            "workflow_runs": [r for r in self.runs.values() if (r["event"], r["head_sha"]) == wanted]
        }

    def _run(self, run: str, query: Any, body: Any) -> Answer:
        return 200, self.runs[int(run)]

    def _rerun(self, run: str, query: Any, body: Any) -> Answer:
        if self.runs[int(run)]["status"] != "completed":
            return 403, {"message": "This workflow is already running"}
        self.runs[int(run)]["attempts"] += 1
        return 201, {}

    def _permission(self, login: str, query: Any, body: Any) -> Answer:
        return 200, {"permission": self.people.get(login, "read")}

    def _member(self, path: str, token: str) -> Answer:
        if token != self.team_token:
            return 403, {"message": "Resource not accessible by integration"}
        found = re.fullmatch(r"/orgs/([^/]+)/teams/([^/]+)/memberships/([^/]+)", path)
        if found and found[3] in self.teams.get(f"{found[1]}/{found[2]}", set()):
            return 200, {"state": "active"}
        return 404, {"message": "Not Found"}


@contextmanager
def serving(fake: FakeGitHub) -> Iterator[FakeGitHub]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            fake.calls.append((self.command, self.path, token))
            status, content = fake.answer(self.command, self.path, token, json.loads(sent) if sent else None)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", content)
                content = b""
            self.end_headers()
            self.wfile.write(content if isinstance(content, bytes) else json.dumps(content).encode())

        do_GET = do_POST = do_PATCH = _answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_port}"
    with serve(server):
        yield fake
