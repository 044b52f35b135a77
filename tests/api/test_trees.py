"""Trees, rules and plans for scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeplan.api import find_repository, load_tree, read_plan, read_rules, rules_of
from lakeplan.errors import ConfigError, LakeplanError, UsageError
from lakeplan.values.rules import GcRules

TREE = """apiVersion: lakeplan/v1
servers:
  eu: {endpoint_url: "https://eu.example.com"}
  us: {endpoint_url: "https://us.example.com"}
repositories:
  eu/both: {gc: {default_retention_days: 7, branches: [{pattern: "r-*", retention_days: 90}]}}
  us/both: {gc: clear}
  eu/other: {owner: somebody}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "lakeplan.yaml").write_text(TREE)
    return tmp_path


def it_finds_a_repository_by_name_and_by_server(tree: Path) -> None:
    loaded = load_tree(tree, {})
    assert find_repository(loaded, "other").key == "eu/other"
    assert find_repository(loaded, "us/both").server == "us"
    with pytest.raises(UsageError, match="'both' is on several servers: eu, us"):
        find_repository(loaded, "both")


def it_has_rules_only_where_the_tree_asks_for_some(tree: Path) -> None:
    loaded = load_tree(str(tree), {})
    asked = find_repository(loaded, "eu/both")
    assert rules_of(asked, ["main", "r-1"]) == GcRules(7, {"r-1": 90})
    assert rules_of(asked) == GcRules(7)
    assert rules_of(find_repository(loaded, "us/both")) is None
    assert rules_of(find_repository(loaded, "other")) is None


def it_names_every_problem_of_a_tree(tree: Path) -> None:
    (tree / "lakeplan.yaml").write_text(TREE.replace("7", "-7").replace("owner", "ownr"))
    with pytest.raises(ConfigError) as raised:
        load_tree(tree, {})
    assert len(raised.value.problems) == 2


def it_reads_lakectls_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text(
        '{"default_retention_days": 21, "branches": [{"branch_id": "main", "retention_days": 28}]}'
    )
    assert read_rules(file) == read_rules(str(file)) == GcRules(21, {"main": 28})
    with pytest.raises(UsageError, match="cannot read the rules"):
        read_rules(tmp_path / "none.json")


def it_refuses_what_is_no_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(LakeplanError, match="cannot read the plan file: it is not a lakeplan document"):
        read_plan(tmp_path / "plan.json")
    with pytest.raises(LakeplanError, match="cannot read the plan"):
        read_plan(tmp_path / "none.json")
