"""Reading back what a write left, for as long as a server may answer from its caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakeplan.errors import LakeplanError

T = TypeVar("T")

PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Seconds between two reads. Together longer than a lakeFS server was measured to answer with what was there
before a write (3 to 7.5 seconds)."""


def read_back(read: Callable[[], T], is_expected: Callable[[T], bool], sleep: Callable[[float], None]) -> T:
    """The first value read that is expected, else the last one. One stale answer, or one read that fails, is
    no evidence. Raises the error of the last read when that failed and nothing expected was read."""
    for pause in (*PAUSES, None):
        try:
            value = read()
        except LakeplanError:
            if pause is None:
                raise
        else:
            if pause is None or is_expected(value):
                return value
        sleep(pause)
    raise AssertionError("the last read returns or raises")
