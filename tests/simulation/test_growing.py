"""One cache over a history that grows and loses commits: every run answers as if it were the first."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakeplan.adapters.cache.folder import FolderCache
from lakeplan.adapters.storage import open_namespace
from lakeplan.errors import StorageNotFound
from lakeplan.formats.range_writer import write_range
from lakeplan.model.rules import GcRules
from lakeplan.ports.progress import Silent
from lakeplan.simulation.request import SimulateRequest
from lakeplan.simulation.rulesets import RuleSet
from lakeplan.simulation.run import simulate
from lakeplan.simulation.session import SparkOptions
from tests.simulation.namespaces import NOW, SERVER_URL, History, Snapshot, entry, write_namespace
from tests.simulation.reference import Reference
from tests.simulation.test_run import assert_same, histories, rule_sets, run

pytestmark = pytest.mark.spark


def until(history: History, count: int, *, staged: bool) -> History:
    """Its first commits, with branches at the last of them that each had."""
    commits = history.commits[:count]
    names = [commit.name for commit in commits]
    branches = {branch: at if at in names else names[-1] for branch, at in history.branches.items()}
    return replace(history, commits=commits, branches=branches, staged=history.staged if staged else None)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), histories(), rule_sets, st.booleans())
def test_a_history_that_changes_is_simulated_as_if_nothing_had_been_known(
    spark: SparkOptions, data: st.DataObject, history: History, rules: GcRules, url_known: bool
) -> None:
    url = SERVER_URL if url_known else None
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder), FolderCache(f"{folder}/cache", 10**9)
        for _ in range(3):
            count = data.draw(st.integers(1, len(history.commits)))
            now = until(history, count, staged=data.draw(st.booleans()))
            listing = data.draw(st.booleans())
            result = run(now, spark, rules, folder=root, listing=listing, storage_namespace=url, cache=cache)
            shutil.rmtree(root / "ns")
            assert_same(result, Reference(now, rules, listing=listing, url_known=url_known).answer())


def it_remembers_what_is_shared_of_runs_that_ended_well(spark: SparkOptions, tmp_path: Path) -> None:
    history = History(
        [Snapshot("a", 2, (), (entry("a/1", "data/p/1"), entry("b/1", "data/p/1")))], {"main": "a"}
    )
    for damaged in (True, False):
        folder = tmp_path / str(damaged)
        cache = FolderCache(f"{folder}/cache", 10**9)
        if damaged:
            write_namespace(folder / "ns", history)
            one_range(folder / "ns").unlink()
            request = SimulateRequest((RuleSet("rules", GcRules(7)),), NOW, listing=False)
            with pytest.raises(StorageNotFound):
                simulate(request, open_namespace(f"file://{folder}/ns"), spark, Silent(), cache)
        else:
            run(history, spark, GcRules(7), folder=folder, listing=False, cache=cache)
        assert bool(list((folder / "cache").rglob("all.shared"))) is not damaged


def one_range(root: Path) -> Path:
    info, _ = write_range([entry("a/1", "data/p/1")])
    return root / "_lakefs" / info.id


def it_broadcasts_no_function_however_large(spark: SparkOptions) -> None:
    """Spark puts broadcasts into plain files, and functions carry the credentials of readers."""
    session = SparkSession.getActiveSession()
    assert session is not None
    secret = "only-in-memory" * 200_000

    def lengths(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([len(secret)] * len(batch), pa.int64())], ["id"])

    (row,) = session.range(0, 1, 1, 1).mapInArrow(lengths, "id long").collect()
    assert row["id"] == len(secret)
    folder = Path(str(session.sparkContext._temp_dir))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not any(b"only-in-memory" in path.read_bytes() for path in files)
