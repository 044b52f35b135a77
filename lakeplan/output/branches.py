"""Renders plans, runs and undos of branch policies for terminals (``schemas/lifecycle.v1.json``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from lakeplan.output.plan_impact import gates_of, render_gates
from lakeplan.output.tables import Amount, Name, Table, volume_cells
from lakeplan.output.text import UNKNOWN, Cell, Money, Page, count, duration, moment, names, volume
from lakeplan.values.branches import MAX_STALE, NEVER_OBSERVED
from lakeplan.values.records import moment_in
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.branches import documents
    from lakeplan.values.documents import BranchEntry, FailureRow, Following, FollowsRow, Losses, OnlyHereRow

_REASONS = {
    "not_crossed": "not old enough yet",
    "default_branch": "the default branch",
    "no_creation_time": "no creation time is recorded",
    "read_only": "the repository is read-only",
    "no_policy": "no policy matches",
    "exempt": "exempt in the tree",
    "uncommitted": "uncommitted changes",
    "open_pull_request": "an open pull request",
    "protected": "protected on the server",
    "not_merged": "not merged into the default branch",
    "min_keep": "kept by min_keep",
    "held": "kept by a legal hold",
    "exempted": "exempted by `branches exempt`",
    "notice_due": "no notice has been given yet",
    "notice_given": "its notice period has not ended",
}
_WIDE = 100
"""Terminals of at least this width also show when a branch crossed its policy's thresholds."""
_MOMENTS = {
    "now": "now",
    "plus_7_days": "in 7 days",
    "plus_30_days": "in 30 days",
    "settled": "after the default retention",
}
_ENDS = {
    "deleted": Cell("deleted", "red"),
    "moved": Cell("kept: moved", "cyan"),
    "written": Cell("kept: written", "cyan"),
    "newly_kept": Cell("kept", "cyan"),
    "gone": Cell("already gone", "dim"),
    "not_reviewed": Cell("kept: not reviewed", "cyan"),
    "hook_refused": Cell("kept: a hook refused", "yellow"),
    "failed": Cell("FAILED", "bold red"),
    "uncertain": Cell("UNCERTAIN", "bold red"),
    "stopped": Cell("kept: stopped", "yellow"),
    "gate_refused": Cell("kept: a gate refused", "yellow"),
}


def render_branches_plan(document: documents.PlanDocument, console: Console) -> None:
    """Print the branches of every repository: those to delete, then those to keep and until when they are
    kept."""
    page = Page(console)
    for repository in document["repositories"]:
        page.heading(repository["repository"], _subtitle(repository))
        if repository["failure"]:
            _failure(page, repository["failure"])
            continue
        page.warnings(repository["warnings"])
        cost, branches = Money.of(repository), repository["branches"]
        deletion_table(page, [b for b in branches if b["verdict"] == "delete"], document["as_of"], cost)
        kept_table(page, [b for b in branches if b["verdict"] != "delete"], document["as_of"])
        render_follows(page, repository, cost)
        render_stale(page, branches, cost)
        _notes(page, repository)
    render_gates(page, gates_of(document))
    _not_ours(page, document)
    for caveat in document["caveats"]:
        page.dim(f"Idle ages: {caveat}.", indent=0)
    summary = document["summary"]
    failed = f", {count_of(summary['failed'], 'repository')} failed" if summary["failed"] else ""
    text = f"{count(summary['delete'])} to delete, {count(summary['keep'])} to keep{failed}."
    page.total("Branch plan:", f"{text} As of {moment(document['as_of'])}.")


def deletion_table(page: Page, branches: Sequence[BranchEntry], as_of: str, cost: Money) -> None:
    """Print the branches to delete: their policy, how long their commits are safe, and what expires then.
    Below the table, print what is lost with each branch. Empty columns are omitted."""
    if not branches:
        return
    wide = page.width >= _WIDE
    rows = [_deleted(b, as_of, cost, wide=wide) for b in branches]
    safe = "safe until" if any(b["safe_until"] for b in branches) else ""
    then = "then expire" if any(b["follows"] for b in branches) else ""
    headers = ("", "to delete", "age", "idle", "policy", "crossed" if wide else "", safe, then)
    page.table(headers, rows, figures=(2, 3), solid=(0, 5, 6))
    losses_of(page, branches)


