"""Pins in a plan: which are missing, stale and retired, and what only each protects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeplan.output.page import Cell, Page, code, prose, table
from lakeplan.output.plan_changes import ITEM_MARKS, key_of, pins_change
from lakeplan.output.text import UNKNOWN, count, counted, days, size

Json = Mapping[str, Any]
PINS = "hidden branches that keep commits from every collector"
_MARKS = {"missing": "add", "stale": "change", "retired": "clear"}
_SHOWN = 20


def changing(repository: Json) -> list[Json]:
    """Pins that an apply would make, give another rule, or delete."""
    if not pins_change(repository):
        return []
    return [pin for pin in repository["pins"]["pins"] if pin["state"] != "kept"]


def _row(pin: Json) -> list[str]:
    own = pin["retention_days"]
    rule = "default" if own is None else days(own)
    objects = UNKNOWN if pin["objects"] is None else count(pin["objects"])
    amount = UNKNOWN if pin["size_bytes"] is None else size(pin["size_bytes"])
    reasons = "no longer asked for" if pin["state"] == "retired" else ", ".join(pin["reasons"])
    return [pin["branch_id"], pin["state"], rule, reasons, objects, amount]


_HEADERS = ("", "rule", "for", "protects alone", "")


def render_pins(page: Page, document: Json) -> None:
    """The pins of every repository where some change."""
    found = [r for r in document["repositories"] if r["failure"] is None and changing(r)]
    if found:
        page.heading("Pins", PINS)
    for repository in found:
        pins = changing(repository)
        page.blank()
        page.line(Cell(key_of(repository), "bold"), f": {_counts(repository)}")
        rows: list[list[str | Cell]] = []
        for pin in pins[:_SHOWN]:
            name, state, rule, reasons, objects, amount = _row(pin)
            rows.append([ITEM_MARKS[_MARKS[state]], name, state, rule, reasons, objects, amount])
        page.table(("", "", *_HEADERS), rows, solid=(0, 1), figures=(5, 6), indent=3)
        if len(pins) > _SHOWN:
            page.dim(f"and {count(len(pins) - _SHOWN)} more, in the plan file", indent=3)


def _counts(repository: Json) -> str:
    states = [pin["state"] for pin in repository["pins"]["pins"]]
    parts = [f"{count(states.count(s))} {s}" for s in ("missing", "stale", "retired", "kept") if s in states]
    return ", ".join(parts)


def markdown_pins(repository: Json) -> str:
    """A heading and a table of the pins that change; empty when none does."""
    pins = changing(repository)
    if not pins:
        return ""
    rows = []
    for pin in pins[:_SHOWN]:
        name, state, rule, reasons, objects, amount = _row(pin)
        rows.append([code(name), state, rule, prose(reasons), objects, amount])
    more = (
        f"\nand {counted(len(pins) - _SHOWN, 'pin')} more, in the plan file\n" if len(pins) > _SHOWN else ""
    )
    title = f"\n#### {code(key_of(repository))}: pins, {_counts(repository)}\n\n"
    headers = ("pin", "", "rule", "for", "objects that it alone protects", "bytes")
    return title + table(headers, rows, figures=(4, 5)) + more
