"""Errors on their way from a worker to the driver."""

from __future__ import annotations

import json

from lakeplan import errors
from lakeplan.errors import FormatError, LakeplanError


def report_of(error: LakeplanError, where: str) -> str:
    """An error as text; ``where`` when it does not say itself."""
    report = {
        "kind": type(error).__name__,
        "message": error.message,
        "where": error.where or where,
        "hint": error.hint,
        "detail": error.detail,
    }
    return json.dumps(report)


def failure(report: str | bytes) -> LakeplanError:
    """The error a worker met, out of its report."""
    fields = json.loads(report)
    kind = getattr(errors, fields.pop("kind"), FormatError)
    error: LakeplanError = FormatError.__new__(kind)
    LakeplanError.__init__(error, **fields)
    return error
