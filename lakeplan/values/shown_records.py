"""The records of ``plan_parts`` as columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from lakeplan.values.plan_parts import Bit

RECORD = np.dtype([("digest", "S16"), ("bits", "u1")])
Digests = npt.NDArray[np.bytes_]


class Records:
    """Records by digest. Raises ValueError for bytes that are none."""

    def __init__(self, data: bytes = b"") -> None:
        if len(data) % RECORD.itemsize:
            raise ValueError("the objects that the plan showed are truncated")
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
        return count_absent(digests, self.of(bits))


def count_absent(digests: Digests, known: Digests) -> int:
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
