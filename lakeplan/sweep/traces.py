"""The marks that name an object, and what their sweeps did to it, for ``explain``. Reads only."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping

from lakeplan.errors import FormatError, LakeplanError, StorageNotFound
from lakeplan.formats.marks import KEPT_BY, read_results
from lakeplan.formats.namespace import part_id, quarantine_prefix, result_key, sweep_prefix
from lakeplan.stores.protocols import NamespaceReader, StateReader
from lakeplan.sweep.contents import keeper_name, marked_tables
from lakeplan.sweep.documents import TraceRow, TraceState
from lakeplan.sweep.mark_record import Approval
from lakeplan.sweep.ports import recorded_marks
from lakeplan.sweep.records import (
    StoredMark,
    newest_attempts,
    read_approval,
    read_mark_index,
    read_stored,
    read_summary,
)
from lakeplan.values.records import utc_text
from lakeplan.values.sweep import Part, Status, deleted_classes

MOST_MARKS = 20
"""The marks of a repository that are searched, newest first."""
MOST_PARTS = 500
"""The most files that are read, in all marks together."""


def trace(
    store: NamespaceReader, state: StateReader, repository: str, addresses: Collection[str]
) -> tuple[dict[str, list[TraceRow]], list[str]]:
    """The marks of ``server/name`` that name these addresses, by address, newest first; and notes about marks
    that were not searched."""
    rows: dict[str, list[TraceRow]] = {address: [] for address in addresses}
    notes: list[str] = []
    left = MOST_PARTS
    ids = list(_marks_of(state, repository))
    if len(ids) > MOST_MARKS:
        notes.append(f"only the newest {MOST_MARKS} of {len(ids):,} marks were searched")
    for mark_id, digest in ids[:MOST_MARKS]:
        try:
            stored = read_stored(store, mark_id, digest=digest)
            parts = (*stored.mark.marked.going, *stored.mark.marked.kept)
            if len(parts) > left:
                notes.append(f"mark {mark_id} was not searched: it has {len(parts):,} files")
                continue
            left -= len(parts)
            for address, row in _of_mark(store, state, stored, rows):
                rows[address].append(row)
        except StorageNotFound:
            notes.append(f"mark {mark_id} is no longer in the namespace")
        except LakeplanError as error:
            notes.append(f"mark {mark_id} cannot be read: {error.message}")
    return rows, notes


def has_marks(state: StateReader, repository: str) -> bool:
    """Whether the state records a mark of ``server/name``."""
    return next(_marks_of(state, repository), None) is not None


def _marks_of(state: StateReader, repository: str) -> Iterator[tuple[str, str]]:
    for mark_id in recorded_marks(state):
        try:
            index = read_mark_index(state, mark_id)
        except FormatError:
            continue
        if index is not None and index.repository == repository:
            yield mark_id, index.digest


def _of_mark(
    store: NamespaceReader, state: StateReader, stored: StoredMark, wanted: Collection[str]
) -> Iterator[tuple[str, TraceRow]]:
    mark = stored.mark
    approval = read_approval(state, stored)
    going = {kind.value for kind in deleted_classes(mark.settings.never_committed)}
    attempts = newest_attempts(store, mark.mark_id)
    summary = read_summary(store, mark.mark_id)
    parts = (*mark.marked.going, *mark.marked.kept)
    for part, table in zip(parts, marked_tables(store, mark, parts), strict=True):
        names = table.column("address").to_pylist()
        for at in [at for at, name in enumerate(names) if name in wanted]:
            row = table.slice(at, 1).to_pylist()[0]
            ended: tuple[TraceState, str] = ("kept", "")
            if row["class"] in going:
                ended = _end(store, stored, part, attempts, row["address"], approval)
            restore = None
            if ended[0] == "quarantined":
                path = f" --path {shlex.quote(row['paths'][0])}" if row["paths"] else ""
                restore = f"lakeplan sweep restore {mark.mark_id}{path}"
            yield (
                row["address"],
                {
                    "mark_id": mark.mark_id,
                    "marked_at": utc_text(mark.marked_at),
                    "mark_class": row["class"],
                    "kept_by": [keeper_name(by) for by in row[KEPT_BY] or ()],
                    "state": ended[0],
                    "why": ended[1],
                    "approved_by": None if approval is None else approval.by,
                    "approved_at": None if approval is None else approval.at,
                    "approval_reason": None if approval is None else approval.reason,
                    "swept_at": None if summary is None else summary["at"],
                    "restore": restore,
                },
            )


def _end(
    store: NamespaceReader,
    stored: StoredMark,
    part: Part,
    attempts: Mapping[str, int],
    address: str,
    approval: Approval | None,
) -> tuple[TraceState, str]:
    mark_id = stored.mark.mark_id
    attempt = attempts.get(part_id(part.name))
    if attempt is None:
        return ("marked" if approval is None else "approved"), ""
    key = result_key(sweep_prefix(mark_id), part.name, attempt)
    status, why = read_results(store.read(key), name=f"{store.url}/{key}").get(
        address, (Status.FAILED, "the record of the sweep does not list this object")
    )
    if status is not Status.DELETED:
        return ("saved" if status is Status.SAVED else "failed"), why
    if stored.mark.settings.mode != "quarantine":
        return "deleted", why
    copy = quarantine_prefix(mark_id) + address
    there = any(copied.key == copy for copied in store.list_objects(copy))
    return ("quarantined" if there else "purged"), why
