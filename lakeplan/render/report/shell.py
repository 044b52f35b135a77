"""The page around the sections: head, policy, header with navigation, scripts and styles inside the file.

Nothing is fetched: the policy forbids every request, and lets only the very scripts and styles of this file
run, by their digests.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lakeplan.render.amounts import moment
from lakeplan.render.report.html import Markup, el, join, text

Json = Mapping[str, Any]

STYLES = ("page.css", "graph.css")
SCRIPTS = ("page.js", "graph_data.js", "graph_words.js", "graph_picture.js", "graph_list.js", "start.js")


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading of its own."""

    id: str
    title: str
    body: Markup


@cache
def asset(name: str) -> Markup:
    """A file of this package, which is trusted text."""
    return Markup((files("lakeplan.render.report") / "assets" / name).read_text(encoding="utf-8"))


def styles() -> Markup:
    return Markup("\n".join(asset(name) for name in STYLES))


def script() -> Markup:
    """One function around all files: they see each other, and the page sees none of their names."""
    return Markup('"use strict";(() => {\n' + "\n".join(asset(name) for name in SCRIPTS) + "\n})();")


def page(document: Json, sections: Sequence[Section], data: Sequence[Markup]) -> str:
    """The whole file. ``data`` are the blocks of JSON that the scripts read."""
    title = "lakeplan report"
    css, js = styles(), script()
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(css, js)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"{title}, {moment(document['plan']['as_of'])}"),
        Markup(f"<style>{css}</style>"),
    )
    main = [
        el("section", el("h2", s.title, id=f"{s.id}-title"), s.body, id=s.id, aria_labelledby=f"{s.id}-title")
        for s in sections
    ]
    body = el(
        "body",
        el("a", "Skip to the content", href="#content", cls="skip"),
        _header(document, title),
        _navigation(sections),
        el("main", *main, id="content", tabindex=-1),
        _footer(document),
        *data,
        Markup(f"<script>{js}</script>"),
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _policy(css: str, js: str) -> str:
    return (
        f"default-src 'none'; script-src '{_digest(js)}'; style-src '{_digest(css)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _header(document: Json, title: str) -> Markup:
    plan = document["plan"]
    facts = [f"Judged at {moment(plan['as_of'])}"]
    if plan["tree_commit"]:
        facts.append(f"tree commit {plan['tree_commit'][:12]}")
    if plan["base"]:
        facts.append(f"base {plan['base'][:12]}")
    facts.append(f"plan {plan['digest'][:12]}")
    choices = [
        el("option", label, value=value)
        for value, label in (("auto", "as the system"), ("light", "light"), ("dark", "dark"))
    ]
    return el(
        "header",
        el("div", el("h1", title), el("p", ", ".join(facts), cls="dim"), cls="title"),
        el(
            "p",
            el("label", "Colours ", for_="theme"),
            el("select", *choices, id="theme", autocomplete="off"),
            cls="needs-script",
        ),
        cls="top",
    )


def _navigation(sections: Sequence[Section]) -> Markup:
    links = [
        el("li", el("a", section.title.partition(" by ")[0], href=f"#{section.id}")) for section in sections
    ]
    return el("nav", el("ul", *links), aria_label="Sections")


def _footer(document: Json) -> Markup:
    version = document["plan"]["lakeplan_version"]
    words = (
        "Made by lakeplan from a plan file; this page is one file, asks no network and remembers nothing. "
        "Times are UTC, sizes decimal."
    )
    return el("footer", el("p", join([words, text(f" Plan made by lakeplan {version}.")]), cls="dim"))
