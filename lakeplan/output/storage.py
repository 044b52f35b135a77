"""What repositories store, from the document of ``lakeplan storage``: for people and for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from lakeplan.output.page import Cell, Page
from lakeplan.output.text import (
    UNKNOWN,
    Money,
    amounts,
    count,
    count_of,
    csv_cell,
    days,
    moment,
    size,
    volume,
)

if TYPE_CHECKING:
    from lakeplan.fleet.documents import (
        ChangeRow,
        HolderRow,
        OwnerRow,
        PlaceRow,
        StorageDocument,
        StoredAgeRow,
        StoredClassRow,
        StoredRow,
    )
    from lakeplan.values.simulation import AmountRow

OwnedFigure = Literal["stored", "held", "reclaimable", "unreferenced", "noncurrent"]
SHOWN = 10
"""Branches, and tags, of a repository; JSON and CSV have all."""
WORDS = {
    "stored": "stored",
    "held": "held",
    "exclusive": "  exclusive: by one branch or tag",
    "shared": "  shared",
    "tags_only": "  by tags only",
    "uncommitted": "uncommitted",
    "young": "too young to be deleted",
    "reclaimable": "reclaimable now",
    "unreferenced": "unreferenced",
    "noncurrent": "older versions",
}


def parts_of(row: StoredRow) -> Iterator[tuple[str, AmountRow | None]]:
    """Every figure by its name, in the order of the table; None for what is not known."""
    yield "stored", row["stored"]
    yield "held", row["held"]
    yield "exclusive", row["exclusive"]
    yield "shared", row["shared"]
    yield "tags_only", row["tags_only"]
    yield "uncommitted", row["uncommitted"]
    yield "young", row["young"]
    yield "reclaimable", row["reclaimable"]
    for one in row["periods"]:
        yield f"reclaimable_{one['days']}_days", one["reclaimable"]
    yield "unreferenced", row["unreferenced"]
    yield "noncurrent", row["noncurrent"]


def render_storage(document: StorageDocument, console: Console) -> None:
    """Every repository with its figures, its branches and its tags."""
    page = Page(console)
    for row in document["repositories"]:
        _repository(page, row)
    for key, failure in document["failed"].items():
        page.heading(key, "not read")
        page.failure(Cell(failure["message"]), hint=failure["hint"], indent=2)
    _owners(page, document.get("owners", []))
    page.blank()
    page.labelled("Storage:", "bold", _total(document), indent=0)


OWNED: tuple[OwnedFigure, ...] = ("stored", "held", "reclaimable", "unreferenced", "noncurrent")
"""Figures of an owner; the table leaves out what is not in a commit."""


def _owners(page: Page, owners: list[OwnerRow]) -> None:
    if not owners:
        return
    page.heading("Owners", "what a repository shares with another is counted in each")
    names: tuple[OwnedFigure, ...] = ("stored", "held", "reclaimable", "noncurrent")
    lines: list[list[str | Cell]] = [
        [owner_words(row), count(row["repositories"]), *(_size(row[name]) for name in names)]
        for row in owners
    ]
    headers = ("owner", "repositories", "stored", "held", "reclaimable\nnow", "older\nversions")
    page.table(headers, lines, figures=tuple(range(1, len(headers))))


def _size(amount: AmountRow | None) -> str:
    return UNKNOWN if amount is None else size(amount["size_bytes"])


def _total(document: StorageDocument) -> str:
    rows = document["repositories"]
    failed = len(document["failed"]) + len(document["unfinished"])
    stored = [row["stored"]["size_bytes"] for row in rows if row["stored"] is not None]
    listed = f", {size(sum(stored))} stored" if stored else ""
    unlisted = f" in {count(len(stored))} of them" if stored and len(stored) < len(rows) else ""
    more = f", {count(failed)} not read" if failed else ""
    return f"{count_of(len(rows), 'repository')}{listed}{unlisted}{more}."


def _repository(page: Page, row: StoredRow) -> None:
    page.heading(row["repository"])
    cost = Money.of(row)
    rows: list[list[str | Cell]] = []
    for name, amount in parts_of(row):
        if name == "tags_only" and amount is not None and not amount["objects"]:
            continue
        label = part_label(name)
        unknown = [UNKNOWN] * (3 if cost.shown else 2)
        rows.append([label, *(unknown if amount is None else amounts(amount, cost))])
    page.table(("", "objects", "size", *cost.header()), rows, figures=(1, 2, 3), solid=(0,))
    for what, holders in (("branch", row["branches"]), ("tag", row["tags"])):
        _holders(page, what, holders)
    _places(page, row)
    ages: list[list[str | Cell]] = [[age_words(one), *amounts(one)] for one in row.get("ages", ())]
    if ages:
        page.table(("written", "objects", "size"), ages, figures=(1, 2))
    classes: list[list[str | Cell]] = [[class_words(one), *amounts(one)] for one in row.get("classes") or ()]
    if classes:
        page.table(("storage class", "objects", "size"), classes, figures=(1, 2))
    page.facts(dict(_facts(row)), lead_width=12)
    page.warnings(notes_of(row), indent=2)


def part_label(name: str) -> str:
    """What a figure of ``parts_of`` is called; those that are part of another are indented."""
    return WORDS.get(name) or f"  in {days(int(name.removeprefix('reclaimable_').partition('_')[0]))}"


def age_words(row: StoredAgeRow) -> str:
    """``7 to 30 days ago``."""
    if row["to_days"] is None:
        return f"{row['from_days']} days ago or more"
    return f"{row['from_days']} to {row['to_days']} days ago"


def class_words(row: StoredClassRow) -> str:
    return row["storage_class"] or "not named"


def owner_words(row: OwnerRow) -> str:
    return row["owner"] or "no owner"


def place_sum(place: PlaceRow) -> AmountRow:
    """All objects below a prefix, as far as they are known."""
    parts = (place["held"], place["reclaimable"], place["young"], place["uncommitted"], place["unreferenced"])
    known = [part for part in parts if part is not None]
    return {
        "objects": sum(part["objects"] for part in known),
        "size_bytes": sum(part["size_bytes"] for part in known),
    }


def _places(page: Page, row: StoredRow) -> None:
    places = [place for place in row.get("prefixes", ()) if place["prefix"]]
    if not places:
        return
    headers = (
        "prefix",
        "objects",
        "size",
        "held\nobjects",
        "held\nsize",
        "reclaimable\nobjects",
        "reclaimable\nsize",
    )
    largest = sorted(places, key=lambda place: (-place_sum(place)["size_bytes"], place["prefix"]))[:SHOWN]
    rows = [
        [place["prefix"], *amounts(place_sum(place)), *amounts(place["held"]), *amounts(place["reclaimable"])]
        for place in largest
    ]
    page.table(headers, rows, figures=tuple(range(1, 7)))
    page.rest(len(places) + row.get("prefixes_left_out", 0), SHOWN, "in the JSON document")


def _holders(page: Page, what: str, holders: list[HolderRow]) -> None:
    if not holders:
        return
    headers = (what, "objects", "size", "exclusive\nobjects", "exclusive\nsize")
    rows = [[one["name"], *amounts(one["held"]), *amounts(one["exclusive"])] for one in holders[:SHOWN]]
    page.table(headers, rows, figures=(1, 2, 3, 4))
    page.rest(len(holders), SHOWN, "in the JSON document")


def _facts(row: StoredRow) -> Iterator[tuple[str, str]]:
    found = row["compared"]
    if found is not None:
        first, second = found["branches"]
        yield "both", f"{volume(found['both'])} in {first} and {second}"
        yield "only first", f"{volume(found['only_first'])} in {first} and not in {second}"
        yield "only second", f"{volume(found['only_second'])} in {second} and not in {first}"
    growth = row.get("growth")
    if growth is not None:
        yield "since", moment(growth["since"])
        yield "stored", _change(growth["stored"])
        yield "held", _change(growth["held"])


def _change(change: ChangeRow | None) -> str:
    if change is None:
        return "unknown: one of the two reports has no such figure"
    sign = "+" if change["size_bytes"] > 0 else ""
    return f"{change['objects']:+,} objects, {sign}{size(change['size_bytes'])}"


def notes_of(row: StoredRow) -> Iterator[str]:
    """What the figures leave out."""
    if not row["listed"]:
        yield (
            f"storage was not listed ({row['not_listed']}): figures come from metadata, count what is gone"
            " already, and are upper bounds"
        )
    elif row["uncommitted"] is None:
        yield (
            "no list of uncommitted objects of the last day: they are counted as unreferenced or"
            " reclaimable, so both are upper bounds"
        )
    if not row["dangling_seen"]:
        yield (
            "commits of deleted branches were not read: what only they name is counted as unreferenced,"
            " although rules may keep it; --dump-refs reads them"
            if row["listed"]
            else "commits of deleted branches were not read; --dump-refs reads them"
        )
    if row["listed"] and "classes" in row and row["classes"] is None:
        yield "this kind of storage has no storage classes"
    if row["tags_only"]["objects"]:
        yield "tags protect nothing on a server: its collector may delete what only a tag holds"


CSV_COLUMNS = ("repository", "kind", "name", "figure", "objects", "size_bytes")


def storage_csv(document: StorageDocument) -> str:
    """A line for each figure; empty cells for what is not known."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in document["repositories"]:
        for kind, name, figure, amount in _lines(row):
            writer.writerow(_csv_row((row["repository"], kind, name, figure), amount))
    for owner in document.get("owners", ()):
        for name in OWNED:
            writer.writerow(_csv_row(("", "owner", owner["owner"] or "", name), owner[name]))
    for key in (*document["failed"], *document["unfinished"]):
        writer.writerow([csv_cell(key), "not read", "", "", "", ""])
    return out.getvalue()


