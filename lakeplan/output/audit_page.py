"""An audit as a page: one HTML file without requests, in the style of a plan's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakeplan.output.audit import SEVERITIES, facts_of, figures_of, notes_of, total_words
from lakeplan.output.report_shell import (
    About,
    Cell,
    Markup,
    Section,
    behind,
    el,
    join,
    script,
    styles,
    table,
    whole_page,
)
from lakeplan.output.text import NO_MONEY, Money, amounts, count, count_of, moment, size

if TYPE_CHECKING:
    from lakeplan.fleet.documents import AuditDocument, AuditedRow, DestroyedRow
    from lakeplan.values.simulation import AmountRow

STYLES, SCRIPTS = ("page.css",), ("page.js", "start_page.js")
FOOT = (
    "Made by lakeplan from an audit; this page is one file, sends no requests and stores nothing. Times are"
    " UTC, sizes decimal. Tags and rules are as they were read; nothing was changed."
)
_FREE = ("Already gone", "Gone of tags")
"""Nobody pays for these any more."""
NOTHING: AmountRow = {"objects": 0, "size_bytes": 0}


def render_audit_page(document: AuditDocument) -> str:
    """The page as text of an HTML file."""
    facts = [f"Made at {moment(document['at'])}", *document["servers"].values()]
    about = About("lakeplan audit", document["at"], facts, FOOT)
    sections = [_summary(document), _advice(document), _repositories(document), _failed(document)]
    shown = [section for section in sections if section is not None]
    return whole_page(about, shown, (), styles(STYLES), script(SCRIPTS))


def _sum(amounts_: Iterable[AmountRow]) -> AmountRow:
    every = list(amounts_)
    return {
        "objects": sum(one["objects"] for one in every),
        "size_bytes": sum(one["size_bytes"] for one in every),
    }


def _gone(row: AuditedRow) -> AmountRow:
    return _amount(row["destroyed"])


def _gone_of_tags(row: AuditedRow) -> AmountRow:
    return _amount(row["destroyed_tagged"])


def _amount(gone: DestroyedRow | None) -> AmountRow:
    return NOTHING if gone is None or gone["amount"] is None else gone["amount"]


def _older(row: AuditedRow) -> AmountRow:
    remnants = row["remnants"]
    return NOTHING if remnants is None or remnants["noncurrent"] is None else remnants["noncurrent"]


def _summary(document: AuditDocument) -> Section:
    rows = document["repositories"]
    cost = Money.of(rows[0]) if rows else NO_MONEY
    totals = (
        (
            "Already gone",
            _sum(map(_gone, rows)),
            "that the documented rule keeps, as far as storage was listed",
        ),
        ("Gone of tags", _sum(map(_gone_of_tags, rows)), "that tags name and the rule does not keep"),
        ("The next collection", _sum(row["next_run"]["expired"] for row in rows), "would be deleted"),
        (
            "At risk",
            _sum(row["next_run"]["at_risk"] for row in rows),
            "of it, which the documented rule keeps",
        ),
        ("Of tags", _sum(row["next_run"]["tagged"] for row in rows), "of it, which tags name"),
        ("Can be deleted now", _sum(row["freeable"] for row in rows), "that no rule keeps"),
        ("Older versions", _sum(map(_older, rows)), "that buckets keep besides"),
    )
    cards = [
        el(
            "div",
            el("dt", name),
            el(
                "dd",
                el("strong", size(amount["size_bytes"])),
                el(
                    "span",
                    f"{count_of(amount['objects'], 'object')} {words}"
                    + ("" if name in _FREE else cost.words(amount["size_bytes"])),
                ),
            ),
            cls="card",
        )
        for name, amount, words in totals
    ]
    headers = (
        *("repository", "stored", "already gone", "next collection", "at risk", "of tags", "can be deleted"),
        *cost.header(" "),
        *("stale branches", "findings"),
    )
    lines = [_line(row, cost) for row in rows]
    body = [
        el("p", total_words(document), cls="lead"),
        el("dl", cards, cls="cards"),
        table(
            "All repositories",
            headers,
            lines,
            figures=range(1, len(headers)),
            sortable=True,
            hidden_caption=True,
        ),
    ]
    return Section("summary", "Summary", join(body))


def _line(row: AuditedRow, cost: Money) -> list[Cell]:
    found: list[Cell] = [el("a", row["repository"], href=f"#{_id(row)}")]
    next_run = row["next_run"]
    gone = row["destroyed"]
    if gone is not None and gone["amount"] is None:
        sampled: Cell = (
            f"{gone['low_percent']:g} to {gone['high_percent']:g} %",
            {"data_sort": gone["gone"] or 0},
        )
    else:
        sampled = _bytes(_gone(row))
    found += [_bytes(row["objects"]), sampled]
    found += [_bytes(next_run[key]) for key in ("expired", "at_risk", "tagged")]
    freeable = row["freeable"]["size_bytes"]
    found.append(_bytes(row["freeable"]))
    found += [(text, {"data_sort": freeable}) for text in cost.cells(freeable)]
    for number in (row["stale_count"], len(row["advice"])):
        found.append((count(number), {"data_sort": number}))
    return found


def _bytes(amount: AmountRow) -> Cell:
    return size(amount["size_bytes"]), {"data_sort": amount["size_bytes"]}


def _id(row: AuditedRow) -> str:
    """Repository names are letters, digits, dashes and dots; a server's name may be more."""
    return "repository-" + "".join(c if c.isalnum() and c.isascii() else "-" for c in row["repository"])


