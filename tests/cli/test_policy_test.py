"""``lakeplan test`` on the command line: exit codes, formats, wrong uses; no server is there to be asked."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakeplan.cli.main import run

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAKEPLAN_VAR_SANDBOX_URL", "http://127.0.0.1:9")
    return Path(shutil.copytree(QUICKSTART, tmp_path / "tree"))


def it_passes_the_quickstarts_tests(tree: Path, capsys: Any) -> None:
    assert run(["test", "-C", str(tree)]) == 0
    assert "3 passed, 0 failed" in capsys.readouterr().out


def it_needs_neither_a_server_nor_spark(tree: Path) -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*_): raise AssertionError('something was asked of a network')\n"
        "socket.socket.connect = refuse\n"
        "from lakeplan.cli.main import run\n"
        f"assert run(['test', '-C', {str(tree)!r}]) == 0\n"
        "print([m for m in ('pyspark', 'boto3', 'azure') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


def it_exits_1_when_the_tree_no_longer_keeps_what_must_survive(tree: Path, capsys: Any) -> None:
    rules = tree / "repositories" / "analytics.yaml"
    rules.write_text(rules.read_text().replace("retention_days: 90", "retention_days: 30"))
    assert run(["test", "-C", str(tree)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "FAIL a release keeps its data for a quarter" in out
    assert "branch release-3: expected 90 days, but the tree gives it 30 days" in out


def it_writes_several_formats_at_once(tree: Path, tmp_path: Path, capsys: Any) -> None:
    report, data = tmp_path / "report.xml", tmp_path / "data.json"
    formats = ["--format", "junit", "--out", str(report), "--format", "json", "--out", str(data)]
    assert run(["test", "-C", str(tree), "-q", *formats]) == 0
    assert 'tests="3" failures="0"' in report.read_text()
    assert json.loads(data.read_text())["passed"] == 3
    assert capsys.readouterr().out == ""


def it_says_what_failed_although_it_is_quiet(tree: Path, tmp_path: Path, capsys: Any) -> None:
    rules = tree / "repositories" / "analytics.yaml"
    rules.write_text(rules.read_text().replace("retention_days: 90", "retention_days: 30"))
    assert run(["test", "-C", str(tree), "-q", "--out", str(tmp_path / "data.json")]) == 1
    answer = capsys.readouterr()
    assert answer.out == ""
    assert "FAIL  a release keeps its data for a quarter" in answer.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gone.yaml"], 64, "cannot read the tests"),
        (["--format", "markdown"], 64, "unknown format"),
        (["--target", "x"], 64, "No such option"),
        (["lakeplan.yaml"], 1, "the policy tests have"),
        (["--log-level", "loud"], 64, "unknown log level"),
    ],
)
def it_says_what_is_wrong(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tree)
    assert run(["test", *arguments]) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def it_says_how_to_begin_without_tests(tree: Path, capsys: Any) -> None:
    shutil.rmtree(tree / "tests")
    assert run(["test", "-C", str(tree)]) == 64
    assert "lakeplan schema policy-test" in capsys.readouterr().err
