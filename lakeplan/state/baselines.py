"""What each repository had when the tree and the server agreed, so that drift also sees edits of what no
apply wrote; and what the plan of the last change of its rules said would expire, for who approves a
deletion.

Keys: ``baselines/<server>/<repository>.json``, one entry for each setting, and
``forecasts/<server>/<repository>.json``. Only what was written, in ``applied/``, counts for adoption and
for the settle time of a sweep. Losing these records loses drift classes and a comparison, never safety.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakeplan.errors import FormatError
from lakeplan.state.store import repositories_of, repository_key
from lakeplan.stores.protocols import StateReader, StateWriter
from lakeplan.values import records
from lakeplan.values.records import json_line, utc_text
from lakeplan.values.simulation import Amount

_TEXT = {
    "what": "the state's baseline of this repository",
    "hint": "Restore it from a backup, or move it away. The next apply writes a new one.",
}


def _setting(body: records.Shape) -> records.Shape:
    return records.record(
        {
            "body": body,
            "config_hash": records.text,
            "run_id": records.text,
            "at": records.moment,
            "command": records.exactly("apply", "import"),
        }
    )


_ITEMS = _setting(records.or_null(records.list_of(records.record({}))))
_SETTINGS = {
    "gc": _setting(records.or_null(records.rules)),
    "branch_lifecycle": _ITEMS,
    "object_lifecycle": _ITEMS,
}
BASELINE = records.record({"repository": records.text, "settings": records.record({}, _SETTINGS)})


@dataclass(frozen=True)
class Sighting:
    """One setting of a repository as a run read it. ``body`` as lakeFS has it; None or empty: nothing was
    set. ``command`` is ``apply`` or ``import``."""

    body: Any
    config_hash: str
    run_id: str
    at: datetime
    command: str


def read_baseline(state: StateReader, repository: str) -> tuple[dict[str, Sighting], str | None]:
    """The settings of ``server/name`` in its baseline, ``gc`` among them, and the version of the record.
    Raises FormatError for a damaged record."""
    key = repository_key("baselines", repository)
    found = state.read(key)
    if found is None:
        return {}, None
    record = records.read_record(found.data, BASELINE, where=key, **_TEXT)
    records.of_repository(record, repository, where=key, **_TEXT)
    present = {name: value for name in _SETTINGS if (value := record["settings"].get(name)) is not None}
    return {
        name: Sighting(
            value["body"],
            value["config_hash"],
            value["run_id"],
            records.moment_in(value["at"]),
            value["command"],
        )
        for name, value in present.items()
    }, found.version


def damaged_baseline(repository: str, detail: str) -> FormatError:
    where = repository_key("baselines", repository)
    return FormatError(f"{_TEXT['what']} is damaged", where=where, hint=_TEXT["hint"], detail=detail)


def write_baseline(state: StateWriter, repository: str, settings: Mapping[str, Sighting]) -> None:
    """Stores these settings beside those that the baseline has of others. Raises WriteConflict when another
    run was first, and FormatError for a damaged record."""
    before, version = read_baseline(state, repository)
    document = {
        "repository": repository,
        "settings": {
            name: {
                "body": seen.body,
                "config_hash": seen.config_hash,
                "run_id": seen.run_id,
                "at": utc_text(seen.at),
                "command": seen.command,
            }
            for name, seen in {**before, **settings}.items()
        },
    }
    data = (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
    state.write(repository_key("baselines", repository), data, if_version=version)


def repositories_with_baseline(state: StateReader) -> frozenset[str]:
    """``server/name`` of every repository that has a baseline."""
    return repositories_of(state, "baselines")


_FORECAST = records.record(
    {
        "repository": records.text,
        "run_id": records.text,
        "plan_digest": records.text,
        "expire": records.list_of(records.record({"at": records.moment, "amount": records.AMOUNT})),
    }
)
_FORECAST_TEXT = {
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
    record = records.read_record(found.data, _FORECAST, where=key, **_FORECAST_TEXT)
    records.of_repository(record, repository, where=key, **_FORECAST_TEXT)
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