def render_stale(page: Page, branches: Sequence[BranchEntry], cost: Money, limit: int | None = None) -> None:
    """Branches without recent writes, and what only they keep."""
    table = stale_table(branches, cost)
    if table.rows:
        which = count_of(len(table.rows), "stale branch")
        if len(table.rows) >= MAX_STALE:
            which = f"the {which} that have been idle the longest"
        page.line(
            Cell(f"{which}, and the committed data that each alone keeps (upper bounds)", "bold"),
            indent=2,
        )
    table.print_on(page, limit, solid=(1,), indent=4)
    page.rest(len(table.rows), limit, indent=4)


def stale_table(branches: Iterable[BranchEntry], cost: Money) -> Table:
    """Return the stale branches: first those whose data is unknown, then those that hold the most."""
    stale = [(only, branch) for branch in branches if (only := branch["only_here"]) is not None]
    stale.sort(key=lambda one: _holding_most(one[0], one[1]["branch_id"]))
    rows = [
        [
            Name(_name(branch)),
            Cell(_day(only["idle_since"])),
            Amount(only["commits"]),
            *volume_cells(only, cost),
        ]
        for only, branch in stale
    ]
    return Table(
        ("stale branch", "last commit", "commits", "objects", "bytes", *cost.header()), rows, names=2
    )


def _holding_most(only: OnlyHereRow, branch_id: str) -> tuple[bool, int, str, str]:
    known = only["size_bytes"] is not None
    return (known, -(only["size_bytes"] or 0), only["idle_since"], branch_id)


def losses_of(page: Page, branches: Sequence[BranchEntry]) -> None:
    """Print a line for every branch whose deletion loses something."""
    for branch in branches:
        if losses(branch):
            text = f"  has {', '.join(losses(branch))}"
            page.hanging(Cell("-", "bold red"), page.join(Cell(branch["branch_id"], "bold"), text), indent=2)


def kept_table(page: Page, branches: Sequence[BranchEntry], as_of: str) -> None:
    """Print the branches that are kept, why, and until when."""
    if branches:
        headers = ("", "kept", "age", "idle", "because", "deleted at")
        page.table(headers, [_kept(b, as_of) for b in branches], figures=(2, 3), solid=(0,))


def _subtitle(repository: documents.PlannedRepository) -> str:
    since = repository["observed_since"]
    return f"observed since {moment(since)}" if since else ""


def _age(since: str | None, until: str) -> str:
    if since is None:
        return UNKNOWN
    seconds = (moment_in(until) - moment_in(since)).total_seconds()
    return duration(max(seconds, 0.0))


def _deleted(branch: BranchEntry, as_of: str, cost: Money, *, wide: bool) -> list[str | Cell]:
    return [
        Cell("-", "bold red"),
        _name(branch),
        _age(branch["created"], as_of),
        _age(branch["last_write"], as_of),
        branch["policy"] or "",
        _day(branch["since"]) if wide else "",
        Cell(_day(branch["safe_until"]), "yellow" if (branch["safe_until"] or as_of) < as_of else ""),
        expires_then(branch["follows"], cost),
    ]


def _day(time: str | None) -> str:
    return moment(time)[:10] if time else ""


def expires_then(follows: FollowsRow | None, cost: Money) -> str:
    """Return the commits, objects and bytes that nothing keeps once the branch is deleted."""
    if follows is None:
        return ""
    if not follows["commits"]:
        return "nothing"
    commits = count_of(follows["commits"], "commit")
    if follows["objects"] is None or follows["size_bytes"] is None:
        return f"{commits}, objects {UNKNOWN}"
    return f"{commits}, {volume(follows, cost)}"


