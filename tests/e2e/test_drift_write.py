"""``drift --write``: what was changed on a server, put into the files of the tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lakeplan.sandbox.service import Options
from lakeplan.tree import editing
from lakeplan.tree.schemas import load_schema
from tests.sandboxes import start_sandbox

COMMENTED = """\
# who owns what
apiVersion: lakeplan/v1
repositories:
  # the lake of the analysts
  analytics:   # ask ada
    owner: data   # since 2024
    gc:
      default_retention_days: 21   # as lakectl had it
      branches:
        # releases first
        - {pattern: "release-*", retention_days: 90}
        - branch_id: main   # production
          retention_days: 28  # four weeks

        - {branch_id: dev, retention_days: 3}   # short
    # nothing else

  events: {gc: {default_retention_days: 7, branches: [{branch_id: main, retention_days: 9}]}}  # one line
"""


def written(world: Any, *more: str, code: int = 0) -> dict[str, Any]:
    result = world.lakeplan("drift", "--write", "--format", "json", *more)
    assert result.code == code, result.out + result.err
    jsonschema.Draft202012Validator(load_schema("drift")).validate(result.json)
    document: dict[str, Any] = result.json
    return document


def has_settled(world: Any) -> None:
    """The tree asks for what the servers have; an apply takes it for the new baseline."""
    plan = world.lakeplan("plan", "--detailed-exitcode", "--no-simulate")
    assert plan.code == 0, plan.out + plan.err
    assert world.lakeplan("apply", "--auto-approve", "-q").code == 0
    assert world.lakeplan("drift", "--fail-on", "any").code == 0


@pytest.fixture
def commented(world: Any) -> Any:
    """A tree with comments, as the servers have it."""
    for name in ("analytics", "events"):
        world.api.repository(name)
    world.api.branch("analytics", "release-1")
    world.write("repositories/all.yaml", COMMENTED)
    world.override("unknown-impact")
    assert world.lakeplan("apply", "--auto-approve", "--no-simulate", "-q").code == 0
    return world


def text(world: Any, file: str = "repositories/all.yaml") -> str:
    return str((world.tree / file).read_text())


def rules(world: Any, default: int = 21, **branches: int | None) -> None:
    """Sets rules on the server by hand. None removes a rule."""
    found = {"main": 28, "dev": 3, "release-1": 90, **branches}
    world.api.set_rules("analytics", default, **{b: d for b, d in found.items() if d is not None})


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        ({"default": 14}, "default_retention_days: 21   #", "default_retention_days: 14   #"),
        ({"main": 365}, "retention_days: 28  # four", "retention_days: 365  # four"),
        ({"dev": 30}, "{branch_id: dev, retention_days: 3}   #", "{branch_id: dev, retention_days: 30}   #"),
        (
            {"hot-fix": 5},
            "3}   # short\n",
            "3}   # short\n        - {branch_id: hot-fix, retention_days: 5}\n",
        ),
        (
            {"release-1": 30},
            "3}   # short\n",
            "3}   # short\n        - {branch_id: release-1, retention_days: 30}\n",
        ),
        ({"dev": None}, "        - {branch_id: dev, retention_days: 3}   # short\n", ""),
        (
            {"main": None},
            "        - branch_id: main   # production\n          retention_days: 28  # four weeks\n",
            "",
        ),
    ],
)
def it_changes_one_value_and_leaves_every_other_character(
    commented: Any, edit: dict[str, Any], old: str, new: str
) -> None:
    rules(commented, **edit)
    (row,) = written(commented)["written"]
    assert (row["repository"], row["file"]) == ("prod/analytics", "repositories/all.yaml")
    assert text(commented) == COMMENTED.replace(old, new)
    has_settled(commented)


def it_writes_all_values_at_once_and_says_which(commented: Any) -> None:
    rules(commented, 14, main=7, dev=None, new=1)
    commented.api.set_rules("events", 70, main=9, other=1)
    commented.handle.faults.forget()
    result = commented.lakeplan("drift", "--write")
    assert {r.method for r in commented.handle.faults.requests} == {"GET"}
    assert result.code == 0
    shown = " ".join(result.out.split())
    assert "Written to the tree" in shown
    assert "prod/analytics branch main 28 days" in shown
    for comment in (line.partition("#")[2] for line in COMMENTED.splitlines() if "# short" not in line):
        assert comment in text(commented)
    assert "[{branch_id: main, retention_days: 9}, {branch_id: other, retention_days: 1}]" in text(commented)
    has_settled(commented)


def it_writes_nothing_when_nothing_drifted(commented: Any) -> None:
    document = written(commented)
    assert (document["written"], document["not_written"]) == ([], [])
    assert text(commented) == COMMENTED
    assert "Nothing was written" in commented.lakeplan("drift", "--write").out
    assert "written" not in commented.lakeplan("drift", "--format", "json").json


def it_says_that_nothing_was_compared(commented: Any) -> None:
    commented.handle.faults.deny("GET .*/settings/gc_rules")
    result = commented.lakeplan("drift", "--write")
    assert result.code == 1
    assert "Nothing was written: no repository was compared." in result.out
    commented.handle.faults.clear()


def it_leaves_alone_what_the_tree_changed_too(commented: Any) -> None:
    commented.write("repositories/all.yaml", COMMENTED.replace("days: 28 ", "days: 60 "))
    rules(commented, main=5, dev=9)
    document = written(commented, code=3)
    assert [row["path"] for row in document["written"]] == ["branches/dev"]
    (refused,) = document["not_written"]
    assert (
        refused["path"],
        "its value in the tree has changed too, from 28 days to 60 days" in refused["reason"],
    ) == (
        "branches/main",
        True,
    )
    assert "days: 60  #" in text(commented)


def it_refuses_what_no_value_of_the_tree_can_say(commented: Any) -> None:
    rules(commented, **{"release-1": None})
    (refused,) = written(commented, code=3)["not_written"]
    assert "the pattern 'release-*' in the tree sets one" in refused["reason"]
    commented.api.call("DELETE", "/repositories/analytics/settings/gc_rules")
    reasons = {r["path"]: r["reason"] for r in written(commented, code=3)["not_written"]}
    assert "Write `gc: clear` in the tree, or run `lakeplan apply`" in reasons["default_retention_days"]
    assert text(commented) == COMMENTED


def it_refuses_what_would_not_validate_and_restores_the_file(commented: Any) -> None:
    root = text(commented, "lakeplan.yaml")
    commented.write("lakeplan.yaml", root + "bounds: {min_retention_days: 3}\n")
    rules(commented, 1)
    (refused,) = written(commented, code=3)["not_written"]
    assert "outside the tree's bounds of" in refused["reason"]
    assert text(commented) == COMMENTED


def it_leaves_a_file_that_somebody_saved_meanwhile_and_goes_on(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("analytics", "events"):
        world.api.repository(name)
        world.rules(name, 7)
    assert world.lakeplan("apply", "--auto-approve", "--no-simulate", "-q").code == 0
    for name in ("analytics", "events"):
        world.api.set_rules(name, 9)
    file = world.tree / "repositories" / "analytics.yaml"
    load, before = editing.load_tree, file.read_text()

    def save_and_load(*arguments: Any, **options: Any) -> Any:
        file.write_text(file.read_text() + "# mine\n")
        return load(*arguments, **options)

    monkeypatch.setattr(editing, "load_tree", save_and_load)
    document = written(world, code=3)
    assert [row["repository"] for row in document["written"]] == ["prod/events"]
    (left,) = document["not_written"]
    assert left["repository"] == "prod/analytics"
    assert "the file was changed while the command was running" in left["reason"]
    assert file.read_text().replace("# mine\n", "") == before
    monkeypatch.setattr(editing, "load_tree", load)
    assert len(written(world)["written"]) == 1


@pytest.mark.parametrize(("odd", "loads"), [(False, 1), (True, 10)])
def it_does_not_load_the_tree_again_for_every_repository(
    world: Any, monkeypatch: pytest.MonkeyPatch, odd: bool, loads: int
) -> None:
    names = [f"repo-{n:02}" for n in range(16)]
    for name in names:
        world.api.repository(name)
        world.rules(name, 7)
    if odd:  # the comment would swallow another rule
        entry = "  repo-03:\n    gc: {default_retention_days: 7  # a week\n    }\n"
        world.write("repositories/repo-03.yaml", f"apiVersion: lakeplan/v1\nrepositories:\n{entry}")
    assert world.lakeplan("apply", "--auto-approve", "--no-simulate", "-q").code == 0
    for name in names:
        world.api.set_rules(name, 7, dev=2)
    counted = []
    load = editing.load_tree
    monkeypatch.setattr(editing, "load_tree", lambda *a, **o: [counted.append(1), load(*a, **o)][1])
    document = written(world, code=3 if odd else 0)
    assert len(document["written"]) == 16 - odd
    assert [row["repository"] for row in document["not_written"]] == ["prod/repo-03"] * odd
    assert len(counted) <= loads


def it_edits_no_hundreds_of_values(commented: Any) -> None:
    rules(commented, 21, **{f"b{n}": 5 for n in range(101)})
    (refused,) = written(commented, code=3)["not_written"]
    assert "101 values differ" in refused["reason"]
    assert text(commented) == COMMENTED


PROFILES = """\
profiles:
  standard:   # of everybody
    gc: {default_retention_days: 21, branches: [{branch_id: main, retention_days: 28}]}
