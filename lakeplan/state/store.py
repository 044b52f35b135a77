"""What lakeplan remembers between runs: last-applied rules, leases, and an append-only history.

Keys: ``applied/<server>/<repository>.json``, ``leases/<server>/<repository>.json``,
``history/<run id>.json``. Written with conditional puts, never by a plan. Losing it loses drift classes
and undo, never safety.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

from lakeplan.errors import FormatError, LeaseHeld, WriteConflict
from lakeplan.stores.protocols import StateReader, StateWriter
from lakeplan.values import records
from lakeplan.values.records import utc_text
from lakeplan.values.rules import GcRules, etag_of

ATTEMPTS_KEPT = 5
"""Writes of one setting whose end is not known, one after the other."""

LEASE_SECONDS = 120
"""One repository's check, write and read-back take seconds; a killed run blocks it for this long and
``LEASE_GRACE`` at most."""
LEASE_GRACE = timedelta(minutes=10)
"""Two machines' clocks may each differ from the server's by five minutes (``lakeplan.state.clocks``)."""


def repository_key(kind: str, repository: str) -> str:
    """``kind`` is ``applied``, ``baselines`` or ``leases``; ``repository`` is ``server/name``."""
    server, _, name = repository.partition("/")
    return f"{kind}/{quote(server, safe='')}/{quote(name, safe='')}.json"


_ITEMS = records.or_null(records.list_of(records.record({})))
_BODIES = records.record({"body": records.or_null(records.anything)})
APPLIED = records.record(
    {"repository": records.text, "config_hash": records.text, "run_id": records.text, "at": records.moment},
    {
        "etag": records.text,
        "body": records.rules,
        "settings": records.map_of(records.record({"body": _ITEMS})),
        "attempts": records.map_of(records.list_of(_BODIES)),
    },
)
_APPLIED_TEXT = {
    "what": "the state's record of the last apply",
    "hint": "Restore it from a backup, or move it away. The next apply writes a new one.",
}


def read_applied(state: StateReader, repository: str) -> tuple[dict[str, Any], str] | None:
    """The record of ``server/name`` and its version; None when no apply recorded it. Raises FormatError
    naming a record that is damaged, or another repository's: it must not count as "never applied"."""
    key = repository_key("applied", repository)
    found = state.read(key)
    if found is None:
        return None
    record = records.read_record(found.data, APPLIED, where=key, **_APPLIED_TEXT)
    records.of_repository(record, repository, where=key, **_APPLIED_TEXT)
    return record, found.version


def known_repositories(state: StateReader) -> frozenset[str]:
    """``server/name`` of every repository that an apply recorded."""
    return repositories_of(state, "applied")


def repositories_of(state: StateReader, kind: str) -> frozenset[str]:
    """``server/name`` of every repository with a record of this kind."""
    found = set()
    for key in state.list_keys(f"{kind}/"):
        parts = key.removesuffix(".json").split("/")
        if len(parts) == 3:
            found.add(f"{unquote(parts[1])}/{unquote(parts[2])}")
    return frozenset(found)


def record_applied(
    state: StateWriter, repository: str, rules: GcRules | None, *, config_hash: str, run_id: str, at: datetime
) -> None:
    """Remembers GC rules that were read back after a write."""
    record = {"etag": etag_of(rules), "body": rules.to_body() if rules is not None else None}
    _record(state, repository, record, config_hash=config_hash, run_id=run_id, at=at)


def record_setting(
    state: StateWriter,
    repository: str,
    setting: str,
    record: Mapping[str, Any],
    *,
    config_hash: str,
    run_id: str,
    at: datetime,
) -> None:
    """Remembers policies or object rules that were read back, under ``settings``, beside the GC rules."""
    _record(state, repository, {"settings": {setting: record}}, config_hash=config_hash, run_id=run_id, at=at)


def record_attempt(
    state: StateWriter,
    repository: str,
    setting: str,
    body: object,
    *,
    config_hash: str,
    run_id: str,
    at: datetime,
) -> None:
    """Remembers, before it is sent, what a write is to leave (``setting``: ``gc`` or a kind), so that what is
    found there later has an author even if the run could not read it back. Forgotten by the next record of
    what was read back."""
    key = repository_key("applied", repository)
    record, version = read_applied(state, repository) or ({"config_hash": config_hash}, None)
    attempts = record.setdefault("attempts", {})
    attempts[setting] = [*attempts.get(setting, ()), {"body": body, "run_id": run_id, "at": utc_text(at)}]
    attempts[setting] = attempts[setting][-ATTEMPTS_KEPT:]
    record = {"repository": repository, "run_id": run_id, "at": utc_text(at)} | record
    state.write(key, _json(record), if_version=version)


