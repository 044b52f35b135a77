"""Gives notice of deletions: publishes what would be deleted, and records what a channel accepted."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakeplan.branches.memory import text_of
from lakeplan.branches.notices import Notice, write_notices
from lakeplan.branches.survey import Survey
from lakeplan.errors import LakeplanError
from lakeplan.stores.protocols import StateWriter
from lakeplan.values.branches import NOTHING_STAGED, BranchOutlook
from lakeplan.values.notify import Event, Item, Publisher, Sent

LONGER = timedelta(days=30)
"""By how much the example command of a notice exempts a branch."""
TITLE = "Branches will be deleted by policy"
HINT = "To keep a branch, run its command. A commit to it delays the deletion by another notice."


@dataclass(frozen=True)
class Noticed:
    """A branch that people were told about by this run."""

    branch_id: str
    commit_id: str
    policy: str | None
    channel: str
    deleted_from: datetime


@dataclass(frozen=True)
class Announced:
    """Of one repository: what was accepted, and why the rest was not."""

    noticed: tuple[Noticed, ...] = ()
    problems: tuple[str, ...] = ()


def give_notice(
    surveys: Sequence[Survey], publisher: Publisher, state: StateWriter, now: Callable[[], datetime]
) -> dict[str, Announced]:
    """By ``server/name``. ``now`` is the latest that any clock says: the period counts from the answer of the
    channel on. What cannot be recorded counts as not published."""
    due = {s.desired.key: _deleted_from(s, now()) for s in surveys}
    items = {(s.desired.key, o.id): _item(s, o, due[s.desired.key]) for s in surveys for o in s.notice_due}
    sent = publisher.publish(Event.BRANCH_DELETION, TITLE, list(items.values()), HINT)
    accepted_at = now()
    answers = {id(item): part for part in sent for item in part.items}
    found = {}
    for survey in surveys:
        key = survey.desired.key
        parts = {o.id: answers.get(id(items[key, o.id]), _UNANSWERED) for o in survey.notice_due}
        found[key] = _recorded(survey, parts, state, accepted_at, due[key])
    return found


_UNANSWERED = Sent((), problem="nobody tried to send it")


def _recorded(
    survey: Survey, parts: Mapping[str, Sent], state: StateWriter, accepted_at: datetime, due: datetime
) -> Announced:
    refused = Counter((p.channel, p.problem) for p in parts.values() if p.problem)
    problems = [_postponed(count, channel, why) for (channel, why), count in sorted(refused.items())]
    accepted = {o.id: o for o in survey.notice_due if not parts[o.id].problem}
    period = timedelta(seconds=survey.desired.lifecycle.notice_period_seconds)
    notices = {
        name: Notice(
            o.facts.commit_id,
            o.staged.fingerprint if o.staged is not None else NOTHING_STAGED,
            accepted_at,
            due,
            parts[name].channel,
        )
        for name, o in accepted.items()
    }
    if not notices:
        return Announced((), tuple(problems))
    try:
        write_notices(
            state,
            survey.desired.key,
            {**survey.spared.notices, **notices},
            survey.outlooks,
            survey.spared.version,
        )
    except LakeplanError as error:
        text = f"published and not recorded ({error.message})"
        return Announced((), (*problems, _postponed(len(notices), "", text)))
    noticed = tuple(
        Noticed(name, n.head, accepted[name].verdict.policy, n.channel, n.due(period))
        for name, n in sorted(notices.items())
    )
    return Announced(noticed, tuple(problems))


def _postponed(count: int, channel: str, why: str) -> str:
    where = f" (channel {channel})" if channel else ""
    return f"no notice was given of {_branches(count)}, so the deletion is postponed: {why}{where}"


def _branches(count: int) -> str:
    return "1 branch" if count == 1 else f"{count:,} branches"


def _deleted_from(survey: Survey, now: datetime) -> datetime:
    """The moment that the notice names, on the full minute after the period."""
    moment = now + timedelta(seconds=survey.desired.lifecycle.notice_period_seconds, minutes=1)
    return moment.replace(second=0, microsecond=0)


def _item(survey: Survey, outlook: BranchOutlook, due: datetime) -> Item:
    key, name, verdict = survey.desired.key, outlook.id, outlook.verdict
    until = (due + LONGER).date().isoformat()
    command = shlex.join(["lakeplan", "branches", "exempt", key, name, "--until", until])
    text = f"will be deleted from {due:%Y-%m-%d %H:%M} UTC on, by policy {verdict.policy}"
    return Item(
        subject=f"{key} {name}",
        text=text,
        command=command,
        owner=survey.desired.owner,
        facts={
            "repository": key,
            "branch": name,
            "commit_id": outlook.facts.commit_id,
            "policy": verdict.policy,
            "expired_since": text_of(verdict.since),
            "deleted_from": text_of(due),
            "keep_with": command,
        },
    )