def _kept(branch: BranchEntry, as_of: str) -> list[str | Cell]:
    return [
        " ",
        _name(branch),
        _age(branch["created"], as_of),
        _age(branch["last_write"], as_of),
        _because(branch),
        _deleted_at(branch),
    ]


def _deleted_at(branch: BranchEntry) -> str:
    """Return when a kept branch is deleted. A branch that was never observed has no date, because its age
    does not count yet."""
    if not branch["due"]:
        return ""
    return "not observed yet" if NEVER_OBSERVED in branch["notes"] else moment(branch["due"])


def losses(branch: Losses) -> list[str]:
    """Return what is lost if a branch is deleted."""
    words = []
    if branch["uncommitted"]:
        more = "+" if branch["uncommitted_more"] else ""
        changes = "change" if branch["uncommitted"] == 1 and not more else "changes"
        words.append(f"{count(branch['uncommitted'])}{more} uncommitted {changes}")
    if branch["pulls"]:
        words.append(f"open {_these('pull request', branch['pulls'])}")
    if branch["tags"]:
        words.append(_these("tag", branch["tags"]))
    return words


def _these(noun: str, shown: Sequence[str]) -> str:
    return f"{noun}{'s' * (len(shown) > 1)} {names(shown, 3)}"


def reason_of(branch: BranchEntry) -> str:
    """Return why a branch is kept, without its policy."""
    return _REASONS.get(branch["reason"], branch["reason"])


def _because(branch: BranchEntry) -> str:
    text = reason_of(branch)
    if branch["reason"] == "not_crossed":
        return f"{branch['policy']} {text}"
    if branch["reason"] in ("default_branch", "no_policy", "no_creation_time", "read_only"):
        return text
    return f"{text} (otherwise, policy {branch['policy']} would delete it)" if branch["policy"] else text


def _name(branch: BranchEntry | documents.RunBranch | documents.UndoneBranch) -> str:
    return f"{branch['branch_id']} (hidden)" if branch["hidden"] else branch["branch_id"]


def render_follows(page: Page, repository: Following, cost: Money) -> None:
    """Print the data that expires because of all deletions together."""
    if not repository["totals"]:
        return
    page.line(
        Cell("Data that expires after these deletions, assuming no new commits (upper bounds)", "bold"),
        indent=2,
    )
    follows_table(repository, cost).print_on(page, indent=4)
    if repository["objects_unknown"]:
        page.line(
            Cell(f"the objects that expire are unknown: {repository['objects_unknown']}", "yellow"), indent=4
        )


def follows_table(repository: Following, cost: Money) -> Table:
    """Return the data that expires by each moment because branches are deleted."""
    rows = [
        [
            Cell(f"{_MOMENTS[at]} ({_day(total['as_of'])})"),
            Amount(total["commits"]),
            *volume_cells(total, cost),
        ]
        for at, total in repository["totals"].items()
    ]
    return Table(("by", "commits", "objects", "bytes", *cost.header()), rows)


def _notes(page: Page, repository: documents.PlannedRepository) -> None:
    texts: dict[str, list[str]] = {}
    for branch in repository["branches"]:
        for note in branch["notes"]:
            texts.setdefault(note, []).append(branch["branch_id"])
    for text in repository["blind_to"]:
        texts.setdefault(f"not included: {text}", [])
    for text, branches in texts.items():
        lead = f"{names(branches, 5)}: " if branches else ""
        page.hanging(Cell("i", "cyan"), page.join(Cell(lead, "bold"), text), indent=2)


def _not_ours(page: Page, document: documents.PlanDocument | documents.RunDocument) -> None:
    if document["not_ours"]:
        text = "the server deletes branches of these repositories itself (engine: server)"
        page.heading("Not covered", text)
        page.line(names(document["not_ours"], 20), indent=2)


def _failure(page: Page, failure: FailureRow) -> None:
    record = f"{failure['where']}: " if ".json" in failure["where"] else ""
    text = page.join(Cell("failed: ", "bold red"), record + failure["message"])
    page.failure(text, hint=failure["hint"], indent=2)


