"""``--redact-paths``: which documents are redacted, and that the error messages of the same run are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from lakeplan.output.redact import redact_plan, redact_text, redacted

if TYPE_CHECKING:
    from lakeplan.values.plan import Plan


_ASKED: ContextVar[bool] = ContextVar("redact_paths", default=False)
"""Errors are told after the command has ended, where its options are not known any more."""


def remember(value: bool) -> bool:
    """The option's callback."""
    _ASKED.set(value)
    return value


def forget() -> None:
    """Before a command line is read."""
    _ASKED.set(False)


def told(text: str) -> str:
    """A message as it may be told."""
    return redact_text(text) if _ASKED.get() else text


def shown(document: Mapping[str, Any], *, redact: bool) -> dict[str, Any]:
    """A document as it goes out."""
    return redacted(document) if redact else dict(document)


def plan_shown(plan: Plan, *, redact: bool) -> tuple[Plan, Callable[[Mapping[str, Any]], dict[str, Any]]]:
    """The plan of the plan file, and what makes of its document the one to render."""
    if not redact:
        return plan, dict
    return redact_plan(plan), redacted
