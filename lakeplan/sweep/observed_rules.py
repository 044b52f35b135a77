"""When rules were last lowered, and the clocks and the lease of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakeplan.branches.pin_records import read_stored
from lakeplan.errors import FormatError, LakeplanError, StorageError, StorageNotFound
from lakeplan.formats.namespace import RULES_KEY
from lakeplan.review.history import RunRecord, RunStep, find_run, runs_since, with_retried
from lakeplan.review.run import Run
from lakeplan.state.clocks import Clocks, read_clocks, server_clock, store_time
from lakeplan.state.store import Lease, read_applied, repository_key
from lakeplan.stores.open import StateReader, StateWriter
from lakeplan.sweep.ports import Site
from lakeplan.sweep.rules import lowered
from lakeplan.values import records
from lakeplan.values.documents import decode, encode
from lakeplan.values.pins import is_pin_name
from lakeplan.values.records import json_text, moment_in, moment_of
from lakeplan.values.rules import NO_RULES, GcRules, RulesBefore

LEASE_SECONDS = 30 * 60
"""Longer than a round and its inspection. A killed run on another machine blocks the repository for this
long."""


def site_clocks(site: Site, key: str, now: Callable[[], datetime], *, by: str) -> Clocks:
    """The clocks of this machine, the server and the store. Writes a small file to ``key`` to read the
    store's. Raises ClockSkew when they differ, ServerError, StorageError."""
    others = {
        "the server's clock": lambda: site.reader.server_time(site.desired.name),
        "the store's clock": lambda: store_time(site.store, key, {"by": by, "at": now().isoformat()}),
    }
    return read_clocks(now, others, where=site.key)


def site_lease(site: Site, state: StateWriter, run: Run) -> Lease:
    """The repository's lease, for longer than a round may take."""

    def confirm() -> datetime:
        return server_clock(site.reader, site.desired.name, run.now, where=site.key).earliest

    return Lease(state, site.key, run.holder, run.now, run.is_gone, confirm, seconds=LEASE_SECONDS)


LONGEST_RUN = timedelta(hours=24)
"""How long after its start a run that was killed, or whose record is damaged, may have written rules."""


@dataclass(frozen=True)
class ObservedRules:
    """``lowered_at``: when a rule was last lowered, by all records; an unrecorded change counts from when it
    was first observed. ``before``: the rules before their last recorded change."""

    lowered_at: datetime
    before: RulesBefore


@dataclass(frozen=True)
class _Sighting:
    rules: GcRules
    seen_at: datetime
    lowered_at: datetime


@dataclass(frozen=True)
class _Applied:
    """When lakeplan wrote the stored rules, or found them in place (``found``), and the rules before that."""

    at: datetime
    before: RulesBefore
    found: bool = False


def observe_rules(
    site: Site, state: StateWriter, stored: GcRules, clocks: Clocks, *, settle_seconds: int
) -> ObservedRules:
    """When the stored rules were last lowered, and what they replaced. Entries of pins do not count.

    Compares the rules with what earlier runs observed and what applies wrote, then records them in the state
    and in the namespace. The latest known moment counts: the last recorded lowering, or the first observation
    of rules that differ from the record (they may have been higher in between). Each record
    also counts without the other. A state without a record starts anew. So does a repository that was created
    again: earlier records are of its predecessor.

    Lowerings longer ago than ``settle_seconds`` are not searched for. Raises StorageError, WriteConflict.
    """
    key, now = repository_key("sweep/rules", site.key), clocks.latest
    if any(is_pin_name(branch) for branch in stored.branches):
        stored = read_stored(site.reader, site.desired.name).bare or stored
    current, born = state.read(key), moment_of(site.repository.creation_date * 1_000_000)
    applied = _applied(state, site.key, stored)
    if applied is not None and applied.at < born:
        applied = None
    lowerings = [
        _lowered_at(_parse(data, since=born), stored, applied, now)
        for data in (current.data if current else None, _in_namespace(site))
        if data is not None
    ]
    if current is None:
        lowerings.append(applied.at if applied is not None else now)
    searched = clocks.earliest - timedelta(seconds=settle_seconds)
    lowerings += _recorded(state, site.key, since=max([*lowerings, searched]), now=now)
    lowered_at = max(lowerings)
    data = json_text(encode(_Sighting(stored, now, lowered_at)))
    site.store.put(RULES_KEY, data)
    state.write(key, data, if_version=current.version if current else None)
    return ObservedRules(lowered_at, applied.before if applied is not None else None)


