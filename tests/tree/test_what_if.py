"""Settings of ``plan --set`` over those of a tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeplan.errors import UsageError
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.tree.yaml import TreeError
from lakeplan.values.desired import DesiredRepository, GcDesired

ROOT = """profiles:
  standard: {gc: {default_retention_days: 21, branches: [{branch_id: main, retention_days: 28}]}}
bounds: {min_retention_days: 3, max_retention_days: 365}
"""
ENTRIES = """  analytics: {use: [standard]}
  "raw-*": {gc: {default_retention_days: 7}}
  old: {gc: clear}
  unruled: {owner: me}
"""


@pytest.fixture
def folder(tree) -> Path:
    return tree.write(ROOT, ENTRIES)


def resolved(tree: Tree) -> dict[str, DesiredRepository]:
    (server,) = tree.servers
    return {d.name: d for d in tree.resolve(server, ["raw-a"])}


def days(folder: Path, *settings: str) -> dict[str, dict[str, int]]:
    """By repository, the days of its rules. The default's key is ``""``."""
    found = {}
    for name, desired in resolved(load_tree(folder, {}, what_if=settings)).items():
        gc = desired.gc
        found[name] = (
            {"": gc.default_retention_days, **{b.name: b.retention_days for b in gc.branches}}
            if isinstance(gc, GcDesired)
            else {}
        )
    return found


def it_wins_over_profiles_globs_and_entries(folder):
    found = days(folder, "gc.default_retention_days=14")
    assert found == {
        "analytics": {"": 14, "main": 28},
        "raw-a": {"": 14},
        "old": {"": 14},
        "unruled": {"": 14},
    }


def it_names_the_items_of_lists(folder):
    found = days(
        folder,
        "gc.default_retention_days=14",
        "gc.branches[main].retention_days=30",
        "gc.branches[release-[0-9]*].retention_days=90",
    )
    assert found["analytics"] == {"": 14, "main": 30, "release-[0-9]*": 90}
    assert days(folder, "gc.branches[main].remove=true", "gc.default_retention_days=9")["analytics"] == {
        "": 9
    }


def it_takes_whole_blocks_and_clear(folder):
    whole = "gc={default_retention_days: 5, branches: [{branch_id: dev, retention_days: 4}]}"
    assert days(folder, whole)["analytics"] == {"": 5, "main": 28, "dev": 4}
    assert set(map(str, days(folder, "gc=clear").values())) == {"{}"}


def it_sets_what_is_of_the_whole_tree(folder):
    assert load_tree(folder, {}, what_if=["safety.on_tag_loss=fail"]).safety.on_tag_loss == "fail"
    with pytest.raises(TreeError, match="problem"):  # an entry of the tree is outside these bounds
        load_tree(folder, {}, what_if=["bounds.min_retention_days=10"])


def it_changes_nothing_without(folder):
    assert days(folder) == {
        "analytics": {"": 21, "main": 28},
        "raw-a": {"": 7},
        "old": {},
        "unruled": {},
    }


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("gc", "is not in the form PATH=VALUE"),
        ("=3", "is not in the form PATH=VALUE"),
        ("gc.default_retention_days", "is not in the form PATH=VALUE"),
        ("gc..default_retention_days=3", "is not in the form PATH=VALUE"),
        ("gc.default_retention_days=", "the value is missing"),
        ("gc.default_retention_days=soon", "expected a whole number of days"),
        ("gc.default_retention_days=1", "1 is outside the tree's bounds of"),
        ("gc.defult_retention_days=14", "did you mean default_retention_days"),
        ("gc.branches[main].days=14", "unknown key 'days'"),
        ("gc.branches[main].min_commits=3", "the key retention_days is missing"),
        ("gc.rules[main].days=14", "items of this list cannot be selected"),
        ("gc.file=rules.yaml", "--set does not support `file`"),
        ("gc.default_retention_days={", "--set gc.default_retention_days={"),
        ("servers.prod.endpoint_url=http://x", "servers cannot be set"),
        ("state.url=file:///x", "state cannot be set"),
        ("profiles.standard=3", "profiles cannot be set"),
        ("use=[standard]", "use cannot be set"),
        ("safety.on_tag_loss=maybe", "expected one of ignore, warn, fail"),
    ],
)
def it_refuses_what_cannot_be_meant_and_does_not_blame_the_tree(folder, setting, said):
    with pytest.raises(UsageError) as refused:
        load_tree(folder, {}, what_if=[setting])
    assert str(refused.value).startswith("--set")
    assert said in str(refused.value)


def it_refuses_what_is_said_twice(folder):
    for more in (
        "gc.default_retention_days=4",
        "gc={default_retention_days: 4}",
        "gc.default_retention_days.x=4",
    ):
        with pytest.raises(UsageError, match=r"set twice|already sets"):
            load_tree(folder, {}, what_if=["gc.default_retention_days=3", more])
