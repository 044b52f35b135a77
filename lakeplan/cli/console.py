"""The terminal: one console for results (stdout), one for people (stderr), and how errors look."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from lakeplan.cli.redaction import told
from lakeplan.errors import UsageError

LOG_LEVELS = ("debug", "info", "warning", "error")


def stdout(*, no_color: bool = False) -> Console:
    return Console(no_color=no_color or None, highlight=False, soft_wrap=False)


def stderr(*, no_color: bool = False) -> Console:
    return Console(stderr=True, no_color=no_color or None, highlight=False, soft_wrap=True)


def print_error(message: str, *, where: str = "", hint: str = "", problems: Sequence[str] = ()) -> None:
    """What, where, what to do: on stderr."""
    console = stderr()
    place = f"{escape(where)}: " if where else ""
    console.print(f"[bold red]error:[/] {place}{escape(message)}")
    for problem in problems:
        console.print(f"  {escape(problem)}")
    if hint:
        console.print(f"[bold]hint:[/] {escape(hint)}")


def configure_logging(level: str) -> None:
    """Logs go to stderr; libraries stay at warning unless debug was asked for."""
    if level not in LOG_LEVELS:
        raise UsageError(f"unknown log level {level!r}", hint=f"one of {', '.join(LOG_LEVELS)}")
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", force=True
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(_as_told)
    logging.getLogger("lakeplan").setLevel(level.upper())


def _as_told(record: logging.LogRecord) -> bool:
    """Under ``--redact-paths`` log lines are redacted as errors are."""
    record.msg, record.args = told(record.getMessage()), ()
    return True
