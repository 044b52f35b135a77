"""The parts that all HTML pages share: tables, figures, sections, and the file around them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

from lakeplan.output.drawing import Attribute, Child, Markup, el, join, text
from lakeplan.output.plan import what_if
from lakeplan.output.tables import Amount, Cost, Folder, Share, Table, Value
from lakeplan.output.text import UNKNOWN, Json, count, moment
from lakeplan.values.urls import is_digest


def data_block(identifier: str, document: Any) -> Markup:
    """Return JSON in a script element that browsers do not run. No text in the JSON can end the element."""
    raw = json.dumps(document, separators=(",", ":"), ensure_ascii=True, sort_keys=True)
    for character in "<>&":
        raw = raw.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{text(identifier)}">{raw}</script>')


_TALL = 25
"""A table with more rows scrolls inside a box."""
Cell = Child | tuple[Child, dict[str, Attribute]]


def table(
    caption: Child,
    headers: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    figures: Iterable[int] = (),
    sortable: bool = False,
    hidden_caption: bool = False,
) -> Markup:
    """Return a table in a scrolling box. The first cell of a row is its header. A cell may be a pair of
    content and attributes such as ``data_sort``. ``figures`` are columns of numbers."""
    numbers = frozenset(figures)

    def cell(n: int, value: Cell) -> Markup:
        content, given = value if isinstance(value, tuple) else (value, {})
        more = {k: v for k, v in given.items() if k != "cls"}
        cls = " ".join(filter(None, ["num" if n in numbers else "", str(given.get("cls") or "")])) or None
        if n == 0:
            return el("th", content, scope="row", cls=cls, **more)
        return el("td", content, cls=cls, **more)

    head = el(
        "tr", [el("th", h, scope="col", cls="num" if n in numbers else None) for n, h in enumerate(headers)]
    )
    body = [el("tr", [cell(n, value) for n, value in enumerate(row)]) for row in rows]
    return el(
        "div",
        el(
            "table",
            el("caption", caption, cls="unseen" if hidden_caption else None),
            el("thead", head),
            el("tbody", body),
            data_sortable=sortable,
        ),
        cls="scroll tall" if len(body) > _TALL else "scroll",
    )


def amount(value: int | None, form: Callable[[int], str] = count, cls: str = "some") -> Cell:
    """Return a figure and the value to sort it by. An unknown figure never looks like zero, and sorts
    first."""
    if value is None:
        return (UNKNOWN, {"cls": "unknown", "data_sort": -1})
    return (form(value), {"cls": cls if value else "none", "data_sort": value})


def cells(row: Iterable[Value]) -> list[Cell]:
    """The cells of a row of values."""
    return [_cell(value) for value in row]


def _cell(value: Value) -> Cell:
    match value:
        case Amount(None):
            return (value.text, {"cls": "unknown", "data_sort": -1})
        case Amount(number, form, at_risk):
            return amount(number, form, cls="risk" if at_risk else "some")
        case Share(part):
            return _share(value.text, value.fraction, "some" if part else "none")
        case Cost(text, size_bytes):
            return (text, {"data_sort": -1 if size_bytes is None else size_bytes})
        case Folder(prefix, depth):
            return folder(prefix, depth)
        case _:
            return value.text


def _share(words: str, fraction: float | None, cls: str) -> Cell:
    """Return a share with a bar. The text says the same as the bar."""
    if fraction is None:
        return (words, {"cls": "unknown", "data_sort": -1})
    bar = el(
        "svg",
        el("rect", cls="bar-back", width=60, height=8),
        el("rect", cls="bar", width=f"{max(1.0, 60 * fraction) if fraction else 0:.1f}", height=8),
        cls="share",
        viewBox="0 0 60 8",
        width=60,
        height=8,
        aria_hidden="true",
    )
    return (join([words, " ", bar]), {"cls": cls, "data_sort": fraction})


def table_of(
    caption: str,
    values: Table,
    limit: int | None = None,
    *,
    sortable: bool = False,
    hidden_caption: bool = True,
) -> Markup | None:
    """Return the first ``limit`` rows of a table as HTML, or None without rows."""
    if not values.rows:
        return None
    headers = [header.replace("\n", " ") for header in values.headers]
    rows = [cells(row) for row in values.rows[:limit]]
    return table(
        caption, headers, rows, figures=values.figures, sortable=sortable, hidden_caption=hidden_caption
    )


def cards(items: Iterable[tuple[str, str, str]]) -> Markup:
    """Return the main figures, each with its name and meaning."""
    shown = [
        el("div", el("dt", name), el("dd", el("strong", figure), el("span", words)), cls="card")
        for name, figure, words in items
    ]
    return el("dl", shown, cls="cards")


def folder(prefix: str | None, depth: int) -> Cell:
    """Return the last part of a prefix, at its depth in a tree of folders. None stands for objects without a
    path."""
    name = "(in no commit)" if prefix is None else prefix or "(all paths)"
    if prefix and not is_digest(prefix):
        name = f"{prefix.rstrip('/').rpartition('/')[2]}/"
    return name, {"data_depth": depth, "data_sort": name, "title": prefix or None}


def anchor(repository: str) -> str:
    """Return the id of a repository's part of the page, because names of servers may contain any
    character."""
    return "repository-" + "".join(c if c.isalnum() and c.isascii() else "-" for c in repository)


def unread_section(document: Json, stopped: str, hint: str) -> Section | None:
    """Return the repositories that could not be read, and those that a stopped command did not reach."""
    lines: list[list[Cell]] = [[key, one["message"], one["hint"]] for key, one in document["failed"].items()]
    lines += [[key, stopped, hint] for key in document["unfinished"]]
    if not lines:
        return None
    headers = ("repository", "why", "what to do")
    body = table("Repositories that were not read", headers, lines, hidden_caption=True)
    return Section("failed", "Not read", body)


STYLES = ("page.css", "graph.css")
TREE_SCRIPTS = ("page.js", "tree.js", "start_tree.js")
"""Scripts of a page with a tree of folders."""
SCRIPTS = ("page.js", "graph_data.js", "graph_words.js", "graph_picture.js", "graph_list.js", "start.js")


@dataclass(frozen=True)
class Section:
    """A part of the page with its heading."""

    id: str
    title: str
    body: Markup


@cache
def asset(name: str) -> Markup:
    """Return a file of this package. Its text is trusted."""
    return Markup((files("lakeplan.output") / "assets" / name).read_text(encoding="utf-8"))


def fragment(file: str, /, **parts: Child) -> Markup:
    """Return an HTML file of this package, with a part in place of each ``$name``. Indents and line breaks in
    the file only show its structure."""
    template = Template("".join(line.strip() for line in asset(file).splitlines()))
    return Markup(template.substitute({key: join([part]) for key, part in parts.items()}))


def styles(names: Sequence[str] = STYLES) -> Markup:
    return Markup("\n".join(asset(name) for name in names))


def script(names: Sequence[str] = SCRIPTS) -> Markup:
    """Return all script files inside one function, so that they share names that the page cannot access."""
    return Markup('"use strict";(() => {\n' + "\n".join(asset(name) for name in names) + "\n})();")


@dataclass(frozen=True)
class PageFacts:
    """The title of a page, the time for the title of its window, the facts below the title, and its
    footer."""

    title: str
    at: str
    facts: Sequence[str]
    foot: str


def page(document: Json, sections: Sequence[Section | None], data: Sequence[Markup]) -> str:
    """Return the HTML file of a plan."""
    plan = document["plan"]
    assumed = what_if(plan)
    facts = [*([f"What if {assumed}"] if assumed else []), f"As of {moment(plan['as_of'])}"]
    if plan["tree_commit"]:
        facts.append(f"tree commit {plan['tree_commit'][:12]}")
    if plan["base"]:
        facts.append(f"base {plan['base'][:12]}")
    facts.append(f"plan {plan['digest'][:12]}")
    foot = (
        "lakeplan created this page from a plan file. It is a single file that sends no requests and stores"
        " nothing. Times are in UTC, and sizes are decimal. The plan was created by lakeplan"
        f" {plan['lakeplan_version']}."
    )
    return whole_page(PageFacts("lakeplan report", plan["as_of"], facts, foot), sections, data=data)


def whole_page(
    about: PageFacts,
    parts: Iterable[Section | None],
    css_files: Sequence[str] = STYLES,
    js_files: Sequence[str] = SCRIPTS,
    *,
    data: Sequence[Markup] = (),
) -> str:
    """Return an HTML file. Its scripts read the blocks of JSON in ``data``."""
    sections = [section for section in parts if section is not None]
    css, js = styles(css_files), script(js_files)
    page = fragment(
        "page.html",
        policy=_policy(css, js),
        title=about.title,
        at=moment(about.at),
        css=css,
        facts=", ".join(about.facts),
        links=[el("li", el("a", s.title.partition(" by ")[0], href=f"#{s.id}")) for s in sections],
        sections=[
            el(
                "section",
                el("h2", s.title, id=f"{s.id}-title"),
                s.body,
                id=s.id,
                aria_labelledby=f"{s.id}-title",
            )
            for s in sections
        ],
        foot=about.foot,
        data=data,
        js=js,
    )
    return f"<!doctype html>\n{page}\n"


def _policy(css: str, js: str) -> str:
    return (
        f"default-src 'none'; script-src '{_digest(js)}'; style-src '{_digest(css)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def figure(drawn: Markup, caption: str) -> Markup:
    return el("figure", drawn, el("figcaption", caption))


def folded(title: str, *body: Markup | None) -> Markup:
    """Return details that open with a click on their title."""
    return el("details", el("summary", title), *body)
