"""Marks, approvals and sweeps for people, from their documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from lakeplan.output.page import Cell, Page
from lakeplan.output.plan_impact import render_gates
from lakeplan.output.text import Money, count, counted, duration, moment, size
from lakeplan.values.sweep import MarkStage

Json = Mapping[str, Any]

CLASSES = {
    "backlog": ("backlog", "expired already before the rules last changed", "red"),
    "newly_expired": ("newly expired", "expired through the last change of the rules", "red"),
    "never_committed": ("never committed", "in no commit, and not staged", "yellow"),
    "at_risk": ("at risk", "the server lets it go, the documented rule keeps it", "green"),
    "protected": ("protected", "kept by a tag, a hold or another repository", "green"),
    "uncertain_address": (
        "uncertain address",
        "kept: an address in an unusual spelling may mean it",
        "green",
    ),
    "near_limit": ("near a limit", "kept: within sweep.margin, or by the tree's newest expansion", "green"),
}


def render_marks(document: Json, console: Console, stage: MarkStage = "marked") -> None:
    """Every mark with what it would take and what it leaves, then what to do next. ``stage`` is how far they
    are."""
    page = Page(console)
    for mark in document["marks"]:
        _mark(page, mark)
    for key, why in document["skipped"].items():
        page.heading(key, "skipped")
        page.line(why, indent=2)
    for key, failure in document["failed"].items():
        page.heading(key, "not marked")
        page.line(Cell("FAILED", "bold red"), f" {failure['message']}", indent=2)
        if failure["hint"]:
            page.line(Cell("hint: ", "dim"), failure["hint"], indent=2)
    render_gates(page, [gate for mark in document["marks"] for gate in mark["gates"]])
    page.blank()
    _total(page, document, stage)
    for mark in document["marks"]:
        if mark["goes"]["objects"] and not mark["unreadable"]:
            page.line(_NEXT[stage].format(mark["mark_id"]), indent=2)


_NEXT: Mapping[MarkStage, str] = {
    "marked": "lakeplan sweep approve {} --reason …",
    "approved": "lakeplan sweep run {}",
    "begun": "lakeplan sweep run {} goes on with it; with --close it deletes nothing more",
}


def _total(page: Page, document: Json, stage: MarkStage) -> None:
    marks, failed = document["marks"], len(document["failed"])
    total = sum(mark["goes"]["objects"] for mark in marks)
    size_bytes = sum(mark["goes"]["size_bytes"] for mark in marks)
    title, end = {
        "marked": ("Marked:", "Nothing was deleted."),
        "approved": ("Approved:", "Nothing was deleted."),
        "begun": ("Not finished:", "A sweep began to delete them and did not end."),
    }[stage]
    page.line(
        Cell(title, "bold"),
        f" {counted(total, 'object')}, {size(size_bytes)} in {counted(len(marks), 'repository')}",
        f"; {failed} failed" if failed else "",
        f". {end}",
    )


def _mark(page: Page, mark: Json) -> None:
    page.heading(f"{mark['server']}/{mark['repository']}", f"mark {mark['mark_id']}")
    collects, cost = mark["settings"]["never_committed"] == "collect", Money.of(mark)
    rows: list[Sequence[str | Cell]] = []
    for key, (name, why, style) in CLASSES.items():
        amount = mark["classes"][key]
        if not amount["objects"]:
            continue
        goes = key in ("backlog", "newly_expired") or (key == "never_committed" and collects)
        verdict = Cell("goes", "red") if goes else Cell("stays", "green")
        rows.append(
            (
                verdict,
                Cell(name, style if goes else ""),
                count(amount["objects"]),
                size(amount["size_bytes"]),
                *cost.cells(amount["size_bytes"]),
                why,
            )
        )
    if rows:
        headers = ("", "", "objects", "size", *cost.header(), "")
        page.table(headers, rows, figures=(2, 3, 4) if cost.shown else (2, 3), solid=(0, 1))
    else:
        page.line("nothing may go", indent=2)
    page.line(
        Cell(
            f"of {counted(mark['candidates']['objects'], 'object')} older than"
            f" {moment(mark['cutoff'])}; may be swept from {moment(mark['sweep_from'])}"
            f" to {moment(mark['sweep_until'])}",
            "dim",
        ),
        indent=2,
    )
    if mark["unreadable"]:
        named = ", ".join(sorted(mark["unreadable"])[:5])
        page.line(
            Cell("blocked:", "bold red"),
            f" {counted(len(mark['unreadable']), 'repository')} of the server could not be read ({named})"
            " and may hold addresses here",
            indent=2,
        )


def render_mark_list(document: Json, console: Console) -> None:
    page = Page(console)
    if not document["marks"]:
        page.line("No mark is recorded. lakeplan sweep mark makes one.")
        return
    rows = [
        (mark["mark_id"], mark["repository"], mark["by"], "yes" if mark["approved"] else "")
        for mark in document["marks"]
    ]
    # The id begins with its time.
    page.table(("mark", "repository", "by", "approved"), rows, solid=(0,), indent=0)


def render_approval(document: Json, console: Console) -> None:
    page = Page(console)
    page.line(
        Cell("Approved:", "bold green"),
        f" {counted(document['objects'], 'object')}, {size(document['size_bytes'])}"
        f"{Money.of(document).words(document['size_bytes'])}, by {document['by']}:"
        f" {document['reason']}",
    )
    page.line(Cell(f"digest {document['digest']}", "dim"))
    page.line(f"lakeplan sweep run {document['mark_id']}", indent=2)


def render_sweep(document: Json, console: Console) -> None:
    """What became of every object of a mark, why some stayed, and what is not proven."""
    page = Page(console)
    page.heading(document["repository"], f"sweep of mark {document['mark_id']}")
    cost = Money.of(document)
    rows: list[Sequence[str | Cell]] = [
        (
            Cell(name, style),
            count(document[key]["objects"]),
            size(document[key]["size_bytes"]),
            *cost.cells(document[key]["size_bytes"]),
        )
        for key, name, style in (
            ("deleted", "deleted", ""),
            ("saved", "saved", "green"),
            ("failed", "FAILED", "bold red"),
            ("pending", "not done yet", "yellow"),
        )
        if document[key]["objects"] or key == "deleted"
    ]
    page.table(("", "objects", "size", *cost.header()), rows, figures=(1, 2, 3), solid=(0,))
    for reason, number in document["reasons"].items():
        page.line(f"{counted(number, 'object')} {reason}", indent=2)
    _settings_of_the_tree(page, document)
    if document["came_back"] is None:
        page.line(Cell("unknown:", "bold yellow"), " whether anything deleted is held again", indent=2)
    elif document["came_back"]:
        back = f" {counted(document['came_back'], 'object')} deleted and held again since: "
        if document["settings"]["mode"] == "quarantine":
            page.line(Cell("MISSING:", "bold red"), f"{back}the data is in quarantine", indent=2)
            page.line(f"lakeplan sweep restore {document['mark_id']}", indent=4)
        else:
            page.line(Cell("LOST:", "bold red"), f"{back}the data is gone", indent=2)
    if document["problem"]:
        page.line(Cell("stopped:", "bold red"), f" {document['problem']}", indent=2)
    if document["not_yet_reclaimed"]:
        page.line(Cell("note:", "bold yellow"), f" {document['not_yet_reclaimed']}", indent=2)
    page.blank()
    verified = f"{counted(document['verified'], 'object')} asked for again and gone"
    page.line(
        Cell("Swept:" if document["finished"] else "Not finished:", "bold"),
        f" {count(document['deleted']['objects'])} deleted, {size(document['deleted']['size_bytes'])}"
        f"{cost.words(document['deleted']['size_bytes'])}"
        f"; {verified}.",
    )
    if not document["finished"]:
        page.line(f"lakeplan sweep run {document['mark_id']} goes on with it", indent=2)


def _settings_of_the_tree(page: Page, document: Json) -> None:
    """Settings that the tree changed since the approval. Summaries of earlier releases do not say."""
    named = []
    for name in sorted(name for name, of in document.get("settings_from", {}).items() if of == "tree"):
        value = document["settings"][name]
        text = duration(value) if name.endswith("_seconds") else value
        named.append(f"sweep.{name.removesuffix('_seconds')} is {text}")
    if named:
        page.line(Cell("note:", "bold yellow"), f" changed since the approval: {', '.join(named)}", indent=2)


def render_after_apply(document: Json, console: Console) -> None:
    """Marks, then who waits for what, then what was swept."""
    render_marks(document["marked"], console)
    page = Page(console)
    for key, why in document["waiting"].items():
        page.line(Cell(key, "bold"), f": {why}")
    for key, failure in document["failed"].items():
        hint = f" ({failure['hint']})" if failure["hint"] else ""
        page.line(Cell(key, "bold"), Cell(" not swept: ", "bold red"), f"{failure['message']}{hint}")
    for swept in document["swept"]:
        render_sweep(swept, console)


def render_restore(document: Json, console: Console) -> None:
    page = Page(console)
    page.heading(document["repository"], f"restored from mark {document['mark_id']}")
    for address, why in document["failures"].items():
        page.line(Cell("FAILED", "bold red"), f" {address}: {why}", indent=2)
    page.line(
        Cell("Restored:", "bold"),
        f" {counted(document['restored'], 'object')}; {count(document['already_there'])} were there already",
        f"; {count(document['failed'])} failed" if document["failed"] else "",
        ".",
    )
    if document["note"]:
        page.line(Cell("note:", "bold yellow"), f" {document['note']}", indent=2)
    if document["collectable_again"]:
        page.line(
            Cell("note:", "bold yellow"),
            f" no kept commit holds {count(document['collectable_again'])} of them: the next collection may"
            " take them again after sweep.min_age. Lengthen the retention, or branch from the commit.",
            indent=2,
        )


def render_purge(document: Json, console: Console) -> None:
    page = Page(console)
    found = document["quarantines"]
    if not found and not document["refused"]:
        older = f"{document['older_than']} and than " if document["older_than"] else ""
        page.line(f"No quarantine is older than {older}sweep.quarantine_age. Nothing was deleted.")
        return
    if found:
        amounts = ["deleted", *(name for name in ("kept", "failed") if any(q[name] for q in found))]
        rows = [
            (q["repository"], q["mark_id"], moment(q["newest"]), *(count(q[name]) for name in amounts))
            for q in found
        ]
        headers = ("repository", "mark", "last copy", *amounts)
        page.table(headers, rows, figures=range(3, len(headers)), solid=(1, 2), indent=0)
    for one in found:
        for why, number in one["kept_reasons"].items():
            page.line(f"{one['mark_id']}: kept {counted(number, 'copy')}: {why}", indent=2)
        for key, why in one["failures"].items():
            page.line(Cell("FAILED", "bold red"), f" {key}: {why}", indent=2)
        if one["problem"]:
            page.line(Cell("stopped:", "bold red"), f" {one['problem']}", indent=2)
        if one["needed"]:
            page.line(f"lakeplan sweep restore {one['mark_id']}", indent=2)
    for one in document["refused"]:
        page.line(
            Cell("NOT PURGED", "bold red"),
            f" {one['repository']} mark {one['mark_id']}: {one['message']}",
            indent=2,
        )
        if one["hint"]:
            page.line(Cell("hint: ", "dim"), one["hint"], indent=4)
