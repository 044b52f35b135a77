"""The picture of the server's early stop: one history with two sets of ids, judged by ``lakeplan.retention``.

Nothing in it is asserted: ids are those that the commits' content gives, verdicts and walks are computed. The
two histories differ in the message of one commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal
from xml.sax.saxutils import escape

from lakeplan.explain.rules import Pass, trace
from lakeplan.formats.refs import compute_commit_id
from lakeplan.output.simulate import STYLE
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import why
from lakeplan.retention.rules import documented_verdict, server_verdict, to_us
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import GcRules

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
    "at_risk": "the documented rule keeps it, but the server does not",
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
        *(_panel_shapes(panel, TOP + n * PANEL) for n, panel in enumerate(panels)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend() -> str:
    parts, x = [], 32
    for verdict, meaning in _MEANINGS.items():
        parts += [_shape(verdict, x, 78, 7), _text(x + 14, 82, meaning, "dim")]
        x += 30 + 7 * len(meaning)
    return "".join(parts)


def _panel_shapes(panel: Panel, top: int) -> str:
    edges = [
        f'<path class="edge" d="M{_OLDER} {top + _LANE}H{_OLDER + 480}"/>',
        f'<path class="edge" d="M{_OLDER + 240} {top + _LANE}C{_OLDER + 330} {top + _LANE} {_OLDER + 330} '
        f'{top + 64} {_OLDER + 480} {top + 64}"/>',
    ]
    texts = [_text(24, top + 208 + 18 * n, line, "") for n, line in enumerate(panel.lines)]
    texts.append(
        _text(
            24,
            top + 216 + 18 * len(panel.lines),
            panel.result,
            "head warn" if any(dot.verdict == "at_risk" for dot in panel.dots) else "head",
        )
    )
    head = f'<line class="grid" x1="24" x2="{WIDTH - 24}" y1="{top}" y2="{top}"/>'
    return "\n".join(
        [head, _text(24, top + 26, panel.title, "head"), *edges, *(_dot(d, top) for d in panel.dots), *texts]
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


AS_OF = datetime(2026, 6, 30, 12, tzinfo=timezone.utc)
DAY_US = 86_400_000_000
RULES = GcRules(7, {"main": 100})
MESSAGES = ("third load", "third load, checked")
"""Of the HEAD of main. With the one its id sorts before that of feature's HEAD, with the other after it."""
LOST = "P"
"""The commit that both branches share."""


@dataclass(frozen=True)
class History:
    """``ids``: per letter of the picture the commit's id."""

    graph: CommitGraph
    ids: dict[str, str]

    def letter(self, id: str | None) -> str:
        return next((letter for letter, known in self.ids.items() if known == id), "")


AGES = {"Q": 200, "P": 150, "M": 120, "F": 2}
"""Days before ``AS_OF``."""
_DRAWN = (("Q", "", "first load"), ("P", "Q", "second load"), ("M", "P", ""), ("F", "P", "first try"))
"""Letter, parent, message."""


def history(message: str) -> History:
    """main and feature share P, feature's HEAD until two days ago. ``message`` is of main's HEAD."""
    ids: dict[str, str] = {}
    commits = []
    for letter, parent, words in _DRAWN:
        created = to_us(AS_OF) - AGES[letter] * DAY_US
        parents = (ids[parent],) if parent else ()
        drawn = Commit("", created, f"metarange of {letter}", parents, message=words or message)
        ids[letter] = compute_commit_id(drawn)
        commits.append(Commit(ids[letter], created, drawn.meta_range_id, parents, message=drawn.message))
    branches = (Branch("feature", ids["F"]), Branch("main", ids["M"]))
    return History(CommitGraph.from_refs(Refs(tuple(commits), branches, ())), ids)


def early_stop_picture() -> str:
    """The text of the SVG file."""
    panels = [_panel(n, history(message)) for n, message in enumerate(MESSAGES, start=1)]
    rules = (
        f"Rules: main {RULES.days_for('main')} days, all other branches {RULES.default_retention_days} days."
    )
    texts = [f"{panel.title}. {panel.result}" for panel in panels]
    return picture("The early stop in two almost identical histories", rules, panels, " ".join(texts))


def _panel(number: int, drawn: History) -> Panel:
    first = drawn.letter(min(drawn.ids["M"], drawn.ids["F"]))
    branch = {"M": "main", "F": "feature"}
    title = f"{number}. The id of {branch[first]}'s HEAD sorts first, so walk 1 starts at {branch[first]}"
    graph = drawn.graph
    server = server_verdict(graph, RULES, AS_OF)
    documented = documented_verdict(graph, RULES, AS_OF).active
    dots = []
    for letter, id in drawn.ids.items():
        n = graph.index[id]
        verdict: Verdict = "kept" if server[n] else "at_risk" if documented[n] else "gone"
        dots.append(Dot(letter, id[:8], AGES[letter], branch.get(letter, ""), verdict))
    lost = graph.index[drawn.ids[LOST]]
    walks = trace(graph, RULES, lost, AS_OF, timezone.utc) or ()
    lines = [f"Walk {n} {_walk(step, drawn)}" for n, step in enumerate(walks, start=1)]
    return Panel(title, dots, lines, _result(drawn, bool(server[lost])))


def _walk(step: Pass, drawn: History) -> str:
    head = drawn.letter(step.start)
    begins = f"begins at {head}, the HEAD of {step.branch} ({step.days} days),"
    match step.outcome:
        case "marks":
            return f"{begins} and keeps {LOST}, because {head} is younger than {step.days} days."
        case "passes":
            return f"{begins} and does not keep {LOST}, because {head} is older than {step.days} days."
        case "stops":
            where, other = drawn.letter(step.stopped_at), drawn.letter(step.stopped_by)
            seen = f"{where}, which {other}'s walk visited with the same or longer retention"
            return f"{begins} and stops before {seen}."
        case _:
            return f"{begins} and ends there."


def _result(drawn: History, kept: bool) -> str:
    keepers = why(drawn.graph, RULES, drawn.ids[LOST], AS_OF)
    by = " and ".join(str(keeper.branch) for keeper in keepers)
    return (
        f"The documented rule keeps {LOST} because of {by}, "
        f"{'and the server keeps it too' if kept else 'but the server does not'}."
    )
