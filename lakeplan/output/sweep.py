"""Renders marks, approvals and sweeps for terminals: what a mark contains, by prefix, age and last commit,
and what keeps the rest. The objects of a mark are also rendered as CSV and Parquet.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from lakeplan.output.plan_impact import render_gates
from lakeplan.output.tables import Folder, Name, Table, Value, csv_text, volume_cells
from lakeplan.output.text import Cell, Money, Page, amounts, count, duration, moment, size, volume
from lakeplan.values.records import moment_in
from lakeplan.values.simulation import MarkStage, Outcome, total_row
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.sweep import documents


PREFIXES_SHOWN = 20
COMMITS_SHOWN = 10
KEEPERS_SHOWN = 20


def render_contents(page: Page, contents: documents.ContentsRow, cost: Money) -> None:
    """Print what would be deleted, by prefix, age and last commit, and what keeps the rest."""
    prefixes = contents["prefixes"]
    _print(page, prefixes_table([(row, 0) for row in prefixes], cost), PREFIXES_SHOWN)
    page.rest(len(prefixes) + contents["more_prefixes"], PREFIXES_SHOWN, noun="prefix")
    _print(page, ages_table(contents, cost))
    commits, keepers = contents["last_commits"], contents["kept_by"]
    _print(page, commits_table(contents, cost), COMMITS_SHOWN)
    page.rest(len(commits) + contents["more_last_commits"], COMMITS_SHOWN, noun="last commit")
    _print(page, keepers_table(contents), KEEPERS_SHOWN)
    page.rest(len(keepers) + contents["more_kept_by"], KEEPERS_SHOWN)
    if forecast := contents["forecast"]:
        page.blank()
        words = forecast_words(forecast)
        if forecast["differs"] == "more":
            page.labelled("MORE THAN FORECAST:", "bold red", words)
        else:
            page.labelled("forecast:", "bold", words)


def prefixes_table(rows: Iterable[tuple[documents.PrefixRow, int]], cost: Money) -> Table:
    """The objects to delete and to keep below each prefix, with its depth in the tree of prefixes."""
    lines = [
        [Folder(row["prefix"], depth), *volume_cells(row["goes"], cost), *volume_cells(row["kept"])]
        for row, depth in rows
    ]
    return Table(("prefix", "objects", "size", *cost.header(), "kept\nobjects", "kept\nsize"), lines)


def ages_table(contents: documents.ContentsRow, cost: Money) -> Table:
    """The objects to delete, by their age at the mark."""
    rows = [[Cell(age_words(row)), *volume_cells(row, cost)] for row in contents["ages"]]
    return Table(("age", "objects", "size", *cost.header()), rows)


def commits_table(contents: documents.ContentsRow, cost: Money) -> Table:
    """The objects to delete, by the last commit that had them."""
    rows = [
        [Name(row["commit_id"][:12]), Cell(moment(row["created"] or "")), *volume_cells(row, cost)]
        for row in contents["last_commits"]
    ]
    return Table(("last commit", "created", "objects", "size", *cost.header()), rows, names=2)


def keepers_table(contents: documents.ContentsRow) -> Table:
    """The objects that are kept, by what keeps them."""
    rows = [
        [Name(keeper_words(row)), Cell(class_words(row["class"])), *volume_cells(row)]
        for row in contents["kept_by"]
    ]
    return Table(("kept by", "class", "objects", "size"), rows, names=2)


def _print(page: Page, table: Table, limit: int | None = None) -> None:
    if table.rows:
        page.blank()
        table.print_on(page, limit, solid=(1,) if table.names > 1 else ())


def forecast_words(row: documents.ForecastRow) -> str:
    """Return text that compares the plan's forecast with the mark."""
    least, most = row["least"], row["most"]
    if most is None:
        bounds = f"at least {volume(least)}" if least is not None else "an unknown amount"
    elif least is None or least == most:
        bounds = f"up to {volume(most)}"
    else:
        bounds = f"{count(least['objects'])} to {volume(most)}"
    fewer = ", fewer than forecast" if row["differs"] == "fewer" else ""
    return (
        f"plan {row['plan_digest'][:12]} of {moment(row['as_of'])} forecast that {bounds} would expire"
        f" because of its changes by the time of this mark; the mark contains {volume(row['found'])}{fewer}"
    )


def age_words(row: documents.AgeRow) -> str:
    """``7 to 30 days``, ``365 days or more``."""
    if row["to_days"] is None:
        return f"{row['from_days']} days or more"
    return f"{row['from_days']} to {row['to_days']} days"


