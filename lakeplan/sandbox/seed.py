"""Fills a lakeFS server with histories."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, assert_never
from urllib.parse import quote

import requests

from lakeplan.errors import AuthenticationFailed, NotFound, ServerUnreachable, UnexpectedAnswer, UsageError
from lakeplan.sandbox import seed_document as doc
from lakeplan.values.rules import GcRules
from lakeplan.values.units import count_of

_TIMEOUT = (5.0, 60.0)


class SeedClient:
    """Calls ``endpoint_url`` with basic auth. Follows no redirect, so that credentials are sent nowhere else.

    Every call raises ServerUnreachable, AuthenticationFailed, NotFound (404) or UnexpectedAnswer.
    """

    def __init__(self, endpoint_url: str, access_key_id: str, secret_access_key: str) -> None:
        base = endpoint_url.rstrip("/")
        self.endpoint_url = base
        self._api = base if base.endswith("/api/v1") else f"{base}/api/v1"
        self._session = requests.Session()
        # Without this, requests would look for other credentials in ~/.netrc.
        self._session.trust_env = False
        self._session.auth = (access_key_id, secret_access_key)

    def call(self, method: str, path: str, *, place: str = "", **parts: Any) -> requests.Response:
        """Sends one request. ``path`` is quoted already. ``place`` is where the seed file requests it.
        ``parts`` are for requests: ``json``, ``data``, ``params``, ``headers``."""
        where = place or self.endpoint_url
        try:
            answer = self._session.request(
                method, self._api + path, timeout=_TIMEOUT, allow_redirects=False, **parts
            )
        except (requests.RequestException, ValueError) as error:
            raise ServerUnreachable(
                "the server does not respond",
                where=where,
                hint="Check that the server is running. `lakeplan sandbox up` starts one.",
                detail=str(error),
            ) from error
        status = answer.status_code
        if status < 300:
            return answer
        message = _message(answer)
        if status == 401:
            raise AuthenticationFailed(
                f"the server refused the credentials: {message}",
                where=where,
                hint="Check --access-key and --secret-key, or LAKEPLAN_ACCESS_KEY and LAKEPLAN_SECRET_KEY.",
            )
        if status == 404:
            raise NotFound(f"{method} {path}: {message}", where=where)
        raise UnexpectedAnswer(f"{method} {path}: {status} {message}", status=status, where=where)

    def exists(self, repository: str) -> bool:
        try:
            self.call("GET", f"/repositories/{quote(repository, safe='')}")
        except NotFound:
            return False
        return True


def _message(answer: requests.Response) -> str:
    try:
        body = answer.json()
    except requests.JSONDecodeError:
        return answer.text[:200].strip()
    return str(body.get("message", body)) if isinstance(body, dict) else str(body)[:200]


_PARALLEL_UPLOADS = 4
_SORTING_COMMITS = 200
_MAX_SORTING_ROUNDS = 5
_PAGE = "1000"


def run_seed(
    seed: Sequence[doc.RepositorySeed],
    client: SeedClient,
    *,
    as_of: int,
    namespace_prefix: str = "local://",
    skip_existing: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Makes the repositories and returns their names. ``as_of``: epoch seconds that ages count back from.

    Nothing is written when one of the repositories exists already (UsageError), unless ``skip_existing``
    leaves those as they are. ``report`` gets a line for each repository made.
    """
    existing = [r.name for r in seed if client.exists(r.name)]
    if existing and not skip_existing:
        raise UsageError(
            f"these repositories already exist: {', '.join(existing)}",
            where=client.endpoint_url,
            hint="Add --skip-existing to create only the repositories that do not exist yet.",
        )
    new = [repository for repository in seed if repository.name not in existing]
    for repository in new:
        _Runner(client, repository.name, as_of).run(repository, namespace_prefix)
        report(f"{repository.name}: {count_of(len(repository.steps), 'step')}")
    return [repository.name for repository in new]


