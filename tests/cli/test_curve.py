"""``lakeplan curve`` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from lakeplan.cli.main import run
from lakeplan.errors import ExitCode
from tests.simulation.namespaces import NOW, History, Snapshot, entry, write_namespace

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "curve.v1.json").read_text())


@pytest.fixture
def namespace(tmp_path: Path) -> str:
    history = History(
        (
            Snapshot("a", 60, (), (entry("x/1", "data/p/1", 1500),)),
            Snapshot("b", 10.5, ("a",), (entry("x/2", "data/p/2", 20),)),
            Snapshot("c", 1.5, ("b",)),
        ),
        {"main": "c"},
    )
    return write_namespace(tmp_path / "ns", history)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.json"
    path.write_text('{"default_retention_days": 7, "branches": null}')
    return path


def arguments(namespace: str, rules: Path, *more: str) -> list[str]:
    source = ["curve", "--namespace", namespace, "--rules", str(rules), "--as-of", NOW.isoformat()]
    return [*source, "--no-listing", *more]


def it_writes_a_table_json_and_a_picture(
    namespace: str, rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, document = tmp_path / "curve.svg", tmp_path / "curve.json"
    more = ["--horizon", "30d", "--at", "5", "--format", "svg", "--out", str(picture)]
    more += ["--format", "json", "--out", str(document)]
    assert run(arguments(namespace, rules, *more)) == ExitCode.OK
    shown = capsys.readouterr()
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert "Default retention 0 2 1.5 kB 100 %" in lines
    assert [line for line in lines if line.startswith("→ 7 1 1.5 kB")]
    assert shown.err == ""
    found = json.loads(document.read_text())
    jsonschema.validate(found, SCHEMA)
    assert found["runner"] == {
        "name": "local",
        "reason": "2 entries do not exceed the threshold of 20,000,000",
    }
    assert [p["days"] for p in found["curves"][0]["points"]] == [0, 2, 11]
    assert [p["days"] for p in found["curves"][0]["server"]] == [5, 7]
    assert picture.read_text().startswith("<svg")


WRONG = [
    (("--horizon", "soon"), "--horizon"),
    (("--horizon", "36h"), "whole number of days"),
    (("--at", "-1"), "--at -1"),
    (("--at", "often"), "--at"),
    (("--time-zone", "Mars/Olympus"), "Mars/Olympus"),
    (("--format", "png"), "png"),
    (("--storage-namespace", "bucket"), "bucket"),
    (("analytics",), "specify either a repository or --namespace"),
]


@pytest.mark.parametrize(("more", "named"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_argument_is_named(
    namespace: str, rules: Path, more: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments(namespace, rules, *more)) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert named in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("given", [(), ("--namespace", "file:///x")])
def test_a_source_is_needed(given: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["curve", *given]) == ExitCode.USAGE
    assert "--rules" in capsys.readouterr().err
