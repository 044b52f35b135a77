"""Stores what lakeplan remembers between runs: last-applied rules, baselines, forecasts, leases, and an
append-only history.

Keys: ``applied/``, ``baselines/``, ``forecasts/`` and ``leases/``, each with ``<server>/<repository>.json``,
and ``history/<run id>.json``. Commands other than a plan write them with conditional puts. If they are lost,
drift classes, comparisons and undo are lost too, but never safety.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from lakeplan.errors import FormatError, LakeplanError, LeaseHeld, WriteConflict
from lakeplan.stores.open import StateReader, StateWriter
from lakeplan.values import records
from lakeplan.values.documents import decode, encode
from lakeplan.values.records import json_line, json_text, utc_text
from lakeplan.values.rules import GcRules, etag_of
from lakeplan.values.simulation import Amount

T = TypeVar("T")
_log = logging.getLogger(__name__)
ATTEMPTS_KEPT = 5
"""Consecutive writes of one setting whose outcome is unknown."""

LEASE_SECONDS = 120
"""Checking, writing and reading back one repository takes seconds. A killed run blocks it for at most this
long plus ``LEASE_GRACE``."""
LEASE_GRACE = timedelta(minutes=10)
"""Each of two machines' clocks may differ from the server's by five minutes (``lakeplan.state.clocks``)."""


def repository_key(kind: str, repository: str) -> str:
    """The key of a record of ``server/name``. It begins with ``kind``, such as ``applied``."""
    server, _, name = repository.partition("/")
    return f"{kind}/{quote(server, safe='')}/{quote(name, safe='')}.json"


def read_repository_record(
    state: StateReader, kind: str, repository: str, shape: records.Shape, *, what: str, hint: str
) -> tuple[dict[str, Any], str] | None:
    """A repository's record of this kind and its version, or None. Raises FormatError for a record that is
    damaged or belongs to another repository."""
    key = repository_key(kind, repository)
    stored = state.read(key)
    if stored is None:
        return None
    record = records.read_record(stored.data, shape, what=what, where=key, hint=hint)
    records.check_repository(record, repository, what=what, where=key, hint=hint)
    return record, stored.version


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
_RESTORE = "Restore the record from a backup, or move it elsewhere. The next apply then writes a new one."
_APPLIED_TEXT = {"what": "the state's record of the last apply", "hint": _RESTORE}


def read_applied(state: StateReader, repository: str) -> tuple[dict[str, Any], str] | None:
    """The record of ``server/name`` and its version, or None when no apply recorded it. Raises FormatError: a
    damaged record must not count as "never applied"."""
    return read_repository_record(state, "applied", repository, APPLIED, **_APPLIED_TEXT)


def known_repositories(state: StateReader) -> frozenset[str]:
    """``server/name`` of every repository that an apply recorded."""
    return repositories_of(state, "applied")


def repositories_of(state: StateReader, kind: str) -> frozenset[str]:
    """``server/name`` of every repository with a record of this kind."""
    names = set()
    for key in state.list_keys(f"{kind}/"):
        parts = key.removesuffix(".json").split("/")
        if len(parts) == 3:
            names.add(f"{unquote(parts[1])}/{unquote(parts[2])}")
    return frozenset(names)


class ListedOnce:
    """A state whose keys are listed only once, for commands that look for records in each repository."""

    def __init__(self, state: StateReader) -> None:
        self._state = state
        self._listed: dict[str, list[str]] = {}
        self.read = state.read

    def list_keys(self, prefix: str = "") -> list[str]:
        if prefix not in self._listed:
            self._listed[prefix] = self._state.list_keys(prefix)
        return self._listed[prefix]


def record_applied(
    state: StateWriter, repository: str, rules: GcRules | None, *, config_hash: str, run_id: str, at: datetime
) -> None:
    """Records GC rules that were read back after a write."""
    record = {"etag": etag_of(rules), "body": rules.to_body() if rules is not None else None}
    record_setting(state, repository, "gc", record, config_hash=config_hash, run_id=run_id, at=at)


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
    """Records what was read back of a setting (``gc``, policies or object rules) and forgets its attempts."""
    before, version = read_applied(state, repository) or (dict[str, Any](), None)
    settings = before.get("settings") or {}
    changes = record if setting == "gc" else {"settings": {**settings, setting: record}}
    after = {**before, **changes, "repository": repository, "config_hash": config_hash}
    after |= {"run_id": run_id, "at": utc_text(at)}
    attempts = after.pop("attempts", None) or {}
    if others := {name: kept for name, kept in attempts.items() if name != setting}:
        after["attempts"] = others
    state.write(repository_key("applied", repository), json_text(after), if_version=version)


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
    """Records a write before it is sent, with the body to be written. If the run cannot read the body back,
    later runs still know who wrote it. ``setting`` as in ``record_setting``."""
    record, version = read_applied(state, repository) or ({"config_hash": config_hash}, None)
    attempts = record.get("attempts") or {}
    attempt = {"body": body, "run_id": run_id, "at": utc_text(at)}
    kept = [*attempts.get(setting, ()), attempt][-ATTEMPTS_KEPT:]
    record = {"repository": repository, "run_id": run_id, "at": utc_text(at)} | record
    data = json_text({**record, "attempts": {**attempts, setting: kept}})
    state.write(repository_key("applied", repository), data, if_version=version)


# ---- baselines and forecasts
_BASELINE_TEXT = {"what": "the state's baseline of this repository", "hint": _RESTORE}


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


_SETTINGS = {
    "gc": _setting(records.or_null(records.rules)),
    "branch_lifecycle": _setting(_ITEMS),
    "object_lifecycle": _setting(_ITEMS),
}
BASELINE = records.record({"repository": records.text, "settings": records.record({}, _SETTINGS)})


@dataclass(frozen=True)
class Sighting:
    """One setting of a repository, as a run read it when the tree and the server agreed. It lets drift detect
    edits of settings that no apply wrote. Adoption and the settle time of a sweep use only written settings,
    which are in ``applied/``. ``body`` is in lakeFS's format; None or empty if nothing was set. ``command``
    is ``apply`` or ``import``."""

    body: Any
    config_hash: str
    run_id: str
    at: datetime
    command: str


def read_baseline(state: StateReader, repository: str) -> tuple[dict[str, Sighting], str | None]:
    """The settings in the baseline of ``server/name``, such as ``gc``, and the record's version. Raises
    FormatError for a damaged record."""
    stored = read_repository_record(state, "baselines", repository, BASELINE, **_BASELINE_TEXT)
    if stored is None:
        return {}, None
    record, version = stored
    present = {name: value for name in _SETTINGS if (value := record["settings"].get(name)) is not None}
    return {name: decode(value, Sighting) for name, value in present.items()}, version


def damaged_baseline(repository: str, detail: str) -> FormatError:
    where = repository_key("baselines", repository)
    what = _BASELINE_TEXT["what"]
    return FormatError(f"{what} is damaged", where=where, hint=_RESTORE, detail=detail)


def write_baseline(state: StateWriter, repository: str, settings: Mapping[str, Sighting]) -> None:
    """Adds these settings to the baseline, or replaces older ones there. Raises WriteConflict if another run
    wrote first, and FormatError for a damaged record."""
    before, version = read_baseline(state, repository)
    newer = {name: one for name, one in settings.items() if name not in before or before[name].at <= one.at}
    document = {"repository": repository, "settings": encode({**before, **newer})}
    state.write(repository_key("baselines", repository), json_text(document), if_version=version)


_FORECAST = records.record(
    {
        "repository": records.text,
        "run_id": records.text,
        "plan_digest": records.text,
        "expire": records.list_of(records.record({"at": records.moment, "amount": records.AMOUNT})),
    }
)


@dataclass(frozen=True)
class Forecast:
    """The forecast in the plan of the last rule change, for the person who approves a deletion. ``expire``:
    the objects that newly expire by each moment, ascending, assuming no new commits. ``run_id`` is that of
    the apply."""

    run_id: str
    plan_digest: str
    expire: tuple[tuple[datetime, Amount], ...]


def read_forecast(state: StateReader, repository: str) -> Forecast | None:
    """The forecast of ``server/name``, or None. Raises FormatError for a damaged record."""
    what = "the state's record of the last forecast"
    stored = read_repository_record(state, "forecasts", repository, _FORECAST, what=what, hint=_RESTORE)
    if stored is None:
        return None
    record, _ = stored
    rows = [(records.moment_in(row["at"]), Amount.from_row(row["amount"])) for row in record["expire"]]
    return Forecast(record["run_id"], record["plan_digest"], tuple(sorted(rows, key=lambda row: row[0])))


def record_forecast(
    state: StateWriter, repository: str, *, run_id: str, plan_digest: str, expire: Mapping[datetime, Amount]
) -> None:
    """Replaces the forecast of a repository. Raises StorageError, WriteConflict."""
    key = repository_key("forecasts", repository)
    current = state.read(key)
    record = {
        "repository": repository,
        "run_id": run_id,
        "plan_digest": plan_digest,
        "expire": [{"at": utc_text(at), "amount": amount.to_row()} for at, amount in sorted(expire.items())],
    }
    state.write(key, json_line(record), if_version=current.version if current else None)


# ---- leases and the history
@dataclass
class _OwnRecord:
    """A record that only one run writes. A write that failed may still have been stored, so a later conflict
    with the run's own data is ignored."""

    state: StateWriter
    key: str
    version: str | None = None
    _uncertain: list[bytes] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        """Raises WriteConflict if another run wrote first."""
        try:
            self.version = self._unless_own(lambda: self.state.write(self.key, data, if_version=self.version))
        except WriteConflict:
            raise
        except BaseException:  # also Ctrl-C
            self._uncertain.append(data)
            raise
        self._uncertain.clear()

    def delete(self) -> None:
        """Raises WriteConflict when another run's record is there."""
        self._unless_own(lambda: self.state.delete(self.key, if_version=self.version or ""))

    def retract(self) -> None:
        """Deletes the record that a failed write may have stored."""
        present = self.state.read(self.key)
        if present is not None and present.data in self._uncertain:
            self.state.delete(self.key, if_version=present.version)

    def _unless_own(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except WriteConflict:
            present = self.state.read(self.key)
            if present is None or present.data not in self._uncertain:
                raise
            self.version = present.version
            return request()


LEASE = records.record({"until": records.moment}, {"holder": records.record({})})


@dataclass
class Lease:
    """Makes this run the only writer of a repository. Another run may take over the lease if the holder's
    process has ended on this host, or ``LEASE_GRACE`` after the lease expired by every clock. ``confirm``
    returns the earliest clock, and is called only if the lease has expired by ``now``."""

    state: StateWriter
    repository: str
    holder: Mapping[str, Any]
    now: Callable[[], datetime]
    is_gone: Callable[[Mapping[str, Any]], bool]
    confirm: Callable[[], datetime]
    seconds: int = LEASE_SECONDS

    def __post_init__(self) -> None:
        self._record = _OwnRecord(self.state, repository_key("leases", self.repository))

    def __enter__(self) -> Lease:
        key = self._record.key
        current = self.state.read(key)
        if current is not None:
            held, until = _held(current.data, self.repository, key)
            if not self.is_gone(held.get("holder", {})) and not self._is_over(until):
                raise LeaseHeld(
                    f"another run holds the lease on this repository until {held['until']}"
                    f" ({_who(held.get('holder', {}))})",
                    where=self.repository,
                    hint="Wait for that run to end, then run the command again.",
                )
        self._record.version = current.version if current else None
        try:
            self._hold()
        except WriteConflict:
            raise LeaseHeld(
                "another run has just acquired the lease on this repository",
                where=self.repository,
                hint="Wait for that run to end, then run the command again.",
            ) from None
        except BaseException:
            with suppress(LakeplanError):
                self._record.retract()  # it would block other runs until it expires
            raise
        return self

    def _hold(self) -> None:
        until = self.now() + timedelta(seconds=self.seconds)
        self._record.write(json_text({"holder": dict(self.holder), "until": utc_text(until)}))

    def _is_over(self, until: datetime) -> bool:
        end = until + LEASE_GRACE
        return end < self.now() and end < self.confirm()

    def renew(self) -> None:
        """Extends the lease by its full duration. Raises LeaseHeld if another run took it over."""
        try:
            self._hold()
        except WriteConflict:
            raise LeaseHeld(
                "the lease of this run expired, and another run took it over",
                where=self.repository,
                hint="Check what the other run did, then run the command again.",
            ) from None

    def __exit__(self, *_: object) -> None:
        for is_last in (False, True):
            try:
                self._record.delete()
                return
            except WriteConflict:
                # The lease expired. Another run holds it now, and will delete it.
                return
            except LakeplanError as error:
                with suppress(LakeplanError):
                    if self.state.read(self._record.key) is None:
                        return  # only the answer was lost
                # The results of the run must still be recorded and reported.
                if is_last:
                    _log.warning(
                        "%s: the lease could not be released, so it blocks other runs until it expires: %s",
                        self.repository,
                        error,
                    )


@dataclass
class RunJournal:
    """The record of one run. It is stored again after every step, so that a killed run is recorded too."""

    state: StateWriter
    run_id: str
    record: dict[str, Any]

    def __post_init__(self) -> None:
        self._stored = _OwnRecord(self.state, f"history/{self.run_id}.json")

    def save(self) -> None:
        self._stored.write(json_text(self.record))

    def step(self, repository: str, **values: Any) -> None:
        """Adds or updates a repository's entry and stores the record."""
        self.record.setdefault("repositories", {}).setdefault(repository, {}).update(values)
        self.save()


def check_lease(state: StateReader, repository: str) -> None:
    """Raises LeaseHeld if the stored lease is damaged, but not if a run holds it."""
    key = repository_key("leases", repository)
    stored = state.read(key)
    if stored is not None:
        _held(stored.data, repository, key)


def _held(data: bytes, repository: str, key: str) -> tuple[dict[str, Any], datetime]:
    """A stored lease and its end. Raises LeaseHeld for a damaged lease, because another run may hold it."""
    try:
        held = records.read_record(data, LEASE, what="the lease of this repository", where=key, hint="")
    except FormatError as error:
        raise LeaseHeld(
            f"{error.message} (state record {key})",
            where=repository,
            hint=(
                "Make sure that no other run is writing to the repository. Then delete the state record and"
                " run the command again."
            ),
        ) from None
    until = records.moment_in(held["until"])
    return held, until


def _who(holder: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {holder[k]}" for k in ("user", "host", "pid") if k in holder) or "unknown holder"
