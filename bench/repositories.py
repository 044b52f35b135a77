"""A tree of many repositories against the sandbox: ``validate``, and ``plan --no-simulate``.

    python bench/repositories.py --repositories 1000

Prints seconds of whole processes, as a person at a terminal waits for them. Aims (issue 7, 1,000
repositories): validate under 5 s, plan --no-simulate under 60 s.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from lakeplan.sandbox.server import SandboxHandle, start_sandbox

OWNERS = 20


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--repositories", type=int, default=1000)
    count = options.parse_args().repositories
    with tempfile.TemporaryDirectory() as folder, start_sandbox(Path(folder) / "sandbox") as handle:
        began = time.perf_counter()
        make_repositories(handle, count)
        print(f"made {count:,} repositories in {time.perf_counter() - began:.1f} s", flush=True)
        tree = Path(folder) / "tree"
        write_tree(tree, handle.endpoint_url, count)
        for words in (["validate"], ["plan", "--no-simulate", "--no-progress"]):
            seconds, lines = timed(words, tree, handle)
            print(f"{' '.join(words[:2]):20} {seconds:6.1f} s, {lines:,} lines of output", flush=True)


def make_repositories(handle: SandboxHandle, count: int) -> None:
    """Each with a second branch, and rules that the tree would change in one of two."""
    session = requests.Session()
    session.auth = (handle.access_key_id, handle.secret_access_key)
    session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=16))
    root = f"{handle.endpoint_url}/api/v1/repositories"

    def make(number: int) -> None:
        name = f"data-{number:05}"
        body = {"name": name, "storage_namespace": f"local://{name}", "default_branch": "main"}
        session.post(root, json=body, timeout=60).raise_for_status()
        session.post(
            f"{root}/{name}/branches", json={"name": "release-1", "source": "main"}, timeout=60
        ).raise_for_status()
        rules: dict[str, object] = {"default_retention_days": 21 if number % 2 else 30, "branches": []}
        session.put(f"{root}/{name}/settings/gc_rules", json=rules, timeout=60).raise_for_status()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(count)))


def write_tree(tree: Path, endpoint_url: str, count: int) -> None:
    """One file an owner, as teams keep them."""
    (tree / "repositories").mkdir(parents=True)
    (tree / "lakeplan.yaml").write_text(
        "apiVersion: lakeplan/v1\n"
        f"servers: {{prod: {{endpoint_url: {endpoint_url}}}}}\n"
        "profiles: {standard: {gc: {default_retention_days: 21}}}\n"
        'include: ["repositories/*.yaml"]\n'
    )
    for owner in range(min(OWNERS, count)):
        entries = "".join(
            f"  data-{number:05}:\n    owner: team-{owner}\n    use: [standard]\n"
            f'    gc: {{branches: [{{pattern: "release-*", retention_days: 90}}]}}\n'
            for number in range(owner, count, OWNERS)
        )
        text = f"apiVersion: lakeplan/v1\nrepositories:\n{entries}"
        (tree / "repositories" / f"team-{owner}.yaml").write_text(text)


def timed(words: list[str], tree: Path, handle: SandboxHandle) -> tuple[float, int]:
    environ = {
        **os.environ,
        "LAKEPLAN_PROD_ENDPOINT_URL": handle.endpoint_url,
        "LAKEPLAN_PROD_ACCESS_KEY_ID": handle.access_key_id,
        "LAKEPLAN_PROD_SECRET_ACCESS_KEY": handle.secret_access_key,
    }
    command = [sys.executable, "-m", "lakeplan", *words, "-C", str(tree)]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    seconds = time.perf_counter() - began
    if done.returncode not in (0, 4):  # 4: the gate of an impact that nobody looked at
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return seconds, len(done.stdout.splitlines())


if __name__ == "__main__":
    main()
