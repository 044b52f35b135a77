"""Groups against dictionaries."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.simulation.digests import Digest
from lakeplan.simulation.folding import Class, Classes
from lakeplan.simulation.groups import Gathering
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.work import GROUP_RANGES, Kind, WorkItem

ENTRY, CANDIDATE, ALIAS = int(Seen.ENTRY), int(Seen.ENTRY | Seen.CANDIDATE), int(Seen.ALIAS)
Row = tuple[int, int, int]
rows = st.tuples(st.integers(0, 9), st.integers(0, 2**40), st.sampled_from([ENTRY, CANDIDATE, ALIAS]))
versions = st.lists(st.lists(rows, max_size=8), min_size=1, max_size=GROUP_RANGES)


def digest(of: list[Row]) -> Digest:
    hashes, sizes, seen = zip(*of, strict=True) if of else ((), (), ())
    return Digest(np.array(hashes, np.uint64), np.array(sizes, np.int64), np.array(seen, np.uint8))


@given(versions, st.integers(1, 20), st.data())
def test_a_group_says_of_each_address_what_its_versions_said(
    given_versions: list[list[Row]], max_rows: int, data: st.DataObject
) -> None:
    gathering = Gathering(max_rows)
    for n in data.draw(st.permutations(range(len(given_versions)))):
        gathering.add(n, digest(given_versions[n]))
    group = gathering.group()
    items = [
        WorkItem(Kind.RANGE, 0, str(n), mask=data.draw(st.integers(0, 7)), holders=n % 3 - 1)
        for n in range(len(given_versions))
    ]
    expected: dict[int, Class] = defaultdict(lambda: Class(0))
    sizes: dict[int, int] = defaultdict(int)
    for item, of in zip(items, given_versions, strict=True):
        holders = frozenset({item.holders} - {-1})
        for of_hash, size, seen in of:
            sizes[of_hash] = max(sizes[of_hash], size)
            masks = (0, item.mask) if seen == ALIAS else (item.mask, 0)
            expected[of_hash] |= Class(seen, *masks, holders)
    classes = Classes()
    found = group.rows(items, classes)
    assert found.hashes.tolist() == sorted(expected)
    assert found.sizes.tolist() == [sizes[h] for h in sorted(expected)]
    assert [classes.all[n] for n in found.numbers.tolist()] == [expected[h] for h in sorted(expected)]


@given(versions, st.sets(st.integers(0, GROUP_RANGES - 1)))
def test_it_knows_what_a_version_holds_that_others_do_not(
    given_versions: list[list[Row]], others: set[int]
) -> None:
    gathering = Gathering(1_000)
    for n, of in enumerate(given_versions):
        gathering.add(n, digest(of))
    group = gathering.group()
    held = [{of_hash for of_hash, _, _ in of} for of in given_versions]
    elsewhere = set().union(*(held[n] for n in others if n < len(held)))
    for n, of in enumerate(held):
        if n not in others:
            assert group.held_only_by(n, sorted(others)).tolist() == sorted(of - elsewhere)
