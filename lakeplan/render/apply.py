"""What an apply did, repository by repository (``schemas/apply.v1.json``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from lakeplan.render.amounts import count, counted
from lakeplan.render.page import Cell, Page, names
from lakeplan.render.plan_changes import MARKS

Json = Mapping[str, Any]

_DONE = {
    ("add", "applied"): "rules set",
    ("change", "applied"): "rules changed",
    ("clear", "applied"): "rules removed",
}
_SETTINGS = {"gc": "", "branch_lifecycle": "policies", "object_lifecycle": "object rules"}
_ALREADY = "already as planned"
_BRANCHES_SHOWN = 10


def render_apply(document: Json, console: Console) -> None:
    """Prints an apply report; failures come last before the sum, where they are seen."""
    page = Page(console)
    results = document["results"]
    done = [r for r in results if r["outcome"] not in ("failed", "uncertain")]
    if done:
        page.heading("Applied")
        page.table(("", "", "", "etag"), [_row(page, r) for r in done], solid=(0, 2, 3))
    _left_out(page, document)
    _elsewhere(page, document)
    _problems(page, "Failed", results, "the others went on; plan again to see where these stand")
    _problems(page, "Uncertain", results, "the server may have stored these; plan again to see")
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


def _row(page: Page, result: Json) -> list[str | Cell]:
    text = _DONE.get((result["action"], result["outcome"]), _ALREADY)
    if _SETTINGS[result["setting"]]:
        text = f"{_SETTINGS[result['setting']]} {text.removeprefix('rules ')}"
    if result["message"]:
        text += f": {result['message']}"
    etags = f"{result['before_etag'][:12]} {page.arrow} {result['after_etag'][:12]}"
    mark = MARKS.get(result["action"], Cell(" "))
    return [mark, result["repository"], Cell(text, "" if result["outcome"] == "already" else "green"), etags]


def _left_out(page: Page, document: Json) -> None:
    """What the tree asks for and this apply did not write, because nobody reviewed it."""
    if document["not_written"]:
        keys = document["not_written"]
        page.heading("Not written", "in the tree and not in the plan; plan again to have them reviewed")
        page.line(names(keys), indent=2)
    if document["unexpanded"]:
        page.heading("Unexpanded", "branches newer than the plan that a pattern of the tree matches")
        for key, branches in document["unexpanded"].items():
            text = f"{counted(len(branches), 'branch')}: {names(branches, _BRANCHES_SHOWN)}"
            page.hanging(Cell("!", "bold yellow"), page.join(Cell(f"{key}: ", "bold"), text))


def _what(result: Json) -> str:
    return f"{_SETTINGS[result['setting']]} {result['action']}".strip()


def _elsewhere(page: Page, document: Json) -> None:
    if document["elsewhere"]:
        page.heading("Enforced by lakeplan", "`lakeplan lifecycle run` deletes by these policies")
        page.line(names(document["elsewhere"]), indent=2)


def _problems(page: Page, title: str, results: Sequence[Json], note: str) -> None:
    """The results whose outcome is ``title``."""
    found = [r for r in results if r["outcome"] == title.lower()]
    if found:
        page.heading(title, note)
    for result in found:
        message = result["message"].removeprefix(f"{result['repository']}: ")
        lines = [page.join(Cell(result["repository"], "bold"), Cell(f"  ({_what(result)})", "dim"))]
        lines.append(page.join(message or "no reason was given"))
        if result["hint"]:
            lines.append(page.join(Cell("hint: ", "dim"), result["hint"]))
        page.hanging(Cell("x", "bold red"), *lines)
