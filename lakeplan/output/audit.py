"""An audit of whole servers on a terminal, as Markdown and as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console

from lakeplan.output import html
from lakeplan.output.drawing import Markup, el, join
from lakeplan.output.tables import Table, costs, markdown_failures, volume_cells
from lakeplan.output.text import (
    NO_MONEY,
    Cell,
    Money,
    Page,
    code,
    count,
    days,
    moment,
    names_of,
    prose,
    size,
    table,
    volume,
)
from lakeplan.values.simulation import total_row
from lakeplan.values.units import count_of
from lakeplan.values.urls import storage_of

if TYPE_CHECKING:
    from lakeplan.fleet.judging import AuditDocument, AuditedRow, DestroyedRow, Severity
    from lakeplan.values.simulation import AmountRow

SEVERITIES: dict[Severity, tuple[str, str]] = {
    "data-loss": ("DATA LOSS", "bold red"),
    "settings": ("settings", "bold yellow"),
    "cost": ("cost", "cyan"),
}
_NAMED = 5


def render_audit(document: AuditDocument, console: Console) -> None:
    """Print the figures of every repository and what to do about it, then the totals."""
    page = Page(console)
    for row in document["repositories"]:
        _repository(page, row)
    page.failed(document["failed"], "not read")
    page.total("Audit:", total_words(document))
    if document["unfinished"]:
        rest = names_of(document["unfinished"][:_NAMED], len(document["unfinished"]))
        page.warnings([f"the audit stopped before {rest}; to continue, run it with --resume"])


def total_words(document: AuditDocument) -> str:
    """Return one sentence about all repositories."""
    rows = document["repositories"]
    lost = sum(any(one["severity"] == "data-loss" for one in row["advice"]) for row in rows)
    failed = f", {count(len(document['failed']))} not read" if document["failed"] else ""
    total = count_of(len(rows), "repository")
    return f"{total}, {count(lost)} with data that is lost or about to be lost{failed}."


def _repository(page: Page, row: AuditedRow) -> None:
    page.heading(row["repository"])
    page.facts(dict(facts_of(row)), lead_width=14)
    figures_of(row).print_on(page, solid=(0,))
    for one in row["advice"]:
        label, style = SEVERITIES[one["severity"]]
        lines = [page.join(Cell(label, style), f"  {one['problem']}")]
        if one["command"]:
            lines.append(page.join(Cell(one["command"], "dim")))
        page.hanging(Cell("-"), *lines, indent=2)
    page.warnings(notes_of(row), indent=2)


def facts_of(row: AuditedRow) -> Iterator[tuple[str, str]]:
    """Facts about a repository, as name and value. Outputs omit a fact with an empty value."""
    rules, commits = row["rules"], row["commits"]
    if rules is None:
        yield "rules", "none"
    else:
        rules_text = [f"{one['branch_id']} {days(one['retention_days'])}" for one in rules["branches"]]
        more = f"; {names_of(rules_text[:_NAMED], len(rules_text))}" if rules_text else ""
        yield "rules", f"{days(rules['default_retention_days'])} by default{more}"
    kept = f"{count(commits['kept_by_server'])} kept by the server"
    risk = f", {count(commits['at_risk'])} at risk" if commits["at_risk"] else ""
    yield "commits", f"{count_of(commits['total'], 'commit')}, {kept}{risk}"
    yield "already gone", _gone(row)
    yield "implausible rules", "; ".join(row["nonsense"])
    stale = [f"{one['branch']} ({days(one['days'])})" for one in row["stale_branches"][:_NAMED]]
    yield "stale branches", names_of(stale, row["stale_count"]) if stale else ""
    yield "uncommitted", _uncommitted(row)
    yield "remnants", _remnants(row)
    runs = row["collector_runs"]
    if runs:
        last = runs[0]
        began = f", {moment(last['started'])}" if last["started"] else ""
        state = "failed" if last["success"] is False else last["note"]
        yield "last collection", f"{last['by']} {last['run_id']}{began}{f': {state}' if state else ''}"


def _uncommitted(row: AuditedRow) -> str:
    uncommitted = row["uncommitted"]
    if uncommitted is None or not uncommitted["changes"]:
        return ""
    changes = (
        f"{count(uncommitted['changes'])} or more changes"
        if uncommitted["more"]
        else count_of(uncommitted["changes"], "change")
    )
    return f"{changes} on {count(uncommitted['branches'])} of {count_of(uncommitted['asked'], 'branch')}"


def _remnants(row: AuditedRow) -> str:
    extra = row["remnants"]
    if extra is None:
        return ""
    parts = []
    if extra["delete_markers"]:
        parts.append(count_of(extra["delete_markers"], "delete marker"))
    if extra["unfinished_uploads"]:
        since = moment(extra["oldest_upload"])
        parts.append(f"{count_of(extra['unfinished_uploads'], 'unfinished upload')}, the oldest from {since}")
    return ", ".join(parts)


def _gone(row: AuditedRow) -> str:
    """Return how much of the data that the documented rule keeps, or that only tags name, is gone."""
    kept, tagged = row["destroyed"], row["destroyed_tagged"]
    parts = [] if kept is None else [_destroyed(kept, amount=" that the documented rule keeps")]
    if tagged is not None and (tagged["gone"] or (tagged["amount"] and tagged["amount"]["objects"])):
        parts.append(_destroyed(tagged, amount=" from tags", sample=" from tags"))
    return "; ".join(parts)


def _destroyed(gone: DestroyedRow, *, amount: str, sample: str = "") -> str:
    if gone["amount"] is not None:
        return f"{volume(gone['amount'])} ({gone['low_percent']:g} %){amount}"
    counts = f"{count(gone['gone'] or 0)} of {count_of(gone['asked'] or 0, 'sampled object')}{sample}"
    share = f"{gone['low_percent']:g} to {gone['high_percent']:g} % of all objects, with 95 % confidence"
    return f"{counts}: {share}"


def figures_of(row: AuditedRow) -> Table:
    """Return the figures of a repository. A figure that is part of another is indented below it."""
    cost = Money.of(row)
    rows = [[Cell(name, style), *volume_cells(amount, cost)] for name, amount, style in _figures(row)]
    return Table(("", "objects", "size", *cost.header()), rows)


def _figures(row: AuditedRow) -> list[tuple[str, AmountRow, str]]:
    """Return each figure as name, amount and style of the name."""
    next_run, leftovers = row["next_run"], row["leftovers"]
    figures = [("referenced by commits" if row["estimated"] else "stored", row["objects"], "")]
    figures.append(("the next collection would delete", next_run["expired"], ""))
    figures += [
        (name, amount, "bold red")
        for name, amount in (("  at risk", next_run["at_risk"]), ("  in tags", next_run["tagged"]))
        if amount["objects"]
    ]
    young = next_run["too_young"]
    if young is not None and young["objects"]:
        figures.append((f"  later: younger than {_hours(row)} now", young, "dim"))
    figures.append(("can be deleted now", row["freeable"], ""))
    for one in row["periods"]:
        figures.append((f"  at {days(one['days'])}", one["expired"], "dim"))
        if not one["expired"]["objects"]:
            break  # nothing expires at longer periods either
    if leftovers is not None:
        staged = leftovers["staged"]
        figures.append(("never committed", leftovers["never_committed"], ""))
        figures += [] if staged is None else [("  uncommitted", staged, "dim")]
    if row["remnants"] is not None and row["remnants"]["noncurrent"] is not None:
        more = "" if row["remnants"]["complete"] else " (lower bound)"
        figures.append((f"older versions{more}", row["remnants"]["noncurrent"], ""))
    return figures


def _hours(row: AuditedRow) -> str:
    return count_of(round(row["next_run"]["min_age_seconds"] / 3600), "hour")


_UNCOUNTED = {
    "s3": "the store does not report them, or the credentials do not allow listing them",
    "azure": (
        "Azure does not list unfinished uploads, and it lists older versions only if the account and the"
        " credentials allow it"
    ),
    "gcs": (
        "lakeplan does not count them in Google Cloud Storage, or the credentials do not allow listing them"
    ),
}
"""Why remnants were not counted, by kind of storage."""


def notes_of(row: AuditedRow) -> Iterator[str]:
    """Yield notes on what the figures leave out."""
    if not row["estimated"]:
        yield from _uncounted(row)
    if row["estimated"]:
        why = row["not_listed"]
        yield (
            f"storage was not listed ({why}), so figures come from metadata and include objects that are"
            " already gone"
        )
        yield f"collectors skip objects younger than {_hours(row)}, but these figures include them"
    if row["not_sampled"]:
        yield f"no sample was read: {row['not_sampled']}"
    if not row["commits"]["dangling_seen"]:
        yield "commits of deleted branches were not read; add --dump-refs to read them"


def _uncounted(row: AuditedRow) -> Iterator[str]:
    remnants, kind = row["remnants"], storage_of(row["storage_namespace"])
    lacking = [] if remnants and remnants["noncurrent"] else ["older versions"]
    lacking += [] if remnants and remnants["unfinished_uploads"] is not None else ["unfinished uploads"]
    if lacking and kind is not None and kind.name in _UNCOUNTED:
        yield f"{' and '.join(lacking)} are not counted: {_UNCOUNTED[kind.name]}"


def audit_markdown(document: AuditDocument) -> str:
    """Return a table of all repositories, followed by what to do about each."""
    headers = ("repository", "rules", "already gone", "next collection", "at risk", "can be deleted")
    lines = [
        [
            code(row["repository"]),
            prose(dict(facts_of(row))["rules"]),
            prose(dict(facts_of(row))["already gone"]),
            prose(volume(row["next_run"]["expired"], Money.of(row))),
            prose(volume(row["next_run"]["at_risk"])),
            prose(volume(row["freeable"], Money.of(row))),
        ]
        for row in document["repositories"]
    ]
    parts = ["### lakeplan audit\n", prose(total_words(document)) + "\n\n", table(headers, lines)]
    for row in document["repositories"]:
        if not row["advice"]:
            continue
        parts.append(f"\n#### {code(row['repository'])}\n")
        for one in row["advice"]:
            command = f": {code(one['command'])}" if one["command"] else ""
            parts.append(f"- {SEVERITIES[one['severity']][0]}: {prose(one['problem'])}{command}\n")
        parts += [f"- {prose(text)}\n" for text in row["nonsense"]]
    return "".join(parts) + markdown_failures(document["failed"], "not read")


# ---- the page
FOOT = (
    "lakeplan created this page from an audit. It is a single file that sends no requests and stores nothing."
    " Times are in UTC, and sizes are decimal. The audit read tags and rules from the server and"
    " changed nothing."
)
_FREE = ("Already gone", "Gone from tags")
"""These have no cost, because they are not stored."""
NOTHING: AmountRow = {"objects": 0, "size_bytes": 0}


def render_audit_page(document: AuditDocument) -> str:
    """The page as text of an HTML file."""
    facts = [f"Created at {moment(document['at'])}", *document["servers"].values()]
    about = html.PageFacts("lakeplan audit", document["at"], facts, FOOT)
    failed = html.unread_section(
        document, "the audit stopped before this repository", "To continue, run it with --resume."
    )
    sections = [_summary(document), _advice(document), _repositories(document), failed]
    return html.whole_page(about, sections, ("page.css",), ("page.js", "start_page.js"))


def _amount(gone: DestroyedRow | None) -> AmountRow:
    return NOTHING if gone is None or gone["amount"] is None else gone["amount"]


def _older(row: AuditedRow) -> AmountRow:
    remnants = row["remnants"]
    return NOTHING if remnants is None or remnants["noncurrent"] is None else remnants["noncurrent"]


def _summary(document: AuditDocument) -> html.Section:
    rows = document["repositories"]
    cost = Money.of(rows[0]) if rows else NO_MONEY
    totals = (
        (
            "Already gone",
            total_row(_amount(row["destroyed"]) for row in rows),
            "kept by the documented rule (where storage was listed)",
        ),
        (
            "Gone from tags",
            total_row(_amount(row["destroyed_tagged"]) for row in rows),
            "referenced by tags, but not kept by the rule",
        ),
        ("The next collection", total_row(row["next_run"]["expired"] for row in rows), "would be deleted"),
        (
            "At risk",
            total_row(row["next_run"]["at_risk"] for row in rows),
            "of these, kept by the documented rule",
        ),
        ("In tags", total_row(row["next_run"]["tagged"] for row in rows), "of these, referenced by tags"),
        ("Can be deleted now", total_row(row["freeable"] for row in rows), "not kept by any rule"),
        ("Older versions", total_row(map(_older, rows)), "kept by versioned buckets"),
    )
    shown = [
        (
            name,
            size(amount["size_bytes"]),
            f"{count_of(amount['objects'], 'object')} {words}"
            + ("" if name in _FREE else cost.words(amount["size_bytes"])),
        )
        for name, amount, words in totals
    ]
    headers = (
        *("repository", "stored", "already gone", "next collection", "at risk", "in tags", "can be deleted"),
        *cost.header(" "),
        *("stale branches", "findings"),
    )
    lines = [_line(row, cost) for row in rows]
    body = [
        el("p", total_words(document), cls="lead"),
        html.cards(shown),
        html.table(
            "All repositories",
            headers,
            lines,
            figures=range(1, len(headers)),
            sortable=True,
            hidden_caption=True,
        ),
    ]
    return html.Section("summary", "Summary", join(body))


def _line(row: AuditedRow, cost: Money) -> list[html.Cell]:
    gone, next_run = row["destroyed"], row["next_run"]
    already: html.Cell = _bytes(_amount(gone))
    if gone is not None and gone["amount"] is None:
        already = (f"{gone['low_percent']:g} to {gone['high_percent']:g} %", {"data_sort": gone["gone"] or 0})
    return [
        el("a", row["repository"], href=f"#{html.anchor(row['repository'])}"),
        _bytes(row["objects"]),
        already,
        *(_bytes(amount) for amount in (next_run["expired"], next_run["at_risk"], next_run["tagged"])),
        _bytes(row["freeable"]),
        *html.cells(costs(cost, row["freeable"]["size_bytes"])),
        *(html.amount(number) for number in (row["stale_count"], len(row["advice"]))),
    ]


def _bytes(amount: AmountRow) -> html.Cell:
    return html.amount(amount["size_bytes"], size)


def _advice(document: AuditDocument) -> html.Section | None:
    order = list(SEVERITIES)
    problems = sorted(
        (
            (order.index(one["severity"]), row["repository"], one)
            for row in document["repositories"]
            for one in row["advice"]
        ),
        key=lambda one: one[:2],
    )
    if not problems:
        return None
    lines: list[list[html.Cell]] = [
        [
            repository,
            (SEVERITIES[one["severity"]][0], {"data_sort": rank}),
            one["problem"],
            el("code", one["command"]) if one["command"] else "",
        ]
        for rank, repository, one in problems
    ]
    headers = ("repository", "kind", "finding", "command")
    body = html.table("Findings", headers, lines, sortable=True, hidden_caption=True)
    return html.Section("advice", "What to do", body)


def _repositories(document: AuditDocument) -> html.Section | None:
    if not document["repositories"]:
        return None
    return html.Section("repositories", "Repositories", join(map(_details, document["repositories"])))


def _details(row: AuditedRow) -> Markup:
    facts = [el("div", el("dt", name), el("dd", text)) for name, text in facts_of(row) if text]
    body = [
        el("dl", facts),
        html.table_of(f"Figures of {row['repository']}", figures_of(row)),
        *(el("p", text, cls="dim") for text in notes_of(row)),
    ]
    title = f"{row['repository']}: {count_of(len(row['advice']), 'finding')}"
    return el("div", html.folded(title, *body), id=html.anchor(row["repository"]))
