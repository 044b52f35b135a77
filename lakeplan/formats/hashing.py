"""64-bit hashes of many texts at once, column by column with numpy.

Equal texts always have equal hashes, in every process and on every machine (they are kept in caches). The
hash is quick, not cryptographic: whoever uses it must be safe, not only exact, when two texts share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Hashes: TypeAlias = npt.NDArray[np.uint64]
Ints: TypeAlias = npt.NDArray[np.int64]
WORD = 8
"""So many bytes must follow the last span in a buffer."""
_SEED, _FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(32)
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(WORD + 1)], dtype=np.uint64)
_HIGH_BITS = np.uint64(0x8080808080808080)


def hash_spans(buffer: Bytes, start: Ints, end: Ints) -> tuple[Hashes, bool]:
    """Hashes of ``buffer[start:end]``, row by row, and whether all these bytes are ASCII."""
    length = end - start
    words = (length + (WORD - 1)) // WORD
    counts = np.unique(words).tolist()
    if len(counts) == 1:
        return _hash(buffer, start, length, counts[0])
    found, ascii_only = np.zeros(length.size, np.uint64), True
    for count in counts:
        rows = np.flatnonzero(words == count)
        found[rows], plain = _hash(buffer, start[rows], length[rows], count)
        ascii_only &= plain
    return found, ascii_only


def hash_texts(texts: Sequence[str]) -> Hashes:
    """The same for texts, as UTF-8."""
    encoded = [text.encode() for text in texts]
    end = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    buffer = np.frombuffer(b"".join((*encoded, bytes(WORD))), np.uint8)
    return hash_spans(buffer, np.concatenate((np.zeros(1, np.int64), end))[:-1], end)[0]


def _hash(buffer: Bytes, start: Ints, length: Ints, count: int) -> tuple[Hashes, bool]:
    """For spans of ``count`` words each; the last word may be short."""
    found: Hashes = (_SEED ^ length.astype(np.uint64)) * _FACTOR
    every = np.zeros(length.size, np.uint64)
    words = _words(buffer)
    for word in range(count):
        value = words[start + word * WORD]
        if word == count - 1:
            value &= _MASKS[length - word * WORD]
        every |= value
        found ^= value
        found *= _FACTOR
        found ^= found >> _SHIFT
    found *= _SEED
    found ^= found >> _SHIFT
    return found, not (np.bitwise_or.reduce(every) & _HIGH_BITS)


def _words(buffer: Bytes) -> Hashes:
    """The little-endian word that begins at each byte."""
    words: Hashes = np.ndarray((buffer.size - WORD + 1,), dtype="<u8", buffer=buffer, strides=(1,))
    return words
