"""Several trees for one server: what each may manage, and which one a repository belongs to."""

from __future__ import annotations

import pytest

from tests.openmetrics import samples

TEAM = "apiVersion: lakeplan/v1\nrepositories:\n"


def named(world, name: str, manages: str | None = None, *, state: str = "one") -> None:
    """Makes the world's tree that of a team. Every team has a separate state."""
    lines = [f"name: {name}"] if name else []
    if manages:
        lines.append(f"manages: [{manages}]")
    world.write(
        "lakeplan.yaml",
        "\n".join(
            (
                "apiVersion: lakeplan/v1",
                *lines,
                f"servers: {{prod: {{endpoint_url: {world.handle.endpoint_url}}}}}",
                "safety: {max_expired_objects_percent: 100, on_tag_loss: warn}",
                f"state: {{url: 'file://.lakeplan-{state}'}}",
                "",
            )
        ),
    )


def metadata(world, repository: str) -> dict[str, str]:
    return world.api.call("GET", f"/repositories/{repository}/metadata")


def claims(world, repository: str) -> list[str]:
    return sorted(key.removeprefix("lakeplan.tree.") for key in metadata(world, repository))


def make(world, *names: str) -> None:
    for name in names:
        world.api.repository(name)
        world.api.commit(name, "main", 1, a=10)


def every_repository(world, days: int, *names: str) -> None:
    """The glob ``*``, with exact entries that prevent adoption."""
    lines = "".join(f"  {name}: {{}}\n" for name in names)
    world.write("repositories/all.yaml", TEAM + f'  "*": {{gc: {{default_retention_days: {days}}}}}\n{lines}')


def applied(world, *options: str):
    return world.lakeplan("apply", "--auto-approve", *options)


def it_neither_touches_nor_reports_repositories_that_it_does_not_manage(world):
    make(world, "team-a-raw", "team-b-raw")
    named(world, "team-a", "team-a-*")
    every_repository(world, 21, "team-a-raw")
    plan = world.lakeplan("plan", "--format", "json").json
    assert [r["name"] for r in plan["repositories"]] == ["team-a-raw"]
    assert plan["unmanaged"] == []
    assert world.api.rules("team-b-raw") is None
    done = applied(world)
    assert done.code == 0, done.err
    assert world.api.rules("team-a-raw") == {"*": 21}
    assert world.api.rules("team-b-raw") is None
    drift = world.lakeplan("drift", "--format", "json").json
    assert "team-b-raw" not in str(drift)


def it_still_reports_its_own_repositories_without_an_entry(world):
    make(world, "team-a-raw", "team-a-new", "team-b-raw")
    named(world, "team-a", "prod/team-a-*")
    world.write("repositories/a.yaml", TEAM + "  team-a-raw: {gc: {default_retention_days: 21}}\n")
    assert world.lakeplan("plan", "--format", "json").json["unmanaged"] == ["prod/team-a-new"]


@pytest.mark.parametrize(
    ("root", "entry", "text"),
    [
        ("name: a\nmanages: [team-a-*]", "other", "outside `manages`"),
        ("manages: [team-a-*]", "team-a-x", "needs a name"),
        ("name: a\nmanages: [dev/*]", "team-a-x", "this tree has no server 'dev'"),
        ("name: a\nmanages: []", "team-a-x", "manages"),
        ("name: a\nmanages: [Team-*]", "team-a-x", "Team-*"),
        ("name: Team A", "team-a-x", "a name such as team-a"),
    ],
)
def it_says_what_is_wrong_with_manages(world, root, entry, text):
    named(world, "")
    world.append("lakeplan.yaml", root + "\n")
    world.write("repositories/a.yaml", TEAM + f"  {entry}: {{gc: {{default_retention_days: 21}}}}\n")
    result = world.lakeplan("validate")
    assert result.code == 1
    assert text in result.out + result.err


