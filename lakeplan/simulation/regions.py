"""Which ranges cover the same paths.

A commit that rewrites a range mostly keeps its first or its last key, and a split keeps both, one on each
side. So ranges that share a first or a last key are versions of one *region*; regions of unrelated ranges
that are joined by chance only cost time.
"""

from __future__ import annotations

from collections.abc import Iterable


class Regions:
    """Ranges by their first and last keys; one more range never divides a region."""

    def __init__(self, spans: Iterable[tuple[bytes, bytes]]) -> None:
        """``spans`` are (first key, last key) of all ranges."""
        self._parents: dict[tuple[bool, bytes], tuple[bool, bytes]] = {}
        self._first: dict[tuple[bool, bytes], bytes] = {}
        for first, last in spans:
            for end in ((False, first), (True, last)):
                self._parents.setdefault(end, end)
            low, high = self._root((False, first)), self._root((True, last))
            least = min(self._first.pop(low, first), self._first.pop(high, first), first)
            self._parents[high] = low
            self._first[low] = least

    def key(self, first: bytes) -> bytes:
        """Of the region of the range that begins here: its least key, no other region's."""
        return self._first[self._root((False, first))]

    def _root(self, end: tuple[bool, bytes]) -> tuple[bool, bytes]:
        while (parent := self._parents[end]) != end:
            self._parents[end] = self._parents[parent]  # halves the way for who comes next
            end = parent
        return end
