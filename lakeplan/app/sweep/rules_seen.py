"""Since when a repository's rules are as they are: what ``settle`` counts from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakeplan.app.clocks import Clocks
from lakeplan.app.history import find_run, runs_since
from lakeplan.app.state import read_applied
from lakeplan.app.sweep.places import rules_key
from lakeplan.app.sweep.ports import Site
from lakeplan.core.sweep.settling import lowered
from lakeplan.errors import LakeplanError, StorageNotFound
from lakeplan.formats.sweep_keys import RULES_KEY
from lakeplan.limits import parse_json
from lakeplan.model.desired import GcDesired
from lakeplan.model.moments import utc_text
from lakeplan.model.plan_document import rules_from_body
from lakeplan.model.rules import GcRules
from lakeplan.ports.storage import StateReader, StateWriter

LONGEST_RUN = timedelta(hours=24)
"""A run that was killed, or whose record is damaged, may have written rules for so long after it began."""


@dataclass(frozen=True)
class RulesSeen:
    """``lowered_at``: when a rule was last lowered, as far as anything is known; a change that nobody
    recorded counts from when it was first seen. ``before``: the rules before their last recorded change;
    None when not known."""

    lowered_at: datetime
    before: GcRules | None


@dataclass(frozen=True)
class _Sighting:
    """What one record knows. ``tree``: the days of the tree, which keep as well; None where it gave none."""

    rules: GcRules
    tree: GcRules | None
    seen_at: datetime
    lowered_at: datetime


@dataclass(frozen=True)
class _Now:
    """What is stored, what the tree gives, and the moment, by the latest clock."""

    rules: GcRules
    tree: GcRules | None
    at: datetime


@dataclass(frozen=True)
class _Applied:
    """What lakeplan wrote, when it is what is stored. ``before``: what it replaced; None when not known.
    ``is_recorded``: the history has the run that wrote it."""

    at: datetime
    before: GcRules | None
    is_recorded: bool


def see_rules(
    site: Site, state: StateWriter, stored: GcRules, clocks: Clocks, *, settle_seconds: int
) -> RulesSeen:
    """Compares the stored rules with what was seen before and with what applies wrote, and remembers them, in
    the state and in the namespace. Of all that is known the latest counts: the last lowering on record, and
    the first sight of rules that are others than before (they may have been higher in between), or of a tree
    that gives fewer days. What only one of the two records knows counts too; where one is missing or damaged,
    it starts anew.

    Lowerings on record longer ago than ``settle_seconds`` are not searched for. Raises StorageError,
    WriteConflict."""
    key, now = rules_key(site.key), _Now(stored, _tree_rules(site), clocks.latest)
    current, beside = state.read(key), _in_namespace(site)
    applied = _applied(state, site.key, stored)
    if current is None and beside is None:
        lowerings = [applied.at if applied is not None else now.at]
    else:
        records = (current.data if current else None, beside)
        lowerings = [_lowered_at(_parse(data) if data else None, now, applied) for data in records]
    searched = clocks.earliest - timedelta(seconds=settle_seconds)
    lowerings += _recorded(state, site.key, since=max([*lowerings, searched]), now=now.at)
    lowered_at = max(lowerings)
    record = {
        "rules": stored.to_body(),
        "tree": now.tree.to_body() if now.tree is not None else None,
        "seen_at": utc_text(now.at),
        "lowered_at": utc_text(lowered_at),
    }
    data = (json.dumps(record, indent=2, sort_keys=True) + "\n").encode()
    site.store.put(RULES_KEY, data)
    state.write(key, data, if_version=current.version if current else None)
    return RulesSeen(lowered_at, applied.before if applied is not None else None)


def _lowered_at(seen: _Sighting | None, now: _Now, applied: _Applied | None) -> datetime:
    """When rules were last lowered by what one record knew; None: it is missing or damaged."""
    if seen is None:
        return now.at
    written_since = applied is not None and applied.at > seen.seen_at
    same_tree = seen.tree is None or (now.tree is not None and not lowered(seen.tree, now.tree))
    if seen.rules == now.rules and same_tree:
        if applied is None or applied.is_recorded or not written_since:
            return seen.lowered_at
        return max(applied.at, seen.lowered_at)
    if applied is None or not written_since:
        return max(now.at, seen.lowered_at)
    if applied.before == seen.rules and not lowered(applied.before, now.rules) and same_tree:
        return seen.lowered_at
    return max(applied.at, seen.lowered_at)


def _tree_rules(site: Site) -> GcRules | None:
    """The days of the tree, by branch and by pattern; None when it manages none."""
    gc = site.desired.gc
    if not isinstance(gc, GcDesired):
        return None
    days = {f"{'pattern' if r.is_pattern else 'branch'} {r.name}": r.retention_days for r in gc.branches}
    return GcRules(gc.default_retention_days, days)


def _recorded(state: StateReader, repository: str, *, since: datetime, now: datetime) -> list[datetime]:
    """When runs of the history lowered rules of the repository."""
    found = []
    for run in runs_since(state, since - LONGEST_RUN):
        if run.record is None:
            found.append(min(now, run.began + LONGEST_RUN))
            continue
        ended = run.record.finished_at or min(now, run.record.started_at + LONGEST_RUN)
        found += [
            ended
            for step in run.record.steps
            if step.repository == repository
            and step.replaced
            and step.after is not None
            and lowered(step.before, step.after)
        ]
    return found


def _in_namespace(site: Site) -> bytes | None:
    try:
        return site.store.read(RULES_KEY)
    except StorageNotFound:
        return None


def _parse(data: bytes) -> _Sighting | None:
    try:
        record = parse_json(data)
        tree = record["tree"]
        return _Sighting(
            rules_from_body(record["rules"]),
            None if tree is None else rules_from_body(tree),
            _moment(record["seen_at"]),
            _moment(record["lowered_at"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, LakeplanError):
        return None


def _applied(state: StateReader, repository: str, stored: GcRules) -> _Applied | None:
    """When lakeplan wrote these very rules, and what they replaced."""
    try:
        found = read_applied(state, repository)
        if found is None:
            return None
        record, _ = found
        if record.get("etag") != stored.etag:
            return None
        at, run_id = _moment(record["at"]), str(record["run_id"])
    except (ValueError, KeyError, TypeError, AttributeError, LakeplanError):
        return None
    try:
        run = find_run(state, run_id)
    except LakeplanError:
        return _Applied(at, None, is_recorded=False)
    step = next((s for s in run.steps if s.repository == repository and s.replaced), None)
    return _Applied(at, step.before if step is not None else None, is_recorded=True)


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if at.tzinfo is None:
        raise ValueError("a moment without a zone")
    return at
