"""Runs of uncommitted addresses: the Parquet files that ``prepare_uncommited`` leaves behind.

``_lakefs/retention/gc/uncommitted/<run>/uncommitted/<file>``. Run ids are descending xids, so the newest run
is the smallest. A run has no mark that it is complete, and a run that found nothing may leave no file.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakeplan.errors import FormatError
from lakeplan.formats.namespace import GC_UNCOMMITTED_PREFIX, is_xid, time_of_descending, uncommitted_prefix
from lakeplan.formats.parquet import open_parquet, read_parquet
from lakeplan.formats.wire import HINT, LIMIT_HINT
from lakeplan.limits import TooLarge

_SCHEMA = pa.schema(
    [
        pa.field("physical_address", pa.string(), nullable=False),
        pa.field("creation_date", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class UncommittedAddresses:
    """Two columns of equal length: addresses relative to the namespace, and epoch seconds."""

    addresses: list[str]
    creation_dates: list[int]

    def __len__(self) -> int:
        return len(self.addresses)


def newest_run(keys: Iterable[str]) -> str | None:
    """The id of the newest run that has a file among these keys (relative to the namespace's root).

    Only the newest run counts: it lists everything uncommitted at its time (golden/README.md, risk-2).
    Foreign keys are passed over.
    """
    return min((run for run in map(_run_of, keys) if run), default=None)


def files_of_run(keys: Iterable[str], run_id: str) -> list[str]:
    """The keys of a run's Parquet files, sorted. Hidden files and Spark's marks (``_SUCCESS``) are none."""
    return sorted(key for key in keys if _run_of(key) == run_id)


def run_time(run_id: str) -> int:
    """Epoch seconds at which a run began, out of its id. Raises FormatError for what is no run id."""
    if not is_xid(run_id):
        raise FormatError("is not the id of a run", where=run_id, hint=HINT)
    return time_of_descending(run_id)


def read_uncommitted(data: bytes, *, name: str) -> UncommittedAddresses:
    """One file of a run. Raises FormatError naming ``name``."""
    try:
        file = open_parquet(data, page_checksum_verification=True)
        _check_row_counts(file.metadata)
        columns = read_parquet(file).select(_SCHEMA.names).cast(_SCHEMA)
        addresses, dates = (column.to_pylist() for column in columns.columns)
    except TooLarge as error:
        raise FormatError(f"is beyond a limit: {error}", where=name, hint=LIMIT_HINT) from None
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        message = "is not a whole Parquet file of uncommitted addresses"
        raise FormatError(message, where=name, hint=HINT, detail=str(error)) from error
    if None in addresses:
        raise FormatError("holds an address that is null", where=name, hint=HINT)
    if len(addresses) != file.metadata.num_rows:
        raise FormatError("holds another number of addresses than it says", where=name, hint=HINT)
    return UncommittedAddresses(addresses, dates)


def _check_row_counts(metadata: pq.FileMetaData) -> None:
    """The footer has no checksum, and a lost address is a lost object: the counts in it must agree."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    if sum(group.num_rows for group in groups) != metadata.num_rows:
        raise ValueError("the row groups' rows are not the file's")
    for group in groups:
        if any(group.column(i).num_values != group.num_rows for i in range(group.num_columns)):
            raise ValueError("a column has another number of values than its row group has rows")


def write_uncommitted(addresses: Sequence[str], creation_dates: Sequence[int]) -> bytes:
    """One file of a run, with the server's columns, types and compression."""
    table = pa.table([list(addresses), list(creation_dates)], schema=_SCHEMA)
    out = io.BytesIO()
    pq.write_table(table, out, compression="gzip", version="1.0", use_dictionary=False)
    return out.getvalue()


def _run_of(key: str) -> str | None:
    if not key.startswith(GC_UNCOMMITTED_PREFIX):
        return None
    run = key[len(GC_UNCOMMITTED_PREFIX) :].partition("/")[0]
    prefix = uncommitted_prefix(run)
    file = key[len(prefix) :]
    if not is_xid(run) or not key.startswith(prefix) or not file or "/" in file or file[0] in "._":
        return None
    return run