def _lowered_at(last: _Sighting | None, stored: GcRules, applied: _Applied | None, now: datetime) -> datetime:
    """When the rules were last lowered, by one earlier sighting, or None if its record cannot be used."""
    if last is None:
        return now
    if last.rules == stored:
        return last.lowered_at
    if applied is None or applied.at <= last.seen_at:
        return max(now, last.lowered_at)
    # Rules that were found in place may have been raised and lowered again after lakeplan wrote them.
    if not applied.found and applied.before == last.rules and not lowered(last.rules, stored):
        return last.lowered_at
    return max(applied.at, last.lowered_at)


def _recorded(state: StateReader, repository: str, *, since: datetime, now: datetime) -> list[datetime]:
    """The moments at which runs of the history lowered rules of the repository."""
    moments = []
    for run in runs_since(state, since - LONGEST_RUN):
        if run.record is None:
            moments.append(min(now, min(now, run.began) + LONGEST_RUN))
            continue
        ended = run.record.finished_at or min(now, run.record.started_at + LONGEST_RUN)
        moments += [
            ended
            for step in run.record.steps
            if step.repository == repository
            and step.replaced
            and step.after is not None
            and lowered(step.before, step.after)
        ]
    return moments


def _in_namespace(site: Site) -> bytes | None:
    try:
        return site.store.read(RULES_KEY)
    except StorageNotFound:
        return None


_SIGHTING = records.record({"rules": records.rules, "seen_at": records.moment, "lowered_at": records.moment})


def _parse(data: bytes, *, since: datetime) -> _Sighting | None:
    """A recorded sighting, or None for a damaged record, and for one from before ``since``."""
    try:
        record = records.read_record(data, _SIGHTING, what="the record of the rules", where="", hint="")
    except FormatError:
        return None
    sighting: _Sighting = decode(record, _Sighting)
    return None if sighting.seen_at < since else sighting


def _applied(state: StateReader, repository: str, stored: GcRules) -> _Applied | None:
    """When lakeplan last applied exactly these rules, and what they replaced."""
    try:
        last = read_applied(state, repository)
        if last is None:
            return None
        record, _ = last
        if record.get("etag") != stored.etag:
            return None
        at = moment_in(record["at"])
        run = find_run(state, record["run_id"])
        written = _replacing(run, repository)
        step = written or _replaced_earlier(state, run, repository)
    except StorageError:
        raise  # otherwise a lost answer would turn what newly expires into backlog
    except LakeplanError:
        return None
    if step is None:
        return _Applied(at, None)
    return _Applied(at, step.before if step.before is not None else NO_RULES, found=written is None)


def _replacing(run: RunRecord, repository: str) -> RunStep | None:
    return next((s for s in run.steps if s.repository == repository and s.replaced), None)


def _replaced_earlier(state: StateReader, run: RunRecord, repository: str) -> RunStep | None:
    """How an earlier run of the same plan replaced the rules that this run found in place. Also None if a run
    of another plan replaced rules since that plan was made: then it is unknown what these rules replaced."""
    if run.plan_as_of is None:
        return None
    others = (r.record for r in runs_since(state, run.plan_as_of) if r.record is not None)
    if any(o.plan_digest != run.plan_digest and _replacing(o, repository) is not None for o in others):
        return None
    return _replacing(with_retried(state, run), repository)
