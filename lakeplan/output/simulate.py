"""Simulations and curves as pages, and a curve as a picture: SVG of plain shapes, for light and dark pages.

Each rule has a row: bytes at the left, objects at the right, both as functions of its days. The filled step
is the documented rule; where the server, asked at a day, takes more, a mark stands above it. SVG only: no
library that draws PNG is among lakeplan's requirements, and a browser makes one from this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from rich.console import Console

from lakeplan.output.page import Cell, Page, names
from lakeplan.output.text import (
    Money,
    amounts,
    count,
    count_of,
    days,
    duration,
    moment,
    percent,
    safe,
    size,
    volume,
)

if TYPE_CHECKING:
    from lakeplan.simulation.documents import (
        BranchRow,
        CurveDocument,
        CurveRow,
        DayRow,
        DaysPoint,
        Figure,
        HorizonRow,
        PrefixRow,
        RuleSetRow,
        ServerDaysPoint,
        SimulateDocument,
    )
    from lakeplan.values.rules import RulesBody
    from lakeplan.values.simulation import AmountRow


ROWS_SHOWN = 10
RULES_SHOWN = 5

_KEPT: tuple[tuple[Figure, str], ...] = (
    ("kept_by_commits", "a kept commit holds it"),
    ("kept_uncommitted", "uncommitted"),
    ("kept_young", "younger than the minimum age"),
    ("kept_elsewhere", "not where a collector looks"),
)


def render_simulate(document: SimulateDocument, console: Console) -> None:
    """Prints the summary of a simulation: what was asked, what goes and why, where, and warnings."""
    page = Page(console)
    page.line(Cell(document["namespace"], "bold"), f"  as of {moment(document['as_of'])}")
    page.line(_read(document), indent=2)
    for rule_set in document["rule_sets"]:
        _rule_set(page, document, rule_set)
    _warnings(page, document)


def _warnings(page: Page, document: SimulateDocument | CurveDocument) -> None:
    if document["warnings"]:
        page.heading("Warnings")
        page.warnings(document["warnings"], indent=2)


def _read(document: SimulateDocument) -> str:
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
    text += f"; {count(read['ranges'])} ranges with {count(read['entries'])} entries read"
    return text + (f"; minimum age {duration(document['min_age_seconds'])}" if document["listing"] else "")


def _rule_set(page: Page, document: SimulateDocument, rule_set: RuleSetRow) -> None:
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
    own = [f"{b['branch_id']} {days(b['retention_days'])}" for b in rules["branches"]]
    return names([f"default {days(rules['default_retention_days'])}", *own], RULES_SHOWN)


def _objects(page: Page, document: SimulateDocument, objects: Mapping[Figure, AmountRow]) -> None:
    up_to = "up to " if document["at_most"] else ""

    def row(label: str, key: Figure, style: str = "") -> list[Cell]:
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
        rows.append(row("held by a kept commit and not stored", "missing", "yellow"))
    page.table(("", "objects", "bytes"), rows, figures=(1, 2))


def _prefixes(page: Page, prefixes: Sequence[PrefixRow]) -> None:
    below = [p for p in prefixes if p["depth"]]
    if below:
        page.blank()
        rows = [(p["prefix"], *amounts(p)) for p in below[:ROWS_SHOWN]]
        page.table(("largest prefixes to be deleted", "objects", "bytes"), rows, figures=(1, 2))


def _branches(page: Page, branches: Sequence[BranchRow]) -> None:
    if branches:
        page.blank()
        rows = [
            (b["branch_id"], count(b["commits"]), *amounts(b), size(b["exclusive_bytes"]))
            for b in branches[:ROWS_SHOWN]
        ]
        headers = ("branches that hold most", "commits", "objects", "bytes", "alone")
        page.table(headers, rows, figures=(1, 2, 3, 4))


CURVE_ROWS_SHOWN = 14
BAR_WIDTH = 20
BAR_FROM_WIDTH = 100
"""Narrower terminals get no bars: figures come first."""


def render_curve(document: CurveDocument, console: Console) -> None:
    """Prints what goes at how many days, rule by rule, then what goes when, then warnings."""
    page = Page(console)
    page.line(Cell(document["repository"], "bold"), f"  as of {moment(document['as_of'])}")
    read, refs = document["read"], document["refs"]
    page.line(
        f"{count(refs['commits'])} commits, {count(refs['branches'])} branches; "
        f"{count(read['ranges'])} ranges with {count(read['entries'])} entries read",
        indent=2,
    )
    up_to = "up to " if document["at_most"] else ""
    held = document["committed"]
    page.line(f"{up_to}{volume(held)}, depend on commits", indent=2)
    garbage = document["never_committed"]
    if garbage["objects"]:
        page.line(f"{volume(garbage)}, were never committed and expire at any retention", indent=2)
    cost = Money.of(document)
    _curves(page, document["curves"], held["size_bytes"], cost)
    if document["horizon"] is not None:
        _horizon(page, document["horizon"], cost)
    _warnings(page, document)


def title_of(curve: CurveRow) -> str:
    """The rule that varies."""
    return "Default retention" if curve["branch_id"] is None else f"Branch {curve['branch_id']}"


def goes_at(curve: CurveRow, at: int) -> DaysPoint:
    """What the documented rule lets go at ``at`` days: the last step at or before them."""
    steps = [point for point in curve["points"] if point["days"] <= max(at, 0)]
    return steps[-1]


def _curves(page: Page, curves: Sequence[CurveRow], whole: int, cost: Money) -> None:
    """One table: the rows of every rule, below each other; its days of now with an arrow."""
    page.heading("What expires by retention", f"{page.arrow} today's days")
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


def _rows(curve: CurveRow, asked: Mapping[int, ServerDaysPoint]) -> list[int]:
    """Every day of change when they are few; else the days asked, which are rows in any case."""
    steps = [point["days"] for point in curve["points"]]
    last = steps[-1]
    shown = {*asked, last, *(steps if len(steps) <= CURVE_ROWS_SHOWN else ())}
    beyond = [at for at in sorted(shown) if at > last]
    # past the last step nothing changes: of the usual days there, one is enough
    differing = {at for at in beyond if asked[at]["at_risk"]["objects"]}
    return sorted(shown - set(beyond[1:]) | differing | ({max(0, curve["days_now"])} & set(asked)))


def _row(
    page: Page,
    curve: CurveRow,
    at: int,
    asked: Mapping[int, ServerDaysPoint],
    whole: int,
    cost: Money,
    *,
    bars: bool,
) -> tuple[str | Cell, ...]:
    goes = goes_at(curve, at)
    style = "bold" if at == curve["days_now"] else ""
    risk = asked[at]["at_risk"] if at in asked else None
    share = percent(goes["size_bytes"], whole) if whole else ""
    cells = (f"{page.arrow} {at:,}" if style else f"{at:,}", *amounts(goes, cost), share)
    return (
        *(Cell(text, style) for text in cells),
        Cell(_bar(page, goes["size_bytes"], whole) if bars else "", "cyan"),
        Cell(f"+{volume(risk)}" if risk and risk["objects"] else "", "bold red"),
    )


def _bar(page: Page, part: int, whole: int) -> str:
    if part <= 0 or whole <= 0:
        return ""
    block = "#" if page.console.options.ascii_only else "█"
    return block * max(1, round(BAR_WIDTH * part / whole))


def _horizon(page: Page, horizon: HorizonRow, cost: Money) -> None:
    total, gone = horizon["total"], horizon["gone_now"]
    page.heading(f"The next {days(horizon['days'])}, assuming no new commits")
    by = moment(horizon["until"])
    page.line(f"{volume(gone)}, already expired; {volume(total)}, by {by}", indent=2)
    losses = horizon["days_with_losses"]
    if losses:
        rows = [
            (until, count(objects), size(size_bytes), *cost.cells(size_bytes), count(so_far))
            for until, objects, size_bytes, so_far in _grouped(losses)
        ]
        headers = ("until", "objects expire", "bytes expire", *cost.header(), "objects so far")
        page.table(headers, rows, figures=range(1, len(headers)))


def _grouped(losses: Sequence[DayRow]) -> list[tuple[str, int, int, int]]:
    """Day by day where that is few rows, else several days in one."""
    span = 1
    while len({-(-loss["day"] // span) for loss in losses}) > CURVE_ROWS_SHOWN:
        span = 7 if span == 1 else span * 2
    rows: dict[int, tuple[str, int, int, int]] = {}
    so_far = 0
    for loss in losses:
        so_far += loss["objects"]
        group = -(-loss["day"] // span)
        _, objects, size_bytes, _ = rows.get(group, ("", 0, 0, 0))
        # the last day of a group that has losses: its end is a date that stands in the document
        rows[group] = (
            moment(loss["until"]),
            objects + loss["objects"],
            size_bytes + loss["size_bytes"],
            so_far,
        )
    return list(rows.values())


WIDTH, PANEL, HEIGHT = 960, 396, 150
LEFT, GAP, ROW = 64, 80, 236
TOP = 92
TICKS = 4
TITLE_LENGTH = 60

STYLE = """
svg { --ink: #1f2328; --dim: #59636e; --grid: #d8dee4; --paper: #ffffff; --fill: #4a7dbd; --line: #27588f;
      --warn: #b3261e; --now: #59636e; background: var(--paper); }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --dim: #9aa5b1; --grid: #30363d; --paper: #0d1117; --fill: #3f76bd; --line: #8ab8f0;
        --warn: #ff8a80; --now: #9aa5b1; }
}
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.title { font-size: 17px; font-weight: 600; } .head { font-size: 14px; font-weight: 600; }
.dim { fill: var(--dim); } .end { text-anchor: end; } .mid { text-anchor: middle; }
.paper { fill: var(--paper); } .grid { stroke: var(--grid); } .area { fill: var(--fill); fill-opacity: .28; }
.step { fill: none; stroke: var(--line); stroke-width: 1.8; } .bar { fill: var(--fill); }
.now { stroke: var(--now); stroke-dasharray: 4 3; } .server { fill: var(--warn); }
.gap { stroke: var(--warn); stroke-width: 1.5; } .warn { fill: var(--warn); }
"""

Amount = Callable[["AmountRow"], int]
Label = Callable[[int], str]
Place = Callable[[float], str]


def curve_svg(document: CurveDocument) -> str:
    """The whole picture as text of an SVG file."""
    rows = [_curve_row(curve, TOP + n * ROW) for n, curve in enumerate(document["curves"])]
    bottom = TOP + len(rows) * ROW
    horizon = document["horizon"]
    if horizon is not None:
        rows.append(_horizon_row(horizon, bottom))
        bottom += ROW
    at_most = "upper bounds, from metadata alone; " if document["at_most"] else ""
    title = f"What expires at each retention: {document['repository']}"
    held = f"{at_most}{volume(document['committed'])}, depend on commits"
    note = f"as of {moment(document['as_of'])}; {held}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {bottom}" '
        f'width="{WIDTH}" height="{bottom}">',
        f"<title>{_safe(title)}</title><desc>{_safe(_description(document))}</desc><style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{bottom}"/>',
        _text(24, 34, title, "title", limit=100),
        _text(24, 54, note, "dim", limit=150),
        _legend(document),
        *rows,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _description(document: CurveDocument) -> str:
    """What the picture says, for those who do not see it."""
    said = []
    for curve in document["curves"]:
        now = curve["now"]
        said.append(
            f"{title_of(curve)}: at {days(curve['days_now'])} {count_of(now['objects'], 'object')} of "
            f"{size(now['size_bytes'])} expire."
        )
    return " ".join(said)


def _legend(document: CurveDocument) -> str:
    parts = [
        '<rect class="area" x="24" y="65" width="22" height="10"/><path class="step" d="M24 65H46"/>',
        _text(52, 74, "expires by the documented rule", "dim"),
        '<line class="now" x1="252" x2="274" y1="70" y2="70"/>',
        _text(280, 74, "days of the rules now", "dim"),
    ]
    if any(point["at_risk"]["objects"] for curve in document["curves"] for point in curve["server"]):
        parts.append('<path class="server" d="M424 70l5-5 5 5-5 5z"/>')
        parts.append(_text(440, 74, "the server deletes more at this retention", "warn"))
    return "".join(parts)


def _curve_row(curve: CurveRow, top: int) -> str:
    note = f"{days(curve['days_now'])} now: {volume(curve['now'])} expire"
    last = max(curve["points"][-1]["days"], curve["days_now"], 1)
    differ = [p["days"] for p in curve["server"] if p["at_risk"]["objects"]]
    span = max(-(-last * 11 // 10), *differ, 2)
    return "".join(
        [
            _text(24, top + 14, title_of(curve), "head", limit=TITLE_LENGTH),
            _text(WIDTH - 24, top + 14, note, "dim end"),
            _panel(curve, LEFT, top + 30, span, lambda a: a["size_bytes"], size, "bytes"),
            _panel(curve, LEFT + PANEL + GAP, top + 30, span, lambda a: a["objects"], count, "objects"),
        ]
    )


def _panel(curve: CurveRow, left: int, top: int, span: int, of: Amount, label: Label, name: str) -> str:
    peaks = [of(p) for p in (*curve["points"], *curve["server"])]
    highest = nice_ceiling(max([*peaks, 1]))
    x, y = _scale(span, left, left + PANEL), _scale(highest, top + HEIGHT, top)
    steps = [(p["days"], of(p)) for p in curve["points"]]
    path = f"M{x(0)} {y(steps[0][1])}" + "".join(f"H{x(at)}V{y(goes)}" for at, goes in steps[1:])
    path += f"H{x(span)}"
    parts = [
        _grid(left, top, y, highest, label),
        _ticks(top + HEIGHT, x, _even(span)),
        _text(left + PANEL, top + HEIGHT + 34, f"{name} that expire, by days of retention", "dim end"),
        f'<path class="area" d="{path}V{y(0)}H{x(0)}Z"/><path class="step" d="{path}"/>',
    ]
    if 0 <= curve["days_now"] <= span:
        at = x(curve["days_now"])
        parts.append(f'<line class="now" x1="{at}" x2="{at}" y1="{top}" y2="{top + HEIGHT}"/>')
    parts += [
        _server_mark(curve, point, x, y, of, label)
        for point in curve["server"]
        if point["at_risk"]["objects"] and point["days"] <= span
    ]
    return "".join(parts)


def _server_mark(
    curve: CurveRow,
    point: ServerDaysPoint,
    x: Place,
    y: Place,
    of: Amount,
    label: Label,
) -> str:
    at, high = x(point["days"]), y(of(point))
    said = f"{days(point['days'])}: the server deletes {label(of(point))}, {label(of(point['at_risk']))} more"
    return (
        f'<g><title>{_safe(said)}</title><line class="gap" x1="{at}" x2="{at}" '
        f'y1="{y(of(goes_at(curve, point["days"])))}" y2="{high}"/>'
        f'<path class="server" transform="translate({at} {high})" d="M-5 0l5-5 5 5-5 5z"/></g>'
    )


def _horizon_row(horizon: HorizonRow, top: int) -> str:
    note = f"{volume(horizon['total'])} by {moment(horizon['until'])}"
    parts = [
        _text(24, top + 14, f"The next {days(horizon['days'])}, assuming no new commits", "head"),
        _text(WIDTH - 24, top + 14, note, "dim end"),
    ]
    panels: tuple[tuple[int, Amount, Label, str], ...] = (
        (LEFT, lambda a: a["size_bytes"], size, "bytes"),
        (LEFT + PANEL + GAP, lambda a: a["objects"], count, "objects"),
    )
    for left, of, label, name in panels:
        parts.append(_bars(horizon, left, top + 30, of, label, name))
    return "".join(parts)


def _bars(horizon: HorizonRow, left: int, top: int, of: Amount, label: Label, name: str) -> str:
    losses, span = horizon["days_with_losses"], horizon["days"]
    highest = nice_ceiling(max([1, *(of(loss) for loss in losses)]))
    x, y = _scale(span, left, left + PANEL), _scale(highest, top + HEIGHT, top)
    width = max(1.0, PANEL / span * 0.8)
    parts = [
        _grid(left, top, y, highest, label),
        _ticks(top + HEIGHT, x, _even(span)),
        _text(left + PANEL, top + HEIGHT + 34, f"{name} that expire, by days from now", "dim end"),
    ]
    for loss in losses:
        high = float(y(of(loss)))
        said = f"by {moment(loss['until'])}: {label(of(loss))}"
        parts.append(
            f'<rect class="bar" x="{float(x(loss["day"])) - width:.1f}" y="{high:.1f}" width="{width:.1f}" '
            f'height="{top + HEIGHT - high:.1f}"><title>{_safe(said)}</title></rect>'
        )
    return "".join(parts)


def _grid(left: int, top: int, y: Place, highest: int, label: Label) -> str:
    parts = []
    for value in sorted({highest * n // TICKS for n in range(TICKS + 1)}):
        at = y(value)
        parts.append(f'<line class="grid" x1="{left}" x2="{left + PANEL}" y1="{at}" y2="{at}"/>')
        parts.append(_text(left - 6, float(at) + 4, label(value), "dim end"))
    return "".join(parts)


def _ticks(bottom: int, x: Place, values: Iterable[int]) -> str:
    return "".join(_text(float(x(value)), bottom + 16, f"{value:,}", "dim mid") for value in values)


def _even(span: int) -> list[int]:
    """Round days from 0 to ``span``, few enough to stand apart."""
    for step in (1, 2, 5, 7, 10, 14, 30, 60, 90, 180, 365, 730, 1825, 3650, 7300):
        if span // step <= 8:
            return list(range(0, span + 1, step))
    return [0, span]


def nice_ceiling(value: int) -> int:
    """The next number at or above ``value`` of one or two digits and zeros, in quarters that are whole from
    4 on, so that every line of a grid can be labelled exactly."""
    power = 1
    while True:
        for lead in (1, 2, 4, 6, 8):
            if lead * power >= value:
                return lead * power
        power *= 10


def _scale(span: int, start: int, end: int) -> Place:
    return lambda value: f"{start + (end - start) * value / span:.1f}"


def _text(x: float, y: float, text: str, classes: str, *, limit: int = 0) -> str:
    if limit and len(text) > limit:
        text = text[: limit - 1] + "…"
    return f'<text class="{classes}" x="{x:g}" y="{y:g}">{_safe(text)}</text>'


def _safe(text: str) -> str:
    """Names are other people's text: never markup, nothing that hides or reorders."""
    return escape(safe(text))
