"""The two steps against dictionaries: split as finely as can be, through memory and through files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeplan.errors import FormatError, StorageNotFound
from lakeplan.formats import range_arrays
from lakeplan.formats.namespace import Addresses
from lakeplan.simulation import engine, listings, observing, steps
from lakeplan.simulation.local import LocalRunner, Packet, PacketKind
from lakeplan.simulation.observing import Source
from lakeplan.simulation.runners import numbered, pack
from lakeplan.simulation.steps import Asked, Job, leaves_of, read_bins
from tests.simulation.worlds import (
    KEYS,
    URL,
    Files,
    Range,
    Said,
    Unkept,
    World,
    classes_of,
    expected,
    inside,
    items_of,
    relative,
    said_of,
    worlds,
)

runs = st.builds(LocalRunner, st.integers(1, 3), st.sampled_from([1, 1 << 20]))
questions = st.builds(Unkept, st.integers(0, 7), st.booleans())
SAME = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@pytest.fixture
def finely(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part for every few rows, tables that are emptied often, two rows a packet."""
    monkeypatch.setattr(engine, "FEW_ROWS", 0)
    monkeypatch.setattr(engine, "ROWS_A_PART", 2)
    monkeypatch.setattr(steps, "MAX_ROWS", 3)
    monkeypatch.setattr(steps, "ROWS_A_PIECE", 2)
    monkeypatch.setattr(listings, "AT_ONCE", 2)


def check(said: Said, world: World, question: Unkept) -> None:
    found = expected(world)
    assert said.errors == []
    assert said.classes == classes_of(found)
    asked = {str(key): one for key, one in found.items() if question.takes(one.of)}
    assert sorted(row["address"] for row in said.rows) == sorted(asked)
    for row in said.rows:
        one = asked[row["address"]]
        assert (row["seen"], row["mask"], row["alias_mask"]) == (one.flags, one.mask, one.alias_mask)
        assert (row["last"], row["size"]) == (one.last, one.size)
        assert sorted(row["paths"]) == sorted(one.paths)


@settings(max_examples=60, **SAME)  # type: ignore[arg-type]
@given(worlds, questions, runs)
def test_every_object_is_counted_once_and_named_when_it_is_asked_for(
    finely: None, world: World, question: Unkept, runner: LocalRunner
) -> None:
    check(said_of(runner, world, question), world, question)


@settings(max_examples=20, **SAME)  # type: ignore[arg-type]
@given(worlds, questions, runs)
def test_it_is_the_same_in_large_pieces(world: World, question: Unkept, runner: LocalRunner) -> None:
    check(said_of(runner, world, question, exact=True), world, question)


@settings(max_examples=3, **SAME)  # type: ignore[arg-type]
@given(worlds.filter(lambda world: len(world.own) > 2 and bool(world.stored)), questions)
def test_it_is_the_same_on_either_runner(
    finely: None, runners: object, world: World, question: Unkept
) -> None:
    with runners.open(0) as (runner, _):  # type: ignore[attr-defined]
        check(said_of(runner, world, question), world, question)


class DescribeHashesThatAddressesShare:
    """Hashes of two bits, so that most addresses share theirs with others."""

    BITS = 0xC000000000000000

    @pytest.fixture(autouse=True)
    def short_hashes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole_spans, whole_texts = range_arrays.hash_spans, observing.hash_texts

        def spans(*arguments):  # type: ignore[no-untyped-def]
            hashes, plain = whole_spans(*arguments)
            return hashes & self.BITS, plain

        for module in (range_arrays, listings):
            monkeypatch.setattr(module, "hash_spans", spans)
        monkeypatch.setattr(observing, "hash_texts", lambda texts: whole_texts(texts) & self.BITS)
        self.short = lambda key: int(whole_texts([key])[0]) >> 62

    @settings(max_examples=40, **SAME)  # type: ignore[arg-type]
    @given(worlds, questions, runs, st.booleans())
    def it_keeps_all_of_them_if_one_is_kept(
        self, world: World, question: Unkept, runner: LocalRunner, exact: bool
    ) -> None:
        said = said_of(runner, world, question, exact=exact)
        merged, alone = expected(world, self.short), expected(world)
        assert said.classes == classes_of(merged)
        for row in said.rows:
            assert question.takes(merged[self.short(row["address"])].of)
            assert question.takes(alone[row["address"]].of)
        if exact:
            named = [self.short(row["address"]) for row in said.rows]
            assert len(named) == len(set(named))

    def it_never_asks_for_one_of_two_where_addresses_are_compared(self) -> None:
        one, two = next((a, b) for a in KEYS for b in KEYS if a < b and self.short(a) == self.short(b))
        world = World([Range(0, 1, -1, (relative("a", one, 1), relative("b", two, 1)))])
        runner = LocalRunner(1)
        assert said_of(runner, world, Unkept(1), exact=True).rows == []
        assert {row["address"] for row in said_of(runner, world, Unkept(1)).rows} == {one, two}


