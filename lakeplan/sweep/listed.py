"""Every mark that the state knows: how much it lists, and how far it is."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache

from lakeplan.errors import FormatError, LakeplanError
from lakeplan.state.sweeps import Swept, read_swept
from lakeplan.stores.protocols import StateReader
from lakeplan.sweep.documents import ListedMark, ListedState, MarkListDocument
from lakeplan.sweep.ports import MARK_INDEX, approval_key
from lakeplan.sweep.records import MarkIndex, read_mark_index
from lakeplan.sweep.service import MARKS_FORMAT
from lakeplan.values.records import moment_in
from lakeplan.values.sweep import MARK_MAX_AGE_SECONDS, Status


def list_marks(state: StateReader, now: datetime) -> MarkListDocument:
    """Newest first. What the records of the state do not say, or say in a damaged record, is None."""

    @cache
    def swept(repository: str) -> dict[str, Swept]:
        try:
            return read_swept(state, repository)
        except LakeplanError:
            return {}

    found: list[ListedMark] = []
    for key in reversed(state.list_keys(MARK_INDEX)):
        mark_id = key.removeprefix(MARK_INDEX).removesuffix(".json")
        try:
            index = read_mark_index(state, mark_id)
        except FormatError:
            index = MarkIndex("?", "", "", "")
        if index is None:
            continue
        approved = state.read(approval_key(mark_id)) is not None
        sweep = swept(index.repository).get(mark_id)
        amount = index.goes
        if amount is None and sweep is not None:
            amount = sweep.total
        found.append(
            {
                "mark_id": mark_id,
                "repository": index.repository,
                "marked_at": index.marked_at,
                "by": index.by,
                "approved": approved,
                "state": _state(index, sweep, approved=approved, now=now),
                "goes": None if amount is None else amount.to_row(),
                "deleted": None if sweep is None else sweep.amounts[Status.DELETED.value].to_row(),
                "swept_at": None if sweep is None else sweep.at,
            }
        )
    return {"format": MARKS_FORMAT, "marks": found}


def _state(index: MarkIndex, sweep: Swept | None, *, approved: bool, now: datetime) -> ListedState:
    if sweep is not None:
        if not sweep.finished:
            return "unfinished"
        if sweep.mode == "quarantine" and sweep.amounts[Status.DELETED.value].objects:
            return "quarantined" if sweep.quarantined.objects else "purged"
        return "swept"
    try:
        too_old = now - moment_in(index.marked_at) >= timedelta(seconds=MARK_MAX_AGE_SECONDS)
    except ValueError:
        return "unknown"
    if too_old:
        return "too_old"
    return "approved" if approved else "marked"
