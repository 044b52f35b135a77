"""lakeplan as a user runs it: a tree on disk, a sandbox, one command line at a time."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakeplan.cli.main import run
from tests.in_process import no_sockets, session_of
from tests.sandboxes import SandboxHandle, start_sandbox

DAY = 86400


class Api:
    """The few lakeFS calls that draw a history."""

    def __init__(self, handle: SandboxHandle) -> None:
        self.root = f"{handle.endpoint_url}/api/v1"
        self.session = session_of(handle)

    def call(self, method: str, path: str, **more: Any) -> Any:
        answer = self.session.request(method, f"{self.root}{path}", timeout=30, **more)
        answer.raise_for_status()
        kind = answer.headers.get("Content-Type", "")
        return answer.json() if answer.content and "json" in kind else None

    def repository(self, name: str) -> None:
        body = {"name": name, "storage_namespace": f"local://{name}", "default_branch": "main"}
        self.call("POST", "/repositories", json=body)

    def upload(self, repository: str, branch: str, path: str, data: bytes) -> None:
        self.call(
            "POST",
            f"/repositories/{repository}/branches/{branch}/objects",
            params={"path": path},
            data=data,
            headers={"Content-Type": "application/octet-stream"},
        )

    def delete(self, repository: str, branch: str, path: str) -> None:
        self.call("DELETE", f"/repositories/{repository}/branches/{branch}/objects", params={"path": path})

    def commit(self, repository: str, branch: str, age_days: float, **files: int) -> str:
        """Uploads ``files`` (name → size) and commits them, back-dated by ``age_days``."""
        for name, size in files.items():
            self.upload(repository, branch, f"{name}.bin", name.encode().ljust(size, b"."))
        body = {"message": f"{age_days} days ago", "date": int(time.time() - age_days * DAY)}
        return str(
            self.call("POST", f"/repositories/{repository}/branches/{branch}/commits", json=body)["id"]
        )

    def branch(self, repository: str, name: str, source: str = "main") -> None:
        self.call("POST", f"/repositories/{repository}/branches", json={"name": name, "source": source})

    def tag(self, repository: str, name: str, ref: str) -> None:
        self.call("POST", f"/repositories/{repository}/tags", json={"id": name, "ref": ref})

    def rules(self, repository: str) -> dict[str, int] | None:
        """Stored rules as a flat map; the default under ``*``."""
        answer = self.session.get(f"{self.root}/repositories/{repository}/settings/gc_rules", timeout=30)
        if answer.status_code == 404:
            return None
        body = answer.json()
        branches = {b["branch_id"]: b["retention_days"] for b in body["branches"] or []}
        return {"*": body["default_retention_days"], **branches}

    def set_rules(self, repository: str, default: int, **branches: int) -> None:
        rules = [{"branch_id": b, "retention_days": d} for b, d in branches.items()]
        body = {"default_retention_days": default, "branches": rules}
        self.call("PUT", f"/repositories/{repository}/settings/gc_rules", json=body)


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class World:
    """A sandbox, a tree, and the command."""

    def __init__(self, folder: Path, handle: SandboxHandle, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self.tree.mkdir()
        self.handle = handle
        self.api = Api(handle)
        self._capsys = capsys
        self.write(
            "lakeplan.yaml",
            "apiVersion: lakeplan/v1\n"
            f"servers: {{prod: {{endpoint_url: {handle.endpoint_url}}}}}\n"
            "safety: {max_expired_objects_percent: 100, on_tag_loss: warn}\n",
        )

    def write(self, file: str, text: str) -> None:
        path = self.tree / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def append(self, file: str, text: str) -> None:
        path = self.tree / file
        path.write_text(path.read_text() + text)

    def git(self, *arguments: str) -> None:
        """A git command in the tree, by somebody who may commit."""
        who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", "-C", str(self.tree), *who, *arguments], check=True, capture_output=True)

    def age_repository(self, name: str, days: float = 1000) -> None:
        """The repository was made so many days earlier than it was."""
        store = self.handle._sandbox.service.store
        with store.transaction():
            store.run("UPDATE repositories SET created = created - ? WHERE id = ?", int(days * DAY), name)

    def name_again(
        self, monkeypatch: pytest.MonkeyPatch, endpoint_url: str, settings: str = "", *, owner: str = "prod"
    ) -> None:
        """A second name, ``lake``, of the same server, by another address of it. ``owner`` is the name that
        the entry of ``analytics`` is now written with."""
        assert endpoint_url != self.handle.endpoint_url
        monkeypatch.setenv("LAKEPLAN_LAKE_ENDPOINT_URL", endpoint_url)
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
            monkeypatch.setenv(f"LAKEPLAN_LAKE_{name}", os.environ[f"LAKEPLAN_PROD_{name}"])
        root = (self.tree / "lakeplan.yaml").read_text()
        again = f"lake: {{endpoint_url: {endpoint_url}{settings}}}"
        self.write("lakeplan.yaml", root.replace("servers: {", f"servers: {{{again}, ", 1))
        entry = (self.tree / "repositories" / "analytics.yaml").read_text()
        self.write("repositories/analytics.yaml", entry.replace("  analytics:", f"  {owner}/analytics:"))

    def early_stop(self) -> tuple[str, str]:
        """A repository in which a new branch with more days makes the server keep less of ``feature``: its
        name, and the commit that such a branch has to be at."""
        for attempt in range(24):
            name = f"walk-{attempt}"
            self.api.repository(name)
            self.api.branch(name, "feature")
            parent = self.api.commit(name, "feature", 200, x=10)
            self.api.branch(name, "tmp", parent)
            self.api.delete(name, "feature", "x.bin")
            head = self.api.commit(name, "feature", 6, y=10)
            self.api.delete(name, "tmp", "x.bin")
            first = self.api.commit(name, "tmp", 150, z=10)
            if first < head:  # the server walks from the smaller id first
                return name, first
        raise AssertionError("no commit has an id small enough")

    def rules(self, repository: str, default: int, **branches: int) -> None:
        """The tree's entry of one repository, in a separate file."""
        lines = "".join(f"        - {{branch_id: {b}, retention_days: {d}}}\n" for b, d in branches.items())
        self.write(
            f"repositories/{repository}.yaml",
            f"apiVersion: lakeplan/v1\nrepositories:\n  {repository}:\n    gc:\n"
            f"      default_retention_days: {default}\n" + (f"      branches:\n{lines}" if lines else ""),
        )

    def override(self, *gates: str) -> None:
        """Overrides these gates in the tree, and no others, for every repository."""
        items = [f"{{repository: '*', gate: {g}, reason: of a test, expires: 2099-12-31}}" for g in gates]
        self.write(
            "repositories/overrides.yaml",
            f"apiVersion: lakeplan/v1\nrepositories: {{}}\noverrides: [{', '.join(items)}]\n",
        )

    def lakeplan(self, command: str | tuple[str, ...], *arguments: str | Path) -> Result:
        """Runs one command line. A command of several words (``("history", "show")``) is a tuple."""
        self._capsys.readouterr()
        words = (command,) if isinstance(command, str) else command
        if words == ("branches",):  # a group: its first argument is a command of its own
            words, arguments = ("branches", str(arguments[0])), arguments[1:]
        code = run([*words, "-C", str(self.tree), *(str(a) for a in arguments)])
        out, err = self._capsys.readouterr()
        return Result(int(code), out, err)

    def plan_file(self, name: str = "plan.json", *more: str) -> Path:
        path = self.folder / name
        result = self.lakeplan("plan", "--format", "json", "--out", path, "-q", *more)
        assert result.code in (0, 4), result.err
        return path


