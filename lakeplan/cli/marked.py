"""A mark as the commands show it: its document, and what it contains."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeplan.cli.outputs import with_costs
from lakeplan.cli.wiring import Session
from lakeplan.sweep.contents import contents_digest, read_contents
from lakeplan.sweep.documents import ContentsRow, MarksDocument
from lakeplan.sweep.ports import Site
from lakeplan.sweep.records import StoredMark
from lakeplan.sweep.service import MarkReport, marks_document

DEPTH = 1
Depth = Annotated[
    int,
    typer.Option(
        "--depth", help="Number of folders in the prefixes of the summary.", min=0, max=20, metavar="N"
    ),
]


def contents_of(session: Session, site: Site, stored: StoredMark, depth: int = DEPTH) -> ContentsRow:
    """What a mark contains, with the digest that an approval records. Raises as ``read_contents``."""
    parts = len(stored.mark.marked.going) + len(stored.mark.marked.kept)
    with session.progress.task("reading the mark", parts) as step:
        contents = read_contents(site.store, stored.mark, depth=depth, step=step)
    return {**contents, "digest": contents_digest(stored.digest, contents)}


def shown_mark(session: Session, site: Site, stored: StoredMark, contents: ContentsRow) -> MarksDocument:
    """The document of one mark with its contents."""
    document = marks_document(MarkReport({site.key: stored.mark}))
    document["marks"][0]["contents"] = contents
    return with_costs(document, session.tree, "marks")
