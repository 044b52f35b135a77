"""Which runner a run gets: the same for the same input, and never another than was chosen."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lakeplan.errors import LakeplanError, SimulationFailed, UsageError
from lakeplan.simulation import spark
from lakeplan.simulation.impact import LocalOrSpark
from lakeplan.simulation.runners import AUTO, LOCAL, LOCAL_ENTRIES, SPARK, Runners, choose
from tests.simulation.namespaces import entry
from tests.simulation.test_impact import BEFORE, Repository

MASTER = "spark://host:7077"


@pytest.fixture(autouse=True)
def not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


@pytest.mark.parametrize(
    ("asked", "entries", "master", "name", "reason"),
    [
        (LOCAL, 10 * LOCAL_ENTRIES, None, LOCAL, "requested"),
        (SPARK, 0, None, SPARK, "requested"),
        (SPARK, 0, MASTER, SPARK, "requested"),
        (AUTO, 0, MASTER, SPARK, "--master is set"),
        (AUTO, LOCAL_ENTRIES, None, LOCAL, "20,000,000 entries do not exceed the threshold of 20,000,000"),
        (AUTO, LOCAL_ENTRIES + 1, None, SPARK, "20,000,001 entries exceed the threshold of 20,000,000"),
    ],
)
def it_chooses_by_what_is_asked_then_by_the_master_then_by_entries(
    asked: str, entries: int, master: str | None, name: str, reason: str
) -> None:
    choice = choose(asked, entries, master=master)
    assert (choice.name, choice.reason) == (name, reason)


def it_takes_spark_for_what_spark_submit_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert choose(AUTO, 1, master=None).name == SPARK
    assert choose(LOCAL, 1, master=None).name == LOCAL


def it_refuses_a_master_for_threads() -> None:
    with pytest.raises(UsageError, match="cannot be combined with --master"):
        choose(LOCAL, 1, master=MASTER)


def it_refuses_a_runner_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match="dask") as error:
        Runners("dask")
    assert "auto, local, spark" in error.value.hint


def it_takes_what_the_tree_says_only_where_nobody_else_does() -> None:
    assert Runners(None).or_else(SPARK).asked == SPARK
    assert Runners(LOCAL).or_else(SPARK).asked == LOCAL
    assert Runners(AUTO).or_else(SPARK).asked == AUTO


def it_logs_its_choice_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="lakeplan")
    with Runners().open(5) as (runner, choice):
        assert (runner.name, choice.name) == (LOCAL, LOCAL)
    assert "runner local: 5 entries do not exceed the threshold of 20,000,000" in caplog.messages


@pytest.mark.parametrize("runners", [Runners(SPARK), Runners(master="local[1]")])
def it_fails_rather_than_take_another_runner(
    runners: Runners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SimulationFailed("Java is missing")

    monkeypatch.setattr(spark, "open_session", fail)
    repository = Repository(tmp_path / "ns")
    repository.commit(BEFORE, entry("a", "data/1"))
    found = LocalOrSpark(runners).impact([repository.request()])[repository.key]
    assert isinstance(found, LakeplanError)
    assert "Java is missing" in found.message
