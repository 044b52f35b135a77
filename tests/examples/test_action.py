"""The steps of ``action.yml`` that the stories do not meet: other sources, other clouds, other commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
STEPS = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]


def script(name: str) -> str:
    (found,) = [step["run"] for step in STEPS if step.get("name") == name]
    return str(found)


@pytest.fixture
def logged(runner: Any, tmp_path: Path) -> Any:
    """Runs a step where a program only writes down its arguments; returns them, a line each."""

    def run(program: str, name: str, **environment: str) -> list[str]:
        tool = runner.tools / program
        tool.write_text(f'#!/bin/sh\nfor word in "$@"; do echo "$word" >> "{tmp_path}/log"; done\n')
        tool.chmod(0o755)
        done = runner.run(script(name), tmp_path, **environment)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "log").read_text().splitlines()

    return run


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("1.2.3", "lakeplan==1.2.3"),
        ("git+https://host.example/org/lakeplan@0123", "git+https://host.example/org/lakeplan@0123"),
        ("./vendor/lakeplan", "/checkout/./vendor/lakeplan"),
        ("", "/actions/org/lakeplan"),
        ("1.0; touch evil", "lakeplan==1.0; touch evil"),
    ],
)
@pytest.mark.parametrize("azure", ["", "client"])
def it_installs_one_package_from_its_source(logged, tmp_path, version, package, azure):
    given = {"GITHUB_ACTION_PATH": "/actions/org/lakeplan", "GITHUB_WORKSPACE": "/checkout"}
    words = logged("python", "Install lakeplan", VERSION=version, AZURE=azure, **given)
    more = ["azure-identity"] if azure else []
    assert words == ["-P", "-m", "pip", "install", "--quiet", package, *more]
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("command", "comment", "expected"),
    [
        ("plan", "true", ["ci", "plan", "--into", "/results", "--args", "--target 'a b' $(touch evil)"]),
        ("answer", "true", ["ci", "answer", "--into", "/results", "--args", "--target 'a b' $(touch evil)"]),
        ("apply", "true", ["ci", "apply", "--into", "/results", "--args", "--target 'a b' $(touch evil)"]),
        (
            "apply",
            "false",
            ["ci", "apply", "--into", "/results", "--args", "--target 'a b' $(touch evil)", "--no-comment"],
        ),
        ("sweep list", "true", ["ci", "run", "sweep list", "--args", "--target 'a b' $(touch evil)"]),
        (
            "drift; touch evil",
            "true",
            ["ci", "run", "drift; touch evil", "--args", "--target 'a b' $(touch evil)"],
        ),
    ],
)
def it_runs_a_command_with_its_inputs_as_they_are(logged, tmp_path, command, comment, expected):
    given = {"COMMAND": command, "COMMENT": comment, "RESULTS": "/results"}
    words = logged("lakeplan", "Run lakeplan", ARGS="--target 'a b' $(touch evil)", **given)
    assert words == expected
    assert not (tmp_path / "evil").exists()


def it_signs_in_to_azure_with_the_token_of_the_job(host, runner, tmp_path):
    host.answers["GET", "/token"] = {"value": "token-of-the-job"}
    environment = tmp_path / "github_env"
    done = runner.run(
        script("Sign in to Azure"),
        tmp_path,
        CLIENT="client",
        TENANT="tenant",
        RUNNER_TEMP=str(tmp_path),
        GITHUB_ENV=str(environment),
        ACTIONS_ID_TOKEN_REQUEST_TOKEN="request",
        ACTIONS_ID_TOKEN_REQUEST_URL=f"{host.url}/token?api-version=2",
    )
    assert done.returncode == 0, done.stderr
    assert "token-of-the-job" not in done.stdout + done.stderr
    ((_, path, headers, _),) = host.calls
    assert path == "/token?api-version=2&audience=api://AzureADTokenExchange"
    assert headers["Authorization"] == "bearer request"
    told = dict(line.split("=", 1) for line in environment.read_text().splitlines())
    file = Path(told.pop("AZURE_FEDERATED_TOKEN_FILE"))
    assert told == {"AZURE_CLIENT_ID": "client", "AZURE_TENANT_ID": "tenant"}
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("token-of-the-job", 0o600)


def it_stops_where_the_token_cannot_be_had(host, runner, tmp_path):
    given = {"CLIENT": "c", "TENANT": "t", "RUNNER_TEMP": str(tmp_path), "GITHUB_ENV": str(tmp_path / "env")}
    given |= {"ACTIONS_ID_TOKEN_REQUEST_TOKEN": "r", "ACTIONS_ID_TOKEN_REQUEST_URL": f"{host.url}/none?x=1"}
    assert runner.run(script("Sign in to Azure"), tmp_path, **given).returncode
    assert not (tmp_path / "env").exists()


def it_asks_for_a_cloud_only_where_its_input_is_given():
    clouds = {step["name"]: step["if"] for step in STEPS if str(step.get("name", "")).startswith("Sign in")}
    assert clouds == {
        "Sign in to AWS": "${{ inputs.aws-role != '' }}",
        "Sign in to Google Cloud": "${{ inputs.gcp-provider != '' }}",
        "Sign in to Azure": "${{ inputs.azure-client-id != '' }}",
    }
