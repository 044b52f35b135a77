"""Files of lakeFS's own collector: rules, ``commits.csv``, the reports of its runs, and runs of uncommitted
addresses.

A run of uncommitted addresses is the Parquet files that ``prepare_uncommited`` leaves behind:
``_lakefs/retention/gc/uncommitted/<run>/uncommitted/<file>``. Run ids are descending xids, so the newest
run is the smallest. Nothing shows that a run is complete, and a run that found nothing may leave no
file.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq

from lakeplan.errors import FormatError
from lakeplan.formats.namespace import (
    GC_UNCOMMITTED_PREFIX,
    UNIFIED_PREFIX,
    is_xid,
    time_of_descending,
    uncommitted_prefix,
)
from lakeplan.formats.parquet import blame_parquet, open_parquet, read_parquet
from lakeplan.formats.wire import HINT, field_bytes, field_int
from lakeplan.limits import parse_json
from lakeplan.values.records import utc_text
from lakeplan.values.rules import GcRules

HEADER = ["commit_id", "expired", "metarange_id"]


def write_commits_csv(active: Mapping[str, str]) -> bytes:
    """The file as the server writes it: commit ids and metarange ids, in the mapping's order."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows((commit, "false", metarange) for commit, metarange in active.items())
    return out.getvalue().encode()


def write_gc_rules(rules: GcRules | None) -> bytes:
    """The file of ``rules``, which is empty for None. Rules with only zeros are written as an explicit zero,
    which protobuf allows, because an empty file would mean no rules."""
    if rules is None:
        return b""
    body = field_int(1, rules.default_retention_days) + b"".join(
        field_bytes(2, field_bytes(1, branch.encode()) + field_int(2, days, explicit=True))
        for branch, days in rules.branches.items()
    )
    return body or field_int(1, 0, explicit=True)


ADDRESSES_A_FILE = 500_000
_DELETED = pa.schema([pa.field("address", pa.string())])


@dataclass(frozen=True)
class UnifiedRun:
    """The keys and files of one run."""

    run_id: str

    @property
    def prefix(self) -> str:
        return f"{UNIFIED_PREFIX}{self.run_id}/"

    @property
    def summary_key(self) -> str:
        return f"{self.prefix}summary.json"

    def files(self, number: int, addresses: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """The ``number``-th file of both kinds, by key."""
        out = io.BytesIO()
        pq.write_table(pa.table([list(addresses)], schema=_DELETED), out, compression="snappy")
        yield f"{self.prefix}deleted/part-{number:05}.snappy.parquet", out.getvalue()
        text = "".join(f"{address}\n" for address in addresses)
        yield f"{self.prefix}deleted.text/part-{number:05}.txt", text.encode()

    def summary(
        self, *, started: datetime, cutoff: datetime, first_slice: str, deleted: int, now: datetime
    ) -> bytes:
        """The summary of a run. ``num_deleted_objects`` counts deletions that were seen (the official one
        counts marks)."""
        return json.dumps(
            {
                "run_id": self.run_id,
                "success": True,
                "first_slice": first_slice,
                "start_time": utc_text(started),
                "cutoff_time": utc_text(cutoff),
                "num_deleted_objects": deleted,
                "written_by": "lakeplan",
                "written_at": utc_text(now),
            }
        ).encode()


def read_deleted(data: bytes, *, name: str) -> list[str]:
    """The addresses of one Parquet file of a report, ours or the official collector's. Raises FormatError."""
    with blame_parquet(name, "the file is not a report of deleted addresses"):
        column = read_parquet(open_parquet(data)).column("address")
        if column.type != pa.string() or column.null_count:
            raise ValueError("an address is not a string")
        addresses: list[str] = column.to_pylist()
    return addresses


@dataclass(frozen=True)
class RunSummary:
    """The summary of a run. ``objects`` is the number of addresses in its files. ``written_by`` is "" for the
    official collector, which counts marked objects, deleted or not. Times are texts as in the file."""

    run_id: str
    success: bool
    objects: int
    started: str = ""
    cutoff: str = ""
    written_by: str = ""


def read_summary(data: bytes, *, name: str) -> RunSummary:
    """A report's ``summary.json``. Raises FormatError."""
    try:
        record = parse_json(data)
        return RunSummary(
            run_id=str(record["run_id"]),
            success=record["success"] is True,
            objects=int(record["num_deleted_objects"]),
            started=str(record.get("start_time", "")),
            cutoff=str(record.get("cutoff_time", "")),
            written_by=str(record.get("written_by", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            "the file is not the summary of a garbage collection run", where=name, hint=HINT
        ) from error


_SCHEMA = pa.schema(
    [
        pa.field("physical_address", pa.string(), nullable=False),
        pa.field("creation_date", pa.int64(), nullable=False),
    ]
)


def newest_run(keys: Iterable[str]) -> str | None:
    """The id of the newest run that has a file among these keys (relative to the namespace's root).

    Only the newest run counts, because it lists everything uncommitted at its time (golden/README.md,
    risk-2). Other keys are ignored.
    """
    return min((run for run in map(_run_of, keys) if run), default=None)


def files_of_run(keys: Iterable[str], run_id: str) -> list[str]:
    """The keys of a run's Parquet files, sorted, without hidden files and Spark's ``_SUCCESS``."""
    return sorted(key for key in keys if _run_of(key) == run_id)


def run_time(run_id: str) -> int:
    """Epoch seconds at which a run began, by its id. Raises FormatError for anything but a run id."""
    if not is_xid(run_id):
        raise FormatError("this is not a valid run id", where=run_id, hint=HINT)
    return time_of_descending(run_id)


def read_uncommitted(data: bytes, *, name: str) -> list[str]:
    """The addresses in one file of a run, relative to the namespace. Raises FormatError naming ``name``."""
    with blame_parquet(name, "the file is not a complete Parquet file of uncommitted addresses"):
        file = open_parquet(data, exact=True)
        column = read_parquet(file).select(_SCHEMA.names).cast(_SCHEMA)["physical_address"]
        addresses: list[str] = column.to_pylist()
    if column.null_count:
        raise FormatError("the file contains a null address", where=name, hint=HINT)
    if len(addresses) != file.metadata.num_rows:
        raise FormatError(
            "the number of addresses in the file differs from the number in its metadata",
            where=name,
            hint=HINT,
        )
    return addresses


def write_uncommitted(addresses: Sequence[str], creation_dates: Sequence[int]) -> bytes:
    """The bytes of one file of a run, with the server's columns, types and compression."""
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
