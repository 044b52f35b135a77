"""Policies and lifecycle settings as typed values, and the engine they need."""

from __future__ import annotations

from typing import Any

import pytest

from lakeplan.model.desired import Cleared, PoliciesDesired
from lakeplan.model.lifecycle import LifecycleSettings, Policy

POLICY = "branch_lifecycle: {policies: [{id: p, patterns: [x], max_age: 7d}]}"


def root(engine: str) -> str:
    return (
        "apiVersion: lakeplan/v1\n"
        "servers: {prod: {endpoint_url: 'https://lakefs.example.com', "
        f"branch_lifecycle: {{engine: {engine}}}}}}}\n"
    )


def resolved(tree: Any, entry: str) -> Any:
    return tree.load("", f"  team-a: {{{entry}}}").resolve("prod", [])[0]


def it_reads_policies_as_people_write_them(tree: Any) -> None:
    entry = (
        "branch_lifecycle: {policies: [{id: a, patterns: [f-*, wip], max_age: 1w3d12h, max_idle_age: 3d,"
        " description: quiet}, {patterns: [x], max_inactivity_time: 2w}]}"
    )
    found = resolved(tree, entry).branch_lifecycle
    assert isinstance(found, PoliciesDesired)
    assert found.policies == (
        Policy("a", ("f-*", "wip"), 10 * 86400 + 12 * 3600, 3 * 86400, "quiet"),
        Policy(None, ("x",), None, 14 * 86400),
    )
    assert [s.file for s in found.sources] == ["repositories/a.yaml"] * 2


def it_tells_absent_from_cleared(tree: Any) -> None:
    assert resolved(tree, "owner: me").branch_lifecycle is None
    assert resolved(tree, "branch_lifecycle: clear").branch_lifecycle is Cleared.CLEAR


def it_reads_lifecycle_settings_with_the_design_s_defaults(tree: Any) -> None:
    assert resolved(tree, "owner: me").lifecycle == LifecycleSettings()
    entry = (
        "lifecycle: {exempt: [keep-*], require_merged: true, min_keep: 3, keep_with_uncommitted: false,"
        " assume_created: head_commit}"
    )
    assert resolved(tree, entry).lifecycle == LifecycleSettings(
        exempt=("keep-*",),
        require_merged=True,
        min_keep=3,
        keep_with_uncommitted=False,
        assume_created="head_commit",
    )


@pytest.mark.parametrize("entry", [POLICY, "branch_lifecycle: clear"])
def it_refuses_policies_that_nobody_would_enforce(tree: Any, entry: str) -> None:
    (problem,) = tree.problems(root("none"), f"  team-a: {{{entry}}}")
    assert problem.startswith("repositories/a.yaml:3:12: repositories.team-a.branch_lifecycle: nobody would")
    assert "servers.prod.branch_lifecycle.engine is none" in problem


def it_refuses_inherited_policies_under_engine_none_too(tree: Any) -> None:
    profiles = f"profiles: {{base: {{{POLICY}}}}}\n"
    (problem,) = tree.problems(root("none") + profiles, '  "team-*": {use: [base]}')
    assert "nobody would enforce this" in problem
    assert tree.problems(root("none") + profiles, '  "team-*": {owner: me}') == []


@pytest.mark.parametrize("engine", ["server", "lakeplan"])
def it_takes_policies_under_either_engine(tree: Any, engine: str) -> None:
    assert tree.problems(root(engine), f"  team-a: {{{POLICY}}}") == []
