"""Pins on a server and on record: which are lakeplan's own, the rules without their entries, and the change
of a pin's rule before the last branch at its commit is deleted.

Every pin is recorded in the state (``pins/<server>/<repository>.json``) before lakeplan creates it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import Any, Protocol

from lakeplan.branches.pins import (
    Change,
    History,
    losses,
    missing_entries,
    own_pins,
    with_entries,
    without_entries,
    without_pins,
)
from lakeplan.errors import GateRefused, StalePlan
from lakeplan.lakefs.protocols import GcRulesWriter, LakeFSReader
from lakeplan.retention.graph import CommitGraph
from lakeplan.review.run import Run, read_back
from lakeplan.review.selection import read_all_refs
from lakeplan.state.store import read_repository_record, repositories_of, repository_key
from lakeplan.stores.open import StateReader, StateWriter
from lakeplan.values import records
from lakeplan.values.branches import LiveBranch
from lakeplan.values.pins import Pin, is_pin_name, may_be_pin, pin_name
from lakeplan.values.plan import Horizon
from lakeplan.values.records import utc_text
from lakeplan.values.repository import Refs
from lakeplan.values.rules import GcRules
from lakeplan.values.units import count_of

KIND = "pins"
_MOVED = "it was moved to another commit"
_PIN = records.record({}, {"retention_days": records.days, "holds": records.list_of(records.text)})
RECORD = records.record(
    {
        "repository": records.text,
        "run_id": records.text,
        "at": records.moment,
        "config_hash": records.text,
        "pins": records.map_of(_PIN),
    }
)


@dataclass(frozen=True)
class PinRecord:
    """The pins that lakeplan created in a repository, each with its last rule. ``config_hash`` is the hash of
    the tree's settings at the last apply, ``version`` that of the record in the state, or None."""

    pins: tuple[Pin, ...] = ()
    config_hash: str = ""
    version: str | None = None

    @property
    def commit_ids(self) -> frozenset[str]:
        return frozenset(pin.commit_id for pin in self.pins)


def read_pin_record(state: StateReader, repository: str) -> PinRecord:
    """The record of ``server/name``, empty if there is none. Raises FormatError for a damaged one."""
    what = "the state's record of pins"
    hint = "Restore the record from a backup, or move it elsewhere and run `lakeplan pins sync --adopt`."
    stored = read_repository_record(state, KIND, repository, RECORD, what=what, hint=hint)
    if stored is None:
        return PinRecord()
    record, version = stored
    pins = (
        Pin(commit, values.get("retention_days"), tuple(values.get("holds") or ()))
        for commit, values in sorted(record["pins"].items())
    )
    return PinRecord(tuple(pins), record["config_hash"], version)


def write_pin_record(
    state: StateWriter, repository: str, pins: PinRecord, *, run_id: str, at: datetime
) -> PinRecord:
    """Replaces the record. Raises WriteConflict if the stored one has another ``version``."""
    record: dict[str, Any] = {
        "repository": repository,
        "run_id": run_id,
        "at": utc_text(at),
        "config_hash": pins.config_hash,
        "pins": {p.commit_id: {"retention_days": p.days, "holds": p.holds} for p in pins.pins},
    }
    data = (json.dumps(record, indent=2, sort_keys=True) + "\n").encode()
    return replace(pins, version=state.write(repository_key(KIND, repository), data, if_version=pins.version))


class PinRecords:
    """The records of pins by ``server/name``. Lists the state's records once, and reads only these."""

    def __init__(self, state: StateReader) -> None:
        self._state = state
        self._known: frozenset[str] | None = None

    def of(self, repository: str) -> PinRecord:
        if self._known is None:
            self._known = repositories_of(self._state, KIND)
        return read_pin_record(self._state, repository) if repository in self._known else PinRecord()


