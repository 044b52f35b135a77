"""Entries as in a lakeFS repository, for several format tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from lakeplan.formats.ranges import entry_key
from lakeplan.values.repository import AddressType, Entry

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def entry_lists(max_size: int = 60) -> st.SearchStrategy[list[Entry]]:
    """Entries with different paths, in the order of a range; paths lean on each other."""
    path = st.builds(
        "".join, st.lists(st.sampled_from(["a", "b/", "part-", "ü", "\x01", "0", "€"]), max_size=9)
    )
    entry = st.builds(
        Entry,
        path=path,
        address=TEXT,
        address_type=st.sampled_from(AddressType),
        size=st.integers(0, 2**45),
        last_modified_us=st.integers(0, 2**51),
        e_tag=TEXT,
        content_type=TEXT,
        metadata=st.dictionaries(TEXT, TEXT, max_size=3).map(lambda d: tuple(sorted(d.items()))),
    )
    unique = st.lists(entry, max_size=max_size, unique_by=lambda e: e.path)
    return unique.map(lambda entries: sorted(entries, key=entry_key))


@pytest.fixture(scope="session")
def make_entries() -> Callable[[int], list[Entry]]:
    """``make_entries(n)``: n ordinary entries, always the same."""

    def make(count: int) -> list[Entry]:
        return [
            Entry(
                path=f"tables/t{i // 1000}/part-{i:06}",
                address=f"data/p/{i:x}",
                address_type=AddressType.RELATIVE,
                size=i,
                last_modified_us=1_790_000_000_000_000 + i,
                e_tag=f"{i:032x}",
            )
            for i in range(count)
        ]

    return make
