from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from lakeplan.formats import ranges
from lakeplan.formats.ranges import RAGGEDNESS, fnv1a, read_range, write_range, write_ranges
from lakeplan.values.repository import AddressType, Entry

MakeEntries = Callable[[int], list[Entry]]


@pytest.mark.parametrize(
    ("key", "value"), [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)]
)
def it_hashes_as_fnv_does(key: bytes, value: int) -> None:
    assert fnv1a(key) == value


def breaking_path() -> str:
    """A path after which a range ends, whatever stands around it."""
    return next(p for p in (f"p/{i:08}" for i in range(10**6)) if fnv1a(p.encode()) % RAGGEDNESS == 0)


def it_ends_ranges_at_the_same_keys_whatever_stands_before() -> None:
    end = breaking_path()
    tail = [Entry(f"q/{i}", f"a{i}", AddressType.RELATIVE, 1) for i in range(10)]
    middle = Entry(end, "m", AddressType.RELATIVE, 1)
    one = list(write_ranges([Entry("a", "1", AddressType.RELATIVE, 1), middle, *tail]))
    other = list(write_ranges([Entry("b", "2", AddressType.RELATIVE, 2), middle, *tail]))
    assert [info.max_key for info, _ in one] == [end.encode(), b"q/9"]
    assert one[0][0].id != other[0][0].id
    assert one[1] == other[1]


def it_ends_a_range_at_its_greatest_size(make_entries: MakeEntries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "MAX_RANGE_BYTES", 20_000)
    entries = make_entries(3000)
    parts = list(write_ranges(entries))
    assert len(parts) > 2
    assert [e for info, data in parts for e in read_range(data, name="x", verify_id=info.id)] == entries
    assert all(a.max_key < b.min_key for (a, _), (b, _) in pairwise(parts))
    assert all(info.estimated_size < 25_000 for info, _ in parts)


def it_writes_no_range_for_no_entries() -> None:
    assert list(write_ranges([])) == []


def it_refuses_entries_out_of_order(make_entries: MakeEntries) -> None:
    with pytest.raises(ValueError, match="order"):
        write_range(reversed(make_entries(2)))
