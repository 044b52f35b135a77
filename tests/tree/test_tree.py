from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from lakeplan.tree.tree import load_tree
from lakeplan.tree.yaml import TreeError
from lakeplan.values.desired import Cleared, GcDesired, Source
from lakeplan.values.sweep import SweepSettings

SMALL = Path(__file__).parent / "trees" / "small"
MAIN_28 = "{branch_id: main, retention_days: 28}"


def days(gc: object) -> dict[str, int]:
    assert isinstance(gc, GcDesired)
    return {"": gc.default_retention_days, **{r.name: r.retention_days for r in gc.branches}}


class DescribeAWholeTree:
    def it_loads_every_block_of_the_design(self) -> None:
        tree = load_tree(SMALL, {})
        assert list(tree.servers) == ["prod"]
        assert tree.servers["prod"].branch_lifecycle_engine == "server"
        assert tree.servers["prod"].storages[""].region == "eu-central-1"
        assert tree.safety.max_expired_bytes == 5 * 10**12
        assert tree.safety.max_plan_age_seconds == 7 * 86400
        assert tree.bounds.max_retention_days == 3650
        assert (tree.unmanaged_policy, tree.state_url) == ("warn", "s3://ops/lakeplan")

    def it_resolves_exact_entries_always_and_globs_over_live_repositories(self) -> None:
        tree = load_tree(SMALL, {})
        assert [r.name for r in tree.resolve("prod", [])] == ["analytics", "scratch-pad"]
        found = {r.name: r for r in tree.resolve("prod", ["team-a-x", "other"])}
        assert list(found) == ["analytics", "scratch-pad", "team-a-x"]
        assert days(found["team-a-x"].gc) == {"": 21, "main": 60}
        assert found["team-a-x"].by_glob
        assert found["team-a-x"].entry == "team-a-*"
        assert found["scratch-pad"].gc is Cleared.CLEAR
        assert tree.unmanaged("prod", ["team-a-x", "other", "analytics"]) == ["other"]

    def it_resolves_holds_and_sweep_settings(self) -> None:
        found = {r.name: r for r in load_tree(SMALL, {}).resolve("prod", [])}
        assert [(h.kind, h.until) for h in found["analytics"].holds] == [("prefix", date(2027, 1, 1))]
        assert found["analytics"].sweep == SweepSettings()
        assert found["scratch-pad"].holds == ()

    def it_keeps_the_source_of_every_value(self) -> None:
        repository = load_tree(SMALL, {}).resolve("prod", ["team-a-x"])[-1]
        assert repository.values["/gc/default_retention_days"].file == "lakeplan.yaml"
        assert repository.values["/gc/branches/0/retention_days"] == Source(
            "repositories/analytics.yaml", 28, 45
        )

    def it_points_at_nothing_but_values(self) -> None:
        for repository in load_tree(SMALL, {}).resolve("prod", ["team-a-x"]):
            for pointer in repository.values:
                value: object = repository.resolved
                for part in pointer.split("/")[1:]:
                    value = value[int(part)] if isinstance(value, list) else value[part]  # type: ignore[index]
                assert value is not None or pointer == "/sweep/rate"


