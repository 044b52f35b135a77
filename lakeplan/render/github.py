"""Workflow commands of GitHub Actions: annotations on the lines of the YAML that is under review.

A command is one line; what others wrote is escaped so that it can neither end its command nor begin another
(``%``, line ends, and in properties ``:`` and ``,``). GitHub shows ten errors and ten warnings of a step; all
are in its log, the gravest first.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakeplan.render.annotations import Annotation, Place
from lakeplan.render.clean import safe


def render_github(annotations: Iterable[Annotation], *, tree: str = "") -> str:
    """One command a line. ``tree`` is the tree's folder in the git repository, ``""`` at its top."""
    return "".join(f"{_command(a, tree)}\n" for a in annotations)


def _command(annotation: Annotation, tree: str) -> str:
    properties = [*_place(annotation.place, tree), ("title", f"lakeplan: {annotation.title}")]
    shown = ",".join(f"{name}={_property(value)}" for name, value in properties)
    return f"::{annotation.level} {shown}::{_data(annotation.message)}"


def _place(place: Place | None, tree: str) -> list[tuple[str, str]]:
    if place is None:
        return []
    found = [("file", f"{tree}/{place.file}" if tree else place.file)]
    found += [("line", str(place.line))] if place.line is not None else []
    return found + ([("col", str(place.column))] if place.column is not None else [])


def _data(text: str) -> str:
    """Line ends stay (the annotation shows them); other control characters are shown as escapes."""
    lines = [safe(line).replace("%", "%25") for line in text.splitlines()]
    return "%0A".join(lines)


def _property(text: str) -> str:
    return safe(text).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
