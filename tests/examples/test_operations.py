"""The scheduled jobs, their alerts and the dashboard: every command runs, every metric exists."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from lakeplan import __version__
from lakeplan.cli.main import whole_command
from lakeplan.output.metrics import FAMILIES

EXAMPLE = Path(__file__).parents[2] / "examples/operations"
ALERTS = EXAMPLE / "prometheus/alerts.yaml"
NAMES = {f"lakeplan_{name}": family for name, family in FAMILIES.items()}
METRIC = re.compile(r"\b(lakeplan_\w+)(\{[^}]*\})?")


def of_crontab() -> Iterator[str]:
    for line in (EXAMPLE / "crontab").read_text().splitlines():
        if not line.startswith("#"):
            yield line[line.index("lakeplan ") :].split("2>>")[0].split(">>")[0]


def of_kubernetes() -> Iterator[str]:
    for job in yaml.safe_load_all((EXAMPLE / "kubernetes.yaml").read_text()):
        pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 10001}
        assert container["image"] == f"lakeplan:{__version__}"
        named = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == named
        yield shlex.join(container["args"])


@dataclass
class FakeAirflow:
    """Stands in for Airflow, which is a large installation: it notes what a DAG file asks for."""

    dags: list[dict[str, Any]] = field(default_factory=list)
    commands: dict[str, str] = field(default_factory=dict)

    def modules(self) -> dict[str, ModuleType]:
        noted = self

        class DAG:
            def __init__(self, dag_id: str, **given: Any) -> None:
                noted.dags.append({"dag_id": dag_id, **given})

            def __enter__(self) -> DAG:
                return self

            def __exit__(self, *_: object) -> None: ...

        class BashOperator:
            def __init__(self, *, task_id: str, bash_command: str) -> None:
                noted.commands[task_id] = bash_command

            def __rshift__(self, other: BashOperator) -> BashOperator:
                return other

        airflow, operators, bash = (
            ModuleType(n) for n in ("airflow", "airflow.operators", "airflow.operators.bash")
        )
        airflow.DAG, bash.BashOperator = DAG, BashOperator  # type: ignore[attr-defined]
        return {"airflow": airflow, "airflow.operators": operators, "airflow.operators.bash": bash}


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> FakeAirflow:
    fake = FakeAirflow()
    for name, module in fake.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    runpy.run_path(str(EXAMPLE / "airflow_dag.py"))
    return fake


def parse(line: str) -> str:
    """The command of a line, checked with its options by the program itself."""
    program, *words = shlex.split(line)
    assert program == "lakeplan"
    command, path = whole_command(), []
    while words and hasattr(command, "commands"):
        path.append(words.pop(0))
        command = command.commands[path[-1]]
    assert command.make_context(path[-1], words)
    return " ".join(path)


def it_runs_four_jobs_from_cron_and_kubernetes() -> None:
    expected = ["drift", "plan", "branches run", "sweep mark"]
    assert [parse(line) for line in of_crontab()] == expected
    assert [parse(line) for line in of_kubernetes()] == expected


def it_runs_the_same_from_airflow(airflow: FakeAirflow) -> None:
    assert [dag["dag_id"] for dag in airflow.dags] == ["lakeplan_nightly", "lakeplan_weekly"]
    assert all(dag["max_active_runs"] == 1 and not dag["catchup"] for dag in airflow.dags)
    assert {task: parse(line) for task, line in airflow.commands.items()} == {
        "validate": "validate",
        "drift": "drift",
        "plan": "plan",
        "mark": "sweep mark",
    }


def it_writes_no_log_into_the_checkout() -> None:
    """A pull request could put a link to any file in its place."""
    text = (EXAMPLE / "crontab").read_text()
    written = re.findall(r"(?:>>|--out) *([^\s&]\S*)", text)
    assert set(written) == {
        '"$HOME/lakeplan.log"',
        "/var/lib/node_exporter/lakeplan_drift.prom",
        "/var/lib/node_exporter/lakeplan_plan.prom",
        "/var/lib/node_exporter/lakeplan_branches.prom",
    }


def expressions() -> Iterator[str]:
    for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]:
        yield rule["expr"]
    for panel in json.loads((EXAMPLE / "grafana.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def it_asks_for_metrics_and_labels_that_there_are() -> None:
    for expression in expressions():
        for name, labels in METRIC.findall(expression):
            asked = set(re.findall(r"(\w+) *[=!]", labels))
            assert asked <= set(NAMES[name].labels), (name, asked)


def it_shows_no_panel_over_another() -> None:
    taken: set[tuple[int, int]] = set()
    panels = json.loads((EXAMPLE / "grafana.json").read_text())["panels"]
    for at in (panel["gridPos"] for panel in panels):
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not taken & cells
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def it_tests_every_alert() -> None:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    tests = yaml.safe_load((EXAMPLE / "prometheus/alerts_test.yaml").read_text())["tests"]
    for rule in rules:
        expected = [
            case["exp_alerts"]
            for test in tests
            for case in test["alert_rule_test"]
            if case["alertname"] == rule["alert"]
        ]
        assert [] in expected, f"{rule['alert']}: a test in which it is quiet"
        assert any(expected), f"{rule['alert']}: a test in which it fires"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("what", [("check", "alerts.yaml"), ("test", "alerts_test.yaml")])
def it_passes_promtool(what: tuple[str, str]) -> None:
    verb, file = what
    done = subprocess.run(
        ["promtool", verb, "rules", file],
        cwd=ALERTS.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
