"""A mark as the commands show it: its document, and what it contains."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lakeplan.cli.options import Options, one_of, option
from lakeplan.cli.outputs import STANDARD_OUTPUT, Outputs, with_costs
from lakeplan.cli.wiring import Session
from lakeplan.errors import UsageError
from lakeplan.sweep.contents import contents_digest, forecast_of, list_objects, read_contents, read_prefixes
from lakeplan.sweep.documents import ClassName, ContentsRow, MarkPageDocument, MarksDocument, ObjectsDocument
from lakeplan.sweep.ports import Site
from lakeplan.sweep.records import StoredMark
from lakeplan.sweep.service import MarkReport, marks_document
from lakeplan.values.local import write_file
from lakeplan.values.sweep import MarkClass

DEPTH = 1
Depth = Annotated[int, option("Number of folders in the prefixes of the summary.", "N", min=0, max=20)]


def contents_of(session: Session, site: Site, stored: StoredMark, depth: int = DEPTH) -> ContentsRow:
    """What a mark contains, with the plan's forecast, and the digest that an approval records. Raises as
    ``read_contents``."""
    parts = len(stored.mark.marked.going) + len(stored.mark.marked.kept)
    with session.progress.task("reading the mark", parts) as step:
        contents = read_contents(site.store, stored.mark, depth=depth, step=step)
    contents["forecast"] = forecast_of(session.state(), stored.mark)
    return {**contents, "digest": contents_digest(stored.digest, contents)}


def shown_mark(session: Session, site: Site, stored: StoredMark, contents: ContentsRow) -> MarksDocument:
    """The document of one mark with its contents."""
    document = marks_document(MarkReport({site.key: stored.mark}))
    document["marks"][0]["contents"] = contents
    return with_costs(document, session.tree, "marks")


@dataclass(frozen=True)
class Listed:
    """What ``--objects`` lists. ``classes`` empty: what would be deleted."""

    objects: bool
    prefix: str | None
    classes: tuple[ClassName, ...]


def _listed(
    objects: Annotated[bool, option("List the objects that would be deleted instead.")] = False,
    prefix: Annotated[str | None, option("Only objects whose path begins with this.", "PREFIX")] = None,
    class_: Annotated[
        list[str] | None,
        option("Only objects of this class, deleted or kept. Repeatable.", "CLASS", names=("--class",)),
    ] = None,
) -> Listed:
    names = [kind.value for kind in MarkClass]
    classes = tuple(one_of("class", name.replace("-", "_"), names) for name in class_ or ())
    if not objects and (prefix is not None or classes):
        raise UsageError("--prefix and --class choose what --objects lists", hint="Add --objects.")
    return Listed(objects, prefix, classes)


Listing = Annotated[Listed, Options(_listed)]


def objects_of(session: Session, site: Site, stored: StoredMark, listed: Listed) -> ObjectsDocument:
    """Raises as ``list_objects``."""
    parts = len(stored.mark.marked.going) + len(stored.mark.marked.kept)
    with session.progress.task("reading the mark", parts) as step:
        return list_objects(site.store, stored.mark, classes=listed.classes, prefix=listed.prefix, step=step)


def write_page(
    path: Path, session: Session, site: Site, stored: StoredMark, document: MarksDocument, outputs: Outputs
) -> None:
    """The page of the one mark of a document. Raises as ``read_prefixes``, and for what cannot be written."""
    from lakeplan.output.mark_page import render_mark_page

    tree = read_prefixes(site.store, stored.mark)
    page: MarkPageDocument = {"mark": document["marks"][0], "tree": tree}
    text = render_mark_page(outputs.shown(page))
    if path == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        write_file(path, text)
