"""A plan, and the report of its apply, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from lakeplan.output import plan_changes, plan_impact
from lakeplan.output.plan_changes import MARKS, render_changes, render_weakened
from lakeplan.output.plan_impact import writing
from lakeplan.output.text import Cell, Json, Page, count, moment, names, size, sums
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.plan.documents import ApplyDocument, ResultRow


def render_plan(document: Json, console: Console) -> None:
    """Print a plan, which ends with a summary."""
    page = Page(console)
    repositories = document["repositories"]
    if document.get("what_if"):
        page.line(Cell("What if", "bold yellow"), f" {what_if(document)}")
    render_weakened(page, document)
    render_changes(page, document)
    plan_changes.render_setting_changes(page, writing(document))
    plan_changes.render_pins(page, document)
    plan_changes.render_branches(page, document)
    plan_changes.render_run_branches(page, document)
    plan_impact.render_impact(page, document)
    plan_impact.render_backlog(page, document)
    plan_impact.render_gates(page, plan_impact.gates_of(document))
    plan_impact.render_warnings(page, repositories, document["warnings"])
    plan_impact.render_adopted(page, document)
    plan_impact.render_failures(page, repositories)
    plan_impact.render_unmanaged(page, document)
    page.blank()
    if writing(document) or document["targets"]:
        page.dim(f"{', '.join(circumstances(document))}.", indent=0)
    _summary(page, document)


def what_if(document: Json, form: Callable[[str], str] = str) -> str:
    """Return the assumptions of a plan with ``--set``, or "" for other plans."""
    assumed = " and ".join(form(text) for text in document.get("what_if") or ())
    return assumed and f"{assumed}? The tree does not contain this change, so this plan cannot be applied."


def circumstances(document: Json, form: Callable[[str], str] = str, limit: int | None = None) -> list[str]:
    """Return when, how and from which tree the plan was made, with names in their ``form``."""
    parts = [f"As of {moment(document['as_of'])}"]
    if document["tree_commit"]:
        parts.append(f"tree commit {form(document['tree_commit'][:12])}")
    if document["base"]:
        parts.append(f"base {form(document['base'][:12])}")
    if document["targets"]:
        parts.append(f"only {names(document['targets'], limit, form)}")
    if document["read_only"]:
        parts.append("read only")
    if document["simulate"] == "none":
        parts.append("not simulated")
    used = [gate["opens_with"] for gate in plan_impact.gates_of(document) if gate["outcome"] == "allowed"]
    for title, has_effect in (("allowed", True), ("--allow without effect", False)):
        if flags := [f for f in document["allowed"] if (f"--allow {f}" in used) is has_effect]:
            parts.append(f"{title}: {names(flags, limit, form)}")
    return parts


def _summary(page: Page, document: Json) -> None:
    """Print the summary on one line if it fits, and otherwise each of its parts on a separate line."""
    parts = summary_parts(document)
    whole = Text(" ").join(page.join(*part) for part in parts)
    if whole.cell_len <= page.width:
        page.show(whole)
        return
    for part in parts:
        page.line(*part)


def summary_parts(document: Json) -> list[list[str | Cell]]:
    """``Plan: 2 to add, 1 to change, 0 to clear, 5 unchanged.``, ``Impact: …`` and ``BLOCKED by …``."""
    summary = document["summary"]
    failed = f", {count(summary['failed'])} failed" if summary["failed"] else ""
    if not (summary["add"] or summary["change"] or summary["clear"]):
        text = f" no changes, {count(summary['unchanged'])} unchanged{failed}."
        parts: list[list[str | Cell]] = [[Cell("Plan:", "bold"), text]]
    else:
        text = (
            f" {count(summary['add'])} to add, {count(summary['change'])} to change,"
            f" {count(summary['clear'])} to clear, {count(summary['unchanged'])} unchanged{failed}."
        )
        parts = [[Cell("Plan:", "bold"), text], [Cell("Impact:", "bold"), " ", *_impact(document)]]
    unread = sum(bool(r["lifecycle"] and r["lifecycle"]["unknown"]) for r in document["repositories"])
    if summary["branches_delete"] is not None:
        parts.append([Cell("Branches:", "bold"), _branches(document)])
    if unread:
        unknown = Cell(f"UNKNOWN in {count_of(unread, 'repository')}", "bold red")
        parts.append([Cell("Branches to delete:", "bold"), " ", unknown, "."])
    gates = plan_impact.gates_of(document)
    if refused := dict.fromkeys(gate["gate"] for gate in gates if gate["outcome"] == "refused"):
        parts.append([Cell(f"BLOCKED by {', '.join(refused)}.", "bold red")])
    return parts


def summary_text(document: Json) -> str:
    """The summary as one line of plain text."""
    parts = summary_parts(document)
    return " ".join("".join(p.text if isinstance(p, Cell) else p for p in part) for part in parts)


def _branches(document: Json) -> str:
    """The branches that the next ``branches run`` deletes, and the data that then expires."""
    summary = document["summary"]
    going, keep = summary["branches_delete"], f"{count(summary['branches_keep'])} kept"
    later = sum(map(plan_changes.deleted_later, plan_changes.with_branches(document["repositories"])))
    if later:
        keep += f", {count(later)} of them for at most 30 days"
    if not going:
        return f" none to delete{' now' if later else ''}, {keep}."
    text = f" {count(going)} to be deleted by `lakeplan branches run`, {keep}"
    if summary["objects_follow"] is None:
        return f"{text}; the data that expires as a result is unknown."
    if not summary["objects_follow"]:
        return f"{text}; no objects expire as a result."
    objects = count_of(summary["objects_follow"], "object")
    return f"{text}; {objects}, {size(summary['bytes_follow'])} expire as a result."


def _impact(document: Json) -> list[str | Cell]:
    """Return the data that expires now, the most data that expires later if that is more, and the data at
    risk."""
    summary = document["summary"]
    horizons, costs = [r["impact"]["horizons"] for r in writing(document)], summary["cost_expire"]

    def total(moment: str, figure: str) -> int:
        return sum(known[moment][figure] or 0 for known in horizons if moment in known)

    text = f"{count_of(summary['objects_expire'], 'object')}, {size(summary['bytes_expire'])}"
    text += sums(costs, "per_month")
    if later := plan_impact.worst_later(
        {name: total(name, "objects_expire") for name in plan_impact.HORIZONS}
    ):
        cost = sums(costs, "per_month_plus_30_days") if later == "plus_30_days" else ""
        text += (
            f" ({count_of(total(later, 'objects_expire'), 'object')}, {size(total(later, 'bytes_expire'))}"
            f"{cost} {plan_impact.HORIZONS[later]})"
        )
    if summary["objects_at_risk"]:
        text += f", {count_of(summary['objects_at_risk'], 'object')} at risk"
    if summary["impact_known"]:
        return [f"{text}."]
    unknown = Cell(f"UNKNOWN in {count_of(summary['impact_unknown'], 'repository')}", "bold red")
    everywhere = summary["impact_unknown"] == summary["add"] + summary["change"] + summary["clear"]
    return [unknown, "." if everywhere else f"; elsewhere {text}."]


SETTINGS = {
    "gc": "rules",
    "pins": "pins",
    "branch_lifecycle": "branch policies",
    "object_lifecycle": "object rules",
}
"""The subject of a result of an apply."""
_DONE = {"add": "set", "change": "changed", "clear": "removed"}
_BRANCHES_SHOWN = 10


def render_apply(document: ApplyDocument, console: Console) -> None:
    """Print the report of an apply. Failures come just before the summary, where people notice them."""
    page = Page(console)
    results = document["results"]
    done = [r for r in results if r["outcome"] not in ("failed", "uncertain")]
    if done:
        page.heading("Applied")
        page.table(("", "", "", "etag"), [_row(page, r) for r in done], solid=(0, 2, 3))
    if document["planned_again"]:
        page.heading(
            "Planned again",
            "the servers have changed since the plan, but all deletions were reviewed",
        )
        page.warnings(document["planned_again"])
    _left_out(page, document)
    _elsewhere(page, document)
    others = "all other changes were applied" if done else "nothing was applied"
    if not done and document["end"] == "partly":
        others = "some changes may have been applied"
    if any(r["outcome"] == "uncertain" for r in results):
        others = "other changes may have been applied"
    _problems(page, "Failed", results, f"{others}; plan again to see the current state")
    _problems(page, "Uncertain", results, "the server may have stored these changes; plan again to check")
    if document["note"]:
        page.blank()
        page.hanging(Cell("!", "bold red"), document["note"])
    summary = document["summary"]
    page.blank()
    failed = f"{count(summary['failed'])} failed"
    uncertain = f", {count(summary['uncertain'])} uncertain" if summary["uncertain"] else ""
    page.line(
        Cell("Apply:", "bold"),
        f" {count(summary['applied'])} applied, {count(summary['already'])} already as planned, ",
        Cell(failed, "bold red" if summary["failed"] else ""),
        Cell(uncertain, "bold red"),
        f". Run {document['run_id']}.",
    )


def _row(page: Page, result: ResultRow) -> list[str | Cell]:
    done = _DONE.get(result["action"]) if result["outcome"] == "applied" else None
    text = f"{SETTINGS[result['setting']]} {done or 'already as planned'}"
    if result["message"]:
        text += f": {result['message']}"
    etags = f"{result['before_etag'][:12]} {page.arrow} {result['after_etag'][:12]}"
    mark = MARKS.get(result["action"], Cell(" "))
    return [mark, result["repository"], Cell(text, "" if result["outcome"] == "already" else "green"), etags]


def _left_out(page: Page, document: ApplyDocument) -> None:
    """Print what the tree requires but this apply did not write, because it was not reviewed."""
    if document["not_written"]:
        keys = document["not_written"]
        page.heading("Not written", "in the tree but not in the plan; plan again to have them reviewed")
        page.line(names(keys), indent=2)
    if document["unexpanded"]:
        page.heading(
            "Unexpanded", "branches that were created after the plan and match a pattern in the tree"
        )
        for key, branches in document["unexpanded"].items():
            text = f"{count_of(len(branches), 'branch')}: {names(branches, _BRANCHES_SHOWN)}"
            page.hanging(Cell("!", "bold yellow"), page.join(Cell(f"{key}: ", "bold"), text))


def _elsewhere(page: Page, document: ApplyDocument) -> None:
    if document["elsewhere"]:
        page.heading("Enforced by lakeplan", "`lakeplan branches run` deletes branches by these policies")
        page.line(names(document["elsewhere"]), indent=2)


def _problems(page: Page, title: str, results: Sequence[ResultRow], note: str) -> None:
    """The results whose outcome is ``title``."""
    matching = [r for r in results if r["outcome"] == title.lower()]
    if matching:
        page.heading(title, note)
    for result in matching:
        message = result["message"].removeprefix(f"{result['repository']}: ")
        what = f"{SETTINGS[result['setting']]}: {result['action']}"
        about = page.join(Cell(result["repository"], "bold"), Cell(f"  ({what})", "dim"))
        page.failure(about, message or "no reason was given", hint=result["hint"])
