"""Trees compared and merged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.sandbox.graph import MergeConflict, apply_changes, diff, diff_from_base, merge, same
from lakeplan.values.repository import AddressType, Entry

PATHS = "abcd"


def entry(path, checksum, address="data/x", size=1):
    return Entry(path, address, AddressType.RELATIVE, size, e_tag=checksum)


trees = st.dictionaries(st.sampled_from(PATHS), st.sampled_from("123")).map(
    lambda tree: {path: entry(path, checksum) for path, checksum in tree.items()}
)


def test_same_object_at_another_address_is_the_same():
    assert same(entry("a", "1", "data/x"), entry("a", "1", "data/y"))
    assert not same(entry("a", "1"), entry("a", "2"))
    assert not same(entry("a", "1"), entry("a", "1", size=2))
    assert not same(None, entry("a", "1"))
    assert same(None, None)


@given(trees, trees)
def test_a_difference_applied_gives_the_other_side(before, after):
    changes = {d.path: after.get(d.path) for d in diff(before, after)}
    assert apply_changes(before, changes) == after


@given(trees, trees)
def test_merging_one_changed_side_gives_that_side(base, changed):
    assert merge(base, base, changed) == changed
    assert merge(base, changed, base) == changed


@given(trees, trees, trees)
def test_a_merge_conflicts_exactly_where_the_diff_says(base, ours, theirs):
    conflicts = tuple(d.path for d in diff_from_base(base, ours, theirs) if d.type == "conflict")
    if conflicts:
        with pytest.raises(MergeConflict) as caught:
            merge(base, ours, theirs)
        assert caught.value.paths == conflicts
    else:
        assert merge(base, ours, theirs) == merge(base, theirs, ours)


@given(trees, trees, trees)
def test_a_strategy_decides_conflicts_and_nothing_else(base, ours, theirs):
    for strategy, winner in (("source-wins", theirs), ("dest-wins", ours)):
        merged = merge(base, ours, theirs, strategy)
        for path in PATHS:
            sides = [base.get(path), ours.get(path), theirs.get(path)]
            if sides[1] == sides[0]:
                assert merged.get(path) == sides[2]
            elif sides[2] == sides[0]:
                assert merged.get(path) == sides[1]
            else:
                assert merged.get(path) == winner.get(path)
