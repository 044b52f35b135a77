"""The document of ``lakeplan test`` (``schemas/test.v1.json``): results, and the graph with verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lakeplan.core.drawing import Drawing, Fate
from lakeplan.core.drawing_picture import picture
from lakeplan.core.drawing_tests import Expected, PolicyTest
from lakeplan.core.retention import CommitGraph
from lakeplan.model.desired import DesiredRepository, Source
from lakeplan.model.rules import GcRules

Row = dict[str, Any]


def result_document(
    test: PolicyTest,
    repository: DesiredRepository | None,
    rules: GcRules | None,
    rows: Sequence[Row],
    failures: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """One test. ``repository`` None: it could not be resolved."""
    return {
        "name": test.name,
        "file": test.source.file,
        "line": test.source.line,
        "column": test.source.column,
        "repository": test.repository if repository is None else repository.key,
        "entry": None if repository is None else repository.entry,
        "as_of": test.drawing.as_of.isoformat().replace("+00:00", "Z"),
        "judge": test.judge,
        "rules": None if rules is None else rules.to_body(),
        "passed": not failures,
        "checks": len(test.expected) + len(test.days),
        "failures": list(failures),
        "graph": list(rows),
    }


def failure(
    kind: str,
    message: str,
    why: str,
    *,
    ref: str | None = None,
    wanted: Fate | None = None,
    found: Fate | None = None,
    source: Source | None = None,
) -> dict[str, Any]:
    """``kind``: commit, object, days, or rules (the rules could not be told)."""
    return {
        "kind": kind,
        "message": message,
        "why": why,
        "ref": ref,
        "expected": wanted,
        "found": found,
        "line": None if source is None else source.line,
        "column": None if source is None else source.column,
    }


def rows_of(
    drawing: Drawing,
    graph: CommitGraph,
    fates: Sequence[Fate],
    reason: Callable[[int], str],
    wrong: Mapping[str, Expected],
) -> list[Row]:
    """The drawn graph, the newest commit first."""
    rows = []
    for row in picture(graph):
        name = graph.ids[row.commit]
        commit = drawing.commits[name]
        heads = [branch for branch, head in drawing.branches.items() if head == name]
        tags = [tag for tag, head in drawing.tags.items() if head == name]
        rows.append(
            {
                "lanes": row.lanes,
                "commit": name,
                "age_seconds": commit.age_seconds,
                "branches": sorted(heads),
                "tags": sorted(tags),
                "merges": list(commit.parents[1:]),
                "found": fates[row.commit],
                "expected": wrong[name].fate if name in wrong else None,
                "why": reason(row.commit),
            }
        )
    return rows
