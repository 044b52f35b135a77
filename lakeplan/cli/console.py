"""The terminal: one console for results (stdout), one for people (stderr), and how errors look."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from lakeplan.errors import UsageError

LOG_LEVELS = ("debug", "info", "warning", "error")


def stdout(*, no_color: bool = False) -> Console:
    return Console(no_color=no_color or None, highlight=False, soft_wrap=False)


def stderr(*, no_color: bool = False) -> Console:
    return Console(stderr=True, no_color=no_color or None, highlight=False, soft_wrap=True)


def print_error(message: str, *, where: str = "", hint: str = "", problems: Sequence[str] = ()) -> None:
    """What, where, what to do: on stderr."""
    console = stderr()
    place = f"{where}: " if where else ""
    say(console, Text.assemble(("error:", "bold red"), f" {place}{message}"))
    for problem in problems:
        say(console, f"  {problem}")
    if hint:
        say(console, Text.assemble(("hint:", "bold"), f" {hint}"))


def say(console: Console, line: str | Text) -> None:
    """Prose for people. On a terminal its words are wrapped, what goes on is indented, and a path or URL that
    is longer than a line stays whole; elsewhere every line stays one, for grep and logs."""
    text = line if isinstance(line, Text) else Text(line)
    if not console.is_terminal:
        console.print(text, soft_wrap=True)
        return
    for part in text.split("\n", allow_blank=True):
        indent = len(part.plain) - len(part.plain.lstrip(" ")) + 2
        wrapped = part.wrap(console, max(console.width - indent, 20), overflow="ignore")
        for number, row in enumerate(wrapped):
            row.rstrip()
            console.print(Text(" " * indent).append_text(row) if number else row, soft_wrap=True)


def configure_logging(level: str) -> None:
    """Logs go to stderr; libraries stay at warning unless debug was asked for."""
    if level not in LOG_LEVELS:
        raise UsageError(f"unknown log level {level!r}", hint=f"one of {', '.join(LOG_LEVELS)}")
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", force=True
    )
    logging.getLogger("lakeplan").setLevel(level.upper())