def it_refuses_a_repository_that_another_tree_claimed(world):
    make(world, "shared")
    named(world, "team-a", state="a")
    every_repository(world, 21, "shared")
    assert applied(world).code == 0
    assert claims(world, "shared") == ["team-a"]

    named(world, "team-b", state="b")
    every_repository(world, 7, "shared")
    plan = world.lakeplan("plan", "--format", "json")
    (repository,) = plan.json["repositories"]
    assert plan.code == 1
    assert "another tree manages this repository: 'team-a'" in repository["failure"]["message"]
    applied(world)
    assert world.api.rules("shared") == {"*": 21}
    assert claims(world, "shared") == ["team-a"]


def it_refuses_a_plan_that_was_made_before_another_tree_claimed(world):
    make(world, "shared")
    named(world, "team-b", state="b")
    every_repository(world, 7, "shared")
    file = world.plan_file()
    world.api.call(
        "POST", "/repositories/shared/metadata", json={"metadata": {"lakeplan.tree.team-a": "now"}}
    )
    done = world.lakeplan("apply", file)
    assert done.code == 4
    assert world.api.rules("shared") is None
    assert claims(world, "shared") == ["team-a"]


def it_refuses_a_tree_without_a_name_where_one_with_a_name_is(world):
    make(world, "shared")
    named(world, "team-a", state="a")
    every_repository(world, 21, "shared")
    assert applied(world).code == 0
    named(world, "", state="b")
    every_repository(world, 7, "shared")
    result = world.lakeplan("plan", "--format", "json")
    assert "add its name to lakeplan.yaml" in result.json["repositories"][0]["failure"]["hint"]
    applied(world)
    assert world.api.rules("shared") == {"*": 21}


def it_claims_repositories_that_need_no_write(world):
    make(world, "shared")
    world.api.set_rules("shared", 21)
    named(world, "team-a")
    world.write("repositories/a.yaml", TEAM + "  shared: {gc: {default_retention_days: 21}}\n")
    done = world.lakeplan("apply", world.plan_file())
    assert done.code == 0, done.err
    assert claims(world, "shared") == ["team-a"]


def it_claims_repositories_although_there_is_nothing_at_all_to_write(world):
    make(world, "shared")
    world.api.set_rules("shared", 21)
    named(world, "team-a", state="a")
    world.write("repositories/a.yaml", TEAM + "  shared: {gc: {default_retention_days: 21}}\n")
    assert applied(world).code == 0
    assert claims(world, "shared") == ["team-a"]
    named(world, "team-b", state="b")
    world.write("repositories/a.yaml", TEAM + "  shared: {gc: {default_retention_days: 7}}\n")
    applied(world)
    assert world.api.rules("shared") == {"*": 21}


def it_leaves_the_metadata_of_a_tree_without_a_name_alone(world):
    make(world, "shared")
    named(world, "")
    every_repository(world, 21, "shared")
    assert applied(world).code == 0
    assert metadata(world, "shared") == {}


def it_moves_a_repository_to_another_tree(world):
    make(world, "shared")
    named(world, "team-a", state="a")
    every_repository(world, 21, "shared")
    assert applied(world).code == 0
    named(world, "team-b", state="b")
    refused = world.lakeplan("claim", "shared")
    assert refused.code == 4
    assert "team-a" in refused.err
    assert world.lakeplan("claim", "shared", "--take").code == 64  # nobody to ask
    assert claims(world, "shared") == ["team-a"]
    assert world.lakeplan("claim", "shared", "--take", "--auto-approve").code == 0
    assert claims(world, "shared") == ["team-b"]
    assert world.lakeplan("claim", "shared", "--release").code == 0
    assert claims(world, "shared") == []


def it_releases_what_it_does_not_manage_any_more(world):
    make(world, "shared", "mine-1")
    named(world, "team-a")
    every_repository(world, 21, "mine-1", "shared")
    assert applied(world).code == 0
    named(world, "team-a", "mine-*")
    every_repository(world, 21, "mine-1")
    assert world.lakeplan("claim", "shared").code == 64
    assert world.lakeplan("claim", "shared", "--release").code == 0
    assert claims(world, "shared") == []


def it_refuses_to_claim_without_a_name(world):
    make(world, "shared")
    named(world, "")
    every_repository(world, 21, "shared")
    result = world.lakeplan("claim", "shared")
    assert result.code == 1
    assert "has no name" in result.err


