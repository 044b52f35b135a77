"""One run of a command that writes: who runs it and when, its reads after writes, and its record in the
history (``history/<run id>.json``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from enum import Enum
from typing import Any, Protocol, TypeVar

from lakeplan.errors import LakeplanError
from lakeplan.lakefs import protocols
from lakeplan.state.store import RunJournal
from lakeplan.stores.open import StateReader, StateWriter
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.plan import GateResult, Plan
from lakeplan.values.progress import Progress
from lakeplan.values.records import moment_in


class Outcome(str, Enum):
    """The outcome of the write of one setting. ``already``: an earlier, interrupted run wrote it.
    ``uncertain``: it is unknown whether the write took effect or still will."""

    APPLIED = "applied"
    ALREADY = "already"
    FAILED = "failed"
    UNCERTAIN = "uncertain"


GC = "gc"
"""The name of the GC rules among settings, besides the values of ``SettingKind``."""
PINS = "pins"
"""The setting of a result if pins changed but no rule of the tree changed."""


@dataclass(frozen=True)
class Applied:
    """The final result for one setting. ``exit_code`` is 0, or that of an error, which may have occurred
    after the write. ``setting`` is ``gc``, ``pins``, ``branch_lifecycle`` or ``object_lifecycle``."""

    repository: str
    action: str
    outcome: Outcome
    before_etag: str
    after_etag: str
    message: str = ""
    hint: str = ""
    exit_code: int = 0
    setting: str = GC


@dataclass(frozen=True)
class ApplyReport:
    """The report of an apply. ``elsewhere`` are repositories whose policies it does not write, because
    ``branches run`` enforces them. ``note`` is anything else that people should know, or "".
    ``planned_again`` lists what had changed on the servers if the plan was made again."""

    run_id: str
    results: tuple[Applied, ...]
    not_written: tuple[str, ...] = ()
    unexpanded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()
    note: str = ""
    planned_again: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Applied, ...]:
        """The results that did not end as planned: failed, uncertain, or applied but not recorded."""
        return tuple(r for r in self.results if r.exit_code)


class WritableServer(Protocol):
    """A server's readers and, separate from them, its writers."""

    @property
    def reader(self) -> protocols.LakeFSReader: ...
    @property
    def writer(self) -> protocols.GcRulesWriter: ...
    @property
    def settings_writer(self) -> protocols.SettingsWriter: ...
    @property
    def branches(self) -> protocols.BranchReader: ...
    @property
    def metadata_writer(self) -> protocols.MetadataWriter: ...
    @property
    def branch_writer(self) -> protocols.BranchWriter: ...


@dataclass(frozen=True)
class Run:
    """The identity of a run: who runs, when and where. It is recorded in the history and in leases. ``sleep``
    takes seconds.

    ``tree_dirty`` says whether the tree's files differ from ``tree_commit``, or is None if git does not know.
    ``tree_digest`` is the SHA-256 of its files, and ``tree_name`` is its name or "". ``ci`` has the CI
    system's ``actor``, ``pull_request``, ``merged_at`` and ``run_url``. ``approver["by"]`` is who approved
    the run, if that is known when the run begins."""

    run_id: str
    holder: Mapping[str, Any]
    now: Callable[[], datetime]
    is_gone: Callable[[Mapping[str, Any]], bool]
    tree_commit: str | None = None
    sleep: Callable[[float], None] = time.sleep
    tree_dirty: bool | None = None
    tree_digest: str | None = None
    ci: Mapping[str, str] = field(default_factory=dict)
    approver: Mapping[str, str] = field(default_factory=dict)
    command: str = "apply"
    """The name of a run that writes rules in the history."""
    tree_name: str = ""
    ended: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The records of ended runs that ``check_newest`` has read, by run id."""


def merged_later(ci: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether the pull request of a run was merged after that of another run, if both are known. Both
    maps are ``Run.ci``."""
    try:
        return moment_in(ci["merged_at"]) > moment_in(other["merged_at"])
    except (KeyError, ValueError, TypeError):
        return False


@dataclass(frozen=True)
class PinSync:
    """How to bring the pins of one repository up to date. ``retire`` has the commits whose pins may be
    deleted, or is None for all pins that nothing requires. ``config_hash`` is the hash of the settings at the
    last apply, or None if this run is an apply."""

    desired: DesiredRepository
    zone: tzinfo
    retire: frozenset[str] | None = None
    config_hash: str | None = None


@dataclass(frozen=True)
class ApplyPorts:
    """The dependencies of an apply. ``also_needs`` read further records of ``server/name`` for the steps
    after the apply, and raise LakeplanError for a damaged record."""

    connect: Callable[[str], WritableServer]
    state: StateWriter
    progress: Progress
    also_needs: tuple[Callable[[StateReader, str], object], ...] = ()
    tree: str = ""
    """The tree's name, which is recorded on every repository, or "" to record none."""
    pins: Mapping[str, PinSync] = field(default_factory=dict)
    """By ``server/name``."""
    judge: Callable[[Plan], tuple[GateResult, ...]] | None = None
    """Runs the tree's checks, or None where they may not be run."""
    journal: RunJournal | None = None
    """The history's record of the apply, if it was stored before the apply planned again."""


T = TypeVar("T")

PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Seconds between two reads. Their sum exceeds the time for which lakeFS servers return the value from before
a write (measured: 3 to 7.5 seconds)."""


def read_back(read: Callable[[], T], is_expected: Callable[[T], bool], sleep: Callable[[float], None]) -> T:
    """Return the first expected value that is read, or else the last value. A single stale answer or failed
    read proves nothing. Raises the error of the last read if it failed and no expected value was read."""
    for pause in (*PAUSES, None):
        try:
            value = read()
        except LakeplanError:
            if pause is None:
                raise
        else:
            if pause is None or is_expected(value):
                return value
        sleep(pause)
    raise AssertionError("the last read returns or raises")


NOT_BEGUN = {"status": "pending"}
"""The history's step of a repository before its first attempt."""


def open_journal(
    state: StateWriter, run: Run, command: str, *, approver: Mapping[str, str] | None = None, **facts: Any
) -> RunJournal:
    """Return the history's record of a run, which is stored with its first step. ``approver`` has ``by`` and,
    if known, ``at`` and ``reason``. The default is the approver of the run. ``facts`` are added to the
    record."""
    head = {
        "run_id": run.run_id,
        "command": command,
        "by": dict(run.holder),
        "started_at": run.now().isoformat(),
        "tree_commit": run.tree_commit,
        "tree_dirty": run.tree_dirty,
        "tree_digest": run.tree_digest,
        "tree_name": run.tree_name,
        "ci": dict(run.ci),
        "approver": dict(approver or run.approver) or None,
    }
    return RunJournal(state, run.run_id, {**head, **facts})


def close_journal(journal: RunJournal, run: Run) -> str:
    """Records the end of the run. Returns why that failed, or ""."""
    journal.record["finished_at"] = run.now().isoformat()
    try:
        journal.save()
    except LakeplanError as error:
        return f"the end of the run was not recorded in the history: {error}"
    return ""


def note_step(journal: RunJournal, repository: str, **values: Any) -> str:
    """Records the end of a repository. Returns why that failed, or ""."""
    try:
        journal.step(repository, **values)
    except LakeplanError as error:
        return f"the end of this step was not recorded in the history: {error}"
    return ""
