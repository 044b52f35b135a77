"""Jobs of a workflow as their host runs them: every step in order, its environment and its expressions.

What stands in for the host: checkout and set-up of Python and Java (the machine has them), artifacts (kept in
a folder), and the few expressions that the workflows use. Every shell text is run as it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CI = Path(__file__).parents[2] / "examples/ci"
MACHINE = ("actions/checkout@", "actions/setup-python@")
SIGN_IN = ("aws-actions/configure-aws-credentials@", "google-github-actions/auth@")
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""The package is there already, as ``make setup`` installs it: pip only checks that it is the pinned one."""
PINNED = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}")


@dataclass
class JobEnd:
    """``code`` of the first step that failed, or 0; ``ran`` the commands in order; ``output`` what they said;
    ``kept`` the artifacts; ``outputs`` those of the last action, ``signed_in`` the inputs of its clouds."""

    code: int = 0
    ran: list[str] = field(default_factory=list)
    output: str = ""
    kept: list[str] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    signed_in: list[dict[str, str]] = field(default_factory=list)
    skipped: bool = False


class Contexts:
    """Values of expressions by their dotted names; what is not there is null, as on the host."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def get(self, name: str) -> Any:
        found: Any = self.values
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    def evaluate(self, expression: str) -> Any:
        text = expression.strip().removeprefix("${{").removesuffix("}}")
        python = re.sub(
            r"'[^']*'|&&|\|\||!(?!=)|(?<![\w.'])[a-z][\w-]*(?:\.[\w-]+)+", self._token, text
        ).strip()
        return eval(python, {"get": self.get, "startsWith": self._begins, "cancelled": lambda: False})

    @staticmethod
    def _token(match: re.Match[str]) -> str:
        words = {"&&": " and ", "||": " or ", "!": " not "}
        return words.get(match[0]) or (match[0] if match[0].startswith("'") else f"get({match[0]!r})")

    @staticmethod
    def _begins(text: str | None, start: str) -> bool:
        return (text or "").lower().startswith(start.lower())

    def fill(self, value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()

        def text(match: re.Match[str]) -> str:
            found = self.evaluate(match[0])
            return "" if found is None else str(found)

        return re.sub(r"\$\{\{.*?\}\}", text, str(value))


class GitHub:
    """Runs jobs of the workflows in a checkout against a ``FakeGitHub``. ``vars`` and ``secrets`` are the
    repository's, those of an environment replace them in its jobs."""

    def __init__(self, checkout: Path, runner: Any, fake: Any, given: Mapping[str, str]) -> None:
        self.checkout, self.runner, self.fake, self.given = checkout, runner, fake, dict(given)
        self.vars: dict[str, str] = {}
        self.secrets: dict[str, str] = {}
        self.environments: dict[str, dict[str, dict[str, str]]] = {}
        self.summary = checkout.parent / "summary.md"
        self.temp = checkout.parent / "runner"
        self.run_id = 0

    def run(self, file: str, job: str, event: str, payload: Mapping[str, Any], **github: str) -> JobEnd:
        """Every step whose condition holds, and after a failure those that run all the same."""
        workflow = yaml.safe_load((self.checkout / file).read_text())
        found = workflow["jobs"][job]
        here = self.environments.get(found.get("environment", ""), {})
        token = self.fake.token(found.get("permissions", workflow["permissions"]))
        values = {
            "github": {
                "event_name": event,
                "event": payload,
                "token": token,
                "repository": "org/trees",
                **github,
            },
            "vars": {**self.vars, **here.get("vars", {})},
            "secrets": {**self.secrets, **here.get("secrets", {})},
            "runner": {"temp": str(self.temp)},
        }
        end = JobEnd()
        if "if" in found and not Contexts(values).evaluate(found["if"]):
            end.skipped = True
            return end
        event_file = self.checkout.parent / "event.json"
        event_file.write_text(json.dumps(payload))
        self.temp.mkdir(exist_ok=True)
        (self.checkout.parent / "github_env").write_text("")
        host = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(event_file),
            "GITHUB_REPOSITORY": "org/trees",
            "GITHUB_API_URL": self.fake.url,
            "GITHUB_WORKFLOW_REF": f"org/trees/{file}@refs/heads/main",
            "GITHUB_WORKSPACE": str(self.checkout),
            "GITHUB_ENV": str(self.checkout.parent / "github_env"),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "RUNNER_TEMP": str(self.temp),
            "CI": "true",
            **{f"GITHUB_{key.upper()}": value for key, value in github.items()},
        }
        self._steps(found["steps"], values, {**workflow.get("env", {}), **self.given, **host}, end)
        return end

    def _steps(
        self, steps: Any, values: dict[str, Any], env: Mapping[str, str], end: JobEnd
    ) -> dict[str, Any]:
        outputs: dict[str, Any] = {}
        for step in steps:
            contexts = Contexts({**values, "steps": outputs})
            condition = str(step.get("if", ""))
            if end.code and "!cancelled()" not in condition:
                continue
            if condition and not contexts.evaluate(condition):
                continue
            own = {**env, **{k: contexts.fill(v) for k, v in step.get("env", {}).items()}}
            inputs = {k: contexts.fill(v) for k, v in step.get("with", {}).items()}
            if "uses" in step:
                made = self._use(step["uses"], inputs, values, own, end)
            else:
                made = self._shell(step, contexts, own, end)
            outputs[step.get("id", "")] = {"outputs": made}
        return outputs

    def _shell(self, step: Any, contexts: Contexts, env: Mapping[str, str], end: JobEnd) -> dict[str, str]:
        written = self.checkout.parent / "output"
        written.write_text("")
        later = (self.checkout.parent / "github_env").read_text().splitlines()
        given = {
            **OFFLINE,
            **env,
            **dict(line.split("=", 1) for line in later),
            "GITHUB_OUTPUT": str(written),
        }
        folder = self.checkout / contexts.fill(step.get("working-directory", "."))
        done = self.runner.run(step["run"], folder, **given)
        end.ran.append(step["run"])
        end.output += done.stdout + done.stderr
        end.code = end.code or done.returncode
        return dict(line.split("=", 1) for line in written.read_text().splitlines())

    def _use(
        self, action: str, inputs: dict[str, str], values: dict[str, Any], env: dict[str, str], end: JobEnd
    ) -> dict[str, str]:
        if action.startswith("./"):
            return self._composite(self.checkout / action, inputs, values, env, end)
        assert PINNED.fullmatch(action), f"{action} is pinned by no commit"
        if action.startswith("actions/upload-artifact@"):
            end.kept.append(inputs["name"])
            paths = [Path(path) for path in inputs["path"].split()]
            files = {path.name: path.read_bytes() for path in paths if path.exists()}
            return {"artifact-url": self.fake.upload(inputs["name"], files, self.run_id)}
        if action.startswith(SIGN_IN):
            end.signed_in.append(inputs)
            return {}
        assert action.startswith(MACHINE), f"nothing here stands in for {action}"
        return {}

    def _composite(
        self, folder: Path, inputs: dict[str, str], values: dict[str, Any], env: dict[str, str], end: JobEnd
    ) -> dict[str, str]:
        action = yaml.safe_load((folder / "action.yml").read_text())
        assert set(inputs) <= set(action["inputs"]), "the action has no such input"
        inner = Contexts(values)
        known = {name: inner.fill(about.get("default", "")) for name, about in action["inputs"].items()}
        within = {**values, "inputs": {**known, **inputs}}
        steps = self._steps(action["runs"]["steps"], within, {**env, "GITHUB_ACTION_PATH": str(folder)}, end)
        after = Contexts({**within, "steps": steps})
        end.outputs = {name: after.fill(about["value"]) for name, about in action["outputs"].items()}
        return end.outputs