def keeper_words(row: documents.KeeperName) -> str:
    """``tag v1.0``, ``hold on prefix audit/``."""
    if row["kind"] != "hold":
        return f"{row['kind']} {row['name']}"
    return f"hold on {row['name']}" + (f" {row['prefix']}" if row["prefix"] is not None else "")


_CLASSES: Mapping[documents.ClassName, tuple[str, str]] = {
    "backlog": ("backlog", "had expired before the rules last changed"),
    "newly_expired": ("newly expired", "expired because of the last change to the rules"),
    "never_committed": ("never committed", "in no commit, and not listed as uncommitted (upper bound)"),
    "at_risk": ("at risk", "the server would delete it, but the documented rule keeps it"),
    "protected": ("protected", "kept by a tag, a hold or another repository"),
    "uncertain_address": ("uncertain address", "kept: an address with an unusual spelling may refer to it"),
    "near_limit": (
        "near a cutoff",
        "kept: within sweep.margin of a cutoff, or by the latest expansion of the tree's patterns",
    ),
}


def class_words(name: documents.ClassName) -> str:
    """``never committed``, ``near a cutoff``."""
    return _CLASSES[name][0]


def render_marks(
    document: documents.MarksDocument,
    console: Console,
    stage: MarkStage = "marked",
    *,
    following: bool = True,
) -> None:
    """Print what every mark would delete, what it keeps and, if ``following``, the next command. ``stage`` is
    the state that the marks are in."""
    page = Page(console)
    for mark in document["marks"]:
        _mark(page, mark)
    for key, why in document["skipped"].items():
        page.heading(key, "skipped")
        page.line(why, indent=2)
    for key, failure in document["failed"].items():
        page.heading(key, "not marked")
        page.labelled("FAILED", "bold red", failure["message"])
        if failure["hint"]:
            page.labelled("hint:", "dim", failure["hint"])
    render_gates(page, [gate for mark in document["marks"] for gate in mark["gates"]])
    page.blank()
    _total(page, document, stage)
    for mark in document["marks"] if following else ():
        if mark["goes"]["objects"] and not mark["unreadable"]:
            page.line(_NEXT[stage].format(mark["mark_id"]), indent=2)


_NEXT: Mapping[MarkStage, str] = {
    "marked": "lakeplan sweep approve {} --reason …",
    "approved": "lakeplan sweep run {}",
    "begun": "Run `lakeplan sweep run {0}` to continue, or `lakeplan sweep abort {0}` to end it.",
}


def _total(page: Page, document: documents.MarksDocument, stage: MarkStage) -> None:
    marks, failed = document["marks"], len(document["failed"])
    total = total_row(mark["goes"] for mark in marks)
    title, end = {
        "marked": ("Marked:", "Nothing was deleted."),
        "approved": ("Approved:", "Nothing was deleted."),
        "begun": ("Not finished:", "A sweep began to delete these objects but did not finish."),
    }[stage]
    errors = f"; {failed} failed" if failed else ""
    text = f"{volume(total)} in {count_of(len(marks), 'repository')}{errors}. {end}"
    page.labelled(title, "bold", text, indent=0)


def classes_table(mark: documents.MarkDocument, cost: Money) -> Table:
    """The classes that have objects: what a sweep does with them, and why."""
    collects = mark["settings"]["never_committed"] == "collect"
    rows: list[list[Value]] = []
    for key, (name, why) in _CLASSES.items():
        if not mark["classes"][key]["objects"]:
            continue
        goes = key in ("backlog", "newly_expired") or (key == "never_committed" and collects)
        if key == "backlog" and mark["rules_before"]["known"] == "unknown":
            why = "expired; the rules before the last change are unknown"
        verdict = Cell("delete", "red") if goes else Cell("keep", "green")
        styled = Cell(name, "red" if goes else "")
        rows.append([verdict, styled, *volume_cells(mark["classes"][key], cost), Cell(why)])
    headers = ("effect", "class", "objects", "size", *cost.header(), "why")
    return Table(headers, rows, names=2, words=1)


def _mark(page: Page, mark: documents.MarkDocument) -> None:
    page.heading(f"{mark['server']}/{mark['repository']}", f"mark {mark['mark_id']}")
    cost = Money.of(mark)
    classes = classes_table(mark, cost)
    classes.print_on(page, solid=(0, 1))
    if not classes.rows:
        page.line("nothing to delete", indent=2)
    page.dim(
        f"by {mark['by']}; sweep.mode: {mark['settings']['mode']}; out of"
        f" {count_of(mark['candidates']['objects'], 'object')} older than"
        f" {moment(mark['cutoff'])}; can be swept from {moment(mark['sweep_from'])} to"
        f" {moment(mark['sweep_until'])}"
    )
    if "contents" in mark:
        render_contents(page, mark["contents"], cost)
    if mark["unreadable"]:
        unreadable = count_of(len(mark["unreadable"]), "repository")
        named = ", ".join(sorted(mark["unreadable"])[:5])
        what = f"{unreadable} on the server could not be read ({named})"
        text = f"{what} and may refer to objects in this namespace"
        page.labelled("blocked:", "bold red", text)