class DescribeTexts:
    def it_sends_none_of_what_a_kept_range_beside_it_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ranges that are kept are read first: what they share with others needs no text."""
        same = tuple(relative(f"a{n}", f"data/{n}", 1) for n in range(5))
        own = relative("b", "data/own", 1)
        sent: list[int] = []
        observe = steps.observe

        def counting(*arguments: Any, **more: Any) -> Iterator[observing.Sightings]:
            for seen in observe(*arguments, **more):
                yield replace(seen, texts=lambda rows, of=seen: sent.append(len(rows)) or of.texts(rows))

        monkeypatch.setattr(steps, "observe", counting)
        world = World([Range(0, 1, -1, (*same, own)), Range(1, 2, -1, same)])
        said = said_of(LocalRunner(1), world, Unkept(1))
        assert [row["address"] for row in said.rows] == ["data/own"]
        assert sent == [1]


class DescribeWhatCannotBeRead:
    def it_answers_with_the_error_and_its_place(self, finely: None) -> None:
        world = World([Range(0, 0, -1, (relative("a", "data/1", 1),)), Range(0, 0, -1, ())])
        files = _Losing(world)
        (error,) = said_of(LocalRunner(2), world, Unkept(1), files=files).errors
        assert isinstance(error, StorageNotFound)
        assert files.lost in str(error)

    def it_refuses_a_range_that_is_not_what_its_id_says(self) -> None:
        ranges = [
            Range(0, 0, -1, (relative("a", "data/1", 1),)),
            Range(0, 0, -1, (inside("b", "data/2", 1),)),
        ]
        world = World(ranges)
        files = _Damaging(world)
        (error,) = said_of(LocalRunner(2), world, Unkept(1), files=files).errors
        assert isinstance(error, FormatError)
        assert files.damaged in str(error)

    def it_tells_every_task_that_waits_for_what_was_not_read(self) -> None:
        """Spark may repeat a task for one of those alone that wait: the others had what they wait for."""
        entries = tuple(relative(f"a/{n}", f"data/{n}", 1) for n in range(50))
        world = World([Range(1, 0, -1, entries)])
        files = Files()
        items = numbered(items_of(world, files)[0])
        source = Source("repo", files, Addresses((URL,)))
        job = Job((Asked(source, Unkept(1), parts := 4),), parts)

        def given() -> set[tuple[int, int]]:
            bins = [Packet(0, 0, 0, PacketKind.BIN, data) for data in pack(items, 1)]
            return {(packet.place, packet.of) for packet in read_bins(bins, leaves_of(items), job)}

        assert given() == {(place, PacketKind.ROWS) for place in range(parts)}
        files.files.clear()
        assert given() == {(place, PacketKind.ERROR) for place in range(parts)}


class _Losing(Files):
    """Without the first file of the repository."""

    def __init__(self, world: World) -> None:
        super().__init__(world.stored)
        self.lost = items_of(world, Files())[0][0].name

    def read(self, key: str) -> bytes:
        self.files.pop(self.lost, None)
        return super().read(key)


class _Damaging(Files):
    """A reader that changes a byte in the last range of the repository."""

    def __init__(self, world: World) -> None:
        super().__init__(world.stored)
        self.damaged = items_of(world, Files())[0][-1].name

    def read(self, key: str) -> bytes:
        data = super().read(key)
        return data[:9] + bytes((data[9] ^ 1,)) + data[10:] if key == self.damaged else data
