"""Reads marks, approvals and results back, checks them against their checksums, and lists them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, cast

import pyarrow as pa

from lakeplan.errors import FormatError, GateRefused, LakeplanError, StalePlan, StorageNotFound, UsageError
from lakeplan.formats.marks import MARK_COLUMNS, end_of, read_deleted, read_part
from lakeplan.formats.namespace import (
    KNOWN_FILE,
    MARK_FILE,
    OFFICIAL_FILE,
    SUMMARY_FILE,
    attempt_of,
    mark_prefix,
    part_id,
    quarantine_prefix,
    result_key,
    sweep_prefix,
)
from lakeplan.limits import parse_json
from lakeplan.state.sweeps import RecordedSweep, read_sweeps
from lakeplan.stores.open import NamespaceReader, StateReader
from lakeplan.sweep.documents import ListedMark, ListedState, MarkListDocument, SweepDocument
from lakeplan.sweep.mark_record import MARK_AGAIN, Approval, Mark, digest_of, read_mark
from lakeplan.sweep.ports import Site, approval_key, mark_index_key, recorded_marks
from lakeplan.values import records
from lakeplan.values.documents import decode
from lakeplan.values.records import moment_in, utc_text
from lakeplan.values.simulation import Amount, Part, PartResult, Status
from lakeplan.values.sweep import MARK_MAX_AGE_SECONDS

MARKS_FORMAT: Final = "lakeplan.marks/v1"
IN_QUARANTINE = "copies stay in quarantine until you run `lakeplan sweep purge`"


@dataclass(frozen=True)
class StoredMark:
    """A mark as it is in the namespace now. ``recorded``: the state has the digest of these bytes; otherwise
    the mark may be used only for what deletes nothing. ``shown``: digest of the contents that a person was
    shown."""

    mark: Mark
    digest: str
    recorded: bool = True
    shown: str | None = None


def continue_or_abort(mark_id: str) -> str:
    """The hint for an unfinished sweep."""
    return f"Run `lakeplan sweep run {mark_id}` to continue, or `lakeplan sweep abort {mark_id}` to end it."


def repository_of(state: StateReader, mark_id: str) -> str:
    """The repository (``server/name``) of a mark. Raises UsageError for a mark that the state lacks."""
    index = read_mark_index(state, mark_id)
    if index is None:
        raise UsageError(
            f"the state has no mark {mark_id}",
            hint="Run `lakeplan sweep list` to list its marks. If the state was lost, run `lakeplan"
            f" sweep abort {mark_id}` or `lakeplan sweep restore {mark_id}`, then `lakeplan sweep"
            " mark`.",
        )
    return index.repository


@dataclass(frozen=True)
class MarkIndex:
    """The state's record of a mark. ``digest`` is of the mark's bytes, ``marked_at`` is ISO 8601. ``goes``:
    what a sweep may delete."""

    repository: str
    digest: str
    marked_at: str
    by: str
    goes: Amount


_INDEX = records.record(
    {
        **dict.fromkeys(("repository", "digest", "by"), records.text),
        "marked_at": records.moment,
        "goes": records.AMOUNT,
    }
)


def read_mark_index(state: StateReader, mark_id: str) -> MarkIndex | None:
    """The state's record of a mark, or None. Raises FormatError."""
    key = mark_index_key(mark_id)
    stored = state.read(key)
    if stored is None:
        return None
    hint = (
        f"Restore the record from a backup, or move it elsewhere. `lakeplan sweep abort {mark_id}` and"
        f" `lakeplan sweep restore {mark_id}` then use the record in the namespace."
    )
    record = records.read_record(stored.data, _INDEX, what="the record of this mark", where=key, hint=hint)
    return cast(MarkIndex, decode(record, MarkIndex))


def load_mark(site: Site, state: StateReader, mark_id: str) -> StoredMark:
    """A mark that the state records. Raises StorageNotFound, FormatError, and StalePlan for a mark that was
    changed since it was written, or whose figures differ from those of its parts."""
    index = read_mark_index(state, mark_id)
    stored = read_stored(site.store, mark_id, digest=None if index is None else index.digest)
    mark, where = stored.mark, _where(site.store, mark_id)
    if index is None:
        raise StalePlan(
            f"the state has no mark {mark_id}",
            where=where,
            hint=f"Run `lakeplan sweep restore {mark_id}` to restore what is needed, then delete"
            f" {quarantine_prefix(mark_id)} manually.",
        )
    if mark.key != site.key or mark.mark_id != mark_id:
        raise LakeplanError(
            f"this file contains mark {mark.mark_id} of {mark.key}, not mark {mark_id} of {site.key}",
            where=where,
            hint=MARK_AGAIN,
        )
    return stored