def render_branches_run(document: documents.RunDocument, console: Console) -> None:
    """Print what a run did, branch by branch."""
    page = Page(console)
    for repository in document["repositories"]:
        parts = (repository["branches"], repository["noticed"], repository["failure"], repository["warnings"])
        if not any(parts):
            continue
        counted = repository["kept"] or not repository["failure"]
        page.heading(
            repository["repository"], f"{count_of(repository['kept'], 'branch')} kept" if counted else ""
        )
        page.warnings(repository["warnings"])
        rows: Sequence[Sequence[str | Cell]] = [
            [_name(b), b["commit_id"][:12], b["policy"] or "", _ENDS[b["outcome"]], b["message"]]
            for b in repository["branches"]
        ]
        if rows:
            page.table(("branch", "HEAD", "policy", "", ""), rows, solid=(1, 3))
        given: Sequence[Sequence[str | Cell]] = [
            [n["branch_id"], n["commit_id"][:12], n["policy"] or "", n["channel"], moment(n["deleted_from"])]
            for n in repository["noticed"]
        ]
        if given:
            headers = ("notice given", "HEAD", "policy", "channel", "deleted from")
            page.table(headers, given, solid=(1, 4))
        if repository["failure"]:
            _failure(page, repository["failure"])
    render_gates(page, gates_of(document))
    _not_ours(page, document)
    summary = document["summary"]
    errors = summary["repositories_failed"]
    failed = f", {count_of(errors, 'repository')} failed" if errors else ""
    noticed = f", notice given for {count_of(summary['noticed'], 'branch')}" if summary["noticed"] else ""
    text = f"{count(summary['deleted'])} deleted, {count(summary['kept'])} kept{noticed}{failed}."
    page.total("Branch run:", f"{text} Run {document['run_id']}.")


def render_branches_undo(document: documents.UndoDocument, console: Console) -> None:
    """Print which branches were restored and which could not be restored."""
    page = Page(console)
    for repository in document["repositories"]:
        page.heading(repository["repository"], f"run {repository['of_run']} of {moment(repository['at'])}")
        for branch in repository["branches"]:
            _undone(page, branch)
        if repository["failure"]:
            _failure(page, repository["failure"])
    summary = document["summary"]
    text = f"{count(summary['restored'])} restored, {count(summary['exists'])} already existed, "
    uncertain = f", {count(summary['uncertain'])} uncertain" if summary["uncertain"] else ""
    text += f"{count(summary['failed'])} failed{uncertain}."
    page.total("Branch undo:", text)


def render_exemption(document: documents.ExemptionDocument, console: Console) -> None:
    """Print what was recorded, and how to remove it."""
    page = Page(console)
    name = f"{document['repository']} {document['branch_id']}"
    if document["removed"]:
        page.total("Exemption removed:", f"{name}. The policies that match the branch apply to it again.")
        return
    text = f"{name} until {moment(document['until'])}. To end the exemption, run the command with --remove."
    page.total("Exempt:", text)


def _undone(page: Page, branch: documents.UndoneBranch) -> None:
    restored = branch["outcome"] == "restored"
    style = {"restored": "green", "exists": "dim"}.get(branch["outcome"], "bold red")
    at = f" at {branch['commit_id'][:12]}" if restored else ""
    lines = [page.join(Cell(_name(branch), "bold"), Cell(f"  {branch['outcome']}", style), at)]
    lines += [page.join(text) for text in (branch["message"], *branch["warnings"]) if text]
    if restored:
        until = branch["safe_until"]
        text = (
            f"its commits were safe until {moment(until)}" if until else "no GC rules were set at that time"
        )
        lines.append(page.join(Cell(text, "dim")))
    page.hanging(Cell("+" if restored else " ", "green"), *lines, indent=2)


def with_losses(fate: Any) -> str:
    """Return a branch that a server's job deletes, and what is lost with it."""
    lost = losses(fate)
    return str(fate["branch_id"]) + (f" ({', '.join(lost)})" if lost else "")
