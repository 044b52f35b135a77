"""What HTML pages share: tables, figures, sections, and the file around them, then the sections of a plan's
report about gates, impact and notes."""

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

from lakeplan.output import plan_impact
from lakeplan.output.drawing import Attribute, Child, Markup, el, join, text
from lakeplan.output.plan import summary_text, what_if
from lakeplan.output.plan_changes import (
    REVIEW_FIRST,
    TITLES,
    change_rows,
    changing,
    pins_table,
    rules_table,
    setting_table,
    settings_of,
    weakened_settings,
    weakened_table,
    weakened_title,
)
from lakeplan.output.plan_impact import key_of, writing
from lakeplan.output.tables import Amount, Cost, Folder, Name, Share, Table, Value, volume_cells
from lakeplan.output.text import UNKNOWN, Json, Money, count, moment, priced, size, sums, volume
from lakeplan.values.units import count_of
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


OUTCOMES = ("refused", "overridden", "allowed", "warned", "passed")
_ROWS = 200


def summary_section(document: Json) -> Section:
    plan = document["plan"]
    blocked = plan["summary"]["refused_gates"]
    state = (
        el("p", el("strong", "BLOCKED"), f" by {count_of(blocked, 'gate')}: see Gates.", cls="alert")
        if blocked
        else None
    )
    body = [el("p", summary_text(plan), cls="lead"), state, _cards(plan), _weakened(plan)]
    return Section("summary", "Summary", join(body))


def _cards(plan: Json) -> Markup | None:
    """Return the four main figures, each with the number of repositories in which it is unknown."""
    summary, writes = plan["summary"], writing(plan)
    if not writes:
        return None
    unread = sum(1 for r in writes if not r["impact"]["horizons"])
    without, later = summary["impact_unknown"], "objects_expire_plus_30_days"
    cards = [
        (
            "Expires now",
            size(summary["bytes_expire"]),
            count_of(summary["objects_expire"], "object") + sums(summary["cost_expire"], "per_month"),
            without,
        ),
        (
            "In 30 days, assuming no new commits",
            size(summary["bytes_expire_plus_30_days"]),
            count_of(summary[later], "object") + sums(summary["cost_expire"], "per_month_plus_30_days"),
            without,
        ),
        ("At risk", count(summary["objects_at_risk"]), "objects that the documented rule keeps", without),
        ("Expiring commits", count(summary["commits_expire"]), "kept by the stored rules", unread),
    ]
    return el("dl", [_card(*card, of=len(writes)) for card in cards], cls="cards")


def _card(name: str, figure: str, words: str, without: int, *, of: int) -> Markup:
    if without == of:
        body = [el("strong", UNKNOWN, cls="unknown"), el("span", "in every repository")]
    else:
        more = (
            el("span", f"and unknown in {count_of(without, 'repository')}", cls="unknown")
            if without
            else None
        )
        body = [el("strong", figure), el("span", words), *([more] if more else [])]
    return el("div", el("dt", name), el("dd", *body), cls="card")


def _weakened(plan: Json) -> Markup | None:
    made = table_of(
        "Weakened safety settings", weakened_table(weakened_settings(plan), _ROWS), hidden_caption=False
    )
    if made is None:
        return None
    return join([el("h3", weakened_title(plan)), el("p", REVIEW_FIRST), made])


def gates_section(document: Json) -> Section | None:
    """Return every gate that did not pass, refused ones first, and the number of those that passed."""
    gates = plan_impact.gates_of(document["plan"])
    shown = sorted((g for g in gates if g["outcome"] != "passed"), key=lambda g: OUTCOMES.index(g["outcome"]))
    if not gates:
        return None
    rows = [
        [
            g["gate"],
            plan_impact.scope_of(g["scope"]),
            el("span", g["outcome"].upper(), cls=f"outcome {g['outcome']}"),
            g["message"],
            g["opens_with"],
        ]
        for g in shown[:_ROWS]
    ]
    passed = len(gates) - len(shown)
    parts: list[Markup] = []
    if rows:
        parts.append(
            table("Gates", ("gate", "applies to", "outcome", "why", "override"), rows, hidden_caption=True)
        )
    parts += more(len(shown))
    parts.append(el("p", f"{count_of(passed, 'gate')} passed.", cls="dim"))
    return Section("gates", "Gates", join(parts))


def more(total: int, shown: int = _ROWS) -> list[Markup]:
    """Return a line that says how many rows were omitted, or nothing if all rows are shown."""
    if total <= shown:
        return []
    return [el("p", f"The plan file has {count_of(total - shown, 'more row')}.", cls="dim")]


def notes_section(document: Json) -> Section:
    """Return failures, warnings, and what this page does not show and why."""
    plan = document["plan"]
    failed = [
        [key_of(r), r["failure"]["message"], r["failure"]["hint"]]
        for r in plan["repositories"]
        if r["failure"] is not None
    ]
    parts: list[Markup] = []
    if failed:
        parts.append(el("h3", "Not planned"))
        parts.append(table("Repositories that failed", ("repository", "why", "what to do"), failed[:_ROWS]))
        parts += more(len(failed))
    warnings = [
        *plan["warnings"],
        *(f"{key_of(r)}: {w}" for r in plan["repositories"] for w in plan_impact.warnings_of(r)),
    ]
    if plan["unmanaged"]:
        keys = ", ".join(plan["unmanaged"][:20])
        warnings.append(
            f"not managed, because no entry in the tree matches them: {len(plan['unmanaged']):,} ({keys})"
        )
    parts += _list("Warnings", warnings)
    parts += _list("What this page does not show", document["missing"])
    if not parts:
        parts.append(el("p", "There are no warnings, and nothing was omitted."))
    return Section("notes", "Notes", join(parts))


