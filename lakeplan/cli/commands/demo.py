"""``lakeplan demo``: the quickstart on a local lakeFS, one command after the other.

Every command is printed and runs in a separate process. An unexpected exit code ends the demo.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from lakeplan.cli.console import say, stdout
from lakeplan.cli.options import command, option
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.sandbox.server import start_sandbox
from lakeplan.sandbox.service import Options
from lakeplan.tree.schemas import shipped

SERVER = "SANDBOX"
"""The server of the quickstart's tree, as variables have its name."""
REFUSED, STALE = 4, 5
OVERRIDE = """overrides:
  - {repository: analytics, gate: tag-loss, max: 1, reason: v1.0 is archived elsewhere, expires: 2099-12-31}
"""


@command(common="no_color")
def demo(
    *,
    dir: Annotated[
        Path | None,
        option(
            "Folder for the tree and the server's data. Default: a temporary folder, which is deleted at"
            " the end.",
            "DIR",
        ),
    ] = None,
    spark: Annotated[
        bool, option("Also run the simulation on Spark, and compare the results. Requires Java.")
    ] = False,
    no_color: bool,
) -> None:
    """Run the quickstart on a local stand-in for lakeFS: plan, override a gate, apply, and handle a manual
    change.

    \b
    Examples:
      lakeplan demo
      lakeplan demo --dir ./demo
    """
    began = time.monotonic()
    with ExitStack() as stack:
        if dir is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakeplan-demo-")))
        else:
            folder = _new(dir)
        handle = stack.enter_context(start_sandbox(folder / "server"))
        shown = Demo(folder, handle.endpoint_url, os.environ, no_color=no_color)
        shown.run()
        if spark:
            shown.compare_runners()
    kept = "" if dir is None else f" The tree is in {shown.tree}."
    say(stdout(no_color=no_color), f"\nDone in {time.monotonic() - began:.0f} s.{kept}")