@pytest.fixture(autouse=True)
def no_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox answers with what is there: reading back need not outlast caches."""
    monkeypatch.setattr("lakeplan.review.run.PAUSES", (0.01,))


OVER_SOCKETS = ("test_plan_apply.py", "test_sweep.py", "branches/test_deletion.py")
"""Files whose commands talk to the sandbox over HTTP. In the others that costs a third of the time, and
proves nothing more."""


@pytest.fixture(autouse=True)
def sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.path.relative_to(Path(__file__).parent).as_posix() in OVER_SOCKETS:
        yield
    else:
        with no_sockets():
            yield


@pytest.fixture
def make_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[SandboxHandle], World]:
    """A tree for a sandbox that runs, with credentials for it."""

    def make(handle: SandboxHandle) -> World:
        monkeypatch.setenv("LAKEPLAN_PROD_ENDPOINT_URL", handle.endpoint_url)
        monkeypatch.setenv("LAKEPLAN_PROD_ACCESS_KEY_ID", handle.access_key_id)
        monkeypatch.setenv("LAKEPLAN_PROD_SECRET_ACCESS_KEY", handle.secret_access_key)
        # A runner sets it, and lakeplan then refuses a state that would vanish; tests of that set it.
        monkeypatch.delenv("CI", raising=False)
        monkeypatch.setenv("COLUMNS", "120")
        return World(tmp_path, handle, capsys)

    return make


@pytest.fixture
def world(tmp_path: Path, make_world: Callable[[SandboxHandle], World]) -> Iterator[World]:
    with start_sandbox(tmp_path / "sandbox") as handle:
        yield make_world(handle)
