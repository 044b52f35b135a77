"""The entries of a range that may mean an object outside their own repository's namespace, packed small."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

import numpy as np

from lakeplan.formats.range_arrays import RangeArrays
from lakeplan.model.objects import AddressType

Odd = tuple[str, int]
"""An address as it is stored, and its type."""


def odd_entries(arrays: RangeArrays) -> list[Odd]:
    """All but relative addresses in a usual spelling, each once."""
    rows = np.flatnonzero((arrays.address_types != AddressType.RELATIVE) | arrays.unusual)
    types = arrays.address_types[rows].tolist()
    return sorted(set(zip(arrays.addresses(rows), types, strict=True)))


def pack_odd(entries: Sequence[Odd]) -> bytes:
    """Empty for none."""
    return zlib.compress(json.dumps(entries, separators=(",", ":")).encode(), 1) if entries else b""


def unpack_odd(data: bytes) -> list[Odd]:
    """What ``pack_odd`` packed. Raises ValueError for nothing: that there is none is known without it."""
    if not data:
        raise ValueError("no packed entries")
    return [(address, kind) for address, kind in json.loads(zlib.decompress(data))]
