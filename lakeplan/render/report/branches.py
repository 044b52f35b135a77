"""Branches by age and idleness: a picture where their dates are known, and a table in any case."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from lakeplan.render.amounts import count, counted, days, moment
from lakeplan.render.report import charts
from lakeplan.render.report.html import Cell, Markup, el, join, table
from lakeplan.render.report.overview import more
from lakeplan.render.report.shell import Section

Json = Mapping[str, Any]

_ROWS = 1_600
"""Of all repositories together."""
_FEWEST = 25
_HEIGHT = 260
_DAY = 86_400
_TICKS = (1, 3, 7, 14, 30, 90, 180, 365, 730, 1825, 3650)
_NO_DATES = (
    "The plan file has no dates of branches but of those that policies delete: give it a history (see Notes)."
)
_AGE = "at least"


def branches_section(document: Json) -> Section | None:
    found = [b for b in document["branches"] if b["rows"]]
    if not found:
        return None
    rows = max(_FEWEST, min(_ROWS // 4, _ROWS // len(found)))
    return Section("branches", "Branches by age and idleness", join([_one(b, rows) for b in found]))


def _one(branches: Json, limit: int) -> Markup:
    rows, key = branches["rows"], branches["key"]
    going = sum(1 for r in rows if r["goes_at"])
    words = f"{counted(len(rows), 'branch')}; policies let {count(going)} of them go within 30 days."
    parts: list[Markup | None] = [el("h3", key), el("p", words)]
    if not branches["dated"]:
        parts.append(el("p", _NO_DATES, cls="dim"))
    placed = [r for r in rows if r["age_seconds"] is not None and r["idle_seconds"] is not None]
    if placed:
        parts.append(_picture(key, placed))
    parts.append(_table(key, rows[:limit]))
    return join([*parts, *more(len(rows), limit)])


def _scale(seconds: int) -> float:
    return math.log1p(seconds / _DAY)


def _picture(key: str, rows: Sequence[Json]) -> Markup:
    """Dots on scales of logarithms; branches that fall on one spot are one dot, the larger the more."""
    far = max(_scale(r["idle_seconds"]) for r in rows)
    high = max(_scale(r["age_seconds"]) for r in rows)
    f = charts.Frame(max(far * 1.05, _scale(7 * _DAY)), max(high * 1.05, _scale(7 * _DAY)), _HEIGHT)
    parts = []
    for tick in _TICKS:
        at = _scale(tick * _DAY)
        if at <= f.highest:
            level = f.y(at)
            parts.append(
                el("line", cls="grid", x1=charts.LEFT, x2=charts.WIDTH - charts.RIGHT, y1=level, y2=level)
            )
            parts.append(charts.words(charts.LEFT - 6, float(level) + 4, _ago(tick * _DAY), "soft end"))
        if at <= f.span:
            parts.append(charts.words(f.x(at), charts.TOP + _HEIGHT + 17, _ago(tick * _DAY), "soft mid"))
    foot = charts.TOP + _HEIGHT + 36
    parts.append(charts.words(charts.WIDTH - charts.RIGHT, foot, "idle for (across), age (up)", "soft end"))
    spots: dict[tuple[int, int, bool], list[Json]] = defaultdict(list)
    for r in rows:
        x, y = float(f.x(_scale(r["idle_seconds"]))), float(f.y(_scale(r["age_seconds"])))
        spots[round(x / 8), round(y / 8), r["goes_at"] is not None].append(r)
    for (x8, y8, goes), there in sorted(spots.items(), key=lambda item: item[0][2]):
        names = ", ".join(r["branch"] for r in there[:5]) + (", …" if len(there) > 5 else "")
        radius = 4 + min(6.0, 2 * math.log10(len(there)) * 2)
        cls = "dot goes" if goes else "dot"
        said = f"{counted(len(there), 'branch')}: {names}"
        parts.append(el("circle", el("title", said), cls=cls, cx=x8 * 8, cy=y8 * 8, r=f"{radius:.1f}"))
    idle = sum(1 for r in rows if r["idle_seconds"] > 90 * _DAY)
    said = f"{count(idle)} of {counted(len(rows), 'branch')} have been idle for more than 90 days."
    caption = f"{said} Ringed: policies let it go within 30 days. Both scales are of logarithms."
    return charts.figure(charts.picture(f"Branches of {key}", said, parts, _HEIGHT), caption)


def _table(key: str, rows: Sequence[Json]) -> Markup:
    headers = ("branch", "HEAD", "idle for", "age", "own commits", "days stored", "days proposed", "goes")
    shown = [
        [
            r["branch"],
            el("code", r["commit_id"][:12]),
            (_ago(r["idle_seconds"]), {"data_sort": -1 if r["idle_seconds"] is None else r["idle_seconds"]}),
            _age(r),
            _known(r["own_commits"]),
            _known(r["days_before"]),
            _known(r["days_after"]),
            _goes(r),
        ]
        for r in rows
    ]
    caption = f"Branches of {key}, those that go first, then the idlest"
    return table(caption, headers, shown, figures=(2, 3, 4, 5, 6), sortable=True)


def _ago(seconds: int | None) -> str:
    if seconds is None:
        return "not known"
    return days(seconds // _DAY) if seconds >= _DAY else f"{seconds // 3600} h"


def _age(row: Json) -> Cell:
    age = row["age_seconds"]
    if age is None:
        return ("not known", {"data_sort": -1})
    sure = row["created_at"] is not None
    return (_ago(age) if sure else f"{_AGE} {_ago(age)}", {"data_sort": age})


def _known(value: int | None) -> Cell:
    return ("not known", {"data_sort": -1}) if value is None else (count(value), {"data_sort": value})


def _goes(row: Json) -> Cell:
    if row["goes_at"] is None:
        stays = "stays; the stored policies let it go" if row["before_at"] else "stays"
        return (stays, {"data_sort": "9"})
    new = "" if row["before_at"] else ", newly"
    return (f"{moment(row['goes_at'])} by {row['policy']}{new}", {"data_sort": row["goes_at"]})
