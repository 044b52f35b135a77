"""Renders a mark as one HTML file that sends no requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeplan.output import html, sweep
from lakeplan.output.drawing import Markup, el, join
from lakeplan.output.html import gates_section
from lakeplan.output.tables import Table
from lakeplan.output.text import Money, moment, size, volume
from lakeplan.values.simulation import Amount, total_of
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.sweep.documents import ContentsRow, MarkDocument, MarkPageDocument, TreeRow

ROWS = 1_000
FOOT = (
    "lakeplan created this page from a mark. It is a single file that sends no requests and stores nothing."
    " Times are in UTC, and sizes are decimal. Prefixes, ages and last commits are those of the objects that"
    " would be deleted."
)


def render_mark_page(document: MarkPageDocument) -> str:
    """Return the page as the text of an HTML file."""
    mark = document["mark"]
    contents, cost = mark["contents"], Money.of(mark)
    facts = [
        f"Mark {mark['mark_id']} of {mark['server']}/{mark['repository']}",
        f"created {moment(mark['marked_at'])}",
    ]
    if mark["tree_commit"]:
        facts.append(f"tree commit {mark['tree_commit'][:12]}")
    facts.append(f"summary {contents['digest'][:12]}")
    sections = [
        _summary(mark, cost),
        gates_section({"plan": {"gates": mark["gates"], "repositories": []}}),
        _prefixes(document["tree"], cost),
        _section("ages", "Ages", sweep.ages_table(contents, cost)),
        _section(
            "commits", "Last commits", sweep.commits_table(contents, cost), contents["more_last_commits"]
        ),
        _section("kept", "What keeps the rest", sweep.keepers_table(contents), contents["more_kept_by"]),
    ]
    about = html.PageFacts("lakeplan mark", mark["marked_at"], facts, FOOT)
    return html.whole_page(about, sections, ("page.css", "tree.css"), html.TREE_SCRIPTS)


def _summary(mark: MarkDocument, cost: Money) -> html.Section:
    goes, candidates = mark["goes"], mark["candidates"]
    kept = total_of(map(Amount.from_row, mark["classes"].values())) - Amount.from_row(goes)
    figures = [
        (
            "Would be deleted",
            size(goes["size_bytes"]),
            f"{count_of(goes['objects'], 'object')}{cost.words(goes['size_bytes'])}",
        ),
        (
            "Kept",
            size(kept.size_bytes),
            f"{count_of(kept.objects, 'object')} that may expire but are kept",
        ),
        (
            "Old enough",
            size(candidates["size_bytes"]),
            f"{count_of(candidates['objects'], 'object')} older than {moment(mark['cutoff'])}",
        ),
        ("Can be swept", moment(mark["sweep_from"]), f"until {moment(mark['sweep_until'])}"),
    ]
    unreadable = ", ".join(sorted(mark["unreadable"])[:5])
    mode = mark["settings"]["mode"]
    body = [
        el("p", f"A sweep of this mark would delete {volume(goes, cost)} (sweep.mode: {mode}).", cls="lead"),
        el(
            "p",
            "Blocked: these repositories could not be read and may refer to objects in this namespace:"
            f" {unreadable}",
            cls="alert",
        )
        if unreadable
        else None,
        html.cards(figures),
        html.table_of("Classes", sweep.classes_table(mark, cost), hidden_caption=False),
        _forecast(mark["contents"]),
    ]
    return html.Section("summary", "Summary", join(body))


def _forecast(contents: ContentsRow) -> Markup | None:
    row = contents["forecast"]
    if row is None:
        return None
    more = row["differs"] == "more"
    words = f"{'More than forecast' if more else 'Forecast'}: {sweep.forecast_words(row)}."
    return el("p", words, cls="alert" if more else None)


def _prefixes(tree: list[TreeRow], cost: Money) -> html.Section | None:
    if not tree:
        return None
    rows = [(row, row["depth"]) for row in tree]
    folders = html.table_of("Objects and bytes by prefix", sweep.prefixes_table(rows, cost))
    words = (
        "A folder's figures include everything in it. An object with several paths is counted only at its"
        " first path."
    )
    return html.Section(
        "prefixes", "Prefixes", join([el("p", words, cls="dim"), el("div", folders, cls="folders")])
    )


def _section(id: str, title: str, figures: Table, more: int = 0) -> html.Section | None:
    """A section with a sortable table, or None without rows. The document omits ``more`` rows."""
    made = html.table_of(f"{title}: figures", figures, ROWS, sortable=True)
    if made is None:
        return None
    left = max(len(figures.rows) - ROWS, 0) + more
    note = el("p", f"The JSON document has {count_of(left, 'more row')}.", cls="dim") if left else None
    return html.Section(id, title, join([made, note]))
