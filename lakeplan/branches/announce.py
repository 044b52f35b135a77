"""Gives notice of deletions: publishes notices, and records which of them a channel accepted. Also records
the exemptions with which ``branches exempt`` keeps a branch for some time."""

from __future__ import annotations

import logging
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lakeplan.branches.deletion_records import history_step
from lakeplan.branches.notices import (
    Exemption,
    Notice,
    read_exemptions,
    read_notices,
    write_exemptions,
    write_notices,
)
from lakeplan.branches.recall import Readers
from lakeplan.branches.survey import Survey
from lakeplan.errors import LakeplanError, UsageError, WriteConflict
from lakeplan.review.run import Run, note_step, open_journal
from lakeplan.state.store import RunJournal
from lakeplan.stores.open import StateWriter
from lakeplan.values.branches import NOTHING_STAGED, BranchOutlook
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.notify import Event, Item, Publisher, SentMessage
from lakeplan.values.records import utc_second_text
from lakeplan.values.units import count_of

LONGER = timedelta(days=30)
"""The exemption in the example command of a notice ends this long after the planned deletion."""
TITLE = "Branches will be deleted by policy"
HINT = (
    "To keep a branch, run the command that is shown for it. A new commit also delays the deletion, because"
    " it requires a new notice."
)


@dataclass(frozen=True)
class Noticed:
    """A branch whose deletion this run announced."""

    branch_id: str
    commit_id: str
    policy: str | None
    channel: str
    deleted_from: datetime


@dataclass(frozen=True)
class Announced:
    """The notices of one repository that a channel accepted, and why others were not."""

    noticed: tuple[Noticed, ...] = ()
    problems: tuple[str, ...] = ()


def give_notice(
    surveys: Sequence[Survey], publisher: Publisher, state: StateWriter, now: Callable[[], datetime]
) -> dict[str, Announced]:
    """Publishes the notices that are due. Returns the results by ``server/name``. ``now`` is the time of the
    latest clock; the notice period begins with the channel's answer. A notice that cannot be recorded counts
    as not published."""
    deletes_at = {s.desired.key: _deleted_from(s, now()) for s in surveys}
    items = {
        (s.desired.key, o.id): _item(s, o, deletes_at[s.desired.key]) for s in surveys for o in s.to_announce
    }
    sent = publisher.publish(Event.BRANCH_DELETION, TITLE, list(items.values()), HINT)
    accepted_at = now()
    answers = {id(item): part for part in sent for item in part.items}
    announced = {}
    for survey in surveys:
        key = survey.desired.key
        parts = {o.id: answers.get(id(items[key, o.id]), _UNANSWERED) for o in survey.to_announce}
        announced[key] = _recorded(survey, parts, state, accepted_at, deletes_at[key])
    return announced


_UNANSWERED = SentMessage((), problem="no attempt was made to send the notice")


def _recorded(
    survey: Survey,
    parts: Mapping[str, SentMessage],
    state: StateWriter,
    accepted_at: datetime,
    deletes_at: datetime,
) -> Announced:
    refused = Counter((p.channel, p.problem) for p in parts.values() if p.problem)
    problems = [_postponed(count, channel, why) for (channel, why), count in sorted(refused.items())]
    accepted = {o.id: o for o in survey.to_announce if not parts[o.id].problem}
    period = timedelta(seconds=survey.desired.branch_settings.notice_period_seconds)
    notices = {
        name: Notice(
            o.facts.commit_id,
            o.staged.fingerprint if o.staged is not None else NOTHING_STAGED,
            accepted_at,
            deletes_at,
            parts[name].channel,
        )
        for name, o in accepted.items()
    }
    if not notices:
        return Announced((), tuple(problems))
    try:
        spared, given = survey.spared, {**survey.spared.notices, **notices}
        write_notices(state, survey.desired.key, given, survey.outlooks, spared.version)
    except LakeplanError as error:
        text = f"the notice was published but not recorded ({error.message})"
        return Announced((), (*problems, _postponed(len(notices), "", text)))
    noticed = tuple(
        Noticed(
            name,
            n.head,
            accepted[name].verdict.policy,
            n.channel,
            n.deletes_at(period).replace(microsecond=0),
        )
        for name, n in sorted(notices.items())
    )
    return Announced(noticed, tuple(problems))


def _postponed(count: int, channel: str, why: str) -> str:
    where = f" (channel {channel})" if channel else ""
    whose = "its" if count == 1 else "their"
    return (
        f"no notice was given for {count_of(count, 'branch')}, so {whose} deletion is postponed: {why}{where}"
    )


