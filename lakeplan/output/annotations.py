"""Findings of a plan or of ``validate``, at their places in the tree, as GitHub annotations and as JUnit."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lakeplan.output.plan import summary_text, what_if
from lakeplan.output.plan_changes import weakened_settings
from lakeplan.output.plan_impact import key_of, scope_of, warnings_of, writing
from lakeplan.output.text import Json, safe

if TYPE_CHECKING:
    from lakeplan.values.documents import ProblemRow, ProblemsDocument

_PLACE = re.compile(r"(?P<file>[^\n:]+):(?P<line>[0-9]{1,9})(?::(?P<column>[0-9]{1,9}))?")
_LEADING = re.compile(r"[^\n:]+\.(?:ya?ml|json):[0-9]{1,9}(?::[0-9]{1,9})?(?=: )")


@dataclass(frozen=True)
class Place:
    """A place in a file. ``file`` is relative to the tree. Lines and columns count from 1 (None: unknown)."""

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
    """Return the place that ``file:line[:column]`` names, or None for any other text."""
    match = _PLACE.fullmatch(text)
    if not match:
        return None
    column = match["column"]
    return Place(match["file"], int(match["line"]), int(column) if column else None)


def leading_place(text: str) -> Place | None:
    """The place at the start of a warning: ``lakeplan.yaml:3:5: ...``."""
    match = _LEADING.match(text)
    return place_of(match[0]) if match else None


def plan_annotations(document: Json, same_as_base: Collection[str] = ()) -> Iterator[Annotation]:
    """Errors come first: gates that refuse, and repositories that failed. Weakened settings, warnings and the
    summary follow. A host may show only the first ten of each level. An entry that names no
    repository is a failure. Warnings of repositories that a pull request does not change (``same_as_base``)
    are only in the plan, unless the plan writes to these repositories."""
    if assumed := what_if(document):
        yield Annotation("notice", "what if", f"What if {assumed}")
    yield from _gates(document, "refused", "error", "BLOCKED by")
    yield from _failures(document)
    for item in weakened_settings(document):
        about = f" of {', '.join(item.scopes)}" if item.scopes else ""
        text = f"{item.path}{about}: {item.before} in the base tree, {item.after} in this tree"
        yield Annotation("warning", "weakened", text, place_of(item.where))
    yield from _gates(document, "warned", "warning", "gate")
    for text in document["warnings"]:
        yield Annotation("warning", "plan", text, leading_place(text))
    written = {key_of(repository) for repository in writing(document)}
    for repository in document["repositories"]:
        if key_of(repository) in same_as_base and key_of(repository) not in written:
            continue
        for text in warnings_of(repository):
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
    gates: list[tuple[Json, Place | None]] = [(g, None) for g in document["gates"]]
    gates += [(g, place_of(r["source"])) for r in document["repositories"] for g in r["gates"]]
    for gate, place in gates:
        if gate["outcome"] == outcome:
            scope = scope_of(gate["scope"])
            opens = f"\noverride with {gate['opens_with']}" if gate["opens_with"] and level == "error" else ""
            yield Annotation(level, f"{word} {gate['gate']}", f"{scope}: {gate['message']}{opens}", place)


def problem_annotations(problems: Iterable[ProblemRow]) -> Iterator[Annotation]:
    """The problems of a tree, as ``validate --format json`` lists them."""
    for item in problems:
        place = Place(item["file"], item["line"], item["column"])
        yield Annotation("error", item["path"], item["message"], place)


def render_github(annotations: Iterable[Annotation], *, tree: str = "") -> str:
    """Workflow commands, one per line. ``tree`` is the tree's folder in the git repository, "" for the top
    folder."""
    return "".join(f"{_command(a, tree)}\n" for a in annotations)


def render_github_plan(document: Json, *, tree: str = "", same_as_base: Collection[str] = ()) -> str:
    return render_github(plan_annotations(document, same_as_base), tree=tree)


def render_github_problems(document: ProblemsDocument, *, tree: str = "") -> str:
    return render_github(problem_annotations(document["problems"]), tree=tree)


def _command(annotation: Annotation, tree: str) -> str:
    properties = [*_place(annotation.place, tree), ("title", f"lakeplan: {annotation.title}")]
    shown = ",".join(f"{name}={_property(value)}" for name, value in properties)
    return f"::{annotation.level} {shown}::{_data(annotation.message)}"


def _place(place: Place | None, tree: str) -> list[tuple[str, str]]:
    if place is None:
        return []
    parts = [("file", f"{tree}/{place.file}" if tree else place.file)]
    parts += [("line", str(place.line))] if place.line is not None else []
    return parts + ([("col", str(place.column))] if place.column is not None else [])


def _data(text: str) -> str:
    """Text of an annotation: line breaks are kept, and other control characters are escaped."""
    lines = [safe(line).replace("%", "%25") for line in text.splitlines()]
    return "%0A".join(lines)


def _property(text: str) -> str:
    return safe(text).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")


def render_junit_plan(document: Json, *, tree: str = "") -> str:
    """A plan as JUnit: a suite for each repository, and one for the whole plan."""
    root = ET.Element("testsuites", name="lakeplan plan")
    when = document["as_of"].replace("Z", "")[:19]
    suite = junit_suite(root, "the whole plan", when)
    if not document["gates"]:
        junit_case(suite, "the whole plan", "plan", None, tree)
    for gate in document["gates"]:
        _gate(suite, gate, None, tree)
    for item in document["loosenings"]:
        case = junit_case(suite, item["scope"], f"weakened {item['path']}", place_of(item["where"]), tree)
        _output(case, f"{item['before']} in the base tree, {item['after']} in this tree")
    for repository in document["repositories"]:
        _repository(junit_suite(root, key_of(repository), when), repository, tree)
    return junit_text(root)


def render_junit_problems(document: ProblemsDocument, *, files: Sequence[str] = (), tree: str = "") -> str:
    """Render the problems of a tree as JUnit: each problem is a failure, and files without problems pass."""
    problems = document["problems"]
    root = ET.Element("testsuites", name="lakeplan validate")
    suite = junit_suite(root, "the tree")
    bad = {p["file"] for p in problems}
    for file in files:
        if file not in bad:
            junit_case(suite, file, "is valid", Place(file), tree)
    for problem in problems:
        place = Place(problem["file"], problem["line"], problem["column"])
        case = junit_case(suite, problem["file"], f"{problem['path']} (line {problem['line']})", place, tree)
        _bad(case, "failure", "problem", problem["message"], f"at {_where(place)}")
    return junit_text(root)


def _repository(suite: ET.Element, repository: Json, tree: str) -> None:
    place, key, failure = place_of(repository["source"]), key_of(repository), repository["failure"]
    case = junit_case(suite, key, "plan", place, tree)
    if failure is not None:
        _bad(case, "error", "failed", failure["message"], failure["hint"])
    elif warnings := warnings_of(repository):
        _output(case, "\n".join(warnings))
    for gate in repository["gates"]:
        _gate(suite, gate, place, tree)


def _gate(suite: ET.Element, gate: Json, place: Place | None, tree: str) -> None:
    scope = scope_of(gate["scope"])
    case = junit_case(suite, scope, gate["gate"], place, tree)
    if gate["outcome"] == "refused":
        at = f"at {_where(place)}\n" if place else ""
        _bad(case, "failure", "refused", gate["message"], f"{at}override with {gate['opens_with']}")
    elif gate["outcome"] != "passed":
        _output(case, f"{gate['outcome']}: {gate['message']}\n{gate['opens_with']}".rstrip())


def junit_suite(root: ET.Element, name: str, timestamp: str = "") -> ET.Element:
    """A new suite of the document."""
    suite = ET.SubElement(root, "testsuite", name=safe(name))
    if timestamp:
        suite.set("timestamp", safe(timestamp))
    return suite


def junit_case(suite: ET.Element, scope: str, name: str, place: Place | None, tree: str) -> ET.Element:
    """A new case of a suite, at its place in the tree's folder."""
    case = ET.SubElement(suite, "testcase", classname=safe(scope), name=safe(name))
    if place is not None:
        case.set("file", safe(f"{tree}/{place.file}" if tree else place.file))
        if place.line is not None:
            case.set("line", str(place.line))
    return case


def _bad(case: ET.Element, tag: str, kind: str, message: str, more: str) -> None:
    ET.SubElement(case, tag, message=_lines(message), type=kind).text = _lines(f"{message}\n{more}".rstrip())


def _output(case: ET.Element, text: str) -> None:
    ET.SubElement(case, "system-out").text = _lines(text)


def _where(place: Place) -> str:
    return ":".join(str(p) for p in (place.file, place.line, place.column) if p is not None)


def _lines(text: str) -> str:
    """Text for XML, which allows no control character except line breaks, not even as a reference."""
    return "\n".join(safe(line) for line in text.splitlines())


def junit_text(root: ET.Element) -> str:
    """Return the document as text, with the counts of each suite and of all suites."""
    for element in [*root, root]:
        element.set("tests", str(len(list(element.iter("testcase")))))
        element.set("failures", str(len(list(element.iter("failure")))))
        element.set("errors", str(len(list(element.iter("error")))))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
