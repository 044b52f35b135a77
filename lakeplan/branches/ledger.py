"""The ledger of one repository: what lakeplan observed of every branch, and when.

Open-source servers record neither when a branch was created nor when it was last written. So a branch's age
counts from its first inspection. If an inspection finds a new HEAD or other uncommitted changes, the branch
counts as written at the moment of that inspection, which is never before the actual write. Moments are whole
epoch seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Literal

from lakeplan.errors import FormatError
from lakeplan.limits import parse_json
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import BranchFacts, Evidence
from lakeplan.values.records import moment_of, without_duplicates

LEDGER_FORMAT = "lakeplan.branches/v2"
SKEW_SECONDS = 300
"""How much the clocks of this machine and of the server may differ before a run is refused."""


@dataclass(frozen=True, slots=True)
class Record:
    """One branch. ``first`` is the moment of its first inspection and ``first_head`` its HEAD then. ``moved``
    is the moment of the last inspection that found a write. ``staged`` is the fingerprint of its uncommitted
    changes, None if they were never read. ``assumed`` is the creation time taken from its HEAD commit
    (``assume_created``)."""

    first: int
    head: str
    first_head: str
    moved: int | None = None
    staged: str | None = None
    assumed: int | None = None


@dataclass(frozen=True)
class Mark:
    """The identity of a ledger. ``id`` is the run that began it, and each run that stores it adds one to
    ``generation``. ``endpoint`` and ``namespace`` are those of its repository. ``assumable``: this is known
    to be the repository's first ledger, so ``assume_created`` may apply to the branches that existed when it
    began. ``witnessed``: the repository's metadata has its generation."""

    id: str
    generation: int
    endpoint: str
    namespace: str
    assumable: bool = False
    witnessed: bool = False


@dataclass(frozen=True)
class Ledger:
    """The observations of a repository's branches. ``repository_created`` distinguishes a repository from an
    older one of the same name. ``began`` is the moment of its first inspection, ``at`` of the last."""

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
    """The ledger after one more inspection, without branches that no longer exist. A branch that returns is
    new."""
    moment = int(now.timestamp())
    if ledger is None or ledger.repository_created != repository_created:
        ledger = Ledger(repository, repository_created, moment, moment)
    else:
        # If the clock was set back, no branch becomes older. One that appears within the second of the first
        # inspection did not exist then.
        moment = max(moment, ledger.at, ledger.began + 1)
    observed: dict[str, Record] = {}
    for branch in branches:
        record = ledger.branches.get(branch.id)
        if record is None:
            record = Record(moment, branch.commit_id, branch.commit_id)
        elif record.head != branch.commit_id:
            record = replace(record, head=branch.commit_id, moved=moment)
        observed[branch.id] = record
    return replace(ledger, at=moment, branches=observed)


def assume_created(ledger: Ledger, head_dates: Mapping[str, int]) -> Ledger:
    """The ledger with creation times for the branches of the first inspection: the date of the HEAD that each
    had then (``head_dates``: epoch seconds by commit id), but not later than that inspection. Branches that
    appeared later are known to be newer."""
    changed = dict(ledger.branches)
    for name, record in ledger.branches.items():
        date = head_dates.get(record.first_head)
        if record.first == ledger.began and record.assumed is None and date is not None:
            changed[name] = replace(record, assumed=max(0, min(date, record.first)))
    return replace(ledger, branches=changed)


def note_staged(ledger: Ledger, staged: Mapping[str, tuple[str, int | None]]) -> Ledger:
    """The ledger with the uncommitted changes that were read: by branch their fingerprint, and the moment at
    which the branch counts as written because of them (epoch seconds; None: no new write)."""
    changed = dict(ledger.branches)
    for name, (fingerprint, written) in staged.items():
        record = changed[name]
        moved = record.moved if written is None else max(written, record.moved or 0, record.first)
        changed[name] = replace(record, staged=fingerprint, moved=moved)
    return replace(ledger, branches=changed)


def without(ledger: Ledger, branch_ids: Iterable[str]) -> Ledger:
    """The ledger after deletions. If a branch of the same name returns, it is new."""
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
    """The facts about a branch from all evidence. ``recreated``: its commits no longer include its first
    observed HEAD, so its age counts from the last move. ``staged_at`` and ``head_date`` are further evidence
    of writes (epoch seconds). Neither counts as later than the last inspection."""
    record = ledger.branches[branch.id]
    created, how = record.first, Evidence.OBSERVED
    if assume == "head_commit" and record.assumed is not None and record.assumed < created:
        # No branch is older than its repository, whatever dates its commits have.
        created = min(created, max(record.assumed, ledger.repository_created))
        how = Evidence.ASSUMED
    if recreated:
        created, how = max(record.first, record.moved or ledger.at), Evidence.OBSERVED
    writes = [(created, how)]
    if record.moved is not None:
        writes.append((record.moved, Evidence.OBSERVED))
    if staged_at is not None:
        writes.append((min(staged_at, ledger.at), Evidence.STAGED))
    if head_date is not None:
        # A commit's date may be in the future, but the commit existed when it was first observed.
        observed = record.first if record.moved is None else record.moved
        writes.append((min(head_date, observed), Evidence.HEAD_COMMIT))
    last, why = max(writes, key=lambda pair: pair[0])
    return BranchFacts(branch.id, branch.commit_id, _time(created), how, _time(last), why, branch.hidden)


