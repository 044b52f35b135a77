"""The records of ``plan.Shown`` as columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from lakeplan.values.plan import Bit

RECORD = np.dtype([("digest", "S16"), ("bits", "u1")])
Digests = npt.NDArray[np.bytes_]


class Records:
    """Records by digest. Raises ValueError for bytes that are not records."""

    def __init__(self, data: bytes = b"") -> None:
        if len(data) % RECORD.itemsize:
            raise ValueError("the recorded objects are truncated")
        records: Any = np.frombuffer(data, RECORD)
        self._digests: Digests = np.ascontiguousarray(records["digest"])
        self._bits: npt.NDArray[np.uint8] = records["bits"]
        if not bool(np.all(self._digests[:-1] < self._digests[1:])):
            raise ValueError("the recorded objects are not in order")

    def of(self, bits: Bit) -> Digests:
        """Return the digests that have any of these bits."""
        digests: Digests = self._digests[(self._bits & int(bits)) != 0]
        return digests

    def count(self, bits: Bit) -> int:
        return int(self.of(bits).size)

    def lacks(self, digests: Digests, bits: Bit) -> int:
        """Return how many of ``digests`` have no record with any of ``bits``."""
        return count_absent(digests, self.of(bits))


def count_absent(digests: Digests, known: Digests) -> int:
    """Return how many of ``digests`` are not in ``known``, which is in ascending order."""
    if not known.size:
        return int(digests.size)
    places = np.minimum(np.searchsorted(known, digests), known.size - 1)
    return int(np.count_nonzero(known[places] != digests))


def object_digests(key: str, addresses: Iterable[str]) -> Digests:
    """Return the digests of addresses, which are relative to the namespace of ``key`` (``server/name``)."""
    start = hashlib.blake2b(f"{key}\0".encode("utf-8", "surrogatepass"), digest_size=16)
    digests = []
    for address in addresses:
        digest = start.copy()
        digest.update(address.encode("utf-8", "surrogatepass"))
        digests.append(digest.digest())
    return np.array(digests, "S16")


def commit_digests(key: str, commits: Iterable[str]) -> Digests:
    return object_digests(f"{key}\0commit", commits)


def packed(parts: Iterable[tuple[Digests, int | npt.NDArray[np.uint8]]]) -> bytes:
    """Return the records of digests and their bits, in order. The bits of equal digests are combined."""
    arrays = []
    for digests, bits in parts:
        records = np.empty(digests.size, RECORD)
        records["digest"], records["bits"] = digests, bits
        arrays.append(records)
    joined = np.concatenate(arrays) if arrays else np.empty(0, RECORD)
    joined = joined[np.argsort(joined["digest"], kind="stable")]
    if not joined.size:
        return b""
    first = np.flatnonzero(np.concatenate(([True], joined["digest"][1:] != joined["digest"][:-1])))
    merged = joined[first]
    merged["bits"] = np.bitwise_or.reduceat(joined["bits"], first)
    return merged.tobytes()
