"""Files of lakeFS's own collector: ``commits.csv`` and the reports of its runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq

from lakeplan.errors import FormatError
from lakeplan.formats.namespace import UNIFIED_PREFIX
from lakeplan.formats.parquet import open_parquet, read_parquet
from lakeplan.formats.wire import HINT, LIMIT_HINT
from lakeplan.limits import TooLarge, parse_json
from lakeplan.values.records import utc_text

HEADER = ["commit_id", "expired", "metarange_id"]


def write_commits_csv(active: Mapping[str, str]) -> bytes:
    """The file as the server writes it: commit id → metarange id, in the mapping's order."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows((commit, "false", metarange) for commit, metarange in active.items())
    return out.getvalue().encode()


ADDRESSES_A_FILE = 500_000
_DELETED = pa.schema([pa.field("address", pa.string())])


@dataclass(frozen=True)
class UnifiedRun:
    """One run's keys and files."""

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
        """``num_deleted_objects`` is what was seen deleted (the official one counts what was marked)."""
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
    try:
        table = read_parquet(open_parquet(data))
        addresses: list[str] = table.column("address").to_pylist()
    except TooLarge as error:
        raise FormatError(f"is beyond a limit: {error}", where=name, hint=LIMIT_HINT) from None
    except (pa.ArrowException, OSError, KeyError) as error:
        raise FormatError("is not a report of deleted addresses", where=name, hint=HINT) from error
    return addresses


@dataclass(frozen=True)
class RunSummary:
    """``objects``: how many addresses the run's files name. ``written_by`` is "" for the official
    collector, which counts what it marked, deleted or not. Moments are the file's own texts."""

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
        raise FormatError("is not the summary of a collection", where=name, hint=HINT) from error