def read_stored(store: NamespaceReader, mark_id: str, *, digest: str | None = None) -> StoredMark:
    """A mark as it is in a namespace. Without a ``digest`` anybody may have written it, so it does not count
    as recorded. Raises as ``load_mark``."""
    where = _where(store, mark_id)
    hint = (
        f"{MARK_AGAIN} If a sweep of this mark has deleted objects, restore this file from a backup, or copy"
        f" the objects back from {quarantine_prefix(mark_id)} manually."
    )
    try:
        data = store.read(mark_prefix(mark_id) + MARK_FILE)
    except StorageNotFound:
        message = f"mark {mark_id} does not exist or is unfinished"
        raise StorageNotFound(message, where=where, hint=hint) from None
    if digest not in (None, digest_of(data)):
        raise StalePlan("the mark was changed after it was created", where=where, hint=hint)
    mark = read_mark(data, name=where)
    if sum(part.rows for part in mark.marked.going) != mark.to_delete.objects:
        raise StalePlan(
            "the number of objects in the mark differs from the total in its record",
            where=where,
            hint=hint,
        )
    return StoredMark(mark, digest_of(data), recorded=digest is not None)


def mark_ids(store: NamespaceReader, prefix: str) -> list[str]:
    """The ids of marks that have a folder directly below the prefix."""
    return [folder.removeprefix(prefix).removesuffix("/") for folder in store.list_prefixes(prefix)]


def _where(store: NamespaceReader, mark_id: str) -> str:
    return f"{store.url}/{mark_prefix(mark_id)}{MARK_FILE}"


def load_approval(state: StateReader, stored: StoredMark) -> Approval:
    """The approval of a mark. Raises as ``read_approval``, and GateRefused without an approval."""
    mark_id = stored.mark.mark_id
    approval = read_approval(state, stored)
    if approval is None and not stored.mark.to_delete.objects:
        raise GateRefused(
            "the mark has no objects to delete", where=stored.mark.where, hint="There is nothing to do."
        )
    if approval is None:
        raise GateRefused(
            "this mark is not approved",
            where=stored.mark.where,
            hint=f"Run `lakeplan sweep show {mark_id}` to inspect it, then `lakeplan sweep approve"
            f" {mark_id} --reason …`.",
        )
    return approval


def read_approval(state: StateReader, stored: StoredMark) -> Approval | None:
    """The approval of a mark, or None. Raises FormatError for a damaged one, and StalePlan when other bytes
    were approved."""
    mark_id = stored.mark.mark_id
    record = state.read(approval_key(mark_id))
    if record is None:
        return None
    try:
        approval: Approval = decode(parse_json(record.data), Approval)
    except (ValueError, TypeError, KeyError):
        raise FormatError(
            "the record of this approval is damaged, or another version of lakeplan wrote it",
            where=approval_key(mark_id),
            hint=f"Inspect the mark, then run `lakeplan sweep approve {mark_id} --reason …` again.",
        ) from None
    if approval.digest != stored.digest:
        raise StalePlan(
            "the mark has changed since it was approved",
            where=stored.mark.where,
            hint="Find out who wrote to the namespace, then run `lakeplan sweep mark` again.",
        )
    return approval


def read_marked(store: NamespaceReader, mark_id: str, part: Part) -> pa.Table:
    """The objects of one part of a mark. Raises StorageError, and FormatError for a changed part."""
    key = mark_prefix(mark_id) + part.name
    name = f"{store.url}/{key}"
    return read_part(store.read(key), name=name, sha256=part.sha256, columns=MARK_COLUMNS)


def marked_addresses(store: NamespaceReader, mark: Mark) -> dict[str, int]:
    """The addresses of all objects that a sweep may delete, each with the number of its part. Raises as
    ``read_marked``."""
    addresses: dict[str, int] = {}
    for number, part in enumerate(mark.marked.going):
        listed = read_marked(store, mark.mark_id, part).column("address").to_pylist()
        addresses.update(dict.fromkeys(listed, number))
    return addresses


_NAMES = records.list_of(records.text)
_SEEN = records.record(
    {"kept_metaranges": _NAMES, "other_metaranges": _NAMES, "foreign": records.map_of(_NAMES)}
)


@dataclass(frozen=True)
class KnownAtMark:
    """The metaranges that a mark read: those of kept commits, those of other repositories by name
    (``foreign``), and ``other_metaranges`` of other commits, read for paths below held prefixes."""

    kept_metaranges: frozenset[str]
    foreign: Mapping[str, frozenset[str]]
    other_metaranges: frozenset[str]


KNOWN_NOTHING = KnownAtMark(frozenset(), {}, frozenset())
"""Makes an inspection read everything, for marks that may be forged."""


