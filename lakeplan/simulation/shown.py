"""Digests of the objects that expire, out of a simulation: what a plan shows, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from lakeplan.model.shown_records import RECORD, object_digests, packed
from lakeplan.simulation.counted import Counted, objects_in

DIGESTS = StructType(
    [StructField("source", IntegerType(), False), StructField("records", BinaryType(), False)]
)
_ARROW = pa.schema(
    [pa.field("source", pa.int32(), nullable=False), pa.field("records", pa.binary(), nullable=False)]
)


class Naming(NamedTuple):
    """What is asked of one repository: ``key`` is ``server/name``, ``bits`` are what each transition's
    objects get, with the transition's verdict bits before and after."""

    key: str
    bits: tuple[tuple[int, int, int], ...]


def records_of(objects: pa.Table, naming: Naming) -> bytes:
    """Records of some objects of one repository (``pieces.GOING``)."""
    masks = objects["mask"].to_numpy().astype(np.int64, copy=False)
    bits: npt.NDArray[np.uint8] = np.zeros(masks.size, np.uint8)
    for bit, before, after in naming.bits:
        bits[(masks & before != 0) & (masks & after == 0)] |= bit
    going = bits != 0
    addresses = objects["address"].filter(pa.array(going)).to_pylist()
    return packed([(object_digests(naming.key, addresses), bits[going])])


def records_in_spark(objects: Counted, naming: Mapping[int, Naming]) -> dict[int, bytes]:
    """The same for many objects, by the number of their repository: workers make the digests, and the driver
    holds no address."""

    def digest(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
        return _digest(batches, naming)

    rows = objects_in(objects).select("source", "address", "mask").mapInArrow(digest, DIGESTS)
    parts: dict[int, list[bytes]] = {}
    for row in rows.toLocalIterator():
        parts.setdefault(row["source"], []).append(bytes(row["records"]))
    return {source: joined(found) for source, found in parts.items()}


def joined(parts: Sequence[bytes]) -> bytes:
    """Records of several parts as one, in order."""
    every = np.frombuffer(b"".join(parts), RECORD)
    return packed([(np.ascontiguousarray(every["digest"]), every["bits"])])


def _digest(batches: Iterable[pa.RecordBatch], naming: Mapping[int, Naming]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        for source in table["source"].unique().to_pylist():
            if source in naming:
                of_source = table.filter(pc.equal(table["source"], source))
                data = records_of(of_source, naming[source])
                yield pa.RecordBatch.from_arrays(
                    [pa.array([source], pa.int32()), pa.array([data], pa.binary())], schema=_ARROW
                )