"""


@pytest.fixture
def sharing(world: Any) -> Any:
    """Three repositories with one profile: two entries of their own, and one that only a glob names."""
    for name in ("analytics", "events", "team-a"):
        world.api.repository(name)
        world.api.set_rules(name, 21, main=28)
    world.append("lakeplan.yaml", PROFILES)
    world.write(
        "repositories/all.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n"
        "  analytics:\n    use: [standard]   # as everybody\n"
        "  events: {use: [standard]}\n"
        '  "team-*": {use: [standard]}\n',
    )
    world.override("unknown-impact", "adoption")
    assert world.lakeplan("apply", "--auto-approve", "--no-simulate", "-q").code == 0
    return world


class DescribeSharedValues:
    def it_changes_a_profile_that_all_its_repositories_left(self, sharing: Any) -> None:
        for name in ("analytics", "events", "team-a"):
            sharing.api.set_rules(name, 14, main=28)
        assert {r["file"] for r in written(sharing)["written"]} == {"lakeplan.yaml"}
        assert "gc: {default_retention_days: 14, branches: [{branch_id: main" in text(
            sharing, "lakeplan.yaml"
        )
        has_settled(sharing)

    def it_gives_one_repository_its_own_value(self, sharing: Any) -> None:
        sharing.api.set_rules("analytics", 14, main=5)
        sharing.api.set_rules("events", 21, main=28, dev=1)
        before = text(sharing, "lakeplan.yaml")
        written(sharing)
        assert text(sharing, "lakeplan.yaml") == before
        lines = text(sharing).splitlines()
        assert "    use: [standard]   # as everybody" in lines
        assert "  events: {use: [standard], gc: {branches: [{branch_id: dev, retention_days: 1}]}}" in lines
        has_settled(sharing)

    def it_drops_an_inherited_rule_by_name(self, sharing: Any) -> None:
        sharing.api.set_rules("analytics", 21)
        written(sharing)
        assert "{branch_id: main, remove: true}" in text(sharing)
        has_settled(sharing)

    def it_refuses_what_a_glob_gives_to_several(self, sharing: Any) -> None:
        before = text(sharing), text(sharing, "lakeplan.yaml")
        sharing.api.set_rules("team-a", 14, main=28)
        (refused,) = written(sharing, code=3)["not_written"]
        assert (
            "which other repositories share, and the repository has no entry of its own"
            in (refused["reason"])
        )
        assert (text(sharing), text(sharing, "lakeplan.yaml")) == before

    def it_does_not_take_part_of_the_repositories_for_all(self, sharing: Any) -> None:
        for name in ("analytics", "events", "team-a"):
            sharing.api.set_rules(name, 14, main=28)
        before = text(sharing, "lakeplan.yaml")
        document = written(sharing, "--target", "events")
        assert [row["repository"] for row in document["written"]] == ["prod/events"]
        assert text(sharing, "lakeplan.yaml") == before


class DescribeOtherFiles:
    def it_edits_a_rules_file_of_lakectl(self, world: Any) -> None:
        world.api.repository("analytics")
        world.write(
            "repositories/a.yaml",
            "apiVersion: lakeplan/v1\nrepositories: {analytics: {gc: {file: rules.json}}}\n",
        )
        rule = '{"branch_id": "main", "retention_days": 3}'
        body = f'{{\n\t"default_retention_days": 21,\n\t"branches": [{rule}]\n}}'
        world.write("repositories/rules.json", body)
        world.override("unknown-impact")
        assert world.lakeplan("apply", "--auto-approve", "--no-simulate", "-q").code == 0
        world.api.set_rules("analytics", 9, main=3)
        assert written(world)["written"][0]["file"] == "repositories/rules.json"
        assert text(world, "repositories/rules.json") == body.replace("21", "9")
        world.api.set_rules("analytics", 9, main=3, new=1)
        (refused,) = written(world, code=3)["not_written"]
        assert "cannot edit" in refused["reason"]

    def it_keeps_the_line_ends_of_windows(self, commented: Any) -> None:
        windows = COMMENTED.replace("\n", "\r\n").encode()
        path: Path = commented.tree / "repositories/all.yaml"
        path.write_bytes(windows)
        rules(commented, 14, new=2)
        written(commented)
        item = b"# short\r\n        - {branch_id: new, retention_days: 2}\r\n"
        expected = windows.replace(b"days: 21 ", b"days: 14 ").replace(b"# short\r\n", item)
        assert path.read_bytes() == expected

    def it_works_right_after_an_import(self, world: Any) -> None:
        for name in ("analytics", "events"):
            world.api.repository(name)
            world.api.set_rules(name, 21, main=28)
        (world.tree / "lakeplan.yaml").unlink()
        assert world.lakeplan("import", "--endpoint", f"prod={world.handle.endpoint_url}", "-q").code == 0
        world.api.set_rules("analytics", 21, main=9)
        assert [r["file"] for r in written(world)["written"]] == ["repositories/analytics.yaml"]
        has_settled(world)


POLICIES = """\
apiVersion: lakeplan/v1
repositories:
  analytics:
    branch_lifecycle:
      policies:
        # scratch work
        - id: short   # asked for by ada
          patterns: ["tmp-*", "wip-*"]
          max_age: 30d   # since the audit

        - {id: old, patterns: ["release-*"], max_idle_age: 90d, description: quiet}   # last
        - {patterns: ["exp-*"], max_age: 1w}
    object_lifecycle:
      rules:
        - {id: raw, branches: [main], prefix: raw/, expire_after_days: 90}   # three months
