"""HTML pages, each one file that sends no requests: a mark, and the report of a plan with its branches,
timeline, commit graph and curves."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakeplan.output import drawing as svg
from lakeplan.output import html, sweep
from lakeplan.output.drawing import Markup, el, join
from lakeplan.output.html import gates_section, impact_section, more, notes_section, summary_section
from lakeplan.output.plan_impact import HORIZONS, key_of
from lakeplan.output.simulate import expiring_at, title_of
from lakeplan.output.tables import Table, costs
from lakeplan.output.text import (
    UNKNOWN,
    Json,
    Money,
    amounts,
    count,
    days,
    known,
    moment,
    names,
    size,
    volume,
)
from lakeplan.values.simulation import Amount, total_of
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.simulation.documents import CurveDocument, CurveRow, ServerDaysPoint
    from lakeplan.sweep.documents import ContentsRow, MarkDocument, MarkPageDocument, TreeRow


ROWS = 1_000
FOOT = (
    "lakeplan created this page from a mark. It is a single file that sends no requests and stores nothing."
    " Times are in UTC, and sizes are decimal. Prefixes, ages and last commits are those of the objects that"
    " would be deleted."
)


def render_mark_page(document: MarkPageDocument) -> str:
    """Return the page as the text of an HTML file."""
    mark = document["mark"]
    contents, cost = mark["contents"], Money.of(mark)
    facts = [
        f"Mark {mark['mark_id']} of {mark['server']}/{mark['repository']}",
        f"created {moment(mark['marked_at'])}",
    ]
    if mark["tree_commit"]:
        facts.append(f"tree commit {mark['tree_commit'][:12]}")
    facts.append(f"summary {contents['digest'][:12]}")
    sections = [
        _summary(mark, cost),
        gates_section({"plan": {"gates": mark["gates"], "repositories": []}}),
        _prefixes(document["tree"], cost),
        _section("ages", "Ages", sweep.ages_table(contents, cost)),
        _section(
            "commits", "Last commits", sweep.commits_table(contents, cost), contents["more_last_commits"]
        ),
        _section("kept", "What keeps the rest", sweep.keepers_table(contents), contents["more_kept_by"]),
    ]
    about = html.PageFacts("lakeplan mark", mark["marked_at"], facts, FOOT)
    return html.whole_page(about, sections, ("page.css", "tree.css"), html.TREE_SCRIPTS)


def _summary(mark: MarkDocument, cost: Money) -> html.Section:
    goes, candidates = mark["goes"], mark["candidates"]
    kept = total_of(map(Amount.from_row, mark["classes"].values())) - Amount.from_row(goes)
    figures = [
        (
            "Would be deleted",
            size(goes["size_bytes"]),
            f"{count_of(goes['objects'], 'object')}{cost.words(goes['size_bytes'])}",
        ),
        (
            "Kept",
            size(kept.size_bytes),
            f"{count_of(kept.objects, 'object')} that may expire but are kept",
        ),
        (
            "Old enough",
            size(candidates["size_bytes"]),
            f"{count_of(candidates['objects'], 'object')} older than {moment(mark['cutoff'])}",
        ),
        ("Can be swept", moment(mark["sweep_from"]), f"until {moment(mark['sweep_until'])}"),
    ]
    unreadable = ", ".join(sorted(mark["unreadable"])[:5])
    mode = mark["settings"]["mode"]
    body = [
        el("p", f"A sweep of this mark would delete {volume(goes, cost)} (sweep.mode: {mode}).", cls="lead"),
        el(
            "p",
            "Blocked: these repositories could not be read and may refer to objects in this namespace:"
            f" {unreadable}",
            cls="alert",
        )
        if unreadable
        else None,
        html.cards(figures),
        html.table_of("Classes", sweep.classes_table(mark, cost), hidden_caption=False),
        _forecast(mark["contents"]),
    ]
    return html.Section("summary", "Summary", join(body))


def _forecast(contents: ContentsRow) -> Markup | None:
    row = contents["forecast"]
    if row is None:
        return None
    more = row["differs"] == "more"
    words = f"{'More than forecast' if more else 'Forecast'}: {sweep.forecast_words(row)}."
    return el("p", words, cls="alert" if more else None)


def _prefixes(tree: list[TreeRow], cost: Money) -> html.Section | None:
    if not tree:
        return None
    rows = [(row, row["depth"]) for row in tree]
    folders = html.table_of("Objects and bytes by prefix", sweep.prefixes_table(rows, cost))
    words = (
        "A folder's figures include everything in it. An object with several paths is counted only at its"
        " first path."
    )
    return html.Section(
        "prefixes", "Prefixes", join([el("p", words, cls="dim"), el("div", folders, cls="folders")])
    )


def _section(id: str, title: str, figures: Table, more: int = 0) -> html.Section | None:
    """A section with a sortable table, or None without rows. The document omits ``more`` rows."""
    made = html.table_of(f"{title}: figures", figures, ROWS, sortable=True)
    if made is None:
        return None
    left = max(len(figures.rows) - ROWS, 0) + more
    note = el("p", f"The JSON document has {count_of(left, 'more row')}.", cls="dim") if left else None
    return html.Section(id, title, join([made, note]))


_ROWS = 1_600
"""For all repositories together."""
_FEWEST = 25
_HEIGHT = 260
_DAY = 86_400
_TICKS = (1, 3, 7, 14, 30, 90, 180, 365, 730, 1825, 3650)
_NO_DATES = (
    "The plan file has dates only for branches that policies delete. To see the dates of all branches, add"
    " the history to the report (see Notes)."
)
_AGE = "at least"


def branches_section(document: Json) -> html.Section | None:
    tables = [b for b in document["branches"] if b["rows"]]
    if not tables:
        return None
    rows = max(_FEWEST, min(_ROWS // 4, _ROWS // len(tables)))
    return html.Section(
        "branches", "Branches by age and idleness", join([_branches_of(b, rows) for b in tables])
    )


def _branches_of(branches: Json, limit: int) -> Markup:
    rows, key = branches["rows"], branches["key"]
    going = sum(1 for r in rows if r["goes_at"])
    words = f"{count_of(len(rows), 'branch')}; policies delete {count(going)} of them within 30 days."
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
    """Return a chart of branches by age and idle time, on logarithmic scales. A larger dot stands for several
    branches."""
    far = max(_scale(r["idle_seconds"]) for r in rows)
    high = max(_scale(r["age_seconds"]) for r in rows)
    f = svg.Frame(max(far * 1.05, _scale(7 * _DAY)), max(high * 1.05, _scale(7 * _DAY)), _HEIGHT)
    parts = []
    for days_ago in _TICKS:
        at, label = _scale(days_ago * _DAY), _ago(days_ago * _DAY)
        parts += svg.level(f, at, label) if at <= f.highest else []
        parts += [svg.tick(f, at, label)] if at <= f.span else []
    parts.append(svg.foot(f, "idle time (horizontal), age (vertical)"))
    spots: dict[tuple[int, int, bool], list[Json]] = defaultdict(list)
    for r in rows:
        x, y = float(f.x(_scale(r["idle_seconds"]))), float(f.y(_scale(r["age_seconds"])))
        spots[round(x / 8), round(y / 8), r["goes_at"] is not None].append(r)
    for (x8, y8, goes), there in sorted(spots.items(), key=lambda item: item[0][2]):
        names = ", ".join(r["branch"] for r in there[:5]) + (", …" if len(there) > 5 else "")
        radius = 4 + min(6.0, 2 * math.log10(len(there)) * 2)
        cls = "dot goes" if goes else "dot"
        summary = f"{count_of(len(there), 'branch')}: {names}"
        parts.append(el("circle", el("title", summary), cls=cls, cx=x8 * 8, cy=y8 * 8, r=f"{radius:.1f}"))
    idle = sum(1 for r in rows if r["idle_seconds"] > 90 * _DAY)
    summary = f"{count(idle)} of {count_of(len(rows), 'branch')} idle for more than 90 days."
    caption = f"{summary} Policies delete the ringed branches within 30 days. Both scales are logarithmic."
    return html.figure(svg.picture(f"Branches of {key}", summary, parts, _HEIGHT), caption)


def _table(key: str, rows: Sequence[Json]) -> Markup:
    headers = (
        "branch",
        "HEAD",
        "idle for",
        "age",
        "own commits",
        "days stored",
        "days proposed",
        "deleted at",
    )
    shown = [
        [
            r["branch"],
            el("code", r["commit_id"][:12]),
            (_ago(r["idle_seconds"]), {"data_sort": -1 if r["idle_seconds"] is None else r["idle_seconds"]}),
            _age(r),
            _known(r["own_commits"]),
            _known(r["days_before"]),
            _known(r["days_after"]),
            _deleted_at(r),
        ]
        for r in rows
    ]
    caption = f"Branches of {key}: those to be deleted first, then those idle the longest"
    return html.table(caption, headers, shown, figures=(2, 3, 4, 5, 6), sortable=True)


def _ago(seconds: int | None) -> str:
    if seconds is None:
        return "unknown"
    return days(seconds // _DAY) if seconds >= _DAY else f"{seconds // 3600} h"


def _age(row: Json) -> html.Cell:
    age = row["age_seconds"]
    if age is None:
        return ("unknown", {"data_sort": -1})
    sure = row["created_at"] is not None
    return (_ago(age) if sure else f"{_AGE} {_ago(age)}", {"data_sort": age})


def _known(value: int | None) -> html.Cell:
    return ("unknown", {"data_sort": -1}) if value is None else (count(value), {"data_sort": value})


def _deleted_at(row: Json) -> html.Cell:
    if row["goes_at"] is None:
        kept = "kept, although the stored policies would delete it" if row["before_at"] else "kept"
        return (kept, {"data_sort": "9"})
    new = "" if row["before_at"] else ", newly"
    return (f"{moment(row['goes_at'])} by {row['policy']}{new}", {"data_sort": row["goes_at"]})


_NAMES = 6
_TIMELINE_HEIGHT = 150
_WHEN = {0: "now", 7: "in 7 days", 30: "in 30 days"}


def timeline_section(document: Json) -> html.Section | None:
    timelines = [t for t in document["timelines"] if t["moments"] or t["days"]]
    if not timelines:
        return None
    prices = {key_of(r): Money.of(r) for r in document["repositories"]}
    note = el(
        "p",
        "The forecast assumes no new commits. A day is 24 hours, counted from the time of the plan.",
        cls="dim",
    )
    drawn = [_one_chart(timeline, prices.get(timeline["key"], Money())) for timeline in timelines]
    return html.Section("timeline", "Expirations over time", join([note, *drawn]))


def _one_chart(timeline: Json, cost: Money) -> Markup:
    key = timeline["key"]
    parts: list[Markup | None] = [el("h3", key), _words(timeline, cost)]
    if timeline["has_commits"] and any(d["proposed"] or d["stored"] for d in timeline["days"]):
        parts.append(_commits(timeline))
    if timeline["has_objects"]:
        parts.append(_objects(timeline))
    if timeline["days"]:
        parts.append(html.folded(f"{key}: day by day", _moments_table(timeline, cost)))
    return join(parts)


def _words(timeline: Json, cost: Money) -> Markup | None:
    items = []
    for m in timeline["moments"]:
        objects = UNKNOWN if m["objects"] is None else count_of(m["objects"], "object")
        goes = known(m["size_bytes"], size) + cost.words(m["size_bytes"])
        when = _WHEN[m["day"]]
        items.append(el("li", el("strong", when), f": {count_of(m['commits'], 'commit')}, {objects}, {goes}"))
    if not items:
        return None
    return join([el("p", "Data that expires by the following times because of this plan:"), el("ul", items)])


def _commits(timeline: Json) -> Markup:
    span, days = timeline["span"], [d for d in timeline["days"] if d["day"] > 0]
    peaks = [d[side] or 0 for d in days for side in ("stored", "proposed")]
    f = svg.frame(span, peaks, _TIMELINE_HEIGHT)
    parts = svg.axes(f, count, svg.day_ticks(span), "commits that expire, by days from now")
    width = (svg.WIDTH - svg.LEFT - svg.RIGHT) / span
    for d in days:
        proposed, stored = d["proposed"] or 0, d["stored"] or 0
        title = (
            f"{moment(d['until'])}: {proposed:,} under the proposed rules, {stored:,} under the stored rules"
        )
        parts.append(svg.column(f, d["day"] - 1, width * 0.45, d["stored"] or 0, "bar quiet", title))
        parts.append(svg.column(f, d["day"] - 0.5, width * 0.45, d["proposed"] or 0, "bar loud", title))
        if d["branches"]:
            parts.append(_branch_mark(f, d))
    sides = ((side, sum(d[side] or 0 for d in days)) for side in ("stored", "proposed"))
    summary = ", ".join(f"{count_of(total, 'commit')} under the {side} rules" for side, total in sides)
    caption = (
        "Expirations follow the documented rule. The left bar of each pair shows the stored rules, and"
        " the right bar the proposed ones."
    )
    if any(d["branches"] for d in days):
        caption += " Triangles mark branches that policies delete."
    drawn = svg.picture(f"Commits that expire within {span} days", summary, parts, _TIMELINE_HEIGHT)
    return html.figure(drawn, caption)


def _branch_mark(f: svg.Frame, day: Json) -> Markup:
    title = f"{moment(day['until'])}: {count_of(len(day['branches']), 'branch')}: {_names(day['branches'])}"
    at = f"translate({f.x(day['day'] - 0.5)} {svg.TOP - 8})"
    return el("path", el("title", title), cls="gone-branch", d="M-6-5h12l-6 10z", transform=at)


def _objects(timeline: Json) -> Markup:
    span, days = timeline["span"], [d for d in timeline["days"] if d["size_bytes"]]
    f = svg.frame(span, [d["size_bytes"] for d in days], _TIMELINE_HEIGHT)
    parts = svg.axes(f, size, svg.day_ticks(span), "bytes that expire, by days from now")
    width = (svg.WIDTH - svg.LEFT - svg.RIGHT) / span * 0.8
    for d in days:
        title = f"{moment(d['until'])}: {volume(d)}"
        parts.append(svg.column(f, d["day"] - 0.9, width, d["size_bytes"], "bar", title))
    total = f"{size(sum(d['size_bytes'] for d in days))} under the proposed rules"
    drawn = svg.picture(f"Bytes that expire within {span} days", total, parts, _TIMELINE_HEIGHT)
    return html.figure(
        drawn, "The expirations under the proposed rules come from the forecast in the curve file."
    )


def _names(branches: Sequence[Sequence[str]]) -> str:
    return names([f"{name} ({policy})" for name, policy in branches], _NAMES)


def _moments_table(timeline: Json, cost: Money) -> Markup:
    headers = ["by"]
    headers += ["commits, stored rules", "commits, proposed rules"] if timeline["has_commits"] else []
    headers += ["objects", "bytes", *cost.header(" ")] if timeline["has_objects"] else []
    figures = range(1, len(headers))
    headers.append("branches that policies delete")
    rows: list[list[html.Cell]] = []
    for d in timeline["days"]:
        row: list[html.Cell] = [(moment(d["until"]), {"data_sort": d["day"]})]
        if timeline["has_commits"]:
            row += [_quiet(d["stored"]), _quiet(d["proposed"])]
        if timeline["has_objects"]:
            row += [html.amount(d["objects"] or 0), html.amount(d["size_bytes"] or 0, size)]
            row += html.cells(costs(cost, d["size_bytes"] or 0))
        rows.append([*row, _names(d["branches"])])
    caption = f"Day by day, {timeline['key']}"
    return html.table(caption, headers, rows, figures=figures, sortable=True, hidden_caption=True)


def _quiet(value: int | None) -> html.Cell:
    return ("no rules", {"cls": "none", "data_sort": 0}) if value is None else html.amount(value)


VERDICTS = {
    "kept": ("kept", "the server keeps it under the proposed rules"),
    "released": ("kept again", "the stored rules let it expire, but the proposed rules keep it"),
    "expires": ("expires", "the stored rules keep it, but the proposed rules let it expire"),
    "at_risk": ("at risk", "expires on the server although the documented rule keeps it"),
    "at_risk_already": ("at risk already", "at risk, and the stored rules let it expire too"),
    "gone": ("gone", "both the stored and the proposed rules let it expire"),
}
"""In the order of their numbers in the document."""

SHAPES = {
    "kept": el("circle", cx=8, cy=8, r=5),
    "released": el("path", d="M8 2l6 11H2z"),
    "expires": el("path", d="M3 3l10 10M13 3L3 13"),
    "at_risk": el("path", d="M8 1l7 7-7 7-7-7z"),
    "at_risk_already": el("path", d="M8 2l6 6-6 6-6-6z"),
    "gone": el("circle", cx=8, cy=8, r="4.5"),
}


def graph_section(document: Json) -> tuple[html.Section | None, list[Markup]]:
    """Return the section, or None without a history, and the blocks of data that it needs."""
    graphs = document["graphs"]
    if not graphs:
        return None, []
    body = join([*(_counts(graph) for graph in graphs), _frame(graphs)])
    data = [html.data_block(f"graph-{n}", graph) for n, graph in enumerate(graphs)]
    return html.Section("graph", "Commit graph", body), data


def _counts(graph: Json) -> Markup:
    rows = [
        [
            HORIZONS[name],
            *(html.amount(counts[v], cls="risk" if v.startswith("at_risk") else "some") for v in VERDICTS),
        ]
        for name, counts in graph["counts"].items()
    ]
    headers = ("moment", *(label for label, _ in VERDICTS.values()))
    drawn = len(graph["rows"]["id"])
    left = graph["commits"] - drawn
    notes = [f"{count_of(graph['commits'], 'commit')}, read from {graph['source']}."]
    if left:
        notes.append(
            f"Drawn: {count(drawn)} (HEADs, the newest commits, and commits whose verdict changes). Not"
            f" drawn: {count(left)}."
        )
    notes += [f"Not included: {words}." for words in graph["blind_to"]]
    moved = None
    if graph["same_as_plan"] is False:
        moved = el(
            "p",
            "This history differs from the one that the plan evaluated: it has changed since, or the plan did"
            " not read all of it. The graph shows the history as read now. The impact figures are those of"
            " the plan.",
            cls="alert",
        )
    return join(
        [
            el("h3", graph["key"]),
            el("p", " ".join(notes)),
            moved,
            html.table(f"Commits of {graph['key']} by verdict", headers, rows, figures=range(1, 7)),
        ]
    )


def _frame(graphs: Sequence[Json]) -> Markup:
    return html.fragment(
        "graph.html",
        repositories=[el("option", graph["key"], value=n) for n, graph in enumerate(graphs)],
        moments=[el("option", label, value=n) for n, label in enumerate(HORIZONS.values())],
        verdicts=[
            html.fragment("verdict.html", name=name, shape=SHAPES[name], label=label, meaning=meaning)
            for name, (label, meaning) in VERDICTS.items()
        ],
    )


_CURVES = 12
_OTHER_RULES = (
    "This curve was computed with rules that are neither the stored nor the proposed rules of the plan. Its"
    " current retention can differ from the plan's."
)


def curves_section(document: Json) -> html.Section | None:
    if not document["curves"]:
        return None
    plans = {key_of(r): r for r in document["plan"]["repositories"]}
    return html.Section(
        "curves",
        "Retention curves",
        join([_one(placed, plans.get(placed["key"])) for placed in document["curves"]]),
    )


def _one(placed: Json, repository: Json | None) -> Markup:
    curve: CurveDocument = placed["curve"]
    at_most = "upper bounds, from metadata alone; " if curve["at_most"] else ""
    held = f"As of {moment(curve['as_of'])}; {at_most}committed: {volume(curve['committed'])}."
    notes = [el("p", held, cls="dim")]
    if placed["rules"] is None:
        notes.append(el("p", _OTHER_RULES, cls="alert"))
    drawn = [_curve(one, repository) for one in curve["curves"][:_CURVES]]
    left = len(curve["curves"]) - _CURVES
    if left > 0:
        notes.append(el("p", f"The curve file has {count_of(left, 'more curve')}.", cls="dim"))
    warnings = el("ul", [el("li", w) for w in curve["warnings"]]) if curve["warnings"] else None
    return join([el("h3", placed["key"] or curve["repository"]), *notes, warnings, *drawn])


def _proposed(repository: Json | None, branch: str | None) -> tuple[int | None, int | None]:
    """Return the retention days of a branch, or of the default, under the stored and under the proposed
    rules."""
    days: list[int | None] = []
    for rules in (repository["before"], repository["after"]) if repository else (None, None):
        if rules is None:
            days.append(None)
            continue
        days_of = {b["branch_id"]: b["retention_days"] for b in rules["branches"]}
        days.append(days_of.get(branch, rules["default_retention_days"]))
    return days[0], days[1]


def _curve(curve: CurveRow, repository: Json | None) -> Markup:
    stored, proposed = _proposed(repository, curve["branch_id"])
    marked = [d for d in (stored, proposed, curve["days_now"]) if d is not None]
    worse = [p for p in curve["server"] if p["at_risk"]["objects"]]
    span = max([2, -(-max(curve["points"][-1]["days"], *marked, 1) * 11 // 10), *(p["days"] for p in worse)])
    steps = [(p["days"], p["size_bytes"]) for p in curve["points"]]
    f = svg.frame(span, [*(p["size_bytes"] for p in (*curve["points"], *curve["server"]))])
    parts = svg.axes(f, size, svg.day_ticks(span), "bytes that expire, by days of retention")
    parts.append(el("path", cls="area", d=svg.area_path(f, steps)))
    parts.append(el("path", cls="step", d=svg.step_path(f, steps)))
    if repository is None:
        parts += _mark(f, curve, curve["days_now"], "now", "the curve's rules")
    elif stored == proposed:
        parts += _mark(f, curve, proposed, "now", "stored and proposed")
    else:
        parts += _mark(f, curve, stored, "now", "stored")
        parts += _mark(f, curve, proposed, "then", "proposed")
    parts += [_worse(f, point) for point in worse]
    name = title_of(curve)
    summary = [
        f"{days(at)}: {size(expiring_at(curve, at)['size_bytes'])} expire." for at in dict.fromkeys(marked)
    ]
    caption = f"{name}. The filled area shows the data that expires by the documented rule."
    if worse:
        caption += " Diamonds mark retention periods at which the server would delete more than that."
    return join(
        [
            el("h4", name),
            html.figure(svg.picture(name, " ".join(summary), parts), caption),
            html.folded(f"{name}: figures", _figures(curve, name, Money.of(repository or {}))),
        ]
    )


def _mark(f: svg.Frame, curve: CurveRow, at: int | None, cls: str, what: str) -> list[Markup]:
    if at is None or not 0 <= at <= f.span:
        return []
    goes = expiring_at(curve, at)
    marked = svg.upright(f, at, cls, f"{what}: {days(at)}, {size(goes['size_bytes'])}")
    if cls == "then":  # below the other label, which may be close
        marked[1] = Markup(marked[1].replace(f'y="{svg.TOP + 12}"', f'y="{svg.TOP + 30}"'))
    return marked


def _worse(f: svg.Frame, point: ServerDaysPoint) -> Markup:
    title = (
        f"{days(point['days'])}: the server deletes {size(point['size_bytes'])}, of which at risk: "
        + size(point["at_risk"]["size_bytes"])
    )
    at = f"translate({f.x(point['days'])} {f.y(point['size_bytes'])})"
    return el("path", el("title", title), cls="worse", d="M-6 0l6-6 6 6-6 6z", transform=at)


def _figures(curve: CurveRow, name: str, cost: Money) -> Markup:
    asked = {p["days"]: p for p in curve["server"]}
    steps = curve["points"]
    shown = sorted({*asked, *(p["days"] for p in steps[:: max(1, len(steps) // 60)]), steps[-1]["days"]})
    rows = []
    for at in shown:
        server = asked.get(at)
        risk = "not computed" if server is None else f"{count(server['at_risk']['objects'])} more"
        rows.append([days(at), *amounts(expiring_at(curve, at), cost), risk])
    headers = ("days", "objects expire", "bytes expire", *cost.header(" "), "the server deletes")
    return html.table(name, headers, rows, figures=range(1, 3 + cost.shown), hidden_caption=True)


def render_report(document: Json) -> str:
    """The page as text of an HTML file."""
    graph, data = graph_section(document)
    sections = [
        summary_section(document),
        gates_section(document),
        impact_section(document),
        timeline_section(document),
        curves_section(document),
        graph,
        branches_section(document),
        notes_section(document),
    ]
    return html.page(document, sections, data)
