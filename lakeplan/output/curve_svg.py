"""A curve as a picture: SVG of plain shapes and text, for light and dark pages.

Each rule has a row: bytes at the left, objects at the right, both as functions of its days. The filled step
is the documented rule; where the server, asked at a day, takes more, a mark stands above it. SVG only: no
library that draws PNG is among lakeplan's requirements, and a browser makes one from this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from lakeplan.output.simulate import goes_at, title_of
from lakeplan.output.text import count, counted, days, moment, safe, size, volume

if TYPE_CHECKING:
    from lakeplan.simulation.documents import (
        CurveDocument,
        CurveRow,
        HorizonRow,
        ServerDaysPoint,
    )
    from lakeplan.values.simulation import AmountRow

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

Figure = Callable[["AmountRow"], int]
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
    at_most = "at most, from metadata alone; " if document["at_most"] else ""
    title = f"What goes at how many days: {document['repository']}"
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
            f"{title_of(curve)}: at {days(curve['days_now'])} {counted(now['objects'], 'object')} of "
            f"{size(now['size_bytes'])} go."
        )
    return " ".join(said)


def _legend(document: CurveDocument) -> str:
    parts = [
        '<rect class="area" x="24" y="65" width="22" height="10"/><path class="step" d="M24 65H46"/>',
        _text(52, 74, "goes by the documented rule", "dim"),
        '<line class="now" x1="252" x2="274" y1="70" y2="70"/>',
        _text(280, 74, "days of the rules now", "dim"),
    ]
    if any(point["at_risk"]["objects"] for curve in document["curves"] for point in curve["server"]):
        parts.append('<path class="server" d="M424 70l5-5 5 5-5 5z"/>')
        parts.append(_text(440, 74, "the server, asked at this day, takes more", "warn"))
    return "".join(parts)


def _curve_row(curve: CurveRow, top: int) -> str:
    note = f"{days(curve['days_now'])} now: {volume(curve['now'])} go"
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


def _panel(curve: CurveRow, left: int, top: int, span: int, of: Figure, label: Label, name: str) -> str:
    peaks = [of(p) for p in (*curve["points"], *curve["server"])]
    highest = nice_ceiling(max([*peaks, 1]))
    x, y = _scale(span, left, left + PANEL), _scale(highest, top + HEIGHT, top)
    steps = [(p["days"], of(p)) for p in curve["points"]]
    path = f"M{x(0)} {y(steps[0][1])}" + "".join(f"H{x(at)}V{y(goes)}" for at, goes in steps[1:])
    path += f"H{x(span)}"
    parts = [
        _grid(left, top, y, highest, label),
        _ticks(top + HEIGHT, x, _even(span)),
        _text(left + PANEL, top + HEIGHT + 34, f"{name} that go, by days of retention", "dim end"),
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
    of: Figure,
    label: Label,
) -> str:
    at, high = x(point["days"]), y(of(point))
    said = f"{days(point['days'])}: the server takes {label(of(point))}, {label(of(point['at_risk']))} more"
    return (
        f'<g><title>{_safe(said)}</title><line class="gap" x1="{at}" x2="{at}" '
        f'y1="{y(of(goes_at(curve, point["days"])))}" y2="{high}"/>'
        f'<path class="server" transform="translate({at} {high})" d="M-5 0l5-5 5 5-5 5z"/></g>'
    )


def _horizon_row(horizon: HorizonRow, top: int) -> str:
    note = f"{volume(horizon['total'])} by {moment(horizon['until'])}"
    parts = [
        _text(24, top + 14, f"The next {days(horizon['days'])}, if nobody writes", "head"),
        _text(WIDTH - 24, top + 14, note, "dim end"),
    ]
    panels: tuple[tuple[int, Figure, Label, str], ...] = (
        (LEFT, lambda a: a["size_bytes"], size, "bytes"),
        (LEFT + PANEL + GAP, lambda a: a["objects"], count, "objects"),
    )
    for left, of, label, name in panels:
        parts.append(_bars(horizon, left, top + 30, of, label, name))
    return "".join(parts)


def _bars(horizon: HorizonRow, left: int, top: int, of: Figure, label: Label, name: str) -> str:
    losses, span = horizon["days_with_losses"], horizon["days"]
    highest = nice_ceiling(max([1, *(of(loss) for loss in losses)]))
    x, y = _scale(span, left, left + PANEL), _scale(highest, top + HEIGHT, top)
    width = max(1.0, PANEL / span * 0.8)
    parts = [
        _grid(left, top, y, highest, label),
        _ticks(top + HEIGHT, x, _even(span)),
        _text(left + PANEL, top + HEIGHT + 34, f"{name} that go, by days from now", "dim end"),
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
