"""Trees held to something stricter: one repository is as strict as all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from lakeplan.review.base import GuardedTree, HeldTree, ReviewedSettings, ReviewedTree
from lakeplan.review.strictness import Guards
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.desired import BranchSettings, Safety
from lakeplan.values.plan import Plan, SweepGuard
from lakeplan.values.sweep import Hold, SweepSettings

HELD = (Hold("branch", "release"),)
STRICT = Safety(max_expired_bytes=1)

TREE = """\
apiVersion: lakeplan/v1
servers: {prod: {endpoint_url: "http://localhost:8000"}}
repositories:
  analytics: {gc: {default_retention_days: 21}}
"""


def held(tree: Tree) -> HeldTree:
    (desired,) = tree.resolve("prod", ())
    before = {"analytics": [replace(desired, holds=HELD)]}
    return HeldTree(tree, Guards(STRICT), "origin/main", lambda server, names: before)


def guarded(tree: Tree) -> GuardedTree:
    guard = SweepGuard(STRICT, HELD, SweepSettings())
    now = datetime(2026, 3, 31, tzinfo=timezone.utc)
    return GuardedTree(tree, Plan(now, "1", "digest", None, (), sweep_guards={"prod/analytics": guard}))


def reviewed(tree: Tree) -> ReviewedTree:
    return ReviewedTree(tree, {"prod/analytics": ReviewedSettings(BranchSettings(), STRICT)})


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    (tmp_path / "lakeplan.yaml").write_text(TREE)
    return load_tree(tmp_path, {})


@pytest.mark.parametrize("stricter", [held, guarded, reviewed])
def it_finds_one_repository_as_strict_as_among_all(tree: Tree, stricter: Callable[[Tree], Any]) -> None:
    strict = stricter(tree)
    (desired,) = strict.resolve("prod", ())
    assert desired == strict.find("prod", "analytics") != tree.find("prod", "analytics")
    assert desired.safety.max_expired_bytes == 1
    assert strict.find("prod", "other") is None
