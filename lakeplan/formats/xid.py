"""xids: the 20-character ids of objects, partitions and runs (rs/xid: time, machine, process, counter).

A *descending* xid is made with the clock turned around (seconds until the year 4000), so that the newest
sorts first; partitions of ``data/`` and garbage-collection runs have such ids. An xid holds 32 bits of
seconds, so descending ids sort newest first until the year 2094.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_ALPHABET = "0123456789abcdefghijklmnopqrstuv"
_VALUE = {c: i for i, c in enumerate(_ALPHABET)}
# the last character carries one bit of the 96, so four of its five are zero
_XID = re.compile(r"[0-9a-v]{19}[0g]\Z")
_YEAR_4000 = 64_060_588_800
_SECONDS = 2**32
_COUNTER = 2**24


def is_xid(text: str) -> bool:
    return _XID.match(text) is not None


def encode(raw: bytes) -> str:
    """12 bytes as an xid's text."""
    if len(raw) != 12:
        raise ValueError("an xid has 12 bytes")
    number = int.from_bytes(raw, "big") << 4
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(95, -1, -5))


def decode(text: str) -> bytes:
    """The 12 bytes of an xid. Raises ValueError for what is none."""
    if not is_xid(text):
        raise ValueError(f"{text!r} is not an xid")
    number = 0
    for character in text:
        number = number << 5 | _VALUE[character]
    return (number >> 4).to_bytes(12, "big")


def time_of(text: str) -> int:
    """Epoch seconds at which an ascending xid was made."""
    return int.from_bytes(decode(text)[:4], "big")


def time_of_descending(text: str) -> int:
    """Epoch seconds at which a descending xid was made."""
    return (_YEAR_4000 - time_of(text)) % _SECONDS


class XidSource:
    """Makes xids. ``clock`` gives epoch seconds, ``randomness(n)`` n random bytes (asked once, for machine,
    process and where the counter starts). Not for several threads at once."""

    def __init__(self, clock: Callable[[], float], randomness: Callable[[int], bytes]) -> None:
        seed = randomness(8)
        self._clock = clock
        self._origin = seed[:5]
        self._counter = int.from_bytes(seed[5:], "big")

    def ascending(self) -> str:
        """An object's id: sorts by time of making, within a second by order of making."""
        return self._make(int(self._clock()))

    def descending(self) -> str:
        """A partition's or run's id: the newest sorts first."""
        return self._make(_YEAR_4000 - int(self._clock()))

    def _make(self, seconds: int) -> str:
        self._counter = (self._counter + 1) % _COUNTER
        time_bytes = (seconds % _SECONDS).to_bytes(4, "big")
        return encode(time_bytes + self._origin + self._counter.to_bytes(3, "big"))
