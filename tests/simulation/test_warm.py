from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from lakeplan.errors import SimulationFailed
from lakeplan.simulation import spark, warm
from lakeplan.simulation.documents import SimulateRequest
from lakeplan.simulation.run import simulate
from lakeplan.simulation.runners import Runners
from lakeplan.simulation.verdicts import RULES, RuleSet
from lakeplan.values.progress import Silent
from lakeplan.values.rules import GcRules


def it_warms_with_a_run_in_which_something_goes(runners: Runners) -> None:
    day_100 = datetime.fromtimestamp(100 * 86_400, timezone.utc)
    request = SimulateRequest((RuleSet(RULES, GcRules(1)),), day_100)
    summary = simulate(request, warm.MemoryNamespace(), runners, Silent())
    assert summary["rule_sets"][0]["objects"]["goes"] == {"objects": 2, "size_bytes": 2}  # type: ignore[index]


def it_says_so_and_leaves_nothing_when_it_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object) -> None:
        raise SimulationFailed("Java is missing")

    monkeypatch.setattr(warm, "simulate", fail)
    monkeypatch.setattr(warm, "archive_path", lambda: tmp_path / "spark.jsa")
    assert warm.main() == 1
    assert "Java is missing" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", [True, False])
def it_uses_an_archive_that_is_there(there: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive = tmp_path / "with space" / "spark.jsa"
    monkeypatch.setattr(spark, "archive_path", lambda: archive)
    if there:
        archive.parent.mkdir()
        archive.write_bytes(b"")
    options = spark._settings(Runners())["spark.driver.extraJavaOptions"]
    assert (f'"-XX:SharedArchiveFile={archive}"' in options) == there