def render_mark_list(document: documents.MarkListDocument, console: Console) -> None:
    page = Page(console)
    if not document["marks"]:
        page.line("No marks are recorded. Run `lakeplan sweep mark` to create one.")
        return
    later = [name for name in _LATER if any(mark[name] or _least(mark, name) for mark in document["marks"])]
    rows: list[Sequence[str | Cell]] = [
        (
            mark["mark_id"],
            *(
                (count(mark["goes"]["objects"]), size(mark["goes"]["size_bytes"]))
                if mark["goes"]
                else ("", "")
            ),
            *(_least(mark, name) + count(mark[name] or 0) for name in later),
            Cell("restored") if _all_restored(mark) else Cell(*_STATES[mark["state"]]),
            mark["repository"],
        )
        for mark in document["marks"]
    ]
    # The id begins with the time of the mark.
    headers = ("mark", "objects", "size", *later, "state", "repository")
    page.table(headers, rows, figures=range(1, 3 + len(later)), solid=(0,), indent=0)


def _least(mark: documents.ListedMark, name: str) -> str:
    return "at least " if name == "purged" and mark["purging"] else ""


def _all_restored(mark: documents.ListedMark) -> bool:
    deleted = mark["deleted"] if mark["state"] in ("quarantined", "purged") else None
    return deleted is not None and mark["restored"] == deleted["objects"]


_LATER: tuple[Literal["restored", "purged"], ...] = ("restored", "purged")
_STATES: Mapping[documents.ListedState, tuple[str, str]] = {
    "marked": ("not approved", "yellow"),
    "approved": ("approved", "green"),
    "too_old": ("too old to be swept", "dim"),
    "unfinished": ("not finished", "bold red"),
    "swept": ("swept", ""),
    "quarantined": ("in quarantine", ""),
    "purged": ("purged", ""),
    "unknown": ("unknown: its record is damaged", "bold red"),
}


_OUTCOMES: Mapping[Outcome, Cell] = {
    "deleted": Cell("deleted"),
    "saved": Cell("saved", "green"),
    "failed": Cell("FAILED", "bold red"),
    "pending": Cell("not done yet", "yellow"),
}


def render_approval(document: documents.ApprovalDocument, console: Console) -> None:
    page = Page(console)
    approved = volume(document, Money.of(document))
    text = f"{approved}, by {document['by']}: {document['reason']}"
    page.labelled("Approved:", "bold green", text, indent=0)
    page.dim(f"digest {document['digest']}", indent=0)
    if shown := document.get("shown"):
        page.dim(f"summary digest {shown}", indent=0)
    page.line(f"lakeplan sweep run {document['mark_id']}", indent=2)


def render_sweep(document: documents.SweepDocument, console: Console) -> None:
    """Print how many objects of a mark were deleted and kept, why, and what was not proven."""
    page = Page(console)
    page.heading(document["repository"], f"sweep of mark {document['mark_id']}")
    if approval := document.get("approval"):
        page.dim(f"approved by {approval['by']} {moment(approval['at'])}: {approval['reason']}")
    cost = Money.of(document)
    rows: list[Sequence[str | Cell]] = [
        (outcome, *amounts(document[key], cost))
        for key, outcome in _OUTCOMES.items()
        if document[key]["objects"] or key == "deleted"
    ]
    page.table(("", "objects", "size", *cost.header()), rows, figures=(1, 2, 3), solid=(0,))
    for reason, number in document["reasons"].items():
        page.line(f"{reason} ({count_of(number, 'object')})", indent=2)
    _settings_of_the_tree(page, document)
    _came_back(page, document)
    if document["problem"]:
        page.labelled("stopped:", "bold red", document["problem"])
    if document["not_yet_reclaimed"]:
        page.labelled("note:", "bold yellow", document["not_yet_reclaimed"])
    if "note" in document:
        page.labelled("note:", "bold yellow", document["note"])
    _checked(page, document)
    page.blank()
    deleted, size_bytes = document["deleted"]["objects"], document["deleted"]["size_bytes"]
    page.line(
        Cell("Swept:" if document["finished"] else "Not finished:", "bold"),
        f" {count(deleted)} deleted, {size(size_bytes)}{cost.words(size_bytes)}",
        f"; {count_of(document['verified'], 'object')} checked again and confirmed gone.",
    )
    if later := _later(document):
        page.labelled("Since then:", "bold", later, indent=0)
    if not document["finished"]:
        page.line(f"to continue: lakeplan sweep run {document['mark_id']}", indent=2)
    if "contents" in document:
        page.heading("What was marked")
        render_contents(page, document["contents"], cost)


