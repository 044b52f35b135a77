"""Exemptions, with which people keep branches for some time, and notices, which announce deletions.

Only ``branches exempt`` writes ``exemptions/<server>/<repository>.json``. Only a run that holds the
repository's lease writes ``notices/<server>/<repository>.json``. If a record is damaged, nothing is deleted
in its repository."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from lakeplan.state.store import read_repository_record, repository_key
from lakeplan.stores.open import StateReader, StateWriter
from lakeplan.values import records
from lakeplan.values.branches import BranchOutlook, BranchVerdict, Keep
from lakeplan.values.documents import decode, encode

T = TypeVar("T")
EXEMPTIONS_FORMAT = "lakeplan.exemptions/v1"
NOTICES_FORMAT = "lakeplan.notices/v1"
LAPSE = timedelta(days=30)
"""A notice expires this long after the date from which it allows the deletion."""
EXEMPTIONS_KEPT = timedelta(days=2 * 365)
"""An exemption stays on record this long after its end, which is longer than any notice is valid."""


@dataclass(frozen=True)
class Exemption:
    """An exemption, in force until ``end``. If it was ``removed``, ``end`` is the moment of its removal."""

    at: datetime
    end: datetime
    by: str = ""
    reason: str = ""
    removed: bool = False

    def holds(self, moment: datetime) -> bool:
        return not self.removed and moment < self.end

    def is_kept(self, moment: datetime) -> bool:
        """Whether it stays on record."""
        return moment - self.end < EXEMPTIONS_KEPT

    @property
    def decided(self) -> tuple[datetime, datetime]:
        """When a person last changed it. Of two changes at the same time, the longer exemption is later."""
        return (self.end if self.removed else self.at), self.end

    @property
    def text(self) -> str:
        """The exemption as text for people."""
        who, why = f" by {self.by}" if self.by else "", f": {self.reason}" if self.reason else ""
        return f"exempt until {self.end:%Y-%m-%d %H:%M} UTC{who}{why}"


def with_newest(some: Mapping[str, Exemption], others: Mapping[str, Exemption]) -> dict[str, Exemption]:
    """The exemptions of two records, and the newer one of each branch that has two."""
    newer = {n: o for n, o in others.items() if n not in some or o.decided > some[n].decided}
    return {**some, **newer}


@dataclass(frozen=True)
class Notice:
    """A notice about one branch that ``channel`` accepted. ``head`` is its HEAD and ``staged`` the
    fingerprint of its uncommitted changes then. ``deleted_from`` is the moment that the notice gave."""

    head: str
    staged: str
    accepted_at: datetime
    deleted_from: datetime
    channel: str = ""

    def deletes_at(self, period: timedelta) -> datetime:
        """The moment from which the branch may be deleted: ``period`` after the notice was accepted, but not
        before the moment that it gave."""
        return max(self.accepted_at + period, self.deleted_from)


@dataclass(frozen=True)
class Spared:
    """The records of one repository, by branch. A write of the notices must pass ``version``."""

    exemptions: Mapping[str, Exemption] = field(default_factory=dict)
    notices: Mapping[str, Notice] = field(default_factory=dict)
    version: str | None = None


def is_about(notice: Notice, outlook: BranchOutlook, exemption: Exemption | None) -> bool:
    """Whether a notice still counts: since it was accepted, nobody wrote to the branch, the branch was not
    created again, and no exemption was in force."""
    since, staged = outlook.verdict.since, outlook.staged
    return (
        notice.head == outlook.facts.commit_id
        and staged is not None
        and notice.staged == staged.fingerprint
        and since is not None
        and since <= notice.accepted_at
        and (exemption is None or max(exemption.at, exemption.end) < notice.accepted_at)
    )


def after_notice(
    outlook: BranchOutlook,
    notice: Notice | None,
    exemption: Exemption | None,
    period: timedelta,
    as_of: datetime,
    channel: str | None = None,
) -> BranchVerdict:
    """The verdict on a branch that policies would delete, given its notice. ``channel`` is the channel in the
    tree now ("" for none). Notices that another channel accepted do not count. None: all notices count.
    Without a ``period``, an earlier notice still delays the deletion."""
    verdict = outlook.verdict
    unannounced = verdict
    if period:
        unannounced = BranchVerdict(Keep.NOTICE_DUE, verdict.policy, verdict.since, as_of + period)
    if notice is None or not is_about(notice, outlook, exemption):
        return unannounced
    deletes_at = notice.deletes_at(period)
    if period and channel is not None and notice.channel not in ("", channel):
        return unannounced
    if as_of < deletes_at:
        return BranchVerdict(Keep.NOTICE_GIVEN, verdict.policy, verdict.since, deletes_at)
    return verdict if as_of < deletes_at + LAPSE else unannounced


def notes_on(spared: Spared, branch: str, head: str, now: datetime) -> tuple[str, ...]:
    """Sentences for people: a branch's exemption, and the notice of its deletion at this HEAD."""
    exemption, notice = spared.exemptions.get(branch), spared.notices.get(branch)
    notes = []
    if exemption is not None and exemption.holds(now):
        notes.append(f"branch {branch}: {exemption.text}")
    if notice is not None and notice.head == head:
        when = f"{notice.accepted_at:%Y-%m-%d %H:%M} UTC"
        notes.append(
            f"branch {branch}: its deletion on or after {notice.deleted_from:%Y-%m-%d %H:%M} UTC"
            f" was announced at {when}"
        )
    return tuple(notes)


