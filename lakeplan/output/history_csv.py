"""The history as CSV: a line for each run and repository, for auditors and spreadsheets."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from lakeplan.output.text import safe

if TYPE_CHECKING:
    from lakeplan.review.history import HistoryDocument, RunRepository, RunRow

COLUMNS = (
    "run_id",
    "command",
    "started_at",
    "finished_at",
    "user",
    "host",
    "actor",
    "approved_by",
    "approved_at",
    "approval_reason",
    "pull_request",
    "run_url",
    "tree_commit",
    "tree_dirty",
    "tree_digest",
    "plan_digest",
    "overridden",
    "force",
    "repository",
    "status",
    "message",
    "mark_id",
    "counts",
    "changes",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def history_csv(document: HistoryDocument) -> str:
    """With a header. A run without repositories has one line. So has a damaged record, with its key."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in document["runs"]:
        rows = [_of_repository(repository) for repository in run["repositories"]]
        for row in rows or [{}]:
            values = {**_of_run(run), **row}
            writer.writerow(_cell(values.get(column)) for column in COLUMNS)
    for key in document["damaged"]:
        values = {"run_id": key, "status": "damaged"}
        writer.writerow(_cell(values.get(column)) for column in COLUMNS)
    return text.getvalue()


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
    changes = [f"{c['path']} {_days(c['before'])} to {_days(c['after'])}" for c in repository["changes"]]
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


def _days(value: int | None) -> str:
    return "unset" if value is None else str(value)


def _cell(value: object) -> str:
    """What no spreadsheet takes for a formula."""
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else safe(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text
