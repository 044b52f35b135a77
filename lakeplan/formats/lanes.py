"""Decodes many records at once with numpy, column by column instead of entry by entry.

All restart intervals of a range are independent, so step k decodes the k-th entry of every interval in every
block together. Only the shape that lakeFS writes is supported. Anything else raises ``Irregular``, and the
careful decoder (``sstable``, ``entry``) decides what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakeplan import limits
from lakeplan.formats.range_arrays import Bytes, Ints
from lakeplan.formats.sstable_blocks import KEY_TRAILER_SIZE, KIND_SET
from lakeplan.values.records import LAST_SECOND
from lakeplan.values.repository import AddressType

_PADDING = 64
"""Zero bytes after the last block, so that numbers that run past the end are read safely and then refused."""
_MAX_VARINT = 7
"""Bytes. Such numbers stay below 2**49, so sums of a few of them cannot overflow."""
_NUMBER = 4
_SET_TRAILER = np.frombuffer(KIND_SET.to_bytes(KEY_TRAILER_SIZE, "little"), dtype=np.uint8)


class Irregular(Exception):
    """The data does not have the shape that this decoder supports. The file may still be good."""


@dataclass(frozen=True)
class Lanes:
    """The records of a range, in order, as positions in ``buffer`` (all blocks, one after the other).

    A key is the first ``shared`` bytes of the previous key and ``buffer[key_start:key_end]``. Its trailer is
    checked and left out. ``shared`` is 0 at the start of every restart interval.
    """

    buffer: bytes
    array: Bytes
    shared: Ints
    key_start: Ints
    key_end: Ints
    value_start: Ints
    value_end: Ints


def decode_lanes(blocks: Sequence[bytes]) -> Lanes:
    """The records of all blocks. Raises Irregular."""
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
    # Order by lane, then by step.
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
    """Start and end of every restart interval, as positions in the joined blocks. Raises Irregular for wrong
    restart points."""
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
    """Raises Irregular unless every key ends in a plain trailer, shares no more than the length of the
    previous key, and all keys together are within the limits."""
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


# tags: field number and wire type
_ADDRESS, _MODIFIED, _SIZE, _E_TAG, _METADATA, _ADDRESS_TYPE, _CONTENT_TYPE = b"\x0a\x12\x18\x22\x2a\x30\x3a"
_IS_TEXT = np.full(256, -1, np.int8)
"""By tag: 1 if its number is the length of a text, 0 if not, -1 for unknown tags."""
_IS_TEXT[[_ADDRESS, _MODIFIED, _E_TAG, _METADATA, _CONTENT_TYPE]] = 1
_IS_TEXT[[_SIZE, _ADDRESS_TYPE]] = 0
_SECONDS, _NANOS = 0x08, 0x10


def decode_entries(lanes: Lanes) -> tuple[Ints, Ints, Ints, Ints]:
    """Start and end of each entry's address in the buffer, its type and the entry's size. e-tags, content
    types and metadata are skipped, and not checked to be text. Raises Irregular unless fields are those of
    ``Entry``, once and in order, as Go writes."""
    array, end = lanes.array, lanes.value_end
    position = _message_starts(lanes)
    rows = position.size
    fields = {tag: np.zeros(rows, dtype=np.int64) for tag in (_SIZE, _ADDRESS_TYPE)}
    spans = {tag: (np.zeros(rows, np.int64), np.zeros(rows, np.int64)) for tag in (_ADDRESS, _MODIFIED)}
    last = np.zeros(rows, dtype=np.uint8)
    row = np.flatnonzero(position < end)
    while row.size:
        # Entries of one writer have the same fields, so most steps have a single tag.
        is_whole = row.size == rows
        at, limit = (position, end) if is_whole else (position[row], end[row])
        tag = array[at]
        before = last if is_whole else last[row]
        if ((tag < before) | ((tag == before) & (tag != _METADATA))).any():
            raise Irregular
        last[row] = tag
        number, after = read_varints(array, at + 1)
        stop = after + _text_sizes(tag, number)
        if (stop > limit).any():
            raise Irregular
        for wanted, values in fields.items():
            _put(values, wanted, tag, row, number)
        for wanted, (starts, stops) in spans.items():
            _put(starts, wanted, tag, row, after)
            _put(stops, wanted, tag, row, stop)
        position[row] = stop
        row = row[stop < limit]
    if (fields[_ADDRESS_TYPE] > max(AddressType)).any():
        raise Irregular
    _check_timestamps(array, *spans[_MODIFIED])
    return *spans[_ADDRESS], fields[_ADDRESS_TYPE], fields[_SIZE]


def _text_sizes(tag: Bytes, number: Ints) -> Ints:
    """The number of bytes after the number that follows each tag. Raises Irregular for an unknown tag."""
    is_text = _IS_TEXT[tag]
    if (is_text < 0).any():
        raise Irregular
    return number * is_text


def _put(values: Ints, wanted: int, tag: Bytes, row: npt.NDArray[np.intp], numbers: Ints) -> None:
    """Puts the numbers after the wanted tag into ``values``, by row."""
    hit = tag == wanted
    if hit.all():
        values[row] = numbers
    elif hit.any():
        values[row[hit]] = numbers[hit]


def _message_starts(lanes: Lanes) -> Ints:
    """Return where the messages begin, after the identity. Both have a zigzag length in front."""
    length, start = read_varints(lanes.array, lanes.value_start)
    middle = start + (length >> 1)
    if ((length & 1) != 0).any() or (middle >= lanes.value_end).any():
        raise Irregular
    length, start = read_varints(lanes.array, middle)
    if ((length & 1) != 0).any() or (start + (length >> 1) != lanes.value_end).any():
        raise Irregular
    return start


def _check_timestamps(array: Bytes, start: Ints, end: Ints) -> None:
    """Raises Irregular unless there are seconds, then nanoseconds, and each may be absent if 0."""
    seconds, position = _optional(array, start, end, _SECONDS)
    nanos, position = _optional(array, position, end, _NANOS)
    if (position != end).any() or (nanos >= 10**9).any() or (seconds > LAST_SECOND).any():
        raise Irregular


def _optional(array: Bytes, position: Ints, end: Ints, tag: int) -> tuple[Ints, Ints]:
    """The number after ``tag`` where the tag is at ``position``, else 0, and the positions after it."""
    value = np.zeros(position.size, dtype=np.int64)
    position = position.copy()
    present: npt.NDArray[np.intp] = np.flatnonzero((position < end) & (array[position] == tag))
    value[present], position[present] = read_varints(array, position[present] + 1)
    return value, position
