"""The policy test of docs/policy-tests.md holds under the tree of docs/concepts.md."""

from __future__ import annotations

import re
from pathlib import Path

from lakeplan.explain.policy_test import find_tests, read_tests, run_tests
from lakeplan.tree.tree import load_tree

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "concepts.md").read_text() + (DOCS / "policy-tests.md").read_text()
BLOCK = re.compile(r"```yaml\n# (\S+\.yaml)\n(.*?)```", re.DOTALL)


def it_passes_as_it_stands(tmp_path: Path) -> None:
    for file, text in BLOCK.findall(TEXT):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    tests = read_tests(find_tests(tmp_path, ()), tmp_path)
    results = run_tests(load_tree(tmp_path, {}), tests)
    assert (results["passed"], results["failed"]) == (1, 0), results["tests"][0]["failures"]
