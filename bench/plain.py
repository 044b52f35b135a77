"""The baseline: a plain program without lakeplan's decoder, cache and grouping.

    python bench/plain.py NAMESPACE_FOLDER RULES_DAYS OUTPUT

PySpark, one task a range, ranges decoded entry by entry in Python (about 120,000 entries a second a core,
protobuf included; block checksums are verified, content ids are not), then what expired ranges hold anti-join
what active ranges hold. The commits' verdicts and the lists of ranges come from lakeplan, for nothing; no
totals, branches or prefixes are made. Every range is read once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from repository import NOW

from lakeplan.formats.ranges import read_range
from lakeplan.retention.rules import server_verdict
from lakeplan.simulation.inputs import NamespaceMetadata, collect_ranges, read_history
from lakeplan.simulation.requests import Facts
from lakeplan.stores.open import open_namespace
from lakeplan.values.rules import GcRules

BATCH_ROWS = 10_000


def ranges(folder: str, days: int) -> tuple[list[str], list[str]]:
    """Ids of the ranges that active commits list, and of all others."""
    namespace = open_namespace(f"file://{folder}")
    graph = read_history(namespace).graph
    active = server_verdict(graph, GcRules(days), NOW, NOW.tzinfo)  # type: ignore[arg-type]
    facts: dict[str, Facts] = {}
    for flag, metarange in zip(active, graph.meta_range_ids, strict=True):
        facts[metarange] = facts.get(metarange, Facts()) | Facts(flag)
    items = collect_ranges(NamespaceMetadata(namespace), facts, name=folder).items
    return [i.name for i in items if i.mask], [i.name for i in items if not i.mask]


def reader(folder: str):  # type: ignore[no-untyped-def]
    def read(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
        for batch in batches:
            for name in batch.column("name").to_pylist():
                yield from rows(Path(folder, "_lakefs", name).read_bytes(), name)

    return read


def rows(data: bytes, name: str) -> Iterator[pa.RecordBatch]:
    columns: tuple[list[str], list[str], list[int]] = ([], [], [])
    for entry in read_range(data, name=name):
        columns[0].append(entry.address)
        columns[1].append(entry.path)
        columns[2].append(entry.size)
        if len(columns[0]) == BATCH_ROWS:
            yield pa.RecordBatch.from_arrays(list(map(pa.array, columns)), ["address", "path", "size"])
            columns = ([], [], [])
    if columns[0]:
        yield pa.RecordBatch.from_arrays(list(map(pa.array, columns)), ["address", "path", "size"])


def main() -> None:
    folder, days, output = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    active, expired = ranges(folder, days)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g")  # what lakeplan gives its own
    # Spark knows no sizes of what Python gives it, and would broadcast millions of addresses.
    spark = builder.config("spark.sql.autoBroadcastJoinThreshold", "-1").getOrCreate()
    read = reader(folder)

    def entries(names: list[str]):  # type: ignore[no-untyped-def]
        listed = spark.createDataFrame([(name,) for name in names], "name string")
        return listed.repartition(max(1, len(names))).mapInArrow(
            read, "address string, path string, size long"
        )

    kept = entries(active).select("address")
    gone = entries(expired).join(kept, "address", "left_anti").groupBy("address")
    found = gone.agg(F.max("size").alias("size_bytes"), F.collect_set("path").alias("paths"))
    found.write.parquet(f"file://{output}")
    written = spark.read.parquet(f"file://{output}").agg(F.count("*"), F.sum("size_bytes")).collect()[0]
    print(written[0], written[1] or 0)
    spark.stop()


if __name__ == "__main__":
    main()