def it_lists_manages_as_a_change_that_a_review_has_to_see(world):
    make(world, "team-a-raw", "team-b-raw")
    named(world, "team-a")
    every_repository(world, 21, "team-a-raw")
    world.git("init", "-q")
    world.git("add", ".")
    world.git("commit", "-qm", "base")
    named(world, "team-a", "team-a-*")
    plan = world.lakeplan("plan", "--base", "HEAD", "--format", "json").json
    assert [(c["path"], c["before"], c["after"]) for c in plan["loosenings"]] == [
        ("manages", "every repository", "team-a-*")
    ]


def it_has_metrics_that_several_trees_can_put_into_one_folder(world):
    make(world, "team-a-raw", "team-b-raw")
    found: dict[str, list[tuple[str, ...]]] = {}
    commands = (("drift",), ("plan",), ("history",), ("sweep", "list"))
    for tree in ("team-a", "team-b"):
        named(world, tree, f"{tree}-*", state=tree)
        every_repository(world, 21, f"{tree}-raw")
        assert applied(world).code == 0
        for command in commands:
            result = world.lakeplan(command, "--format", "openmetrics")
            for metric, labels in samples(result.out).items():
                assert all(values[0] == tree for values in labels), metric
                found.setdefault(metric, []).extend(labels)
    assert {len(labels) for labels in found.values()} >= {2}
    for metric, labels in found.items():
        assert len(set(labels)) == len(labels), metric


def it_keeps_the_name_of_the_tree_in_its_plan(world):
    make(world, "shared")
    named(world, "team-a")
    every_repository(world, 21, "shared")
    text = world.lakeplan("show", world.plan_file(), "--format", "openmetrics").out
    assert all(labels[0] == "team-a" for of in samples(text).values() for labels in of)


def it_records_nothing_new_where_trees_that_share_its_state_take_turns(world):
    make(world, "team-a-raw", "team-b-raw")
    for _ in range(3):
        for tree in ("team-a", "team-b"):
            named(world, tree, f"{tree}-*")
            every_repository(world, 21, f"{tree}-raw")
            assert applied(world).code == 0
    assert len(world.lakeplan("history", "--format", "json").json["runs"]) == 2


def it_reports_no_drift_of_other_trees_that_share_its_state(world):
    make(world, "team-a-raw", "team-b-raw")
    for tree in ("team-a", "team-b"):
        named(world, tree, f"{tree}-*")
        every_repository(world, 21, f"{tree}-raw")
        assert applied(world).code == 0
    drift = world.lakeplan("drift", "--format", "json").json
    assert [r["repository"] for r in drift["recorded"]] == ["prod/team-b-raw"]
    assert drift["repositories"] == []


class DescribeTheDoctor:
    """The doctor knows only after a first claim whether the tree may record claims."""

    def asked(self, world, *, code=0):
        world.handle.faults.forget()
        result = world.lakeplan("doctor", "--for", "apply", "--no-spark", "--format", "json")
        assert result.code == code, result.out + result.err
        sent = {r.method for r in world.handle.faults.requests if not r.path.endswith("/refs/dump")}
        assert sent == {"GET"}
        found = {check["check"]: check for check in result.json["checks"]}
        return found.get("fs:UpdateRepository")

    def it_says_what_it_could_not_try_and_what_is_proven(self, world):
        make(world, "raw", "fine")
        every_repository(world, 21, "raw", "fine")
        named(world, "")
        assert self.asked(world) is None
        named(world, "team-a")
        before = [metadata(world, name) for name in ("raw", "fine")]
        found = self.asked(world)
        assert (found["result"], "not tested" in found["message"]) == ("warn", True)
        assert [metadata(world, name) for name in ("raw", "fine")] == before
        assert applied(world).code == 0
        assert self.asked(world)["result"] == "ok"
        named(world, "team-b", state="b")
        found = self.asked(world, code=1)
        assert (found["result"], "another tree manages" in found["message"]) == ("fail", True)
        assert "lakeplan claim --take" in found["hint"]
