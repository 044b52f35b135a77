"""A curve of a repository behind a server, by the rules of the tree."""

from __future__ import annotations

import pytest


def history(world) -> None:
    world.api.repository("analytics")
    for number, age in enumerate((60, 50, 40, 20, 1)):
        world.api.commit("analytics", "main", age, **{f"only{number}": 10 + number})
        if number < 4:
            world.api.delete("analytics", "main", f"only{number}.bin")


def it_draws_the_rules_that_the_tree_asks_for(world):
    history(world)
    world.rules("analytics", 5)
    world.handle.faults.forget()
    result = world.lakeplan("curve", "analytics", "--format", "json")
    assert result.code == 0, result.err
    assert result.json["repository"].endswith("/analytics")
    assert result.json["rules"]["default_retention_days"] == 5
    (curve,) = result.json["curves"]
    # each file lives in one commit, which is kept while the next is younger than the limit
    steps = [(p["days"], p["objects"]) for p in curve["points"]]
    assert [objects for _, objects in steps] == [4, 3, 2, 1, 0]
    for (days, _), age in zip(steps, (0, 2, 21, 41, 51), strict=True):
        assert abs(days - age) <= 1
    writes = [(r.method, r.path) for r in world.handle.faults.requests if r.method not in ("GET", "HEAD")]
    assert writes == [("PUT", "/api/v1/repositories/analytics/refs/dump")]
    assert curve["now"] == {"objects": 3, "size_bytes": 10 + 11 + 12}


def it_draws_a_repository_that_no_entry_names_by_the_rules_of_the_server(world):
    history(world)
    world.api.set_rules("analytics", 5)
    result = world.lakeplan("curve", "analytics", "--format", "json")
    assert result.code == 0, result.err
    assert result.json["rules"]["default_retention_days"] == 5


class DescribeFindingARepository:
    """``curve`` and ``explain`` answer alike."""

    @pytest.fixture(params=["curve", "explain"])
    def ask(self, request, world):
        more = ("a.bin",) if request.param == "explain" else ()
        return lambda repository: world.lakeplan(request.param, repository, *more)

    def it_looks_on_the_only_server_for_one_that_no_entry_names(self, ask):
        result = ask("elsewhere")
        assert result.code == 64
        assert "repository elsewhere: the repository does not exist" in result.err

    def it_is_no_wrong_command_line_that_names_what_the_tree_names(self, world, ask):
        world.rules("elsewhere", 7)
        result = ask("elsewhere")
        assert result.code == 1
        assert "repository elsewhere: the repository does not exist" in result.err

    def it_asks_which_server_is_meant(self, world, ask):
        text = (world.tree / "lakeplan.yaml").read_text()
        world.write(
            "lakeplan.yaml",
            text.replace("servers: {prod:", "servers: {other: {endpoint_url: http://127.0.0.1:1}, prod:")
            + "defaults: {server: prod}\n",
        )
        result = ask("elsewhere")
        assert (result.code, "may be on any of several servers" in result.err) == (64, True), result.err
        assert "no server 'staging'" in ask("staging/elsewhere").err
