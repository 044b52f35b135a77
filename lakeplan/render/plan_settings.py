"""Policies and object rules in a plan: what changes in them, and which branches go."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakeplan.core.settings import EVEREST
from lakeplan.render.amounts import count, counted, moment
from lakeplan.render.page import Cell, Page, names
from lakeplan.render.plan_changes import MARKS, NOT_SET, key_of

Json = Mapping[str, Any]
Row = list[str | Cell]

TITLES = {"branch_lifecycle": "branch lifecycle policies", "object_lifecycle": "object lifecycle rules"}
_WHAT = {
    "add": "set for the first time",
    "change": "",
    "clear": "clear: all of them are removed from the server",
}
BY_THE_JOB = "deleted by the server's own job, if nobody writes"
_ORDER = "order"
_NO_EFFECT = "no effect on which branches go"
_FATES_SHOWN = 20
_MANY = 8


def settings_of(repository: Json) -> list[tuple[str, Json]]:
    """(kind, setting) of the settings that the plan would write."""
    found = ((kind, repository[kind]) for kind in TITLES)
    return [(kind, setting) for kind, setting in found if setting and setting["action"] != "none"]


def render_setting_changes(page: Page, repositories: Sequence[Json]) -> None:
    """Every policy and rule that differs. Repositories that change alike share one block."""
    groups: dict[tuple[str, str], list[tuple[Json, Json]]] = {}
    for repository in repositories:
        for kind, setting in settings_of(repository):
            alike = json.dumps([setting["action"], setting["changes"], repository["adopted"]])
            groups.setdefault((kind, alike), []).append((repository, setting))
    for (kind, _), members in groups.items():
        keys = [key_of(repository) for repository, _ in members]
        repository, setting = members[0]
        page.blank()
        title = keys[0] if len(keys) == 1 else f"{counted(len(keys), 'repository')} alike"
        adopted = "  adopted" if repository["adopted"] else ""
        lines = [page.join(Cell(title, "bold"), f"  {TITLES[kind]}", Cell(adopted, "yellow"))]
        if len(keys) > 1:
            lines.append(page.join(names(keys)))
        if _WHAT[setting["action"]]:
            lines.append(page.join(Cell(_WHAT[setting["action"]], "dim")))
        page.hanging(MARKS[setting["action"]], *lines)
        rows = [row for change in setting["changes"] for row in _rows(page, change)]
        page.table(("", "", "", "now", "proposed"), rows, solid=(0, 2), indent=3)


def _rows(page: Page, change: Json) -> Iterator[Row]:
    """One row a value; what the item is called stands in the first."""
    mark = {"add": Cell("+", "green"), "change": Cell("~", "yellow"), "clear": Cell("-", "red")}
    lead: Row = [mark[change["action"]], change["item"]]
    if change["item"] == _ORDER:
        yield [*lead, "", change["before"][_ORDER], f"{page.arrow} {change['after'][_ORDER]}"]
        yield ["", "", "", "", Cell(_NO_EFFECT, "green")]
        return
    for key in dict.fromkeys([*change["before"], *change["after"]]):
        old, new = change["before"].get(key), change["after"].get(key)
        yield [
            *lead,
            key,
            Cell(old or NOT_SET, "" if old else "dim"),
            Cell(f"{page.arrow} {new or NOT_SET}", "bold" if new else "dim"),
        ]
        lead = ["", ""]


def render_branches(page: Page, document: Json) -> None:
    """Which branches the server's job deletes under the proposed policies, and when."""
    repositories = [
        r
        for r in document["repositories"]
        if r["failure"] is None and any(kind == "branch_lifecycle" for kind, _ in settings_of(r))
    ]
    _object_notes(page, document)
    if not repositories:
        return
    page.heading("Branches", BY_THE_JOB)
    if len(repositories) > _MANY:
        rows: list[Row] = [[key_of(r), *_counts(r["branch_lifecycle"])] for r in repositories]
        headers = ("", "go now", "in 7 days", "in 30 days")
        page.table(headers, rows, figures=(1, 2, 3))
        return
    for repository in repositories:
        page.blank()
        branches_of(page, repository, limit=_FATES_SHOWN)


def branches_of(page: Page, repository: Json, *, limit: int | None) -> None:
    """One repository: counts, the branches, what to know of them."""
    policies = repository["branch_lifecycle"]
    now, week, month = _counts(policies)
    page.line(
        Cell(key_of(repository), "bold"),
        "  newly go: ",
        now,
        " now, ",
        week,
        " in 7 days, ",
        month,
        " in 30 days",
    )
    fates = policies["fates"]
    rows = [_fate(fate) for fate in fates[:limit]]
    page.table(("branch", "created", "last write", "policy", "goes at", ""), rows, solid=(1, 2, 4))
    if limit is not None and len(fates) > limit:
        page.line(Cell(f"and {count(len(fates) - limit)} more branches in the plan file", "dim"), indent=2)
    notes(page, policies["notes"])


def notes(page: Page, texts: Sequence[str]) -> None:
    for text in texts:
        page.hanging(Cell("!", "bold yellow" if text == EVEREST else "dim"), page.join(text), indent=2)


def _object_notes(page: Page, document: Json) -> None:
    for repository in document["repositories"]:
        rules = repository["object_lifecycle"]
        if repository["failure"] is None and rules and rules["notes"]:
            page.heading("Object lifecycle", key_of(repository))
            notes(page, rules["notes"])


def _counts(policies: Json) -> list[Cell]:
    shown = (policies["deletions"].get(name, 0) for name in ("now", "plus_7_days", "plus_30_days"))
    return [Cell(count(value), "bold yellow" if value else "dim") for value in shown]


def _fate(fate: Json) -> Row:
    """One branch. Idle verdicts are marked: an Everest mount that was not synced is no write."""
    written = NOT_SET if fate["last_write"] is None else moment(fate["last_write"])
    if fate["goes_at"] is None:
        why = Cell("stays: only the stored policies let it go", "green")
        return [fate["branch_id"], moment(fate["created"]), written, fate["policy"], "", why]
    said = []
    if fate["before_at"] is not None and fate["before_at"] <= fate["goes_at"]:
        said.append("under the stored policies too")
    if fate["idle"]:
        said.append("idle*")
    when = Cell(moment(fate["goes_at"]), "bold")
    return [
        fate["branch_id"],
        moment(fate["created"]),
        written,
        fate["policy"],
        when,
        Cell(", ".join(said), "dim"),
    ]