def load_known(site: Site, mark: Mark) -> KnownAtMark:
    """The metaranges that a mark read. Raises StalePlan when the file was changed since the mark."""
    key = mark_prefix(mark.mark_id) + KNOWN_FILE
    data = site.store.read(key)
    if hashlib.sha256(data).hexdigest() != mark.seen_sha256:
        raise StalePlan(
            "the file has changed since the mark was created",
            where=f"{site.store.url}/{key}",
            hint=MARK_AGAIN,
        )
    what, where = "the list of metaranges that the mark read", f"{site.store.url}/{key}"
    record = records.read_record(data, _SEEN, what=what, where=where, hint=MARK_AGAIN)
    return KnownAtMark(
        frozenset(record["kept_metaranges"]),
        {name: frozenset(ids) for name, ids in record["foreign"].items()},
        frozenset(record["other_metaranges"]),
    )


def newest_attempts(store: NamespaceReader, mark_id: str) -> dict[str, int]:
    """The number of the newest record of every finished part, by ``part_id``. Other files are ignored."""
    newest: dict[str, int] = {}
    prefix = sweep_prefix(mark_id)
    for stored in store.list_objects(f"{prefix}results/"):
        if (attempt := attempt_of(stored.key, prefix)) is not None:
            name = part_id(stored.key)
            newest[name] = max(attempt, newest.get(name, 0))
    return newest


def read_end(site: Site, mark_id: str, part: Part, attempt: int) -> PartResult:
    """The result of a part, by one of its records. Raises StorageError, and FormatError for a damaged one."""
    key = result_key(sweep_prefix(mark_id), part.name, attempt)
    return end_of(part.name, site.store.read(key), where=f"{site.store.url}/{key}")


def newest_records(store: NamespaceReader, mark: Mark) -> Iterator[tuple[bytes, str]]:
    """The newest record of every finished part, with its location."""
    attempts = newest_attempts(store, mark.mark_id)
    for part in mark.marked.going:
        if (attempt := attempts.get(part_id(part.name))) is not None:
            key = result_key(sweep_prefix(mark.mark_id), part.name, attempt)
            yield store.read(key), f"{store.url}/{key}"


def deleted(
    site: Site, mark: Mark, *, or_failed: bool = False, or_gone: bool = True
) -> Iterator[tuple[str, int]]:
    """The addresses and sizes of all objects that are recorded as deleted. ``or_failed``, ``or_gone``: as
    ``read_deleted``."""
    for data, name in newest_records(site.store, mark):
        yield from read_deleted(data, name=name, or_failed=or_failed, or_gone=or_gone).items()


def read_summary(store: NamespaceReader, mark_id: str) -> SweepDocument | None:
    """The document of the last run of a mark, or None. Raises FormatError."""
    key = sweep_prefix(mark_id) + SUMMARY_FILE

    def shape(value: Any, name: str) -> None:
        _SUMMARY(value, name)
        records.exactly(mark_id)(value["mark_id"], "mark_id")

    # A run cannot write it again, because only the summary says whether the sweep was aborted.
    hint = (
        "Restore the summary from a backup, or delete the damaged one and run `lakeplan sweep abort"
        f" {mark_id}` to write a new one."
    )
    summary = _read_json(store, key, shape, what="the summary of this sweep", hint=hint)
    return cast("SweepDocument | None", summary)


_SUMMARY = records.record(
    {
        "mark_id": records.text,
        "repository": records.text,
        "at": records.moment,
        "finished": records.flag,
        **dict.fromkeys((*(status.value for status in Status), "pending"), records.AMOUNT),
        "reasons": records.map_of(records.count),
        "verified": records.count,
        "came_back": records.or_null(records.count),
        "problem": records.text,
        "settings": records.record({"mode": records.text}),
        "settings_from": records.map_of(records.exactly("approval", "mark", "tree")),
        "not_yet_reclaimed": records.text,
        "closed": records.flag,
    }
)


def _run_id(value: Any, name: str) -> None:
    """The id of a run. It becomes part of keys."""
    records.text(value, name)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", value):
        raise records.WrongShape(f"{name} is not a valid run id")


_RUN_ID = records.record({"run_id": _run_id})
_RUNS = records.record({"runs": records.list_of(_run_id)})


def official_run(store: NamespaceReader, mark_id: str) -> str | None:
    """The run id under which a sweep writes the official report, or None before that. Raises FormatError."""
    record = _official(store, sweep_prefix(mark_id), _RUN_ID)
    return None if record is None else str(record["run_id"])


def noted_runs(store: NamespaceReader, mark_id: str) -> list[str]:
    """The runs in which the official collector marked for this mark, oldest first. Raises FormatError."""
    record = _official(store, mark_prefix(mark_id), _RUNS)
    return [] if record is None else list(record["runs"])


