"""``object_lifecycle`` as typed values, and the schedule of a server's own job."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeplan.errors import ConfigError
from lakeplan.tree.tree import load_tree
from lakeplan.values.desired import Cleared, ObjectRule, ObjectRulesDesired

ROOT = (
    "apiVersion: lakeplan/v1\nservers: {prod: {endpoint_url: 'http://127.0.0.1:1', branch_lifecycle: {%s}}}\n"
    "profiles: {std: {object_lifecycle: {rules: [{id: raw, branches: [main], prefix: raw/,"
    " expire_after_days: 90, description: kept}]}}}\nrepositories: {analytics: {use: [std]%s}}\n"
)


def load(folder: Path, more: str = "", engine: str = "engine: server"):
    (folder / "lakeplan.yaml").write_text(ROOT % (engine, f", object_lifecycle: {more}" if more else ""))
    return load_tree(folder, {})


def desired(folder: Path, more: str = ""):
    return load(folder, more).resolve("prod", [])[0].object_lifecycle


def it_takes_rules_from_profiles_and_merges_by_id(tmp_path):
    other = "{id: b, branches: [x], prefix: '', expire_after_days: 1}"
    more = f"{{rules: [{{id: raw, expire_after_days: 30}}, {other}]}}"
    found = desired(tmp_path, more)
    assert isinstance(found, ObjectRulesDesired)
    assert found.rules == (
        ObjectRule("raw", ("main",), "raw/", 30, "kept"),
        ObjectRule("b", ("x",), "", 1),
    )
    assert found.source.file == "lakeplan.yaml"


def it_can_be_cleared_in_an_exact_entry(tmp_path):
    assert desired(tmp_path, "clear") is Cleared.CLEAR


def it_is_not_managed_when_it_is_absent(tmp_path):
    (tmp_path / "lakeplan.yaml").write_text(ROOT.replace("use: [std]", "owner: me") % ("engine: none", ""))
    assert load_tree(tmp_path, {}).resolve("prod", [])[0].object_lifecycle is None


class DescribeTheSchedule:
    def it_is_a_cron_line_of_the_server(self, tmp_path):
        tree = load(tmp_path, engine="engine: server, schedule: '30 2 * * *'")
        assert tree.servers["prod"].branch_lifecycle_schedule == "30 2 * * *"

    @pytest.mark.parametrize(
        ("engine", "text"),
        [
            ("engine: server, schedule: '99 * * * *'", "use values or ranges from 0 to 59"),
            ("engine: server, schedule: often", "cron expression"),
            ("engine: lakeplan, schedule: '0 * * * *'", "requires `engine: server`"),
            ("engine: none, schedule: '0 * * * *'", "requires `engine: server`"),
        ],
    )
    def it_refuses_what_cannot_be_meant(self, tmp_path, engine, text):
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, engine=engine)
        assert any(text in problem for problem in caught.value.problems)
