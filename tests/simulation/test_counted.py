"""How rows are spread over partitions."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakeplan.simulation.counted import places, spark_hash
from lakeplan.simulation.session import SparkOptions

NUMBERS = [0, 1, 2, 7, 255, 65_536, 2**31 - 1]


@pytest.mark.spark
def it_knows_where_spark_puts_a_number(spark: SparkOptions) -> None:
    session = SparkSession.getActiveSession()
    assert session is not None
    frame = session.createDataFrame([(n,) for n in NUMBERS], "n int").select("n", F.hash("n").alias("h"))
    assert {row["n"]: row["h"] for row in frame.collect()} == {n: spark_hash(n) for n in NUMBERS}


@pytest.mark.parametrize("partitions", [1, 2, 3, 17, 200])
def it_gives_every_partition_a_number_of_its_own(partitions: int) -> None:
    found = places(partitions)
    assert sorted(spark_hash(n) % partitions for n in found) == list(range(partitions))
