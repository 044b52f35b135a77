"""Sets of leaves against Python's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.simulation.runners import Kind
from lakeplan.simulation.table import (
    CODES,
    NOWHERE,
    Class,
    Classes,
    Code,
    Leaf,
    Listed,
    Sets,
    by_pairs,
    leaf_of,
)
from lakeplan.simulation.verdicts import Sighting
from tests.simulation.leaves import leaves_in

leaves = st.lists(st.integers(0, 9), max_size=6)
classes = st.builds(
    Class,
    st.integers(0, 1023),
    st.integers(0, 15),
    st.integers(0, 15),
    st.frozensets(st.integers(0, 5), max_size=3),
)


def made(sets: Sets, of: list[int]) -> int:
    number = 0
    for leaf in of:
        number = sets.add(number, leaf)
    return number


class DescribeSets:
    @given(st.lists(leaves, min_size=1, max_size=8), leaves)
    def it_holds_what_was_added(self, given_sets: list[list[int]], chosen: list[int]) -> None:
        sets = Sets()
        numbers = [made(sets, of) for of in given_sets]
        assert [set(leaves_in(sets, number)) for number in numbers] == [set(of) for of in given_sets]
        wanted = np.zeros(1 + max(map(max, filter(None, [*given_sets, chosen, [0]]))), np.bool_)
        wanted[chosen] = True
        assert sets.having(wanted)[numbers].tolist() == [not set(chosen).isdisjoint(of) for of in given_sets]

    @given(leaves)
    def it_gives_one_number_to_one_way_of_making(self, of: list[int]) -> None:
        sets = Sets()
        assert made(sets, of) == made(sets, of)

    @given(st.lists(leaves, max_size=8), st.lists(classes, min_size=10, max_size=10))
    def it_judges_a_set_by_all_its_leaves(self, given_sets: list[list[int]], known: list[Class]) -> None:
        sets, found = Sets(), Classes()
        numbers = [made(sets, of) for of in given_sets]
        judged, lasts = sets.judged(found, lambda leaf: Leaf(known[leaf], leaf - 1))
        for number, of in zip(numbers, given_sets, strict=True):
            expected = NOWHERE
            for leaf in of:
                expected |= known[leaf]
            assert found.all[judged[number]] == expected
            assert lasts[number] == max((leaf - 1 for leaf in of), default=-1)


class DescribeClasses:
    @given(classes, classes)
    def it_joins_to_what_either_is(self, left: Class, right: Class) -> None:
        found = Classes()
        joined = found.all[found.join(found.number(left), found.number(right))]
        assert joined == Class(
            left.flags | right.flags,
            left.mask | right.mask,
            left.alias_mask | right.alias_mask,
            left.holders | right.holders,
        )
        assert joined.any_mask == left.any_mask | right.any_mask


class DescribeLeaves:
    @pytest.mark.parametrize("code", Code)
    def it_says_of_an_entry_what_its_commits_say(self, code: Code) -> None:
        leaf = leaf_of(Kind.RANGE, code, 5, 3, 2)
        assert leaf.last == 3
        assert leaf.of.holders == {2}
        assert (leaf.of.mask, leaf.of.alias_mask) == ((0, 5) if code == Code.ALIAS else (5, 0))

    @pytest.mark.parametrize(
        ("code", "seen"),
        [
            (Code.PLAIN, Sighting.ENTRY),
            (Code.CANDIDATE, Sighting.ENTRY | Sighting.CANDIDATE),
            (Code.HELD, Sighting.ENTRY | Sighting.HELD),
            (Code.HELD_CANDIDATE, Sighting.ENTRY | Sighting.CANDIDATE | Sighting.HELD),
            (Code.ALIAS, Sighting.ALIAS),
            (Code.FOREIGN, Sighting.FOREIGN),
            (Code.STAGED, Sighting.UNCOMMITTED),
        ],
    )
    def it_says_where_it_was_seen(self, code: Code, seen: Sighting) -> None:
        assert leaf_of(Kind.RANGE, code, 0, -1, -1) == Leaf(Class(int(seen)))

    @pytest.mark.parametrize("kind", [Kind.LISTING, Kind.ROOT_LISTING, Kind.LISTED, Kind.MARKED])
    def it_knows_of_what_is_stored_only_that(self, kind: Kind) -> None:
        seen = {
            Listed.YOUNG: Sighting.LISTED,
            Listed.OLD: Sighting.LISTED | Sighting.OLD,
            Listed.MARKED: Sighting.MARKED,
        }
        for code, expected in seen.items():
            assert leaf_of(kind, code, 7, 7, 7) == Leaf(Class(int(expected)))

    def it_has_a_number_for_every_code_of_an_item(self) -> None:
        assert max(*Code, *Listed) < CODES


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), max_size=30))
def test_numbers_are_joined_row_by_row(pairs: list[tuple[int, int]]) -> None:
    left, right = (
        (np.array(column, np.int64) for column in zip(*pairs, strict=True))
        if pairs
        else (
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
        )
    )
    found = by_pairs(left, right, lambda one, other: one ^ other)
    assert found.tolist() == [one ^ other for one, other in pairs]
