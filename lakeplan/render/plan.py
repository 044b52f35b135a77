"""A plan as a person reads it: what was loosened, changes, what they do, then what speaks against them.

Rendered from the JSON document (``schemas/plan.v1.json``) and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from lakeplan.render.amounts import count, counted, moment, size
from lakeplan.render.money import sums
from lakeplan.render.page import Cell, Page, names
from lakeplan.render.plan_branches import render_run_branches
from lakeplan.render.plan_changes import render_changes, writing
from lakeplan.render.plan_impact import render_backlog, render_impact
from lakeplan.render.plan_loosening import render_loosenings
from lakeplan.render.plan_notes import (
    gates_of,
    render_adopted,
    render_failures,
    render_gates,
    render_unmanaged,
    render_warnings,
)
from lakeplan.render.plan_settings import render_branches, render_setting_changes

Json = Mapping[str, Any]


def render_plan(document: Json, console: Console) -> None:
    """Prints a whole plan; its end sums it up. Without changes there is little but that one line."""
    page = Page(console)
    repositories = document["repositories"]
    render_loosenings(page, document)
    render_changes(page, document)
    render_setting_changes(page, writing(document))
    render_branches(page, document)
    render_run_branches(page, document)
    render_impact(page, document)
    render_backlog(page, document)
    render_gates(page, gates_of(document))
    render_warnings(page, repositories, document["warnings"])
    render_adopted(page, document)
    render_failures(page, repositories)
    render_unmanaged(page, document)
    page.blank()
    if writing(document) or document["targets"]:
        page.line(Cell(_circumstances(document), "dim"))
    _summary(page, document)


def _circumstances(document: Json) -> str:
    """When, from which tree and how the plan was made."""
    parts = [f"Judged at {moment(document['as_of'])}"]
    if document["tree_commit"]:
        parts.append(f"tree commit {document['tree_commit'][:12]}")
    if document["base"]:
        parts.append(f"base {document['base'][:12]}")
    if document["targets"]:
        parts.append(f"only {names(document['targets'])}")
    if document["read_only"]:
        parts.append("read only")
    if document["simulate"] == "none":
        parts.append("not simulated")
    if document["allowed"]:
        parts.append(f"allowed: {names(document['allowed'])}")
    return ", ".join(parts) + "."


def _summary(page: Page, document: Json) -> None:
    """One line where it fits; narrower, what changes, what that does and what blocks it have one each."""
    parts = summary_parts(document)
    whole = Text(" ").join(page.join(*part) for part in parts)
    if whole.cell_len <= page.width:
        page.show(whole)
        return
    for part in parts:
        page.line(*part)


def summary_parts(document: Json) -> list[list[str | Cell]]:
    """``Plan: 2 to add, 1 to change, 0 to clear, 5 unchanged.``, ``Impact: …`` and ``BLOCKED by …``."""
    summary = document["summary"]
    failed = f", {count(summary['failed'])} failed" if summary["failed"] else ""
    if not (summary["add"] or summary["change"] or summary["clear"]):
        text = f" no changes, {count(summary['unchanged'])} unchanged{failed}."
        parts: list[list[str | Cell]] = [[Cell("Plan:", "bold"), text]]
    else:
        text = (
            f" {count(summary['add'])} to add, {count(summary['change'])} to change,"
            f" {count(summary['clear'])} to clear, {count(summary['unchanged'])} unchanged{failed}."
        )
        parts = [[Cell("Plan:", "bold"), text], [Cell("Impact:", "bold"), " ", *_impact(summary)]]
    if summary["branches_delete"] is not None:
        parts.append([Cell("Branches:", "bold"), _branches(summary)])
    if summary["refused_gates"]:
        parts.append([Cell(f"BLOCKED by {counted(summary['refused_gates'], 'gate')}.", "bold red")])
    return parts


def summary_text(document: Json) -> str:
    """The summary as plain text of one line."""
    parts = summary_parts(document)
    return " ".join("".join(p.text if isinstance(p, Cell) else p for p in part) for part in parts)


def _branches(summary: Json) -> str:
    """What the next ``lifecycle run`` deletes, and what that lets go in the end."""
    going, keep = summary["branches_delete"], count(summary["branches_keep"])
    if not going:
        return f" none go, {keep} stay."
    text = f" {count(going)} {'go' if going > 1 else 'goes'} by `lakeplan lifecycle run`, {keep} stay"
    if summary["objects_follow"] is None:
        return f"{text}; what follows is not known."
    if not summary["objects_follow"]:
        return f"{text}; no object follows."
    return f"{text}; {counted(summary['objects_follow'], 'object')}, {size(summary['bytes_follow'])} follow."


def _impact(summary: Json) -> list[str | Cell]:
    """What goes now, in 30 days where that is more, and at risk; unknown impacts first."""
    costs = summary["cost_expire"]
    text = f"{counted(summary['objects_expire'], 'object')}, {size(summary['bytes_expire'])}"
    text += sums(costs, "per_month")
    if summary["objects_expire_plus_30_days"] > summary["objects_expire"]:
        text += (
            f" ({counted(summary['objects_expire_plus_30_days'], 'object')},"
            f" {size(summary['bytes_expire_plus_30_days'])}{sums(costs, 'per_month_plus_30_days')}"
            " in 30 days)"
        )
    if summary["objects_at_risk"]:
        text += f", {counted(summary['objects_at_risk'], 'object')} at risk"
    if summary["impact_known"]:
        return [f"{text}."]
    unknown = Cell(f"UNKNOWN in {counted(summary['impact_unknown'], 'repository')}", "bold red")
    everywhere = summary["impact_unknown"] == summary["add"] + summary["change"] + summary["clear"]
    return [unknown, "." if everywhere else f"; elsewhere {text}."]
