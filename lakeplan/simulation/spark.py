"""Steps in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from lakeplan.simulation.documents import RunnerVersions
from lakeplan.simulation.exchange import Of, Piece, pieces_in, to_batch
from lakeplan.simulation.runners import SPARK, Batches, Step
from lakeplan.simulation.session import explained

SCHEMA = "place int, source int, part int, of int, data binary"
"""``exchange.PIECES`` for Spark; a test compares the two."""
_WORD = 0xFFFFFFFF


class SparkRunner:
    """``Runner`` over a session."""

    name = SPARK

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def parallelism(self) -> int:
        return self._session.sparkContext.defaultParallelism

    @property
    def versions(self) -> RunnerVersions:
        jvm = self._session.sparkContext._jvm
        java = str(jvm.java.lang.System.getProperty("java.version")) if jvm is not None else ""
        return {"pyspark": pyspark.__version__, "java": java}

    def run(self, bins: Sequence[bytes], steps: Sequence[Step], shared: Any) -> Iterator[Piece]:
        """See ``Runner``. Raises SimulationFailed when Spark stops."""
        # Broadcasts lie in plain temporary files; steps carry credentials, and travel as functions over a
        # socket.
        given = self._session.sparkContext.broadcast((tuple(bins), shared))

        def first(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
            numbers = (number for batch in batches for number in batch.column("id").to_pylist())
            pieces = (to_batch(Piece(0, 0, 0, Of.BIN, given.value[0][number])) for number in numbers)
            return steps[0].run(pieces, given.value[1])

        def then(step: Step):  # type: ignore[no-untyped-def]
            def run(batches):  # type: ignore[no-untyped-def]
                return step.run(batches, given.value[1])

            return run

        with explained():
            frame = self._session.range(0, len(bins), 1, len(bins)).mapInArrow(first, SCHEMA)
            for step in steps[1:]:
                placed = frame.mapInArrow(_placing(places(step.places)), SCHEMA)
                frame = placed.repartition(step.places, "place").mapInArrow(then(step), SCHEMA)
            frame = frame.persist()
            try:
                frame.count()
                for row in frame.toLocalIterator(prefetchPartitions=True):
                    yield Piece(row.place, row.source, row.part, row.of, bytes(row.data))
            finally:
                frame.unpersist()
                given.unpersist()


def _placing(numbers: Sequence[int]):  # type: ignore[no-untyped-def]
    """Puts into ``place`` the number that Spark's ``repartition`` puts into a partition of its own."""

    def run(batches: Batches):  # type: ignore[no-untyped-def]
        for piece in pieces_in(batches):
            yield to_batch(piece._replace(place=numbers[piece.place]))

    run.__annotations__ = {}
    return run


def places(partitions: int) -> tuple[int, ...]:
    """For each partition a number that Spark's ``repartition`` puts into a partition of its own."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < partitions:
        found.setdefault(spark_hash(number) % partitions, number)
        number += 1
    return tuple(found.values())


def spark_hash(number: int) -> int:
    """Spark SQL's ``hash`` of one int: Murmur3, 32 bits, seed 42, signed. Were it another, partitions would
    be uneven, and nothing else."""
    mixed = _turned(number * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    value = (_turned(42 ^ mixed, 13) * 5 + 0xE6546B64 & _WORD) ^ 4
    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _WORD
