"""What the plan of the last change of a repository's rules said would expire, for who approves a deletion.

Key: ``forecasts/<server>/<repository>.json``. Losing it loses a comparison, never safety.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from lakeplan.state.store import repository_key
from lakeplan.stores.protocols import StateReader, StateWriter
from lakeplan.values import records
from lakeplan.values.records import json_line, utc_text
from lakeplan.values.simulation import Amount

_FORECAST = records.record(
    {
        "repository": records.text,
        "run_id": records.text,
        "plan_digest": records.text,
        "expire": records.list_of(records.record({"at": records.moment, "amount": records.AMOUNT})),
    }
)
_TEXT = {
    "what": "the state's record of the last forecast",
    "hint": "Restore it from a backup, or move it away. The next apply writes a new one.",
}


@dataclass(frozen=True)
class Forecast:
    """``expire``: what newly expires by each moment, ascending, assuming no new commits. ``run_id`` is of the
    apply."""

    run_id: str
    plan_digest: str
    expire: tuple[tuple[datetime, Amount], ...]


def read_forecast(state: StateReader, repository: str) -> Forecast | None:
    """None when there is none. Raises FormatError for a damaged record."""
    key = repository_key("forecasts", repository)
    found = state.read(key)
    if found is None:
        return None
    record = records.read_record(found.data, _FORECAST, where=key, **_TEXT)
    records.of_repository(record, repository, where=key, **_TEXT)
    rows = [
        (records.moment_in(row["at"]), Amount(row["amount"]["objects"], row["amount"]["size_bytes"]))
        for row in record["expire"]
    ]
    return Forecast(record["run_id"], record["plan_digest"], tuple(sorted(rows, key=lambda row: row[0])))


def record_forecast(
    state: StateWriter, repository: str, *, run_id: str, plan_digest: str, expire: Mapping[datetime, Amount]
) -> None:
    """In the place of an earlier one. Raises StorageError, WriteConflict."""
    key = repository_key("forecasts", repository)
    current = state.read(key)
    record = {
        "repository": repository,
        "run_id": run_id,
        "plan_digest": plan_digest,
        "expire": [{"at": utc_text(at), "amount": amount.to_row()} for at, amount in sorted(expire.items())],
    }
    state.write(key, json_line(record), if_version=current.version if current else None)