class DescribeMerging:
    ROOT = """
profiles:
  base: {gc: {default_retention_days: 10, branches: [{branch_id: main, retention_days: 11}]}}
  long: {gc: {default_retention_days: 20, branches: [{pattern: "r-*", retention_days: 21}]}}
  both: {use: [base, long]}
"""

    def gc(self, tree: Any, entries: str, name: str = "team-a") -> dict[str, int]:
        loaded = tree.load(self.ROOT, entries)
        return days({r.name: r for r in loaded.resolve("prod", [name])}[name].gc)

    def it_lays_later_profiles_over_earlier_ones(self, tree: Any) -> None:
        assert self.gc(tree, "  team-a: {use: [base, long]}") == {"": 20, "main": 11, "r-*": 21}
        assert self.gc(tree, "  team-a: {use: [long, base]}") == {"": 10, "main": 11, "r-*": 21}

    def it_lays_a_profile_over_those_it_builds_on(self, tree: Any) -> None:
        assert self.gc(tree, "  team-a: {use: [both]}") == {"": 20, "main": 11, "r-*": 21}

    def it_counts_a_profile_that_is_named_again_where_it_is_named_last(self, tree: Any) -> None:
        entries = '  "team-*": {use: [base, long]}\n  team-a: {use: [base]}'
        assert self.gc(tree, entries)[""] == 10

    def it_lays_globs_over_profiles_and_the_exact_entry_over_globs(self, tree: Any) -> None:
        entries = """
  "*": {use: [base], gc: {default_retention_days: 30}}
  "team-*": {gc: {default_retention_days: 40, branches: [{branch_id: main, retention_days: 41}]}}
  team-a: {use: [long], gc: {branches: [{branch_id: dev, retention_days: 51}]}}
"""
        assert self.gc(tree, entries) == {"": 40, "main": 41, "r-*": 21, "dev": 51}
        assert self.gc(tree, entries, "team-b") == {"": 40, "main": 41}
        assert self.gc(tree, entries, "other") == {"": 30, "main": 11}

    def it_keeps_a_branch_and_a_pattern_of_one_name_apart(self, tree: Any) -> None:
        entries = """
  team-a:
    use: [base]
    gc: {branches: [{pattern: main, retention_days: 5}]}
"""
        loaded = tree.load(self.ROOT, entries)
        rules = loaded.resolve("prod", [])[0].gc.branches
        assert [(r.is_pattern, r.name, r.retention_days) for r in rules] == [
            (False, "main", 11),
            (True, "main", 5),
        ]

    def it_drops_an_inherited_item(self, tree: Any) -> None:
        entries = "  team-a: {use: [base], gc: {branches: [{branch_id: main, remove: true}]}}"
        assert self.gc(tree, entries) == {"": 10}

    def it_refuses_to_drop_what_is_not_inherited(self, problem: Callable[..., str]) -> None:
        entries = "  team-a: {use: [base], gc: {branches: [{branch_id: mian, remove: true}]}}"
        assert "no inherited item is called gc.branches[mian]" in problem(self.ROOT, entries)

    def it_clears_what_is_inherited(self, tree: Any) -> None:
        loaded = tree.load(self.ROOT, '  "*": {use: [base]}\n  team-a: {gc: clear}')
        repository = loaded.resolve("prod", [])[0]
        assert repository.gc is Cleared.CLEAR
        assert repository.resolved == {"gc": "clear"}

    def it_ends_no_hold_by_the_end_of_one_that_it_is_laid_over(self, tree: Any) -> None:
        entries = """
  "*": {holds: [{prefix: a/, reason: one, until: 2026-01-01}, {prefix: b/, reason: one, until: 2026-01-01}]}
  team-a: {holds: [{prefix: a/, reason: two}, {until: 2027-01-01, prefix: b/, reason: two}]}
"""
        (repository,) = tree.load(self.ROOT, entries).resolve("prod", [])
        assert [(h.name, h.until) for h in repository.holds] == [("a/", None), ("b/", date(2027, 1, 1))]

    def it_refuses_globs_of_which_one_alone_ends_a_hold(self, problem: Callable[..., str]) -> None:
        entries = """
  "team-*": {holds: [{prefix: a/, reason: one, until: 2026-01-01}]}
  "*-team": {holds: [{prefix: a/, reason: one}]}
"""
        assert "holds[a/].until" in problem(self.ROOT, entries)

    def it_adds_exemptions_up_and_merges_policies_and_holds(self, tree: Any) -> None:
        entries = """
  "*":
    branch_lifecycle: {exempt: [keep-a], policies: [{id: p, patterns: [x], max_age: 7d}]}
    holds: [{prefix: a/, reason: one}]
  team-a:
    branch_lifecycle:
      exempt: [keep-b]
      policies: [{id: p, max_inactivity_time: 3d}, {id: q, patterns: [y], max_age: 1d}]
    holds: [{prefix: b/, reason: two}, {prefix: a/, reason: three}]
"""
        loaded = tree.load("", entries)
        assert loaded.resolve("prod", [])[0].resolved == {
            "branch_lifecycle": {
                "policies": [
                    {"id": "p", "patterns": ["x"], "max_age": "7d", "max_idle_age": "3d"},
                    {"id": "q", "patterns": ["y"], "max_age": "1d"},
                ],
                "exempt": ["keep-a", "keep-b"],
            },
            "holds": [{"prefix": "a/", "reason": "three"}, {"prefix": "b/", "reason": "two"}],
        }

    def it_hashes_the_resolved_configuration_and_not_how_it_is_written(self, tree: Any) -> None:
        one = tree.load(self.ROOT, "  team-a: {use: [base]}")
        first = one.resolve("prod", [])[0].config_hash
        entries = (
            "  team-a: {gc: {branches: [{branch_id: main, retention_days: 11}], default_retention_days: 10}}"
        )
        other = tree.load("", entries)
        assert other.resolve("prod", [])[0].config_hash == first
        changed = tree.load("", entries.replace("11", "12"))
        assert changed.resolve("prod", [])[0].config_hash != first