@dataclass(frozen=True)
class StoredRules:
    """The rules and pins of a repository. ``raw`` are the server's rules, ``bare`` those without the entries
    of pins, which are compared with the tree. ``pins`` are hidden branches at the commit in their name,
    recorded or not. ``others`` only have names like pins."""

    raw: GcRules | None
    bare: GcRules | None
    pins: tuple[LiveBranch, ...] = ()
    others: tuple[LiveBranch, ...] = ()

    @property
    def entries(self) -> Mapping[str, int]:
        """The rules of pins, including those whose branch no longer exists."""
        return {} if self.raw is None else _entries(self.raw, self.others)

    def with_entries(self, rules: GcRules | None) -> GcRules | None:
        """Rules to be written, with the stored entries of pins, which no other write may drop."""
        return None if rules is None else with_rules_of(rules, self.entries)

    def own(self, record: PinRecord) -> tuple[Pin, ...]:
        """The pins that are certainly lakeplan's, each with its rule on record."""
        known = {pin.commit_id: pin for pin in record.pins}
        return tuple(known[pin.commit_id] for pin in own_pins(self.pins, known))

    def as_stored(self, pins: Iterable[Pin]) -> tuple[Pin, ...]:
        """Pins with the rules that they have on the server."""
        return tuple(replace(pin, days=self.entries.get(pin.name)) for pin in pins)

    def foreign(self, record: PinRecord) -> list[str]:
        """Branches that have names like pins but are not lakeplan's, with the reason. They are never
        deleted."""
        known = record.commit_ids
        return [
            *(f"{b.id}: {_MOVED if b.hidden else 'it is not hidden'}" for b in self.others),
            *(f"{b.id}: the state has no record of it" for b in self.pins if b.commit_id not in known),
        ]

    def wrong(self, record: PinRecord) -> list[Pin]:
        """Own pins whose rule differs from the one on record. Until it is corrected, a server's collector
        must not run. Empty without rules, because then nothing is collected."""
        return [] if self.raw is None else missing_entries(self.raw, self.own(record))

    def gone(self, record: PinRecord) -> list[Pin]:
        """Pins on record that no longer exist or were moved."""
        there = {branch.commit_id for branch in self.pins}
        return [pin for pin in record.pins if pin.commit_id not in there]


def check_pins(reader: LakeFSReader, state: StateReader, repository: str) -> None:
    """Raises GateRefused if a pin of ``server/name`` is gone or lacks its rule: a collection could then
    delete data that pins or branches protect."""
    record = read_pin_record(state, repository)
    if not record.pins:
        return
    stored = read_stored(reader, repository.partition("/")[2], list_pins=True)
    wrong, gone = stored.wrong(record), stored.gone(record)
    if wrong or gone:
        what = "was deleted or moved" if gone else "does not have the rule that it needs"
        raise GateRefused(
            f"the pin {(gone or wrong)[0].name} {what} ({count_of(len(wrong) + len(gone), 'pin')} affected),"
            " so a collection could delete data that pins protect",
            where=repository,
            hint="Run `lakeplan pins sync`, then run the command again.",
        )


def replace_rules(
    connection: RulesConnection,
    repository: str,
    rules: tuple[GcRules | None, GcRules | None],
    *,
    sleep: Callable[[float], None],
    where: str,
    again: str,
    writing: AbstractContextManager[None] | None = None,
) -> None:
    """Writes the second of ``rules`` if the server still stores the first, and reads it back. The request
    that writes is sent inside ``writing``. Hints say to run ``again``. Raises StalePlan if somebody else
    wrote before or after."""
    before, after = rules
    reader = connection.reader
    if reader.get_gc_rules(repository) != before:
        raise StalePlan("someone else changed the rules during this run", where=where, hint=f"Run {again}.")
    with writing or nullcontext():
        store_rules(connection, repository, after)
    if read_back(lambda: reader.get_gc_rules(repository), lambda now: now == after, sleep) != after:
        raise StalePlan(
            "the rules on the server differ from those that lakeplan just wrote, so someone else must have"
            " changed them",
            where=where,
            hint=f"Check what the server stores now, then run {again}.",
        )


def store_rules(connection: RulesConnection, repository: str, rules: GcRules | None) -> None:
    if rules is None:
        connection.writer.delete_gc_rules(repository)
    else:
        connection.writer.set_gc_rules(repository, rules)


class RulesConnection(Protocol):
    """A server whose GC rules may be written."""

    @property
    def reader(self) -> LakeFSReader: ...
    @property
    def writer(self) -> GcRulesWriter: ...


def with_rules_of(rules: GcRules, entries: Mapping[str, int]) -> GcRules:
    return GcRules(rules.default_retention_days, {**rules.branches, **entries})


def _entries(raw: GcRules, others: Collection[LiveBranch]) -> dict[str, int]:
    foreign = {branch.id for branch in others}
    return {name: days for name, days in raw.branches.items() if is_pin_name(name) and name not in foreign}


