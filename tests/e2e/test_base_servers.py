"""``plan --base`` where a change gives its servers other names or endpoints: what was held stays held."""

from __future__ import annotations

import os

import pytest

HELD = "gc: {default_retention_days: 365}, holds: [{prefix: audit/, reason: legal}]"
BARE = "gc: {default_retention_days: 365}"
AWAY, FURTHER = "http://127.0.0.1:1", "http://127.0.0.1:2"


def on_servers(world, servers: dict[str, str], *entries: str) -> None:
    """A tree of several servers, by their endpoints, and its entries."""
    urls = ", ".join(f"{name}: {{endpoint_url: {url!r}}}" for name, url in servers.items())
    world.write(
        "lakeplan.yaml",
        f"apiVersion: lakeplan/v1\nservers: {{{urls}}}\nrepositories: {{{', '.join(entries)}}}\n",
    )


def same_server(world, written: str) -> str:
    """The sandbox's endpoint, written as it is, or in another way that reaches the same server."""
    here = world.handle.endpoint_url
    return {"as it was": here, "with a slash": f"{here}/", "with the API's path": f"{here}/api/v1"}[written]


@pytest.fixture
def renamed(world, monkeypatch):
    """A tree on ``main`` whose server prod holds something, and credentials for the name main gets next."""
    world.api.repository("analytics")
    world.api.set_rules("analytics", 365)
    for name in ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"LAKEPLAN_LAKE_{name}", os.environ[f"LAKEPLAN_PROD_{name}"])
    world.git("init")
    return world


def committed(world) -> None:
    world.git("add", "-A")
    world.git("commit", "-m", "base")


def held_prefixes(document) -> dict[str, list[str]]:
    return {key: [h["name"] for h in guard["holds"]] for key, guard in document["sweep_guards"].items()}


@pytest.mark.parametrize("written", ["as it was", "with a slash", "with the API's path"])
@pytest.mark.parametrize("targets", [(), ("--target", "analytics")])
def it_keeps_a_hold_that_goes_while_its_server_gets_another_name(renamed, written, targets):
    world = renamed
    on_servers(world, {"prod": same_server(world, "as it was")}, f"analytics: {{{HELD}}}")
    committed(world)
    on_servers(world, {"lake": same_server(world, written)}, f"analytics: {{{BARE}}}")
    result = world.lakeplan("plan", "--base", "HEAD", "--format", "json", "--no-simulate", *targets)
    document = result.json
    found = [(i["scope"], i["path"]) for i in document["loosenings"]]
    assert found == [("lake/analytics", "holds[prefix audit/]")]
    assert held_prefixes(document) == {"lake/analytics": ["audit/"]}


def it_keeps_a_hold_that_goes_while_two_servers_swap_their_names(renamed):
    world = renamed
    here = world.handle.endpoint_url
    on_servers(world, {"prod": here, "lake": AWAY}, f"prod/analytics: {{{HELD}}}")
    committed(world)
    on_servers(world, {"prod": AWAY, "lake": here}, f"lake/analytics: {{{BARE}}}")
    document = world.lakeplan(
        *("plan", "--base", "HEAD", "--server", "lake", "--target", "analytics"),
        *("--format", "json", "--no-simulate"),
    ).json
    assert [(i["scope"], i["path"], i["after"]) for i in document["loosenings"]] == [
        ("tree", "server prod", AWAY),
        ("lake/analytics", "holds[prefix audit/]", "absent"),
    ]
    assert held_prefixes(document) == {"lake/analytics": ["audit/"]}


def it_lists_a_name_that_belongs_to_another_server_now_because_overrides_follow_the_name(renamed):
    world = renamed
    here = world.handle.endpoint_url
    until = "reason: a sandbox, expires: 2099-12-31"
    overrides = f"overrides: [{{repository: lake/analytics, gate: expired-objects, {until}}}]\n"
    entries = (f"prod/analytics: {{{BARE}}}", f"lake/analytics: {{{BARE}}}")
    for servers in ({"prod": here, "lake": AWAY}, {"prod": AWAY, "lake": here}):
        on_servers(world, servers, *entries)
        tree = world.tree / "lakeplan.yaml"
        tree.write_text(tree.read_text() + overrides)
        if servers["prod"] == here:
            committed(world)
    more = ("--server", "lake", "--no-simulate", "--format", "json")
    document = world.lakeplan("plan", "--base", "HEAD", *more).json
    assert [(i["path"], i["before"], i["after"]) for i in document["loosenings"]] == [
        ("server prod", here, AWAY),
        ("server lake", AWAY, here),
    ]


