"""The branch lifecycle example: its tree, its crontab, its CronJob, and every step of its workflow."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakeplan import __version__
from lakeplan.cli.main import run, whole_command
from lakeplan.sandbox.seed import SeedClient
from tests.examples.fake_github import REPOSITORY, FakeGitHub, serving
from tests.examples.hosted import GitHub
from tests.sandboxes import start_sandbox

EXAMPLE = Path(__file__).parents[2] / "examples/branches"
WORKFLOW = "github-actions.yaml"
PULL = {"pull_request": {"head": {"repo": {"full_name": REPOSITORY}}}}


def it_is_a_valid_tree() -> None:
    assert run(["validate", "-C", str(EXAMPLE), "-q"]) == 0


def it_is_safe_for_pull_requests_of_strangers() -> None:
    workflow = yaml.safe_load((EXAMPLE / "github-actions.yaml").read_text())
    assert "secrets." not in str(workflow["env"])
    plan, run_ = workflow["jobs"]["plan"], workflow["jobs"]["run"]
    assert "head.repo.full_name == github.repository" in plan["if"]
    assert run_["if"] == "github.event_name == 'schedule'"
    # What a repository's secrets hold, every branch's workflow may read.
    assert run_["environment"] == "production"
    assert all("_READ_" in secret for secret in re.findall(r"secrets\.(\w+)", str(plan)))
    assert workflow["env"]["PACKAGE"] == f"lakeplan=={__version__}"


@pytest.mark.parametrize("file", ["crontab", "kubernetes.yaml"])
def it_runs_only_commands_and_options_that_exist(file: str) -> None:
    text = (EXAMPLE / file).read_text()
    if file == "kubernetes.yaml":
        containers = re.findall(r"(?:command|args): (\[.*\])", text)
        lines = [" ".join(yaml.safe_load(found)) for found in containers]
    else:
        lines = [line for line in text.splitlines() if "lakeplan" in line and not line.startswith("#")]
    group = whole_command().commands["branches"]
    found = 0
    for line in lines:
        words = shlex.split(line)
        if "branches" in words:
            name, *arguments = words[words.index("branches") + 1 :]
            until = next((n for n, w in enumerate(arguments) if w in (">>", "2>&1", "|", "&&")), None)
            assert group.commands[name].make_context(name, arguments[:until])
            found += 1
    assert found


def it_writes_no_log_into_the_checkout() -> None:
    """A pull request could put a link to any file in its place."""
    logs = re.findall(r">>? *([^\s&]\S*)", (EXAMPLE / "crontab").read_text())
    assert logs == ['"$HOME/lakeplan-lifecycle.log"']


@pytest.fixture
def github(tmp_path: Path, runner: Any, s3_bucket: str, s3_endpoint: str) -> Any:
    with start_sandbox(tmp_path / "sandbox") as handle:
        client = SeedClient(handle.endpoint_url, handle.access_key_id, handle.secret_access_key)
        body = {"name": "analytics", "storage_namespace": "local://analytics", "default_branch": "main"}
        client.call("POST", "/repositories", json=body)
        client.call("POST", "/repositories/analytics/branches", json={"name": "feature-1", "source": "main"})
        checkout = tmp_path / "checkout"
        shutil.copytree(EXAMPLE, checkout)
        state = f"s3://{s3_bucket}/lakeplan"
        tree = checkout / "lakeplan.yaml"
        text = tree.read_text().replace("https://lakefs.example.com", handle.endpoint_url)
        tree.write_text(text.replace("s3://ops/lakeplan", state))
        secrets = {
            f"LAKEFS_{word}{end}": value
            for word in ("", "READ_")
            for end, value in (
                ("ACCESS_KEY_ID", handle.access_key_id),
                ("SECRET_ACCESS_KEY", handle.secret_access_key),
            )
        }
        secrets |= {
            f"AWS_{word}{end}": "test"
            for word in ("", "READ_")
            for end in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")
        }
        given = {
            "LAKEPLAN_PROD_ENDPOINT_URL": handle.endpoint_url,
            "LAKEPLAN_STATE_URL": state,
            "AWS_ENDPOINT_URL_S3": s3_endpoint,
        }
        with serving(FakeGitHub()) as fake:
            made = GitHub(checkout, runner, fake, given)
            made.secrets = secrets
            yield made


def it_plans_in_a_pull_request_and_runs_on_schedule(github: GitHub) -> None:
    first = github.run(WORKFLOW, "run", "schedule", {})
    assert first.code == 0, first.output
    assert first.ran[-1] == "lakeplan branches run --no-progress"
    planned = github.run(WORKFLOW, "plan", "pull_request", PULL)
    assert planned.code == 0, planned.output
    assert planned.ran[-1].startswith("lakeplan branches plan")
    # The run on schedule left a record of what it saw, in the store: nothing is new to the plan.
    assert "feature-1" in planned.output
    assert "seen for the first time" not in planned.output