class GitLab:
    """Runs jobs of the GitLab pipeline: before_script and script, one shell."""

    def __init__(self, checkout: Path, runner: Any, given: Mapping[str, str]) -> None:
        self.checkout, self.runner, self.given = checkout, runner, dict(given)

    def run(self, job: str, **more: str) -> JobEnd:
        pipeline = load_pipeline((self.checkout / "ci/lakeplan.gitlab-ci.yml").read_text())
        found = pipeline[job]
        base = pipeline[found["extends"]]
        lines = [*_lines(base["before_script"], pipeline), *found["script"]]
        given = {**OFFLINE, **pipeline["variables"], **found.get("variables", {}), **self.given, **more}
        given |= {name: f"token for {of['aud']}" for name, of in base.get("id_tokens", {}).items()}
        done = self.runner.run("\n".join(lines), self.checkout, CI="true", GITLAB_CI="true", **given)
        kept = [
            path for path in found.get("artifacts", {}).get("paths", []) if (self.checkout / path).exists()
        ]
        return JobEnd(done.returncode, lines, done.stdout + done.stderr, kept)


class _Loader(yaml.SafeLoader):
    """Knows GitLab's tag ``!reference``."""


_Loader.add_constructor("!reference", lambda loader, node: ("reference", *loader.construct_sequence(node)))


def load_pipeline(text: str) -> Any:
    return yaml.load(text, _Loader)


def _lines(script: list[Any], pipeline: Any) -> Iterator[str]:
    for line in script:
        if isinstance(line, tuple):
            yield from _lines(pipeline[line[1]][line[2]], pipeline)
        else:
            yield line