class DescribeEquallySpecificGlobs:
    def it_refuses_two_that_disagree_on_a_name_of_both(self, problem: Callable[..., str]) -> None:
        text = problem(
            "",
            '  "team-*": {gc: {default_retention_days: 5}}\n  "*-prod": {gc: {default_retention_days: 6}}',
        )
        assert text.startswith("repositories/a.yaml:4:43: repositories.*-prod.gc.default_retention_days:")
        assert "(repositories/a.yaml:3:43 and repositories/a.yaml:4:43)" in text
        assert "both match 'team-prod'" in text

    def it_takes_two_that_agree(self, tree: Any) -> None:
        entries = (
            '  "team-*": {gc: {default_retention_days: 5}}\n'
            '  "*-prod": {gc: {default_retention_days: 5, branches: [{branch_id: main, retention_days: 7}]}}'
        )
        loaded = tree.load("", entries)
        assert days(loaded.resolve("prod", ["team-prod"])[0].gc) == {"": 5, "main": 7}

    def it_takes_two_that_share_no_name(self, tree: Any) -> None:
        entries = (
            '  "team-*": {gc: {default_retention_days: 5}}\n  "prod-*": {gc: {default_retention_days: 6}}'
        )
        assert tree.problems("", entries) == []

    def it_lets_a_more_specific_glob_settle_it(self, tree: Any) -> None:
        entries = (
            '  "team-*": {gc: {default_retention_days: 5}}\n'
            '  "*-prod": {gc: {default_retention_days: 6}}\n'
            '  "team*-prod": {gc: {default_retention_days: 7}}'
        )
        loaded = tree.load("", entries)
        assert days(loaded.resolve("prod", ["team-x-prod"])[0].gc) == {"": 7}

    def it_sees_a_removal_against_a_value(self, problem: Callable[..., str]) -> None:
        text = problem(
            "",
            '  "*": {gc: {default_retention_days: 5, branches: [{branch_id: main, retention_days: 7}]}}\n'
            '  "a*": {gc: {branches: [{branch_id: main, remove: true}]}}\n'
            '  "*b": {gc: {branches: [{branch_id: main, retention_days: 8}]}}',
        )
        assert "gc.branches[main]" in text
        assert "equally specific" in text

    def it_asks_for_one_order_of_profiles(self, problem: Callable[..., str]) -> None:
        root = "profiles: {p: {gc: {default_retention_days: 5}}, q: {gc: {default_retention_days: 6}}}\n"
        assert "use different profiles" in problem(root, '  "a*": {use: [p]}\n  "*b": {use: [q]}')