def _time(seconds: int) -> datetime:
    return moment_of(seconds * 1_000_000)


def dump_ledger(ledger: Ledger, mark: Mark) -> bytes:
    """The stored form: one line per branch, without fields that have their default."""
    head = {"format": LEDGER_FORMAT, **asdict(replace(ledger, branches={})), **asdict(mark)}
    del head["branches"]
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(_row(record), separators=(',', ':'))}"
        for name, record in sorted(ledger.branches.items())
    )
    start = json.dumps(head, separators=(",", ":"))[:-1]
    return f'{start},"branches":{{\n{lines}}}}}\n'.encode()


def _row(record: Record) -> dict[str, Any]:
    row = {each.name: getattr(record, each.name) for each in fields(record)}
    if record.first_head == record.head:
        del row["first_head"]
    return {name: value for name, value in row.items() if value is not None}


def load_ledger(data: bytes, where: str) -> tuple[Ledger, Mark]:
    """The ledger and its mark. Raises FormatError for anything that no run can have written, because a
    partial or false ledger could make branches look older than they are."""
    try:
        document = parse_json(data, pairs=without_duplicates)
        if document["format"] != LEDGER_FORMAT:
            raise ValueError(f"its format is {document['format']!r}, not {LEDGER_FORMAT}")
        created, at = _seconds(document, "repository_created", 0), _seconds(document, "at", 0)
        began = _seconds(document, "began", max(0, created - SKEW_SECONDS), at)
        branches = {name: _record(row, name, began, at) for name, row in document["branches"].items()}
        return Ledger(_text(document, "repository"), created, began, at, branches), _mark(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"the record of branches is damaged ({error})",
            where=where,
            hint="Restore the record from a backup, or delete it. Without the record, the next run starts"
            " counting all ages from zero.",
        ) from None


def check_clock(ledger: Ledger, now: datetime, where: str) -> None:
    """Raises FormatError for a ledger from the future: this clock or the one that dated the ledger is
    wrong."""
    if ledger.at - int(now.timestamp()) > SKEW_SECONDS:
        raise FormatError(
            f"the record of branches contains a time in the future ({_time(ledger.at):%Y-%m-%d %H:%M} UTC)",
            where=where,
            hint="Correct this machine's clock. If the record is wrong, delete it. The next run then"
            " starts counting all ages from zero.",
        )


def _mark(document: Mapping[str, Any]) -> Mark:
    flags = [document["assumable"], document["witnessed"]]
    if not all(isinstance(flag, bool) for flag in flags):
        raise ValueError(f"assumable and witnessed must be true or false, but are {flags}")
    id, endpoint, namespace = (_text(document, name) for name in ("id", "endpoint", "namespace"))
    return Mark(id, _seconds(document, "generation", 1), endpoint, namespace, *flags)


def _record(row: Mapping[str, Any], name: str, began: int, at: int) -> Record:
    try:
        head, first = _text(row, "head"), _seconds(row, "first", began, at)
        return Record(
            first=first,
            head=head,
            first_head=_text(row, "first_head") if "first_head" in row else head,
            moved=_seconds(row, "moved", first, at) if row.get("moved") is not None else None,
            staged=None if row.get("staged") is None else _text(row, "staged", empty=True),
            assumed=_seconds(row, "assumed", 0, first) if row.get("assumed") is not None else None,
        )
    except (ValueError, KeyError) as error:
        raise ValueError(f"branch {name!r}: {error}") from None


def _seconds(row: Mapping[str, Any], key: str, least: int, most: int | None = None) -> int:
    value = row[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{key} is {value!r}, not a whole number")
    if value < least or (most is not None and value > most):
        raise ValueError(f"{key} is {value}, which is not between {least} and {most or 'now'}")
    return value


def _text(row: Mapping[str, Any], key: str, *, empty: bool = False) -> str:
    value = row[key]
    if not isinstance(value, str) or not (value or empty):
        raise ValueError(f"{key} is {value!r}, not text")
    return value
