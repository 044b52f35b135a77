"""The picture of the server's early stop: one history with two sets of ids, judged by ``core.retention``.

Nothing in it is asserted: ids are those that the commits' content gives, verdicts and walks are computed. The
two histories differ in the message of one commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from lakeplan.explain.rules import Pass, trace
from lakeplan.formats.refs import compute_commit_id
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keepers import why
from lakeplan.retention.rules import documented_verdict, server_verdict, to_us
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import GcRules
from tools.reference.early_stop_svg import Dot, Panel, Verdict, picture

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
        f"Rules: main {RULES.days_for('main')} days, every other branch {RULES.default_retention_days} days."
    )
    said = [f"{panel.title}. {panel.result}" for panel in panels]
    return picture("The same history, twice: what the early stop does", rules, panels, " ".join(said))


def _panel(number: int, drawn: History) -> Panel:
    first = drawn.letter(min(drawn.ids["M"], drawn.ids["F"]))
    branch = {"M": "main", "F": "feature"}
    title = f"{number}. The id of {branch[first]}'s HEAD sorts first: the first walk is from {branch[first]}"
    graph = drawn.graph
    server = server_verdict(graph, RULES, AS_OF)
    documented = documented_verdict(graph, RULES, AS_OF).active
    dots = []
    for letter, id in drawn.ids.items():
        n = graph.index[id]
        verdict: Verdict = "kept" if server[n] else "at_risk" if documented[n] else "gone"
        dots.append(Dot(letter, id[:8], AGES[letter], branch.get(letter, ""), verdict))
    lost = graph.index[drawn.ids[LOST]]
    walks = trace(graph, RULES, lost, AS_OF) or ()
    lines = [f"Walk {n} {_walk(step, drawn)}" for n, step in enumerate(walks, start=1)]
    return Panel(title, dots, lines, _result(drawn, bool(server[lost])))


def _walk(step: Pass, drawn: History) -> str:
    head = drawn.letter(step.start)
    begins = f"begins at {head}, the HEAD of {step.branch} ({step.days} days),"
    match step.outcome:
        case "marks":
            return f"{begins} and keeps {LOST}: {head} is younger than {step.days} days."
        case "passes":
            return f"{begins} and passes {LOST} without keeping it: {head} is older than {step.days} days."
        case "stops":
            where, other = drawn.letter(step.stopped_at), drawn.letter(step.stopped_by)
            return f"{begins} and stops before {where}: {other}'s walk was there, with as many days or more."
        case _:
            return f"{begins} and ends there."


def _result(drawn: History, kept: bool) -> str:
    keepers = why(drawn.graph, RULES, drawn.ids[LOST], AS_OF)
    by = " and ".join(str(keeper.branch) for keeper in keepers)
    return (
        f"{LOST}: the documented rule keeps it (by {by}); the server "
        f"{'keeps it too' if kept else 'lets it go'}."
    )
