"""The Spark and the Java that a session starts with."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from lakeplan.cli.options import runners
from lakeplan.errors import SimulationFailed, UsageError
from lakeplan.simulation import spark
from lakeplan.simulation.runners import SPARK as SPARK_RUNNER
from lakeplan.simulation.spark import checked_home, parse_java_version, require_java, wrong_java
from tests.simulation.namespaces import NOW, History, Snapshot, Stored, entry, write_namespace

SPARK = spark.spark_of_pyspark()
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def it_reads_the_major_version_of_java(text: str, major: int | None) -> None:
    assert parse_java_version(text) == major


@pytest.mark.parametrize("home", [None, "nowhere"])
def it_says_in_one_line_how_to_get_java(
    home: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if home is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / home))
    with pytest.raises(SimulationFailed, match="Java is missing") as error:
        require_java()
    assert "openjdk-17" in error.value.hint


@pytest.mark.parametrize(
    ("spark", "java", "said", "hint"),
    [
        ("4.0.1", "11.0.2", "Java 11 is too old for Spark", "Spark 4.0 needs Java 17 or later"),
        ("4.3.0", "25", None, None),
        ("3.5.9", "1.8.0_402", None, None),
        ("3.5.9", "11.0.2", None, None),
        ("3.5.9", "25", "Java 25 is too new for Spark", "Spark 3.5 needs Java 8 to 17"),
    ],
)
def it_says_which_java_each_spark_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: str, java: str, said: str | None, hint: str | None
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{java}\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(pyspark, "__version__", spark)
    error = wrong_java()
    assert (error and error.message) == said
    if hint is not None and error is not None:
        assert hint in error.hint
        assert "--runner local, which does not need Java" in error.hint


def foreign_spark(folder: Path, version: str | None) -> Path:
    """Spark's folder as far as it is looked at; its programs leave a file behind when they run."""
    for name in ("bin/spark-submit", "bin/spark-class"):
        program = folder / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\ntouch {folder}/ran\nexit 1\n")
        program.chmod(0o755)
    if version is not None:
        (folder / "jars").mkdir()
        (folder / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return folder


class DescribeSparkHome:
    @pytest.mark.parametrize("version", ["3.5.1", "4.9.0-SNAPSHOT", None])
    def it_is_refused_when_it_is_of_another_version(self, tmp_path: Path, version: str | None) -> None:
        home = foreign_spark(tmp_path / "spark", version)
        with pytest.raises(SimulationFailed, match="--spark-home is") as error:
            checked_home(str(home))
        assert pyspark.__version__ in error.value.message
        assert error.value.where == str(home)

    def it_is_refused_when_it_has_no_spark(self, tmp_path: Path) -> None:
        with pytest.raises(SimulationFailed, match="does not contain bin/spark-submit"):
            checked_home(str(tmp_path))

    def it_is_taken_when_it_is_of_the_same_version(self, tmp_path: Path) -> None:
        assert checked_home(str(SPARK)) == SPARK
        home = foreign_spark(tmp_path / "spark", f"{pyspark.__version__}-mine")
        assert checked_home(str(home)) == home

    @pytest.mark.parametrize("home", ["spark", "./spark", ""])
    def it_is_a_whole_path(self, home: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """A checkout is written by strangers."""
        foreign_spark(tmp_path / "spark", pyspark.__version__)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(UsageError, match="relative path"):
            runners(SPARK_RUNNER, None, (), home)
        assert not (tmp_path / "spark" / "ran").exists()


class DescribeTheVariable:
    def it_is_ignored_and_logged(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        home = str(foreign_spark(tmp_path / "spark", pyspark.__version__))
        monkeypatch.setenv("SPARK_HOME", home)
        caplog.set_level(logging.INFO, logger="lakeplan")
        with spark._spark_environment(None):
            assert os.environ["SPARK_HOME"] == str(SPARK)
        assert caplog.messages == [
            f"SPARK_HOME={home} is ignored; to use that folder, pass it with --spark-home"
        ]
        with spark._spark_environment(home):
            assert os.environ["SPARK_HOME"] == home
        assert os.environ["SPARK_HOME"] == home

    def it_is_what_spark_submit_says(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("SPARK_HOME", str(tmp_path))
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
        with spark._spark_environment(None):
            assert os.environ["SPARK_HOME"] == str(tmp_path)

    def it_is_not_needed_beside_the_archive_of_a_distribution(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = foreign_spark(tmp_path / "spark", pyspark.__version__)
        package = home / "python" / "lib" / "pyspark.zip" / "pyspark" / "__init__.py"
        monkeypatch.setattr(pyspark, "__file__", str(package))
        assert spark.spark_of_pyspark() == home

    @pytest.mark.spark
    @pytest.mark.extended
    def it_does_not_stop_a_run(self, tmp_path: Path) -> None:
        home = foreign_spark(tmp_path / "spark", "3.5.1")
        found = simulated(sys.executable, tmp_path, SPARK_HOME=str(home))
        assert found["runner"]["name"] == "spark"
        assert not (home / "ran").exists()


OTHERS = os.environ.get("LAKEPLAN_TEST_PYTHONS", "")


@pytest.mark.spark
@pytest.mark.skipif(not OTHERS, reason="LAKEPLAN_TEST_PYTHONS names no Python with another Spark")
@pytest.mark.parametrize("python", OTHERS.split(os.pathsep))
def it_gives_the_same_figures_on_another_spark(python: str, tmp_path: Path) -> None:
    """``LAKEPLAN_TEST_PYTHONS``: interpreters that have lakeplan's requirements, each its own pyspark."""
    found, here = (simulated(each, tmp_path / str(n)) for n, each in enumerate((python, sys.executable)))
    for document in (found, here):
        for key in ("versions", "namespace"):
            del document[key]
        del document["refs"]["dumped"]
    assert found == here


def simulated(python: str, folder: Path, **environ: str) -> Any:
    """The document of a simulation on Spark in a separate process."""
    commits = [
        Snapshot("a", 60, (), (entry("x/1", "data/1", 1500),)),
        Snapshot("b", 50, ("a",)),
        Snapshot("c", 1, ("b",)),
    ]
    url = write_namespace(folder / "ns", History(commits, {"main": "c"}, {"data/1": Stored(1500)}, staged=[]))
    (folder / "rules.json").write_text('{"default_retention_days": 7}')
    given = ["--namespace", url, "--rules", str(folder / "rules.json"), "--as-of", NOW.isoformat()]
    known = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    done = subprocess.run(
        [python, "-P", "-m", "lakeplan", "simulate", *given, "--runner", "spark", "--format", "json"],
        env={**known, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    document = json.loads(done.stdout)
    assert document["rule_sets"][0]["objects"]["goes"] == {"objects": 1, "size_bytes": 1500}
    return document
