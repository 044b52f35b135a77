"""JUnit XML, as GitLab, Jenkins and others show it: one case per gate of a repository, or per problem.

Refused gates are failures, repositories that could not be planned errors; a gate that was opened passes, and
says in its output who opened it.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any

from lakeplan.render.annotations import Place, place_of
from lakeplan.render.clean import safe
from lakeplan.render.plan_changes import key_of

Json = Mapping[str, Any]


def render_junit_plan(document: Json, *, tree: str = "") -> str:
    """A plan: a suite per repository and one of the whole plan."""
    root = ET.Element("testsuites", name="lakeplan plan")
    when = document["as_of"].replace("Z", "")[:19]
    suite = _suite(root, "the whole plan", when)
    if not document["gates"]:
        _case(suite, "the whole plan", "plan", None, tree)
    for gate in document["gates"]:
        _gate(suite, gate, None, tree)
    for item in document["loosenings"]:
        case = _case(suite, item["scope"], f"loosened {item['path']}", place_of(item["where"]), tree)
        _output(case, f"{item['before']} at the base, {item['after']} here")
    for repository in document["repositories"]:
        _repository(_suite(root, key_of(repository), when), repository, tree)
    return _text(root)


def render_junit_problems(files: Sequence[str], problems: Sequence[Json], *, tree: str = "") -> str:
    """A check of a tree: every problem is a failure, every file without one passes."""
    root = ET.Element("testsuites", name="lakeplan validate")
    suite = _suite(root, "the tree")
    bad = {p["file"] for p in problems}
    for file in files:
        if file not in bad:
            _case(suite, file, "is valid", Place(file), tree)
    for problem in problems:
        place = Place(problem["file"], problem["line"], problem["column"])
        case = _case(suite, problem["file"], f"{problem['path']} (line {problem['line']})", place, tree)
        _bad(case, "failure", "problem", problem["message"], f"at {_where(place)}")
    return _text(root)


def _repository(suite: ET.Element, repository: Json, tree: str) -> None:
    place, key, failure = place_of(repository["source"]), key_of(repository), repository["failure"]
    case = _case(suite, key, "plan", place, tree)
    if failure is not None:
        _bad(case, "error", "failed", failure["message"], failure["hint"])
    elif repository["warnings"]:
        _output(case, "\n".join(repository["warnings"]))
    for gate in repository["gates"]:
        _gate(suite, gate, place, tree)


def _gate(suite: ET.Element, gate: Json, place: Place | None, tree: str) -> None:
    scope = "the whole plan" if gate["scope"] == "plan" else gate["scope"]
    case = _case(suite, scope, gate["gate"], place, tree)
    if gate["outcome"] == "refused":
        at = f"at {_where(place)}\n" if place else ""
        _bad(case, "failure", "refused", gate["message"], f"{at}override with {gate['opens_with']}")
    elif gate["outcome"] != "passed":
        _output(case, f"{gate['outcome']}: {gate['message']}\n{gate['opens_with']}".rstrip())


def _suite(root: ET.Element, name: str, timestamp: str = "") -> ET.Element:
    suite = ET.SubElement(root, "testsuite", name=safe(name))
    if timestamp:
        suite.set("timestamp", safe(timestamp))
    return suite


def _case(suite: ET.Element, scope: str, name: str, place: Place | None, tree: str) -> ET.Element:
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
    """XML takes no control character, not even as a reference; line ends it does."""
    return "\n".join(safe(line) for line in text.splitlines())


def _text(root: ET.Element) -> str:
    """Counts on every suite and on the whole, then the document."""
    for element in [*root, root]:
        element.set("tests", str(len(list(element.iter("testcase")))))
        element.set("failures", str(len(list(element.iter("failure")))))
        element.set("errors", str(len(list(element.iter("error")))))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
