"""Decodes many records at once with numpy: what Python would do entry by entry, done column by column.

All restart intervals of a range are independent, so step k looks at the k-th entry of every interval of every
block together. Only the regular case is handled: the shape that lakeFS writes. Anything else raises
``Irregular``, and the careful decoder (``sstable.reader``, ``entry``) decides what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lakeplan import limits
from lakeplan.formats.sstable.layout import KEY_TRAILER_SIZE, KIND_SET

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
_PADDING = 64
"""Zero bytes after the last block, so that numbers that run over the end are read safely and then refused."""
_MAX_VARINT = 7
"""Bytes. Such numbers stay below 2**49, so sums of a few of them cannot overflow."""
_NUMBER = 4
_SET_TRAILER = np.frombuffer(KIND_SET.to_bytes(KEY_TRAILER_SIZE, "little"), dtype=np.uint8)


class Irregular(Exception):
    """Not the shape that this decoder handles; says nothing about whether the file is good."""


@dataclass(frozen=True)
class Lanes:
    """The records of a range, in order, as positions in ``buffer`` (all blocks, one after the other).

    A key is the first ``shared`` bytes of the key before it, and ``buffer[key_start:key_end]``; its trailer
    is checked and left out. ``shared`` is 0 at the start of every restart interval.
    """

    buffer: bytes
    array: Bytes
    shared: Ints
    key_start: Ints
    key_end: Ints
    value_start: Ints
    value_end: Ints


def decode_lanes(blocks: Sequence[bytes]) -> Lanes:
    """Takes apart the entries of all blocks. Raises Irregular."""
    buffer = b"".join((*blocks, bytes(_PADDING)))
    array = np.frombuffer(buffer, dtype=np.uint8)
    position, end = _intervals(blocks, array)
    if (position >= end).any() or not position.size:
        raise Irregular
    columns: list[tuple[Ints, ...]] = []
    lane = np.arange(position.size)
    lanes: list[Ints] = []
    entries = 0
    while lane.size:
        entries += lane.size
        if len(lanes) > limits.INTERVAL_ENTRIES or entries > limits.TABLE_RECORDS:
            raise Irregular
        at, stop = position[lane], end[lane]
        shared, at = read_varints(array, at)
        unshared, at = read_varints(array, at)
        size, value_start = read_varints(array, at)
        key_start, value_start = value_start, value_start + unshared
        value_end = value_start + size
        if (value_end > stop).any():
            raise Irregular
        columns.append((shared, key_start, value_start - KEY_TRAILER_SIZE, value_start, value_end))
        lanes.append(lane)
        position[lane] = value_end
        lane = lane[value_end < stop]
    # step k of lane j comes before step k + 1 of it, and all of lane j before lane j + 1
    order = np.lexsort((np.repeat(np.arange(len(lanes)), [len(s) for s in lanes]), np.concatenate(lanes)))
    shared, *rest = (np.concatenate(parts)[order] for parts in zip(*columns, strict=True))
    result = Lanes(buffer, array, shared, *rest)
    _check_keys(result, blocks, first_steps=np.searchsorted(np.concatenate(lanes)[order], lanes[0]))
    return result


def read_varints(array: Bytes, position: Ints) -> tuple[Ints, Ints]:
    """The numbers at these positions and the positions after them. Numbers over 49 bits are Irregular."""
    byte = array[position]
    position = position + 1
    value = (byte & 0x7F).astype(np.int64)
    more = np.flatnonzero(byte & 0x80)
    for step in range(1, _MAX_VARINT):
        if not more.size:
            return value, position
        if more.size == position.size:
            byte = array[position]
            value |= (byte & 0x7F).astype(np.int64) << (7 * step)
            position += 1
            more = np.flatnonzero(byte & 0x80)
        else:
            byte = array[position[more]]
            value[more] |= (byte & 0x7F).astype(np.int64) << (7 * step)
            position[more] += 1
            more = more[(byte & 0x80) != 0]
    if more.size:
        raise Irregular
    return value, position


def _intervals(blocks: Sequence[bytes], array: Bytes) -> tuple[Ints, Ints]:
    """Start and end of every restart interval, as positions in the joined blocks. Raises Irregular for what
    is not right about restart points."""
    sizes = np.fromiter(map(len, blocks), np.int64, len(blocks))
    if (sizes < _NUMBER).any():
        raise Irregular
    stops = np.cumsum(sizes)
    bases = stops - sizes
    counts = _read_uint32(array, stops - _NUMBER)
    ends = stops - _NUMBER * (counts + 1)
    total = int(counts.sum())
    if (counts == 0).any() or (ends < bases).any() or total > limits.TABLE_RECORDS:
        raise Irregular
    block_of = np.repeat(np.arange(len(blocks)), counts)
    first = np.cumsum(counts) - counts
    place = np.arange(total) - first[block_of]
    points = _read_uint32(array, ends[block_of] + _NUMBER * place)
    is_last = np.concatenate((block_of[1:] != block_of[:-1], np.ones(1, np.bool_)))
    if points[first].any() or (points[1:] <= points[:-1])[~is_last[:-1]].any():
        raise Irregular
    starts = bases[block_of] + points
    return starts, np.where(is_last, ends[block_of], np.append(starts[1:], 0))


def _read_uint32(array: Bytes, position: Ints) -> Ints:
    """Little-endian numbers of four bytes."""
    words: Ints = array[position[:, None] + np.arange(_NUMBER)].view("<u4").ravel().astype(np.int64)
    return words


def _check_keys(lanes: Lanes, blocks: Sequence[bytes], first_steps: npt.NDArray[np.intp]) -> None:
    """Every key ends in a plain trailer of its own, shares no more than the key before it has, and all of
    them together are within the limits."""
    trailers = lanes.array[lanes.key_end[:, None] + np.arange(KEY_TRAILER_SIZE)]
    length = lanes.shared + lanes.key_end - lanes.key_start
    before = np.concatenate(([0], length[:-1]))
    before[first_steps] = 0
    sizes = np.fromiter(map(len, blocks), np.int64, len(blocks))
    stored = length + KEY_TRAILER_SIZE
    of_block = np.add.reduceat(stored, np.searchsorted(lanes.value_start, np.cumsum(sizes) - sizes))
    if (
        (lanes.key_end < lanes.key_start).any()
        or (trailers != _SET_TRAILER).any()
        or (lanes.shared > before).any()
        or (stored > limits.KEY_BYTES).any()
        or (of_block > limits.KEY_RATIO * sizes + limits.KEY_BYTES).any()
        or int(stored.sum()) > limits.TABLE_KEY_BYTES
    ):
        raise Irregular
