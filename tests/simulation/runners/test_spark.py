"""The settings and files that Spark gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from lakeplan.simulation.impact import LocalOrSpark
from lakeplan.simulation.inputs import NamespaceMetadata
from lakeplan.simulation.local import PACKETS, Packet, PacketKind
from lakeplan.simulation.runners import SPARK, Runners, Step
from lakeplan.simulation.spark import SCHEMA, SparkRunner, places, spark_hash
from lakeplan.stores.open import open_namespace
from lakeplan.values.simulation import ImpactResult
from tests.simulation.namespaces import entry
from tests.simulation.test_impact import BEFORE, Repository

NUMBERS = [0, 1, 2, 7, 255, 65_536, 2**31 - 1]


@pytest.fixture
def session(spark: Runners) -> SparkSession:
    found = SparkSession.getActiveSession()
    assert found is not None
    return found


@pytest.mark.parametrize("partitions", [1, 2, 3, 17, 200])
def it_gives_every_partition_a_number_of_its_own(partitions: int) -> None:
    found = places(partitions)
    assert sorted(spark_hash(n) % partitions for n in found) == list(range(partitions))


@pytest.mark.spark
def it_says_to_spark_what_a_piece_is(session: SparkSession) -> None:
    spoken = to_arrow_schema(session.createDataFrame([], SCHEMA).schema)
    assert [(f.name, f.type) for f in spoken] == [(f.name, f.type) for f in PACKETS]


@pytest.mark.spark
def it_knows_where_spark_puts_a_number(session: SparkSession) -> None:
    frame = session.createDataFrame([(n,) for n in NUMBERS], "n int").select("n", F.hash("n").alias("h"))
    assert {row["n"]: row["h"] for row in frame.collect()} == {n: spark_hash(n) for n in NUMBERS}


@pytest.mark.spark
def it_brings_pieces_of_one_place_together_and_no_others(session: SparkSession) -> None:
    def first(packets: Iterable[Packet], shared: Any) -> Iterator[Packet]:
        for packet in packets:
            for place in range(5):
                yield Packet(place, packet.data[0], place, PacketKind.ROWS, packet.data)

    def then(packets: Iterable[Packet], shared: Any) -> Iterator[Packet]:
        found = list(packets)
        if found:
            sources = sorted(packet.source for packet in found)
            (part,) = {packet.part for packet in found}
            yield Packet(0, 0, part, PacketKind.COUNTS, repr((sources, shared)).encode())

    steps = [Step(first, 0), Step(then, 5)]
    found = list(SparkRunner(session).run([bytes([n]) for n in range(3)], steps, "shared"))
    assert sorted(packet.part for packet in found) == list(range(5))
    assert {packet.data for packet in found} == {b"([0, 1, 2], 'shared')"}


@pytest.mark.spark
def it_broadcasts_no_function_however_large(session: SparkSession) -> None:
    """Spark puts broadcasts into plain files, and functions carry the credentials of readers."""
    secret = "only-in-memory" * 200_000

    def lengths(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([len(secret)] * len(batch), pa.int64())], ["id"])

    (row,) = session.range(0, 1, 1, 1).mapInArrow(lengths, "id long").collect()
    assert row["id"] == len(secret)
    folder = Path(str(session.sparkContext._temp_dir))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not any(b"only-in-memory" in path.read_bytes() for path in files)


class _WithCredentials(NamespaceMetadata):
    """A reader that travels with a secret, as a server's does. Of every range it notes the files of
    ``watched`` that have the secret."""

    secret: str
    watched: Path
    found: Path

    def read_metadata(self, kind: Any, id: str) -> bytes:
        files = [file for file in self.watched.rglob("*") if file.is_file()]
        if any(self.secret.encode() in file.read_bytes() for file in files):
            self.found.write_bytes(b"")
        return super().read_metadata(kind, id)


@pytest.mark.spark
def it_leaves_no_credentials_in_files_on_the_way_to_the_workers(
    session: SparkSession, tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "ns")
    repository.commit(BEFORE, entry("a", "data/1"))
    reader = _WithCredentials(open_namespace(f"file://{repository.root}"))
    watched = Path(session.sparkContext._temp_dir).parent
    more = {"secret": "a-secret-" * 50_000, "watched": watched, "found": tmp_path / "found"}
    reader.__dict__.update(more)
    request = repository.request()
    request.__dict__["metadata"] = reader
    found = LocalOrSpark(Runners(SPARK)).impact([request])
    assert isinstance(found[repository.key], ImpactResult)
    assert not (tmp_path / "found").exists()
    files = [file for file in watched.rglob("*") if file.is_file()]
    assert files
    assert all(b"a-secret-" not in file.read_bytes() for file in files)