"""
SHORT = '          patterns: ["tmp-*", "wip-*"]\n          max_age: 30d   # since the audit\n'
URL = "/repositories/analytics/settings/branch_lifecycle/policies"
OBJECTS = "/repositories/analytics/settings/object_lifecycle"


@pytest.fixture
def licensed(tmp_path: Path, make_world: Any) -> Any:
    """An Enterprise server with policies and an object rule, as the tree has them."""
    with start_sandbox(tmp_path / "sandbox", options=Options(flavor="enterprise")) as handle:
        world = make_world(handle)
        server = f"{{endpoint_url: {handle.endpoint_url}, branch_lifecycle: {{engine: server}}}}"
        world.write("lakeplan.yaml", f"apiVersion: lakeplan/v1\nservers: {{prod: {server}}}\n")
        world.api.repository("analytics")
        settle_on(world, POLICIES)
        yield world


def settle_on(world: Any, tree: str) -> None:
    world.write("repositories/all.yaml", tree)
    world.override("unknown-impact", "adoption", "clear")
    done = world.lakeplan("apply", "--auto-approve", "--no-simulate", "-q")
    assert done.code == 0, done.out


def edit_policies(world: Any, edit: Callable[[list[dict[str, Any]]], object]) -> None:
    """Somebody changes the server's list by hand."""
    policies = world.api.call("GET", URL)["policies"]
    edit(policies)
    world.api.call("PUT", URL, json={"policies": policies})


