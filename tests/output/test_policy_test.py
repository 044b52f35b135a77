"""Results of policy tests as people see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeplan.explain.policy_test import read_tests, run_tests
from lakeplan.output.explain import render_tests
from lakeplan.tree.tree import load_tree

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"
ENVIRON = {"LAKEPLAN_VAR_SANDBOX_URL": "http://127.0.0.1:8000"}


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """The quickstart's tests, with the first one expecting the contrary."""
    text = (QUICKSTART / "tests" / "retention.yaml").read_text()
    file = tmp_path / "retention.yaml"
    file.write_text(text.replace("    goes:\n", "    at_risk:\n", 1).replace("main: 28", "main: 27"))
    made = run_tests(load_tree(QUICKSTART, ENVIRON), read_tests([file], QUICKSTART))
    for test in made["tests"]:
        test["file"] = "tests/retention.yaml"
    return made


@pytest.mark.parametrize("width", [80, 160])
def it_looks_as_reviewed(document: Any, show: Any, golden_output: Any, width: int) -> None:
    golden_output(f"test-{width}", show(render_tests, document, width))


@pytest.mark.parametrize("width", [40, 80, 200])
def it_keeps_to_the_width(document: Any, show: Any, width: int) -> None:
    assert max(map(len, show(render_tests, document, width).splitlines())) <= width


def it_is_short_when_all_is_well(show: Any) -> None:
    tests = read_tests([QUICKSTART / "tests" / "retention.yaml"], QUICKSTART)
    text = show(render_tests, run_tests(load_tree(QUICKSTART, ENVIRON), tests), 120)
    assert text.count("pass  ") == 3
    assert text.endswith("3 passed, 0 failed\n")