def _list(title: str, items: Iterable[str]) -> list[Markup]:
    entries = list(items)
    if not entries:
        return []
    return [el("h3", title), el("ul", [el("li", item) for item in entries[:_ROWS]]), *more(len(entries))]


_DETAILED = 50
_IMPACT_ROWS = 1000
_PREFIX_ROWS = 60
_OPEN = 3
_COLUMNS = (*plan_impact.IMPACT[:-2], "objects in\n7 days", *plan_impact.IMPACT[-2:])


def impact_section(document: Json) -> Section:
    repositories = sorted(document["repositories"], key=plan_impact.largest_first)
    if not repositories:
        return Section("impact", "Impact", el("p", "No repository changes."))
    parts = [
        el("p", f"{plan_impact.AT_MOST[0].upper()}{plan_impact.AT_MOST[1:]}.", cls="dim"),
        _summary(repositories),
    ]
    for n, repository in enumerate(repositories[:_DETAILED]):
        parts.append(_details(repository, is_open=n < _OPEN))
    if len(repositories) > _DETAILED:
        rest = count_of(len(repositories) - _DETAILED, "repository")
        parts.append(el("p", f"The details of {rest} are in the plan file.", cls="dim"))
    return Section("impact", "Impact by repository", join(parts))


def _summary(repositories: Sequence[Json]) -> Markup:
    figures = plan_impact.impact_table(repositories, _COLUMNS, with_money=priced(repositories))
    title = "Data that expires because of this plan, by repository"
    made = table_of(title, figures, _IMPACT_ROWS, sortable=True, hidden_caption=False)
    return join([made, *more(len(repositories), _IMPACT_ROWS)])


def _details(repository: Json, *, is_open: bool) -> Markup:
    impact = repository["impact"]
    words = []
    if impact["status"] == "unknown":
        words.append(
            el("p", el("strong", UNKNOWN), f": {impact['reason'] or plan_impact.NO_REASON}", cls="alert")
        )
    elif impact["status"] == "not_asked":
        words.append(
            el("p", "The impact was not computed, because nothing would be written to this repository.")
        )
    elif impact["reason"]:
        words.append(el("p", impact["reason"]))
    owner = f", owned by {repository['owner']}" if repository["owner"] else ""
    source = f"; {repository['source']}" if repository["source"] else ""
    body = [
        el("p", f"Entry {repository['entry']}{owner}{source}.", cls="dim"),
        *words,
        _rules(repository),
        *_settings(repository),
        _pins(repository),
        _moments(repository),
        _prefixes(repository),
        _tags(repository),
        _backlog(impact["backlog"], Money.of(repository)),
    ]
    title = el("h3", key_of(repository))
    return el("details", el("summary", title), *body, open=is_open, cls="repository")


def _rules(repository: Json) -> Markup | None:
    changed = rules_table(change_rows(repository)).without_marks()
    caption = f"Days of retention, {key_of(repository)}"
    return table_of(caption, changed, _IMPACT_ROWS, hidden_caption=False)


def _settings(repository: Json) -> list[Markup | None]:
    made = []
    for kind, setting in settings_of(repository):
        changed = setting_table(setting["changes"]).without_marks()
        caption = f"{TITLES[kind].capitalize()}, {key_of(repository)}"
        made.append(table_of(caption, changed, _IMPACT_ROWS, hidden_caption=False))
    return made


def _pins(repository: Json) -> Markup | None:
    changed = pins_table(changing(repository)).without_marks()
    return table_of(f"Pins, {key_of(repository)}", changed, _IMPACT_ROWS, hidden_caption=False)


def _moments(repository: Json) -> Markup | None:
    columns = (*plan_impact.MOMENT[:3], "kept again", *plan_impact.MOMENT[3:])
    return table_of(
        f"Now, in 7 days and in 30 days, {key_of(repository)}",
        plan_impact.moment_table(repository, columns),
        hidden_caption=False,
    )


def _prefixes(repository: Json) -> Markup | None:
    """Return the folders of the data that expires now, each with its share of the total."""
    prefixes, cost = repository["impact"]["prefixes"], Money.of(repository)
    whole = max((p["size_bytes"] for p in prefixes), default=0)
    largest = sorted(prefixes, key=lambda p: (-p["size_bytes"], p["prefix"]))[:_PREFIX_ROWS]
    rows = [
        [Name(p["prefix"] or "(all paths)"), *volume_cells(p, cost), Share(p["size_bytes"], whole)]
        for p in sorted(largest, key=lambda p: str(p["prefix"]))
    ]
    figures = Table(("prefix", "objects", "bytes", *cost.header(), "share"), rows)
    made = table_of(
        f"Data that expires now, by folder, {key_of(repository)}",
        figures,
        sortable=True,
        hidden_caption=False,
    )
    note = el(
        "p",
        "A folder's figures include everything in it. An object with several paths is counted at each path.",
    )
    return None if made is None else join([made, note, *more(len(prefixes), len(rows))])


def _tags(repository: Json) -> Markup:
    tags = plan_impact.tag_table(repository)
    made = table_of("Tags that lose data", tags, _IMPACT_ROWS, hidden_caption=False)
    return join([made, *more(len(tags.rows), _IMPACT_ROWS)])


def _backlog(backlog: Json | None, cost: Money) -> Markup | None:
    if backlog is None or not backlog["commits"]:
        return None
    words = f"Already expired under the stored rules: {count_of(backlog['commits'], 'commit')}"
    if backlog["objects"] is not None:
        words += f" with {volume(backlog, cost)}"
    return el("p", f"{words}, regardless of this plan.", cls="dim")
