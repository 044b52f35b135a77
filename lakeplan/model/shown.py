"""What a plan showed, one by one: digests of the objects and commits that would expire.

A record has 17 bytes: 16 of BLAKE2b (digest size 16) over ``server/name``, a zero byte and the object's
address relative to its namespace (of a commit: ``commit``, a zero byte and its id), then one byte of ``Bit``.
Records are in ascending order of their digests, each digest once. See ``docs/plan-objects.md``.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

RECORD = np.dtype([("digest", "S16"), ("bits", "u1")])
BESIDE = {"beside": True}
"""Metadata of a field that is not in the document of a plan."""
INLINE_RECORDS = 2_000
"""Up to so many of a repository are in the plan file itself."""
Digests = npt.NDArray[np.bytes_]


class Bit(IntFlag):
    """Why a record is there."""

    NOW = 1
    """The object expires at once."""
    WEEK = 2
    """It expires within seven days, if nobody writes."""
    BACKLOG = 4
    """The stored rules do not keep it already."""
    COMMIT_NOW = 8
    COMMIT_WEEK = 16


@dataclass(frozen=True)
class Shown:
    """The records of one repository: how many, and the SHA-256 of all of them. ``inline`` has them in base64
    when they are few; otherwise they are in the file beside the plan, and ``data`` when that was read."""

    records: int
    sha256: str
    inline: str = ""
    data: bytes | None = field(default=None, compare=False, repr=False, metadata=BESIDE)

    @classmethod
    def of(cls, data: bytes) -> Shown:
        count = len(data) // RECORD.itemsize
        inline = base64.b64encode(data).decode() if count <= INLINE_RECORDS else ""
        return cls(count, hashlib.sha256(data).hexdigest(), inline, data)

    def is_of(self, data: bytes) -> bool:
        size = self.records * RECORD.itemsize
        return len(data) == size and hashlib.sha256(data).hexdigest() == self.sha256

    def read(self) -> Records | None:
        """The records; None when they are beside the plan and were not found there. Raises ValueError when
        they are not those that the plan names."""
        data = self.data
        if data is None and self.records and not self.inline:
            return None
        if data is None:
            data = base64.b64decode(self.inline, validate=True)
        if not self.is_of(data):
            raise ValueError("the objects that the plan showed are not those that it names")
        return Records(data)


class Records:
    """Records by digest. Raises ValueError for bytes that are none."""

    def __init__(self, data: bytes = b"") -> None:
        if len(data) % RECORD.itemsize:
            raise ValueError("the objects that the plan showed are cut")
        found: Any = np.frombuffer(data, RECORD)
        self._digests: Digests = np.ascontiguousarray(found["digest"])
        self._bits: npt.NDArray[np.uint8] = found["bits"]
        if not bool(np.all(self._digests[:-1] < self._digests[1:])):
            raise ValueError("the objects that the plan showed are not in order")

    def of(self, bits: Bit) -> Digests:
        """Digests that have any of these bits."""
        found: Digests = self._digests[(self._bits & int(bits)) != 0]
        return found

    def count(self, bits: Bit) -> int:
        return int(self.of(bits).size)

    def lacks(self, digests: Digests, bits: Bit) -> int:
        """How many of ``digests`` are not here with any of ``bits``."""
        return absent(digests, self.of(bits))


def absent(digests: Digests, known: Digests) -> int:
    """How many of ``digests`` are not among ``known``, which are in ascending order."""
    if not known.size:
        return int(digests.size)
    places = np.minimum(np.searchsorted(known, digests), known.size - 1)
    return int(np.count_nonzero(known[places] != digests))


def object_digests(key: str, addresses: Iterable[str]) -> Digests:
    """``key`` is ``server/name``; addresses are relative to the namespace."""
    start = hashlib.blake2b(f"{key}\0".encode("utf-8", "surrogatepass"), digest_size=16)
    found = []
    for address in addresses:
        digest = start.copy()
        digest.update(address.encode("utf-8", "surrogatepass"))
        found.append(digest.digest())
    return np.array(found, "S16")


def commit_digests(key: str, commits: Iterable[str]) -> Digests:
    return object_digests(f"{key}\0commit", commits)


def packed(parts: Iterable[tuple[Digests, int | npt.NDArray[np.uint8]]]) -> bytes:
    """Records of digests with their bits; bits of one digest are joined."""
    arrays = []
    for digests, bits in parts:
        records = np.empty(digests.size, RECORD)
        records["digest"], records["bits"] = digests, bits
        arrays.append(records)
    every = np.concatenate(arrays) if arrays else np.empty(0, RECORD)
    every = every[np.argsort(every["digest"], kind="stable")]
    if not every.size:
        return b""
    first = np.flatnonzero(np.concatenate(([True], every["digest"][1:] != every["digest"][:-1])))
    merged = every[first]
    merged["bits"] = np.bitwise_or.reduceat(every["bits"], first)
    return merged.tobytes()
