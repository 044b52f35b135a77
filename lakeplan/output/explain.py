"""Renders why data is kept or expires (``schemas/explain.v1.json``): the verdict, what keeps it, until when,
and what would change that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from lakeplan.output.sweep import class_words, keeper_words
from lakeplan.output.text import Cell, Page, count, days, duration, moment, names, names_of, size
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.explain import documents

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
