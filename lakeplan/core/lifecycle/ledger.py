"""The observation ledger of one repository: what lakeplan saw of every branch, and when.

Open-source servers record neither when a branch was made nor when it was written. What is not in the ledger
is not known: a branch's age counts from the first look at it. Moments are whole epoch seconds; a look that
finds another HEAD, or other uncommitted changes, counts as a write at the moment of the look, which is never
before the true one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Literal

from lakeplan.errors import FormatError
from lakeplan.limits import parse_json
from lakeplan.model.branches import LiveBranch
from lakeplan.model.lifecycle import BranchFacts, Evidence

LEDGER_FORMAT = "lakeplan.branches/v1"


@dataclass(frozen=True, slots=True)
class Record:
    """One branch. ``first``: the first look; ``first_head``: its HEAD then; ``moved``: the last look that
    found a write; ``staged``: fingerprint of the uncommitted changes, None when nobody looked at them;
    ``assumed``: creation time taken from the HEAD commit (``assume_created``)."""

    first: int
    head: str
    first_head: str
    moved: int | None = None
    staged: str | None = None
    assumed: int | None = None


@dataclass(frozen=True)
class Ledger:
    """``repository_created`` tells a repository from an older one of the same name; ``began`` is the first
    look at the repository, ``at`` the last."""

    repository: str
    repository_created: int
    began: int
    at: int
    branches: Mapping[str, Record] = field(default_factory=dict)


def observe(
    ledger: Ledger | None,
    repository: str,
    repository_created: int,
    branches: Iterable[LiveBranch],
    now: datetime,
) -> Ledger:
    """The ledger after one more look. Branches that are gone are dropped: one that comes back is new."""
    moment = int(now.timestamp())
    if ledger is None or ledger.repository_created != repository_created:
        ledger = Ledger(repository, repository_created, moment, moment)
    seen: dict[str, Record] = {}
    for branch in branches:
        known = ledger.branches.get(branch.id)
        if known is None:
            known = Record(moment, branch.commit_id, branch.commit_id)
        elif known.head != branch.commit_id:
            known = replace(known, head=branch.commit_id, moved=max(moment, known.moved or 0))
        seen[branch.id] = known
    return replace(ledger, at=max(moment, ledger.at), branches=seen)


def is_first_look(ledger: Ledger, branch_id: str) -> bool:
    """Whether a branch was there when lakeplan first looked at the repository."""
    return ledger.branches[branch_id].first == ledger.began


def assume_created(ledger: Ledger, head_dates: Mapping[str, int]) -> Ledger:
    """Gives branches of the very first look the date of the HEAD they had then (epoch seconds by commit id),
    never later than that look. Branches that appeared later are known to be newer."""
    changed = dict(ledger.branches)
    for name, record in ledger.branches.items():
        date = head_dates.get(record.first_head)
        if record.first == ledger.began and record.assumed is None and date is not None:
            changed[name] = replace(record, assumed=min(date, record.first))
    return replace(ledger, branches=changed)


def note_staged(ledger: Ledger, seen: Mapping[str, tuple[str, int | None]]) -> Ledger:
    """Remembers what is staged on branches that were looked at: by branch the fingerprint, and when that
    counts as written (epoch seconds; None: not a write that is news)."""
    changed = dict(ledger.branches)
    for name, (fingerprint, written) in seen.items():
        record = changed[name]
        moved = record.moved if written is None else max(written, record.moved or 0)
        changed[name] = replace(record, staged=fingerprint, moved=moved)
    return replace(ledger, branches=changed)


def without(ledger: Ledger, branch_ids: Iterable[str]) -> Ledger:
    """The ledger after deletions: a branch of the same name that comes back is a new one."""
    gone = set(branch_ids)
    return replace(ledger, branches={k: v for k, v in ledger.branches.items() if k not in gone})


def facts_of(
    branch: LiveBranch,
    ledger: Ledger,
    *,
    assume: Literal["never", "head_commit"] = "never",
    recreated: bool = False,
    staged_at: int | None = None,
    head_date: int | None = None,
) -> BranchFacts:
    """What is known of a branch by the evidence at hand. ``recreated``: the HEAD it was first seen with is
    not among its commits any more, so its age counts from the last move. ``staged_at`` and ``head_date`` are
    further evidence of writes (epoch seconds); none of them can be later than the last look."""
    record = ledger.branches[branch.id]
    created, how = record.first, Evidence.OBSERVED
    if assume == "head_commit" and record.assumed is not None and record.assumed < created:
        created, how = record.assumed, Evidence.ASSUMED
    if recreated:
        created, how = max(record.first, record.moved or ledger.at), Evidence.OBSERVED
    writes = [(created, how)]
    if record.moved is not None:
        writes.append((record.moved, Evidence.OBSERVED))
    if staged_at is not None:
        writes.append((min(staged_at, ledger.at), Evidence.STAGED))
    if head_date is not None:
        # A date from the future (a skewed clock, a made-up one): the commit was there at its first look.
        seen = record.first if record.moved is None else record.moved
        writes.append((min(head_date, seen), Evidence.HEAD_COMMIT))
    last, why = max(writes, key=lambda pair: pair[0])
    return BranchFacts(branch.id, branch.commit_id, _time(created), how, _time(last), why, branch.hidden)


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, tz=timezone.utc)


def dump_ledger(ledger: Ledger) -> bytes:
    """One line a branch, fields that say nothing left out."""
    rows = {name: _row(record) for name, record in sorted(ledger.branches.items())}
    head = {
        "format": LEDGER_FORMAT,
        "repository": ledger.repository,
        "repository_created": ledger.repository_created,
        "began": ledger.began,
        "at": ledger.at,
    }
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(row, separators=(',', ':'))}" for name, row in rows.items()
    )
    start = json.dumps(head, separators=(",", ":"))[:-1]
    return f'{start},"branches":{{\n{lines}}}}}\n'.encode()


def _row(record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {"first": record.first, "head": record.head}
    if record.first_head != record.head:
        row["first_head"] = record.first_head
    optional = {"moved": record.moved, "staged": record.staged, "assumed": record.assumed}
    return row | {key: value for key, value in optional.items() if value is not None}


def load_ledger(data: bytes, where: str) -> Ledger:
    """Raises FormatError on anything that is not a whole ledger: half a memory could make branches look
    older than they are."""
    try:
        document = parse_json(data)
        if document["format"] != LEDGER_FORMAT:
            raise ValueError(f"its format is {document['format']!r}, not {LEDGER_FORMAT}")
        return Ledger(
            str(document["repository"]),
            int(document["repository_created"]),
            int(document["began"]),
            int(document["at"]),
            {name: _record(row) for name, row in document["branches"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"the record of branches is damaged ({error})",
            where=where,
            hint="restore it, or delete it: every branch's age then counts from the next run",
        ) from None


def _record(row: Mapping[str, Any]) -> Record:
    head, staged = str(row["head"]), row.get("staged")
    return Record(
        first=int(row["first"]),
        head=head,
        first_head=str(row.get("first_head", head)),
        moved=None if row.get("moved") is None else int(row["moved"]),
        staged=None if staged is None else str(staged),
        assumed=None if row.get("assumed") is None else int(row["assumed"]),
    )
