"""Policies and branch settings as typed values, and the engine they need."""

from __future__ import annotations

from typing import Any

import pytest

from lakeplan.values.desired import BranchSettings, Cleared, PoliciesDesired, Policy

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


def it_reads_branch_settings_with_the_design_s_defaults(tree: Any) -> None:
    assert resolved(tree, "owner: me").branch_settings == BranchSettings()
    entry = (
        "branch_lifecycle: {exempt: [keep-*], require_merged: true, min_keep: 3,"
        " keep_with_uncommitted: false, assume_created: head_commit}"
    )
    assert resolved(tree, entry).branch_settings == BranchSettings(
        exempt=("keep-*",),
        require_merged=True,
        min_keep=3,
        keep_with_uncommitted=False,
        assume_created="head_commit",
    )


INHERITED = (
    "profiles: {base: {branch_lifecycle: {exempt: [a], policies: [{id: p, patterns: [x], max_age: 1d}]}}}\n"
)


def it_clears_policies_and_keeps_inherited_settings(tree: Any) -> None:
    entry = "  team-a: {use: [base], branch_lifecycle: clear}"
    (found,) = tree.load(root("lakeplan") + INHERITED, entry).resolve("prod", [])
    assert found.branch_lifecycle is Cleared.CLEAR
    assert found.branch_settings == BranchSettings(exempt=("a",))
    assert found.resolved["branch_lifecycle"] == {"policies": "clear", "exempt": ["a"]}


def it_manages_no_policies_where_a_block_has_only_settings(tree: Any) -> None:
    (found,) = tree.load(root("none"), "  team-a: {branch_lifecycle: {min_keep: 2}}").resolve("prod", [])
    assert found.branch_lifecycle is None
    assert found.branch_settings == BranchSettings(min_keep=2)


def it_takes_settings_beside_a_file(tree: Any) -> None:
    files = {"repositories/p.json": '{"policies": [{"id": "p", "patterns": ["x"], "max_age": "1d"}]}'}
    entry = "  team-a: {branch_lifecycle: {file: p.json, min_keep: 2, exempt: [a]}}"
    (found,) = tree.load(root("lakeplan"), entry, files).resolve("prod", [])
    assert [policy.id for policy in found.branch_lifecycle.policies] == ["p"]
    assert found.branch_settings == BranchSettings(min_keep=2, exempt=("a",))


@pytest.mark.parametrize("entry", [POLICY, "branch_lifecycle: clear"])
def it_refuses_policies_that_nobody_would_enforce(tree: Any, entry: str) -> None:
    (problem,) = tree.problems(root("none"), f"  team-a: {{{entry}}}")
    assert problem.startswith("repositories/a.yaml:3:12: repositories.team-a.branch_lifecycle: nothing would")
    assert "servers.prod.branch_lifecycle.engine is none" in problem


def it_refuses_inherited_policies_under_engine_none_too(tree: Any) -> None:
    profiles = f"profiles: {{base: {{{POLICY}}}}}\n"
    (problem,) = tree.problems(root("none") + profiles, '  "team-*": {use: [base]}')
    assert "nothing would enforce this" in problem
    assert tree.problems(root("none") + profiles, '  "team-*": {owner: me}') == []


@pytest.mark.parametrize("engine", ["server", "lakeplan"])
def it_takes_policies_under_either_engine(tree: Any, engine: str) -> None:
    assert tree.problems(root(engine), f"  team-a: {{{POLICY}}}") == []


