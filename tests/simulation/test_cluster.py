"""The same job on a real standalone Spark on this machine: one master, two workers, each its own process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from lakeplan.simulation.archive import write_archive
from tests.simulation.namespaces import NOW, History, Snapshot, Stored, entry, write_namespace

pytestmark = [pytest.mark.spark, pytest.mark.extended]
ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__path__[0])
PATIENCE = 300.0
"""Seconds: the machine may be busy with other tests."""
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SMALL = (
    "spark.executor.memory=512m",
    "spark.executor.memoryOverhead=256m",
    f"spark.executor.extraJavaOptions={LIGHT_JAVA}",
    f"spark.driver.extraJavaOptions={LIGHT_JAVA}",
    "spark.sql.shuffle.partitions=2",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
)


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": LIGHT_JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a master with two workers, which end with the tests."""
    folder = tmp_path_factory.mktemp("cluster")
    with contextlib.ExitStack() as stack:
        log = _start(stack, folder / "master", "master.Master", "--port", "0")
        url = _wait_for(log, r"Starting Spark master at (spark://\S+)")
        options = ("--cores", "1", "--memory", "1g", url)
        logs = [_start(stack, folder / f"worker-{n}", "worker.Worker", *options) for n in range(2)]
        for log in logs:
            _wait_for(log, r"Successfully registered with (\S+)")
        yield url


def _start(stack: contextlib.ExitStack, folder: Path, name: str, *arguments: str) -> Path:
    folder.mkdir()
    log = folder / "log"
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
    if name.startswith("worker"):
        command += ["--work-dir", str(folder / "work")]
    # not in the checkout: executors have to get lakeplan from the driver
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--webui-port", "0", *arguments],
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={key: value for key, value in environment().items() if key != "PYTHONPATH"},
        )
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)
    return log


def _wait_for(log: Path, pattern: str) -> str:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found.group(1)
        time.sleep(0.1)
    pytest.fail(f"{log}: nothing like {pattern}\n{log.read_text(errors='replace')[-2000:]}")


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Some hundred objects in a history where some go and some are never committed."""
    folder = tmp_path_factory.mktemp("namespace")
    commits = [
        Snapshot(
            f"c{n}",
            40 - 6 * n,
            (f"c{n - 1}",) if n else (),
            tuple(
                entry(f"{at}/{n - n % 2}-{k}", f"data/{at}{n - n % 2}-{k}", 10 + k)
                for at in "abc"
                for k in range(9)
            ),
        )
        for n in range(7)
    ]
    stored = {e.address: Stored(e.size) for c in commits for e in c.entries} | {"data/junk": Stored(5)}
    url = write_namespace(folder / "ns", History(commits, {"main": "c6"}, stored, staged=["data/none"]))
    rules = folder / "rules.json"
    rules.write_text('{"default_retention_days": 9}')
    return ["--namespace", url, "--rules", str(rules), "--as-of", NOW.isoformat()]


@pytest.fixture(scope="module")
def local(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    output = tmp_path_factory.mktemp("local") / "out"
    _run([sys.executable, "-m", "lakeplan", "simulate", *arguments, "--output", str(output)])
    return result(output, "local")


def _run(command: list[str]) -> None:
    answer = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-4000:]


def result(output: Path, runner: str) -> dict[str, Any]:
    """What was written, but for who ran it."""
    tables: dict[str, Any] = {p.name: pq.read_table(p).to_pylist() for p in output.iterdir() if p.is_dir()}
    summary = json.loads((output / "summary.json").read_text())
    assert summary.pop("runner")["name"] == runner
    assert ("java" in summary.pop("versions")) is (runner == "spark")
    return {**tables, "summary": summary}


def test_a_cluster_by_master_gives_the_local_result(
    master: str, arguments: list[str], local: dict[str, Any], tmp_path: Path
) -> None:
    conf = [part for setting in SMALL for part in ("--spark-conf", setting)]
    output = tmp_path / "out"
    more = ["--master", master, *conf, "--output", str(output)]
    _run([sys.executable, "-m", "lakeplan", "simulate", *arguments, *more])
    assert local["objects"]
    assert result(output, "spark") == local


def test_spark_submit_with_the_archive_gives_the_local_result(
    master: str, arguments: list[str], local: dict[str, Any], tmp_path: Path
) -> None:
    archive, output = tmp_path / "lakeplan.zip", tmp_path / "out"
    write_archive(archive, schemas=ROOT / "schemas")
    conf = [part for setting in SMALL for part in ("--conf", setting)]
    submit = [str(SPARK / "bin" / "spark-submit"), "--master", master, *conf, "--py-files", str(archive)]
    _run([*submit, str(ROOT / "spark" / "simulate.py"), *arguments, "--output", str(output)])
    assert result(output, "spark") == local
