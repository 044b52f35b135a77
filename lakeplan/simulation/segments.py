"""The rows that earlier runs read from ranges, kept so that a run reads only new ranges.

A *segment* is what one task made of some ranges: a row for each address, path and size with the set of
ranges that hold it (``table``), and the texts. It depends neither on rules nor on time, so it serves every
question. A *manifest* names the segments of a namespace. Both are in a ``RangeCache``, where anything may be
damaged or missing. Then the ranges are read again. A mark never uses segments.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import secrets
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa

from lakeplan.limits import parse_json
from lakeplan.simulation.observing import Source
from lakeplan.simulation.runners import Kind, WorkItem
from lakeplan.simulation.table import CODES, Booleans, Rows, Sets, pack, unpack

VERSION = 2
"""To be raised when the rows of a range change their meaning."""
MAX_SMALL = 16
"""The most small segments. With more, their ranges are read again and become a few larger segments."""
SMALL = 1 / 16
"""A segment is small below this share of the rows of the largest."""
LEAST_LIVE = 0.5
"""The least share of a segment's ranges that commits still list. Otherwise these ranges are read again."""
ROW_WEIGHT = 8
"""The weight of a segment's row, in bytes of a range."""
_HEAD = struct.Struct("<8s32sQQQ")
_MAGIC = b"LPSEG\x00\x00\x01"
_MAX_TEXT = (1 << 31) - 1
_MOST = 1 << 40
"""The most rows and bytes of a segment. No real segment comes near."""


class Segment(NamedTuple):
    """A segment in the cache. ``name`` begins with the checksum of the file. ``ranges`` are in the order of
    the segment's own leaves. ``rows`` is their number, ``size`` the bytes of the file."""

    name: str
    ranges: tuple[str, ...]
    rows: int
    size: int


@dataclass(frozen=True)
class Opened:
    """A segment that was read. The leaves of ``sets`` are its own ranges."""

    rows: Rows
    sets: Sets
    addresses: pa.StringArray
    paths: pa.StringArray

    def texts(self, chosen: Booleans) -> list[pa.Array]:
        """Addresses and paths of the chosen rows."""
        return [column.filter(pa.array(chosen)) for column in (self.addresses, self.paths)]


def to_bytes(ranges: Sequence[str], rows: Rows, sets: Sets, texts: Sequence[pa.Array]) -> bytes | None:
    """A segment as bytes, or None if there is more text than a segment can hold. ``texts`` are addresses and
    paths, one value for each row."""
    numbers = pack(rows, sets)
    parts = [_text_bytes(array) for array in texts]
    if any(len(part) > _MAX_TEXT for part in parts):
        return None
    return b"".join((_HEAD.pack(_MAGIC, _digest(ranges), len(numbers), *map(len, parts)), numbers, *parts))


def from_bytes(data: bytes, ranges: Sequence[str]) -> Opened:
    """The segment of these ranges. Raises ValueError for other bytes."""
    if len(data) < _HEAD.size:
        raise ValueError("a segment is truncated")
    magic, digest, *sizes = _HEAD.unpack_from(data)
    if magic != _MAGIC or digest != _digest(ranges) or len(data) != _HEAD.size + sum(sizes):
        raise ValueError("a segment is truncated, or it belongs to a different set of ranges")
    ends = [_HEAD.size + sum(sizes[:n]) for n in range(4)]
    numbers, first, second = (memoryview(data)[ends[n] : ends[n + 1]] for n in range(3))
    sets = Sets()
    rows = unpack(numbers, sets)
    if len(sets) > 1 and not 0 <= min(sets.leaf[1:]) <= max(sets.leaf[1:]) < CODES * len(ranges):
        raise ValueError("a segment has rows from ranges that it does not list")
    return Opened(rows, sets, _strings(len(rows), first), _strings(len(rows), second))


def _checksum(data: bytes) -> str:
    return f"{google_crc32c.value(data):08x}"


def _digest(ranges: Sequence[str]) -> bytes:
    return hashlib.sha256("\n".join(ranges).encode()).digest()


def _text_bytes(array: pa.Array) -> bytes:
    if not len(array):
        return bytes(4)
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    text = memoryview(data or b"")[int(places[0]) : int(places[-1])]
    offsets_from_0: bytes = (places - places[0]).astype("<i4").tobytes()
    return b"".join((offsets_from_0, text, bytes(-len(text) % 4)))  # pads to whole words


