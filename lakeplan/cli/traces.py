"""Tracebacks for ``--log-level debug``, and the text of unexpected errors, without credentials."""

from __future__ import annotations

import traceback
from types import TracebackType

from lakeplan.errors import LakeplanError

_SENDING = frozenset({"azure", "boto3", "botocore", "google", "http", "requests", "s3transfer", "urllib3"})
"""Packages whose errors quote what they send: headers with a token, URLs with a signature or a password."""
OMITTED = "(the text is omitted, because it may contain a credential)"


def text_of(error: BaseException) -> str:
    """Return the text of an error, or ``OMITTED`` if a library that sends credentials raised it."""
    if isinstance(error, LakeplanError):
        return str(error)
    sent = _package(type(error).__module__) in _SENDING or _passes(error.__traceback__)
    return OMITTED if sent else str(error)


def trace_of(error: BaseException) -> str:
    """Return the traceback of an error and of those that led to it, the first one first, like Python's."""
    parts: list[str] = []
    shown: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in shown:
        shown.add(id(cause))
        frames = "".join(traceback.format_tb(cause.__traceback__))
        parts.append(
            f"Traceback (most recent call last):\n{frames}{type(cause).__qualname__}: {text_of(cause)}"
        )
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "\n\nThe error above led to this one:\n\n".join(reversed(parts))


def _passes(trace: TracebackType | None) -> bool:
    """Return whether one of these packages was running."""
    while trace is not None:
        if _package(str(trace.tb_frame.f_globals.get("__name__", ""))) in _SENDING:
            return True
        trace = trace.tb_next
    return False


def _package(module: str) -> str:
    return module.partition(".")[0]
