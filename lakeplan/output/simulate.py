"""Simulations and curves on a terminal, and a curve as SVG for light and dark pages.

The SVG has a row for each rule: bytes on the left and objects on the right, by days of retention. The filled
area is the documented rule. A mark above it shows where the server deletes more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.console import Console

from lakeplan.output import drawing as svg
from lakeplan.output.drawing import Markup, el, join
from lakeplan.output.text import (
    Cell,
    Money,
    Page,
    amounts,
    count,
    days,
    duration,
    moment,
    names,
    percent,
    size,
    volume,
)
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.simulation import documents
    from lakeplan.values.rules import RulesBody
    from lakeplan.values.simulation import AmountRow


ROWS_SHOWN = 10
RULES_SHOWN = 5

_KEPT: tuple[tuple[documents.Figure, str], ...] = (
    ("kept_by_commits", "in a kept commit"),
    ("kept_uncommitted", "uncommitted"),
    ("kept_young", "younger than the minimum age"),
    ("kept_elsewhere", "in a location that no collector inspects"),
)


def render_simulate(document: documents.SimulateDocument, console: Console) -> None:
    """Print the rules, what would be deleted and kept, why and where, and warnings."""
    page = Page(console)
    page.line(Cell(document["namespace"], "bold"), f"  as of {moment(document['as_of'])}")
    page.line(_read(document), indent=2)
    for rule_set in document["rule_sets"]:
        _rule_set(page, document, rule_set)
    _warnings(page, document)


def _warnings(page: Page, document: documents.SimulateDocument | documents.CurveDocument) -> None:
    if document["warnings"]:
        page.heading("Warnings")
        page.warnings(document["warnings"], indent=2)


def _read(document: documents.SimulateDocument) -> str:
    refs, read = document["refs"], document["read"]
    text = ", ".join(
        (
            count_of(refs["commits"], "commit"),
            count_of(refs["branches"], "branch"),
            count_of(refs["tags"], "tag"),
        )
    )
    if read is None:
        return text
    text += f"; {count_of(read['ranges'], 'range')} with {count_of(read['entries'], 'entry')} read"
    return text + (f"; minimum age {duration(document['min_age_seconds'])}" if document["listing"] else "")


def _rule_set(page: Page, document: documents.SimulateDocument, rule_set: documents.RuleSetRow) -> None:
    title = "Rules" if rule_set["name"] == "rules" else "Rules to compare"
    page.heading(title, _rules(rule_set["rules"]))
    commits = rule_set["commits"]
    gone = commits["total"] - commits["active"]
    risk = f"; {count(commits['at_risk'])} at risk" if commits["at_risk"] else ""
    text = f"{count(commits['active'])} of {count(commits['total'])} commits are kept, {count(gone)} expire"
    page.line(text, Cell(risk, "bold red"), indent=2)
    if rule_set["objects"] is None:
        return
    _objects(page, document, rule_set["objects"])
    _prefixes(page, rule_set["prefixes"] or ())
    _branches(page, rule_set["branches"] or ())


def _rules(rules: RulesBody) -> str:
    texts = [f"{b['branch_id']} {days(b['retention_days'])}" for b in rules["branches"]]
    return names([f"default {days(rules['default_retention_days'])}", *texts], RULES_SHOWN)


def _objects(
    page: Page, document: documents.SimulateDocument, objects: Mapping[documents.Figure, AmountRow]
) -> None:
    up_to = "up to " if document["at_most"] else ""

    def row(label: str, key: documents.Figure, style: str = "") -> list[Cell]:
        return [Cell(text, style) for text in (label, *amounts(objects[key]))]

    rows = [
        row(f"{up_to}deleted", "goes", "bold"),
        row("  expired", "expired"),
        row("  never committed", "never_committed"),
    ]
    if objects["at_risk"]["objects"]:
        rows.append(row("  at risk: the documented rule keeps it", "at_risk", "bold red"))
    rows.append(row("kept", "kept", "bold"))
    rows += [row(f"  {text}", key) for key, text in _KEPT if objects[key]["objects"]]
    if objects["missing"]["objects"]:
        rows.append(row("in a kept commit but not stored", "missing", "yellow"))
    page.table(("", "objects", "bytes"), rows, figures=(1, 2))


def _prefixes(page: Page, prefixes: Sequence[documents.PrefixRow]) -> None:
    below = [p for p in prefixes if p["depth"]]
    if below:
        page.blank()
        rows = [(p["prefix"], *amounts(p)) for p in below[:ROWS_SHOWN]]
        page.table(("largest prefixes to be deleted", "objects", "bytes"), rows, figures=(1, 2))


def _branches(page: Page, branches: Sequence[documents.BranchRow]) -> None:
    if branches:
        page.blank()
        rows = [
            (b["branch_id"], count(b["commits"]), *amounts(b), size(b["exclusive_bytes"]))
            for b in branches[:ROWS_SHOWN]
        ]
        headers = ("branches that keep the most data", "commits", "objects", "bytes", "alone")
        page.table(headers, rows, figures=(1, 2, 3, 4))


CURVE_ROWS_SHOWN = 14
BAR_WIDTH = 20
BAR_FROM_WIDTH = 100
"""Narrower terminals have no room for bars."""


def render_curve(document: documents.CurveDocument, console: Console) -> None:
    """Print what expires at each retention period, rule by rule, then the forecast and warnings."""
    page = Page(console)
    page.line(Cell(document["repository"], "bold"), f"  as of {moment(document['as_of'])}")
    read, refs = document["read"], document["refs"]
    page.line(
        f"{count_of(refs['commits'], 'commit')}, {count_of(refs['branches'], 'branch')}; "
        f"{count_of(read['ranges'], 'range')} with {count_of(read['entries'], 'entry')} read",
        indent=2,
    )
    up_to = "up to " if document["at_most"] else ""
    held = document["committed"]
    page.line(f"committed: {up_to}{volume(held)}", indent=2)
    garbage = document["never_committed"]
    if garbage["objects"]:
        page.line(f"never committed: {volume(garbage)}, which expire at any retention period", indent=2)
    cost = Money.of(document)
    _curves(page, document["curves"], held["size_bytes"], cost)
    if document["horizon"] is not None:
        _horizon(page, document["horizon"], cost)
    _warnings(page, document)


def title_of(curve: documents.CurveRow) -> str:
    """Return the name of the rule that varies."""
    return "Default retention" if curve["branch_id"] is None else f"Branch {curve['branch_id']}"


def expiring_at(curve: documents.CurveRow, at: int) -> documents.DaysPoint:
    """Return the data that expires by the documented rule at this retention period: the last step at or
    before it."""
    steps = [point for point in curve["points"] if point["days"] <= max(at, 0)]
    return steps[-1]


def _curves(page: Page, curves: Sequence[documents.CurveRow], whole: int, cost: Money) -> None:
    """Print one table with the rows of every rule. An arrow marks the current retention period."""
    page.heading("Data that expires, by retention period", f"{page.arrow} the current retention period")
    bars = page.width >= BAR_FROM_WIDTH
    rows: list[tuple[str | Cell, ...]] = []
    for curve in curves:
        asked = {point["days"]: point for point in curve["server"]}
        title: str | Cell = Cell(title_of(curve), "bold")
        for at in _rows(curve, asked):
            rows.append((title, *_row(page, curve, at, asked, whole, cost, bars=bars)))
            title = ""
    headers = ("rule", "days", "objects", "bytes", *cost.header(), "", "", "the server deletes more")
    share = 4 + cost.shown
    page.table(headers, rows, figures=range(1, share + 1), solid=(share + 1,))


def _rows(curve: documents.CurveRow, asked: Mapping[int, documents.ServerDaysPoint]) -> list[int]:
    """Return the days that get a row: the requested days, and every step if there are few."""
    steps = [point["days"] for point in curve["points"]]
    last = steps[-1]
    shown = {*asked, last, *(steps if len(steps) <= CURVE_ROWS_SHOWN else ())}
    beyond = [at for at in sorted(shown) if at > last]
    # Nothing changes after the last step, so one of the usual days is enough after it.
    differing = {at for at in beyond if asked[at]["at_risk"]["objects"]}
    return sorted(shown - set(beyond[1:]) | differing | ({max(0, curve["days_now"])} & set(asked)))


def _row(
    page: Page,
    curve: documents.CurveRow,
    at: int,
    asked: Mapping[int, documents.ServerDaysPoint],
    whole: int,
    cost: Money,
    *,
    bars: bool,
) -> tuple[str | Cell, ...]:
    expiring = expiring_at(curve, at)
    style = "bold" if at == curve["days_now"] else ""
    risk = asked[at]["at_risk"] if at in asked else None
    share = percent(expiring["size_bytes"], whole) if whole else ""
    cells = (f"{page.arrow} {at:,}" if style else f"{at:,}", *amounts(expiring, cost), share)
    return (
        *(Cell(text, style) for text in cells),
        Cell(_bar(page, expiring["size_bytes"], whole) if bars else "", "cyan"),
        Cell(f"+{volume(risk)}" if risk and risk["objects"] else "", "bold red"),
    )


def _bar(page: Page, part: int, whole: int) -> str:
    if part <= 0 or whole <= 0:
        return ""
    block = "#" if page.console.options.ascii_only else "█"
    return block * max(1, round(BAR_WIDTH * part / whole))


def _horizon(page: Page, horizon: documents.HorizonRow, cost: Money) -> None:
    total, gone = horizon["total"], horizon["gone_now"]
    page.heading(f"The next {days(horizon['days'])}, assuming no new commits")
    by = moment(horizon["until"])
    page.line(f"already expired: {volume(gone)}; by {by}: {volume(total)}", indent=2)
    losses = horizon["days_with_losses"]
    if losses:
        rows = [
            (until, count(objects), size(size_bytes), *cost.cells(size_bytes), count(so_far))
            for until, objects, size_bytes, so_far in _grouped(losses)
        ]
        headers = ("until", "objects expire", "bytes expire", *cost.header(), "objects so far")
        page.table(headers, rows, figures=range(1, len(headers)))


def _grouped(losses: Sequence[documents.DayRow]) -> list[tuple[str, int, int, int]]:
    """Return a row for each day or, if there are many days, for several days."""
    span = 1
    while len({-(-loss["day"] // span) for loss in losses}) > CURVE_ROWS_SHOWN:
        span = 7 if span == 1 else span * 2
    rows: dict[int, tuple[str, int, int, int]] = {}
    so_far = 0
    for loss in losses:
        so_far += loss["objects"]
        group = -(-loss["day"] // span)
        _, objects, size_bytes, _ = rows.get(group, ("", 0, 0, 0))
        # The last day with losses names the group, because the document has its date.
        rows[group] = (
            moment(loss["until"]),
            objects + loss["objects"],
            size_bytes + loss["size_bytes"],
            so_far,
        )
    return list(rows.values())


PANEL, HEIGHT, GAP, ROW = 396, 150, 70, 236
TITLE_LENGTH = 60
HEAD = 92

STYLE = """
svg { --ink: #1f2328; --dim: #59636e; --grid: #d8dee4; --paper: #ffffff; --fill: #4a7dbd; --line: #27588f;
      --warn: #b3261e; --now: #59636e; background: var(--paper); }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --dim: #9aa5b1; --grid: #30363d; --paper: #0d1117; --fill: #3f76bd; --line: #8ab8f0;
        --warn: #ff8a80; --now: #9aa5b1; }
}
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.title { font-size: 17px; font-weight: 600; } .head { font-size: 14px; font-weight: 600; }
.dim, .soft { fill: var(--dim); } .end { text-anchor: end; } .mid { text-anchor: middle; }
.paper { fill: var(--paper); } .grid { stroke: var(--grid); } .area { fill: var(--fill); fill-opacity: .28; }
.step { fill: none; stroke: var(--line); stroke-width: 1.8; } .bar { fill: var(--fill); }
.now { stroke: var(--now); stroke-dasharray: 4 3; } .server { fill: var(--warn); }
.gap { stroke: var(--warn); stroke-width: 1.5; } .warn { fill: var(--warn); }
"""

Measure = Callable[["AmountRow"], int]


PANELS: tuple[tuple[int, Measure, svg.Label, str], ...] = (
    (svg.LEFT, itemgetter("size_bytes"), size, "bytes"),
    (svg.LEFT + PANEL + GAP, itemgetter("objects"), count, "objects"),
)
"""Left edge, figure, form of the figure, and name."""


def curve_svg(document: documents.CurveDocument) -> str:
    """The text of an SVG file."""
    rows = [_curve_row(curve, HEAD + n * ROW) for n, curve in enumerate(document["curves"])]
    bottom = HEAD + len(rows) * ROW
    horizon = document["horizon"]
    if horizon is not None:
        rows.append(_horizon_row(horizon, bottom))
        bottom += ROW
    upper = "upper bounds, from metadata alone; " if document["at_most"] else ""
    title = f"Data that expires at each retention period: {document['repository']}"
    held = f"{upper}committed: {volume(document['committed'])}"
    picture = el(
        "svg",
        el("title", title),
        el("desc", _description(document)),
        Markup(f"<style>{STYLE}</style>"),
        el("rect", cls="paper", width=svg.WIDTH, height=bottom),
        svg.words(24, 34, _clipped(title, 100), "title"),
        svg.words(24, 54, _clipped(f"as of {moment(document['as_of'])}; {held}", 150), "dim"),
        _legend(document),
        *rows,
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        viewBox=f"0 0 {svg.WIDTH} {bottom}",
        width=svg.WIDTH,
        height=bottom,
    )
    return f"{picture}\n"


def _clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _description(document: documents.CurveDocument) -> str:
    """Return the description for people who cannot see the picture."""
    return " ".join(
        f"{title_of(curve)}: at {days(curve['days_now'])} {count_of(curve['now']['objects'], 'object')} of "
        f"{size(curve['now']['size_bytes'])} expire."
        for curve in document["curves"]
    )


def _legend(document: documents.CurveDocument) -> Markup:
    parts = [
        el("rect", cls="area", x=24, y=65, width=22, height=10),
        el("path", cls="step", d="M24 65H46"),
        svg.words(52, 74, "expires by the documented rule", "dim"),
        el("line", cls="now", x1=252, x2=274, y1=70, y2=70),
        svg.words(280, 74, "retention days of the current rules", "dim"),
    ]
    if any(point["at_risk"]["objects"] for curve in document["curves"] for point in curve["server"]):
        parts.append(el("path", cls="server", d="M424 70l5-5 5 5-5 5z"))
        parts.append(svg.words(440, 74, "the server deletes more than documented", "warn"))
    return join(parts)


def _titles(top: int, title: str, note: str) -> list[Markup]:
    return [svg.words(24, top + 14, title, "head"), svg.words(svg.WIDTH - 24, top + 14, note, "dim end")]


def _curve_row(curve: documents.CurveRow, top: int) -> Markup:
    note = f"{days(curve['days_now'])} now: {volume(curve['now'])} expire"
    last = max(curve["points"][-1]["days"], curve["days_now"], 1)
    differ = [p["days"] for p in curve["server"] if p["at_risk"]["objects"]]
    span = max(-(-last * 11 // 10), *differ, 2)
    parts = _titles(top, _clipped(title_of(curve), TITLE_LENGTH), note)
    for left, of, label, name in PANELS:
        peaks = [of(p) for p in (*curve["points"], *curve["server"])]
        parts += _steps(
            svg.frame(span, peaks, HEIGHT, left=left, top=top + 30, width=PANEL), curve, of, label, name
        )
    return join(parts)


def _steps(f: svg.Frame, curve: documents.CurveRow, of: Measure, label: svg.Label, name: str) -> list[Markup]:
    steps = [(p["days"], of(p)) for p in curve["points"]]
    parts = [
        *svg.axes(f, label, svg.day_ticks(int(f.span)), f"{name} that expire, by days of retention"),
        el("path", cls="area", d=svg.area_path(f, steps)),
        el("path", cls="step", d=svg.step_path(f, steps)),
    ]
    if 0 <= curve["days_now"] <= f.span:
        at = f.x(curve["days_now"])
        parts.append(el("line", cls="now", x1=at, x2=at, y1=f.top, y2=f.floor))
    return parts + [
        _server_mark(f, curve, point, of, label)
        for point in curve["server"]
        if point["at_risk"]["objects"] and point["days"] <= f.span
    ]


def _server_mark(
    f: svg.Frame, curve: documents.CurveRow, point: documents.ServerDaysPoint, of: Measure, label: svg.Label
) -> Markup:
    at, high, low = f.x(point["days"]), f.y(of(point)), f.y(of(expiring_at(curve, point["days"])))
    more = label(of(point["at_risk"]))
    return el(
        "g",
        el(
            "title",
            f"{days(point['days'])}: the server deletes {label(of(point))}, {more} more than documented",
        ),
        el("line", cls="gap", x1=at, x2=at, y1=low, y2=high),
        el("path", cls="server", transform=f"translate({at} {high})", d="M-5 0l5-5 5 5-5 5z"),
    )


def _horizon_row(horizon: documents.HorizonRow, top: int) -> Markup:
    note = f"{volume(horizon['total'])} by {moment(horizon['until'])}"
    losses, span = horizon["days_with_losses"], horizon["days"]
    parts = _titles(top, f"The next {days(span)}, assuming no new commits", note)
    for left, of, label, name in PANELS:
        f = svg.frame(span, map(of, losses), HEIGHT, left=left, top=top + 30, width=PANEL)
        parts += svg.axes(f, label, svg.day_ticks(span), f"{name} that expire, by days from now")
        for loss in losses:
            caption = f"by {moment(loss['until'])}: {label(of(loss))}"
            width = max(1.0, PANEL / span * 0.8)
            parts.append(svg.column(f, loss["day"] - 0.8, width, of(loss), "bar", caption))
    return join(parts)
