"""Statements of the documentation, tried as they are written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakeplan.cli.main import whole_command
from lakeplan.lakefs.transport import Timeouts
from lakeplan.tree.tree import load_tree
from lakeplan.values.desired import Safety
from tools.reference.commands import leaves

FOLDER = Path(__file__).parents[2]
LEAVES = {leaf.name: leaf for leaf in leaves(whole_command())}


def page(name: str) -> str:
    return (FOLDER / "docs" / name).read_text(encoding="utf-8")


class DescribeTheNightlyDrift:
    def it_finds_a_hand_edit_right_after_an_import_with_the_documented_command(self, world: Any) -> None:
        """The schedule of operations.md, on a tree that was only imported."""
        world.api.repository("analytics")
        world.api.set_rules("analytics", 21, main=28)
        (world.tree / "lakeplan.yaml").unlink()
        assert world.lakeplan("import", "--endpoint", f"prod={world.handle.endpoint_url}", "-q").code == 0
        (found,) = re.findall(r"\| drift \| nightly \| `lakeplan drift ([^`]+)` \|", page("operations.md"))
        assert world.lakeplan("drift", *shlex.split(found)).code == 0
        world.api.set_rules("analytics", 21, main=3)
        assert world.lakeplan("drift", *shlex.split(found)).code == 2


class DescribeInitsExample:
    @pytest.mark.parametrize("servers", [("prod",), ("prod", "lab-2")])
    def it_is_an_entry_once_its_comment_signs_are_gone(self, world: Any, servers: tuple[str, ...]) -> None:
        (world.tree / "lakeplan.yaml").unlink()
        endpoints = [x for name in servers for x in ("--endpoint", f"{name}={world.handle.endpoint_url}")]
        assert world.lakeplan("init", *endpoints).code == 0
        root = (world.tree / "lakeplan.yaml").read_text()
        _, _, example = root.partition("uncomment it:\n")
        world.write("repositories/analytics.yaml", re.sub("^# ?", "", example, flags=re.MULTILINE))
        assert world.lakeplan("validate").code == 0
        world.api.repository("analytics")
        world.api.branch("analytics", "release-1")
        assert world.lakeplan("plan", "--no-simulate", "--allow", "unknown-impact").code in (0, 4)
        (wanted,) = load_tree(world.tree, {}).resolve("prod", ())
        gc = wanted.resolved["gc"]
        days = {b.get("branch_id") or b["pattern"]: b["retention_days"] for b in gc["branches"]}
        assert (gc["default_retention_days"], days) == (30, {"main": 60, "release-*": 365})

    def it_shows_the_defaults_of_safety(self, world: Any) -> None:
        (world.tree / "lakeplan.yaml").unlink()
        assert world.lakeplan("init", "--endpoint", "prod=https://lakefs.example.com").code == 0
        assert "these are the defaults" in (world.tree / "lakeplan.yaml").read_text()
        assert load_tree(world.tree, {}).safety == Safety()


class DescribeTimeLimits:
    def it_has_the_options_exactly_where_the_lakectl_map_says(self) -> None:
        (said,) = re.findall(
            r"`--connect-timeout` \((\d+)\), `--read-timeout` \((\d+)\) in (.*?)\.", page("lakectl.md")
        )
        named = set(re.findall(r"`([a-z ]+)`", said[2]))
        for option in ("--connect-timeout", "--read-timeout"):
            assert {name for name, leaf in LEAVES.items() if any(option in o.opts for o in leaf.options)} == (
                named
            )
        assert (Timeouts().connect, Timeouts().read) == (float(said[0]), float(said[1]))


class DescribeTheOfficialCollectorsPage:
    def it_has_an_entry_that_validates(self, world: Any) -> None:
        (block,) = re.findall(r"```yaml\n(repositories:.*?)```", page("official-collector.md"), re.DOTALL)
        world.append("lakeplan.yaml", block)
        result = world.lakeplan("validate")
        assert result.code == 0, result.out + result.err

    @pytest.mark.parametrize("setting", ["mode: quarantine", "versions: all", "rate: 5"])
    def it_names_settings_that_validate_refuses(self, world: Any, setting: str) -> None:
        assert f"`{setting.partition(': 5')[0]}`" in page("official-collector.md")
        block = {"analytics": {"sweep": {"engine": "lakefs-spark-client", **yaml.safe_load(setting)}}}
        world.append("lakeplan.yaml", yaml.safe_dump({"repositories": block}))
        result = world.lakeplan("validate")
        assert result.code == 1
        assert setting.partition(":")[0] in result.out + result.err

    def it_gives_sweep_run_options_of_its_own(self) -> None:
        own = {o for option in LEAVES["sweep run"].options for o in option.opts}
        (command,) = re.findall(
            r"lakeplan sweep run MARK --collector .*?```", page("official-collector.md"), re.DOTALL
        )
        assert set(re.findall(r"(?<![\w-])--[a-z-]+", command)) <= own


class DescribeQuiet:
    def it_prints_no_report_but_documents_and_why_a_command_failed(self, world: Any) -> None:
        world.api.repository("analytics")
        world.rules("analytics", 21)
        assert "only errors and the documents" in " ".join(world.lakeplan("plan", "--help").out.split())
        quiet = world.lakeplan("plan", "-q")
        assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
        document = world.lakeplan("plan", "-q", "--format", "json")
        assert document.json["format"] == "lakeplan.plan/v1"
        glob = "apiVersion: lakeplan/v1\nrepositories: {'ana*': {gc: {default_retention_days: 21}}}\n"
        world.write("repositories/analytics.yaml", glob)
        refused = world.lakeplan("plan", "-q")
        assert (refused.code, refused.out) == (4, "")
        assert "adoption" in refused.err
