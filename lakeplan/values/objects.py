"""Entries of ranges, and objects in storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


class AddressType(IntEnum):
    """Protobuf ``Entry.address_type`` (lakefs/format.md). ``BY_PREFIX`` comes from old versions: the address
    is full if it parses as a URI, and otherwise relative."""

    BY_PREFIX = 0
    RELATIVE = 1
    FULL = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """An object of a commit: its path, where it is stored, and its size in bytes.

    ``last_modified_us`` is UTC microseconds.
    """

    path: str
    address: str
    address_type: AddressType
    size: int
    last_modified_us: int = 0
    e_tag: str = ""
    content_type: str = ""
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RangeInfo:
    """A range of a metarange: its id (hex), key bounds, estimated bytes and number of entries."""

    id: str
    min_key: bytes
    max_key: bytes
    estimated_size: int
    count: int


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as its store describes it. ``key`` is relative to the namespace. ``modified_us`` is the
    storage's own time, UTC microseconds. ``e_tag`` is the store's ("" if it has none)."""

    key: str
    size: int
    modified_us: int
    e_tag: str = ""
    readable: bool = field(default=True, compare=False)
    """False for archived data, which must be restored before it is read or copied. S3 listings do not say."""

    @property
    def version(self) -> int:
        """A signed 64-bit number that differs for another object at the same key. The time alone is not
        enough, because S3 dates a multipart upload at its start."""
        text = f"{self.modified_us} {self.size} {self.e_tag}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in order, in lists of at most ``size``."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
