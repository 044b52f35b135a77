"""Merge requests on GitLab, as seen by the job of a pipeline. Any pipeline may have a job of any name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lakeplan.errors import UsageError
from lakeplan.hosts.client import HostClient, reads_answers
from lakeplan.hosts.protocols import OBJECTS_FILE, PLAN_FILE, Comment, HostError, NoPlan, Request, moment
from lakeplan.lakefs.credentials import Secret
from lakeplan.lakefs.transport import RetryPolicy
from lakeplan.values.local import write_file

JOB = "plan"
FOLDER = "lakeplan-results"
"""Where the job ``plan`` keeps its files. GitLab's artifacts are files of the checkout."""


class GitLab:
    """One project, for one job."""

    sign = "!"

    def __init__(self, client: HostClient, environ: Mapping[str, str]) -> None:
        self.client, self.environ = client, environ
        self._here = int(environ["CI_PROJECT_ID"])
        self._project = f"/projects/{self._here}"

    @classmethod
    def of(cls, environ: Mapping[str, str], retries: RetryPolicy | None = None) -> GitLab:
        """Return the project of the job. Raises UsageError outside a job or without a token."""
        api, token = environ.get("CI_API_V4_URL", ""), environ.get("REVIEW_TOKEN", "")
        if not api or not token or not environ.get("CI_PROJECT_ID", "").isdecimal():
            raise UsageError(
                "REVIEW_TOKEN, CI_API_V4_URL or CI_PROJECT_ID is not set",
                hint="Set REVIEW_TOKEN to a project access token with the `api` scope.",
            )
        client = HostClient("GitLab", api, "PRIVATE-TOKEN", Secret(token), retries or RetryPolicy())
        return cls(client, environ)

    # ---- the job
    def here(self) -> int | None:
        number = self.environ.get("CI_MERGE_REQUEST_IID", "")
        return int(number) if number.isdecimal() else None

    def base_ref(self) -> str:
        names = ("CI_MERGE_REQUEST_TARGET_BRANCH_SHA", "CI_MERGE_REQUEST_DIFF_BASE_SHA")
        base = next((self.environ[name] for name in names if self.environ.get(name)), "")
        if not base:
            raise HostError(
                "this pipeline does not have a base commit", hint="Run this job in a merge request pipeline."
            )
        return base

    def is_fork(self) -> bool:
        source = self.environ.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID")
        return source is not None and source != self.environ.get("CI_MERGE_REQUEST_PROJECT_ID")

    def head(self) -> str:
        return self.environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or self.environ.get("CI_COMMIT_SHA", "")

    # ---- comments
    @reads_answers
    def own_comment(self, number: int, marker: str) -> Comment | None:
        """Return lakeplan's comment. Only a comment by lakeplan's own user counts, because a person could
        write the marker too."""
        me = self.client.get("/user")["id"]
        for note in self.client.pages(self._notes(number)):
            body = str(note.get("body") or "")
            if note["author"]["id"] == me and body.startswith(marker):
                return Comment(number, int(note["id"]), body)
        return None

    def write_comment(self, number: int, body: str, old: Comment | None) -> str:
        if old is None:
            self.client.call("POST", self._notes(number), {"body": body})
        else:
            self.client.call("PUT", f"{self._notes(number)}/{old.id}", {"body": body})
        return ""

    def _notes(self, number: int) -> str:
        return f"{self._project}/merge_requests/{int(number)}/notes"

    def set_status(self, commit: str, name: str, *, passed: bool, text: str) -> None:
        """Do nothing, because the pipeline shows how a job ended, and a status would appear as another
        job."""

    # ---- merge requests
    @reads_answers
    def open_requests(self) -> list[int]:
        names = ("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "CI_COMMIT_BRANCH", "CI_DEFAULT_BRANCH")
        base = next((self.environ[name] for name in names if self.environ.get(name)), "")
        path = f"{self._project}/merge_requests?state=opened&target_branch={quote(base, safe='')}"
        return [int(request["iid"]) for request in self.client.pages(path)]

    @reads_answers
    def merged(self) -> list[Request]:
        commit, branch = self.environ.get("CI_COMMIT_SHA", ""), self.environ.get("CI_COMMIT_BRANCH", "")
        names = ("merge_commit_sha", "squash_commit_sha", "sha")
        return [
            Request(
                number=int(m["iid"]),
                head=str(m["sha"]),
                base=str(m["target_branch"]),
                branch=str(m.get("source_branch") or ""),
                own=True,
                author=str((m.get("author") or {}).get("username") or ""),
                merged=str(m["merged_at"]),
            )
            for m in self.client.pages(
                f"{self._project}/repository/commits/{quote(commit, safe='')}/merge_requests"
            )
            if m["state"] == "merged" and commit in [m[name] for name in names] and self._is_own(m, branch)
        ]

    @reads_answers
    def approvers(self, request: Request) -> list[str]:
        approvals = self.client.get(f"{self._project}/merge_requests/{request.number}/approvals")
        return [str(one["user"]["username"]) for one in approvals.get("approved_by") or ()]

    def _is_own(self, request: Mapping[str, Any], branch: str) -> bool:
        """Return whether it merges a branch of this project into the branch that was pushed to."""
        projects = (request["source_project_id"], request["target_project_id"])
        return request["target_branch"] == branch and projects == (self._here, self._here)

    # ---- plans
    @reads_answers
    def fetch_plan(self, request: Request, folder: Path) -> Path:
        since = self._compared_since(request)
        jobs = [
            int(job["id"])
            for listed in self.client.pages(f"{self._project}/merge_requests/{request.number}/pipelines")
            if self._is_ours(int(listed["id"]), request, since)
            for job in self.client.pages(
                f"{self._project}/pipelines/{int(listed['id'])}/jobs?include_retried=true"
            )
            if job["name"] == JOB and job["artifacts"] and request.saw(job["finished_at"])
        ]
        if not jobs:
            raise _no_plan(request)
        kept = f"{self._project}/jobs/{max(jobs)}/artifacts/{FOLDER}"
        write_file(folder / PLAN_FILE, self.client.download(f"{kept}/{PLAN_FILE}"))
        try:
            objects = self.client.download(f"{kept}/{OBJECTS_FILE}")
        except HostError:
            return folder / PLAN_FILE  # an apply that needs the objects file says that it is missing
        write_file(folder / OBJECTS_FILE, objects)
        return folder / PLAN_FILE

    def _compared_since(self, request: Request) -> str | None:
        """Return since when the last commit is compared with the present base, or None if it never had
        another base. A pipeline from before that planned a change of another target branch, which may have
        had weaker safety settings."""
        listed = self.client.pages(f"{self._project}/merge_requests/{request.number}/versions")
        versions = [v for v in listed if v["head_commit_sha"] == request.head]
        versions.sort(key=lambda version: int(version["id"]), reverse=True)
        if not versions:
            raise _no_plan(request)
        base = versions[0]["base_commit_sha"]
        same = list(takewhile(lambda version: version["base_commit_sha"] == base, versions))
        return None if len(same) == len(versions) else str(same[-1]["created_at"])

    def _is_ours(self, pipeline_id: int, request: Request, since: str | None) -> bool:
        """Return whether a pipeline ran for this merge request at its last commit, or at the merge of that
        commit into an ancestor of the pushed commit, and began after ``since``."""
        pipeline = self.client.get(f"{self._project}/pipelines/{pipeline_id}")
        if since is not None and moment(pipeline["created_at"]) <= moment(since):
            return False
        if (
            pipeline["source"] != "merge_request_event"
            or pipeline["project_id"] != self._here
            or not str(pipeline["ref"]).startswith(f"refs/merge-requests/{request.number}/")
        ):
            return False
        sha = str(pipeline["sha"])
        if sha == request.head:
            return True
        if not re.fullmatch(r"[0-9a-f]{40,64}", sha):
            return False
        parents = self.client.get(f"{self._project}/repository/commits/{sha}")["parent_ids"]
        others = [parent for parent in parents if parent != request.head]
        if len(others) != 1 or request.head not in parents:
            return False
        commit = self.environ.get("CI_COMMIT_SHA", "")
        refs = f"refs[]={quote(others[0], safe='')}&refs[]={quote(commit, safe='')}"
        merge_base = self.client.get(f"{self._project}/repository/merge_base?{refs}")
        return bool(merge_base["id"] == others[0])


def _no_plan(request: Request) -> NoPlan:
    return NoPlan(
        f"no plan of merge request {request.number} at {request.head} was created before the merge, or the"
        " plan has expired",
        hint="Open a new merge request. Its pipeline then creates a new plan.",
    )