def read_stored(reader: LakeFSReader, repository: str, *, list_pins: bool = False) -> StoredRules:
    """The rules with and without the entries of pins. Pins are listed if there is an entry named like a pin,
    or with ``list_pins``, because some pins have no entry. Raises ServerError."""
    raw = reader.get_gc_rules(repository)
    if not list_pins and (raw is None or not any(is_pin_name(name) for name in raw.branches)):
        return StoredRules(raw, raw)
    live = reader.list_pins(repository)
    others = tuple(branch for branch in live if not may_be_pin(branch))
    bare = None if raw is None else without_entries(raw, _entries(raw, others))
    return StoredRules(raw, bare, tuple(b for b in live if may_be_pin(b)), others)


# ---- before a branch is deleted
@dataclass(frozen=True)
class PinRelease:
    """Prepares the pins of one repository (``key`` is ``server/name``) for the deletion of branches. A pin of
    0 days at a commit without children and branches makes its ancestors expire. So a branch at such a commit
    is deleted only after the pin has been given the default days (``lakeplan.branches.pins``). ``surveyed``
    are the rules that the survey read. They name pins that are not on record, as after a server was renamed
    in the tree or the state was lost."""

    key: str
    reader: LakeFSReader
    writer: GcRulesWriter
    state: StateWriter
    run: Run
    zone: tzinfo
    surveyed: GcRules | None = None

    def before_deleting(self, branch_id: str, commit_id: str) -> None:
        """Removes the pin's rule of 0 days if only the pin will lead to the commit. Raises GateRefused if the
        branch must be kept, because otherwise something would be kept for less time."""
        record = read_pin_record(self.state, self.key)
        known, name = commit_id in record.commit_ids, pin_name(commit_id)
        if not known and (self.surveyed is None or name not in self.surveyed.branches):
            return
        stored = read_stored(self.reader, self.name)
        pinned = any(pin.commit_id == commit_id for pin in stored.pins)
        if not pinned or stored.raw is None or stored.entries.get(name) is None:
            return
        ours = stored.own(record)
        refs = read_all_refs(self.reader, self.name, read_only=False)[0]
        refs = without_pins(refs, (*ours, Pin(commit_id)))
        if not _is_left_alone(refs, branch_id, commit_id):
            return
        if not known:
            raise GateRefused(
                f"branch {branch_id} is at the commit of pin {name}, of which the state has no record",
                where=self.key,
                hint="Run `lakeplan pins sync --adopt`, then run the command again.",
            )
        rules = self._safe_rules(branch_id, stored, ours, refs, commit_id)
        replace_rules(
            self,
            self.name,
            (stored.raw, rules),
            sleep=self.run.sleep,
            where=self.key,
            again="the command again",
        )
        pins = (replace(pin, days=None) if pin.commit_id == commit_id else pin for pin in record.pins)
        released = replace(record, pins=tuple(pins))
        write_pin_record(self.state, self.key, released, run_id=self.run.run_id, at=self.run.now())

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    def _safe_rules(
        self, branch_id: str, stored: StoredRules, pins: Iterable[Pin], refs: Refs, commit_id: str
    ) -> GcRules:
        assert stored.raw is not None
        there = stored.as_stored(pins)
        want = tuple(replace(pin, days=None) if pin.commit_id == commit_id else pin for pin in there)
        bare = without_entries(stored.raw, [pin.name for pin in there])
        now = self.run.now()
        moments = [now + timedelta(days=horizon.days) for horizon in Horizon]
        history = History(refs, CommitGraph.from_refs(refs), bare, moments, self.zone)
        if (loss := next(losses(history, Change(stored.raw, bare, there, want)), None)) is not None:
            raise GateRefused(
                f"branch {branch_id} is at a pinned commit: {loss}",
                where=self.key,
                hint="Run `lakeplan pins sync`, then run the command again.",
            )
        return with_entries(bare, want)


def _is_left_alone(refs: Refs, branch_id: str, commit_id: str) -> bool:
    """Whether the commit is no branch's HEAD and no commit's main parent once the branch is deleted."""
    graph = CommitGraph.from_refs(refs).without_branches({branch_id})
    number = graph.index.get(commit_id)
    return number is not None and number in set(graph.server_dangling)