def _deleted_from(survey: Survey, now: datetime) -> datetime:
    """The moment that the notice gives: the first full minute after the period."""
    moment = now + timedelta(seconds=survey.desired.branch_settings.notice_period_seconds, minutes=1)
    return moment.replace(second=0, microsecond=0)


def _item(survey: Survey, outlook: BranchOutlook, deletes_at: datetime) -> Item:
    key, name, verdict = survey.desired.key, outlook.id, outlook.verdict
    until = (deletes_at + LONGER).date().isoformat()
    command = shlex.join(["lakeplan", "branches", "exempt", key, name, "--until", until])
    text = f"will be deleted on or after {deletes_at:%Y-%m-%d %H:%M} UTC, by policy {verdict.policy}"
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
            "expired_since": utc_second_text(verdict.since),
            "deleted_from": utc_second_text(deletes_at),
            "keep_with": command,
        },
    )


log = logging.getLogger(__name__)
TRIES = 5


@dataclass(frozen=True)
class ExemptOptions:
    """The options of ``branches exempt``. ``until`` None removes the exemption."""

    branch: str
    until: datetime | None
    reason: str = ""


@dataclass(frozen=True)
class Exempted:
    repository: str
    branch: str
    exemption: Exemption


def exempt_branch(
    desired: DesiredRepository, options: ExemptOptions, readers: Readers, state: StateWriter, run: Run
) -> Exempted:
    """Records or removes an exemption. This takes no lease, so nobody has to wait for a run: an active run
    notices it within seconds. Raises UsageError for a branch that does not exist, and WriteConflict if others
    keep writing the record."""
    head = readers.branches.find_branch(desired.name, options.branch)
    if options.until is not None and head is None:
        raise UsageError(
            f"{desired.key} has no branch {options.branch!r}",
            hint="Run `lakeplan branches plan` to list the branches.",
        )
    oldest = run.now()
    with suppress(LakeplanError):  # a clock that is ahead would make other exemptions look expired
        oldest = min(oldest, readers.refs.server_time(desired.name) or oldest)
    journal = open_journal(state, run, "branches exempt")
    for attempt in range(TRIES):
        exemptions, version = read_exemptions(state, desired.key)
        made = _made(desired.key, exemptions.get(options.branch), options, state, run)
        done = Exempted(desired.key, options.branch, made)
        if not attempt:
            _note(journal, done, head or "", "pending")  # a killed run is in the history too
        journal.record["finished_at"] = run.now().isoformat()  # stored with the outcome
        try:
            write_exemptions(state, desired.key, {**exemptions, options.branch: made}, version, oldest)
        except LakeplanError as error:
            if attempt < TRIES - 1 and isinstance(error, WriteConflict):
                continue
            status = "failed" if isinstance(error, WriteConflict) else "uncertain"
            _note(journal, done, head or "", status, str(error))
            raise
        if note := _note(journal, done, head or "", "applied"):
            log.warning("%s", note)
        if options.until is not None and readers.branches.find_branch(desired.name, options.branch) is None:
            raise LakeplanError(
                f"the exemption is recorded, but branch {options.branch} was deleted in the meantime",
                where=desired.key,
                hint=f"Run `{shlex.join(['lakeplan', 'branches', 'undo', '--branch', options.branch])}`.",
            )
        return done
    raise AssertionError("the last try returns or raises")


def _note(journal: RunJournal, done: Exempted, head: str, status: str, message: str = "") -> str:
    """Records the exemption in the history. Returns why that failed, or ""."""
    outcome = "exemption_removed" if done.exemption.removed else "exempted"
    step = history_step({done.branch: (head, outcome if status == "applied" else status)}, None)
    text = message or ("" if done.exemption.removed else done.exemption.text)
    return note_step(journal, done.repository, **{**step, "status": status, "message": text})


def _made(
    repository: str, before: Exemption | None, options: ExemptOptions, state: StateWriter, run: Run
) -> Exemption:
    """The exemption. It is not from before the branch's notice, which another clock may have dated, because
    it voids the notice."""
    notice = read_notices(state, repository)[0].get(options.branch)
    now = run.now() if notice is None else max(run.now(), notice.accepted_at)
    if options.until is not None:
        return Exemption(now, options.until, str(run.holder.get("user") or ""), options.reason)
    if before is None or not before.holds(run.now()):
        raise UsageError(
            f"branch {options.branch!r} of {repository} has no exemption to remove",
            hint="To see whether something else keeps the branch, run `lakeplan branches plan`.",
        )
    return replace(before, end=now, removed=True)
