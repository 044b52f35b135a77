"""Renders one repository of a plan in full, results of policy tests, and why data is kept or expires
(``schemas/explain.v1.json``): the verdict, what keeps it, until when, and what would change that."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from lakeplan.output import plan_changes, plan_impact
from lakeplan.output.annotations import Place, junit_case, junit_suite, junit_text
from lakeplan.output.plan_changes import DEFAULT, MARKS, NOT_SET
from lakeplan.output.plan_impact import key_of
from lakeplan.output.sweep import class_words, keeper_words
from lakeplan.output.text import Cell, Json, Page, count, days, duration, moment, names, names_of, safe, size
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.explain import documents
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


ID_SHOWN = 12
NAMES_SHOWN = 10
_MORE_STARTS = ("more branch or dangling commit", "more branches or dangling commits")

_STATUS = {
    "kept": ("KEPT", "bold green"),
    "no_rules": ("KEPT: no rules are set, so nothing is collected", "bold green"),
    "staged": ("KEPT: uncommitted", "bold green"),
    "young": ("EXPIRES SOON: nothing keeps it, but it is younger than the minimum age", "bold yellow"),
    "at_risk": ("AT RISK: the server would delete it although the documented rule keeps it", "bold red"),
    "expired": ("EXPIRES: no rule keeps it", "bold red"),
    "never_committed": ("EXPIRES: it is in neither a commit nor an uncommitted change", "bold red"),
    "unknown": (
        "UNKNOWN: some of the data that decides this could not be read (see the notes)",
        "bold yellow",
    ),
    "outside": ("NEVER COLLECTED: it is outside the storage namespace", "bold green"),
    "elsewhere": ("NEVER COLLECTED: no collector inspects its location", "bold green"),
    "missing": ("MISSING: rules keep it, but it is not in storage", "bold red"),
    "collected": ("GONE: nothing keeps it, and it is not in storage", "bold"),
}
_TITLES = {
    "stored": "Under the stored rules",
    "proposed": "Under the tree's rules (proposed)",
    "rules": "Under the rules",
    "compare": "Under the compared rules",
}


def render_explain(document: documents.ExplainDocument, console: Console) -> None:
    """Print every subject with its verdict under each rule set, what was read, and notes."""
    page = Page(console)
    page.line(Cell(document["name"], "bold"), f"  as of {moment(document['as_of'])}")
    for subject in document["subjects"]:
        page.blank()
        match subject["kind"]:
            case "object":
                _object(page, subject)
            case "commit":
                _commit(page, subject)
            case _:
                _branch(page, subject)
    more = document["subject_count"] - len(document["subjects"])
    if more > 0:
        page.blank()
        shown = f"{count_of(more, 'older object')} at this path {'is' if more == 1 else 'are'} not shown."
        page.line(f"{shown} To explain one, use REF:PATH or its address.")
    read = document["read"]
    if read["metaranges"] or document["notes"]:
        page.blank()
    if read["metaranges"]:
        ranges = f"{count_of(read['ranges'], 'range')} with {count_of(read['entries'], 'entry')}"
        page.dim(f"read: {count_of(read['metaranges'], 'metarange')}, {ranges}", indent=0)
    page.warnings(document["notes"])


def _object(page: Page, subject: documents.ObjectSubject) -> None:
    amount = "size unknown" if subject["size_bytes"] is None else size(subject["size_bytes"])
    page.line(Cell(subject["address"], "bold"), f"  {amount}")
    in_commits = ""
    if subject["commits"]:
        in_commits = f"{count_of(subject['commits'], 'commit')}, {_commit_text(subject['first_commit'])}"
        in_commits += f" to {_commit_text(subject['last_commit'])}" if subject["commits"] > 1 else ""
    page.facts({"paths": names_of(subject["paths"], subject["path_count"]), "in commits": in_commits})
    if subject["only_by_alias"]:
        page.line(
            "no commit contains this address, but a commit may refer to the object by a full address",
            indent=2,
        )
    stored = ""
    if subject["stored"] is not None:
        stored = f"yes, since {moment(subject['stored_at'] or '')}" if subject["stored"] else "no"
    page.facts({"uncommitted": names(subject["staged"], 5), "in storage": stored})
    _protected(page, subject["protected_by"])
    _marks(page, subject)
    for verdict in subject["verdicts"]:
        _verdict(page, verdict, subject["commits"])


def _commit(page: Page, subject: documents.CommitSubject) -> None:
    via = f"  ({subject['via']})" if subject["via"] else ""
    page.line(Cell(f"commit {subject['commit_id']}", "bold"), via)
    page.line(f"created {moment(subject['creation_date'])}", indent=2)
    if not subject["holds_data"]:
        page.line("has no objects, because it is an initial commit", indent=2)
    tags = f"{names(subject['tags'], NAMES_SHOWN)} (tags do not protect data)" if subject["tags"] else ""
    page.facts({"HEAD of": names(subject["head_of"], NAMES_SHOWN), "tags": tags})
    _protected(page, subject["protected_by"])
    for verdict in subject["verdicts"]:
        _verdict(page, verdict, 1)


def _protected(page: Page, rows: Sequence[documents.ProtectionRow]) -> None:
    """Print what keeps the subject in addition to the rules. Other collectors respect only pins."""
    lines = []
    for row in rows:
        name = f"{row['name']} {row['prefix']}" if row["prefix"] is not None else row["name"]
        until = f" until {row['until']}" if row["until"] else ""
        reason = f" ({row['reason']})" if row["reason"] else ""
        lines.append(f"{_PROTECTIONS[row['kind']]} {name}{until}{reason}")
    if any(row["kind"] != "pin" for row in rows):
        lines.append("so no lakeplan sweep deletes it; other collectors ignore this protection")
    if lines:
        page.hanging(Cell("protected", "dim"), *lines, indent=2)


_PROTECTIONS = {
    "hold": "hold on",
    "tag": "protected tag",
    "newest": "min_commits or keep of branch",
    "pin": "pin",
    "repository": "full address in repository",
}
_ENDS = {
    "marked": "would be deleted (not approved)",
    "approved": "would be deleted (approved)",
    "kept": "kept",
    "deleted": "DELETED",
    "quarantined": "moved to QUARANTINE",
    "purged": "moved to quarantine, but the copy is gone (restored or PURGED)",
    "saved": "kept by the sweep",
    "failed": "not deleted: the deletion failed",
}


def _marks(page: Page, subject: documents.ObjectSubject) -> None:
    """Print the marks that name an object, and what happened to it."""
    for row in subject["marks"]:
        why = f": {row['why']}" if row["why"] else ""
        swept = row["state"] in ("deleted", "quarantined", "purged", "saved", "failed")
        when = f" on {moment(row['swept_at'])}" if swept and row["swept_at"] else ""
        by = ", ".join(map(keeper_words, row["kept_by"]))
        kept = f" by {by}" if row["state"] == "kept" and by else ""
        of_class = class_words(row["mark_class"])
        lines = [f"{row['mark_id']} ({of_class}): {_ENDS[row['state']]}{when}{kept}{why}"]
        if row["approved_by"] is not None:
            at = moment(row["approved_at"] or "")
            lines.append(f"approved by {row['approved_by']} on {at}: {row['approval_reason']}")
        if row["restore"] is not None:
            lines.append(f"restore: {row['restore']}")
        page.hanging(Cell("mark", "dim"), *lines, indent=2)
    may_go = any(v["status"] in ("expired", "never_committed", "at_risk") for v in subject["verdicts"])
    if subject["min_age_seconds"] and not subject["marks"] and may_go:
        page.facts(
            {"minimum age": f"a sweep keeps it until it is {duration(subject['min_age_seconds'])} old"}
        )


def _branch(page: Page, subject: documents.BranchSubject) -> None:
    page.line(Cell(f"branch {subject['branch']}", "bold"), f"  HEAD {_commit_text(subject['head'])}")
    for verdict in subject["verdicts"]:
        page.blank()
        page.line(Cell(_title(verdict), "underline"), indent=2)
        text, style = _STATUS[verdict["status"]]
        if verdict["status"] == "no_rules":
            page.line(Cell(text, style), indent=4)
            continue
        page.line(Cell(text, style), ": its HEAD, for as long as the branch exists", indent=4)
        page.line(f"rule: {_rule(verdict, subject['branch'])}", indent=4)
        commits = count_of(verdict["commits"], "commit")
        page.line(
            f"keeps {commits} ({count(verdict['commits_alone'])} of them kept by no other branch); the"
            f" oldest is {_commit_text(verdict['oldest_commit'])}",
            indent=4,
        )
        lost = verdict["commits_lost_if_deleted"]
        outcome = (
            f"{count_of(lost, 'commit')} would expire on the server"
            if lost
            else "no commit would expire immediately"
        )
        page.line(f"if the branch were deleted now, {outcome}", indent=4)


def _verdict(page: Page, verdict: documents.Verdict, holders: int) -> None:
    page.blank()
    page.line(Cell(_title(verdict), "underline"), indent=2)
    text, style = _STATUS[verdict["status"]]
    page.line(Cell(text, style), _until(verdict), indent=4)
    for number, reason in enumerate(verdict["reasons"][:3]):
        lead = "by" if verdict["documented"] else "was kept by"
        page.hanging(
            Cell(lead if not number else "", "dim"),
            page.join(_reason(verdict, reason)),
            indent=4,
            lead_width=len(lead),
        )
    more = []
    if verdict["reason_count"] > 3:
        more.append(count_of(verdict["reason_count"] - 3, *_MORE_STARTS))
    if holders > 1:
        kept = (
            f"{count(verdict['commits_kept_by_server'])} of the {count(holders)} commits that contain it are"
            " kept"
        )
        if verdict["commits_kept_documented"] != verdict["commits_kept_by_server"]:
            kept += f" ({count(verdict['commits_kept_documented'])} by the documented rule)"
        more.append(kept)
    if verdict["branch_count"] > 1:
        more.append(f"branches: {names_of(verdict['branches'], verdict['branch_count'])}")
    if more:
        page.hanging(Cell("also", "dim"), *(page.join(one) for one in more), indent=4)
    if verdict["walk"] and verdict["status"] != "no_rules":
        page.hanging(Cell("server", "dim"), page.join(_walk(verdict)), indent=4)
    _remedies(page, "to keep", verdict["to_stay"], "at least")
    _remedies(page, "to expire", verdict["to_go"], "at most", verdict["to_go_branches_left_out"])


def _title(verdict: documents.Verdict | documents.BranchVerdict) -> str:
    return _TITLES.get(verdict["rule_set"], verdict["rule_set"])


def _until(verdict: documents.Verdict) -> str:
    if verdict["status"] in ("no_rules", "outside", "elsewhere"):
        return ""
    if verdict["status"] == "at_risk" and verdict["kept_until"]:
        return f" (which keeps it until {moment(verdict['kept_until'])}, assuming no new commits)"
    if verdict["kept_until"]:
        return f", until {moment(verdict['kept_until'])}, assuming no new commits"
    if verdict["gone_since"]:
        return f", since {moment(verdict['gone_since'])}"
    if verdict["documented"] and verdict["reasons"]:
        return ", for as long as the branch's HEAD does not move"
    return ""


def _reason(verdict: documents.Verdict, reason: documents.ReasonRow) -> str:
    who = (
        f"branch {reason['branch']}"
        if reason["branch"] is not None
        else f"dangling commit {_id(reason['start'])}"
    )
    commit = _id(verdict["commit_id"])
    if reason["branch"] is not None and reason["replaced_by"] is None:
        return f"{who}: commit {commit} is its HEAD"
    until, counted_from = moment(reason["until"] or ""), moment(reason["counted_from"] or "")
    if reason["replaced_by"] is None:
        how = f"created {counted_from}"
    else:
        how = f"commit {commit} was followed by {_id(reason['replaced_by'])} on {counted_from}"
    return f"{who}: {how}; {_rule(reason, reason['branch'])}, until {until}"


def _rule(item: documents.ReasonRow | documents.BranchVerdict, branch: str | None) -> str:
    whose = "default" if item["is_default"] or branch is None else f"branch {branch}"
    place = f" at {item['source']}" if item["source"] else ""
    return f"{days(item['days'] or 0)} ({whose}){place}"


def _walk(verdict: documents.Verdict) -> str:
    """Return the decisive part of the server's walk: the first pass that marks the commit, or one that stops
    too early."""
    walk = verdict["walk"] or []
    marks = [p for p in walk if p["outcome"] in ("head", "young", "marks")]
    if marks:
        if marks[0]["outcome"] == "head":
            return f"{_walker(marks[0])} starts at this commit, because it is a HEAD"
        return f"{_walker(marks[0])} marks it"
    passes = [p for p in walk if p["outcome"] == "passes"]
    text = f"{_walker(passes[0])} visits it but does not mark it" if passes else "no walk marks it"
    keeper = verdict["reasons"][0]["start"] if verdict["reasons"] else None
    stopped = next((p for p in walk if p["start"] == keeper and p["outcome"] == "stops"), None)
    if stopped is None or not verdict["documented"]:
        return text
    at = "there" if stopped["stopped_at"] == verdict["commit_id"] else f"at {_id(stopped['stopped_at'])}"
    first = next((p for p in walk if p["start"] == stopped["stopped_by"] and p not in passes[:1]), None)
    by = f" (already visited by the walk of {_named(first)})" if first is not None else ""
    return f"{text}; {_walker(stopped)}, which would mark it, comes later and stops {at}{by}"


def _walker(one: documents.PassRow) -> str:
    return f"the walk of {_named(one)} ({days(one['days'])})"


def _named(one: documents.PassRow) -> str:
    return f"branch {one['branch']}" if one["branch"] is not None else f"dangling {_id(one['start'])}"


def _remedies(
    page: Page, lead: str, remedies: Sequence[documents.RemedyRow], bound: str, left_out: int = 0
) -> None:
    lines = [page.join(_remedy(remedy, bound)) for remedy in remedies]
    if len(remedies) > 1:
        lines.insert(0, page.join("any of" if lead == "to keep" else "all of"))
    if left_out:
        lines.append(page.join(f"and {count_of(left_out, 'more branch')}"))
    if lines:
        page.hanging(Cell(lead, "dim"), *lines, indent=4)


def _remedy(remedy: documents.RemedyRow, bound: str) -> str:
    branch = "the default" if remedy["branch"] is None else f"branch {remedy['branch']}"
    match remedy["kind"]:
        case "days":
            return f"{branch}: {bound} {days(remedy['days'] or 0)} (now {count(remedy['days_now'] or 0)})"
        case "branch_here":
            return f"create a branch at {_id(remedy['commit_id'])}, because a HEAD is always kept"
        case "move_head":
            now = remedy["days_now"]
            later = "then the branch's retention applies" if now is None else f"it expires {_later(now)}"
            return f"{branch}: its HEAD contains the object; create a commit without the object, and {later}"
        case "remove_pin":
            return f"{branch}: remove the pin from `pins` in the tree, then apply"
        case "too_young":
            return f"{branch}: today, even a retention of 1 day keeps it"
        case "set_rules":
            return "set rules, then run `lakeplan explain` again: without rules, no collector runs"
        case "reset":
            where = "its branch" if remedy["branch"] is None else branch
            return f"{where}: reset the uncommitted change"
        case "end_protection":
            return "end its protection from lakeplan's sweeps"


def _later(retention_days: int) -> str:
    return f"{days(retention_days)} later" if retention_days > 0 else "immediately"


def _commit_text(commit: documents.CommitRef | None) -> str:
    return "" if commit is None else f"{_id(commit['commit_id'])} ({moment(commit['creation_date'])})"


def _id(commit_id: str | None) -> str:
    return (commit_id or "")[:ID_SHOWN]