Policies = list[dict[str, Any]]


class DescribePolicies:
    @pytest.mark.parametrize(
        ("edit", "old", "new"),
        [
            (lambda p: p[0].update(max_age=86_400), "max_age: 30d   #", "max_age: 1d   #"),
            (
                lambda p: p[0].update(name_patterns=["tmp-*"], description="ada: as agreed"),
                SHORT,
                SHORT.replace('["tmp-*", "wip-*"]', '["tmp-*"]')
                + '          description: "ada: as agreed"\n',
            ),
            (
                lambda p: p[0].update(max_inactivity_time=3_600) or p[0].pop("max_age"),
                SHORT,
                '          patterns: ["tmp-*", "wip-*"]\n          max_idle_age: 1h\n',
            ),
            (
                lambda p: p[1].update(max_age=172_800, description="") or p[1].pop("max_inactivity_time"),
                'patterns: ["release-*"], max_idle_age: 90d, description: quiet}',
                'patterns: ["release-*"], max_age: 2d}',
            ),
            (lambda p: p[2].update(max_age=172_800), "max_age: 1w}", "max_age: 2d}"),
            (
                lambda p: p.append({"id": "new", "name_patterns": ["x-?", "*-y"], "max_age": 3600}),
                "max_age: 1w}\n",
                'max_age: 1w}\n        - {id: new, patterns: ["x-?", "*-y"], max_age: 1h}\n',
            ),
            (lambda p: p.pop(1), POLICIES.splitlines(keepends=True)[10], ""),
            (lambda p: p.pop(2), '        - {patterns: ["exp-*"], max_age: 1w}\n', ""),
        ],
    )
    def it_changes_one_value_and_leaves_every_other_character(
        self, licensed: Any, edit: Callable[[Policies], object], old: str, new: str
    ) -> None:
        edit_policies(licensed, edit)
        (row,) = written(licensed)["written"]
        assert row["path"].startswith("branch_lifecycle/")
        assert POLICIES.count(old) == 1
        assert text(licensed) == POLICIES.replace(old, new)
        has_settled(licensed)

    def it_says_what_it_wrote(self, licensed: Any) -> None:
        edit_policies(licensed, lambda p: p[0].update(max_age=86_400, description="mine"))
        licensed.api.call(
            "PUT",
            OBJECTS,
            json={"rules": [{"id": "raw", "branches": ["main"], "prefix": "raw/", "expire_after_days": 3}]},
        )
        licensed.handle.faults.forget()
        result = licensed.lakeplan("drift", "--write")
        assert {r.method for r in licensed.handle.faults.requests} == {"GET"}
        shown = " ".join(result.out.split())
        assert "policy short" in shown
        assert "max_age 1d, description mine" in shown
        assert "object rule raw" in shown
        assert "expire_after_days: 3}   # three months" in text(licensed)

    def it_overrides_what_a_profile_gives(self, licensed: Any) -> None:
        """An inherited item changes by its id in the repository's own entry, or is removed there."""
        licensed.append(
            "lakeplan.yaml",
            "profiles:\n  tidy:\n    branch_lifecycle:\n      policies:\n"
            "        - {id: short, patterns: ['tmp-*'], max_age: 30d}\n"
            "        - {id: old, patterns: ['old-*'], max_age: 90d}\n",
        )
        before = text(licensed, "lakeplan.yaml")
        tree = "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    use: [tidy]   # as all\n"
        tree += "    object_lifecycle: clear\n"
        settle_on(licensed, tree)
        edit_policies(licensed, lambda p: p[0].update(max_age=86_400) or p.pop(1))
        written(licensed)
        assert text(licensed, "lakeplan.yaml") == before
        assert text(licensed).startswith(tree)
        assert "{id: short, patterns: [tmp-*], max_age: 1d}" in text(licensed).replace('"', "")
        assert "{id: old, remove: true}" in text(licensed)
        has_settled(licensed)

    def it_refuses_with_the_reason_and_edits_nothing(self, licensed: Any) -> None:
        def reason() -> str:
            (row,) = written(licensed, code=3)["not_written"]
            assert row["path"] == "branch_lifecycle"
            return str(row["reason"])

        settle_on(licensed, POLICIES.replace("max_age: 1w", "max_age: 2w"))
        licensed.write("repositories/all.yaml", POLICIES)
        edit_policies(licensed, lambda p: p[2].update(max_age=60))
        assert (
            reason()
            == "the tree's branch lifecycle policies have changed too, and that change has not been applied"
        )
        edit_policies(licensed, lambda p: p.clear())
        assert "Write `branch_lifecycle: clear`" in reason()
        shown = licensed.lakeplan("drift", "--write").out
        assert shown.count("branch lifecycle policies: the server no longer has") == 1
        assert text(licensed) == POLICIES

    def it_restores_the_file_where_the_edit_does_not_give_the_servers_list(self, licensed: Any) -> None:
        """Twice the same alias: only the place that it names could be edited."""
        shared = POLICIES.replace("max_age: 30d   #", "max_age: &month 30d   #").replace(
            "max_idle_age: 90d", "max_idle_age: *month"
        )
        settle_on(licensed, shared)
        edit_policies(licensed, lambda p: p[1].update(max_inactivity_time=60))
        (refused,) = written(licensed, code=3)["not_written"]
        assert "cannot edit" in refused["reason"]
        assert text(licensed) == shared
        edit_policies(licensed, lambda p: p[0].update(max_age=60))
        assert written(licensed, code=3)["written"] == []
        assert text(licensed) == shared
