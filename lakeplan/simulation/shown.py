"""Digests of the objects that expire, out of a simulation: what a plan shows, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeplan.model.shown_records import RECORD, object_digests, packed


class Naming(NamedTuple):
    """What is asked of one repository: ``key`` is ``server/name``, ``bits`` are what each transition's
    objects get, with the transition's verdict bits before and after."""

    key: str
    bits: tuple[tuple[int, int, int], ...]


def records_of(objects: pa.Table, naming: Naming) -> bytes:
    """Records of some objects of one repository (``steps.OBJECTS``)."""
    masks = objects["mask"].to_numpy().astype(np.int64, copy=False)
    bits: npt.NDArray[np.uint8] = np.zeros(masks.size, np.uint8)
    for bit, before, after in naming.bits:
        bits[(masks & before != 0) & (masks & after == 0)] |= bit
    going = bits != 0
    addresses = objects["address"].filter(pa.array(going)).to_pylist()
    return packed([(object_digests(naming.key, addresses), bits[going])])


def joined(parts: Sequence[bytes]) -> bytes:
    """Records of several parts as one, in order."""
    every = np.frombuffer(b"".join(parts), RECORD)
    return packed([(np.ascontiguousarray(every["digest"]), every["bits"])])