class DescribeGlobsThatLackTheirDefault:
    BRANCHES = "{gc: {branches: [{branch_id: main, retention_days: 7}]}}"

    def it_refuses_one_that_nothing_weaker_completes(self, problem: Callable[..., str]) -> None:
        entries = f'  "team-*": {self.BRANCHES}\n  team-a: {{gc: {{default_retention_days: 5}}}}'
        text = problem("", entries)
        assert text.startswith(
            "repositories/a.yaml:3:14: repositories.team-*.gc: gc has no default_retention_days"
        )

    def it_takes_one_that_a_weaker_glob_completes(self, tree: Any) -> None:
        entries = f'  "*": {{gc: {{default_retention_days: 5}}}}\n  "team-*": {self.BRANCHES}'
        assert days(tree.load("", entries).resolve("prod", ["team-a"])[0].gc) == {"": 5, "main": 7}

    def it_refuses_one_that_others_complete_for_some_names_only(self, problem: Callable[..., str]) -> None:
        entries = f'  "*b": {self.BRANCHES}\n  "a*": {{gc: {{default_retention_days: 5}}}}'
        assert "repositories.*b.gc: gc has no default_retention_days" in problem("", entries)

    def it_refuses_to_resolve_a_live_repository_that_lacks_it(self, tree: Any) -> None:
        """Where many globs overlap validation does not look at every name; resolving does."""
        globs = [f'  "{c}*": {{gc: {{default_retention_days: 5}}}}' for c in "abcdefghijk"]
        loaded = tree.load("", "\n".join([*globs, f'  "*b": {self.BRANCHES}']))
        assert len(loaded.resolve("prod", ["a-b"])) == 1
        with pytest.raises(TreeError) as error:
            loaded.resolve("prod", ["a-b", "x-b"])
        assert "repositories.x-b.gc: gc has no default_retention_days" in error.value.problems[0]


class DescribeFilesForLakectl:
    RULES = '{\n\t"default_retention_days":21,"branches":[{"branch_id":"main","retention_days":28}]\n}\n'
    POLICIES = "policies:\n  - {patterns: ['wip-*'], max_inactivity_time: 1w3d12h}\n"

    def it_takes_them_as_they_are(self, tree: Any) -> None:
        files = {"rules/gc.json": self.RULES, "repositories/policies.yaml": self.POLICIES}
        entries = "  data-a: {gc: {file: ../rules/gc.json}, branch_lifecycle: {file: policies.yaml}}"
        repository = tree.load("", entries, files).resolve("prod", [])[0]
        assert days(repository.gc) == {"": 21, "main": 28}
        assert repository.values["/gc/branches/0/retention_days"] == Source("rules/gc.json", 2, 79)
        assert repository.resolved["branch_lifecycle"] == {
            "policies": [{"patterns": ["wip-*"], "max_idle_age": "1w3d12h"}]
        }

    def it_takes_a_file_whose_branches_are_null(self, tree: Any) -> None:
        files = {"repositories/gc.json": '{"default_retention_days": 9, "branches": null}'}
        loaded = tree.load("", "  data-a: {gc: {file: gc.json}}", files)
        assert days(loaded.resolve("prod", [])[0].gc) == {"": 9}

    @pytest.mark.parametrize(
        ("content", "line"),
        [
            ('{"default_retention_days": 0}', "repositories/gc.json:1:28: default_retention_days: expected"),
            (
                '{"branches": []}',
                "repositories/gc.json:1:1: (top): the key default_retention_days is missing",
            ),
            ('{"default_retention_days": 9, "x": 1}', "repositories/gc.json:1:31: x: unknown key 'x'"),
            ("{", "repositories/gc.json:1:"),
        ],
    )
    def it_reports_their_problems_where_they_are(
        self, problem: Callable[..., str], content: str, line: str
    ) -> None:
        entries = "  data-a: {gc: {file: gc.json}}\n  data-b: {gc: {file: gc.json}}"
        assert problem("", entries, {"repositories/gc.json": content}).startswith(line)

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("gone.json", "cannot read repositories/gone.json: No such file"),
            ("../../x.json", "is outside the tree"),
            ("/etc/passwd", "is an absolute path"),
        ],
    )
    def it_reads_nothing_outside_the_tree(self, problem: Callable[..., str], name: str, says: str) -> None:
        text = problem("", f"  data-a: {{gc: {{file: {name}}}}}")
        assert text.startswith("repositories/a.yaml:3:23: repositories.data-a.gc.file:")
        assert says in text

    def it_does_not_mix_a_file_with_other_keys(self, problem: Callable[..., str]) -> None:
        files = {"repositories/gc.json": self.RULES}
        entries = "  data-a: {gc: {file: gc.json, default_retention_days: 3}}"
        assert "`file` must be the only key" in problem("", entries, files)


