"""One repository of a plan in full: every rule, every figure, every gate (``lakeplan show --target``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from lakeplan.render.amounts import counted, days, size
from lakeplan.render.money import Money
from lakeplan.render.page import Cell, Page, names
from lakeplan.render.plan_branches import BY_RUN, run_branches_of
from lakeplan.render.plan_changes import DEFAULT, MARKS, NOT_SET, key_of
from lakeplan.render.plan_impact import AT_MOST, impact_details
from lakeplan.render.plan_notes import render_failures, render_gates, render_warnings
from lakeplan.render.plan_settings import (
    BY_THE_JOB,
    TITLES,
    branches_of,
    notes,
    render_setting_changes,
    settings_of,
)

Json = Mapping[str, Any]


def render_repository(repository: Json, console: Console) -> None:
    """Prints one entry of the document's ``repositories``, nothing folded or left out; an empty line ends
    it, since several may follow each other."""
    page = Page(console)
    mark = MARKS.get(_overall(repository), Cell(" "))
    page.hanging(mark, page.join(Cell(key_of(repository), "bold")), page.join(_action(repository)))
    _facts(page, repository)
    _rules(page, repository)
    render_setting_changes(page, [repository])
    if any(kind == "branch_lifecycle" for kind, _ in settings_of(repository)):
        page.heading("Branches", BY_THE_JOB)
        branches_of(page, repository, limit=None)
    if repository["lifecycle"] is not None and repository["failure"] is None:
        page.heading("Branches", BY_RUN)
        run_branches_of(page, repository, limit=None, staying=True)
    for kind, setting in settings_of(repository):
        if kind != "branch_lifecycle":
            notes(page, setting["notes"])
    impact = repository["impact"]
    page.heading("Impact", AT_MOST)
    impact_details(page, repository, prefixes=None)
    if impact["backlog"] is not None:
        page.line(f"backlog under the stored rules: {_backlog(repository)}", indent=2)
    if impact["status"] == "simulated":
        read = f"{counted(impact['ranges_read'], 'range')}, {counted(impact['entries_read'], 'entry')}"
        page.line(Cell(f"read: {read}", "dim"), indent=2)
    render_gates(page, repository["gates"], all_of_them=True)
    render_warnings(page, [repository], tags_shown=None)
    render_failures(page, [repository])
    page.blank()


def _action(repository: Json) -> str:
    if repository["failure"] is not None:
        return "failed to plan"
    others = [f"{TITLES[kind]}: {setting['action']}" for kind, setting in settings_of(repository)]
    return "; ".join([_rules_action(repository), *others])


def _overall(repository: Json) -> str:
    """One word for all its settings, as the model's ``overall``."""
    actions = {repository["action"], *(s["action"] for _, s in settings_of(repository))} - {"none"}
    return "none" if not actions else actions.pop() if len(actions) == 1 else "change"


def _rules_action(repository: Json) -> str:
    if not repository["managed"]:
        return "its GC rules are not managed by the tree"
    return {
        "add": "rules are set for the first time: the collector starts to work here",
        "change": "rules change",
        "clear": "all rules are removed (clear): nothing is collected any more",
    }.get(repository["action"], "no changes")


def _facts(page: Page, repository: Json) -> None:
    adopted = " (adopted: a glob matches it for the first time)" if repository["adopted"] else ""
    source = f" at {repository['source']}" if repository["source"] else ""
    facts = {
        "entry": f"{repository['entry']}{source}{adopted}",
        "owner": repository["owner"] or "",
        "endpoint": repository["endpoint_url"],
        "branches": str(len(repository["branches"])),
        "unexpanded": names([f"{b} ({days(d)})" for b, d in repository["unexpanded"].items()]),
        "etag": f"{repository['before_etag'][:12]} {page.arrow} {repository['after_etag'][:12]}",
        "config hash": repository["config_hash"][:12],
    }
    for name, value in facts.items():
        if value:
            page.hanging(Cell(name, "dim"), page.join(value), indent=2, lead_width=11)


def _rules(page: Page, repository: Json) -> None:
    """Every value before and after, changed or not."""
    before, after = _values(repository["before"]), _values(repository["after"])
    if not (before or after):
        return
    page.heading("Rules")
    rows: list[list[str | Cell]] = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        label = DEFAULT if name[0] == "default" else f"branch {name[1]}"
        mark = Cell(" ")
        if old != new:
            mark = MARKS["add"] if old is None else MARKS["clear"] if new is None else MARKS["change"]
        rows.append([mark, label, _days(old), Cell(page.arrow, "dim"), _days(new)])
    page.table(("", "", "now", "", "proposed"), rows)


def _values(rules: Json | None) -> dict[tuple[str, str], int]:
    if rules is None:
        return {}
    values = {("default", ""): rules["default_retention_days"]}
    return values | {("branch", b["branch_id"]): b["retention_days"] for b in rules["branches"]}


def _days(value: int | None) -> Cell:
    return Cell(NOT_SET, "dim") if value is None else Cell(days(value))


def _backlog(repository: Json) -> str:
    backlog = repository["impact"]["backlog"]
    commits = counted(backlog["commits"], "commit")
    if backlog["objects"] is None:
        return f"{commits} (objects not read)"
    words = f"{commits}, {counted(backlog['objects'], 'object')}, {size(backlog['size_bytes'] or 0)}"
    return words + Money.of(repository).words(backlog["size_bytes"])
