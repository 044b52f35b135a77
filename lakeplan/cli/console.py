"""The terminal: one console for results (stdout), one for people (stderr), and how errors look."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Sequence
from contextvars import ContextVar
from textwrap import wrap
from types import TracebackType

import typer
from rich.console import Console
from rich.text import Text

from lakeplan.errors import LakeplanError, UsageError
from lakeplan.output.redact import redact_text
from lakeplan.output.text import safe_lines

LOG_LEVELS = ("debug", "info", "warning", "error")


_REDACTS: ContextVar[bool] = ContextVar("redact_paths", default=False)
"""Whether ``--redact-paths`` was given. Errors are printed after the command, which has its options."""


def remember_redaction(value: bool) -> None:
    _REDACTS.set(value)


def redacted_message(text: str) -> str:
    """A message as it may be shown: redacted with ``--redact-paths``."""
    return redact_text(text) if _REDACTS.get() else text


def stdout(*, no_color: bool = False) -> Console:
    return Console(no_color=no_color or None, highlight=False, soft_wrap=False)


def stderr(*, no_color: bool = False) -> Console:
    return Console(stderr=True, no_color=no_color or None, highlight=False, soft_wrap=True)


def print_error(message: str, *, where: str = "", hint: str = "", problems: Sequence[str] = ()) -> None:
    """Prints an error with its place and hint on stderr."""
    console = stderr()
    place = f"{where}: " if where else ""
    say(console, _indented(f"error: {place}{message}"), label=("error:", "bold red"))
    for problem in problems:
        say(console, _indented(f"  {problem}"))
    if hint:
        say(console, _indented(f"hint: {hint}"), label=("hint:", "bold"))


def require_terminal(command: str, *, hint: str = "Add --auto-approve.") -> None:
    """Raises UsageError if there is no terminal to ask the command's question at."""
    if not sys.stdin.isatty():
        raise UsageError(f"{command} needs confirmation, but there is no terminal", hint=hint)


def confirm(question: str, *, otherwise: str, no_color: bool) -> bool:
    """Asks a question. Returns whether the answer is the word yes; if it is not, prints ``otherwise``."""
    if typer.prompt(question, default="", show_default=False).strip() == "yes":
        return True
    stderr(no_color=no_color).print(otherwise)
    return False


def _indented(text: str) -> str:
    """Indents further lines of a message, so that none can look like a separate message."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(line if line.startswith("  ") else f"  {line}" for line in rest)])


def say(console: Console, text: str, *, label: tuple[str, str] | None = None) -> None:
    """Prints text for people, which may quote untrusted input. ``label`` is the beginning of the text and its
    style. On a terminal words are wrapped, further lines are indented, and a path or URL longer than a line
    is not cut. Elsewhere no line is wrapped, for grep and logs."""
    lines = safe_lines(text, console.encoding).split("\n")
    if console.file.isatty():
        lines = [row for line in lines for row in _wrapped(line, console.width)]
    for number, line in enumerate(lines):
        shown = Text(line)
        if label is not None and not number:
            shown.stylize(label[1], 0, len(label[0]))
        console.print(shown, soft_wrap=True)


def _wrapped(line: str, width: int) -> list[str]:
    indent = len(line) - len(line.lstrip(" ")) + 2
    return wrap(
        line, max(width, 40), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


def configure_logging(level: str) -> None:
    """Sends logs to stderr. Libraries log warnings only, unless debug was requested."""
    if level not in LOG_LEVELS:
        raise UsageError(f"unknown log level {level!r}", hint=f"Use one of {', '.join(LOG_LEVELS)}.")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_SafeFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("lakeplan").setLevel(level.upper())


class _SafeFormatter(logging.Formatter):
    """Cleans and redacts log lines like errors, because they also quote servers and libraries."""

    def format(self, record: logging.LogRecord) -> str:
        first, *rest = redacted_message(super().format(record)).split("\n")
        return safe_lines("\n".join([first, *(f"  {line}" for line in rest)]))


# ---- tracebacks and unexpected errors, without credentials
_SENDING = frozenset(
    {"azure", "boto3", "botocore", "google", "http", "requests", "s3transfer", "urllib", "urllib3"}
)
"""Packages whose errors quote what they send or read: headers with a token, URLs with a signature or a
password."""
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
