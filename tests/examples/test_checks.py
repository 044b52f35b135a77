"""The example with checks: its tree, its script, and its policy where conftest is installed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lakeplan.cli.main import run
from tests.e2e.conftest import Api
from tests.sandboxes import start_sandbox

EXAMPLE = Path(__file__).parents[2] / "examples/checks"


@pytest.fixture
def judged(tmp_path, monkeypatch, capsys):
    """The gates and warnings of a plan of the example, on a server; ``edit`` changes its lakeplan.yaml."""

    def judge(edit) -> dict:
        tree = tmp_path / "tree"
        shutil.copytree(EXAMPLE, tree)
        with start_sandbox(tmp_path / "lake") as handle:
            api = Api(handle)
            api.repository("analytics")
            api.commit("analytics", "main", 1, a=10)
            text = (tree / "lakeplan.yaml").read_text()
            text = edit(text.replace("https://lakefs.example.com", handle.endpoint_url))
            (tree / "lakeplan.yaml").write_text(text)
            monkeypatch.setenv("LAKEPLAN_PROD_ACCESS_KEY_ID", "sandbox")
            monkeypatch.setenv("LAKEPLAN_PROD_SECRET_ACCESS_KEY", "sandbox-secret")
            monkeypatch.setenv("LAKEPLAN_PROD_ENDPOINT_URL", handle.endpoint_url)
            run(["plan", "-C", str(tree), "--run-checks", "--format", "json", "--no-progress"])
        document = json.loads(capsys.readouterr().out)
        gates = {g["message"]: g["outcome"] for g in document["gates"] if g["gate"] == "check"}
        return {"gates": gates, "warnings": document["warnings"]}

    return judge


def only_the_script(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if "conftest" not in line)


def it_is_a_valid_tree() -> None:
    assert run(["validate", "-C", str(EXAMPLE), "-q"]) == 0


def it_passes_the_script(judged) -> None:
    assert judged(only_the_script)["gates"] == {"owners: passed": "passed"}


def it_refuses_a_repository_without_an_owner(judged) -> None:
    found = judged(lambda text: only_the_script(text).replace("owner: data-platform, ", ""))
    assert found["gates"] == {"owners: has no owner; add `owner: …`": "refused"}


def it_refuses_while_conftest_is_not_installed(judged, monkeypatch) -> None:
    python = shutil.which("python3") or ""
    monkeypatch.setenv("PATH", str(Path(python).parent))
    if shutil.which("conftest"):
        pytest.skip("conftest is beside Python")
    gates = judged(lambda text: text)["gates"]
    assert gates["retention: the program 'conftest' is not on PATH"] == "refused"


@pytest.mark.skipif(shutil.which("conftest") is None, reason="needs conftest")
def it_is_judged_by_the_policy(judged) -> None:
    found = judged(lambda text: text.replace("default_retention_days: 21", "default_retention_days: 7"))
    assert found["gates"]["retention: keeps commits for 7 days: at least 14"] == "refused"
    assert "check retention: prod/analytics: has no branch rules" in found["warnings"]
