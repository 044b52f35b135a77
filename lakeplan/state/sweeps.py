"""Stores figures of a repository's sweeps in the state, by mark, for readers without the namespace.

Key: ``sweep/ends/<server>/<repository>.json``. The ``summary.json`` in the namespace is authoritative; losing
this record loses figures, never safety.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakeplan.errors import FormatError, WriteConflict
from lakeplan.state.store import read_repository_record, repository_key
from lakeplan.stores.protocols import StateReader, StateWriter
from lakeplan.values import records
from lakeplan.values.records import json_text
from lakeplan.values.simulation import Amount
from lakeplan.values.sweep import Status

PENDING = "pending"
STATUSES = (*(status.value for status in Status), PENDING)
_KIND = "sweep/ends"
_TRIES = 5
_SWEPT = records.record(
    {
        "at": records.moment,
        "finished": records.flag,
        "mode": records.exactly("delete", "quarantine"),
        "versions_kept": records.flag,
        **dict.fromkeys(STATUSES, records.AMOUNT),
    },
    {"purged": records.AMOUNT},
)
_SWEEPS = records.record({"repository": records.text, "marks": records.map_of(_SWEPT)})


@dataclass(frozen=True)
class RecordedSweep:
    """The result of the sweep of one mark. ``amounts`` are by status, with ``pending``. ``finished``: no
    marked object is pending. ``versions_kept``: the store may have older versions of what was deleted.
    ``purged``: what was deleted from the mark's quarantine."""

    mark_id: str
    at: datetime
    finished: bool
    mode: str
    versions_kept: bool
    amounts: Mapping[str, Amount]
    purged: Amount

    @property
    def quarantined(self) -> Amount:
        """The objects that were moved to quarantine and not purged since."""
        if self.mode != "quarantine":
            return Amount()
        left = self.amounts[Status.DELETED.value] - self.purged
        return Amount(max(left.objects, 0), max(left.size_bytes, 0))

    @property
    def reclaimed(self) -> Amount:
        """The objects that no longer cost anything: deleted or purged in a store that keeps no older
        versions."""
        if self.versions_kept:
            return Amount()
        return self.purged if self.mode == "quarantine" else self.amounts[Status.DELETED.value]


def read_sweeps(state: StateReader, repository: str) -> dict[str, RecordedSweep]:
    """The recorded sweeps of ``server/name`` by mark. Raises FormatError for a damaged record."""
    entries, _ = _read(state, repository)
    return {
        mark_id: RecordedSweep(
            mark_id,
            records.moment_in(entry["at"]),
            entry["finished"],
            entry["mode"],
            entry["versions_kept"],
            {status: Amount.from_row(entry[status]) for status in STATUSES},
            _purged(entry),
        )
        for mark_id, entry in entries.items()
    }


def record_sweep(state: StateWriter, document: Mapping[str, Any], *, versions_kept: bool) -> None:
    """Records the document of a run, in place of an earlier run of the same mark. Raises LakeplanError."""
    repository, mark_id = document["repository"], document["mark_id"]
    entry = {
        "at": document["at"],
        "finished": document["finished"],
        "mode": document["settings"]["mode"],
        "versions_kept": versions_kept,
        **{status: document[status] for status in STATUSES},
    }
    try:
        _SWEPT(entry, "the sweep's end")
    except ValueError as error:  # the mark was forged: its figures would make the whole record unreadable
        where = repository_key(_KIND, repository)
        raise FormatError(f"impossible figures are not recorded: {error}", where=where) from None

    def add(entries: Mapping[str, Any]) -> dict[str, Any]:
        purged = entries.get(mark_id, {}).get("purged")
        return {**entries, mark_id: entry if purged is None else {**entry, "purged": purged}}

    _change(state, repository, add)


def record_purge(state: StateWriter, repository: str, mark_id: str, purged: Amount) -> None:
    """Records that copies were deleted from a mark's quarantine. Raises LakeplanError."""

    def add(entries: Mapping[str, Any]) -> dict[str, Any]:
        if mark_id not in entries:
            return {**entries}
        entry = entries[mark_id]
        return {**entries, mark_id: {**entry, "purged": (_purged(entry) + purged).to_row()}}

    _change(state, repository, add)


def _purged(entry: Mapping[str, Any]) -> Amount:
    return Amount.from_row(entry["purged"]) if entry.get("purged") else Amount()


def _change(
    state: StateWriter, repository: str, change: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> None:
    for attempt in range(_TRIES):
        entries, version = _read(state, repository)
        record = {"repository": repository, "marks": change(entries)}
        try:
            state.write(repository_key(_KIND, repository), json_text(record, indent=1), if_version=version)
            return
        except WriteConflict:
            if attempt == _TRIES - 1:
                raise


def _read(state: StateReader, repository: str) -> tuple[dict[str, Any], str | None]:
    """Entries by mark, and the version that a write must present."""
    hint = "Restore it from a backup, or move it away. The next run writes a new one."
    what = "the state's record of sweeps"
    stored = read_repository_record(state, _KIND, repository, _SWEEPS, what=what, hint=hint)
    return ({}, None) if stored is None else (stored[0]["marks"], stored[1])
