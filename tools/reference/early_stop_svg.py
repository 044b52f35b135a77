"""How the picture of the early stop is drawn: SVG of plain shapes and text, for light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape

from lakeplan.output.curve_svg import STYLE

WIDTH, PANEL, TOP = 960, 272, 108
_OLDER, _LANE = 120, 148
"""x of the oldest commit, and y of the line of main within a panel."""

Verdict = Literal["kept", "at_risk", "gone"]

_STYLE = f"""{STYLE}
.edge {{ stroke: var(--dim); stroke-width: 2; fill: none; }}
.kept {{ fill: var(--fill); stroke: var(--line); stroke-width: 2; }}
.at_risk {{ fill: var(--warn); stroke: var(--warn); stroke-width: 2; }}
.gone {{ fill: var(--paper); stroke: var(--dim); stroke-width: 2; stroke-dasharray: 4 3; }}
.letter {{ font-weight: 600; text-anchor: middle; }}
.on {{ fill: var(--paper); }}
.mono {{ font-family: ui-monospace, monospace; }}
"""

_MEANINGS: dict[Verdict, str] = {
    "kept": "the server and the documented rule keep it",
    "at_risk": "the documented rule keeps it, the server lets it go",
    "gone": "neither keeps it",
}


@dataclass(frozen=True)
class Dot:
    """A commit. ``letter`` places it; ``branch``: whose HEAD it is, or empty."""

    letter: str
    id: str
    age_days: int
    branch: str
    verdict: Verdict


@dataclass(frozen=True)
class Panel:
    title: str
    dots: Sequence[Dot]
    lines: Sequence[str]
    result: str


_PLACES = {
    "Q": (_OLDER, _LANE),
    "P": (_OLDER + 240, _LANE),
    "M": (_OLDER + 480, _LANE),
    "F": (_OLDER + 480, 64),
}


def picture(title: str, note: str, panels: Sequence[Panel], description: str) -> str:
    height = TOP + PANEL * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}">',
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc><style>{_STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        _text(24, 34, title, "title"),
        _text(24, 54, note, "dim"),
        _legend(),
        *(_panel(panel, TOP + n * PANEL) for n, panel in enumerate(panels)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend() -> str:
    parts, x = [], 32
    for verdict, meaning in _MEANINGS.items():
        parts += [_shape(verdict, x, 78, 7), _text(x + 14, 82, meaning, "dim")]
        x += 30 + 7 * len(meaning)
    return "".join(parts)


def _panel(panel: Panel, top: int) -> str:
    edges = [
        f'<path class="edge" d="M{_OLDER} {top + _LANE}H{_OLDER + 480}"/>',
        f'<path class="edge" d="M{_OLDER + 240} {top + _LANE}C{_OLDER + 330} {top + _LANE} {_OLDER + 330} '
        f'{top + 64} {_OLDER + 480} {top + 64}"/>',
    ]
    said = [_text(24, top + 208 + 18 * n, line, "") for n, line in enumerate(panel.lines)]
    said.append(
        _text(
            24,
            top + 216 + 18 * len(panel.lines),
            panel.result,
            "head warn" if any(dot.verdict == "at_risk" for dot in panel.dots) else "head",
        )
    )
    head = f'<line class="grid" x1="24" x2="{WIDTH - 24}" y1="{top}" y2="{top}"/>'
    return "\n".join(
        [head, _text(24, top + 26, panel.title, "head"), *edges, *(_dot(d, top) for d in panel.dots), *said]
    )


def _dot(dot: Dot, top: int) -> str:
    x, y = _PLACES[dot.letter]
    y += top
    on = "" if dot.verdict == "gone" else " on"
    parts = [
        _shape(dot.verdict, x, y, 15),
        _text(x, y + 4, dot.letter, f"letter{on}"),
        _text(x, y + 32, f"{dot.id}…, {dot.age_days} days old", "mid dim mono"),
    ]
    if dot.branch:
        parts.append(_text(x + 26, y + 5, f"HEAD of {dot.branch}", ""))
    return "".join(parts)


def _shape(verdict: Verdict, x: int, y: int, r: int) -> str:
    if verdict == "at_risk":
        reach = r + 3
        return (
            f'<path class="at_risk" d="M{x} {y - reach}l{reach} {reach}-{reach} {reach}-{reach}-{reach}z"/>'
        )
    return f'<circle class="{verdict}" cx="{x}" cy="{y}" r="{r}"/>'


def _text(x: int, y: int, text: str, classes: str) -> str:
    named = f' class="{classes}"' if classes else ""
    return f'<text{named} x="{x}" y="{y}">{escape(text)}</text>'
