"""Runs the steps of docs/sandbox.md unchanged, except for the port."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeplan.cli.main import run
from tests.sandboxes import SandboxHandle, start_sandbox

ROOT = Path(__file__).parents[2]
STEPS = re.compile(r"^## Try the quickstart\n.*?^```\n(.*?)^```", re.DOTALL | re.MULTILINE)
SERVED = "http://127.0.0.1:8000"
"""What ``sandbox up`` without a port serves, and what the steps write."""


@pytest.fixture
def handle(tmp_path: Path) -> Iterator[SandboxHandle]:
    with start_sandbox(tmp_path / "sandbox") as handle:
        yield handle


@pytest.mark.spark
def it_plans_and_applies_the_quickstart(
    handle: SandboxHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples/quickstart", tmp_path / "examples/quickstart")
    monkeypatch.chdir(tmp_path)
    (steps,) = STEPS.findall((ROOT / "docs/sandbox.md").read_text(encoding="utf-8"))
    up, sleep, *rest = steps.splitlines()
    assert up == "lakeplan sandbox up --dir ./sandbox &"
    assert sleep.startswith("sleep ")
    for step in rest:
        step = step.replace(SERVED, handle.endpoint_url)
        program, *words = shlex.split(step, comments=True)
        if program == "export":
            for name, _, value in (word.partition("=") for word in words):
                monkeypatch.setenv(name, value)
        elif program == "cd":
            monkeypatch.chdir(words[0])
        elif program == "echo":
            text, _, file = words
            with Path(file).open("a") as tree:
                tree.write(f"{text}\n")
        else:
            refused = re.search(r"# exit code (\d+)", step)
            assert program == "lakeplan"
            assert run(_at(handle, words)) == (int(refused[1]) if refused else 0), step


def _at(handle: SandboxHandle, words: list[str]) -> list[str]:
    """``seed`` asks the port that ``up`` takes by itself."""
    return [*words, "--endpoint", handle.endpoint_url] if words[:2] == ["sandbox", "seed"] else words
