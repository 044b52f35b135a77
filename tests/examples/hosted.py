"""Jobs of a workflow as their host runs them: every step in order, its environment and its expressions.

What stands in for the host: checkout and set-up of Python and Java (the machine has them), artifacts (kept in
a folder), and the few expressions that the workflows use. Every shell text is run as it stands.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CI = Path(__file__).parents[2] / "examples/ci"
MACHINE = ("actions/checkout@", "actions/setup-python@", "actions/setup-java@")
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""The package is there already, as ``make setup`` installs it: pip only checks that it is the pinned one."""


@dataclass
class JobEnd:
    """``code`` of the first step that failed, or 0; ``ran`` the commands in order; ``output`` what they said;
    ``kept`` the artifacts."""

    code: int = 0
    ran: list[str] = field(default_factory=list)
    output: str = ""
    kept: list[str] = field(default_factory=list)


class GitHub:
    """Runs jobs of GitHub workflows. ``values`` are those of expressions (``vars.X``, ``github.token``)."""

    def __init__(self, checkout: Path, runner: Any, values: dict[str, str], given: Mapping[str, str]) -> None:
        self.checkout, self.runner = checkout, runner
        self.values, self.given = values, dict(given)
        self.artifacts = checkout.parent / "artifacts"
        self.summary = checkout.parent / "summary.md"
        self.temp = checkout.parent / "runner"

    def run(self, file: str, job: str) -> JobEnd:
        """Every step whose condition holds, and after a failure those that run all the same."""
        workflow = yaml.safe_load((CI / file).read_text())
        end = JobEnd()
        outputs: dict[str, str] = {}
        for step in workflow["jobs"][job]["steps"]:
            if self._wanted(step.get("if", ""), failed=end.code != 0):
                outputs |= self._step(step, workflow["env"], outputs, end)
        return end

    def _wanted(self, condition: str, *, failed: bool) -> bool:
        files = re.findall(r"'([^']+)'", condition.partition("hashFiles(")[2].partition(")")[0])
        if files and not any(list(self.checkout.glob(name)) for name in files):
            return False
        return not failed or "!cancelled()" in condition

    def _step(
        self, step: Mapping[str, Any], env: Mapping[str, str], outputs: Mapping[str, str], end: JobEnd
    ) -> dict[str, str]:
        name = step.get("id", "")
        if "uses" in step:
            given = {key: self._fill(value, outputs) for key, value in step.get("with", {}).items()}
            found = self._use(step["uses"], given, end)
        else:
            found = self._shell(step, env, outputs, end)
        return {f"steps.{name}.outputs.{key}": value for key, value in found.items()}

    def _shell(
        self, step: Mapping[str, Any], env: Mapping[str, str], outputs: Mapping[str, str], end: JobEnd
    ) -> dict[str, str]:
        written = self.checkout.parent / "output"
        written.write_text("")
        own = {key: self._fill(value, outputs) for key, value in step.get("env", {}).items()}
        host = {"GITHUB_OUTPUT": str(written), "GITHUB_STEP_SUMMARY": str(self.summary), "CI": "true"}
        host["RUNNER_TEMP"] = str(self.temp)
        given = {**OFFLINE, **env, **self.given, **host, **own}
        done = self.runner.run(step["run"], self.checkout, **given)
        end.ran.append(step["run"])
        end.output += done.stdout + done.stderr
        end.code = end.code or done.returncode
        return dict(line.split("=", 1) for line in written.read_text().splitlines())

    def _use(self, action: str, given: Mapping[str, str], end: JobEnd) -> dict[str, str]:
        if action.startswith("actions/upload-artifact@"):
            end.kept.append(given["name"])
            folder = self.artifacts / given["name"]
            folder.mkdir(parents=True, exist_ok=True)
            for path in given["path"].split():
                if (self.checkout / path).exists():  # as the action, which asks only for one of them
                    shutil.copy(self.checkout / path, folder)
            return {"artifact-url": f"https://host.example/artifacts/{given['name']}"}
        if action.startswith("actions/download-artifact@"):
            place = self.checkout / given.get("path", "")
            shutil.copytree(self.artifacts / given["name"], place, dirs_exist_ok=True)
            return {}
        assert action.startswith(MACHINE), f"nothing here stands in for {action}"
        return {}

    def _fill(self, value: object, outputs: Mapping[str, str]) -> str:
        known = {"runner.temp": str(self.temp), **self.values, **outputs}
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda m: known.get(m[1], ""), str(value))


class GitLab:
    """Runs jobs of the GitLab pipeline: before_script and script, one shell."""

    def __init__(self, checkout: Path, runner: Any, given: Mapping[str, str]) -> None:
        self.checkout, self.runner, self.given = checkout, runner, dict(given)
        runner.add_tool("apt-get")  # of the image: the machine has Java

    def run(self, job: str, **more: str) -> JobEnd:
        pipeline = yaml.safe_load((CI / "gitlab/lakeplan.gitlab-ci.yml").read_text())
        found = pipeline[job]
        base = pipeline[found["extends"]]
        lines = [*base["before_script"], *found["script"]]
        given = {**OFFLINE, **pipeline["variables"], **found.get("variables", {}), **self.given, **more}
        done = self.runner.run("\n".join(lines), self.checkout, CI="true", **given)
        kept = [
            path for path in found.get("artifacts", {}).get("paths", []) if (self.checkout / path).exists()
        ]
        return JobEnd(done.returncode, lines, done.stdout + done.stderr, kept)