def _csv_row(names: Sequence[str], amount: AmountRow | None) -> list[str | int]:
    figures = ("", "") if amount is None else (amount["objects"], amount["size_bytes"])
    return [*map(csv_cell, names), *figures]


def _lines(row: StoredRow) -> Iterator[tuple[str, str, str, AmountRow | None]]:
    for name, amount in parts_of(row):
        yield "repository", "", name, amount
    for kind, holders in (("branch", row["branches"]), ("tag", row["tags"])):
        for one in holders:
            yield kind, one["name"], "held", one["held"]
            yield kind, one["name"], "exclusive", one["exclusive"]
    for place in row.get("prefixes", ()):
        for figure in ("held", "reclaimable", "young", "uncommitted", "unreferenced"):
            yield "prefix", place["prefix"], figure, place[figure]
    for age in row.get("ages", ()):
        yield "age", age_words(age), "stored", {"objects": age["objects"], "size_bytes": age["size_bytes"]}
    for one_class in row.get("classes") or ():
        of_class: AmountRow = {"objects": one_class["objects"], "size_bytes": one_class["size_bytes"]}
        yield "storage class", one_class["storage_class"], "stored", of_class
    found = row["compared"]
    if found is not None:
        first, second = found["branches"]
        yield "compared", first, "only", found["only_first"]
        yield "compared", second, "only", found["only_second"]
        yield "compared", f"{first} {second}", "both", found["both"]
