"""Reads and writes parts: Parquet files of listed objects, marked objects, and the result for each.

Every part has a recorded SHA-256. A part that does not match is never used, because it was changed after it
was approved.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeplan.errors import FormatError
from lakeplan.formats.parquet import blame_parquet, open_parquet, read_parquet
from lakeplan.formats.wire import HINT
from lakeplan.values.simulation import Amount, PartResult, Status
from lakeplan.values.sweep import GONE
from lakeplan.values.units import number_of

_OBJECT = (
    pa.field("address", pa.string(), nullable=False),
    pa.field("size_bytes", pa.int64(), nullable=False),
)
MODIFIED_US, LAST_COMMIT_US, KEPT_BY = "modified_us", "last_commit_us", "kept_by"
_TEXTS = pa.list_(pa.field("element", pa.string(), nullable=False))
LISTING = pa.schema(
    [*_OBJECT, pa.field("version", pa.int64(), nullable=False), pa.field(MODIFIED_US, pa.int64())]
)
"""``address`` is relative to the namespace. ``version``: ``StoredObject.version`` when it was listed.
``modified_us``: when the store says that it was written, UTC microseconds."""

MARKED = pa.schema(
    [
        *LISTING,
        pa.field("paths", _TEXTS),
        pa.field("last_commit_id", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("class", pa.string(), nullable=False),
        pa.field(LAST_COMMIT_US, pa.int64()),
        pa.field(KEPT_BY, _TEXTS),
    ]
)
"""``paths``: at most 10. ``last_commit_id``: null when never committed; ``last_commit_us``: when it was
created, UTC microseconds. ``reason``: ``expired`` or ``never_committed``. ``class``: a ``MarkClass``.
``kept_by``: what keeps it, each as a kind, a blank and a name (``retention.keep.Protectors``)."""

RESULTS = pa.schema(
    [
        *_OBJECT,
        pa.field("status", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
"""``status``: a ``Status``; ``reason``: "" for what was deleted."""
STATUSES = frozenset(status.value for status in Status)


def write_part(columns: Mapping[str, Sequence[Any] | pa.Array], schema: pa.Schema) -> tuple[bytes, str]:
    """The file, and its SHA-256 (hex). Nullable columns may be left out."""
    rows = len(columns["address"])
    arrays = [
        pa.nulls(rows, f.type) if f.nullable and f.name not in columns else pa.array(columns[f.name], f.type)
        for f in schema
    ]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), out, compression="snappy")
    data = out.getvalue()
    return data, hashlib.sha256(data).hexdigest()


MARK_COLUMNS = tuple(field.name for field in MARKED)
_KNOWN = {field.name: field for field in (*MARKED, *RESULTS)}


def read_part(
    data: bytes, *, name: str, sha256: str | None, columns: Sequence[str] = ("address", "size_bytes")
) -> pa.Table:
    """A part with at least these columns. Raises FormatError if it is damaged or does not match
    ``sha256``."""
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise FormatError(
            "the checksum does not match, so this part of the mark has changed since the mark was created",
            where=name,
            hint="Run `lakeplan sweep mark` again.",
        )
    with blame_parquet(name, "this part of the mark is not a Parquet file"):
        table = read_parquet(open_parquet(data))
    with blame_parquet(name, "this part of the mark contains text that is not UTF-8"):
        table.validate(full=True)  # pyarrow read it without this check
    _check_columns(table, columns, name)
    return table


def _check_columns(table: pa.Table, columns: Sequence[str], name: str) -> None:
    """Raises FormatError for columns that lakeplan does not write. Whoever can write to the namespace could
    write others, with a matching checksum."""
    odd = sorted(set(columns) - set(table.column_names))
    for field in table.schema:
        known = _KNOWN.get(field.name)
        if known is not None and (
            table.column_names.count(field.name) > 1
            or not _is_of(field.type, known.type)
            or (not known.nullable and table.column(field.name).null_count)
        ):
            odd.append(field.name)
    if odd:
        raise FormatError(
            f"the file is not part of a mark: the column {odd[0]} is missing or has the wrong type",
            where=name,
            hint=HINT,
        )


def _is_of(kind: pa.DataType, known: pa.DataType) -> bool:
    if pa.types.is_list(known):
        return pa.types.is_list(kind) and bool(kind.value_type == known.value_type)
    return bool(kind == known)


def write_results(
    status: Mapping[str, tuple[Status, str]], sizes: Mapping[str, int], *, verified: int
) -> bytes:
    """The record of a part: the result for every address, and why. ``verified`` is the number of objects that
    were requested again."""
    keys = list(status)
    columns = {
        "address": keys,
        "size_bytes": [sizes[key] for key in keys],
        "status": [status[key][0].value for key in keys],
        "reason": [status[key][1] for key in keys],
    }
    data, _ = write_part(columns, RESULTS.with_metadata({"verified": str(verified)}))
    return data


def read_results(data: bytes, *, name: str) -> dict[str, tuple[Status, str]]:
    """Status and reason in a record, by address. Raises FormatError for a damaged record."""
    table, _ = _read_record(data, name)
    columns = (table.column(column).to_pylist() for column in ("address", "status", "reason"))
    return {address: (Status(status), reason) for address, status, reason in zip(*columns, strict=True)}


def read_deleted(data: bytes, *, name: str, or_failed: bool = False, or_gone: bool = True) -> dict[str, int]:
    """Sizes of deleted objects in a record, by address; with ``or_failed`` also of those whose deletion
    failed, without ``or_gone`` not of those that were gone already. Raises FormatError for a damaged
    record."""
    table, _ = _read_record(data, name)
    columns = (table.column(column).to_pylist() for column in ("address", "size_bytes", "status", "reason"))
    wanted = {Status.DELETED.value, *([Status.FAILED.value] if or_failed else ())}
    return {
        address: size
        for address, size, status, reason in zip(*columns, strict=True)
        if status in wanted and (or_gone or reason != GONE)
    }


def end_of(name: str, data: bytes, *, where: str = "") -> PartResult:
    """The result of a part, from its record at ``where``. Raises FormatError for a damaged record."""
    table, verified = _read_record(data, where or name)
    amounts: dict[Status, Amount] = {}
    reasons: Counter[str] = Counter()
    rows = table.group_by(["status", "reason"]).aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    for row in rows.to_pylist():
        status = Status(row["status"])
        amount = Amount(row["size_bytes_count"], row["size_bytes_sum"])
        amounts[status] = amounts.get(status, Amount()) + amount
        if row["reason"]:
            reasons[f"{status.value}: {row['reason']}"] += amount.objects
    return PartResult(name, amounts, dict(reasons), verified)


def _read_record(data: bytes, name: str) -> tuple[pa.Table, int]:
    """The record of a part, and how many objects were verified. Records have no checksum."""
    table = read_part(data, name=name, sha256=None)
    verified = number_of((table.schema.metadata or {}).get(b"verified", b"0").decode("latin-1"))
    same = table.schema.equals(RESULTS)
    if not same or verified is None or not {*table.column("status").unique().to_pylist()} <= STATUSES:
        raise FormatError(
            "the record of what the sweep did with these objects is damaged",
            where=name,
            hint=(
                "Move the record elsewhere, then run the sweep again. The sweep then checks in the store"
                " whether these objects still exist."
            ),
        )
    return table, verified