class DescribeServersAndEntries:
    TWO = (
        "apiVersion: lakeplan/v1\n"
        "servers: {prod: {endpoint_url: 'https://p.example.com'}, lab: {endpoint_url:"
        " 'https://l.example.com'}}\n"
    )

    def it_takes_one_name_on_two_servers(self, tree: Any) -> None:
        entries = (
            "  prod/data-a: {gc: {default_retention_days: 5}}\n"
            "  data-a: {server: lab, gc: {default_retention_days: 6}}"
        )
        loaded = tree.load(self.TWO, entries)
        assert [days(loaded.resolve(s, [])[0].gc)[""] for s in ("prod", "lab")] == [5, 6]
        assert loaded.servers_of("data-a") == ["prod", "lab"]
        assert loaded.servers_of("lab/data-a") == ["lab"]

    def it_asks_for_a_server_where_there_are_several(self, problem: Callable[..., str]) -> None:
        assert "the tree has several servers (prod, lab); choose one" in problem(self.TWO, "  data-a: {}")

    def it_refuses_a_server_that_is_not_there(self, problem: Callable[..., str]) -> None:
        text = problem("", "  data-a: {server: prd}")
        assert "a.yaml:3:20: repositories.data-a.server: there is no server 'prd'; did you mean prod?" in text
        assert "did you mean prod?" in problem("defaults: {server: prof}\n")

    def it_refuses_a_key_and_a_server_that_differ(self, problem: Callable[..., str]) -> None:
        assert "the key specifies the server 'prod'" in problem(self.TWO, "  prod/data-a: {server: lab}")

    def it_finds_a_repository_in_two_files(self, problem: Callable[..., str]) -> None:
        files = {"repositories/b.yaml": "apiVersion: lakeplan/v1\nrepositories: {prod/data-a: {}}\n"}
        text = problem("", "  data-a: {}", files)
        assert text.startswith("repositories/b.yaml:2:16: repositories.prod/data-a:")
        assert "the other is at repositories/a.yaml:3:3" in text

    def it_takes_entries_in_the_root_file_too(self, tree: Any) -> None:
        root = "repositories: {data-a: {gc: {default_retention_days: 5}}}\n"
        assert len(tree.load(root).resolve("prod", [])) == 1

    def it_tells_trees_apart_by_servers_and_state(self, tree: Any) -> None:
        digest = tree.load("", "  data-a: {}").digest
        assert tree.load("", "  data-b: {}").digest == digest
        assert tree.load("state: {url: s3://b/x}\n").digest != digest
        assert tree.load(self.TWO).digest != digest

    def it_keeps_state_beside_the_tree_by_default(self, tree: Any, tmp_path: Path) -> None:
        assert tree.load().state_url == f"file://{tmp_path.resolve()}/.lakeplan"
        loaded = tree.load("state: {url: 'file://ops/x'}\n")
        assert loaded.state_url == f"file://{tmp_path.resolve()}/ops/x"