class DescribeWhatTheDocumentsAskFor:
    """branch-lifecycle.md on what a policy is."""

    def problem(self, tree: Any, *policies: str) -> str:
        """The one problem of an entry with these policies."""
        (found,) = tree.problems("", f"  team-a: {{branch_lifecycle: {{policies: [{', '.join(policies)}]}}}}")
        return str(found)

    @pytest.mark.parametrize("policy", ["{max_age: 7d}", "{patterns: [], max_age: 7d}"])
    def it_needs_at_least_one_pattern(self, tree: Any, policy: str) -> None:
        assert "pattern" in self.problem(tree, policy)

    def it_needs_at_least_one_of_the_two_ages(self, tree: Any) -> None:
        text = self.problem(tree, "{id: a, patterns: [x]}")
        assert "max_age" in text
        assert "max_idle_age" in text

    def it_takes_the_newer_name_of_the_idle_age_but_not_both(self, tree: Any) -> None:
        text = self.problem(tree, "{patterns: [x], max_idle_age: 3d, max_inactivity_time: 3d}")
        assert "another name for max_idle_age" in text

    @pytest.mark.parametrize("id", ["x" * 33, "'a b'", "'a\tb'", "''", '"a\\n"'])
    def it_refuses_an_id_that_is_too_long_or_has_white_space(self, tree: Any, id: str) -> None:
        assert ".id: " in self.problem(tree, f"{{id: {id}, patterns: [x], max_age: 7d}}")

    def it_takes_an_id_of_32_characters_or_none(self, tree: Any) -> None:
        entry = (
            f"branch_lifecycle: {{policies: [{{id: {'x' * 32}, patterns: [x], max_age: 7d}},"
            " {patterns: [y], max_age: 7d}]}"
        )
        policies = resolved(tree, entry).branch_lifecycle.policies
        assert [policy.id for policy in policies] == ["x" * 32, None]

    def it_refuses_two_policies_of_one_id(self, tree: Any) -> None:
        policy = "{id: a, patterns: [x], max_age: 7d}"
        assert "'a'" in self.problem(tree, policy, policy)

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("30s", 30),
            ("5m", 300),
            ("6h", 6 * 3600),
            ("7d", 7 * 86400),
            ("2w", 14 * 86400),
            ("1w3d12h", 10 * 86400 + 12 * 3600),
        ],
    )
    def it_reads_durations_of_seconds_to_weeks(self, tree: Any, text: str, seconds: int) -> None:
        entry = f"branch_lifecycle: {{policies: [{{patterns: [x], max_age: {text}}}]}}"
        (policy,) = resolved(tree, entry).branch_lifecycle.policies
        assert policy.max_age_seconds == seconds

    @pytest.mark.parametrize("text", ["0s", "0d", "0w0d"])
    def it_refuses_durations_that_are_not_greater_than_zero(self, tree: Any, text: str) -> None:
        for key in ("max_age", "max_idle_age"):
            assert key in self.problem(tree, f"{{patterns: [x], {key}: {text}}}")


class DescribePatternsThatMatchPins:
    """The server's job deletes branches by their names, and pins are branches."""

    PINS = (
        "pins: {tags: ['v*']}, gc: {default_retention_days: 7}",
        "gc: {default_retention_days: 7, branches: [{branch_id: main, retention_days: 9, min_commits: 2}]}",
        "gc: {default_retention_days: 7, branches: [{branch_id: main, retention_days: 9, keep: {daily: 2}}]}",
    )

    def entry(self, pattern: str, more: str) -> str:
        policies = f"branch_lifecycle: {{policies: [{{patterns: ['{pattern}'], max_age: 7d}}]}}"
        return f"  team-a: {{{policies}, {more}}}"

    @pytest.mark.parametrize("more", PINS)
    @pytest.mark.parametrize("pattern", ["l*", "*-*", "lakeplan-pin-0123456789ab"])
    def it_refuses_them_where_the_server_deletes(self, tree: Any, pattern: str, more: str) -> None:
        (problem,) = tree.problems("", self.entry(pattern, more))
        assert f"the pattern '{pattern}' matches pins (lakeplan-pin-*)" in problem
        assert tree.problems(root("lakeplan"), self.entry(pattern, more)) == []

    @pytest.mark.parametrize("pattern", ["feature-*", "*-dev", "lakeplan-pin-0123"])
    def it_accepts_others(self, tree: Any, pattern: str) -> None:
        assert tree.problems("", self.entry(pattern, self.PINS[0])) == []

    def it_accepts_them_where_nothing_requires_pins(self, tree: Any) -> None:
        more = "pins: {tags: [], max: 9}, gc: {default_retention_days: 7}"
        assert tree.problems("", self.entry("l*", more)) == []


def it_refuses_patterns_that_lakefs_reads_in_two_ways_where_the_server_reads_them(tree: Any) -> None:
    entry = "  team-a: {branch_lifecycle: {policies: [{patterns: ['[!a]x*'], max_age: 7d}]}}"
    (problem,) = tree.problems("", entry)
    assert 'write "[0-9]x*", "[A-Z]x*", "[b-z]x*", "_x*"' in problem
    profiles = (
        "profiles: {base: {branch_lifecycle: {policies: [{id: p, patterns: ['x[-_]'], max_age: 7d}]}}}\n"
    )
    (problem,) = tree.problems(profiles, '  "team-*": {use: [base]}')
    assert 'write "x_", "x-"' in problem
    assert tree.problems(root("lakeplan"), entry) == []
