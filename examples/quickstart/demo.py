"""`make demo`: plan and apply on the embedded sandbox, one command after the other.

Every command is printed before it runs, and its exit code is held against what it should be.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LAKEPLAN = (sys.executable, "-P", "-m", "lakeplan")
KEY, SECRET = "sandbox", "sandbox-secret"
OVERRIDE = """overrides:
  - {repository: analytics, gate: tag-loss, max: 1, reason: v1.0 is archived elsewhere, expires: 2099-12-31}
"""


class Demo:
    """A copy of the quickstart's tree, a sandbox that serves it, and the shell between them."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self.tree = folder / "quickstart"
        shutil.copytree(HERE, self.tree, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        self.namespaces = folder / "server"
        self.endpoint = endpoint
        self.environ = {
            **os.environ,
            "LAKEPLAN_VAR_SANDBOX_URL": endpoint,
            "LAKEPLAN_SANDBOX_ENDPOINT_URL": endpoint,
            "LAKEPLAN_SANDBOX_ACCESS_KEY_ID": KEY,
            "LAKEPLAN_SANDBOX_SECRET_ACCESS_KEY": SECRET,
        }

    def lakeplan(self, *arguments: str, expect: int = 0) -> None:
        """Runs one command in the tree's folder, as a user would, and checks its exit code."""
        print(f"\n\033[1m$ lakeplan {' '.join(arguments)}\033[0m", flush=True)
        started = time.monotonic()
        code = subprocess.run(
            (*LAKEPLAN, *arguments), cwd=self.tree, env=self.environ, check=False
        ).returncode
        print(f"[exit {code}, {time.monotonic() - started:.1f} s]", flush=True)
        if code != expect:
            sys.exit(f"demo: lakeplan {arguments[0]} ended with {code}, {expect} was expected")

    def simulate(self, repository: str, runner: str) -> Any:
        """Amounts of objects that a simulation finds in the repository's namespace."""
        rules, out = self.tree / "rules.json", self.tree / f"{runner}.json"
        rules.write_text(json.dumps({"default_retention_days": 21, "branches": []}))
        namespace = f"file://{self.namespaces / repository}"
        chosen = (
            "--rules",
            rules.name,
            "--no-listing",
            "--runner",
            runner,
            "--format",
            "json",
            "--out",
            out.name,
        )
        self.lakeplan("simulate", "--namespace", namespace, *chosen, "-q")
        return json.loads(out.read_text())["rule_sets"][0]["objects"]

    def edit_by_hand(self, repository: str, days: int) -> None:
        """Somebody sets rules past the tree, with the API alone."""
        say(f"Somebody edits the rules of {repository} on the server by hand: {days} days.")
        body = json.dumps({"default_retention_days": days, "branches": []}).encode()
        request = urllib.request.Request(
            f"{self.endpoint}/api/v1/repositories/{repository}/settings/gc_rules",
            data=body,
            method="PUT",
            headers={
                "Content-Type": "application/json",
                "Authorization": "Basic " + b64encode(f"{KEY}:{SECRET}".encode()).decode(),
            },
        )
        urllib.request.urlopen(request, timeout=30).close()

    def change_tree(self, file: str, before: str, after: str) -> None:
        path = self.tree / file
        text = path.read_text()
        assert before in text, f"{file} does not say {before!r}"
        path.write_text(text.replace(before, after))


def say(text: str) -> None:
    print(f"\n\033[36m# {text}\033[0m", flush=True)


def run(demo: Demo) -> None:
    say("Three repositories with histories of months.")
    demo.lakeplan("sandbox", "seed", "history.yaml", "--endpoint", demo.endpoint)
    demo.lakeplan("validate")

    say("What would the tree change, and what would that delete? A tag would lose data: a gate refuses.")
    demo.lakeplan("plan", expect=4)

    say("The team agrees that the tag may lose data, and writes that into the tree, with a last day.")
    demo.change_tree("lakeplan.yaml", "include:", OVERRIDE + "include:")
    demo.lakeplan("plan", "--format", "json", "--out", "plan.json", "-q")
    demo.lakeplan("apply", "plan.json")

    say("Planned again: nothing left to do.")
    demo.lakeplan("plan", "--detailed-exitcode")

    say("A change is planned; before it is applied, somebody edits the rules on the server.")
    demo.change_tree("repositories/streams.yaml", "default_retention_days: 60", "default_retention_days: 90")
    demo.lakeplan("plan", "--format", "json", "--out", "plan.json", "-q")
    demo.edit_by_hand("ml-features", 45)
    demo.lakeplan("apply", "plan.json", expect=5)

    say("--force skips the ETag check, and nothing else.")
    demo.lakeplan("apply", "plan.json", "--force")
    demo.lakeplan("plan", "--detailed-exitcode")

    say("The same simulation without a server, once in threads of one process and once on Spark.")
    found = [demo.simulate("analytics", runner) for runner in ("local", "spark")]
    if found[0] != found[1]:
        sys.exit(f"demo: the runners disagree: {found}")
    goes, kept = (found[0][side] for side in ("goes", "kept"))
    print(f"Both runners: {goes['objects']:,} objects go, {kept['objects']:,} stay.")


def main() -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lakeplan-demo-") as folder:
        up = (*LAKEPLAN, "sandbox", "up", "--dir", f"{folder}/server", "--port", "0")
        server = subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line.startswith("lakeFS sandbox at "):
                sys.exit("demo: the sandbox did not start; try: lakeplan sandbox up --log-level debug")
            run(Demo(Path(folder), line.removeprefix("lakeFS sandbox at ").strip()))
        finally:
            server.terminate()
            server.wait(timeout=30)
    print(f"\ndemo: done in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
