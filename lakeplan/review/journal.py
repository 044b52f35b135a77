"""What a command that writes leaves in the history (``history/<run id>.json``): who, which tree, what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeplan.errors import LakeplanError
from lakeplan.review.run import Run
from lakeplan.state.store import RunJournal
from lakeplan.stores.protocols import StateWriter


def open_journal(
    state: StateWriter, run: Run, command: str, *, approver: Mapping[str, str] | None = None, **facts: Any
) -> RunJournal:
    """A record that is stored with its first step. ``approver``: ``by``, and where known ``at`` and
    ``reason``; by default the run's. ``facts`` are of the command."""
    head = {
        "run_id": run.run_id,
        "command": command,
        "by": dict(run.holder),
        "started_at": run.now().isoformat(),
        "tree_commit": run.tree_commit,
        "tree_dirty": run.tree_dirty,
        "tree_digest": run.tree_digest,
        "ci": dict(run.ci),
        "approver": dict(approver or run.approver) or None,
    }
    return RunJournal(state, run.run_id, {**head, **facts})


def close_journal(journal: RunJournal, run: Run) -> str:
    """Why the end of the run could not be recorded, or "". What was done stays reported either way."""
    journal.record["finished_at"] = run.now().isoformat()
    try:
        journal.save()
    except LakeplanError as error:
        return f"the end of the run is not in the history: {error}"
    return ""


def note_step(journal: RunJournal, repository: str, **values: Any) -> str:
    """Why a repository's end could not be recorded, or "": what was done is done."""
    try:
        journal.step(repository, **values)
    except LakeplanError as error:
        return f"the end is not in the history: {error}"
    return ""
