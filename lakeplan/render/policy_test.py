"""Results of policy tests (``schemas/test.v1.json``): failures with the drawn graph, or one line when all is
well; and JUnit XML for CI."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from lakeplan.render.amounts import count, days, duration, moment
from lakeplan.render.clean import safe
from lakeplan.render.page import Cell, Page

Json = Mapping[str, Any]
WIDE = 120

_FATE = {
    "survives": Cell("survives", "green"),
    "goes": Cell("goes", "red"),
    "at_risk": Cell("at risk", "yellow"),
}


def render_tests(document: Json, console: Console) -> None:
    """Prints every test on a line of its own, and below each failed one what differs."""
    page = Page(console)
    for test in document["tests"]:
        if test["passed"]:
            page.line(Cell("pass", "green"), f"  {test['name']}", Cell(f"  {_place(test)}", "dim"))
        else:
            _failed(page, test)
    page.blank()
    if not document["tests"]:
        page.line("No tests: draw a history in tests/*.yaml (lakeplan schema policy-test)")
        return
    summary = f"{count(document['passed'])} passed, {count(document['failed'])} failed"
    page.line(Cell(summary, "bold red" if document["failed"] else "bold green"))


def _failed(page: Page, test: Json) -> None:
    page.line(Cell("FAIL", "bold red"), f"  {test['name']}", Cell(f"  {_place(test)}", "dim"))
    for failure in test["failures"]:
        line = f"line {failure['line']}: " if failure["line"] is not None else ""
        lines = [page.join(f"{line}{failure['message']}")]
        if failure["why"]:
            lines.append(page.text(failure["why"], "dim"))
        page.hanging(Cell("-", "red"), *lines, indent=6)
    if test["entry"] is not None:
        page.line(f"{test['repository']} (entry {test['entry']}): {_rules(test['rules'])}", indent=6)
    if test["graph"]:
        page.line(Cell(f"as of {moment(test['as_of'])}", "dim"), indent=6)
        # Where it would only be folded the reasons are left to the failures above.
        columns = 6 if page.width >= WIDE else 5
        page.table(
            ("", "commit", "age", "", "expected", "why")[:columns],
            [_row(row)[:columns] for row in test["graph"]],
            solid=(0, 2, 3, 4),
            indent=6,
        )


def _row(row: Json) -> list[str | Cell]:
    refs = [*row["branches"], *(f"tag {tag}" for tag in row["tags"])]
    named = row["commit"] + (f" [{', '.join(refs)}]" if refs else "")
    if row["merges"]:
        named += f" (merges {', '.join(row['merges'])})"
    wrong = row["expected"]
    expected = Cell(f"<- {_FATE[wrong].text}", "bold red") if wrong else Cell("")
    return [
        row["lanes"],
        named,
        _age(row["age_seconds"]),
        _FATE[row["found"]],
        expected,
        Cell(row["why"], "dim"),
    ]


def _age(seconds: int) -> str:
    whole, rest = divmod(seconds, 86_400)
    return duration(seconds) if rest else f"{count(whole)} d"


def _rules(rules: Json | None) -> str:
    if rules is None:
        return "no rules are set (gc: clear)"
    branches = [f"{b['branch_id']} {days(b['retention_days'])}" for b in rules["branches"]]
    return ", ".join([f"default {days(rules['default_retention_days'])}", *branches])


def _place(test: Json) -> str:
    return f"{test['file']}:{test['line']}"


def render_tests_junit(document: Json, *, tree: str = "") -> str:
    """One suite a file, one case a test; ``tree`` is put before the names of files."""
    root = ET.Element("testsuites", name="lakeplan test")
    suites: dict[str, ET.Element] = {}
    for test in document["tests"]:
        suite = suites.get(test["file"])
        if suite is None:
            suite = suites[test["file"]] = ET.SubElement(root, "testsuite", name=safe(test["file"]))
        file = f"{tree}/{test['file']}" if tree and not test["file"].startswith("/") else test["file"]
        case = ET.SubElement(
            *(suite, "testcase"),
            classname=safe(test["repository"]),
            name=safe(test["name"]),
            file=safe(file),
            line=str(test["line"]),
        )
        if not test["passed"]:
            first = test["failures"][0]
            body = ET.SubElement(case, "failure", message=safe(first["message"]), type=first["kind"])
            body.text = "\n".join(_lines(test))
    for element in [*suites.values(), root]:
        element.set("tests", str(len(list(element.iter("testcase")))))
        element.set("failures", str(len(list(element.iter("failure")))))
        element.set("errors", "0")
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _lines(test: Json) -> list[str]:
    lines = [safe(f"{f['message']}; {f['why']}".rstrip("; ")) for f in test["failures"]]
    lines.append("" if test["entry"] is None else safe(_rules(test["rules"])))
    names = [r["commit"] for r in test["graph"]]
    width = max([len(n) for n in names], default=0)
    lanes = max([len(r["lanes"]) for r in test["graph"]], default=0)
    for row in test["graph"]:
        wrong = f"  <- expected: {_FATE[row['expected']].text}" if row["expected"] else ""
        found = _FATE[row["found"]].text
        lines.append(safe(f"{row['lanes']:<{lanes}}  {row['commit']:<{width}}  {found}{wrong}"))
    return lines
