"""The report of an apply as plain JSON data (``schemas/apply.v1.json``)."""

from __future__ import annotations

from typing import Any

from lakeplan.app.write import ApplyReport, Outcome
from lakeplan.errors import ExitCode

APPLY_FORMAT = "lakeplan.apply/v1"


def report_document(report: ApplyReport) -> dict[str, Any]:
    """Every repository's end, what was not written, and the counts."""
    return {
        "format": APPLY_FORMAT,
        "run_id": report.run_id,
        "results": [
            {
                "repository": r.repository,
                "action": r.action,
                "outcome": r.outcome.value,
                "before_etag": r.before_etag,
                "after_etag": r.after_etag,
                "message": r.message,
                "hint": r.hint,
                "exit_code": r.exit_code,
            }
            for r in report.results
        ],
        "not_written": list(report.not_written),
        "unexpanded": {key: list(branches) for key, branches in sorted(report.unexpanded.items())},
        "note": report.note,
        "summary": {o.value: sum(1 for r in report.results if r.outcome is o) for o in Outcome},
    }


def exit_code_of(report: ApplyReport) -> ExitCode:
    """3 when some failed; the error's own code when nothing else was to be done."""
    if not report.failed:
        return ExitCode.OK
    codes = {r.exit_code for r in report.failed}
    if len(report.failed) == len(report.results) and len(codes) == 1:
        return ExitCode(codes.pop())
    return ExitCode.PARTLY_DONE
