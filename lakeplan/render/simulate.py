"""What rules would delete in one namespace (``schemas/simulate.v1.json``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from lakeplan.render.amounts import count, counted, days, duration, moment, size
from lakeplan.render.page import Cell, Page, names

Json = Mapping[str, Any]

ROWS_SHOWN = 10
RULES_SHOWN = 5

_KEPT = (
    ("kept_by_commits", "a kept commit holds it"),
    ("kept_uncommitted", "staged, not committed"),
    ("kept_young", "younger than the minimum age"),
    ("kept_elsewhere", "not where a collector looks"),
)

_COUNTED = (("commits", "commit", ""), ("branches", "branch", ""), ("tags", "tag", ""))


def render_simulate(document: Json, console: Console) -> None:
    """Prints the summary of a simulation: what was asked, what goes and why, where, and warnings."""
    page = Page(console)
    page.line(Cell(document["namespace"], "bold"), f"  as of {moment(document['as_of'])}")
    page.line(_read(document), indent=2)
    for rule_set in document["rule_sets"]:
        _rule_set(page, document, rule_set)
    if document["warnings"]:
        page.heading("Warnings")
        for warning in document["warnings"]:
            page.hanging(Cell("!", "bold yellow"), page.text(warning), indent=2)


def _read(document: Json) -> str:
    refs, read = document["refs"], document["read"]
    text = ", ".join(counted(refs[key], noun, more) for key, noun, more in _COUNTED)
    if read is None:
        return text
    text += f"; {count(read['ranges'])} ranges with {count(read['entries'])} entries read"
    return text + (f"; minimum age {duration(document['min_age_seconds'])}" if document["listing"] else "")


def _rule_set(page: Page, document: Json, rule_set: Json) -> None:
    title = "Rules" if rule_set["name"] == "rules" else "Rules to compare"
    page.heading(title, _rules(rule_set["rules"]))
    commits = rule_set["commits"]
    gone = commits["total"] - commits["active"]
    page.line(
        f"{count(commits['active'])} of {count(commits['total'])} commits stay, {count(gone)} go",
        *(_risk(f"; {count(commits['at_risk'])} at risk") if commits["at_risk"] else ()),
        indent=2,
    )
    if rule_set["objects"] is None:
        return
    _objects(page, document, rule_set["objects"])
    _prefixes(page, rule_set["prefixes"])
    _branches(page, rule_set["branches"])


def _risk(text: str) -> tuple[Cell]:
    return (Cell(text, "bold red"),)


def _rules(rules: Json) -> str:
    own = [f"{b['branch_id']} {days(b['retention_days'])}" for b in rules["branches"]]
    return names([f"default {days(rules['default_retention_days'])}", *own], RULES_SHOWN)


def _objects(page: Page, document: Json, objects: Json) -> None:
    at_most = "at most " if document["at_most"] else ""

    def row(label: str, key: str, style: str = "") -> tuple[Cell, Cell, Cell]:
        figures = objects[key]
        return (
            Cell(label, style),
            Cell(count(figures["objects"]), style),
            Cell(size(figures["size_bytes"]), style),
        )

    rows = [row(f"{at_most}goes", "goes", "bold")]
    rows += [
        row(f"  {text}", key)
        for key, text in (("expired", "expired"), ("never_committed", "never committed"))
    ]
    if objects["at_risk"]["objects"]:
        rows.append(row("  at risk: the documented rule keeps it", "at_risk", "bold red"))
    rows.append(row("stays", "kept", "bold"))
    rows += [row(f"  {text}", key) for key, text in _KEPT if objects[key]["objects"]]
    if objects["missing"]["objects"]:
        rows.append(row("held by a kept commit and not stored", "missing", "yellow"))
    page.table(("", "objects", "bytes"), rows, figures=frozenset({1, 2}))


def _prefixes(page: Page, prefixes: Sequence[Json]) -> None:
    below = [p for p in prefixes if p["depth"]]
    if below:
        page.blank()
        rows = [(p["prefix"], count(p["objects"]), size(p["size_bytes"])) for p in below[:ROWS_SHOWN]]
        page.table(("largest prefixes of what goes", "objects", "bytes"), rows, figures=frozenset({1, 2}))


def _branches(page: Page, branches: Sequence[Json]) -> None:
    if branches:
        page.blank()
        rows = [
            (
                b["branch_id"],
                count(b["commits"]),
                count(b["objects"]),
                size(b["size_bytes"]),
                size(b["exclusive_bytes"]),
            )
            for b in branches[:ROWS_SHOWN]
        ]
        headers = ("branches that hold most", "commits", "objects", "bytes", "alone")
        page.table(headers, rows, figures=frozenset({1, 2, 3, 4}))
