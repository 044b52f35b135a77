from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.simulation.work import BIN_BYTES, Kind, WorkItem, pack, unpack

items = st.lists(
    st.builds(
        WorkItem,
        st.just(Kind.RANGE),
        st.integers(0, 2),
        st.text("abc", min_size=1, max_size=3),
        st.integers(0, BIN_BYTES),
        sort_key=st.binary(max_size=2),
    ),
    max_size=40,
)


@given(items, st.integers(1, 8))
def test_every_item_is_in_exactly_one_bin(given_items: list[WorkItem], parallelism: int) -> None:
    bins = [unpack(packed) for packed in pack(given_items, parallelism)]
    assert sorted(item for bin_ in bins for item in bin_) == sorted(given_items)
    assert all(bins)


@given(items.filter(bool), st.integers(1, 8))
def test_no_bin_is_much_heavier_than_its_share(given_items: list[WorkItem], parallelism: int) -> None:
    weights = [sum(i.weight for i in unpack(packed)) for packed in pack(given_items, parallelism)]
    heaviest = max(i.weight for i in given_items)
    # the share is a bin's worth at most, and its ends are whole items
    assert max(weights) <= max(BIN_BYTES * 1.1, sum(weights) / parallelism) + 2 * heaviest + (4 << 20)


def it_puts_versions_of_a_range_beside_each_other() -> None:
    versions = [
        WorkItem(Kind.RANGE, 0, f"{n}{key}", 1, sort_key=key.encode()) for n in range(3) for key in "ab"
    ]
    first, second = (unpack(packed) for packed in pack(versions, 2))
    assert {i.sort_key for i in first} == {b"a"}
    assert {i.sort_key for i in second} == {b"b"}


def it_makes_no_bin_of_nothing() -> None:
    assert pack([], 4) == []