# ---- records
_EXEMPTION = records.record(
    {
        "at": records.moment,
        "end": records.any_moment,
        "by": records.text,
        "reason": records.text,
        "removed": records.flag,
    }
)
_NOTICE = records.record(
    {
        "head": records.text,
        "staged": records.text,
        "accepted_at": records.moment,
        "deleted_from": records.moment,
        "channel": records.text,
    }
)


def _record_of(format: str, row: records.Shape) -> records.Shape:
    fields = {"format": records.exactly(format), "repository": records.text, "branches": records.map_of(row)}
    return records.record(fields)


_EXEMPTIONS, _NOTICES = _record_of(EXEMPTIONS_FORMAT, _EXEMPTION), _record_of(NOTICES_FORMAT, _NOTICE)


def read_spared(state: StateReader, repository: str) -> Spared:
    """The exemptions and notices of a repository. Raises FormatError for a damaged record."""
    notices, version = read_notices(state, repository)
    return Spared(read_exemptions(state, repository)[0], notices, version)


def read_exemptions(state: StateReader, repository: str) -> tuple[dict[str, Exemption], str | None]:
    """The exemptions by branch, including expired ones, and the version that a write must pass."""
    hint = "Restore the record from a backup. Without the record, exempted branches may be deleted."
    what = "the record of exempted branches"
    stored = read_repository_record(state, "exemptions", repository, _EXEMPTIONS, what=what, hint=hint)
    return _rows(stored, Exemption)


def write_exemptions(
    state: StateWriter,
    repository: str,
    exemptions: Mapping[str, Exemption],
    version: str | None,
    now: datetime,
) -> None:
    """Stores exemptions, except those that ended long ago. Raises WriteConflict if the record changed since
    ``version``."""
    rows = {name: encode(e) for name, e in exemptions.items() if e.is_kept(now)}
    document = {"format": EXEMPTIONS_FORMAT, "repository": repository, "branches": rows}
    state.write(repository_key("exemptions", repository), records.json_line(document), if_version=version)


def read_notices(state: StateReader, repository: str) -> tuple[dict[str, Notice], str | None]:
    """The notices by branch, and the version that a write must pass."""
    hint = "Restore the record from a backup, or move it elsewhere to publish the notices again."
    what = "the record of notices"
    return _rows(read_repository_record(state, "notices", repository, _NOTICES, what=what, hint=hint), Notice)


def write_notices(
    state: StateWriter,
    repository: str,
    notices: Mapping[str, Notice],
    live: Iterable[str],
    version: str | None,
) -> str:
    """Stores the notices of the ``live`` branches. Raises WriteConflict if the record changed since
    ``version``."""
    existing = set(live)
    rows = {name: encode(n) for name, n in notices.items() if name in existing}
    document = {"format": NOTICES_FORMAT, "repository": repository, "branches": rows}
    return state.write(repository_key("notices", repository), records.json_line(document), if_version=version)


def _rows(stored: tuple[dict[str, Any], str] | None, kind: type[T]) -> tuple[dict[str, T], str | None]:
    """The rows of a record by branch, and its version, or none if there is no record."""
    if stored is None:
        return {}, None
    document, version = stored
    return {name: decode(row, kind) for name, row in document["branches"].items()}, version
