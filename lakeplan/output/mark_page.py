"""A mark as a page: one HTML file without requests, in the style of a plan's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakeplan.output.report_impact import gates_section
from lakeplan.output.report_shell import (
    About,
    Cell,
    Markup,
    Section,
    el,
    join,
    script,
    styles,
    table,
    whole_page,
)
from lakeplan.output.sweep import age_words, class_rows, forecast_words, keeper_words, prefix_words
from lakeplan.output.text import NO_MONEY, Money, amounts, count, count_of, moment, size, volume
from lakeplan.values.urls import is_digest

if TYPE_CHECKING:
    from lakeplan.sweep.documents import ContentsRow, MarkDocument, MarkPageDocument, TreeRow
    from lakeplan.values.simulation import AmountRow

STYLES = ("page.css", "tree.css")
SCRIPTS = ("page.js", "tree.js", "start_tree.js")
ROWS = 1_000
FOOT = (
    "Made by lakeplan from a mark; this page is one file, sends no requests and stores nothing. Times are"
    " UTC, sizes decimal. Prefixes, ages and last commits are of the objects that would be deleted."
)


def render_mark_page(document: MarkPageDocument) -> str:
    """The page as text of an HTML file."""
    mark = document["mark"]
    contents, cost = mark["contents"], Money.of(mark)
    facts = [
        f"Mark {mark['mark_id']} of {mark['server']}/{mark['repository']}",
        f"made {moment(mark['marked_at'])}",
    ]
    if mark["tree_commit"]:
        facts.append(f"tree commit {mark['tree_commit'][:12]}")
    facts.append(f"summary {contents['digest'][:12]}")
    sections = [
        _summary(mark, cost),
        gates_section({"plan": {"gates": mark["gates"], "repositories": []}}),
        _prefixes(document["tree"], cost),
        _ages(contents, cost),
        _commits(contents, cost),
        _keepers(contents),
    ]
    about = About("lakeplan mark", mark["marked_at"], facts, FOOT)
    shown = [section for section in sections if section is not None]
    return whole_page(about, shown, (), styles(STYLES), script(SCRIPTS))


def _summary(mark: MarkDocument, cost: Money) -> Section:
    goes, candidates = mark["goes"], mark["candidates"]
    kept = {
        key: sum(amount[key] for amount in mark["classes"].values()) - goes[key]
        for key in ("objects", "size_bytes")
    }
    cards = [
        (
            "Would be deleted",
            size(goes["size_bytes"]),
            f"{count_of(goes['objects'], 'object')}{cost.words(goes['size_bytes'])}",
        ),
        (
            "Kept",
            size(kept["size_bytes"]),
            f"{count_of(kept['objects'], 'object')} that may expire, and are kept",
        ),
        (
            "Old enough",
            size(candidates["size_bytes"]),
            f"{count_of(candidates['objects'], 'object')} older than {moment(mark['cutoff'])}",
        ),
        ("May be swept", moment(mark["sweep_from"]), f"to {moment(mark['sweep_until'])}"),
    ]
    rows = [
        ["delete" if goes_ else "keep", name, *_cells(mark["classes"][key], cost), why]
        for key, goes_, name, why in class_rows(mark)
    ]
    headers = ("effect", "class", "objects", "size", *cost.header(" "), "why")
    figures = range(2, 4 + cost.shown)
    unreadable = ", ".join(sorted(mark["unreadable"])[:5])
    body = [
        el("p", f"A sweep of this mark would delete {volume(goes, cost)}.", cls="lead"),
        el(
            "p",
            f"Blocked: repositories that may hold addresses here could not be read: {unreadable}",
            cls="alert",
        )
        if unreadable
        else None,
        el(
            "dl",
            [
                el("div", el("dt", n), el("dd", el("strong", f), el("span", w)), cls="card")
                for n, f, w in cards
            ],
            cls="cards",
        ),
        table("Classes", headers, rows, figures=figures),
        _forecast(mark["contents"]),
    ]
    return Section("summary", "Summary", join(body))


def _forecast(contents: ContentsRow) -> Markup | None:
    row = contents["forecast"]
    if row is None:
        return None
    more = row["differs"] == "more"
    words = f"{'More than forecast' if more else 'Forecast'}: {forecast_words(row)}."
    return el("p", words, cls="alert" if more else None)


def _cells(amount: AmountRow, cost: Money) -> list[Cell]:
    """With what they are sorted by."""
    sizes = [amount["objects"], *[amount["size_bytes"]] * (1 + cost.shown)]
    return [(words, {"data_sort": by}) for words, by in zip(amounts(amount, cost), sizes, strict=True)]


def _prefixes(tree: list[TreeRow], cost: Money) -> Section | None:
    if not tree:
        return None
    headers = ("prefix", "objects", "size", *cost.header(" "), "kept objects", "kept size")
    rows = [[_folder(row), *_cells(row["goes"], cost), *_cells(row["kept"], NO_MONEY)] for row in tree]
    folders = table(
        "Objects and bytes by prefix", headers, rows, figures=range(1, 5 + cost.shown), hidden_caption=True
    )
    words = "Each folder counts everything below it. Objects of several paths count for the first."
    return Section(
        "prefixes", "Prefixes", join([el("p", words, cls="dim"), el("div", folders, cls="folders")])
    )


def _folder(row: TreeRow) -> Cell:
    prefix = row["prefix"]
    name = prefix_words(prefix) if prefix != "" else "(all paths)"
    if prefix and not is_digest(prefix):
        name = f"{prefix.rstrip('/').rpartition('/')[2]}/"
    return name, {"data_depth": row["depth"], "data_sort": name, "title": prefix or None}


def _ages(contents: ContentsRow, cost: Money) -> Section | None:
    if not contents["ages"]:
        return None
    rows = [
        [(age_words(row), {"data_sort": row["from_days"]}), *_cells(row, cost)] for row in contents["ages"]
    ]
    return _section(
        "ages", "Ages", ("last written before the mark", "objects", "size", *cost.header(" ")), rows
    )


def _commits(contents: ContentsRow, cost: Money) -> Section | None:
    rows = [
        [el("code", row["commit_id"][:12]), moment(row["created"] or ""), *_cells(row, cost)]
        for row in contents["last_commits"][:ROWS]
    ]
    headers = ("last commit", "created", "objects", "size", *cost.header(" "))
    left = len(contents["last_commits"]) + contents["more_last_commits"] - len(rows)
    return _section("commits", "Last commits", headers, rows, names=2, left=left)


def _keepers(contents: ContentsRow) -> Section | None:
    found = contents["kept_by"] or []
    rows = [
        [keeper_words(row), row["class"].replace("_", " "), *_cells(row, NO_MONEY)] for row in found[:ROWS]
    ]
    left = len(found) + contents["more_kept_by"] - len(rows)
    headers = ("kept by", "class", "objects", "size")
    return _section("kept", "What keeps the rest", headers, rows, names=2, left=left)


def _section(
    id: str,
    title: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    names: int = 1,
    left: int = 0,
) -> Section | None:
    """A table that can be sorted; the first ``names`` columns are no figures."""
    if not rows:
        return None
    figures = range(names, len(headers))
    body = [table(f"{title}: figures", headers, rows, figures=figures, sortable=True, hidden_caption=True)]
    if left > 0:
        body.append(el("p", f"{count(left)} more are in the JSON document.", cls="dim"))
    return Section(id, title, join(body))
