"""Who runs a command, and when."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from lakeplan.cli.git import head_of
from lakeplan.errors import UsageError
from lakeplan.review.run import Run


def parse_time(text: str) -> datetime:
    """ISO 8601 (UTC unless it says otherwise) or epoch seconds, as an aware UTC datetime.

    Raises UsageError for anything else.
    """
    try:
        return datetime.fromtimestamp(float(text), tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        pass
    try:
        moment = datetime.fromisoformat(text.strip().replace("z", "Z"))
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time",
            hint="Use ISO 8601, for example 2026-03-31T12:00:00Z, or epoch seconds.",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.astimezone(timezone.utc)


def now_utc() -> datetime:
    """The clock of a run, read here and nowhere below."""
    return datetime.now(tz=timezone.utc)


def moment_of(as_of: str | None) -> datetime:
    """The moment of a run: what ``--as-of`` says, or now. Raises UsageError."""
    return now_utc() if as_of is None else parse_time(as_of)


def this_run(tree: Path) -> Run:
    """A run of this process: a new id, who and where, and the tree's commit."""
    return Run(
        run_id=new_run_id(now_utc()),
        holder={"user": _user(), "host": socket.gethostname(), "pid": os.getpid(), "machine": _machine()},
        now=now_utc,
        is_gone=is_gone,
        tree_commit=head_of(tree),
    )


def new_run_id(now: datetime) -> str:
    """Sorts by time, to the microsecond: two runs in one second keep their order. Unique within it."""
    return f"{now.astimezone(timezone.utc):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(4)}"


def new_mark_id(now: datetime) -> str:
    """Short enough to be copied from a narrow terminal; sorts by time, to the second."""
    return f"{now.astimezone(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def is_gone(holder: Mapping[str, Any]) -> bool:
    """Whether a lease's process ran on this machine and does not any more. False when that cannot be told:
    host names repeat among containers, so the machine's boot and process namespace decide."""
    pid, machine = holder.get("pid"), _machine()
    if not machine or holder.get("machine") != machine or not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _machine() -> str:
    """Tells one boot of one machine, and one process namespace in it, from all others; "" when it cannot be
    told (no Linux)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # No name for this user id, as in many containers.
        return str(os.getuid())