def _official(store: NamespaceReader, prefix: str, shape: records.Shape) -> dict[str, Any] | None:
    hint = "Restore the record from a backup, or run `lakeplan sweep mark` again."
    what = "the record of the official report"
    return _read_json(store, prefix + OFFICIAL_FILE, shape, what=what, hint=hint)


def _read_json(
    store: NamespaceReader, key: str, shape: records.Shape, *, what: str, hint: str
) -> dict[str, Any] | None:
    """A record in a namespace, or None. Raises FormatError."""
    try:
        data = store.read(key)
    except StorageNotFound:
        return None
    return records.read_record(data, shape, what=what, where=f"{store.url}/{key}", hint=hint)


def with_later(summary: SweepDocument, state: StateReader) -> SweepDocument:
    """The document of a sweep in quarantine, with how many deleted objects were restored and copies purged
    since. Unchanged if the state does not have that, and with a note if its record cannot be read."""
    try:
        sweep = read_sweeps(state, summary["repository"]).get(summary["mark_id"])
    except LakeplanError:
        return _with_note(summary, UNREAD) if summary["settings"]["mode"] == "quarantine" else summary
    if sweep is None or sweep.mode != "quarantine":
        return summary
    later: SweepDocument = {**summary, "restored": sweep.restored, "purged": sweep.purged.objects}
    if not sweep.quarantined.objects:
        notes = summary["not_yet_reclaimed"].split("; ")
        later["not_yet_reclaimed"] = "; ".join(text for text in notes if text != IN_QUARANTINE)
    if sweep.purging is not None:  # it may also be active now
        note = "a purge did not record that it finished, so more copies may have been purged"
        later = _with_note(later, note)
    return later


UNREAD = (
    "the state's record of the sweep cannot be read, so it is unknown how many objects were restored or"
    " purged after the sweep"
)


def _with_note(summary: SweepDocument, note: str) -> SweepDocument:
    return {**summary, "note": "; ".join(text for text in (summary.get("note"), note) if text)}


def is_over(summary: SweepDocument) -> bool:
    """Whether a sweep has ended: no object is pending, and the sweep was aborted or it is known which deleted
    objects are needed again."""
    return summary["finished"] and (summary["came_back"] is not None or summary["closed"])


def may_delete(summary: SweepDocument | None) -> bool:
    """Whether ``sweep run`` has objects left to delete or to try again."""
    if summary is None or not is_over(summary):
        return True
    return bool(summary["failed"]["objects"]) and not summary["closed"]


def list_marks(state: StateReader, now: datetime) -> MarkListDocument:
    """Lists the marks that the state records, newest first. Fields are None where a record is damaged. Raises
    LakeplanError if a record cannot be read."""

    @cache
    def sweeps_of(repository: str) -> Mapping[str, RecordedSweep] | None:
        try:
            return read_sweeps(state, repository)
        except FormatError:
            return None

    listed: list[ListedMark] = []
    for mark_id in recorded_marks(state):
        approved = state.read(approval_key(mark_id)) is not None
        row: ListedMark = {**_UNKNOWN, "mark_id": mark_id, "approved": approved}
        try:
            index = read_mark_index(state, mark_id)
        except FormatError:
            listed.append(row)
            continue
        if index is None:
            continue
        sweeps = sweeps_of(index.repository)
        sweep = (sweeps or {}).get(mark_id)
        row |= {
            "repository": index.repository,
            "marked_at": index.marked_at,
            "by": index.by,
            "state": "unknown" if sweeps is None else _state(index, sweep, approved=approved, now=now),
            "goes": index.goes.to_row(),
        }
        if sweep is not None:
            row |= {
                "deleted": sweep.amounts[Status.DELETED.value].to_row(),
                "restored": sweep.restored,
                "purged": sweep.purged.objects,
                "purging": sweep.purging is not None,
                "swept_at": utc_text(sweep.at),
            }
        listed.append(row)
    return {"format": MARKS_FORMAT, "marks": listed}


_UNKNOWN: ListedMark = {
    "mark_id": "",
    "repository": "?",
    "marked_at": "",
    "by": "",
    "approved": False,
    "state": "unknown",
    "goes": None,
    "deleted": None,
    "restored": None,
    "purged": None,
    "purging": False,
    "swept_at": None,
}


def _state(index: MarkIndex, sweep: RecordedSweep | None, *, approved: bool, now: datetime) -> ListedState:
    if sweep is not None:
        if not sweep.finished:
            return "unfinished"
        if sweep.mode == "quarantine" and sweep.amounts[Status.DELETED.value].objects:
            return "quarantined" if sweep.quarantined.objects else "purged"
        return "swept"
    if now - moment_in(index.marked_at) >= timedelta(seconds=MARK_MAX_AGE_SECONDS):
        return "too_old"
    return "approved" if approved else "marked"
