"""Since when a repository's rules are as they are: what ``settle`` counts from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakeplan.app.history import find_run
from lakeplan.app.state import repository_key
from lakeplan.app.sweep.places import rules_key
from lakeplan.core.sweep.settling import lowered
from lakeplan.errors import LakeplanError
from lakeplan.limits import parse_json
from lakeplan.model.moments import utc_text
from lakeplan.model.plan_document import rules_from_body
from lakeplan.model.rules import GcRules
from lakeplan.ports.storage import StateReader, StateWriter


@dataclass(frozen=True)
class RulesSeen:
    """``lowered_at``: when a rule was last lowered, as far as it is recorded; else when the rules were first
    seen as they are. ``before``: the rules before their last recorded change; None when not known."""

    lowered_at: datetime
    before: GcRules | None


def see_rules(state: StateWriter, repository: str, stored: GcRules, now: datetime) -> RulesSeen:
    """Compares the stored rules with what earlier marks saw and what applies wrote, and remembers them.
    What nobody recorded counts as lowered just now. Raises StorageError, WriteConflict."""
    key = rules_key(repository)
    current = state.read(key)
    last = _parse(current.data if current else None)
    applied_at, before = _applied(state, repository, stored)
    if last is not None and not lowered(last[0], stored):
        lowered_at = last[2]
    elif applied_at is not None and (last is None or applied_at > last[1]):
        lowered_at = applied_at
    else:
        lowered_at = now
    record = {"rules": stored.to_body(), "seen_at": utc_text(now), "lowered_at": utc_text(lowered_at)}
    data = (json.dumps(record, indent=2, sort_keys=True) + "\n").encode()
    state.write(key, data, if_version=current.version if current else None)
    return RulesSeen(lowered_at, before)


def _parse(data: bytes | None) -> tuple[GcRules, datetime, datetime] | None:
    """The rules, when they were seen and when lowered; None when there is no record, or a damaged one."""
    if data is None:
        return None
    try:
        record = parse_json(data)
        return rules_from_body(record["rules"]), _moment(record["seen_at"]), _moment(record["lowered_at"])
    except (ValueError, KeyError, TypeError, AttributeError, LakeplanError):
        return None


def _applied(state: StateReader, repository: str, stored: GcRules) -> tuple[datetime | None, GcRules | None]:
    """When lakeplan wrote these very rules, and what they replaced."""
    found = state.read(repository_key("applied", repository))
    if found is None:
        return None, None
    try:
        record: dict[str, Any] = parse_json(found.data)
        if record.get("etag") != stored.etag:
            return None, None
        at = _moment(record["at"])
        run = find_run(state, record["run_id"])
    except (ValueError, KeyError, TypeError, AttributeError, LakeplanError):
        return None, None
    step = next((s for s in run.steps if s.repository == repository and s.replaced), None)
    return at, step.before if step is not None else None


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
