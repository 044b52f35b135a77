"""Drift as a page, from its document (``schemas/drift.v1.json``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from lakeplan.render.amounts import count, counted, days, moment
from lakeplan.render.page import Cell, Page

Json = Mapping[str, Any]

_STYLES = {
    "server-edited": "bold red",
    "tree-ahead": "bold yellow",
    "patterns-stale": "yellow",
    "released": "magenta",
    "unmanaged-new": "cyan",
}
_VALUES_SHOWN = 20
_SIDES = ("applied", "stored", "wanted")
_SETTINGS = {"branch_lifecycle": "policy", "object_lifecycle": "object rule"}


def render_drift(document: Json, console: Console) -> None:
    """Prints what drifted, repository by repository, then failures, then one line of counts."""
    page = Page(console)
    for repository in document["repositories"]:
        _repository(page, repository)
    if document["failures"]:
        compared = document["summary"]["checked"] - document["summary"]["failed"]
        page.heading("Not compared", "the others were" if compared else "")
        for failure in document["failures"]:
            lines = [page.join(Cell(failure["repository"], "bold")), page.join(failure["message"])]
            if failure["hint"]:
                lines.append(page.join(Cell("hint: ", "dim"), failure["hint"]))
            page.hanging(Cell("x", "bold red"), *lines)
    for note in document["notes"]:
        page.blank()
        page.hanging(Cell("i", "cyan"), page.join(note))
    page.blank()
    page.line(Cell("Drift:", "bold"), f" {_sum(document['summary'])}")


def _repository(page: Page, repository: Json) -> None:
    page.blank()
    parts: list[str | Cell] = [Cell(repository["repository"], "bold")]
    for name in repository["classes"]:
        parts += ["  ", Cell(name, _STYLES.get(name, "bold"))]
    page.line(*parts)
    facts = []
    if repository["last_applied"] is not None:
        last = repository["last_applied"]
        facts.append(f"last applied {moment(last['at'])} by run {last['run_id']}")
    if repository["owner"]:
        facts.append(f"owner {repository['owner']}")
    if repository["source"]:
        facts.append(repository["source"])
    for fact in (*facts, repository["note"]):
        if fact:
            page.line(Cell(fact, "dim"), indent=2)
    _table(
        page,
        "value",
        [[_class(v), _name(v["path"]), *(_days(v[side]) for side in _SIDES)] for v in repository["values"]],
        figures=(2, 3, 4),
    )
    _table(
        page,
        "item",
        [[_class(i), f"{_SETTINGS[i['setting']]} {i['item']}", *(_sides_of(i))] for i in repository["items"]],
        figures=(),
    )


def _table(page: Page, what: str, rows: list[list[str | Cell]], *, figures: tuple[int, ...]) -> None:
    if not rows:
        return
    head = ("", "", "applied", "on the server", "in the tree")
    page.table(head, rows[:_VALUES_SHOWN], figures=figures, solid=(0,))
    if len(rows) > _VALUES_SHOWN:
        more = f"and {counted(len(rows) - _VALUES_SHOWN, what)} more (--format json)"
        page.line(Cell(more, "dim"), indent=2)


def _class(row: Json) -> Cell:
    return Cell(row["class"], _STYLES.get(row["class"], ""))


def _sides_of(item: Json) -> list[Cell]:
    """The three sides of a policy or an object rule: of each the values in which they differ."""
    sides = [item[side] for side in _SIDES]
    there = [side for side in sides if side]
    keys = [key for key in {k: None for side in there for k in side} if key != "id"]
    differ = [key for key in keys if len({side.get(key) for side in there}) > 1] or keys
    return [_values_text(side, differ) if side else Cell("-", "dim") for side in sides]


def _values_text(side: Json, keys: list[str]) -> Cell:
    return Cell(", ".join(f"{key} {side.get(key, 'not set')}" for key in keys))


def _name(path: str) -> str:
    return f"branch {path.removeprefix('branches/')}" if path.startswith("branches/") else "default"


def _days(value: int | None) -> Cell:
    return Cell("-", "dim") if value is None else Cell(days(value))


def _sum(summary: Json) -> str:
    checked = f"{counted(summary['checked'] - summary['failed'], 'repository')} compared"
    failed = f", {count(summary['failed'])} could not be" if summary["failed"] else ""
    if not summary["drifted"]:
        known = "none" if summary["checked"] > summary["failed"] or not summary["failed"] else "not known"
        return f"{known}. {checked}{failed}."
    classes = ", ".join(f"{count(n)} {name}" for name, n in summary["classes"].items() if n)
    return f"{counted(summary['drifted'], 'repository')} ({classes}). {checked}{failed}."
