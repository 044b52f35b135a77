"""Entries' protobuf messages as columns, for ``ranges.read_range_columns``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakeplan.formats.lanes import Bytes, Ints, Irregular, Lanes, read_varints
from lakeplan.model.objects import AddressType

# tags: field number and wire type
_ADDRESS, _MODIFIED, _SIZE, _E_TAG, _METADATA, _ADDRESS_TYPE, _CONTENT_TYPE = b"\x0a\x12\x18\x22\x2a\x30\x3a"
_LENGTHS = np.array([_ADDRESS, _MODIFIED, _E_TAG, _METADATA, _CONTENT_TYPE], dtype=np.uint8)
_NUMBERS = np.array([_SIZE, _ADDRESS_TYPE], dtype=np.uint8)
_SECONDS, _NANOS = 0x08, 0x10


@dataclass(frozen=True)
class EntryLanes:
    """One row per entry; addresses are positions in the buffer. e-tags, content types and metadata are passed
    over, so that nobody learns here whether they are text."""

    address_start: Ints
    address_end: Ints
    address_type: Ints
    size: Ints
    last_modified_us: Ints


def decode_entries(lanes: Lanes) -> EntryLanes:
    """Raises Irregular for anything but the fields of ``Entry``, each once and in order, as Go writes."""
    array, end = lanes.array, lanes.value_end
    position = _message_starts(lanes)
    rows = position.size
    fields = {tag: np.zeros(rows, dtype=np.int64) for tag in (_SIZE, _ADDRESS_TYPE)}
    spans = {tag: (np.zeros(rows, np.int64), np.zeros(rows, np.int64)) for tag in (_ADDRESS, _MODIFIED)}
    last = np.zeros(rows, dtype=np.uint8)
    row = np.flatnonzero(position < end)
    while row.size:
        # entries of one writer have the same fields, so mostly a step sees one tag only
        every = row.size == rows
        at, limit = (position, end) if every else (position[row], end[row])
        tag = array[at]
        before = last if every else last[row]
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
    return EntryLanes(
        *spans[_ADDRESS], fields[_ADDRESS_TYPE], fields[_SIZE], _timestamps(array, *spans[_MODIFIED])
    )


def _text_sizes(tag: Bytes, number: Ints) -> Ints:
    """How many bytes follow the number behind each tag. Raises Irregular for an unknown tag."""
    first = tag[0]
    if (tag == first).all():
        if first in _LENGTHS:
            return number
        if first in _NUMBERS:
            return np.zeros_like(number)
        raise Irregular
    is_text = np.isin(tag, _LENGTHS)
    if not (is_text | np.isin(tag, _NUMBERS)).all():
        raise Irregular
    return np.where(is_text, number, 0)


def _put(values: Ints, wanted: int, tag: Bytes, row: npt.NDArray[np.intp], found: Ints) -> None:
    """Into ``values``, by row, what was found behind the wanted tag."""
    hit = tag == wanted
    if hit.all():
        values[row] = found
    elif hit.any():
        values[row[hit]] = found[hit]


def _message_starts(lanes: Lanes) -> Ints:
    """Where the messages begin: after an identity, both with a zigzag length in front."""
    length, start = read_varints(lanes.array, lanes.value_start)
    middle = start + (length >> 1)
    if ((length & 1) != 0).any() or (middle >= lanes.value_end).any():
        raise Irregular
    length, start = read_varints(lanes.array, middle)
    if ((length & 1) != 0).any() or (start + (length >> 1) != lanes.value_end).any():
        raise Irregular
    return start


def _timestamps(array: Bytes, start: Ints, end: Ints) -> Ints:
    """Microseconds: seconds then nanoseconds, either of them absent when 0."""
    seconds, position = _optional(array, start, end, _SECONDS)
    nanos, position = _optional(array, position, end, _NANOS)
    if (position != end).any() or (nanos >= 10**9).any() or (seconds > 253402300799).any():
        raise Irregular
    micros: Ints = seconds * 1_000_000 + nanos // 1000
    return micros


def _optional(array: Bytes, position: Ints, end: Ints, tag: int) -> tuple[Ints, Ints]:
    """The number behind ``tag`` where it stands at ``position``, else 0."""
    value = np.zeros(position.size, dtype=np.int64)
    position = position.copy()
    present: npt.NDArray[np.intp] = np.flatnonzero((position < end) & (array[position] == tag))
    value[present], position[present] = read_varints(array, position[present] + 1)
    return value, position
