from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.formats.namespace import XidSource, decode, encode, is_xid, time_of, time_of_descending


def it_decodes_the_libraries_own_example() -> None:
    # rs/xid's documentation
    assert decode("9m4e2mr0ui3e8a215n4g") == bytes.fromhex("4d88e15b60f486e428412dc9")
    assert time_of("9m4e2mr0ui3e8a215n4g") == 1300816219


def it_tells_a_real_runs_time() -> None:
    assert time_of_descending("ft6viapksdu8jkn65m40") == 1795230165


@given(st.binary(min_size=12, max_size=12))
def it_decodes_what_it_encodes(raw: bytes) -> None:
    text = encode(raw)
    assert is_xid(text)
    assert decode(text) == raw


@pytest.mark.parametrize(
    "text", ["", "9m4e2mr0ui3e8a215n4", "9m4e2mr0ui3e8a215n4z", "9M4E2MR0UI3E8A215N4G", "x" * 20]
)
def it_refuses_what_is_no_xid(text: str) -> None:
    assert not is_xid(text)
    with pytest.raises(ValueError, match="xid"):
        decode(text)


@given(
    st.lists(st.integers(0, 2**31), min_size=2, max_size=5, unique=True), st.binary(min_size=8, max_size=8)
)
def it_sorts_objects_oldest_first_and_runs_newest_first(times: list[int], seed: bytes) -> None:
    def make(kind: str) -> list[str]:
        clock = iter(sorted(times))
        source = XidSource(lambda: next(clock), lambda n: seed[:n])
        return [getattr(source, kind)() for _ in times]

    ascending, descending = make("ascending"), make("descending")
    assert ascending == sorted(ascending)
    assert [time_of(x) for x in ascending] == sorted(times)
    assert [time_of_descending(x) for x in descending] == sorted(times)
    if max(times) < 2**31 - 2**24:
        assert descending == sorted(descending, reverse=True)


def it_never_makes_the_same_twice_within_a_second() -> None:
    source = XidSource(lambda: 5.9, lambda n: b"\xff" * n)
    assert len({source.ascending() for _ in range(1000)}) == 1000