def it_keeps_what_the_one_of_two_names_of_a_server_holds_when_only_the_other_stays(renamed):
    world = renamed
    here = world.handle.endpoint_url
    on_servers(world, {"prod": here, "old": here}, "prod/other: {}", f"old/analytics: {{{HELD}}}")
    committed(world)
    on_servers(world, {"prod": here, "away": AWAY}, f"prod/analytics: {{{BARE}}}")
    document = world.lakeplan(
        *("plan", "--base", "HEAD", "--server", "prod", "--target", "analytics"),
        *("--format", "json", "--no-simulate"),
    ).json
    assert held_prefixes(document) == {"prod/analytics": ["audit/"]}


@pytest.mark.parametrize(
    ("servers", "after"),
    [({"lake": "{here}"}, "renamed or removed"), ({"lake": "{here}", "prod": FURTHER}, FURTHER)],
)
def it_lists_a_server_that_nothing_names_any_more_whatever_the_targets(renamed, servers, after):
    world = renamed
    here = world.handle.endpoint_url
    bare = f"lake/analytics: {{{BARE}}}"
    on_servers(world, {"prod": AWAY, "lake": here, "empty": FURTHER}, f"prod/other: {{{HELD}}}", bare)
    committed(world)
    on_servers(world, {name: url.format(here=here) for name, url in servers.items()}, bare)
    more = ("--server", "lake", "--target", "analytics", "--no-simulate", "--format", "json")
    document = world.lakeplan("plan", "--base", "HEAD", *more).json
    assert [(i["scope"], i["path"], i["before"], i["after"]) for i in document["loosenings"]] == [
        ("tree", "server prod", AWAY, after)
    ]


def it_keeps_the_hold_of_a_server_that_moves_under_its_name(renamed):
    world = renamed
    on_servers(world, {"prod": AWAY}, f"analytics: {{{HELD}}}")
    committed(world)
    on_servers(world, {"prod": world.handle.endpoint_url}, f"analytics: {{{BARE}}}")
    document = world.lakeplan("plan", "--base", "HEAD", "--format", "json", "--no-simulate").json
    assert [i["path"] for i in document["loosenings"]] == ["server prod", "holds[prefix audit/]"]
    assert held_prefixes(document) == {"prod/analytics": ["audit/"]}


def it_finds_nothing_looser_in_a_server_that_only_gets_another_name(renamed):
    world = renamed
    for name in ("prod", "lake"):
        on_servers(world, {name: world.handle.endpoint_url}, f"analytics: {{{HELD}}}")
        if name == "prod":
            committed(world)
    document = world.lakeplan("plan", "--base", "HEAD", "--format", "json", "--no-simulate").json
    assert (document["loosenings"], document["sweep_guards"]) == ([], {})


@pytest.mark.parametrize("name", ["prod", "lake"])
def it_lists_another_engine_and_another_time_zone_of_a_server(renamed, name):
    world = renamed
    tree = (
        "apiVersion: lakeplan/v1\nservers: {%s: {endpoint_url: %r, branch_lifecycle: {engine: %s},"
        " time_zone: %s}}\nrepositories: {analytics: {" + BARE + "}}\n"
    )
    here = world.handle.endpoint_url
    world.write("lakeplan.yaml", tree % ("prod", here, "lakeplan", "Europe/Berlin"))
    committed(world)
    world.write("lakeplan.yaml", tree % (name, here, "none", "UTC"))
    document = world.lakeplan("plan", "--base", "HEAD", "--format", "json", "--no-simulate").json
    found = [(i["scope"], i["path"], i["before"], i["after"]) for i in document["loosenings"]]
    assert found == [
        ("tree", f"servers.{name}.branch_lifecycle.engine", "lakeplan", "none"),
        ("tree", f"servers.{name}.time_zone", "Europe/Berlin", "UTC"),
    ]
