"""The objects of a mark, one by one: for a terminal, a spreadsheet, or a query engine."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console

from lakeplan.output.page import Page
from lakeplan.output.sweep_contents import keeper_words
from lakeplan.output.text import counted, csv_cell, moment, size

if TYPE_CHECKING:
    from lakeplan.sweep.documents import ObjectRow, ObjectsDocument

SHOWN = 100
COLUMNS = (
    *("path", "more_paths", "address", "class", "size_bytes", "modified"),
    *("last_commit_id", "last_commit_created", "kept_by"),
)
NARROW = "Add --prefix or --class to list fewer."


def render_objects(document: ObjectsDocument, console: Console) -> None:
    """The first of them, by path."""
    page = Page(console)
    objects = document["objects"]
    page.heading(document["repository"], f"objects of mark {document['mark_id']}")
    if not objects:
        page.line("No object of the mark is of these classes, with such a path.", indent=2)
        return
    rows = [
        (
            (row["paths"] or ["(in no commit)"])[0],
            row["address"],
            size(row["size_bytes"]),
            moment(row["modified"]) if row["modified"] else "",
            (row["last_commit_id"] or "")[:12],
            row["class"].replace("_", " "),
            ", ".join(map(keeper_words, row["kept_by"] or ())),
        )
        for row in objects[:SHOWN]
    ]
    headers = ("path", "address", "size", "written", "last commit", "class", "kept by")
    page.table(headers, rows, figures=(2,))
    page.rest(len(objects) + document["more"], SHOWN, "; --format csv or parquet lists all", noun="object")
    if document["more"]:
        page.labelled("note:", "bold yellow", f"{counted(document['more'], 'object')} not listed. {NARROW}")


def objects_csv(document: ObjectsDocument) -> str:
    """A line for each object."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in document["objects"]:
        writer.writerow([csv_cell(value) for value in _cells(row)])
    return out.getvalue()


def _cells(row: ObjectRow) -> list[str | int]:
    return [
        (row["paths"] or [""])[0],
        max(len(row["paths"]) - 1, 0),
        row["address"],
        row["class"],
        row["size_bytes"],
        row["modified"] or "",
        row["last_commit_id"] or "",
        row["last_commit_created"] or "",
        "; ".join(map(keeper_words, row["kept_by"] or ())),
    ]


def objects_parquet(document: ObjectsDocument) -> bytes:
    """The columns of the JSON document; moments are timestamps, what keeps an object is texts."""
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
            "modified": _time(row["modified"]),
            "last_commit_created": _time(row["last_commit_created"]),
            "kept_by": None if row["kept_by"] is None else [keeper_words(by) for by in row["kept_by"]],
        }
        for row in document["objects"]
    ]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), out)
    return out.getvalue()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text.replace("Z", "+00:00"))
