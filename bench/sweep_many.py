"""Compares a ``sweep mark`` of many repositories of one server with one of a single repository.

    python bench/sweep_many.py [--repositories 16] [--going 16] [--commits 4]

Goals (issue 14): a repository of 16 costs at most twice the requests of one alone, 16 are marked in 20 s, and
200 of which 20 have something to delete in 2 minutes. Prints seconds of whole processes and requests that the
server answered, first with an empty cache and then with a full one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from lakeplan.sandbox.messages import Request, Response
from lakeplan.sandbox.server import Sandbox, SandboxHandle
from lakeplan.sandbox.service import Options

DAY = 86400
ASKED: list[tuple[str, str]] = []
"""Method and path of the requests that the server answered."""


class Recording(Sandbox):
    def answer(self, request: Request, raw_path: str) -> Response:
        ASKED.append((request.method, raw_path))
        return super().answer(request, raw_path)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--repositories", type=int, default=16)
    options.add_argument("--going", type=int, help="repositories with expired objects; default: all")
    options.add_argument("--commits", type=int, default=4, help="commits in each repository")
    chosen = options.parse_args()
    count = chosen.repositories
    going = count if chosen.going is None else chosen.going
    with server_of(1, 1, chosen.commits) as (handle, folder):
        alone = mark(handle, folder, "alone", 1)
    with server_of(count, going, chosen.commits) as (handle, folder):
        for what in ("all, empty cache", "all, again"):
            every = mark(handle, folder, what, count)
            print(f"  {every / alone:.2f} times the requests of one alone", flush=True)
        mark(handle, folder, "one of them, again", 1, "--target", "repo-0000")


@contextmanager
def server_of(count: int, going: int, commits: int) -> Iterator[tuple[SandboxHandle, Path]]:
    with tempfile.TemporaryDirectory() as name, _lake(Path(name) / "lake") as handle:
        folder = Path(name)
        began = time.perf_counter()
        make_repositories(handle, folder / "lake", count, going, commits)
        print(f"made {count:,} repositories in {time.perf_counter() - began:.1f} s", flush=True)
        write_tree(folder / "tree", handle, folder / "lake")
        yield handle, folder


def make_repositories(handle: SandboxHandle, lake: Path, count: int, going: int, commits: int) -> None:
    session = requests.Session()
    session.auth = (handle.access_key_id, handle.secret_access_key)
    root = f"{handle.endpoint_url}/api/v1/repositories"

    def make(number: int) -> None:
        def call(method: str, path: str, **more: Any) -> None:
            session.request(method, f"{root}{path}", timeout=60, **more).raise_for_status()

        name = f"repo-{number:04}"
        body = {"name": name, "storage_namespace": f"local://{name}", "default_branch": "main"}
        call("POST", "", json=body)
        call("PUT", f"/{name}/settings/gc_rules", json={"default_retention_days": 7, "branches": []})
        for version in range(commits):
            for file in ("a", "b"):
                data = f"{number}/{version}/{file}".encode()
                headers = {"Content-Type": "application/octet-stream"}
                path = f"/{name}/branches/main/objects"
                call("POST", path, params={"path": file}, data=data, headers=headers)
            date = int(time.time()) - (60 - version) * DAY
            call("POST", f"/{name}/branches/main/commits", json={"message": "m", "date": date})
        if number < going:
            for stored in (lake / name / "data").rglob("*"):
                if stored.is_file():
                    os.utime(stored, (time.time() - 50 * DAY,) * 2)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(count)))


def write_tree(tree: Path, handle: SandboxHandle, lake: Path) -> None:
    tree.mkdir()
    (tree / "lakeplan.yaml").write_text(
        "apiVersion: lakeplan/v1\n"
        f"servers: {{prod: {{endpoint_url: '{handle.endpoint_url}',"
        f" storages: {{'': {{type: local, path: '{lake}'}}}}}}}}\n"
        "safety: {max_expired_objects_percent: 100}\n"
        "repositories: {'repo-*': {gc: {default_retention_days: 7}}}\n"
    )


def _lake(folder: Path) -> SandboxHandle:
    return SandboxHandle(Recording(folder, Options()), 0)


def mark(handle: SandboxHandle, folder: Path, what: str, count: int, *words: str) -> float:
    """Marks, and prints what that took. Requests a repository."""
    environ = {
        **os.environ,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "key"),
        "LAKEPLAN_PROD_ENDPOINT_URL": handle.endpoint_url,
        "LAKEPLAN_PROD_ACCESS_KEY_ID": handle.access_key_id,
        "LAKEPLAN_PROD_SECRET_ACCESS_KEY": handle.secret_access_key,
    }
    environ.pop("CI", None)
    ASKED.clear()
    began = time.perf_counter()
    command: Sequence[str] = [
        *(sys.executable, "-m", "lakeplan", "sweep", "mark", "-C", str(folder / "tree"), "--no-progress"),
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{what} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    asked = list(ASKED)
    load = os.getloadavg()[0]
    print(
        f"{what:18} {seconds:6.1f} s, {len(asked):,} requests, {len(asked) / count:.1f} a repository"
        f" (load {load:.1f})",
        flush=True,
    )
    kinds = Counter(kind_of(*one) for one in asked)
    for kind, number in kinds.most_common(8):
        print(f"    {number:7,} {kind}", flush=True)
    return len(asked) / count


def kind_of(method: str, path: str) -> str:
    parts = path.partition("?")[0].split("/")
    shown = ["*" if n == 4 or n >= 8 else part for n, part in enumerate(parts)]
    return f"{method} {'/'.join(shown[3:])}"


if __name__ == "__main__":
    main()
