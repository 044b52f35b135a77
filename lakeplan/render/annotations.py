"""What a plan or a check has to say, each with its place in the tree: what ``github`` and ``junit`` show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lakeplan.render.plan import summary_text
from lakeplan.render.plan_changes import key_of
from lakeplan.render.plan_loosening import loosened

Json = Mapping[str, Any]

_PLACE = re.compile(r"(?P<file>[^\n:]+):(?P<line>[0-9]{1,9})(?::(?P<column>[0-9]{1,9}))?")
_LEADING = re.compile(r"[^\n:]+\.(?:ya?ml|json):[0-9]{1,9}(?::[0-9]{1,9})?(?=: )")


@dataclass(frozen=True)
class Place:
    """``file`` relative to the tree; 1-based line and column, None where they are not known."""

    file: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True)
class Annotation:
    level: Literal["error", "warning", "notice"]
    title: str
    message: str
    place: Place | None = None


def place_of(text: str) -> Place | None:
    """The place that ``file:line[:column]`` names; None for any other text."""
    found = _PLACE.fullmatch(text)
    if not found:
        return None
    column = found["column"]
    return Place(found["file"], int(found["line"]), int(column) if column else None)


def leading_place(text: str) -> Place | None:
    """The place a warning begins with: ``lakeplan.yaml:3:5: ...``."""
    found = _LEADING.match(text)
    return place_of(found[0]) if found else None


def plan_annotations(document: Json) -> Iterator[Annotation]:
    """Errors first: repositories that failed, gates that refuse; then loosenings, warnings, the summary."""
    yield from _failures(document)
    yield from _gates(document, "refused", "error", "BLOCKED by")
    for item in loosened(document):
        about = f" of {', '.join(item.scopes)}" if item.scopes else ""
        text = f"{item.path}{about}: {item.before} at the base, {item.after} here"
        yield Annotation("warning", "loosened", text, place_of(item.where))
    yield from _gates(document, "warned", "warning", "gate")
    for text in document["warnings"]:
        yield Annotation("warning", "plan", text, leading_place(text))
    for repository in document["repositories"]:
        for text in repository["warnings"]:
            place = leading_place(text) or place_of(repository["source"])
            yield Annotation("warning", key_of(repository), text, place)
    yield Annotation("notice", "plan", summary_text(document))


def _failures(document: Json) -> Iterator[Annotation]:
    for repository in document["repositories"]:
        failure = repository["failure"]
        if failure is not None:
            hint = f"\n{failure['hint']}" if failure["hint"] else ""
            title = f"{key_of(repository)} failed"
            yield Annotation("error", title, f"{failure['message']}{hint}", place_of(repository["source"]))


def _gates(
    document: Json, outcome: str, level: Literal["error", "warning"], word: str
) -> Iterator[Annotation]:
    every: list[tuple[Json, Place | None]] = [(g, None) for g in document["gates"]]
    every += [(g, place_of(r["source"])) for r in document["repositories"] for g in r["gates"]]
    for gate, place in every:
        if gate["outcome"] == outcome:
            scope = "the whole plan" if gate["scope"] == "plan" else gate["scope"]
            opens = f"\noverride with {gate['opens_with']}" if gate["opens_with"] and level == "error" else ""
            yield Annotation(level, f"{word} {gate['gate']}", f"{scope}: {gate['message']}{opens}", place)


def problem_annotations(problems: list[Json]) -> Iterator[Annotation]:
    """The problems of a tree, as ``validate --format json`` lists them."""
    for item in problems:
        place = Place(item["file"], item["line"], item["column"])
        yield Annotation("error", item["path"], item["message"], place)