class DescribeOverrides:
    def it_reads_them_from_the_root_and_beside_the_entries(self, tree: Any) -> None:
        root = (
            "overrides:\n"
            "  - {repository: data-a, gate: expired-bytes, max: 5TB, reason: r, expires: 2027-01-31}\n"
        )
        item = "{repository: '*', gate: adoption, reason: new, expires: 2026-05-01}"
        entries = f"  data-a: {{}}\noverrides: [{item}]\n"
        one, two = tree.load(root, entries).overrides
        assert (one.repository, one.gate, one.max) == ("data-a", "expired-bytes", 5e12)
        assert one.expires == date(2027, 1, 31)
        assert (two.repository, two.max, two.expires) == ("*", None, date(2026, 5, 1))

    @pytest.mark.parametrize(
        ("item", "says"),
        [
            ("{repository: data-b, gate: clear, reason: r, expires: 2027-01-01}", "did you mean data-a?"),
            ("{repository: data-a, gate: clera, reason: r, expires: 2027-01-01}", "there is no gate 'clera'"),
            ("{repository: data-a, gate: clear, expires: 2027-01-01}", "the key reason is missing"),
            ("{repository: data-a, gate: clear, reason: r}", "the key expires is missing"),
            (
                "{repository: data-a, gate: clear, reason: r, expires: 2027-02-30}",
                "is not a date in the calendar",
            ),
            (
                "{repository: data-a, gate: clear, reason: r, max: lots, expires: 2027-01-01}",
                "expected a number, bytes",
            ),
            (
                "{repository: data-a, gate: clear, reason: r, max: 3, expires: 2027-01-01}",
                "does not compare a single number",
            ),
            (
                "{repository: data-a, gate: sweep-limit, reason: r, max: 3, expires: 2027-01-01}",
                "the sweep-limit gate does not compare",
            ),
            (
                "{repository: data-a, gate: expired-objects, reason: r, max: 5TB, expires: 2027-01-01}",
                "specify `max` in percent",
            ),
            (
                "{repository: data-a, gate: at-risk, reason: r, max: 5%, expires: 2027-01-01}",
                "specify `max` in objects",
            ),
            (
                "{repository: data-a, gate: deleted-branches, reason: r, max: 5GB, expires: 2027-01-01}",
                "specify `max` in branches",
            ),
            (
                '{repository: data-a, gate: clear, reason: " \\u00a0", expires: 2027-01-01}',
                "reason: the reason is blank",
            ),
        ],
    )
    def it_refuses_what_opens_nothing(self, problem: Callable[..., str], item: str, says: str) -> None:
        assert says in problem(f"overrides: [{item}]\n", "  data-a: {}")

    def it_gives_the_new_name_of_a_renamed_key(self, problem: Callable[..., str]) -> None:
        old = "acknowledge:\n  - {repository: data-a, gate: expired-bytes, max: 5TB, reason: moved}\n"
        assert problem(old, "  data-a: {}").endswith(
            "acknowledge: acknowledge is now called overrides; move its values there"
        )
        moved = "lifecycle is now called branch_lifecycle; move its values there"
        entries = "  data-a:\n    lifecycle: {exempt: [keep-*], min_keep: 3}"
        assert problem("", entries).endswith(f":4:5: repositories.data-a.lifecycle: {moved}")
        assert moved in problem("profiles:\n  std: {lifecycle: {min_keep: 3}}\n", "  data-a: {}")


def it_refuses_a_folder_without_a_tree(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match=r"there is no lakeplan.yaml") as error:
        load_tree(tmp_path, {})
    assert error.value.hint == "Pass the folder of the tree with -C DIR."
    (tmp_path / "lakeplan.yml").write_text("")
    with pytest.raises(TreeError) as error:
        load_tree(tmp_path, {})
    assert error.value.hint == "Rename lakeplan.yml to lakeplan.yaml."


def it_resolves_to_plain_json(tree: Any) -> None:
    for repository in load_tree(SMALL, {}).resolve("prod", ["team-a-x"]):
        assert json.loads(json.dumps(repository.resolved)) == repository.resolved
