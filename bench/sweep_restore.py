"""``sweep restore`` of one object out of a quarantine of many, on a server with other repositories.

    python bench/sweep_restore.py [--objects 5000] [--repositories 16]

Goal (issue 14): seconds. Prints seconds of whole processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests

from lakeplan.sandbox.server import SandboxHandle, start_sandbox

DAY = 86400


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--objects", type=int, default=5_000)
    options.add_argument("--repositories", type=int, default=16)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name, start_sandbox(Path(name) / "lake") as handle:
        folder = Path(name)
        began = time.perf_counter()
        make(handle, folder / "lake", chosen.objects, chosen.repositories)
        (folder / "tree").mkdir()
        (folder / "tree" / "lakeplan.yaml").write_text(
            "apiVersion: lakeplan/v1\n"
            f"servers: {{prod: {{endpoint_url: '{handle.endpoint_url}',"
            f" storages: {{'': {{type: local, path: '{folder / 'lake'}'}}}}}}}}\n"
            "safety: {max_expired_objects_percent: 100}\n"
            "repositories: {repo-0000: {gc: {default_retention_days: 7},"
            " sweep: {mode: quarantine, settle: 0s, margin: 0s}}}\n"
        )
        print(f"made {chosen.objects:,} objects in {time.perf_counter() - began:.1f} s", flush=True)
        mark_id = lakeplan(handle, folder, "mark")["marks"][0]["mark_id"]
        lakeplan(handle, folder, "approve", mark_id, "--reason", "bench")
        lakeplan(handle, folder, "run", mark_id)
        for path in (["--path", "file-000001"], []):
            document = lakeplan(handle, folder, "restore", mark_id, *path)
            print(f"    restored {document['restored']:,}, already there {document['already_there']:,}")


def make(handle: SandboxHandle, lake: Path, objects: int, repositories: int) -> None:
    """Objects that a commit of 40 days ago deleted, and other repositories with a few commits."""
    session = requests.Session()
    session.auth = (handle.access_key_id, handle.secret_access_key)
    root = f"{handle.endpoint_url}/api/v1/repositories"

    def call(method: str, path: str, **more: Any) -> None:
        session.request(method, f"{root}{path}", timeout=60, **more).raise_for_status()

    def upload(name: str, path: str) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        where = f"/{name}/branches/main/objects"
        call("POST", where, params={"path": path}, data=path.encode(), headers=headers)

    def commit(name: str, days: int) -> None:
        body = {"message": "m", "date": int(time.time()) - days * DAY}
        call("POST", f"/{name}/branches/main/commits", json=body)

    for number in range(repositories):
        name = f"repo-{number:04}"
        body = {"name": name, "storage_namespace": f"local://{name}", "default_branch": "main"}
        call("POST", "", json=body)
        call("PUT", f"/{name}/settings/gc_rules", json={"default_retention_days": 7, "branches": []})
        upload(name, "kept")
        paths = [f"file-{n:06}" for n in range(objects if number == 0 else 3)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(upload, [name] * len(paths), paths))
        commit(name, 60)
        for at in range(0, len(paths), 1000):
            some = {"paths": paths[at : at + 1000]}
            call("POST", f"/{name}/branches/main/objects/delete", json=some)
        commit(name, 40)
    for file in (lake / "repo-0000" / "data").rglob("*"):
        if file.is_file():
            os.utime(file, (time.time() - 50 * DAY,) * 2)


def lakeplan(handle: SandboxHandle, folder: Path, *words: str) -> Any:
    environ = {
        **os.environ,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "key"),
        "LAKEPLAN_PROD_ENDPOINT_URL": handle.endpoint_url,
        "LAKEPLAN_PROD_ACCESS_KEY_ID": handle.access_key_id,
        "LAKEPLAN_PROD_SECRET_ACCESS_KEY": handle.secret_access_key,
    }
    environ.pop("CI", None)
    command = [sys.executable, "-m", "lakeplan", "sweep", *words, "-C", str(folder / "tree")]
    began = time.perf_counter()
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, env=environ)
    seconds, load = time.perf_counter() - began, os.getloadavg()[0]
    if done.returncode:
        raise SystemExit(f"{words} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    print(f"{' '.join(words[:1] + words[2:]):30} {seconds:6.1f} s (load {load:.1f})", flush=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