def _strings(count: int, part: memoryview) -> pa.StringArray:
    size = 4 * (count + 1)
    if len(part) < size:
        raise ValueError("the texts are truncated")
    array = pa.StringArray.from_buffers(count, pa.py_buffer(part[:size]), pa.py_buffer(part[size:]))
    array.validate(full=True)  # raises a ValueError, too
    return array


def write_segment(
    source: Source, ranges: Sequence[str], rows: Rows, sets: Sets, texts: Sequence[pa.Array]
) -> Segment | None:
    """Puts a segment into the source's cache. Returns None where it cannot be kept."""
    data = to_bytes(ranges, rows, sets, texts)
    if source.cache is None or data is None:
        return None
    segment = Segment(_checksum(data) + secrets.token_hex(12), tuple(ranges), len(rows), len(data))
    source.cache.put(_key(source, segment.name), data)
    return segment


def read_segment(source: Source, segment: Segment) -> Opened | None:
    """The segment, or None if it is missing or damaged."""
    data = None if source.cache is None else source.cache.get(_key(source, segment.name))
    if data is None or not segment.name.startswith(_checksum(data)):
        return None
    try:
        return from_bytes(data, segment.ranges)
    except ValueError:
        return None


def item_of(segment: Segment, source: int, numbers: Mapping[str, int]) -> WorkItem:
    """The item of a segment. ``numbers`` are those of the ranges asked about, among all items of the job."""
    places = [numbers.get(id, -1) for id in segment.ranges]
    weight = segment.rows * ROW_WEIGHT
    return WorkItem(Kind.SEGMENT, source, segment.name, weight, sort_key=pickle.dumps((segment, places)))


def segment_of(item: WorkItem) -> tuple[Segment, list[int]]:
    """The segment of an item, and the number of each of its ranges, -1 for ranges not asked about."""
    segment, places = pickle.loads(item.sort_key)
    return Segment(*segment), places


@dataclass(frozen=True)
class Manifest:
    """The segments of one namespace that the cache holds."""

    segments: tuple[Segment, ...] = ()

    @classmethod
    def read(cls, source: Source) -> Manifest:
        """The manifest in the cache; an empty one if it is missing or damaged."""
        data = None if source.cache is None else source.cache.get(_key(source, "manifest"))
        if data is None:
            return cls()
        try:
            document = parse_json(data)
            if document["version"] != VERSION:
                return cls()
            segments = [
                Segment(str(name), tuple(map(str, ranges)), int(rows), int(size))
                for name, ranges, rows, size in document["segments"]
            ]
        except (ValueError, TypeError, KeyError):
            return cls()
        if all(one.name.isalnum() and 0 <= one.rows <= _MOST and 0 <= one.size <= _MOST for one in segments):
            return cls(tuple(segments))
        return cls()

    def write(self, source: Source) -> None:
        content = {"version": VERSION, "segments": self.segments}
        if source.cache is not None:
            source.cache.put(_key(source, "manifest"), json.dumps(content).encode())

    def useful(self, ranges: Mapping[str, int]) -> tuple[Segment, ...]:
        """The segments to use for these ranges. No range is in two of them."""
        useful: list[Segment] = []
        covered: set[str] = set()
        for segment in sorted(self.segments, key=lambda one: -one.rows):
            live = [id for id in segment.ranges if id in ranges]
            if len(live) < LEAST_LIVE * len(segment.ranges) or not live or not covered.isdisjoint(live):
                continue
            covered.update(live)
            useful.append(segment)
        largest = max((segment.rows for segment in useful), default=0)
        small = [segment for segment in useful if segment.rows < SMALL * largest]
        return tuple(useful) if len(small) <= MAX_SMALL else tuple(s for s in useful if s not in small)

    @classmethod
    def after(cls, used: Sequence[Segment], written: Sequence[Segment]) -> Manifest:
        """The manifest after a run that used and wrote these segments. New segments replace damaged ones."""
        again = {id for segment in written for id in segment.ranges}
        return cls((*(s for s in used if again.isdisjoint(s.ranges)), *written))


def _key(source: Source, name: str) -> str:
    identity = repr((VERSION, source.name, source.addresses.namespaces))
    return f"objects/{hashlib.sha256(identity.encode(errors='surrogateescape')).hexdigest()}/{name}"