def _record(
    state: StateWriter,
    repository: str,
    changes: Mapping[str, Any],
    *,
    config_hash: str,
    run_id: str,
    at: datetime,
) -> None:
    key = repository_key("applied", repository)
    record, version = read_applied(state, repository) or (dict[str, Any](), None)
    settings = {**record.get("settings", {}), **changes.get("settings", {})}
    record |= changes
    record |= {"repository": repository, "config_hash": config_hash, "run_id": run_id, "at": utc_text(at)}
    if settings:
        record["settings"] = settings
    attempts = record.pop("attempts", {})
    if left := {k: v for k, v in attempts.items() if k not in changes.get("settings", ("gc",))}:
        record["attempts"] = left
    state.write(key, _json(record), if_version=version)


LEASE = records.record({"until": records.moment}, {"holder": records.record({})})


@dataclass
class Lease:
    """One writer per repository. Taken over when its process is gone from this host, or ``LEASE_GRACE`` after
    it expired by every clock: ``confirm`` gives the earliest of them, and is asked only then."""

    state: StateWriter
    repository: str
    holder: Mapping[str, Any]
    now: Callable[[], datetime]
    is_gone: Callable[[Mapping[str, Any]], bool]
    confirm: Callable[[], datetime]
    seconds: int = LEASE_SECONDS
    _version: str = field(default="", init=False)

    def __enter__(self) -> Lease:
        key = repository_key("leases", self.repository)
        current = self.state.read(key)
        if current is not None:
            held, until = _held(current.data, self.repository, key)
            if not self.is_gone(held.get("holder", {})) and not self._is_over(until):
                raise LeaseHeld(
                    f"another run has the lease of this repository until {held['until']}"
                    f" ({_who(held.get('holder', {}))})",
                    where=self.repository,
                    hint="Wait for it, then run the command again.",
                )
        until = self.now() + timedelta(seconds=self.seconds)
        record = {"holder": dict(self.holder), "until": utc_text(until)}
        try:
            self._version = self.state.write(
                key, _json(record), if_version=current.version if current else None
            )
        except WriteConflict:
            raise LeaseHeld(
                "another run just took the lease of this repository",
                where=self.repository,
                hint="Wait for it, then run the command again.",
            ) from None
        return self

    def _is_over(self, until: datetime) -> bool:
        end = until + LEASE_GRACE
        return end < self.now() and end < self.confirm()

    def renew(self) -> None:
        """Holds it for as long again. Raises LeaseHeld when somebody took it over meanwhile."""
        until = self.now() + timedelta(seconds=self.seconds)
        record = {"holder": dict(self.holder), "until": utc_text(until)}
        try:
            self._version = self.state.write(
                repository_key("leases", self.repository), _json(record), if_version=self._version
            )
        except WriteConflict:
            raise LeaseHeld(
                "this run's lease expired and another run took it over",
                where=self.repository,
                hint="Check what the other run does, then run the command again.",
            ) from None

    def __exit__(self, *_: object) -> None:
        try:
            self.state.delete(repository_key("leases", self.repository), if_version=self._version)
        except WriteConflict:
            # It expired and somebody else holds it now: theirs to delete.
            return


@dataclass
class RunJournal:
    """The record of one run, stored again after every step, so that a killed run still tells what it did."""

    state: StateWriter
    run_id: str
    record: dict[str, Any]
    _version: str | None = field(default=None, init=False)

    @property
    def key(self) -> str:
        return f"history/{self.run_id}.json"

    def save(self) -> None:
        self._version = self.state.write(self.key, _json(self.record), if_version=self._version)

    def step(self, repository: str, **values: Any) -> None:
        """Adds or updates a repository's entry and stores the record."""
        self.record.setdefault("repositories", {}).setdefault(repository, {}).update(values)
        self.save()


def check_lease(state: StateReader, repository: str) -> None:
    """Raises LeaseHeld when the stored lease is damaged. One that somebody holds is no error here."""
    key = repository_key("leases", repository)
    found = state.read(key)
    if found is not None:
        _held(found.data, repository, key)


def _held(data: bytes, repository: str, key: str) -> tuple[dict[str, Any], datetime]:
    """A stored lease and its end. One that cannot be read may be somebody's: it counts as held."""
    try:
        held = records.read_record(data, LEASE, what="the lease of this repository", where=key, hint="")
    except FormatError as error:
        raise LeaseHeld(
            f"{error.message} (state record {key})",
            where=repository,
            hint="Make sure that no other run is writing, delete that record, then run the command again.",
        ) from None
    until = records.moment_in(held["until"])
    return held, until


def _json(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode(
        "utf-8", "backslashreplace"
    )


def _who(holder: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {holder[k]}" for k in ("user", "host", "pid") if k in holder) or "unknown holder"
