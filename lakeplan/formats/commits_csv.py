"""``commits.csv`` of ``prepare_commits``: the commits that the server keeps."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.formats.damage import HINT, blame, damaged
from lakeplan.formats.range_data import is_file_id

HEADER = ["commit_id", "expired", "metarange_id"]


def read_commits_csv(data: bytes, *, name: str) -> dict[str, str]:
    """Active commits: commit id → metarange id ("" for a first commit). Rows that say ``expired`` are left
    out; today's servers write none. Raises FormatError, also for a file that ends in the middle of a row."""
    with blame(name):
        if len(data) > limits.CSV_BYTES:
            raise damaged(f"is larger than {limits.size_text(limits.CSV_BYTES)}")
        if not data.endswith(b"\n"):
            raise damaged("does not end with a whole row")
        rows = _rows(data, name)
        if next(rows, None) != HEADER:
            raise damaged(f"its header is not {','.join(HEADER)}")
        active: dict[str, str] = {}
        for number, row in enumerate(rows, start=2):
            if number > limits.CSV_ROWS:
                raise damaged(f"has more than {limits.CSV_ROWS:,} rows")
            if len(row) != len(HEADER) or row[1] not in ("true", "false"):
                raise damaged(f"row {number} is not a commit")
            commit, expired, metarange = row
            if not commit or (metarange and not is_file_id(metarange)):
                raise damaged(f"row {number} holds something that is no id")
            if expired == "false":
                active[commit] = metarange
        return active


def _rows(data: bytes, name: str) -> Iterator[list[str]]:
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="")
    try:
        yield from csv.reader(text, strict=True)
    except csv.Error as error:
        raise FormatError("is no CSV", where=name, hint=HINT, detail=str(error)) from error


def write_commits_csv(active: Mapping[str, str]) -> bytes:
    """The file as the server writes it: commit id → metarange id, in the mapping's order."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows((commit, "false", metarange) for commit, metarange in active.items())
    return out.getvalue().encode()
