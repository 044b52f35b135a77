from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.simulation.runners import (
    BIN_BYTES,
    BINS_A_CORE,
    ITEM_OVERHEAD,
    Kind,
    WorkItem,
    numbered,
    pack,
    unpack_bin,
)

items = st.lists(
    st.builds(
        WorkItem,
        st.sampled_from([Kind.RANGE, Kind.UNCOMMITTED, Kind.LISTING]),
        st.integers(0, 2),
        st.text("abc", min_size=1, max_size=3),
        st.integers(0, BIN_BYTES),
        number=st.just(0),
        sort_key=st.binary(max_size=2),
    ),
    max_size=40,
)


def bins_of(given_items: list[WorkItem], parallelism: int) -> list[list[WorkItem]]:
    return [unpack_bin(packed) for packed in pack(numbered(given_items), parallelism)]


@given(items, st.integers(1, 8))
def test_every_item_is_in_exactly_one_bin_and_numbered_by_its_place(
    given_items: list[WorkItem], parallelism: int
) -> None:
    bins = bins_of(given_items, parallelism)
    found = [item for bin_ in bins for item in bin_]
    assert [item.number for item in found] == list(range(len(given_items)))
    assert sorted(item._replace(number=0) for item in found) == sorted(given_items)
    assert all(bins)


@given(items.filter(bool), st.integers(1, 8))
def test_no_bin_is_much_heavier_than_its_share(given_items: list[WorkItem], parallelism: int) -> None:
    weights = [sum(i.weight + ITEM_OVERHEAD for i in bin_) for bin_ in bins_of(given_items, parallelism)]
    heaviest = max(item.weight + ITEM_OVERHEAD for item in given_items)
    assert len(weights) <= BINS_A_CORE * parallelism
    assert max(weights) <= max(BIN_BYTES, sum(weights) / min(parallelism, len(given_items))) + heaviest


def it_puts_versions_of_a_region_beside_each_other() -> None:
    versions = [
        WorkItem(Kind.RANGE, 0, f"{n}{key}", 1, sort_key=key.encode()) for n in range(3) for key in "ab"
    ]
    first, second = bins_of(versions, 2)
    assert [i.name for i in first] == ["0a", "1a", "2a"]
    assert [i.name for i in second] == ["0b", "1b", "2b"]


def it_makes_no_bin_of_nothing() -> None:
    assert pack([], 4) == []


def it_begins_with_the_listings_of_a_repository() -> None:
    """A store makes them wait; ranges are read meanwhile."""
    given_items = [
        WorkItem(kind, source, "x")
        for source in (1, 0)
        for kind in (Kind.RANGE, Kind.UNCOMMITTED, Kind.LISTING, Kind.ROOT_LISTING)
    ]
    kinds = [(item.source, item.kind) for item in numbered(given_items)]
    assert [kind for source, kind in kinds if source == 0][:2] == [Kind.LISTING, Kind.ROOT_LISTING]
    assert [source for source, _ in kinds] == [0] * 4 + [1] * 4
