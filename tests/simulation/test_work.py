from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.simulation.work import BIN_BYTES, GROUP_RANGES, Kind, WorkItem, groups, pack, unpack

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
    ordered = sorted(given_items, key=lambda i: (i.source, i.sort_key))
    heaviest = max(sum(i.weight for i in group) for group in groups(ordered))
    # the share is a bin's worth at most, and its ends are whole groups
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


def versions_of_one_region(count: int, weight: int = 1) -> list[WorkItem]:
    return [
        WorkItem(Kind.RANGE, 0, sha256(str(n).encode()).hexdigest(), weight, sort_key=b"a")
        for n in range(count)
    ]


class DescribeGroups:
    @given(items, st.integers(1, 8))
    def it_finds_in_a_bin_the_groups_that_were_packed(
        self, given_items: list[WorkItem], parallelism: int
    ) -> None:
        whole = list(groups(sorted(given_items, key=lambda i: (i.source, i.kind, i.sort_key))))
        assert [g for bin_ in pack(given_items, parallelism) for g in groups(unpack(bin_))] == whole

    def it_has_a_bit_for_each_version_of_a_group(self) -> None:
        sizes = [len(group) for group in groups(versions_of_one_region(1_000))]
        assert sum(sizes) == 1_000
        assert max(sizes) <= GROUP_RANGES

    def it_bounds_what_a_group_weighs(self) -> None:
        sizes = [len(group) for group in groups(versions_of_one_region(10, BIN_BYTES // 2))]
        assert sizes == [2] * 5

    def it_changes_one_group_when_a_version_is_added(self) -> None:
        before = list(groups(versions_of_one_region(300)))
        after = list(groups(versions_of_one_region(301)))
        assert len([group for group in after if group not in before]) == 1

    def it_changes_few_groups_when_the_oldest_version_goes(self) -> None:
        before = list(groups(versions_of_one_region(300)))
        after = list(groups(versions_of_one_region(300)[1:]))
        assert len([group for group in after if group not in before]) <= len(after) // 4
