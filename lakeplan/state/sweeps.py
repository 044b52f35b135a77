"""What the state remembers of a repository's sweeps: amounts by mark, for who cannot read the namespace.

Key: ``sweep/ends/<server>/<repository>.json``, one entry per mark. The namespace has the last word (its
``summary.json``); losing this record loses figures, never safety.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakeplan.errors import FormatError, WriteConflict
from lakeplan.state.store import read_repository_record, repository_key
from lakeplan.stores.protocols import StateReader, StateWriter
from lakeplan.values import records
from lakeplan.values.simulation import Amount, AmountRow
from lakeplan.values.sweep import Status

PENDING = "pending"
STATUSES = (*(status.value for status in Status), PENDING)
_KIND = "sweep/ends"
_TRIES = 5


@dataclass(frozen=True)
class LastSweep:
    """The newest sweep of a repository. ``amounts`` are by status, ``pending`` among them; ``finished``:
    every marked object has its end."""

    mark_id: str
    at: datetime
    finished: bool
    amounts: Mapping[str, Amount]


@dataclass(frozen=True)
class SweepRecord:
    """All sweeps of a repository. ``quarantined`` is what was moved there and not purged since. ``reclaimed``
    is what is not paid for any more: deleted or purged where the store keeps no older versions of it."""

    last: LastSweep
    quarantined: Amount
    reclaimed: Amount


def read_sweeps(state: StateReader, repository: str) -> SweepRecord | None:
    """The record of ``server/name``; None when no sweep of it is recorded. Raises LakeplanError naming a
    record that cannot be read."""
    entries, _ = _read(state, repository)
    if not entries:
        return None
    last = max(entries, key=lambda mark_id: records.moment_in(entries[mark_id]["at"]))
    return SweepRecord(
        _last(last, entries[last]),
        sum((_quarantined(entry) for entry in entries.values()), Amount()),
        sum((_reclaimed(entry) for entry in entries.values()), Amount()),
    )


def record_sweep(state: StateWriter, document: Mapping[str, Any], *, versions_kept: bool) -> None:
    """Remembers what a run left behind (its document), instead of what an earlier run of the same mark did.
    ``versions_kept``: the store may still have older versions of what was deleted. Raises LakeplanError."""
    entry = {
        "at": document["at"],
        "finished": document["finished"],
        "mode": document["settings"]["mode"],
        "versions_kept": versions_kept,
        **{status: document[status] for status in STATUSES},
    }

    try:
        _SWEPT(entry, "the sweep's end")
    except ValueError as error:  # somebody else wrote the mark: it would make the whole record unreadable
        raise FormatError(
            f"impossible figures are not recorded: {error}",
            where=repository_key(_KIND, document["repository"]),
        ) from None

    def put(entries: dict[str, Any]) -> None:
        purged = entries.get(document["mark_id"], {}).get("purged")
        entries[document["mark_id"]] = entry if purged is None else {**entry, "purged": purged}

    _change(state, document["repository"], put)


def record_purge(state: StateWriter, repository: str, mark_id: str, purged: Amount) -> None:
    """Remembers that copies of a mark's quarantine are gone. Raises LakeplanError."""

    def put(entries: dict[str, Any]) -> None:
        if mark_id in entries:
            before = _amount(entries[mark_id].get("purged"))
            after = before + purged
            entries[mark_id]["purged"] = after.to_row()

    _change(state, repository, put)


@dataclass(frozen=True)
class Swept:
    """What the sweep of one mark left behind. ``at`` is ISO 8601; ``amounts`` as of a ``LastSweep``."""

    at: str
    finished: bool
    mode: str
    amounts: Mapping[str, Amount]
    quarantined: Amount

    @property
    def total(self) -> Amount:
        return sum(self.amounts.values(), Amount())


def read_swept(state: StateReader, repository: str) -> dict[str, Swept]:
    """The sweeps of ``server/name`` by mark. Raises LakeplanError for a record that cannot be read."""
    entries, _ = _read(state, repository)
    return {
        mark_id: Swept(
            entry["at"],
            entry["finished"],
            entry["mode"],
            {status: _amount(entry.get(status)) for status in STATUSES},
            _quarantined(entry),
        )
        for mark_id, entry in entries.items()
    }


def read_purged(state: StateReader, repository: str) -> dict[str, Amount]:
    """What was purged of each mark's quarantine, by mark. Raises LakeplanError."""
    entries, _ = _read(state, repository)
    return {mark_id: _amount(entry.get("purged")) for mark_id, entry in entries.items()}


def _change(state: StateWriter, repository: str, put: Callable[[dict[str, Any]], None]) -> None:
    for attempt in range(_TRIES):
        entries, version = _read(state, repository)
        put(entries)
        record = {"repository": repository, "marks": entries}
        data = (json.dumps(record, indent=1, sort_keys=True) + "\n").encode()
        try:
            state.write(repository_key(_KIND, repository), data, if_version=version)
            return
        except WriteConflict:
            if attempt == _TRIES - 1:
                raise


_SWEPT = records.record(
    {
        "at": records.moment,
        "finished": records.flag,
        "mode": records.exactly("delete", "quarantine"),
        "versions_kept": records.flag,
    },
    {"purged": records.AMOUNT, **dict.fromkeys(STATUSES, records.AMOUNT)},
)
_ENDS = records.record({"repository": records.text, "marks": records.map_of(_SWEPT)})


def _read(state: StateReader, repository: str) -> tuple[dict[str, Any], str | None]:
    """Entries by mark, and the version that a write must present. Raises FormatError for a damaged record, or
    another repository's."""
    hint = "Restore it from a backup, or move it away. The next run writes a new one."
    what = "the state's record of sweeps"
    found = read_repository_record(state, _KIND, repository, _ENDS, what=what, hint=hint)
    return ({}, None) if found is None else (found[0]["marks"], found[1])


def _last(mark_id: str, entry: Mapping[str, Any]) -> LastSweep:
    amounts = {status: _amount(entry[status]) for status in STATUSES}
    return LastSweep(mark_id, records.moment_in(entry["at"]), bool(entry["finished"]), amounts)


def _quarantined(entry: Mapping[str, Any]) -> Amount:
    if entry["mode"] != "quarantine":
        return Amount()
    moved, purged = _amount(entry[Status.DELETED.value]), _amount(entry.get("purged"))
    return Amount(max(moved.objects - purged.objects, 0), max(moved.size_bytes - purged.size_bytes, 0))


def _reclaimed(entry: Mapping[str, Any]) -> Amount:
    if entry["versions_kept"]:
        return Amount()
    return _amount(entry.get("purged") if entry["mode"] == "quarantine" else entry[Status.DELETED.value])


def _amount(row: AmountRow | None) -> Amount:
    return Amount() if row is None else Amount.from_row(row)
