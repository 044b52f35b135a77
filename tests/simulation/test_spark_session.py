from __future__ import annotations

import logging
import subprocess
import time

import pytest

from lakeplan.errors import SimulationFailed
from lakeplan.simulation import spark
from lakeplan.simulation.runners import Runners
from lakeplan.simulation.spark import explained


def it_spares_the_second_compiler_where_the_jvm_has_little_to_do() -> None:
    assert "TieredStopAtLevel" in spark._settings(Runners())["spark.driver.extraJavaOptions"]


def it_lets_a_person_override_every_setting() -> None:
    options = Runners(master="local[1]", conf=(("spark.ui.enabled", "true"),))
    settings = spark._settings(options)
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.master"] == "local[1]"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"


def it_leaves_the_addresses_of_a_cluster_alone() -> None:
    settings = spark._settings(Runners(master="spark://host:7077"))
    assert "spark.driver.bindAddress" not in settings
    assert "spark.driver.memory" not in settings


def it_keeps_what_spark_says_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger=spark.__name__)
    with pytest.raises(SimulationFailed, match="the Spark job failed: first line") as error, explained():
        raise spark.PySparkException("first line\nat org.apache.spark…")
    assert "org.apache" in error.value.detail
    assert "org.apache" not in str(error.value)


def it_logs_what_spark_prints_line_by_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger=spark.__name__)
    with spark._logged() as stream:
        subprocess.run(["printf", r"one\n::error::two\n"], stdout=stream, check=True)
    end = time.monotonic() + 10
    while len(caplog.messages) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert caplog.messages == ["one", "::error::two"]
