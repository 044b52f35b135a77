"""Runs of the history, in a list and one by one (``schemas/history.v1.json``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from lakeplan.model.settings import SettingKind
from lakeplan.render.amounts import counted, days, moment
from lakeplan.render.page import Cell, Page, names

Json = Mapping[str, Any]

_STYLES = {
    "applied": "green",
    "already": "",
    "failed": "bold red",
    "uncertain": "bold red",
    "pending": "bold yellow",
}
_MARKS = {"add": Cell("+", "green"), "change": Cell("~", "yellow"), "clear": Cell("-", "red")}
_PENDING = "killed in the middle: whether it was written was not recorded"
_NO_RULES = "no rules"
_WIDE = 100
"""Below it the column of starts goes, with which the id of a run begins: an id has to be copied whole."""


def render_history(document: Json, console: Console) -> None:
    """Prints the list, newest first as it comes; damaged records last."""
    page = Page(console)
    rows = [_row(run) for run in document["runs"]]
    if rows and page.width < _WIDE:
        page.table(
            ("run", "by", "tree", "repositories"), [[r[0], *r[2:]] for r in rows], solid=(0, 2), indent=0
        )
    elif rows:
        page.table(("run", "started", "by", "tree", "repositories"), rows, solid=(0, 1, 3), indent=0)
    else:
        page.line("No run is recorded in the state.")
    for key in document["damaged"]:
        page.hanging(Cell("x", "bold red"), page.join(f"{key} is damaged and cannot be read"))


def _row(run: Json) -> list[str | Cell]:
    return [run["run_id"], moment(run["started_at"]), _who(run["by"]), _commit(run), _counts(run)]


def _commit(run: Json) -> str:
    return (run["tree_commit"] or "")[:8]


def _who(by: Json) -> str:
    user, host = by.get("user", ""), by.get("host", "")
    return f"{user}@{host}" if user and host else str(user or host or "unknown")


def _counts(run: Json) -> Cell:
    counts: dict[str, int] = {}
    for repository in run["repositories"]:
        counts[repository["status"]] = counts.get(repository["status"], 0) + 1
    text = ", ".join(f"{n:,} {status}" for status, n in sorted(counts.items())) or "none"
    if run["finished_at"] is None:
        return Cell(f"{text} (not finished)", "yellow")
    return Cell(text, "bold red" if counts.keys() & {"failed", "uncertain"} else "")


def render_run(document: Json, console: Console) -> None:
    """Prints the first run of the document in full: what it replaced, value by value."""
    page = Page(console)
    run = document["runs"][0]
    page.line(Cell(f"Run {run['run_id']}", "bold"), f"  {run['command']}")
    facts = {
        "by": ", ".join(f"{k} {run['by'][k]}" for k in ("user", "host", "pid") if k in run["by"]),
        "started": moment(run["started_at"]),
        "finished": "not recorded: killed, or still at work"
        if run["finished_at"] is None
        else moment(run["finished_at"]),
        "tree": run["tree_commit"] or "",
        "plan": f"made {moment(run['plan_as_of'])}, digest {run['plan_digest'][:12]}",
        "force": "ETag checks were skipped (--force)" if run["force"] else "",
        "allowed": names(run["allowed"]),
    }
    for name, value in facts.items():
        if value:
            page.hanging(Cell(name, "dim"), page.join(value), indent=2, lead_width=9)
    for text in run["overridden"]:
        page.hanging(Cell("ack", "dim"), page.join(text), indent=2, lead_width=9)
    for repository in run["repositories"]:
        _repository(page, repository)
    page.blank()
    page.line(f"{counted(len(run['repositories']), 'repository')}.")


def _repository(page: Page, repository: Json) -> None:
    status = repository["status"]
    page.blank()
    page.line(Cell(repository["repository"], "bold"), "  ", Cell(status, _STYLES.get(status, "")))
    if status == "pending":
        page.line(Cell(_PENDING, "yellow"), indent=2)
    if repository["message"]:
        page.line(repository["message"], indent=2)
    rows: list[list[str | Cell]] = [
        [_name(c["path"]), _days(c["before"]), Cell(page.arrow, "dim"), _days(c["after"])]
        for c in repository["changes"]
    ]
    if repository["replaced"] and repository["before"] is None:
        page.line(Cell(f"{_NO_RULES} before", "dim"), indent=2)
    if repository["replaced"] and repository["after"] is None:
        page.line(Cell(f"{_NO_RULES} after", "dim"), indent=2)
    if rows:
        page.table(("", "before", "", "after"), rows, figures=(1, 3))
    for setting in repository["settings"]:
        _setting(page, setting)


def _setting(page: Page, setting: Json) -> None:
    status = setting["status"]
    label = SettingKind(setting["setting"]).label
    page.line(label, "  ", Cell(status, _STYLES.get(status, "")), indent=2)
    for change in setting["changes"]:
        sides = [side for side in (_side(change["before"]), _side(change["after"])) if side]
        text: list[str | Cell] = [Cell(change["item"], "bold")]
        for number, side in enumerate(sides):
            text += [" ", Cell(page.arrow, "dim"), " ", side] if number else ["  ", side]
        page.hanging(_MARKS[change["action"]], page.join(*text), indent=4)


def _side(values: Json) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items() if key != "id")


def _name(path: str) -> str:
    return f"branch {path.removeprefix('branches/')}" if path.startswith("branches/") else "default"


def _days(value: int | None) -> Cell:
    return Cell("-", "dim") if value is None else Cell(days(value))
