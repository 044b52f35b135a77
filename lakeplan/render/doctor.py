"""What ``lakeplan doctor`` found, area by area (``schemas/doctor.v1.json``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from lakeplan.render.amounts import count, counted
from lakeplan.render.page import Cell, Page

Json = Mapping[str, Any]

_STYLES = {"ok": "green", "warn": "bold yellow", "fail": "bold red"}


def render_doctor(document: Json, console: Console) -> None:
    """Prints every check in its order, what to do under each that is not ok, and the counts."""
    page = Page(console)
    area = ""
    for check in document["checks"]:
        if check["area"] != area:
            area = check["area"]
            page.heading(area)
        result = check["result"]
        lines = [page.join(Cell(check["check"], "bold"), f"  {check['message']}")]
        if check["hint"] and result != "ok":
            lines.append(page.join(Cell("do: ", "dim"), check["hint"]))
        page.hanging(Cell(result, _STYLES.get(result, "")), *lines, lead_width=4)
    summary = document["summary"]
    page.blank()
    page.line(
        Cell(f"Doctor ({document['for']}):", "bold"),
        f" {count(summary['ok'])} ok, {counted(summary['warn'], 'warning')},",
        f" {count(summary['fail'])} failed.",
    )
