"""Reads and writes the baseline of each repository, which drift compares with the server.

It contains the values that the last apply wrote, or that an import or a later apply found to match the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from lakeplan.errors import LakeplanError, WriteConflict
from lakeplan.review.run import GC, Run, close_journal
from lakeplan.state.clocks import HasClock, clock_errors
from lakeplan.state.store import (
    RunJournal,
    Sighting,
    damaged_baseline,
    read_applied,
    read_baseline,
    repository_key,
    write_baseline,
)
from lakeplan.stores.open import StateReader, StateWriter
from lakeplan.values.desired import SettingItem, SettingKind, item_body, items_from_body
from lakeplan.values.plan import RepositoryPlan
from lakeplan.values.progress import in_parallel
from lakeplan.values.records import moment_in
from lakeplan.values.rules import GcRules, rules_from_body
from lakeplan.values.units import first_of

WORKERS = 8


@dataclass(frozen=True)
class MatchingRun:
    """The import or apply that found that a repository matches the tree."""

    run_id: str
    at: datetime
    command: str


@dataclass(frozen=True)
class LastApplied:
    """The state's record of a repository's last apply. ``rules`` None: they were cleared. ``rules_recorded``
    False: no apply wrote any. ``settings`` are the policies and object rules that were read back: empty if
    they were cleared, without a key if nothing was applied. ``attempts`` are the values of later writes whose
    end could not be recorded, oldest first. ``seen`` is the run that found matching values and did not write
    them. With an empty ``run_id``, nothing was ever written."""

    rules: GcRules | None
    config_hash: str
    run_id: str
    at: datetime
    rules_recorded: bool = True
    settings: Mapping[SettingKind, tuple[SettingItem, ...]] = field(default_factory=dict)
    attempts: Mapping[SettingKind | None, tuple[Any, ...]] = field(default_factory=dict)
    seen: MatchingRun | None = None

    @property
    def newest(self) -> MatchingRun:
        """The run that last wrote values of the repository, or found that they match the tree."""
        written = MatchingRun(self.run_id, self.at, "apply")
        return self.seen if self.seen is not None and self.seen.at >= self.at else written

    def with_rules(self, stored: GcRules | None) -> LastApplied:
        """Return the record with the stored rules as the applied ones, if an apply was to write them."""
        attempted = stored in self.attempts.get(None, ())
        return replace(self, rules=stored, rules_recorded=True) if attempted else self

    @property
    def has_remainder(self) -> bool:
        """Whether the server may still have something that the apply wrote."""
        attempted = any(body for bodies in self.attempts.values() for body in bodies)
        return self.rules is not None or any(self.settings.values()) or attempted


def read_last_applied(state: StateReader, repository: str) -> LastApplied | None:
    """The last apply of ``server/name`` by its records, or None if there is none. Raises LakeplanError for a
    record that cannot be read, which must not look like "never applied"."""
    sightings, _ = read_baseline(state, repository)
    written = _read_written(state, repository, sightings)
    try:
        return _with_sightings(written, sightings)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_baseline(repository, repr(error)) from None


def _read_written(
    state: StateReader, repository: str, sightings: Mapping[str, Sighting]
) -> LastApplied | None:
    if (stored := read_applied(state, repository)) is None:
        return None
    record, _ = stored
    try:
        settings = record.get("settings", {})
        attempts = record.get("attempts", {})
        recorded = "body" in record or not (settings or attempts)
        body = record["body"] if recorded else None
        return LastApplied(
            rules=None if body is None else rules_from_body(body),
            config_hash=str(record["config_hash"]),
            run_id=str(record["run_id"]),
            at=moment_in(record["at"]),
            rules_recorded=recorded,
            settings=_settings(settings),
            attempts=dict(_attempts(attempts, sightings)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LakeplanError(
            "the state's record of the last apply is damaged",
            where=repository_key("applied", repository),
            hint="Move the record elsewhere. The next apply writes a new one.",
            detail=repr(error),
        ) from None


def _settings(record: Mapping[str, Any]) -> dict[SettingKind, tuple[SettingItem, ...]]:
    kinds = {SettingKind(name): setting["body"] or () for name, setting in record.items()}
    return {kind: items_from_body(kind, body) for kind, body in kinds.items()}


def _attempts(
    record: Mapping[str, Any], sightings: Mapping[str, Sighting]
) -> Iterator[tuple[SettingKind | None, tuple[Any, ...]]]:
    """The attempts whose end is not known from a later inspection."""
    for name, attempts in record.items():
        since = sightings[name].at if name in sightings else None
        bodies = [a["body"] for a in attempts if since is None or moment_in(a["at"]) >= since]
        if not bodies:
            continue
        if name == GC:
            yield None, tuple(None if b is None else rules_from_body(b) for b in bodies)
        else:
            kind = SettingKind(name)
            yield kind, tuple(items_from_body(kind, b or ()) for b in bodies)


def _with_sightings(written: LastApplied | None, sightings: Mapping[str, Sighting]) -> LastApplied | None:
    """The record with every setting that was observed later than it was written."""
    newer = {name: sighting for name, sighting in sightings.items() if _is_newer(sighting, name, written)}
    if not newer:
        return written
    last = max(newer.values(), key=lambda sighting: sighting.at)
    record = written or LastApplied(None, "", "", last.at, rules_recorded=False)
    if gc := newer.get(GC):
        rules = None if gc.body is None else rules_from_body(gc.body)
        record = replace(record, rules=rules, rules_recorded=True, config_hash=gc.config_hash)
    kinds = {kind: newer[kind.value] for kind in SettingKind if kind.value in newer}
    settings = {kind: items_from_body(kind, sighting.body or ()) for kind, sighting in kinds.items()}
    seen_at = MatchingRun(last.run_id, last.at, last.command)
    return replace(record, settings={**record.settings, **settings}, seen=seen_at)


def _is_newer(sighting: Sighting, name: str, written: LastApplied | None) -> bool:
    """Whether an observed setting is newer than the written one. If both are of the same run, both count,
    because a run observes the settings that it does not write."""
    if written is None or sighting.run_id == written.run_id or sighting.at >= written.at:
        return True
    return not written.rules_recorded if name == GC else SettingKind(name) not in written.settings


@dataclass(frozen=True)
class Recorded:
    """The repositories (``server/name``) with a new baseline. ``note`` says which could not be recorded and
    why, or is ""."""

    repositories: tuple[str, ...]
    note: str = ""


def record_baselines(
    repositories: Iterable[RepositoryPlan],
    state: StateWriter,
    run: Run,
    connect: Callable[[str], HasClock],
    *,
    at: datetime,
) -> Recorded:
    """Records every setting that a plan, made ``at``, found to agree with the tree."""
    agreeing = {r.key: baseline for r in repositories if (baseline := _agreeing(r, run, at))}
    return record_sightings(agreeing, state, run, connect)


def record_sightings(
    agreeing: Mapping[str, Mapping[str, Sighting]],
    state: StateWriter,
    run: Run,
    connect: Callable[[str], HasClock],
) -> Recorded:
    """Records observed values, by ``server/name`` and setting. Values that are on record only get the new
    time, by which an apply detects that an earlier plan is outdated. Nothing is recorded if the clock of this
    machine is wrong: with a later time, a record would stay the newest."""
    wrong = clock_errors(agreeing, connect, run.now)

    def one(key: str) -> LakeplanError | bool:
        if (error := wrong.get(key.partition("/")[0])) is not None:
            return error
        try:
            is_known = _is_on_record(read_last_applied(state, key), agreeing[key])
            write_baseline(state, key, agreeing[key])
            return not is_known
        except WriteConflict:
            return False  # another run has recorded what it observed
        except LakeplanError as failure:
            return failure

    results = dict(zip(agreeing, in_parallel(one, agreeing, WORKERS), strict=True))
    recorded = tuple(key for key, end in results.items() if end is True)
    failed = {key: end for key, end in results.items() if isinstance(end, LakeplanError)}
    if not failed:
        return Recorded(recorded)
    why = f"because the baseline could not be recorded: {next(iter(failed.values()))}"
    return Recorded(recorded, f"drift may miss edits to {first_of(failed, 1)}, {why}")


def note_baselines(journal: RunJournal, recorded: Recorded, run: Run) -> str:
    """Adds the run that recorded baselines to the history. Returns why that failed, or ""."""
    journal.record["repositories"] = {key: {"status": "seen"} for key in recorded.repositories}
    return close_journal(journal, run)


def _agreeing(plan: RepositoryPlan, run: Run, at: datetime) -> dict[str, Sighting]:
    if plan.failure is not None:
        return {}
    bodies: dict[str, Any] = {}
    if plan.managed and not plan.action.writes:
        bodies[GC] = None if plan.before is None else plan.before.to_body()
    for setting in plan.settings:
        if not setting.action.writes:
            bodies[setting.kind.value] = [item_body(item) for item in setting.before or ()]
    return {n: Sighting(body, plan.config_hash, run.run_id, at, "apply") for n, body in bodies.items()}


def _is_on_record(last: LastApplied | None, sightings: Mapping[str, Sighting]) -> bool:
    """Whether the observed values are already recorded."""
    if last is None:
        return False
    for name, sighting in sightings.items():
        if name == GC:
            rules = None if last.rules is None else last.rules.to_body()
            if not last.rules_recorded or rules != sighting.body or last.config_hash != sighting.config_hash:
                return False
        else:
            known = last.settings.get(SettingKind(name))
            if known is None or [item_body(item) for item in known] != (sighting.body or []):
                return False
    return True
