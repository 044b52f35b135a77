"""Renders drift, history, doctor and collector runs for terminals, and the history also as CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from lakeplan.output.plan_changes import ITEM_MARKS
from lakeplan.output.tables import csv_text
from lakeplan.output.text import Cell, Page, count, days, moment, names
from lakeplan.values.desired import SettingKind
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.doctor.doctor import DoctorDocument
    from lakeplan.plan.documents import DriftDocument, DriftedRow, DriftSummary, ItemRow, ValueRow
    from lakeplan.review.history import ChangedSetting, HistoryDocument, RunRepository, RunRow
    from lakeplan.sweep.documents import CollectorRunRow, CollectorRunsDocument


_STYLES = {
    "server-edited": "bold red",
    "tree-ahead": "bold yellow",
    "patterns-stale": "yellow",
    "pins-missing": "red",
    "released": "magenta",
    "unmanaged-new": "cyan",
}
_DONE = {"apply": "last applied", "import": "imported"}
_VALUES_SHOWN = 20
_SETTINGS = {"branch_lifecycle": "policy", "object_lifecycle": "object rule"}
_KINDS = {"branches": "branch", **_SETTINGS}


def render_drift(document: DriftDocument, console: Console) -> None:
    """Print what drifted in each repository, then failures and counts."""
    page = Page(console)
    for repository in document["repositories"]:
        _repository(page, repository)
    if document["failures"]:
        compared = document["summary"]["checked"] - document["summary"]["failed"]
        page.heading("Not compared", "all other repositories were compared" if compared else "")
        for failure in document["failures"]:
            page.failure(Cell(failure["repository"], "bold"), failure["message"], hint=failure["hint"])
    for note in document["notes"]:
        page.blank()
        page.hanging(Cell("i", "cyan"), note)
    _render_written(page, document)
    page.total("Drift:", _sum(document["summary"]))


def _render_written(page: Page, document: DriftDocument) -> None:
    """Print what ``--write`` did."""
    if "written" not in document:
        return
    arrow = Cell(page.arrow, "dim")
    rows: list[list[str | Cell]] = [
        [
            r["repository"],
            _name(r["path"]),
            _written_side(r["before"]),
            arrow,
            _written_side(r["after"]),
            r["file"],
        ]
        for r in document["written"]
    ]
    if rows:
        page.heading("Written to the tree", "review the changes, commit them, then apply")
        page.table(("", "", "tree", "", "server", "file"), rows, figures=(2, 4))
    if document["not_written"]:
        page.heading("Not written")
        for refused in document["not_written"]:
            page.failure(
                Cell(refused["repository"], "bold"), f"{_name(refused['path'])}: {refused['reason']}"
            )
    if not rows and not document["not_written"]:
        where, failed = "on the servers", document["summary"]["failed"]
        if failed:
            where = "in the repositories that were compared"
        why = f"the tree already has every value that was changed {where}"
        if failed == document["summary"]["checked"]:
            why = "no repository was compared"
        page.blank()
        page.line(f"Nothing was written: {why}.")


def _repository(page: Page, repository: DriftedRow) -> None:
    page.blank()
    parts: list[str | Cell] = [Cell(repository["repository"], "bold")]
    for name in repository["classes"]:
        parts += ["  ", Cell(name, _STYLES.get(name, "bold"))]
    page.line(*parts)
    last = repository["last_applied"]
    facts = [
        f"{_DONE.get(last['command'], 'last applied')} {moment(last['at'])} by run {last['run_id']}"
        if last is not None
        else "",
        f"owner {repository['owner']}" if repository["owner"] else "",
        *(repository["source"], repository["note"]),
    ]
    for fact in filter(None, facts):
        page.dim(fact)
    values: list[list[str | Cell]] = [
        [_class(v), _name(v["path"]), *map(_days, (v["applied"], v["stored"], v["wanted"]))]
        for v in repository["values"]
    ]
    _table(page, "value", values, figures=(2, 3, 4))
    items: list[list[str | Cell]] = [
        [_class(i), f"{_SETTINGS[i['setting']]} {i['item']}", *_sides_of(i)] for i in repository["items"]
    ]
    _table(page, "item", items, figures=())


def _table(page: Page, what: str, rows: list[list[str | Cell]], *, figures: tuple[int, ...]) -> None:
    if rows:
        head = ("", "", "applied", "on the server", "in the tree")
        page.table(head, rows[:_VALUES_SHOWN], figures=figures, solid=(0,))
        page.rest(len(rows), _VALUES_SHOWN, "(--format json)", noun=what)


def _class(row: ValueRow | ItemRow) -> Cell:
    return Cell(row["class"], _STYLES.get(row["class"], ""))


def _sides_of(item: ItemRow) -> list[Cell]:
    """Return the values of a policy or object rule that differ between the last apply, the server and the
    tree."""
    sides = [item["applied"], item["stored"], item["wanted"]]
    there = [side for side in sides if side]
    keys = [key for key in {k: None for side in there for k in side} if key != "id"]
    differ = [key for key in keys if len({side.get(key) for side in there}) > 1] or keys
    return [
        Cell(", ".join(f"{key} {side.get(key, 'not set')}" for key in differ)) if side else Cell("-", "dim")
        for side in sides
    ]


def _name(path: str) -> str:
    kind, _, name = path.partition("/")
    if path in _SETTINGS:
        return SettingKind(path).label
    return f"{_KINDS.get(kind, kind)} {name}" if name else "default"


def _written_side(value: int | str | None) -> Cell:
    return Cell(value) if isinstance(value, str) else _days(value)


def _days(value: int | None) -> Cell:
    return Cell("-", "dim") if value is None else Cell(days(value))


def _sum(summary: DriftSummary) -> str:
    checked = f"{count_of(summary['checked'] - summary['failed'], 'repository')} compared"
    failed = f", {count(summary['failed'])} could not be compared" if summary["failed"] else ""
    if not summary["drifted"]:
        known = "none" if summary["checked"] > summary["failed"] or not summary["failed"] else "unknown"
        return f"{known}. {checked}{failed}."
    classes = ", ".join(f"{count(n)} {name}" for name, n in summary["classes"].items() if n)
    return f"{count_of(summary['drifted'], 'repository')} ({classes}). {checked}{failed}."


_HISTORY_STYLES = {
    "seen": "",
    "applied": "green",
    "already": "",
    "failed": "bold red",
    "uncertain": "bold red",
    "pending": "bold yellow",
}
_PENDING = "the run was killed, so it is unknown whether this setting was written"
_NO_RULES = "no rules"
_WIDE = 100
"""Narrower terminals omit the start of a run. Its id contains that too, and must be complete so that it can
be copied."""


def render_history(document: HistoryDocument, console: Console) -> None:
    """Print the runs, then damaged records."""
    page = Page(console)
    rows = [_row(run) for run in document["runs"]]
    head: tuple[str, ...] = ("run", "command", "by", "tree", "repositories")
    if rows and page.width < _WIDE:
        page.table(head, [[r[0], *r[2:]] for r in rows], solid=(0, 3), indent=0)
    elif rows:
        head = ("run", "started", "command", "by", "tree", "repositories")
        page.table(head, rows, solid=(0, 1, 4), indent=0)
    else:
        page.line("No runs are recorded in the state.")
    for key in document["damaged"]:
        page.failure(f"{key} is damaged and cannot be read")


def _row(run: RunRow) -> list[str | Cell]:
    who = run["ci"].get("actor") or _who(run["by"])
    return [run["run_id"], moment(run["started_at"]), run["command"], who, _commit(run), _counts(run)]


def _commit(run: RunRow) -> str:
    return (run["tree_commit"] or "")[:8] + ("+" if run["tree_dirty"] else "")


def _who(by: Mapping[str, object]) -> str:
    user, host = by.get("user", ""), by.get("host", "")
    return f"{user}@{host}" if user and host else str(user or host or "unknown")


def _counts(run: RunRow) -> Cell:
    counts: dict[str, int] = {}
    for repository in run["repositories"]:
        counts[repository["status"]] = counts.get(repository["status"], 0) + 1
    text = ", ".join(f"{n:,} {status}" for status, n in sorted(counts.items())) or "none"
    if run["finished_at"] is None:
        return Cell(f"{text} (not finished)", "yellow")
    return Cell(text, "bold red" if counts.keys() & {"failed", "uncertain"} else "")


def render_run(document: HistoryDocument, console: Console) -> None:
    """Print the first run of the document in full, with every value that it replaced."""
    page = Page(console)
    run = document["runs"][0]
    page.line(Cell(f"Run {run['run_id']}", "bold"), f"  {run['command']}")
    unfinished = "not recorded: the run was killed, or is still running"
    facts = {
        "by": ", ".join(f"{k} {run['by'][k]}" for k in ("user", "host", "pid") if k in run["by"]),
        "started": moment(run["started_at"]),
        "finished": unfinished if run["finished_at"] is None else moment(run["finished_at"]),
        "approved": _approval(run["approver"]),
        "job": ", ".join(run["ci"][key] for key in ("actor", "run_url") if key in run["ci"]),
        "request": run["ci"].get("pull_request", ""),
        "tree": _tree(run),
        "mark" if run["command"].startswith("sweep") else "plan": _followed(run),
        "force": "ETag checks were skipped (--force)" if run["force"] else "",
        "allowed": names(run["allowed"]),
    }
    page.facts(facts, lead_width=9)
    for text in run["overridden"]:
        page.hanging(Cell("override", "dim"), text, indent=2, lead_width=9)
    for repository in run["repositories"]:
        _entry_of_repository(page, repository)
    page.blank()
    page.line(f"{count_of(len(run['repositories']), 'repository')}.")


def _approval(approver: Mapping[str, str]) -> str:
    when = f" {moment(approver['at'])}" if approver.get("at") else ""
    why = f": {approver['reason']}" if approver.get("reason") else ""
    return f"by {approver['by']}{when}{why}" if approver.get("by") else ""


def _tree(run: RunRow) -> str:
    commit, digest = run["tree_commit"] or "", run["tree_digest"]
    state = {None: "", True: ", with uncommitted changes", False: ""}[run["tree_dirty"]]
    contents = (
        f", contents {digest[:12]}" if digest and commit else f"contents {digest[:12]}" if digest else ""
    )
    return f"{commit}{state}{contents}"


def _followed(run: RunRow) -> str:
    if run["plan_as_of"] is None:
        return ""
    return f"created {moment(run['plan_as_of'])}, digest {run['plan_digest'][:12]}"


def _entry_of_repository(page: Page, repository: RunRepository) -> None:
    status = repository["status"]
    page.blank()
    page.line(Cell(repository["repository"], "bold"), "  ", Cell(status, _HISTORY_STYLES.get(status, "")))
    if status == "pending":
        page.line(Cell(_PENDING, "yellow"), indent=2)
    if repository["message"]:
        page.line(repository["message"], indent=2)
    for side, rules in (("before", repository["before"]), ("after", repository["after"])):
        if repository["replaced"] and rules is None:
            page.dim(f"{_NO_RULES} {side}")
    arrow = Cell(page.arrow, "dim")
    rows: list[list[str | Cell]] = [
        [_name(c["path"]), _days(c["before"]), arrow, _days(c["after"])] for c in repository["changes"]
    ]
    if rows:
        page.table(("", "before", "", "after"), rows, figures=(1, 3))
    for setting in repository["settings"]:
        _setting(page, setting)
    if repository["counts"]:
        counts = ", ".join(f"{count(n)} {name.replace('_', ' ')}" for name, n in repository["counts"].items())
        page.line(counts, indent=2)
    for branch in repository["branches"]:
        outcome = branch["outcome"].replace("_", " ")
        page.line(Cell(branch["branch_id"], "bold"), f"  {outcome}, was at {branch['head'][:12]}", indent=4)


def _setting(page: Page, setting: ChangedSetting) -> None:
    status = setting["status"]
    label = SettingKind(setting["setting"]).label
    page.line(label, "  ", Cell(status, _HISTORY_STYLES.get(status, "")), indent=2)
    for change in setting["changes"]:
        sides = [side for side in (_side(change["before"]), _side(change["after"])) if side]
        text: list[str | Cell] = [Cell(change["item"], "bold")]
        for number, side in enumerate(sides):
            text += [" ", Cell(page.arrow, "dim"), " ", side] if number else ["  ", side]
        page.hanging(ITEM_MARKS[change["action"]], page.join(*text), indent=4)


def _side(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items() if key != "id")


_DOCTOR_STYLES = {"ok": "green", "warn": "bold yellow", "fail": "bold red"}


def render_doctor(document: DoctorDocument, console: Console) -> None:
    """Print every check, what to do about each check that is not ok, and the counts."""
    page = Page(console)
    area = ""
    for check in document["checks"]:
        if check["area"] != area:
            area = check["area"]
            page.heading(area)
        result = check["result"]
        lines = [page.join(Cell(check["check"], "bold"), f"  {check['message']}")]
        if check["hint"] and result != "ok":
            lines.append(page.join(Cell("hint: ", "dim"), check["hint"]))
        page.hanging(Cell(result, _DOCTOR_STYLES.get(result, "")), *lines, lead_width=4)
    summary = document["summary"]
    passed = f"{count(summary['ok'])} ok, {count_of(summary['warn'], 'warning')}"
    failed = f"{count(summary['fail'])} failed."
    page.total(f"Doctor ({document['for']}):", f"{passed}, {failed}")


def render_collector_runs(document: CollectorRunsDocument, console: Console) -> None:
    page = Page(console)
    for key, runs in document["repositories"].items():
        page.heading(key, "collections")
        if not runs:
            page.line("no runs are recorded", indent=2)
            continue
        rows = [
            (
                run["run_id"],
                run["by"] or "?",
                moment(run["started"]) if run["started"] else "",
                "" if run["objects"] is None else count(run["objects"]),
                _what(run),
            )
            for run in runs
        ]
        page.table(("run", "by", "began", "objects", ""), rows, figures=(3,), solid=(0,))
    for key, failure in document["failed"].items():
        page.heading(key, "not read")
        page.line(Cell("FAILED", "bold red"), f" {failure['message']}", indent=2)


def _what(run: CollectorRunRow) -> str:
    if run["note"]:
        return run["note"]
    if run["success"] is False:
        return "failed"
    return (
        "deletions reported"
        if run["by"] == "lakeplan"
        else "marked; the report does not state what was deleted"
    )


COLUMNS = (
    *("run_id", "command", "started_at", "finished_at", "user", "host", "actor"),
    *("approved_by", "approved_at", "approval_reason", "pull_request", "run_url"),
    *("tree_commit", "tree_dirty", "tree_digest", "plan_digest", "overridden", "force"),
    *("repository", "status", "message", "mark_id", "counts", "changes"),
)


def history_csv(document: HistoryDocument) -> str:
    """Return the history as CSV: a line for each repository of a run, or one line for a run or record without
    repositories."""
    rows = [
        _of_run(run) | of_repository
        for run in document["runs"]
        for of_repository in [_of_repository(one) for one in run["repositories"]] or [{}]
    ]
    rows += [{"run_id": key, "status": "damaged"} for key in document["damaged"]]
    return csv_text(COLUMNS, ([row.get(column) for column in COLUMNS] for row in rows))


def _of_run(run: RunRow) -> dict[str, object]:
    return {
        **{name: run.get(name) for name in COLUMNS},
        **{name: run["by"].get(name) for name in ("user", "host")},
        **{name: run["ci"].get(name) for name in ("actor", "pull_request", "run_url")},
        "approved_by": run["approver"].get("by"),
        "approved_at": run["approver"].get("at"),
        "approval_reason": run["approver"].get("reason"),
        "overridden": "; ".join(run["overridden"]),
    }


def _of_repository(repository: RunRepository) -> dict[str, object]:
    changes = [
        f"{c['path']} {_day_text(c['before'])} to {_day_text(c['after'])}" for c in repository["changes"]
    ]
    changes += [f"{c['action']} {c['item']}" for s in repository["settings"] for c in s["changes"]]
    changes += [f"{b['outcome']} {b['branch_id']} at {b['head']}" for b in repository["branches"]]
    return {
        "repository": repository["repository"],
        "status": repository["status"],
        "message": repository["message"],
        "mark_id": repository["mark_id"],
        "counts": "; ".join(f"{n} {name}" for name, n in repository["counts"].items()),
        "changes": "; ".join(changes),
    }


def _day_text(value: int | None) -> str:
    return "unset" if value is None else str(value)