class _Runner:
    """The steps of one repository."""

    def __init__(self, client: SeedClient, repository: str, as_of: int) -> None:
        self._client = client
        self._name = repository
        self._as_of = as_of
        self._place = ""
        self._number = 0

    def run(self, seed: doc.RepositorySeed, namespace_prefix: str) -> None:
        body = {
            "name": seed.name,
            "storage_namespace": seed.storage_namespace or f"{namespace_prefix}{seed.name}",
            "default_branch": seed.default_branch,
        }
        self._client.call("POST", "/repositories", json=body)
        for placed in seed.steps:
            self._place, self._number = placed.place, self._number + 1
            self._do(placed.step)

    def _do(self, step: doc.Step) -> None:
        match step:
            case doc.Upload():
                with ThreadPoolExecutor(_PARALLEL_UPLOADS) as pool:
                    list(pool.map(lambda path: self._upload(step, path), step.paths))
            case doc.Copy(branch, source, destination, ref):
                body = {"src_path": source, **({"src_ref": ref} if ref else {})}
                path = self._branch(branch, "objects/copy")
                self._call("POST", path, json=body, params={"dest_path": destination})
            case doc.Delete():
                self._delete(step)
            case doc.Commit(branch, message, age, metadata, allow_empty):
                self._commit(branch, message, age, dict(metadata), allow_empty=allow_empty)
            case doc.SortHeads():
                self._sort_heads(step)
            case doc.MakeBranch():
                self._call("POST", "/branches", json=asdict(step))
            case doc.DropBranch(name):
                self._call("DELETE", self._branch(name))
            case doc.Merge(source, into, message, strategy):
                path = f"/refs/{quote(source, safe='')}/merge/{quote(into, safe='')}"
                self._call("POST", path, json={"message": message, "strategy": strategy})
            case doc.Revert(branch, ref, parent):
                self._call("POST", self._branch(branch, "revert"), json={"ref": ref, "parent_number": parent})
            case doc.CherryPick(branch, ref):
                self._call("POST", self._branch(branch, "cherry-pick"), json={"ref": ref})
            case doc.HardReset(branch, to):
                self._call("PUT", self._branch(branch, "hard_reset"), params={"ref": to})
            case doc.DropStaged(branch):
                self._call("PUT", self._branch(branch), json={"type": "reset"})
            case doc.Tag(name, ref):
                self._call("POST", "/tags", json={"id": name, "ref": ref})
            case doc.SetGcRules(days, branches):
                self._call("PUT", "/settings/gc_rules", json=GcRules(days, branches).to_body())
            case doc.Protect(patterns):
                rules = [{"pattern": pattern} for pattern in patterns]
                self._call("PUT", "/settings/branch_protection", json=rules)
            case _:
                assert_never(step)

    def _upload(self, step: doc.Upload, path: str) -> None:
        if step.content is not None:
            data = step.content.encode()
        else:
            data = _unique_bytes(f"{self._name}\n{path}\n{self._number}", step.size)
        headers = {"Content-Type": "application/octet-stream"}
        headers |= {f"x-lakefs-meta-{key}": value for key, value in step.metadata.items()}
        self._call(
            "POST", self._branch(step.branch, "objects"), data=data, params={"path": path}, headers=headers
        )

    def _delete(self, step: doc.Delete) -> None:
        paths = self._paths_under(step.branch, step.path) if step.path.endswith("/") else [step.path]
        for start in range(0, len(paths), 1000):
            chunk = paths[start : start + 1000]
            self._call("POST", self._branch(step.branch, "objects/delete"), json={"paths": chunk})

    def _paths_under(self, branch: str, prefix: str) -> list[str]:
        paths: list[str] = []
        query = {"prefix": prefix, "amount": _PAGE}
        while True:
            page = self._call("GET", f"/refs/{quote(branch, safe='')}/objects/ls", params=query)
            paths.extend(item["path"] for item in page["results"])
            if not page["pagination"]["has_more"]:
                return paths
            query["after"] = page["pagination"]["next_offset"]

    def _commit(
        self, branch: str, message: str, age: int | None, metadata: dict[str, str], *, allow_empty: bool
    ) -> str:
        body: dict[str, object] = {"message": message, "metadata": metadata, "allow_empty": allow_empty}
        if age is not None:
            body["date"] = self._as_of - age
        return str(self._call("POST", self._branch(branch, "commits"), json=body)["id"])

    def _sort_heads(self, step: doc.SortHeads) -> None:
        for _ in range(_MAX_SORTING_ROUNDS):
            first, then = (self._head(branch) for branch in (step.first, step.then))
            for number in range(_SORTING_COMMITS):
                if first < then:
                    return
                message = f"checkpoint {number + 1}"
                first = self._commit(step.first, message, step.age, {}, allow_empty=True)
            # Ids are random: one in 200 is so small that none of 200 others is smaller.
            age = self._as_of - int(self._call("GET", f"/commits/{then}")["creation_date"])
            self._commit(step.then, "another id", age, {}, allow_empty=True)
        raise UsageError(
            f"no commit on {step.first} got an id that sorts before the HEAD of {step.then}",
            where=self._place,
            hint="Run `lakeplan sandbox seed` again on a new sandbox, because commit ids are random.",
        )

    def _head(self, branch: str) -> str:
        return str(self._call("GET", self._branch(branch))["commit_id"])

    def _branch(self, branch: str, rest: str = "") -> str:
        return f"/branches/{quote(branch, safe='')}" + (f"/{rest}" if rest else "")

    def _call(self, method: str, path: str, **parts: Any) -> Any:
        """The JSON of the answer to a call below the repository, or None if the answer is no JSON."""
        answer = self._client.call(
            method, f"/repositories/{quote(self._name, safe='')}{path}", place=self._place, **parts
        )
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        return answer.json() if is_json and answer.content else None


def _unique_bytes(label: str, size: int) -> bytes:
    """The ``size`` bytes that a label determines."""
    block = hashlib.sha256(label.encode()).digest()
    return (block * (size // len(block) + 1))[:size]