def _new(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        empty = not any(folder.iterdir())
    except OSError as error:
        raise UsageError(
            f"cannot create the folder: {error.strerror}", where=str(folder), hint="Use another folder."
        ) from None
    if not empty:
        raise UsageError(
            "the folder is not empty", where=str(folder), hint="Use a new folder, or remove --dir."
        )
    return folder.resolve()


class Demo:
    """A copy of the quickstart's tree, the server that it names, and the shell between them."""

    def __init__(
        self, folder: Path, endpoint_url: str, environ: Mapping[str, str], *, no_color: bool = False
    ) -> None:
        self.tree = folder / "quickstart"
        shutil.copytree(shipped("examples/quickstart"), self.tree)
        self._namespaces = folder / "server"
        self._endpoint_url = endpoint_url
        self._console = stdout(no_color=no_color)
        options = Options()
        self._key, self._secret = options.access_key_id, options.secret_access_key
        # A person's own settings are for their own servers.
        kept = {
            name: text for name, text in environ.items() if not name.startswith(("LAKEPLAN_", "LAKECTL_"))
        }
        self._environ = {
            **kept,
            **({"NO_COLOR": "1"} if no_color else {}),
            f"LAKEPLAN_VAR_{SERVER}_URL": endpoint_url,
            f"LAKEPLAN_{SERVER}_ENDPOINT_URL": endpoint_url,
            f"LAKEPLAN_{SERVER}_ACCESS_KEY_ID": self._key,
            f"LAKEPLAN_{SERVER}_SECRET_ACCESS_KEY": self._secret,
        }

    def run(self) -> None:
        """Runs the quickstart. Raises LakeplanError for an unexpected exit code."""
        self._say("Create repositories with months of history.")
        self.lakeplan("sandbox", "seed", "history.yaml", "--endpoint", self._endpoint_url)
        self.lakeplan("validate")

        self._say("What would the tree change and delete? A tag would lose data, so a gate refuses the plan.")
        self.lakeplan("plan", expect=REFUSED)

        self._say(
            "The team decides that the tag may lose data, and adds an override with an end date to the tree."
        )
        self._change_tree("lakeplan.yaml", "include:", OVERRIDE + "include:")
        self.lakeplan("plan", "--format", "json", "--out", "plan.json", "-q")
        self.lakeplan("apply", "plan.json")

        self._say("Plan again. No changes remain.")
        self.lakeplan("plan", "--detailed-exitcode")

        self._say("Plan another change. Before it is applied, someone edits the rules on the server.")
        before, after = "default_retention_days: 60", "default_retention_days: 90"
        self._change_tree("repositories/streams.yaml", before, after)
        self.lakeplan("plan", "--format", "json", "--out", "plan.json", "-q")
        self._edit_by_hand("ml-features", 45)
        self.lakeplan("apply", "plan.json", expect=STALE)

        self._say("--force skips only the ETag check.")
        self.lakeplan("apply", "plan.json", "--force")
        self.lakeplan("plan", "--detailed-exitcode")

    def compare_runners(self) -> None:
        """Raises LakeplanError if Spark and the threads of one process find different amounts."""
        self._say(
            "Run the same simulation without a server, once in threads of one process and once on Spark."
        )
        results = [self._simulate("analytics", runner) for runner in ("local", "spark")]
        if results[0] != results[1]:
            raise LakeplanError(f"the two runners returned different results: {results}")
        goes, kept = (results[0][side]["objects"] for side in ("goes", "kept"))
        say(self._console, f"Both runners agree: {goes:,} objects would be deleted, and {kept:,} kept.")

    def lakeplan(self, *arguments: str, expect: int = 0) -> None:
        """Runs one command in the tree's folder, as a person would. Raises LakeplanError for an unexpected
        exit code."""
        self._console.print(f"\n[bold]$ lakeplan {' '.join(arguments)}[/]", highlight=False, soft_wrap=True)
        self._console.file.flush()
        began = time.monotonic()
        words = (sys.executable, "-P", "-m", "lakeplan", *arguments)
        code = subprocess.run(words, cwd=self.tree, env=self._environ, check=False).returncode
        say(self._console, f"[exit {code}, {time.monotonic() - began:.1f} s]")
        if code != expect:
            raise LakeplanError(f"lakeplan {arguments[0]} exited with code {code} instead of {expect}")

    def _simulate(self, repository: str, runner: str) -> Any:
        """Amounts of objects that a simulation finds in the repository's namespace."""
        rules, out = self.tree / "rules.json", self.tree / f"{runner}.json"
        rules.write_text(json.dumps({"default_retention_days": 21, "branches": []}))
        namespace = f"file://{self._namespaces / repository}"
        of = ("--namespace", namespace, "--rules", rules.name, "--no-listing", "--runner", runner)
        self.lakeplan("simulate", *of, "--format", "json", "--out", out.name, "-q")
        return json.loads(out.read_text())["rule_sets"][0]["objects"]

    def _edit_by_hand(self, repository: str, days: int) -> None:
        """Sets rules through the API, like a person who does not use the tree."""
        import requests

        self._say(f"Someone sets the retention of {repository} to {days} days on the server.")
        login = b64encode(f"{self._key}:{self._secret}".encode()).decode()
        answer = requests.put(
            f"{self._endpoint_url}/api/v1/repositories/{repository}/settings/gc_rules",
            json={"default_retention_days": days, "branches": []},
            headers={"Authorization": f"Basic {login}"},
            timeout=30,
        )
        answer.raise_for_status()

    def _change_tree(self, file: str, before: str, after: str) -> None:
        path = self.tree / file
        text = path.read_text(encoding="utf-8")
        if before not in text:
            raise LakeplanError(f"the file does not contain {before!r}", where=str(path))
        path.write_text(text.replace(before, after), encoding="utf-8")

    def _say(self, text: str) -> None:
        self._console.print(f"\n[cyan]# {text}[/]", highlight=False, soft_wrap=True)
