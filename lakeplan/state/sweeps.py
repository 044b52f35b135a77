"""Stores figures of a repository's sweeps in the state, by mark, for commands that do not read the namespace.

Key: ``sweep/ends/<server>/<repository>.json``. The ``summary.json`` in the namespace is authoritative. If
this record is lost, figures are lost too, but never safety.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from lakeplan.errors import FormatError, WriteConflict
from lakeplan.state.store import read_repository_record, repository_key
from lakeplan.stores.open import StateReader, StateWriter
from lakeplan.values import records
from lakeplan.values.records import json_text
from lakeplan.values.simulation import Amount, Status

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
    {
        "purged": records.AMOUNT,
        "purging": records.record({"run_id": records.text, "copies": records.AMOUNT}),
    },
)
_SWEEPS = records.record(
    {"repository": records.text, "marks": records.map_of(_SWEPT)},
    {"restored": records.map_of(records.count)},
)


@dataclass(frozen=True)
class RecordedSweep:
    """The result of the sweep of one mark. ``amounts`` are by status, with ``pending``. ``finished``: no
    marked object is pending. ``versions_kept``: the store may have older versions of deleted objects.
    ``purged``: the copies deleted from the mark's quarantine. ``purging``: the copies at the beginning of a
    purge that has not recorded its end, so more may be purged; None: every purge recorded its end.
    ``restored``: how many of the deleted objects were restored from quarantine, purged since or not."""

    mark_id: str
    at: datetime
    finished: bool
    mode: str
    versions_kept: bool
    amounts: Mapping[str, Amount]
    purged: Amount
    purging: Amount | None = None
    restored: int = 0

    def purged_by(self, copies: Amount) -> Amount:
        """The purged copies while these are in quarantine."""
        return self.purged if self.purging is None else self.purged + _not_negative(self.purging - copies)

    @property
    def quarantined(self) -> Amount:
        """The objects that were moved to quarantine and not purged since."""
        if self.mode != "quarantine":
            return Amount()
        return _not_negative(self.amounts[Status.DELETED.value] - self.purged)

    @property
    def reclaimed(self) -> Amount:
        """The objects that no longer cost anything: deleted or purged in a store that keeps no older
        versions. A purge may also delete copies of objects that the sweep did not delete."""
        if self.versions_kept:
            return Amount()
        return self.amounts[Status.DELETED.value] - self.quarantined


def read_sweeps(state: StateReader, repository: str) -> dict[str, RecordedSweep]:
    """The recorded sweeps of ``server/name`` by mark. Raises FormatError for a damaged record."""
    record, _ = _read(state, repository)
    restored = record.get("restored", {})
    return {
        mark_id: _parsed(mark_id, entry, restored.get(mark_id, 0))
        for mark_id, entry in record["marks"].items()
    }


def record_sweep(state: StateWriter, document: Mapping[str, Any], *, versions_kept: bool) -> None:
    """Records the document of a run, and replaces that of an earlier run of the same mark. Raises
    LakeplanError."""
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
        raise FormatError(
            f"the numbers of the sweep are invalid, so they were not recorded: {error}", where=where
        ) from None

    def add(entries: Mapping[str, Any]) -> dict[str, Any]:
        before = entries.get(mark_id, {})
        kept = {name: before[name] for name in ("purged", "purging") if before.get(name) is not None}
        return {**entries, mark_id: {**entry, **kept}}

    _change(state, repository, add)


def record_purge(
    state: StateWriter, repository: str, mark_id: str, copies: Amount, *, begun: str = "", ended: str = ""
) -> None:
    """Records that a purge of a mark's quarantine begins or has ended, with the copies in it. If a purge is
    killed in between, its record lets the next purge count the copies that it deleted. ``begun`` and
    ``ended`` are the run; an end is ignored if another run has taken over. With neither, the purge of any run
    has ended. Raises WriteConflict if another purge recorded something while this one began, because
    ``copies`` may count copies that the other one deleted."""
    first: list[object] = []

    def change(entries: Mapping[str, Any]) -> dict[str, Any]:
        entry = entries.get(mark_id)
        if entry is None or (ended and (entry.get("purging") or {}).get("run_id") != ended):
            return {**entries}
        first.append((entry.get("purged"), entry.get("purging")))
        if begun and first[-1] != first[0]:
            raise WriteConflict(
                "another run was purging this quarantine at the same time",
                where=repository_key(_KIND, repository),
                hint="Run the command again.",
            )
        after = {**entry, "purged": _parsed(mark_id, entry).purged_by(copies).to_row()}
        after.pop("purging", None)
        if begun:
            after["purging"] = {"run_id": begun, "copies": copies.to_row()}
        return {**entries, mark_id: after}

    _change(state, repository, change)


def record_restore(state: StateWriter, repository: str, mark_id: str, copied: int, *, before: int) -> None:
    """Records that a restore copied objects back, even before the sweep has recorded its end. ``before``:
    deleted objects that had been restored already. If earlier restores recorded fewer, one of them was
    killed. Raises LakeplanError."""

    def add(restored: Mapping[str, Any]) -> dict[str, Any]:
        return {**restored, mark_id: max(restored.get(mark_id, 0), before) + copied}

    _change(state, repository, add, "restored")


def _parsed(mark_id: str, entry: Mapping[str, Any], restored: int = 0) -> RecordedSweep:
    purged, purging = entry.get("purged"), entry.get("purging")
    return RecordedSweep(
        mark_id,
        records.moment_in(entry["at"]),
        entry["finished"],
        entry["mode"],
        entry["versions_kept"],
        {status: Amount.from_row(entry[status]) for status in STATUSES},
        Amount.from_row(purged) if purged else Amount(),
        Amount.from_row(purging["copies"]) if purging else None,
        min(restored, entry[Status.DELETED.value]["objects"]),
    )


def _not_negative(amount: Amount) -> Amount:
    return Amount(max(amount.objects, 0), max(amount.size_bytes, 0))


def _change(
    state: StateWriter,
    repository: str,
    change: Callable[[Mapping[str, Any]], dict[str, Any]],
    part: Literal["marks", "restored"] = "marks",
) -> None:
    for attempt in range(_TRIES):
        record, version = _read(state, repository)
        record = {**record, "repository": repository, part: change(record.get(part, {}))}
        try:
            state.write(repository_key(_KIND, repository), json_text(record, indent=1), if_version=version)
            return
        except WriteConflict:
            if attempt == _TRIES - 1:
                raise


def _read(state: StateReader, repository: str) -> tuple[dict[str, Any], str | None]:
    """The record, and the version that a write must pass."""
    hint = "Restore the record from a backup, or move it elsewhere. The next run then writes a new one."
    what = "the state's record of sweeps"
    stored = read_repository_record(state, _KIND, repository, _SWEEPS, what=what, hint=hint)
    return ({"marks": {}}, None) if stored is None else stored
