"""A range as arrays is the same range as column by column."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import FormatError
from lakeplan.formats.namespace import is_candidate_key, is_usual_key
from lakeplan.formats.range_arrays import hash_texts
from lakeplan.formats.ranges import read_range_arrays, read_range_columns, write_range
from lakeplan.values.repository import AddressType, Entry

addresses = st.one_of(
    st.sampled_from(
        [
            "data/",
            "data/p/1",
            "data//1",
            "/data/1",
            "data/./1",
            "a/../b",
            "..",
            "data/p/",
            "data/p/\n",
            "0/\n",
            "dummy",
            "old",
            "a/b",
            "data",
            "",
        ]
    ),
    st.text(max_size=30),
)
entries = st.lists(
    st.builds(
        Entry,
        st.text(min_size=1, max_size=12),
        addresses,
        st.sampled_from(AddressType),
        st.integers(0, 2**50),
    ),
    unique_by=lambda e: e.path,
    max_size=60,
)


@given(entries)
def test_arrays_hold_what_columns_hold(given_entries: list[Entry]) -> None:
    ordered = sorted(given_entries, key=lambda e: e.path.encode())
    info, data = write_range(ordered)
    columns = read_range_columns(data, name="r", verify_id=info.id)
    arrays = read_range_arrays(data, name="r", verify_id=info.id)
    rows = np.arange(len(arrays))
    assert arrays.addresses(rows) == columns.addresses == [e.address for e in ordered]
    assert arrays.paths(rows) == columns.paths
    assert arrays.sizes.tolist() == columns.sizes
    assert arrays.address_types.tolist() == columns.address_types
    assert arrays.hashes.tolist() == hash_texts(columns.addresses).tolist()
    unusual = list(zip(columns.addresses, arrays.unusual.tolist(), strict=True))
    assert all(odd or is_usual_key(a) for a, odd in unusual)
    assert not any(odd for a, odd in unusual if "/" not in a and not a.startswith("."))
    assert arrays.candidates(rows).tolist() == [is_candidate_key(a) for a in columns.addresses]


few_letters = st.text("ab/é\\", min_size=1, max_size=5)


@given(
    st.sets(st.one_of(few_letters, st.text("ab/", min_size=1, max_size=5)), max_size=20),
    st.lists(st.one_of(few_letters, st.just(""), st.just("\ud800")), max_size=3),
    st.booleans(),
)
def test_arrays_find_paths_by_their_beginnings(
    paths: set[str], prefixes: list[str], ascii_only: bool
) -> None:
    ordered = sorted(p for p in paths if p.isascii() or not ascii_only)
    _, data = write_range([Entry(path, f"data/{path}", AddressType.RELATIVE, 1) for path in ordered])
    arrays = read_range_arrays(data, name="r")
    rows = np.arange(len(arrays))[::-1]
    expected = [path.startswith(tuple(prefixes)) for path in reversed(ordered)]
    assert arrays.paths_begin(rows, tuple(prefixes)).tolist() == expected


def it_names_a_range_that_is_another() -> None:
    _, data = write_range([Entry("a", "data/1", AddressType.RELATIVE, 1)])
    with pytest.raises(FormatError, match="some range"):
        read_range_arrays(data, name="some range", verify_id="0" * 64)
