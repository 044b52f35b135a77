"""The defaults of the schemas are those that hold: a tree that spells them out is like one without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakeplan.tree.schemas import load_schema
from lakeplan.tree.tree import DEFAULT_INCLUDE, DEFAULT_STATE
from tests.tree.conftest import TreeBuilder

TREE = load_schema("tree")
ENTRY = load_schema("repository")["$defs"]


def defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v["default"] for k, v in schema["properties"].items() if "default" in v}


def spelled(**blocks: Mapping[str, Any]) -> str:
    """Blocks of a tree as YAML, which JSON is."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in blocks.items())


class DescribeDefaults:
    def it_has_those_of_the_gates_and_bounds(self, tree: TreeBuilder) -> None:
        safety = defaults(TREE["$defs"]["safety"])
        assert safety.keys() == TREE["$defs"]["safety"]["properties"].keys()
        said = tree.load(spelled(safety=safety, bounds=defaults(TREE["properties"]["bounds"])))
        plain = tree.load()
        assert (said.safety, said.bounds) == (plain.safety, plain.bounds)

    def it_has_those_of_entries(self, tree: TreeBuilder) -> None:
        blocks = {name: defaults(ENTRY[name]) for name in ("sweep", "branch_lifecycle")}
        assert blocks["sweep"].keys() == ENTRY["sweep"]["properties"].keys()
        of_branches = ENTRY["branch_lifecycle"]["properties"].keys()
        assert blocks["branch_lifecycle"].keys() == of_branches - {"policies", "file"}
        # an empty list is not written in a tree: it is what an absent key means
        assert blocks["branch_lifecycle"].pop("exempt") == []
        (said,) = tree.load(entries=f"  analytics: {json.dumps(blocks)}\n").resolve("prod", {"analytics"})
        (plain,) = tree.load(entries="  analytics: {owner: a}\n").resolve("prod", {"analytics"})
        assert (said.sweep, said.branch_settings) == (plain.sweep, plain.branch_settings)

    def it_has_those_of_the_root(self, tree: TreeBuilder) -> None:
        root, server = TREE["properties"], TREE["$defs"]["server"]["properties"]
        plain = tree.load()
        assert root["unmanaged"]["default"] == plain.unmanaged_policy
        assert root["include"]["default"] == [DEFAULT_INCLUDE]
        assert root["state"]["properties"]["url"]["default"] == DEFAULT_STATE
        config = tree.load("apiVersion: lakeplan/v1\nservers: {a: {endpoint_url: 'http://x'}}\n").servers["a"]
        assert server["time_zone"]["default"] == config.time_zone
        engine = server["branch_lifecycle"]["properties"]["engine"]
        assert engine["default"] == config.branch_lifecycle_engine
