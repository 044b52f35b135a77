"""Renders checks: missing and damaged data in storage, for terminals, as Markdown and as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from lakeplan.output.tables import Name, Table, Value, csv_text, markdown_failures
from lakeplan.output.text import Cell, Page, code, count, moment, names, prose, size, volume
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.sweep import documents

MOST_BRANCHES, MOST_PATHS = 5, 10
"""The maximum numbers of branches that contain a commit, and of paths of an object, that a finding lists
(``schemas/check.v1.json``)."""
SHOWN = 50
"""The maximum number of findings per repository. JSON and CSV list more."""
_HEADERS = ("branch", "commit", "path", "problem", "referenced by", "last collected by", "copy in")
_FIGURES = {"checked": "named", "missing": "missing", "wrong size": "resized"}


def render_check(document: documents.CheckDocument, console: Console) -> None:
    """Print what is missing in every repository, then how many repositories are complete."""
    page = Page(console)
    for row in document["repositories"]:
        _repository(page, row)
    page.failed(document["failed"], "not checked")
    page.total("Check:", _total(document))


def _total(document: documents.CheckDocument) -> str:
    rows = document["repositories"]
    complete = sum(row["complete"] for row in rows)
    failed = f", {count(len(document['failed']))} not checked" if document["failed"] else ""
    return f"{count_of(complete, 'repository')} complete, {count(len(rows) - complete)} incomplete{failed}."


def _repository(page: Page, row: documents.CheckedRow) -> None:
    page.heading(row["repository"], "complete" if row["complete"] else "incomplete")
    page.facts(dict(_facts(row)), lead_width=10)
    table = findings_table(row)
    if table.fits(page, SHOWN):
        table.print_on(page, SHOWN)
    else:
        for finding, cells in zip(row["findings"][:SHOWN], table.rows, strict=False):
            _block(page, finding, [cell.text for cell in cells])
    page.rest(len(row["findings"]), SHOWN, "in the JSON document")
    for damaged in row["damaged"]:
        page.hanging(Cell("x", "bold red"), *_damaged(damaged), indent=2)
    for one in row["quarantine"]:
        text, style = _quarantine(one)
        page.hanging(Cell("quarantine", style), text, indent=2)
    page.warnings(_warnings(row), indent=2)


def _facts(row: documents.CheckedRow) -> Iterator[tuple[str, str]]:
    commits = row["commits"]
    kept = f"{count(commits['rules'])} kept by rules" if row["rules"] else "all kept: no rules are stored"
    yield (
        "commits",
        f"{count_of(commits['total'], 'commit')}, including {count_of(commits['heads'], 'HEAD')}, {kept},"
        f" {count(commits['tags'])} with tags, {count(commits['holds'])} with holds",
    )
    yield "metadata", f"{count_of(row['metaranges'], 'metarange')}, {count_of(row['ranges'], 'range')}"
    for name, key in _FIGURES.items():
        amount = row[key]  # type: ignore[literal-required]
        yield name, volume(amount) if amount["objects"] or key == "named" else ""
    yield "read", _read(row)


def _read(row: documents.CheckedRow) -> str:
    read = row["read"]
    if read is None:
        return ""
    others = {
        "differ": read["differs"],
        "have no comparable checksum": read["incomparable"],
        "could not be read": read["unreadable"],
    }
    more = "".join(f", {count(number)} {words}" for words, number in others.items() if number)
    return f"{volume(read['read'])}: {count(read['matched'])} match their checksums{more}"


def findings_table(row: documents.CheckedRow) -> Table:
    """The missing or damaged objects, their commits, and the runs that may have deleted them."""
    rows: list[list[Value]] = [
        [
            Name(_branches(one, 2) or names([f"tag {tag}" for tag in one["tags"]], 2)),
            Name(one["commit_id"][:12]),
            Name(_some(one["paths"], 2, MOST_PATHS) or one["address"]),
            Cell(_problem(one), "red"),
            Cell(", ".join("HEAD" if name == "head" else name.replace("-", " ") for name in one["named_by"])),
            Name(_run(one["collector_run"])),
            Name(one["quarantine"] and f"quarantine of {one['quarantine']}"),
        ]
        for one in row["findings"]
    ]
    return Table(_HEADERS, rows, names=len(_HEADERS))


def _block(page: Page, one: documents.FindingRow, cells: Sequence[str]) -> None:
    """Print a finding where no table fits: its path on separate lines, then what refers to it."""
    _, commit, path, problem, named_by, run, copy = cells
    tags, branches = len(one["tags"]), len(one["branches"])
    places = [f"tag{'s' * (tags > 1)} {names(one['tags'], 3)}"] if tags else []
    places += [f"branch{'es' * (branches > 1)} {_branches(one, 3)}"] if branches else []
    where = page.join("in commit ", commit, "".join(f", {place}" for place in places))
    lines = [page.join(path), page.join(problem), page.join("referenced by ", named_by), where]
    lines += [page.join("last collected by ", run)] if run else []
    lines += [page.join("copy in ", copy)] if copy else []
    page.hanging(Cell("x", "bold red"), *lines, indent=2)


def _branches(one: documents.FindingRow | documents.DamagedRow, shown: int) -> str:
    """Return the first branches. For a HEAD, the list is complete; for another commit, it may not be."""
    if "head" in one["named_by"]:
        return names(one["branches"], shown)
    return _some(one["branches"], shown, MOST_BRANCHES)


def _some(listed: Sequence[str], shown: int, most: int) -> str:
    """Return the first names of a list that is cut after ``most`` names."""
    if len(listed) < most:
        return names(listed, shown)
    return f"{', '.join(listed[:shown])} and at least {count(len(listed) - shown)} more"


def _problem(one: documents.FindingRow) -> str:
    if one["problem"] == "checksum":
        return "checksum differs"
    if one["stored_bytes"] is None:
        return f"missing, {size(one['size_bytes'])}"
    return f"{count_of(one['stored_bytes'], 'byte')}, not {count(one['size_bytes'])}"


def _run(run: documents.RunFinding | None) -> str:
    if run is None:
        return ""
    began = f", {moment(run['started'])}" if run["started"] else ""
    return f"{run['by']} {run['run_id']}{began}"


def _damaged(one: documents.DamagedRow) -> list[str]:
    where = f"{one['kind']} {one['id']}: {one['message']}"
    span = " to ".join(one["paths"])
    entries = f"{count_of(one['entries'], 'object')} from {span}; " if span else ""
    branches = f"branch {_branches(one, 2)}, " if one["branches"] else ""
    return [where, f"{entries}{branches}commit {one['commit_id'][:12]}: none of its objects were checked"]


def _quarantine(one: documents.QuarantineRow) -> tuple[str, str]:
    if not one["readable"]:
        there = count_of(one["present"]["objects"], "copy", "copies")
        return f"{one['mark_id']}: {there}, and {one['note']}", "bold red"
    parts = [f"{one['mark_id']}: {count_of(one['recorded']['objects'], 'copy', 'copies')} recorded"]
    parts += [
        f"{count(objects)} {'with the wrong size' if key == 'resized' else key}"
        for key in ("present", "restored", "purged", "lost", "resized")
        if (objects := one[key]["objects"])
    ]
    text = ", ".join(parts) + (f" ({one['note']})" if one["note"] else "")
    if one["addresses"]:
        text += ": " + names(one["addresses"], 3)
    return text, "bold red" if one["lost"]["objects"] or one["resized"]["objects"] else "dim"


def _warnings(row: documents.CheckedRow) -> Iterator[str]:
    yield from row["holds"]
    if row["unconfirmed"]:
        yield (
            f"{count_of(row['unconfirmed'], 'object is', 'objects are')} reported as missing or as having the"
            " wrong size based on the listing alone, because there are too many to check individually"
        )
    if row["outside"]["objects"]:
        yield f"not checked: {volume(row['outside'])} at addresses outside the namespace"
    if row["unusual"]:
        yield f"not checked: {count_of(row['unusual'], 'object')} whose keys contain empty segments, . or .."
    if any(one["named_by"] == ["tag"] for one in row["findings"]):
        yield (
            "tags do not protect data on a server: objects that only a tag references may have expired under"
            " the rules"
        )


def check_markdown(document: documents.CheckDocument) -> str:
    """Return a check as Markdown."""
    parts = ["### lakeplan check\n", prose(_total(document)) + "\n"]
    for row in document["repositories"]:
        state = "complete" if row["complete"] else "incomplete"
        parts.append(f"\n#### {code(row['repository'])}: {state}\n")
        parts += [f"- {name}: {prose(text)}\n" for name, text in _facts(row) if text]
        parts += [f"- {prose(': '.join(_damaged(one)))}\n" for one in row["damaged"]]
        parts += [f"- quarantine {prose(_quarantine(one)[0])}\n" for one in row["quarantine"]]
        parts += [f"- {prose(text)}\n" for text in _warnings(row)]
        if table := findings_table(row).markdown(SHOWN):
            more = len(row["findings"]) - SHOWN
            parts += ["\n", table]
            parts += [f"\nand {count(more)} more in the JSON document\n"] if more > 0 else []
    return "".join(parts) + markdown_failures(document["failed"], "not checked")


CSV_COLUMNS = (
    *("repository", "problem", "branch", "tags", "commit_id", "path", "address", "size_bytes"),
    *("stored_bytes", "named_by", "collector_run", "quarantine"),
)


def check_csv(document: documents.CheckDocument) -> str:
    """Return a check as CSV, including repositories that were not checked."""
    rows = [
        {**line, "repository": row["repository"]} for row in document["repositories"] for line in _lines(row)
    ]
    rows += [
        {"repository": key, "problem": "not checked", "path": failure["message"]}
        for key, failure in document["failed"].items()
    ]
    return csv_text(CSV_COLUMNS, ([row.get(column) for column in CSV_COLUMNS] for row in rows))


def _lines(row: documents.CheckedRow) -> Iterator[dict[str, object]]:
    """Yield the findings of a repository, each as values by column."""
    for one in row["findings"]:
        yield {
            **one,
            "branch": " ".join(one["branches"]),
            "tags": " ".join(one["tags"]),
            "path": (one["paths"] or [""])[0],
            "named_by": " ".join(one["named_by"]),
            "collector_run": one["collector_run"] and one["collector_run"]["run_id"],
        }
    for bad in row["damaged"]:
        yield {
            "problem": f"damaged {bad['kind']}",
            "branch": " ".join(bad["branches"]),
            "commit_id": bad["commit_id"],
            "path": " … ".join(bad["paths"]),
            "address": bad["id"],
            "named_by": " ".join(bad["named_by"]),
        }
    for copies in row["quarantine"]:
        for address in copies["addresses"]:
            yield {"problem": "quarantine", "address": address, "quarantine": copies["mark_id"]}
    for hold in row["holds"]:
        yield {"problem": "hold", "path": hold}
