"""Shell completion of commands, options, and names in the current tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer._completion_classes import BashComplete

from lakeplan.cli.main import whole_command
from lakeplan.values.gates import GATES

TREE = """
apiVersion: lakeplan/v1
servers: {prod: {endpoint_url: https://a.example.com}, stage: {endpoint_url: https://b.example.com}}
repositories:
  prod/analytics: {gc: {default_retention_days: 7}}
  stage/analytics: {gc: {default_retention_days: 7}}
  prod/lake: {gc: {default_retention_days: 7}}
  prod/team-*: {gc: {default_retention_days: 7}}
"""


def run(folder: Path, *arguments: str, **environment: str) -> str:
    """The output of the command in ``folder``, run as a separate process as by a shell."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LAKEPLAN_")}
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "lakeplan", *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": path, "SHELL": "/bin/bash", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.stdout


def completed(line: str) -> list[str]:
    """The completions of the last word of ``line`` in the test's folder."""
    words = line.split(" ")[1:]
    shell = BashComplete(whole_command(), {}, "lakeplan", "_LAKEPLAN_COMPLETE")
    return [item.value for item in shell.get_completions(words[:-1], words[-1])]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakeplan.yaml").write_text(TREE)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("lakeplan pl", ["plan"]),
        ("lakeplan sweep re", ["restore"]),
        ("lakeplan sweep run --cl", []),
        ("lakeplan plan --read", ["--read-only"]),
        ("lakeplan plan --format ma", ["markdown"]),
        ("lakeplan plan --allow tag", ["tag-loss"]),
        ("lakeplan apply --allow prod/analytics=tag", ["prod/analytics=tag-loss"]),
        ("lakeplan sweep approve MARK --allow lake=expired-", ["lake=expired-objects", "lake=expired-bytes"]),
        ("lakeplan sweep mark --allow unread", []),
        ("lakeplan branches run --allow team", []),
        ("lakeplan plan --server s", ["stage"]),
        ("lakeplan plan --target prod/", ["prod/analytics"]),
        ("lakeplan plan --target team", ["team-*"]),
        ("lakeplan export l", ["lake"]),
        ("lakeplan explain sta", ["stage/analytics"]),
        ("lakeplan schema tr", ["tree"]),
    ],
)
@pytest.mark.usefixtures("tree")
def it_completes(line: str, names: list[str]) -> None:
    assert completed(line) == names


@pytest.mark.usefixtures("tree")
def it_offers_gates_and_gates_of_one_repository() -> None:
    gates = [gate.name for gate in GATES.values() if gate.allow]
    offered = completed("lakeplan apply --allow ")
    assert offered[: len(gates)] == gates
    named = [f"{name}={gate}" for name in ("lake", "prod/analytics", "stage/analytics") for gate in gates]
    assert offered[len(gates) :] == named


def it_offers_gates_where_the_tree_is_broken(tree: Path) -> None:
    (tree / "lakeplan.yaml").write_text("servers: [")
    assert completed("lakeplan apply --allow cl") == ["clear"]


def it_completes_names_of_the_tree_that_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "elsewhere").mkdir()
    monkeypatch.chdir(tree / "elsewhere")
    assert completed(f"lakeplan export -C {tree} la") == ["lake"]


def it_answers_a_shell(tree: Path) -> None:
    asked = {"COMP_WORDS": "lakeplan export l", "COMP_CWORD": "2", "_LAKEPLAN_COMPLETE": "complete_bash"}
    assert run(tree, **asked).split() == ["lake"]


def it_completes_nothing_where_the_tree_is_broken(tree: Path) -> None:
    (tree / "lakeplan.yaml").write_text("servers: [")
    assert completed("lakeplan export l") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def it_prints_the_script_of_a_shell(tmp_path: Path, shell: str) -> None:
    script = run(tmp_path, "lakeplan", _LAKEPLAN_COMPLETE=f"source_{shell}")
    assert "_LAKEPLAN_COMPLETE" in script
    assert f"complete_{shell}" in script