def _later(document: documents.SweepDocument) -> str:
    restored, purged = document.get("restored"), document.get("purged")
    texts = [f"{count(restored)} of the deleted objects restored"] if restored else []
    if purged:
        texts.append(f"{count_of(purged, 'copy')} purged from quarantine")
    return f"{'; '.join(texts)}." if texts else ""


def _checked(page: Page, document: documents.SweepDocument) -> None:
    """Print what ``--check`` found after the sweep."""
    if "checks" not in document:
        return
    after = document["checks"]["after"]
    if after["complete"]:
        text = (
            f"all objects that commits need were stored before and after the sweep: {volume(after['named'])}"
        )
        page.labelled("check:", "bold green", text)
    else:
        problems = (
            f"{count_of(after['missing']['objects'], 'object')} missing,"
            f" {count(after['resized']['objects'])} with the wrong size,"
            f" {count_of(after['damaged'], 'metadata file')} damaged,"
            f" {count(after['lost_copies'])} lost in quarantine"
        )
        page.labelled("INCOMPLETE:", "bold red", problems)
        page.line(f"lakeplan check --target {shlex.quote(document['repository'])}", indent=4)
    if after["tags_only"]:
        text = f"missing: {count_of(after['tags_only'], 'object')} that only tags reference"
        page.labelled("note:", "bold yellow", text)


def _came_back(page: Page, document: documents.SweepDocument) -> None:
    """Print how many deleted objects are needed again."""
    if document["came_back"] is None:
        page.labelled(
            "unknown:", "bold yellow", "it could not be determined whether any deleted object is needed again"
        )
    elif document["came_back"]:
        needed = count_of(document["came_back"], "deleted object is", "deleted objects are")
        back = f"{needed} needed again; {'its' if document['came_back'] == 1 else 'their'} data is"
        if document["settings"]["mode"] == "quarantine":
            page.labelled("MISSING:", "bold red", f"{back} in quarantine")
            page.line(f"lakeplan sweep restore {document['mark_id']}", indent=4)
        else:
            page.labelled("LOST:", "bold red", f"{back} gone")


def _settings_of_the_tree(page: Page, document: documents.SweepDocument) -> None:
    """Print the settings that the tree changed since the approval."""
    named = []
    for name, value in sorted(document["settings"].items()):
        if document["settings_from"].get(name) != "tree":
            continue
        text = duration(value) if isinstance(value, int) and name.endswith("_seconds") else f"{value}"
        named.append(f"sweep.{name.removesuffix('_seconds')} is {text}")
    if named:
        page.labelled(
            "note:", "bold yellow", f"these settings have changed since the approval: {', '.join(named)}"
        )


def render_after_apply(document: documents.AfterApplyDocument, console: Console) -> None:
    """Print marks, repositories that are waiting and why, then what was swept."""
    render_marks(document["marked"], console)
    page = Page(console)
    for key, why in document["waiting"].items():
        page.line(Cell(key, "bold"), f": {why}")
    for key, failure in document["failed"].items():
        hint = f" ({failure['hint']})" if failure["hint"] else ""
        page.line(Cell(key, "bold"), Cell(" not swept: ", "bold red"), f"{failure['message']}{hint}")
    for swept in document["swept"]:
        render_sweep(swept, console)


def render_restore(document: documents.RestoreDocument, console: Console) -> None:
    page = Page(console)
    page.heading(document["repository"], f"restored from mark {document['mark_id']}")
    for address, why in document["failures"].items():
        page.labelled("FAILED", "bold red", f"{address}: {why}")
    there = f"{count(document['already_there'])} already existed"
    failed = f"; {count(document['failed'])} failed" if document["failed"] else ""
    text = f"{count_of(document['restored'], 'object')}; {there}{failed}."
    page.labelled("Restored:", "bold", text, indent=0)
    if document["note"]:
        page.labelled("note:", "bold yellow", document["note"])
    if document["collectable_again"]:
        text = (
            f"no kept commit contains {count(document['collectable_again'])} of them, so the next collection"
            " may delete them again after sweep.min_age. Lengthen the retention, or create a branch at a"
            " commit that contains them."
        )
        page.labelled("note:", "bold yellow", text)


