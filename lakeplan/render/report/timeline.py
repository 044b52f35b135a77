"""What expires when: by day for ninety days, if nobody writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakeplan.render.amounts import UNKNOWN, count, counted, moment, size
from lakeplan.render.money import Money
from lakeplan.render.plan_changes import key_of
from lakeplan.render.report import charts
from lakeplan.render.report.html import Cell, Markup, el, join, table
from lakeplan.render.report.impact import amount, money_cells
from lakeplan.render.report.shell import Section

Json = Mapping[str, Any]

_NAMES = 6
_HEIGHT = 150
_WHEN = {0: "now", 7: "in 7 days", 30: "in 30 days"}


def timeline_section(document: Json) -> Section | None:
    found = [t for t in document["timelines"] if t["moments"] or t["days"]]
    if not found:
        return None
    prices = {key_of(r): Money.of(r) for r in document["repositories"]}
    note = el("p", "If nobody writes. Days are of 24 hours and count from the plan.", cls="dim")
    drawn = [_one(timeline, prices.get(timeline["key"], Money())) for timeline in found]
    return Section("timeline", "What expires when", join([note, *drawn]))


def _one(timeline: Json, cost: Money) -> Markup:
    key = timeline["key"]
    parts: list[Markup | None] = [el("h3", key), _words(timeline, cost)]
    if timeline["has_commits"] and any(d["proposed"] or d["stored"] for d in timeline["days"]):
        parts.append(_commits(timeline))
    if timeline["has_objects"]:
        parts.append(_objects(timeline))
    if timeline["days"]:
        parts.append(charts.behind(f"{key}: day by day", _table(timeline, cost)))
    return join(parts)


def _words(timeline: Json, cost: Money) -> Markup | None:
    items = []
    for m in timeline["moments"]:
        objects = UNKNOWN if m["objects"] is None else counted(m["objects"], "object")
        goes = UNKNOWN if m["size_bytes"] is None else size(m["size_bytes"])
        goes += cost.words(m["size_bytes"])
        when = _WHEN[m["day"]]
        items.append(el("li", el("strong", when), f": {counted(m['commits'], 'commit')}, {objects}, {goes}"))
    if not items:
        return None
    return join([el("p", "Through this plan, all that expires by then:"), el("ul", items)])


def _commits(timeline: Json) -> Markup:
    span, days = timeline["span"], [d for d in timeline["days"] if d["day"] > 0]
    peaks = [d[side] or 0 for d in days for side in ("stored", "proposed")]
    f = charts.frame(span, peaks, _HEIGHT)
    parts = charts.axes(f, count, charts.day_ticks(span), "commits that stop being kept, by days from now")
    width = (charts.WIDTH - charts.LEFT - charts.RIGHT) / span
    for d in days:
        proposed, stored = d["proposed"] or 0, d["stored"] or 0
        said = f"{moment(d['until'])}: {proposed:,} under the proposed rules, {stored:,} under the stored"
        parts.append(charts.column(f, d["day"] - 1, width * 0.45, d["stored"] or 0, "bar quiet", said))
        parts.append(charts.column(f, d["day"] - 0.5, width * 0.45, d["proposed"] or 0, "bar loud", said))
        if d["branches"]:
            parts.append(_branch_mark(f, d))
    sides = ((side, sum(d[side] or 0 for d in days)) for side in ("stored", "proposed"))
    said = ", ".join(f"{counted(total, 'commit')} under the {side} rules" for side, total in sides)
    caption = "By the documented rule. Left of each pair: the stored rules; right: the proposed ones."
    if any(d["branches"] for d in days):
        caption += " Triangles: branches that policies let go."
    drawn = charts.picture(f"Commits that go within {span} days", said, parts, _HEIGHT)
    return charts.figure(drawn, caption)


def _branch_mark(f: charts.Frame, day: Json) -> Markup:
    said = f"{moment(day['until'])}: {counted(len(day['branches']), 'branch')}: {_names(day['branches'])}"
    at = f"translate({f.x(day['day'] - 0.5)} {charts.TOP - 8})"
    return el("path", el("title", said), cls="gone-branch", d="M-6-5h12l-6 10z", transform=at)


def _objects(timeline: Json) -> Markup:
    span, days = timeline["span"], [d for d in timeline["days"] if d["size_bytes"]]
    f = charts.frame(span, [d["size_bytes"] for d in days], _HEIGHT)
    parts = charts.axes(f, size, charts.day_ticks(span), "bytes that go, by days from now")
    width = (charts.WIDTH - charts.LEFT - charts.RIGHT) / span * 0.8
    for d in days:
        said = f"{moment(d['until'])}: {counted(d['objects'], 'object')}, {size(d['size_bytes'])}"
        parts.append(charts.column(f, d["day"] - 0.9, width, d["size_bytes"], "bar", said))
    total = sum(d["size_bytes"] for d in days)
    drawn = charts.picture(
        f"Bytes that go within {span} days", f"{size(total)} under the proposed rules", parts, _HEIGHT
    )
    return charts.figure(drawn, "Under the proposed rules, from the horizon of the curve that was given.")


def _names(branches: Sequence[Sequence[str]]) -> str:
    shown = ", ".join(f"{name} ({policy})" for name, policy in branches[:_NAMES])
    return shown + (f" and {len(branches) - _NAMES:,} more" if len(branches) > _NAMES else "")


def _table(timeline: Json, cost: Money) -> Markup:
    headers = ["by"]
    headers += ["commits, stored rules", "commits, proposed rules"] if timeline["has_commits"] else []
    headers += ["objects", "bytes", *cost.header(" ")] if timeline["has_objects"] else []
    figures = range(1, len(headers))
    headers.append("branches that policies let go")
    rows: list[list[Cell]] = []
    for d in timeline["days"]:
        row: list[Cell] = [(moment(d["until"]), {"data_sort": d["day"]})]
        if timeline["has_commits"]:
            row += [_quiet(d["stored"]), _quiet(d["proposed"])]
        if timeline["has_objects"]:
            row += [amount(d["objects"] or 0), amount(d["size_bytes"] or 0, size)]
            row += money_cells(cost, d["size_bytes"] or 0)
        rows.append([*row, _names(d["branches"])])
    caption = f"Day by day, {timeline['key']}"
    return table(caption, headers, rows, figures=figures, sortable=True, hidden_caption=True)


def _quiet(value: int | None) -> Cell:
    return ("no rules", {"cls": "none", "data_sort": 0}) if value is None else amount(value)
