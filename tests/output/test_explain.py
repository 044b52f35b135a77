"""Explanations as people see them, from a namespace that is drawn here."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lakeplan.cli.commands.explain import NamespaceOptions
from lakeplan.explain.explain import Question, explain
from lakeplan.output.explain import _remedy, render_explain
from lakeplan.values.progress import Silent
from tests.simulation.namespaces import NOW, History, Snapshot, Stored, entry, write_namespace

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "explain.v1.json").read_text())
RULES = {"default_retention_days": 7, "branches": [{"branch_id": "main", "retention_days": 100}]}
COMPARE = {"default_retention_days": 21, "branches": [{"branch_id": "main", "retention_days": 365}]}

# "a" sorts first: main's walk visits "p" without marking it, and that of "f" stops there (the early stop).
HISTORY = History(
    commits=(
        Snapshot("o", 400, entries=(entry("raw/old.csv", "data/old", 10),)),
        Snapshot("p", 200, ("o",), (entry("raw/a.csv", "data/a", 2_500_000),)),
        Snapshot("a", 150, ("p",), (entry("raw/b.csv", "data/b", 30),)),
        Snapshot("f", 3, ("p",), (entry("raw/c.csv", "data/c", 40),)),
    ),
    branches={"main": "a", "feature": "f"},
    stored={"data/old": Stored(10), "data/a": Stored(2_500_000), "data/b": Stored(30), "data/c": Stored(40)},
    tags={"v1": "p"},
)


@pytest.mark.parametrize(
    ("retention", "said"), [(2, "2 days later"), (1, "1 day later"), (0, "immediately"), (-5, "immediately")]
)
def it_says_when_an_object_expires_whose_branch_moves_on(retention: int, said: str) -> None:
    remedy = {"kind": "move_head", "branch": "main", "days": None, "days_now": retention, "commit_id": None}
    assert _remedy(remedy, "at most").endswith(f"and it expires {said}")  # type: ignore[arg-type]


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    url = write_namespace(tmp_path / "ns", HISTORY)
    files = []
    for name, rules in (("rules", RULES), ("compare", COMPARE)):
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(rules))

    def ask(*questions: str) -> list[dict[str, Any]]:
        world = NamespaceOptions(rules=files[0], compare_rules=files[1]).world(url, NOW)
        documents = [explain(world, question(q), Silent()) for q in questions]
        for document in documents:
            jsonschema.validate(document, SCHEMA)
            document["name"] = "s3://bucket/ns"
        return documents

    return ask


def question(text: str) -> Question:
    return Question(text, kind="address" if text.startswith("data/") else None)


def render_all(documents: list[dict[str, Any]], console: Any) -> None:
    for document in documents:
        render_explain(document, console)
        console.print()


@pytest.mark.parametrize("width", [80, 160])
def it_looks_as_reviewed(asked: Any, show: Any, golden_output: Any, width: int) -> None:
    documents = asked("raw/a.csv", "data/old", "main:raw/b.csv", "main", "v1")
    golden_output(f"explain-{width}", show(render_all, documents, width))


def it_tells_the_early_stop(asked: Any, show: Any) -> None:
    text = show(render_all, asked("raw/a.csv"), 200)
    assert "AT RISK: the server would delete it although the documented rule keeps it" in text
    assert "the walk of branch main (100 days) visits it but does not mark it" in text
    assert "the walk of branch feature (7 days), which would mark it, comes later and stops there" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def it_keeps_to_the_width(asked: Any, show: Any, width: int) -> None:
    text = show(render_all, asked("raw/a.csv", "main", "v1"), width)
    assert max(map(len, text.splitlines())) <= width


def it_counts_the_branches_and_tags_of_a_commit_that_it_does_not_name(
    asked: Any, show: Any, tmp_path: Path
) -> None:
    more = {f"b{n:02}": "p" for n in range(12)}, {f"t{n:02}": "p" for n in range(13)}
    shutil.rmtree(tmp_path / "ns")
    write_namespace(tmp_path / "ns", replace(HISTORY, branches=HISTORY.branches | more[0], tags=more[1]))
    (document,) = asked("t00")
    (subject,) = document["subjects"]
    assert (len(subject["head_of"]), len(subject["tags"])) == (12, 13)
    text = show(render_all, [document], 200)
    assert "b09 and 2 more" in text
    assert "t09 and 3 more (tags do not protect data)" in text
