"""``notify``: channels, owners, and everything that can be wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeplan.errors import ConfigError
from lakeplan.tree.tree import load_tree
from lakeplan.values.notify import ChannelKind, Event, NotifyConfig

ROOT = "apiVersion: lakeplan/v1\nservers: {prod: {endpoint_url: 'https://lakefs.example.com'}}\n"


def notify(folder: Path, block: str) -> NotifyConfig | None:
    (folder / "lakeplan.yaml").write_text(f"{ROOT}{block}", encoding="utf-8")
    return load_tree(folder, {}).notify


def it_has_none_where_the_tree_says_nothing(tmp_path: Path) -> None:
    assert notify(tmp_path, "") is None


def it_reads_channels_owners_and_the_default(tmp_path: Path) -> None:
    found = notify(
        tmp_path,
        "notify:\n  channels:\n    platform: {kind: slack}\n"
        "    data-science: {kind: teams, events: [branch-deletion, drift]}\n"
        "  owners: {ds: data-science}\n  default: platform\n",
    )
    assert found is not None
    science = found.channels["data-science"]
    assert (science.kind, science.events) == (ChannelKind.TEAMS, (Event.BRANCH_DELETION, Event.DRIFT))
    assert science.variable == "LAKEPLAN_NOTIFY_DATA_SCIENCE_URL"
    assert found.channel_for(Event.DRIFT, "ds") == science
    assert found.channel_for(Event.PLAN_REFUSED, "ds") == found.channels["platform"]
    assert found.channel_for(Event.DRIFT, "others") == found.channels["platform"]
    assert found.channel_for(Event.DRIFT, None) == found.channels["platform"]


def it_takes_the_only_channel_for_the_default(tmp_path: Path) -> None:
    found = notify(tmp_path, "notify: {channels: {ops: {kind: json, events: [drift]}}}\n")
    assert found is not None
    assert found.default == "ops"
    assert found.channel_for(Event.PLAN_REFUSED, None) is None


def it_has_no_default_among_several(tmp_path: Path) -> None:
    found = notify(tmp_path, "notify: {channels: {a: {kind: json}, b: {kind: json}}}\n")
    assert found is not None
    assert found.channel_for(Event.DRIFT, "team") is None


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("notify: {channels: {ops: {kind: slak}}}", "notify.channels.ops.kind"),
        ("notify: {channels: {ops: {kind: slack, url: 'https://x'}}}", "unknown key 'url'"),
        ("notify: {channels: {'9': {kind: slack}}}", "a channel name must begin with a letter"),
        ("notify: {channels: {a-b: {kind: slack}, a_b: {kind: slack}}}", "LAKEPLAN_NOTIFY_A_B_URL"),
        (
            "notify: {channels: {ops: {kind: slack}}, default: opps}",
            "there is no channel 'opps'; did you mean ops?",
        ),
        ("notify: {channels: {ops: {kind: slack}}, owners: {t: none}}", "there is no channel 'none'"),
        ("notify: {channels: {ops: {kind: slack, events: [drit]}}}", "notify.channels.ops.events"),
        ("notify: {channels: {}}", "notify.channels"),
        ("notify: {default: ops}", "channels"),
        ("notify:", "notify"),
    ],
)
def it_names_what_is_wrong(tmp_path: Path, block: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        notify(tmp_path, block)
    assert problem in "\n".join(error.value.problems)


@pytest.mark.parametrize("name", ["notify", "notify-x"])
def it_leaves_its_variables_to_no_server(tmp_path: Path, name: str) -> None:
    text = f"apiVersion: lakeplan/v1\nservers: {{{name}: {{endpoint_url: 'https://x.example'}}}}\n"
    (tmp_path / "lakeplan.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_tree(tmp_path, {})
    assert "would begin with LAKEPLAN_NOTIFY_, a prefix" in "\n".join(error.value.problems)
