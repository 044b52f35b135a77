from __future__ import annotations

from collections.abc import Iterator

import pytest
from google_crc32c.python import value as plain_crc32c
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.formats import sstable_blocks
from lakeplan.formats.sstable_blocks import FRAME_LIMIT, _mask, masked_crc32c


@pytest.fixture(autouse=True, scope="module", params=["compiled", "plain"])
def _library(request: pytest.FixtureRequest) -> Iterator[None]:
    """google_crc32c with and without its extension."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(sstable_blocks, "IS_NATIVE", False)
            patch.setattr("google_crc32c.value", plain_crc32c)
        yield


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def it_gives_the_published_values(data: bytes, crc: int) -> None:
    # RFC 3720, B.4; and the check value of the CRC catalogue
    assert plain_crc32c(data) == crc
    assert masked_crc32c(data) == _mask(crc)


@given(st.binary(max_size=300))
def it_agrees_with_the_plain_one(data: bytes) -> None:
    assert masked_crc32c(data) == _mask(plain_crc32c(data))


@pytest.mark.parametrize("size", [FRAME_LIMIT - 1, FRAME_LIMIT, FRAME_LIMIT + 1, 2 * FRAME_LIMIT + 3])
def it_holds_around_the_largest_frame(size: int) -> None:
    data = bytes(i * 7 & 0xFF for i in range(size))
    assert masked_crc32c(data) == _mask(plain_crc32c(data))
