"""Branches in a plan that ``lifecycle run`` deletes: those that go, and counts of the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lakeplan.render.amounts import count, counted, moment
from lakeplan.render.lifecycle import follows_table, going_table, reason_of, stale_table, staying_table
from lakeplan.render.money import Money
from lakeplan.render.page import Cell, Page
from lakeplan.render.plan_changes import key_of
from lakeplan.render.plan_settings import notes

Json = Mapping[str, Any]

BY_RUN = "deleted by `lakeplan lifecycle run`, not by apply"
_SHOWN = 20
_MANY = 8
_STALE = 5


def with_branches(repositories: Sequence[Json]) -> list[Json]:
    """Repositories whose branches lakeplan itself deletes."""
    return [r for r in repositories if r["lifecycle"] is not None and r["failure"] is None]


def going_of(repository: Json) -> list[Json]:
    return [b for b in repository["lifecycle"]["branches"] if b["verdict"] == "delete"]


def staying_of(repository: Json) -> list[Json]:
    """Soonest to go first."""
    found = [b for b in repository["lifecycle"]["branches"] if b["verdict"] != "delete"]
    return sorted(found, key=lambda b: (b["due"] is None, b["due"] or "", b["branch_id"]))


def render_run_branches(page: Page, document: Json) -> None:
    """A part of its own per repository; of very many those where branches go, and a table of the others."""
    repositories = with_branches(document["repositories"])
    if not repositories:
        return
    page.heading("Branches", BY_RUN)
    few = len(repositories) <= _MANY
    shown = repositories if few else [r for r in repositories if going_of(r)][:_MANY]
    room = _SHOWN
    for repository in shown:
        page.blank()
        staying = len(staying_of(repository))
        listed = few and staying <= room
        room -= staying if listed else 0
        run_branches_of(page, repository, limit=_SHOWN, staying=listed)
    rest = [r for r in repositories if r not in shown]
    if rest:
        page.blank()
        rows: list[list[str | Cell]] = [
            [key_of(r), *counts(r["lifecycle"]), count(len(staying_of(r)))] for r in rest
        ]
        page.table(("", "go now", "in 7 days", "in 30 days", "stay now"), rows, figures=(1, 2, 3, 4))
    if any(len(going_of(r)) > _SHOWN for r in shown):
        page.line(
            Cell("Every branch is in the plan file, and in `lakeplan lifecycle plan`.", "dim"), indent=2
        )


def run_branches_of(page: Page, repository: Json, *, limit: int | None, staying: bool) -> None:
    """One repository: counts, what goes, what stays (or why, in figures), and what follows."""
    found, cost = repository["lifecycle"], Money.of(repository)
    if found["unknown"]:
        title = page.join(Cell(key_of(repository), "bold"), "  which branches go could not be told")
        page.hanging(Cell("!", "bold yellow"), title, page.join(found["unknown"]))
        return
    now, week, month = counts(found)
    since = f", observed since {moment(found['observed_since'])}" if found["observed_since"] else ""
    page.line(
        *(Cell(key_of(repository), "bold"), "  go: ", now, " now, ", week, " in 7 days, ", month),
        *(" in 30 days", Cell(since, "dim")),
    )
    going, rest = going_of(repository), staying_of(repository)
    if going:
        going_table(page, going[:limit], found["as_of"], cost)
    if limit is not None and len(going) > limit:
        page.line(Cell(f"and {count(len(going) - limit)} more that go", "dim"), indent=2)
    if rest and staying:
        staying_table(page, rest, found["as_of"])
    elif rest:
        page.line(f"{counted(len(rest), 'branch')} stay: {why_they_stay(rest)}", indent=2)
    follows_table(page, found, cost)
    stale_table(page, found["branches"], cost, limit=_STALE if limit is not None else None)
    notes(page, found["notes"])


def counts(found: Json) -> list[Cell]:
    shown = (found["deletions"].get(name, 0) for name in ("now", "plus_7_days", "plus_30_days"))
    return [Cell(count(value), "bold yellow" if value else "dim") for value in shown]


def why_they_stay(branches: Sequence[Json]) -> str:
    """``300 not crossed yet, 12 no policy matches``: by reason, most first."""
    found = Counter(reason_of(branch) for branch in branches)
    return ", ".join(f"{count(number)} {reason}" for reason, number in found.most_common())
