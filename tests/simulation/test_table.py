"""Tables of sightings against dictionaries: sorted, compiled, folded, packed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.formats.compiled import kernels
from lakeplan.formats.range_arrays import Hashes
from lakeplan.simulation.table import (
    CODES,
    STORED,
    CompiledTable,
    Rows,
    Sets,
    SortedTable,
    Table,
    concat,
    in_order,
    new_table,
    pack,
    places_in,
    starts_of,
    unpack,
)
from tests.simulation.leaves import leaves_in

# many that differ in their lowest or their highest bits alone
hashes = st.builds(
    lambda high, low: high << 60 | low, st.integers(0, 15), st.integers(0, 12) | st.integers(0, 2**60 - 1)
)
Sighting = tuple[int, int, int, int]
"""Pair, hash of the address, size, code."""
few = st.integers(0, 3)
"""Pairs that several addresses have, as somebody could make them."""
sightings = st.tuples(
    hashes | few, hashes | few, st.integers(0, 2**40) | st.just(STORED | 7), st.integers(0, CODES - 1)
)
items = st.lists(st.lists(sightings, max_size=12), max_size=6)
Found = dict[tuple[int, int], tuple[int, frozenset[int]]]
"""By pair and hash: greatest size, leaves."""


def tables() -> list[Table]:
    compiled = kernels()
    return [SortedTable()] if compiled is None else [SortedTable(), CompiledTable(compiled)]


def add(table: Table, of: Sequence[Sighting], number: int) -> list[bool]:
    pairs, hashes, sizes, codes = zip(*of, strict=True) if of else ((), (), (), ())
    fresh = table.add(
        np.array(pairs, np.uint64),
        np.array(hashes, np.uint64),
        np.array(sizes, np.int64),
        np.array(codes, np.uint8),
        number * CODES,
    )
    return [bool(one) for one in fresh]


def found_in(pairs: Hashes, rows: Rows, sets: Sets) -> Found:
    assert rows.hashes.tolist() == sorted(rows.hashes.tolist())
    columns = (pairs.tolist(), rows.hashes.tolist(), rows.sizes.tolist(), rows.sets.tolist())
    found = {(p, h): (size, frozenset(leaves_in(sets, of))) for p, h, size, of in zip(*columns, strict=True)}
    assert len(found) == len(rows)
    return found


Objects = dict[int, tuple[int, frozenset[int]]]


def objects_in(rows: Rows, sets: Sets) -> Objects:
    """What all rows of a hash say together."""
    found: Objects = {}
    for hash_, size, of in zip(rows.hashes.tolist(), rows.sizes.tolist(), rows.sets.tolist(), strict=True):
        most, leaves = found.get(hash_, (0, frozenset()))
        found[hash_] = max(most, size), leaves.union(leaves_in(sets, of))
    return found


def objects_expected(given_items: Sequence[tuple[int, Sequence[Sighting]]]) -> Objects:
    return objects_in_pairs(expected(given_items))


def objects_in_pairs(pairs: Found) -> Objects:
    found: Objects = {}
    for (_, hash_), (size, leaves) in pairs.items():
        most, others = found.get(hash_, (0, frozenset()))
        found[hash_] = max(most, size), leaves | others
    return found


def expected(given_items: Sequence[tuple[int, Sequence[Sighting]]]) -> Found:
    found: Found = {}
    for number, of in given_items:
        for pair, hash_, size, code in of:
            most, leaves = found.get((pair, hash_), (0, frozenset()))
            found[pair, hash_] = (max(most, size), leaves | {number * CODES + code})
    return found


@settings(max_examples=60)
@given(items)
def test_both_tables_say_what_a_dictionary_says(given_items: list[list[Sighting]]) -> None:
    for table in tables():
        known: set[tuple[int, int]] = set()
        for number, of in enumerate(given_items):
            fresh = add(table, of, number)
            news = [each[:2] for each, is_new in zip(of, fresh, strict=True) if is_new]
            assert len(set(news)) == len(news)
            assert set(news) >= {each[:2] for each in of} - known
            pairs = [pair for pair, _ in known]
            assert all(pairs.count(pair) > 1 for pair, _ in set(news) & known)
            known.update(news)
        sets = Sets()
        assert found_in(*table.rows(sets), sets) == expected(list(enumerate(given_items)))


@pytest.mark.parametrize("kind", [0, 1], ids=["sorted", "compiled"])
def it_grows_with_what_it_holds(kind: int) -> None:
    """Beyond the rows and the sets that a table begins with, in several steps."""
    if kind == len(tables()):
        pytest.skip("numba is not installed")
    table, sets = tables()[kind], Sets()
    random = np.random.default_rng(7)
    known: dict[int, set[int]] = {}
    for number in range(40):
        pairs = random.integers(0, 90_000, 4_000).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        codes = random.integers(0, CODES, pairs.size).astype(np.uint8)
        table.add(pairs, pairs, np.zeros(pairs.size, np.int64), codes, number * CODES)
        for pair, code in zip(pairs.tolist(), codes.tolist(), strict=True):
            known.setdefault(pair, set()).add(number * CODES + code)
    all_pairs, rows = table.rows(sets)
    assert len(rows) == len(known)
    leaves = {of: frozenset(leaves_in(sets, of)) for of in set(rows.sets.tolist())}
    found = {pair: leaves[of] for pair, of in zip(all_pairs.tolist(), rows.sets.tolist(), strict=True)}
    assert found == known


def it_has_room_if_every_row_of_an_item_gives_a_pair_another_set() -> None:
    """As if somebody made paths with one hash, and entries that name one object in two spellings by turns."""
    rows = [(7, 7, 1, n % 2) for n in range(5_000)]
    for table in tables():
        assert sum(add(table, rows, 0)) == 1
        assert add(table, rows[:1], 1) == [False]
        sets = Sets()
        (of,) = table.rows(sets)[1].sets.tolist()
        assert set(leaves_in(sets, of)) == {0, 1, CODES}


def it_is_sorted_where_nothing_is_compiled() -> None:
    assert isinstance(new_table(use_compiled=False), SortedTable)


@settings(max_examples=60)
@given(items, st.data())
def test_rows_of_any_tables_say_the_same_together(
    given_items: list[list[Sighting]], data: st.DataObject
) -> None:
    """Whatever bins items are put into, and however often a table is emptied; over the wire in packets."""
    packets = []
    for number in data.draw(st.permutations(range(len(given_items)))):
        of, left = given_items[number], Sets()
        cut = data.draw(st.integers(0, len(of)))
        for some in (of[:cut], of[cut:]):
            table = SortedTable()
            add(table, some, number)
            _, rows = table.rows(left)
            at = data.draw(st.integers(0, len(rows)))
            packets += [pack(rows.part(part), left) for part in (slice(0, at), slice(at, None))]
    sets = Sets()
    rows = concat([unpack(data, sets) for data in packets])
    assert objects_in(rows, sets) == objects_expected(list(enumerate(given_items)))


@given(items.filter(bool), st.integers(1, 10), st.data())
def test_leaves_get_other_numbers_on_the_way(
    given_items: list[list[Sighting]], more: int, data: st.DataObject
) -> None:
    """And those of some items are left out."""
    table, sets, there = SortedTable(), Sets(), Sets()
    for number, of in enumerate(given_items):
        add(table, of, number)
    left_out = data.draw(st.sets(st.integers(0, len(given_items) - 1)))
    numbers = np.arange(len(given_items) * CODES, dtype=np.int64) + more * CODES
    for number in left_out:
        numbers[number * CODES : (number + 1) * CODES] = -1
    _, rows = table.rows(sets)
    having = sets.having(numbers >= 0)[rows.sets]
    assert (
        having
        == [
            bool(set(leaves_in(sets, of)) & set(np.flatnonzero(numbers >= 0).tolist()))
            for of in rows.sets.tolist()
        ]
    ).all()
    arrived = unpack(pack(rows, sets, numbers), there)
    found = {hash_: leaves for hash_, (_, leaves) in objects_in(arrived, there).items() if leaves}
    shifted = [(number + more, of) for number, of in enumerate(given_items) if number not in left_out]
    assert found == {hash_: leaves for hash_, (_, leaves) in objects_expected(shifted).items()}


@given(items.filter(any), st.data())
def test_bytes_that_are_cut_are_refused(given_items: list[list[Sighting]], data: st.DataObject) -> None:
    table, sets = SortedTable(), Sets()
    for number, of in enumerate(given_items):
        add(table, of, number)
    packed = pack(table.rows(sets)[1], sets)
    with pytest.raises(ValueError, match="the rows are truncated"):
        unpack(packed[: data.draw(st.integers(0, len(packed) - 1))], Sets())
    with pytest.raises(ValueError, match="the rows are truncated"):
        unpack(packed + b"\0", Sets())


def it_refuses_sets_that_follow_later_ones() -> None:
    sets = Sets()
    chain = sets.add(sets.add(0, 3), 4)
    one = np.ones(1, np.uint64)
    packed = bytearray(pack(Rows(one, np.ones(1, np.int64), np.array([chain])), sets))
    before = len(packed) - 2 * 3 * 4  # three sets: nothing, 3, 3 and 4
    packed[before + 4 : before + 8] = (2).to_bytes(4, "little")
    with pytest.raises(ValueError, match="not in order"):
        unpack(bytes(packed), Sets())


@given(st.lists(hashes, max_size=200))
def test_positions_put_hashes_into_order(given_hashes: list[int]) -> None:
    values = np.array(given_hashes, np.uint64)
    order = in_order(values)
    assert sorted(order.tolist()) == list(range(values.size))
    assert values[order].tolist() == sorted(given_hashes)


@given(st.lists(hashes, max_size=60), st.lists(hashes, max_size=30))
def test_hashes_are_found_where_they_are(given_hashes: list[int], asked: list[int]) -> None:
    ascending = np.array(sorted(given_hashes), np.uint64)
    assert starts_of(ascending).tolist() == [sorted(given_hashes).index(h) for h in sorted(set(given_hashes))]
    wanted = np.array([*asked, *given_hashes[:3]], np.uint64)
    places, hit = places_in(ascending, wanted)
    assert hit.tolist() == [h in given_hashes for h in wanted.tolist()]
    assert all(ascending[places[hit]] == wanted[hit])
