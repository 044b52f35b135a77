"""One Spark session for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakeplan.simulation.session import SparkOptions, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkOptions]:
    """Options under which every run uses the one session that is open."""
    options = SparkOptions(conf={"spark.sql.shuffle.partitions": "2"})
    with open_session(options, estimated_bytes=0):
        yield options