_PURGED: tuple[Literal["deleted", "kept", "failed"], ...] = ("deleted", "kept", "failed")


def render_purge(document: documents.PurgeDocument, console: Console) -> None:
    page = Page(console)
    quarantines = document["quarantines"]
    if not quarantines and not document["refused"]:
        older = f"both {document['older_than']} and " if document["older_than"] else ""
        page.line(f"No quarantine is older than {older}sweep.quarantine_age. Nothing was deleted.")
        return
    if quarantines:
        outcomes = [name for name in _PURGED if name == "deleted" or any(q[name] for q in quarantines)]
        rows = [
            (q["repository"], q["mark_id"], moment(q["newest"]), *(count(q[name]) for name in outcomes))
            for q in quarantines
        ]
        headers = ("repository", "mark", "last copy", *outcomes)
        page.table(headers, rows, figures=range(3, len(headers)), solid=(1, 2), indent=0)
    for one in quarantines:
        for why, number in one["kept_reasons"].items():
            page.line(f"{one['mark_id']}: kept {count_of(number, 'copy')}: {why}", indent=2)
        for key, why in one["failures"].items():
            page.labelled("FAILED", "bold red", f"{key}: {why}")
        if one["problem"]:
            page.labelled("stopped:", "bold red", one["problem"])
        if one["needed"]:
            page.line(f"lakeplan sweep restore {one['mark_id']}", indent=2)
    for refused in document["refused"]:
        why = f"{refused['repository']} mark {refused['mark_id']}: {refused['message']}"
        page.labelled("NOT PURGED", "bold red", why)
        if refused["hint"]:
            page.labelled("hint:", "dim", refused["hint"], indent=4)


SHOWN = 100
COLUMNS = (
    *("path", "more_paths", "address", "class", "size_bytes", "modified"),
    *("last_commit_id", "last_commit_created", "kept_by"),
)
NARROW = "Use --prefix or --class to narrow the list."


def render_objects(document: documents.ObjectsDocument, console: Console) -> None:
    """Print the first objects of a mark, by path."""
    page = Page(console)
    objects = document["objects"]
    page.heading(document["repository"], f"objects of mark {document['mark_id']}")
    if not objects:
        page.line("No object of the mark matches the selection.", indent=2)
        return
    rows = [
        (
            (row["paths"] or ["(in no commit)"])[0],
            row["address"],
            size(row["size_bytes"]),
            moment(row["modified"]) if row["modified"] else "",
            (row["last_commit_id"] or "")[:12],
            class_words(row["class"]),
            ", ".join(map(keeper_words, row["kept_by"] or ())),
        )
        for row in objects[:SHOWN]
    ]
    headers = ("path", "address", "size", "written", "last commit", "class", "kept by")
    page.table(headers, rows, figures=(2,))
    page.rest(
        len(objects) + document["more"], SHOWN, "(use --format csv or parquet to list all)", noun="object"
    )
    if document["more"]:
        page.labelled("note:", "bold yellow", f"{count_of(document['more'], 'object')} not listed. {NARROW}")


def objects_csv(document: documents.ObjectsDocument) -> str:
    """The objects of a mark as CSV."""
    rows = (
        {
            **row,
            "path": (row["paths"] or [""])[0],
            "more_paths": max(len(row["paths"]) - 1, 0),
            "kept_by": "; ".join(map(keeper_words, row["kept_by"] or ())),
        }
        for row in document["objects"]
    )
    return csv_text(COLUMNS, ([row[column] for column in COLUMNS] for row in rows))


def objects_parquet(document: documents.ObjectsDocument) -> bytes:
    """The objects of a mark as Parquet, with the columns of the JSON document."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts, at = pa.list_(pa.string()), pa.timestamp("us", tz="UTC")
    schema = pa.schema(
        [
            *(("paths", texts), ("address", pa.string()), ("class", pa.string())),
            *(("size_bytes", pa.int64()), ("modified", at), ("last_commit_id", pa.string())),
            *(("last_commit_created", at), ("kept_by", texts)),
        ]
    )
    rows = [
        {
            **row,
            "modified": row["modified"] and moment_in(row["modified"]),
            "last_commit_created": row["last_commit_created"] and moment_in(row["last_commit_created"]),
            "kept_by": None if row["kept_by"] is None else [keeper_words(by) for by in row["kept_by"]],
        }
        for row in document["objects"]
    ]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), out)
    return out.getvalue()
