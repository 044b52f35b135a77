"""Several repositories in one job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from lakeplan.errors import StorageNotFound
from lakeplan.formats.namespace import Addresses
from lakeplan.simulation import engine
from lakeplan.simulation.engine import Answer, Asking, amounts_by_prefix, ask
from lakeplan.simulation.local import LocalRunner, from_bytes
from lakeplan.simulation.observing import Source
from lakeplan.simulation.runners import Runners, Step
from lakeplan.values.simulation import Amount
from tests.simulation.worlds import URL, Files, Range, Unkept, World, items_of, relative, said_of


def asking_of(worlds: list[World], lost: int = -1) -> list[Asking]:
    asking = []
    for place, world in enumerate(worlds):
        files = Files()
        items, _ = items_of(world, files)
        if place == lost:
            files.files.clear()
        source = Source(f"repo-{place}", files, Addresses((URL,)))
        asking.append(Asking(source, Unkept(1), [item._replace(source=place) for item in items], 1))
    return asking


def answers(runner: Any, asking: list[Asking]) -> tuple[list[Answer], list[tuple[int, str]]]:
    named: list[tuple[int, str]] = []

    def take(place: int, _: object, data: bytes) -> None:
        named.extend((place, address) for address in from_bytes(data)["address"].to_pylist())

    ends = ask(runner, asking, take=take)
    return ends, sorted(named)


def world(mask: int, *keys: str, size: int = 1) -> World:
    entries = tuple(relative(f"a{n}", key, size) for n, key in enumerate(keys))
    return World([Range(mask, 0, -1, entries)])


def it_never_mixes_objects_of_two_repositories(runners: Runners) -> None:
    """The same range in both, kept in one of them."""
    worlds = [world(0, "data/1", "data/2"), world(1, "data/1", "data/2"), world(0, "data/2")]
    with runners.open(0) as (runner, _):
        ends, named = answers(runner, asking_of(worlds))
    assert named == [(0, "data/1"), (0, "data/2"), (2, "data/2")]
    assert [[each.amount for each in end.classes] for end in ends] == [
        [Amount(2, 2)],
        [Amount(2, 2)],
        [Amount(1, 1)],
    ]


def it_gives_a_repository_that_cannot_be_read_its_error_and_others_their_answer() -> None:
    worlds = [world(0, "data/1"), world(0, "data/2")]
    ends, named = answers(LocalRunner(2), asking_of(worlds, lost=0))
    assert isinstance(ends[0].error, StorageNotFound)
    assert ends[0].classes == []
    assert "repo-0" in str(ends[0].error) or ends[0].error.where
    assert ends[1].error is None
    assert named == [(1, "data/2")]


def it_runs_nothing_where_there_is_nothing_to_read() -> None:
    class Nobody(LocalRunner):
        def run(self, *_: object) -> Any:
            pytest.fail("nothing is to be run")

    (end,), named = answers(Nobody(1), asking_of([World()]))
    assert (end.classes, end.error, named) == ([], None, [])


def it_sums_prefixes_whose_objects_are_larger_than_64_bits() -> None:
    size = 2**62 - 1
    paths = pa.chunked_array([[["a/x"], ["a/y"], ["a/z"], ["b/z"], ["a/x", "c/x"], []]])
    amounts = amounts_by_prefix(pa.table({"paths": paths, "size": [size, size, size, 1, size, size]}))
    assert amounts["a/"] == Amount(4, 4 * size)
    assert amounts["b/"] == Amount(1, 1)
    assert amounts[""] == Amount(6, 5 * size + 1)


def it_sums_what_is_larger_than_64_bits() -> None:
    size = (1 << 61) + 3
    keys = [f"data/{n}" for n in range(9)]
    (end,), _ = answers(LocalRunner(1), asking_of([world(0, *keys, size=size)]))
    assert [each.amount for each in end.classes] == [Amount(9, 9 * size)]


@pytest.mark.parametrize(("stored", "parts"), [({"data/p/1": (1, True)}, engine.LISTED_PARTS), ({}, 1)])
def it_does_not_take_a_listing_for_as_small_as_what_commits_have(
    stored: dict[str, tuple[int, bool]], parts: int
) -> None:
    """What no commit has may be many times that: all of it in one task would not fit into memory."""
    places = []

    class Spied(LocalRunner):
        def run(self, bins: Any, steps: Sequence[Step], shared: Any) -> Any:
            places.append(steps[1].places)
            return super().run(bins, steps, shared)

    given = World([Range(0, 0, -1, (relative("a", "data/p/2", 1),))], stored)
    said = said_of(Spied(1), given, Unkept(1))
    assert places == [parts]
    assert sorted(row["address"] for row in said.rows) == sorted(["data/p/2", *stored])
