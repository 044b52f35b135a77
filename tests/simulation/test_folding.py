"""Folding against dictionaries."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.simulation.folding import Class, Classes, Rows, fold, in_order, pack_rows, unpack_rows

# many that differ in their lowest or their highest bits alone
hashes = st.builds(
    lambda high, low: high << 60 | low, st.integers(0, 15), st.integers(0, 40) | st.integers(0, 2**60 - 1)
)


@given(st.lists(hashes, max_size=200))
def test_positions_put_hashes_into_order(given_hashes: list[int]) -> None:
    values = np.array(given_hashes, dtype=np.uint64)
    order = in_order(values)
    assert sorted(order.tolist()) == list(range(values.size))
    assert values[order].tolist() == sorted(given_hashes)


@given(st.lists(st.tuples(hashes, st.integers(0, 2**40), st.integers(0, 3)), min_size=1, max_size=60))
def test_rows_of_one_hash_become_one_row_of_all_their_classes(rows: list[tuple[int, int, int]]) -> None:
    classes = Classes(Class(1 << n, 1 << n, 0, frozenset({n})) for n in range(4))
    columns = list(zip(*rows, strict=True))
    given_rows = Rows(np.array(columns[0], np.uint64), np.array(columns[1]), np.array(columns[2]))
    folded = unpack_rows(pack_rows(fold(given_rows, classes), classes), classes)
    expected: dict[int, tuple[int, Class]] = {}
    for of_hash, size, number in rows:
        before = expected.get(of_hash, (0, Class(0)))
        expected[of_hash] = (max(before[0], size), before[1] | classes.all[number])
    assert folded.hashes.tolist() == sorted(expected)
    for of_hash, size, number in zip(
        folded.hashes.tolist(), folded.sizes.tolist(), folded.numbers.tolist(), strict=True
    ):
        assert expected[of_hash] == (size, classes.all[number])