def _advice(document: AuditDocument) -> Section | None:
    order = list(SEVERITIES)
    found = sorted(
        (
            (order.index(one["severity"]), row["repository"], one)
            for row in document["repositories"]
            for one in row["advice"]
        ),
        key=lambda one: one[:2],
    )
    if not found:
        return None
    lines: list[list[Cell]] = [
        [
            repository,
            (SEVERITIES[one["severity"]][0], {"data_sort": rank}),
            one["problem"],
            el("code", one["command"]) if one["command"] else "",
        ]
        for rank, repository, one in found
    ]
    headers = ("repository", "kind", "finding", "command")
    body = table("Findings", headers, lines, sortable=True, hidden_caption=True)
    return Section("advice", "What to do", body)


def _repositories(document: AuditDocument) -> Section | None:
    if not document["repositories"]:
        return None
    return Section("repositories", "Repositories", join(map(_details, document["repositories"])))


def _details(row: AuditedRow) -> Markup:
    cost = Money.of(row)
    facts = [el("div", el("dt", name), el("dd", text)) for name, text in facts_of(row) if text]
    figures: list[list[Cell]] = [
        [name.strip(), *amounts(amount, cost)] for name, amount, _ in figures_of(row)
    ]
    headers = ("figure", "objects", "size", *cost.header(" "))
    body = [
        el("dl", facts),
        table(
            f"Figures of {row['repository']}",
            headers,
            figures,
            figures=range(1, len(headers)),
            hidden_caption=True,
        ),
        *(el("p", text, cls="dim") for text in notes_of(row)),
    ]
    title = f"{row['repository']}: {count_of(len(row['advice']), 'finding')}"
    return el("div", behind(title, *body), id=_id(row))


def _failed(document: AuditDocument) -> Section | None:
    lines: list[list[Cell]] = [[key, one["message"], one["hint"]] for key, one in document["failed"].items()]
    lines += [
        [key, "the audit was stopped before", "Continue with --resume."] for key in document["unfinished"]
    ]
    if not lines:
        return None
    return Section(
        "failed",
        "Not read",
        table(
            "Repositories that were not read", ("repository", "why", "what to do"), lines, hidden_caption=True
        ),
    )
