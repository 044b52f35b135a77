"""The commit graph: a table of verdicts that needs no script, and the frame that the scripts fill.

The frame is a list of commits beside their lines, a picture of the whole history above it, and the reasons of
the commit that is chosen. The list is a listbox: arrow keys move through it, and each entry says its verdict
and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakeplan.render.amounts import count, counted
from lakeplan.render.plan_impact import HORIZONS
from lakeplan.render.report.html import Markup, data_block, el, join, table
from lakeplan.render.report.impact import amount
from lakeplan.render.report.shell import Section

Json = Mapping[str, Any]

VERDICTS = {
    "kept": ("kept", "the server keeps it under the proposed rules"),
    "released": ("kept again", "the stored rules let it go, the proposed ones keep it"),
    "expires": ("expires", "the stored rules keep it, the proposed ones let it go"),
    "at_risk": ("at risk", "expires on the server although the documented rule keeps it"),
    "at_risk_already": ("at risk already", "the same, and the stored rules let it go too"),
    "gone": ("gone", "the stored rules and the proposed ones let it go"),
}
"""As the columns of the document number them."""

SHAPES = {
    "kept": el("circle", cx=8, cy=8, r=5),
    "released": el("path", d="M8 2l6 11H2z"),
    "expires": el("path", d="M3 3l10 10M13 3L3 13"),
    "at_risk": el("path", d="M8 1l7 7-7 7-7-7z"),
    "at_risk_already": el("path", d="M8 2l6 6-6 6-6-6z"),
    "gone": el("circle", cx=8, cy=8, r="4.5"),
}


def graph_section(document: Json) -> tuple[Section | None, list[Markup]]:
    """The section, and the blocks of data it needs. None without a history."""
    graphs = document["graphs"]
    if not graphs:
        return None, []
    body = join([*(_counts(graph) for graph in graphs), _frame(graphs)])
    data = [data_block(f"graph-{n}", graph) for n, graph in enumerate(graphs)]
    return Section("graph", "Commit graph", body), data


def _counts(graph: Json) -> Markup:
    rows = [
        [
            HORIZONS[name],
            *(amount(found[v], cls="risk" if v.startswith("at_risk") else "some") for v in VERDICTS),
        ]
        for name, found in graph["counts"].items()
    ]
    headers = ("moment", *(label for label, _ in VERDICTS.values()))
    drawn = len(graph["rows"]["id"])
    left = graph["commits"] - drawn
    notes = [f"{counted(graph['commits'], 'commit')}, read from {graph['source']}."]
    if left:
        notes.append(
            f"{count(drawn)} are drawn: what changes sides, HEADs, the newest; {count(left)} more are not."
        )
    notes += [f"Not seen: {words}." for words in graph["blind_to"]]
    moved = None
    if graph["same_as_plan"] is False:
        moved = el(
            "p",
            "This is not the history that the plan judged: it has moved since, or the plan did not see all "
            "of it. The graph is of what was read now, the figures of the impact are the plan's.",
            cls="alert",
        )
    return join(
        [
            el("h3", graph["key"]),
            el("p", " ".join(notes)),
            moved,
            table(f"Commits of {graph['key']} by verdict", headers, rows, figures=range(1, 7)),
        ]
    )


def _frame(graphs: Sequence[Json]) -> Markup:
    choose = [el("option", graph["key"], value=n) for n, graph in enumerate(graphs)]
    moments = [el("option", label, value=n) for n, label in enumerate(HORIZONS.values())]
    tools = [
        el(
            "p",
            el("label", "Repository ", for_="graph-repository"),
            el("select", *choose, id="graph-repository"),
        ),
        el("p", el("label", "Verdicts ", for_="graph-moment"), el("select", *moments, id="graph-moment")),
        el(
            "p",
            el("label", "Find ", for_="graph-find"),
            el("input", id="graph-find", type_="search", placeholder="id, message, branch or tag"),
        ),
        _legend(),
    ]
    steps = [
        el("button", "Previous change", id="graph-previous", type_="button", cls="plain"),
        el("button", "Next change", id="graph-next", type_="button", cls="plain"),
        el("span", id="graph-found", role="status"),
    ]
    return el(
        "div",
        el("p", "The commits one by one need JavaScript; the table above does not.", cls="without-script"),
        el(
            "div",
            el("form", *tools, id="graph-tools", cls="tools", aria_label="What the graph shows"),
            el("canvas", id="graph-overview", role="img", aria_label="The whole history"),
            el("p", *steps, cls="steps"),
            el("p", _KEYS, id="graph-keys", cls="dim"),
            el("div", _list(), _reasons(), cls="side-by-side"),
            el("div", id="graph-hint", role="tooltip", hidden=True),
            cls="needs-script",
        ),
        id="graph-view",
    )


_KEYS = "In the list: arrow keys, Page Up and Down, Home, End; Enter goes to the reasons, Escape comes back."


def _legend() -> Markup:
    items = []
    for name, (label, meaning) in VERDICTS.items():
        mark = el("svg", SHAPES[name], cls=f"mark {name}", viewBox="0 0 16 16", aria_hidden="true")
        box = el("input", type_="checkbox", name="verdict", value=name, checked=True, id=f"graph-show-{name}")
        items.append(
            el("label", box, mark, el("span", el("strong", label), f": {meaning}"), for_=f"graph-show-{name}")
        )
    return el("fieldset", el("legend", "Show commits that are"), *items)


def _list() -> Markup:
    scroller = el(
        "div",
        el("div", cls="rows", role="presentation"),
        id="graph-list",
        role="listbox",
        tabindex=0,
        aria_label="Commits, the newest first",
        aria_describedby="graph-keys",
    )
    return el("div", scroller, el("canvas", id="graph-lanes", aria_hidden="true"), cls="list-box")


def _reasons() -> Markup:
    return el(
        "div",
        el("h4", "Why", id="graph-why-title"),
        el("div", el("p", "Choose a commit.", cls="dim"), id="graph-why"),
        id="graph-reasons",
        role="region",
        tabindex=-1,
        aria_labelledby="graph-why-title",
    )
