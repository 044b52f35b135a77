"""The quickstart is a tree that validates and a history that reads; `make demo` runs it whole."""

from __future__ import annotations

from pathlib import Path

from lakeplan.explain.policy_test import find_tests, read_tests, run_tests
from lakeplan.sandbox.seed_document import read_seed
from lakeplan.tree.tree import load_tree

QUICKSTART = Path(__file__).parents[2] / "examples/quickstart"


def it_is_a_tree_without_problems():
    tree = load_tree(QUICKSTART, {"LAKEPLAN_VAR_SANDBOX_URL": "http://127.0.0.1:8000"})
    names = [r.name for r in tree.resolve("sandbox", ())]
    assert names == ["analytics", "clickstream", "ml-features"]


def it_has_a_history_of_the_same_repositories():
    seed = read_seed((QUICKSTART / "history.yaml").read_text(), "history.yaml")
    assert [r.name for r in seed] == ["analytics", "clickstream", "ml-features"]


def it_passes_its_own_policy_tests():
    tree = load_tree(QUICKSTART, {"LAKEPLAN_VAR_SANDBOX_URL": "http://127.0.0.1:8000"})
    results = run_tests(tree, read_tests(find_tests(QUICKSTART, ()), QUICKSTART))
    assert (results["passed"], results["failed"]) == (3, 0)
