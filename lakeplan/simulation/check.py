"""Whether Spark works here: Java, a session, and a Python worker."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyspark

from lakeplan.errors import SimulationFailed
from lakeplan.simulation.session import SparkOptions, explained, open_session


def check_spark(options: SparkOptions) -> str:
    """Starts a session, lets a worker hand a row through, and says what ran. Raises SimulationFailed."""
    with open_session(options, estimated_bytes=0) as session, explained():
        rows = session.range(1).mapInArrow(_through, "id long").count()
        if rows != 1:
            raise SimulationFailed(f"a Spark worker handed {rows} rows through instead of 1")
        return f"Spark {pyspark.__version__}, master {session.sparkContext.master}, a Python worker answers"


def _through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
