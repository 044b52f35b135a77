"""Reports of collections for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from lakeplan.render.amounts import count, moment
from lakeplan.render.page import Cell, Page


def render_collector_runs(document: Mapping[str, Any], console: Console) -> None:
    page = Page(console)
    for key, runs in document["repositories"].items():
        page.heading(key, "collections")
        if not runs:
            page.line("none is recorded", indent=2)
            continue
        rows = [
            (
                run["run_id"],
                run["by"] or "?",
                moment(run["started"]) if run["started"] else "",
                "" if run["objects"] is None else count(run["objects"]),
                _what(run),
            )
            for run in runs
        ]
        page.table(("run", "by", "began", "objects", ""), rows, figures=(3,), solid=(0,))
    for key, failure in document["failed"].items():
        page.heading(key, "not read")
        page.line(Cell("FAILED", "bold red"), f" {failure['message']}", indent=2)


def _what(run: Mapping[str, Any]) -> str:
    if run["note"]:
        return str(run["note"])
    if run["success"] is False:
        return "failed"
    return "seen deleted" if run["by"] == "lakeplan" else "marked; it does not say what was deleted"
