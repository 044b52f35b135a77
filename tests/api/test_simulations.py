"""A simulation for scripts is the command's."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

from lakeplan.api import SimulateOptions, UsageError, simulate
from lakeplan.tree.schemas import load_schema
from lakeplan.values.rules import GcRules
from tests.simulation.namespaces import NOW, History, Snapshot, entry, write_namespace


def it_judges_commits_without_spark_and_writes_tables(tmp_path: Path) -> None:
    history = History(
        [
            Snapshot("one", 90, (), (entry("a", "data/x/1"),)),
            Snapshot("two", 40, ("one",)),
            Snapshot("three", 3, ("two",)),
        ],
        {"main": "three"},
    )
    url = write_namespace(tmp_path / "namespace", history)
    document = simulate(
        url,
        GcRules(7),
        as_of=NOW,
        compare=GcRules(60),
        output=tmp_path / "out",
        options=SimulateOptions(commits_only=True),
    )
    jsonschema.validate(document, load_schema("simulate"))
    assert [(r["name"], r["commits"]["active"]) for r in document["rule_sets"]] == [
        ("rules", 2),
        ("compare", 3),
    ]
    assert (tmp_path / "out" / "summary.json").is_file()
    assert list((tmp_path / "out" / "commits").glob("*.parquet"))


@pytest.mark.parametrize(
    ("options", "compare"),
    [
        ({"min_age": timedelta(hours=-24)}, None),
        ({"max_uncommitted_age": timedelta(microseconds=-1)}, None),
        ({}, GcRules(7, {"main": cast(int, float("nan"))})),
    ],
)
def it_refuses_what_the_command_refuses(tmp_path: Path, options: Any, compare: GcRules | None) -> None:
    history = History([Snapshot("one", 90, (), (entry("a", "data/x/1"),))], {"main": "one"})
    url = write_namespace(tmp_path, history)
    with pytest.raises(UsageError, match=r"must not be negative|invalid GC rules"):
        simulate(url, GcRules(7), as_of=NOW, compare=compare, options=SimulateOptions(True, **options))
