"""The result of an apply as a comment on a pull request: how it ended first, then what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakeplan.output.markdown_plan import COMMENT_LIMIT, cut_lines, marker
from lakeplan.output.page import code, folded, length, names, prose, table
from lakeplan.output.text import count, counted

if TYPE_CHECKING:
    from lakeplan.plan.documents import ApplyDocument, ResultRow

_TITLES = {
    "applied": ":white_check_mark: applied",
    "nothing": ":white_check_mark: nothing to write",
    "partly": ":warning: **partly applied**",
    "failed": ":x: **not applied**",
    "refused": ":no_entry: **refused**, nothing was written",
    "stale": ":no_entry: **stale**, nothing was written",
}
_NEXT = {
    "partly": "Fix the cause, then run the job again: what is written already stays as it is.",
    "failed": "Fix the cause, then run the job again.",
    "refused": "Open a new pull request, so that the present plan is reviewed. To override a gate, list it"
    " under `overrides` in that pull request.",
    "stale": "Open a new pull request, so that the present plan is reviewed. It can be an empty commit: the"
    " tree is already merged.",
}
_SETTINGS = {"gc": "rules", "branch_lifecycle": "branch policies", "object_lifecycle": "object rules"}
_NAMES = 20


def render_apply_markdown(document: ApplyDocument, *, tree: str = "", limit: int = COMMENT_LIMIT) -> str:
    """The comment, never longer than ``limit``."""
    end = document["end"]
    where = f" for {code(tree)}" if tree else ""
    lines = [
        marker(tree, "apply"),
        f"**lakeplan**{where}: {_TITLES[end]}{_amounts(document)}",
        "",
        *_list("Why", document["refusals"]),
        *_to_do(document),
        *_problems(document["results"]),
        *_list("Planned again, because the servers changed since the review", document["planned_again"]),
    ]
    if document["planned_again"]:
        lines += ["Everything that this deletes was among what was reviewed.", ""]
    if document["not_written"]:
        keys = names(document["not_written"], _NAMES, code)
        lines += [f"In the tree and not in the plan, so not written: {keys}. Plan again to review them.", ""]
    if document["note"]:
        lines += [prose(document["note"]), ""]
    text = "\n".join(lines) + _done(document["results"]) + f"\n<sub>Run {code(document['run_id'])}.</sub>\n"
    return text if length(text) <= limit else cut_lines(text, limit)


def _amounts(document: ApplyDocument) -> str:
    summary = document["summary"]
    words = {
        "applied": "applied",
        "already": "already as planned",
        "failed": "failed",
        "uncertain": "uncertain",
    }
    parts = [f"{count(summary[k])} {word}" for k, word in words.items() if summary[k]]  # type: ignore[index]
    return f" ({', '.join(parts)})" if parts else ""


def _to_do(document: ApplyDocument) -> list[str]:
    advice = _NEXT.get(document["end"])
    if advice is None:
        return []
    hint = "" if document["end"] in ("stale", "refused") or not document["hint"] else prose(document["hint"])
    return [f"**What to do:** {hint or advice}", ""]


def _list(title: str, texts: Iterable[str]) -> list[str]:
    found = [f"- {prose(text)}" for text in texts]
    return [f"{title}:", "", *found, ""] if found else []


def _problems(results: Iterable[ResultRow]) -> list[str]:
    return _list(
        "Failed",
        (
            f"{r['repository']}, {_SETTINGS[r['setting']]}: {r['outcome']}: {r['message']}"
            + (f" {r['hint']}" if r["hint"] else "")
            for r in results
            if r["exit_code"]
        ),
    )


def _done(results: list[ResultRow]) -> str:
    rows = [
        (code(r["repository"]), _SETTINGS[r["setting"]], r["action"], r["outcome"])
        for r in results
        if not r["exit_code"]
    ]
    if not rows:
        return ""
    body = table(("repository", "setting", "change", "result"), rows)
    return folded(counted(len(rows), "setting"), body)
