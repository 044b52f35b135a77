"""Lifecycle over many branches on the sandbox: seconds, requests, and the size of the ledger.

    python bench/branches.py [--branches 10000] [--going 1000]

Goal (issue 4): 10,000 branches, a plan under 30 s, a ledger under 10 MB, one read and one write of it a run.
``--going`` of the branches have crossed their policy, so their uncommitted changes are read too. With
``--undo`` as many that were deleted are made again (goal of issue 14: 1,800 branches under 30 s).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import requests
from rich.console import Console

from lakeplan.branches.deleting import RunPorts, UndoOptions, undo_branches
from lakeplan.branches.deletion_records import Deletion, DeletionRecord, Fate
from lakeplan.branches.plan import BranchesOptions, BranchesPorts, plan_branches
from lakeplan.branches.recall import Readers
from lakeplan.branches.run import run_branches
from lakeplan.cli.process import now_utc, this_run
from lakeplan.lakefs.client import LakeFSBranchReader, LakeFSServer
from lakeplan.lakefs.credentials import Credentials, Secret
from lakeplan.lakefs.writers import LakeFSBranchWriter
from lakeplan.output.plan import render_plan
from lakeplan.plan.planning import BranchPorts, PlanOptions, Ports, make_plan
from lakeplan.review.selection import Selection
from lakeplan.stores.open import open_state
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.plan_document import dump_plan
from lakeplan.values.progress import Silent
from lakeplan.values.records import utc_second_text

ROOT = Path(__file__).parents[1]
PORT = 18499
URL = f"http://127.0.0.1:{PORT}"
LEDGER = "branches/prod/big.json"


class Counted:
    """A state store that counts what is read and written, by key."""

    def __init__(self, url: str) -> None:
        self._state = open_state(url)
        self.counts: Counter[str] = Counter()

    def read(self, key: str) -> Any:
        self.counts[f"read {key}"] += 1
        return self._state.read(key)

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        self.counts[f"write {key}"] += 1
        return self._state.write(key, data, if_version=if_version)

    def list_keys(self, prefix: str = "") -> list[str]:
        return self._state.list_keys(prefix)

    def delete(self, key: str, *, if_version: str) -> None:
        self._state.delete(key, if_version=if_version)


class NoSimulator:
    def impact(self, requests: Any) -> Any:
        raise AssertionError("objects are not part of this benchmark")


def timed(what: str, start: float) -> None:
    print(f"  {what:<44} {time.perf_counter() - start:7.2f} s", flush=True)


def make_tree(folder: Path) -> Tree:
    (folder / "repositories").mkdir()
    (folder / "lakeplan.yaml").write_text(
        "apiVersion: lakeplan/v1\n"
        f"servers: {{prod: {{endpoint_url: '{URL}', branch_lifecycle: {{engine: lakeplan}}}}}}\n"
        "safety: {max_deleted_branches: unlimited}\n"
    )
    (folder / "repositories" / "big.yaml").write_text(
        "apiVersion: lakeplan/v1\nrepositories:\n  big:\n    branch_lifecycle:\n"
        "      policies: [{patterns: ['old-*'], max_age: 3d}, {patterns: ['new-*'], max_idle_age: 30d}]\n"
    )
    return load_tree(folder, {})


def make_branches(count: int, going: int) -> None:
    with requests.Session() as session:
        session.auth = ("sandbox", "sandbox-secret")

        def post(path: str, body: dict[str, object]) -> None:
            session.post(f"{URL}/api/v1{path}", json=body, timeout=60).raise_for_status()

        post("/repositories", {"name": "big", "storage_namespace": "local://big", "default_branch": "main"})
        for n in range(count):
            kind = "old" if n < going else "new"
            body: dict[str, object] = {"name": f"{kind}-feature-of-a-team-{n:06d}", "source": "main"}
            post("/repositories/big/branches", body | {"hidden": n % 10 == 0})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--branches", type=int, default=10_000)
    parser.add_argument("--going", type=int, default=1_000)
    parser.add_argument("--undo", action="store_true", help="measure branches undo instead")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sandbox = subprocess.Popen(
            [sys.executable, "-m", "lakeplan", "sandbox", "up", "--dir", f"{name}/s", "--port", str(PORT)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_until_up()
            measure(folder, arguments.branches, arguments.going, undo=arguments.undo)
        finally:
            sandbox.terminate()
            sandbox.wait()


def wait_until_up() -> None:
    deadline = time.monotonic() + 60
    while not is_up():
        if time.monotonic() > deadline:
            raise SystemExit("the sandbox does not start")
        time.sleep(0.5)


def is_up() -> bool:
    try:
        requests.get(f"{URL}/api/v1/config/version", timeout=5)
    except requests.ConnectionError:
        return False
    return True


def measure(folder: Path, count: int, going: int, *, undo: bool) -> None:
    start = time.perf_counter()
    make_branches(count, going)
    timed(f"making {count:,} branches (not measured)", start)
    (folder / "tree").mkdir()
    tree = make_tree(folder / "tree")
    credentials = Credentials(Secret("sandbox"), Secret("sandbox-secret"))
    server = tree.servers["prod"]
    readers = Readers(
        LakeFSServer.connect(server, credentials), LakeFSBranchReader.connect(server, credentials)
    )
    state = Counted(tree.state_url)
    writer = LakeFSBranchWriter.connect(server, credentials)
    ports = RunPorts(lambda _: readers, lambda _: writer, state, Silent())

    def run() -> None:
        now = now_utc()
        report = run_branches(tree, BranchesOptions(now, now), ports, this_run(folder))
        failures = [r.failure for r in report.repositories if r.failure is not None]
        assert not failures, failures

    start = time.perf_counter()
    run()
    timed("first run: all are new", start)
    state.counts.clear()
    start = time.perf_counter()
    run()
    timed("run with nothing to delete", start)
    counted = {k: n for k, n in state.counts.items() if "branches/" in k}
    assert counted == {f"read {LEDGER}": 1, f"write {LEDGER}": 1}, counted
    path = Path(tree.state_url.removeprefix("file://")) / LEDGER
    print(f"  ledger: {path.stat().st_size / 1e6:.1f} MB, {counted}")
    if undo:
        undo_many(tree, ports, state, going)
        return
    start = time.perf_counter()
    now = now_utc() + timedelta(days=4)
    plan = plan_branches(
        tree,
        BranchesOptions(now, now, simulate=False),
        BranchesPorts(lambda _: readers, NoSimulator(), Silent(), state),
    )
    timed(f"plan: {plan.deletions:,} of {count:,} go", start)
    assert plan.deletions == going, plan.deletions
    start = time.perf_counter()
    made = make_plan(
        tree,
        PlanOptions(as_of=now, simulate="none"),
        Ports(lambda _: readers.refs, NoSimulator(), Silent(), BranchPorts(lambda _: readers, state)),
    )
    document = dump_plan(made)
    timed("lakeplan plan: the same, and its document", start)
    (repository,) = made.repositories
    assert repository.lifecycle is not None
    assert repository.lifecycle.expired == going
    start = time.perf_counter()
    console = Console(file=io.StringIO(), width=120)
    render_plan(json.loads(document), console)
    timed(f"showing it ({len(document) / 1e6:.1f} MB)", start)


def undo_many(tree: Tree, ports: RunPorts, state: Counted, going: int) -> None:
    """Of a record that names branches of one commit, none of which exists."""
    with requests.Session() as session:
        session.auth = ("sandbox", "sandbox-secret")
        branch = f"{URL}/api/v1/repositories/big/branches/main"
        for number in range(10):
            headers = {"Content-Type": "application/octet-stream"}
            path = {"path": f"file-{number}"}
            session.post(f"{branch}/objects", params=path, data=b"x", headers=headers, timeout=60)
        head = session.post(f"{branch}/commits", json={"message": "m"}, timeout=60).json()["id"]
    deletions = {
        f"gone-feature-of-a-team-{number:06d}": Deletion(head, fate=Fate.DELETED) for number in range(going)
    }
    at = utc_second_text(now_utc()) or ""
    DeletionRecord(ports.state, "prod/big", "bench", at, {}, deletions, finished=True).save()
    state.counts.clear()
    start = time.perf_counter()
    undone = undo_branches(tree, UndoOptions(Selection()), ports, this_run(tree.root))
    outcomes = Counter(end.outcome.value for one in undone.repositories for end in one.branches)
    timed(f"undo: {dict(outcomes)} (load {os.getloadavg()[0]:.1f})", start)
    print(f"  {sum(state.counts.values()):,} reads and writes of the state")
    assert outcomes == {"restored": going}, outcomes


if __name__ == "__main__":
    main()
