"""One repository of a plan in full, and results of policy tests."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from rich.console import Console

from lakeplan.output import plan_changes, plan_impact
from lakeplan.output.annotations import Place, junit_case, junit_suite, junit_text
from lakeplan.output.plan_changes import DEFAULT, MARKS, NOT_SET
from lakeplan.output.plan_impact import key_of
from lakeplan.output.text import Cell, Json, Page, count, days, duration, moment, names, safe
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.explain.policy_test import GraphRow, PolicyTestDocument, ResultRow
    from lakeplan.values.rules import RulesBody


def render_repository(repository: Json, console: Console) -> None:
    """Print one repository of a plan in full, then an empty line, because another repository may follow."""
    page = Page(console)
    mark = MARKS.get(_overall(repository), Cell(" "))
    page.hanging(mark, page.join(Cell(key_of(repository), "bold")), page.join(_action(repository)))
    _facts(page, repository)
    _rules(page, repository)
    plan_changes.render_setting_changes(page, [repository])
    if plan_changes.changing(repository):
        page.heading("Pins", plan_changes.PINS)
        plan_changes.pins_of(page, repository, limit=None)
    if any(kind == "branch_lifecycle" for kind, _ in plan_changes.settings_of(repository)):
        page.heading("Branches", plan_changes.BY_THE_JOB)
        plan_changes.branches_of(page, repository, limit=None)
    if repository["lifecycle"] is not None and repository["failure"] is None:
        page.heading("Branches", plan_changes.BY_RUN)
        plan_changes.run_branches_of(page, repository, limit=None, lists_kept=True)
    for kind, setting in plan_changes.settings_of(repository):
        if kind != "branch_lifecycle":
            plan_changes.notes(page, setting["notes"])
    impact = repository["impact"]
    page.heading("Impact", plan_impact.AT_MOST)
    plan_impact.impact_details(page, repository, prefixes=None)
    plan_impact.backlog_of(page, repository)
    if impact["status"] == "simulated":
        read = f"{count_of(impact['ranges_read'], 'range')}, {count_of(impact['entries_read'], 'entry')}"
        page.dim(f"read: {read}")
    plan_impact.render_gates(page, repository["gates"], all_of_them=True)
    plan_impact.render_warnings(page, [repository], tags_shown=None)
    plan_impact.render_failures(page, [repository])
    page.blank()


def _action(repository: Json) -> str:
    if repository["failure"] is not None:
        return "failed to plan"
    others = [
        f"{plan_changes.TITLES[kind]}: {setting['action']}"
        for kind, setting in plan_changes.settings_of(repository)
    ]
    pins = [f"pins: {plan_changes.pin_counts(repository)}"] if plan_changes.changing(repository) else []
    return "; ".join([_rules_action(repository), *pins, *others])


def _overall(repository: Json) -> str:
    """Return one word for all its settings, like ``overall`` of the model."""
    pins = "change" if plan_changes.changing(repository) else "none"
    actions = {
        repository["action"],
        pins,
        *(s["action"] for _, s in plan_changes.settings_of(repository)),
    } - {"none"}
    return "none" if not actions else actions.pop() if len(actions) == 1 else "change"


def _rules_action(repository: Json) -> str:
    if not repository["managed"]:
        return "the tree does not manage its GC rules"
    return {
        "add": "first rules for this repository: garbage collection starts",
        "change": "rules change",
        "clear": "all rules are removed (clear), so nothing is collected",
    }.get(repository["action"], "no changes")


def _facts(page: Page, repository: Json) -> None:
    adopted = " (adopted: a glob matches it for the first time)" if repository["adopted"] else ""
    source = f" at {repository['source']}" if repository["source"] else ""
    facts = {
        "entry": f"{repository['entry']}{source}{adopted}",
        "owner": repository["owner"] or "",
        "endpoint": repository["endpoint_url"],
        "branches": str(len(repository["branches"])),
        "unexpanded": names([f"{b} ({days(d)})" for b, d in repository["unexpanded"].items()]),
        "etag": f"{repository['before_etag'][:12]} {page.arrow} {repository['after_etag'][:12]}",
        "config hash": repository["config_hash"][:12],
    }
    page.facts(facts, lead_width=11)


def _rules(page: Page, repository: Json) -> None:
    """Print every value before and after, whether or not it changed."""
    before, after = _values(repository["before"]), _values(repository["after"])
    if not (before or after):
        return
    page.heading("Rules")
    rows: list[list[str | Cell]] = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        label = DEFAULT if name[0] == "default" else f"branch {name[1]}"
        kind = "add" if old is None else "clear" if new is None else "change"
        mark = Cell(" ") if old == new else MARKS[kind]
        rows.append([mark, label, _days(old), Cell(page.arrow, "dim"), _days(new)])
    page.table(("", "", "now", "", "proposed"), rows)


def _values(rules: Json | None) -> dict[tuple[str, str], int]:
    if rules is None:
        return {}
    values = {("default", ""): rules["default_retention_days"]}
    return values | {("branch", b["branch_id"]): b["retention_days"] for b in rules["branches"]}


def _days(value: int | None) -> Cell:
    return Cell(NOT_SET, "dim") if value is None else Cell(days(value))


WIDE = 120

_FATE = {
    "survives": Cell("survives", "green"),
    "goes": Cell("goes", "red"),
    "at_risk": Cell("at risk", "yellow"),
}


def render_tests(document: PolicyTestDocument, console: Console) -> None:
    """Print each test on a line, and below each failed test what differs."""
    page = Page(console)
    for test in document["tests"]:
        if test["passed"]:
            page.line(Cell("pass", "green"), f"  {test['name']}", Cell(f"  {_place(test)}", "dim"))
        else:
            _failed(page, test)
    page.blank()
    if not document["tests"]:
        page.line(
            "No tests were found. Describe a history in tests/*.yaml; `lakeplan schema policy-test` prints"
            " the format."
        )
        return
    summary = f"{count(document['passed'])} passed, {count(document['failed'])} failed"
    page.line(Cell(summary, "bold red" if document["failed"] else "bold green"))


def _failed(page: Page, test: ResultRow) -> None:
    page.line(Cell("FAIL", "bold red"), f"  {test['name']}", Cell(f"  {_place(test)}", "dim"))
    for failure in test["failures"]:
        line = f"line {failure['line']}: " if failure["line"] is not None else ""
        lines = [page.join(f"{line}{failure['message']}")]
        if failure["why"]:
            lines.append(page.text(failure["why"], "dim"))
        page.hanging(Cell("-", "red"), *lines, indent=6)
    if test["entry"] is not None:
        page.line(f"{test['repository']} (entry {test['entry']}): {_rules_text(test['rules'])}", indent=6)
    if test["graph"]:
        page.line(Cell(f"as of {moment(test['as_of'])}", "dim"), indent=6)
        # On a narrow terminal, reasons would only fold, and the failures above already have them.
        columns = 6 if page.width >= WIDE else 5
        page.table(
            ("", "commit", "age", "", "expected", "why")[:columns],
            [_row(row)[:columns] for row in test["graph"]],
            solid=(0, 2, 3, 4),
            indent=6,
        )


def _row(row: GraphRow) -> list[str | Cell]:
    refs = [*row["branches"], *(f"tag {tag}" for tag in row["tags"])]
    named = row["commit"] + (f" [{', '.join(refs)}]" if refs else "")
    if row["merges"]:
        named += f" (merges {', '.join(row['merges'])})"
    wrong = row["expected"]
    expected = Cell(f"<- {_FATE[wrong].text}", "bold red") if wrong else Cell("")
    why = Cell(row["why"], "dim")
    return [row["lanes"], named, _age(row["age_seconds"]), _FATE[row["found"]], expected, why]


def _age(seconds: int) -> str:
    return duration(seconds) if seconds % 86_400 else f"{count(seconds // 86_400)} d"


def _rules_text(rules: RulesBody | None) -> str:
    if rules is None:
        return "no rules are set (gc: clear)"
    branches = [f"{b['branch_id']} {days(b['retention_days'])}" for b in rules["branches"]]
    return ", ".join([f"default {days(rules['default_retention_days'])}", *branches])


def _place(test: ResultRow) -> str:
    return f"{test['file']}:{test['line']}"


def render_tests_junit(document: PolicyTestDocument, *, tree: str = "") -> str:
    """Return tests as JUnit: a suite for each file and a case for each test. ``tree`` is the folder of the
    files."""
    root = ET.Element("testsuites", name="lakeplan test")
    suites: dict[str, ET.Element] = {}
    for test in document["tests"]:
        file = test["file"]
        if file not in suites:
            suites[file] = junit_suite(root, file)
        folder = "" if file.startswith("/") else tree
        place = Place(file, test["line"])
        case = junit_case(suites[file], test["repository"], test["name"], place, folder)
        if not test["passed"]:
            first = test["failures"][0]
            body = ET.SubElement(case, "failure", message=safe(first["message"]), type=first["kind"])
            body.text = "\n".join(_lines(test))
    return junit_text(root)


def _lines(test: ResultRow) -> list[str]:
    lines = [safe(f"{f['message']}; {f['why']}".rstrip("; ")) for f in test["failures"]]
    lines.append("" if test["entry"] is None else safe(_rules_text(test["rules"])))
    names = [r["commit"] for r in test["graph"]]
    width = max([len(n) for n in names], default=0)
    lanes = max([len(r["lanes"]) for r in test["graph"]], default=0)
    for row in test["graph"]:
        wrong = f"  <- expected: {_FATE[row['expected']].text}" if row["expected"] else ""
        fate = _FATE[row["found"]].text
        lines.append(safe(f"{row['lanes']:<{lanes}}  {row['commit']:<{width}}  {fate}{wrong}"))
    return lines
