"""The process of a command: who runs it and when, how it stops, and whether its state outlives it."""

from __future__ import annotations

import getpass
import math
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from lakeplan.cli.git import head_of, is_dirty
from lakeplan.errors import UsageError
from lakeplan.review.run import Run
from lakeplan.values.records import LAST_YEAR

if TYPE_CHECKING:
    from lakeplan.tree.tree import Tree


_MOST = 300
"""Characters of one text from the environment."""
_CALENDAR = re.compile(
    r"\d{4}(?:\d{2}|\d{4}|\d{8})?|20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[01]\d|2[0-3])"
)
"""A year, month, date, hour or minute, such as 2026033112. Nobody means such seconds: they are in the years
1970 to 1973, or after 2032."""


def parse_time(text: str) -> datetime:
    """Parse ISO 8601 (UTC if it names no time zone) or epoch seconds into an aware UTC datetime.

    Raises UsageError for anything else.
    """
    moment = None
    if not _CALENDAR.fullmatch(text.strip()):
        with suppress(ValueError, OverflowError, OSError):
            moment = datetime.fromtimestamp(float(text), tz=timezone.utc)
    if moment is None:
        with suppress(ValueError):
            moment = datetime.fromisoformat(text.strip().replace("z", "Z"))
    if moment is None or not 1 < moment.year < LAST_YEAR:  # calculations fail at the ends of the calendar
        raise UsageError(
            f"{text!r} is not a valid time",
            hint="Use ISO 8601, for example 2026-03-31T12:00:00Z, or epoch seconds.",
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.astimezone(timezone.utc)


def now_utc() -> datetime:
    """The clock of a run. The rooms below never read a clock."""
    return datetime.now(tz=timezone.utc)


def moment_of(as_of: str | None) -> datetime:
    """The moment of a run: what ``--as-of`` says, or now. Raises UsageError."""
    return now_utc() if as_of is None else parse_time(as_of)


def this_run(folder: Path, tree: Tree | None = None) -> Run:
    """The run of this process: a new id, who runs it and where, and the commit of the tree in ``folder``. If
    ``tree``, the same tree when loaded, is given, the run also says whether it differs from the commit."""
    return Run(
        run_id=new_run_id(now_utc()),
        holder={"user": _user(), "host": socket.gethostname(), "pid": os.getpid(), "machine": _machine()},
        now=now_utc,
        is_gone=is_gone,
        tree_commit=head_of(folder),
        tree_dirty=None if tree is None else is_dirty(folder, tree.contents),
        tree_digest=None if tree is None else tree.content_digest,
        ci=ci_of(os.environ),
        approver=approver_of(os.environ),
        tree_name="" if tree is None else tree.name,
    )


PULL_REQUEST = "LAKEPLAN_PULL_REQUEST"
MERGED_AT = "LAKEPLAN_MERGED_AT"
APPROVED_BY = "LAKEPLAN_APPROVED_BY"


def approver_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return who approved, as the workflow says."""
    by = _short(environ.get(APPROVED_BY, ""))
    return {"by": by} if by else {}


def ci_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return who started the job, its page and its pull request, as GitHub and GitLab report them, or nothing
    elsewhere. The variables are for a job after the merge, which does not know its pull request."""
    if environ.get("GITHUB_ACTIONS") == "true":
        site = f"{environ.get('GITHUB_SERVER_URL', '')}/{environ.get('GITHUB_REPOSITORY', '')}"
        ref = environ.get("GITHUB_REF", "").split("/")
        number = ref[2] if ref[:2] == ["refs", "pull"] and len(ref) > 2 else ""
        facts = {
            "actor": environ.get("GITHUB_ACTOR", ""),
            "run_url": f"{site}/actions/runs/{environ.get('GITHUB_RUN_ID', '')}",
            "pull_request": _page(f"{site}/pull", number or environ.get(PULL_REQUEST, "")),
        }
    elif environ.get("GITLAB_CI") == "true":
        number = environ.get("CI_MERGE_REQUEST_IID", "") or environ.get(PULL_REQUEST, "")
        facts = {
            "actor": environ.get("GITLAB_USER_LOGIN", ""),
            "run_url": environ.get("CI_JOB_URL", ""),
            "pull_request": _page(f"{environ.get('CI_PROJECT_URL', '')}/-/merge_requests", number),
        }
    else:
        facts = {"pull_request": environ.get(PULL_REQUEST, "")}
    facts["merged_at"] = environ.get(MERGED_AT, "")
    return {name: short for name, value in facts.items() if (short := _short(value))}


def _page(folder: str, number: str) -> str:
    """The URL of a pull request. A number is turned into the URL, and any other text already is one."""
    return f"{folder}/{number}" if number.isdigit() else number


def _short(text: str) -> str:
    return "".join(c for c in text if c.isprintable())[:_MOST]


def new_run_id(now: datetime) -> str:
    """A run id that sorts by time, to the microsecond. Two runs in the same microsecond get different ids."""
    return f"{now.astimezone(timezone.utc):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(4)}"


def new_mark_id(now: datetime) -> str:
    """A mark id that is short enough to be copied from a narrow terminal and sorts by time, to the second."""
    return f"{now.astimezone(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def is_gone(holder: Mapping[str, Any]) -> bool:
    """Whether the process of a lease ran on this machine and has ended. False when that is unknown. Host
    names repeat among containers, so the machine's boot and process namespace decide."""
    pid, machine = holder.get("pid"), _machine()
    if not machine or holder.get("machine") != machine or not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _machine() -> str:
    """An id of this boot of this machine and of this process namespace, or "" if unknown (not Linux)."""
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


STEP = 0.2
"""Seconds of a sleep between two checks."""


def is_lost(state_url: str, environ: Mapping[str, str]) -> bool:
    """Whether the state disappears with the runner, as a folder does in CI: every job starts from an empty
    folder."""
    return bool(environ.get("CI")) and state_url.startswith("file://")


def check_lasting_state(url: str, environ: Mapping[str, str]) -> None:
    """Raises UsageError for a state folder in CI: observations and approvals would disappear with the
    runner."""
    if is_lost(url, environ):
        raise UsageError(
            "the state is in a local folder, and this is a CI job (CI is set), so the state would be lost"
            " when the job ends",
            hint="Set state.url to an s3://, gs:// or Azure blob URL.",
        )


class Stop:
    """Whether a signal asked to stop. It has no lock, because the signal's handler could find it locked. It
    sleeps in short steps, because a signal that comes just before a long wait would not end it."""

    def __init__(self) -> None:
        self._asked = False

    def ask(self, signum: int, frame: FrameType | None) -> None:
        self._asked = True

    def is_set(self) -> bool:
        return self._asked

    def wait(self, seconds: float = math.inf) -> bool:
        """Waits until a stop is requested, but at most ``seconds``. Returns whether it was requested."""
        end = time.monotonic() + seconds
        while not self._asked and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, STEP))
        return self._asked


@contextmanager
def stopping(*numbers: signal.Signals) -> Iterator[Stop]:
    """In the block, SIGTERM or these signals ask the command to stop: it finishes its current step, stores
    its records and ends."""
    stop = Stop()
    before = {number: signal.signal(number, stop.ask) for number in numbers or (signal.SIGTERM,)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
