"""Objects that a plan names one by one."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.values.plan import Bit, Shown
from lakeplan.values.shown_records import RECORD, Digests, Records, count_absent, object_digests, packed

RAW = st.binary(min_size=16, max_size=16) | st.sampled_from([bytes(16), b"a" + bytes(15), b"\xff" * 16])


def digests(raw: list[bytes]) -> Digests:
    return np.array(raw, "S16")


@given(st.lists(st.tuples(RAW, st.integers(1, 31))), st.lists(RAW))
def it_answers_as_a_set_of_bytes_does(records: list[tuple[bytes, int]], asked: list[bytes]) -> None:
    """Also for digests with zero bytes, which numpy cuts off texts."""
    found = Records(packed([(digests([raw]), bits) for raw, bits in records]))
    for bit in Bit:
        known = {raw for raw, bits in records if bits & bit}
        assert found.count(bit) == len(known)
        assert found.lacks(digests(asked), bit) == sum(1 for raw in asked if raw not in known)


def it_is_in_the_documented_form() -> None:
    data = packed([(object_digests("prod/lake", ["data/a", "data/b"]), int(Bit.NOW))])
    expected = sorted(hashlib.blake2b(f"prod/lake\0data/{x}".encode(), digest_size=16).digest() for x in "ab")
    assert data == b"".join(digest + b"\1" for digest in expected)


def it_tells_repositories_apart() -> None:
    known = np.sort(object_digests("prod/lake", ["data/a"]))
    assert count_absent(object_digests("prod/lake", ["data/a"]), known) == 0
    assert count_absent(object_digests("prod/other", ["data/a"]), known) == 1


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data[:-1],
        lambda data: data[RECORD.itemsize :] + data[: RECORD.itemsize],
        lambda data: data + data[-RECORD.itemsize :],
    ],
)
def it_refuses_records_that_are_cut_or_out_of_order(edit) -> None:
    data = packed([(object_digests("k", "abc"), 1)])
    with pytest.raises(ValueError, match=r"truncated|order"):
        Records(edit(data))


def it_takes_no_other_records_than_those_that_were_named() -> None:
    shown = Shown.of(packed([(object_digests("k", "abc"), 1)]))
    other = Shown.of(packed([(object_digests("k", "xyz"), 1)]))
    with pytest.raises(ValueError, match="do not belong to the plan"):
        Shown(shown.records, shown.sha256, other.inline).read()
    assert Shown(10_000, "0" * 64).read() is None
