"""Records of what became of objects: no checksum protects them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakeplan.errors import FormatError, LakeplanError
from lakeplan.formats.marks import (
    LISTING,
    RESULTS,
    end_of,
    read_deleted,
    read_part,
    read_results,
    write_part,
    write_results,
)
from lakeplan.values.simulation import Amount, PartResult, Status

DELETED, FAILED = Status.DELETED, Status.FAILED


def record(status: str = "deleted", *, verified: str | None = "1", schema: Any = RESULTS) -> bytes:
    columns = {
        "address": ["data/a"],
        "size_bytes": [3],
        "version": [1],
        "status": [status],
        "reason": [""],
        "more": [1],
    }
    metadata = {} if verified is None else {"verified": verified}
    return write_part(columns, schema.with_metadata(metadata))[0]


def it_reads_what_was_written() -> None:
    status = {"data/a": (DELETED, ""), "data/b": (FAILED, "denied"), "data/c": (FAILED, "denied")}
    data = write_results(status, {"data/a": 1, "data/b": 2, "data/c": 4}, verified=7)
    assert read_results(data, name="x") == status
    amounts = {DELETED: Amount(1, 1), FAILED: Amount(2, 6)}
    assert end_of("x", data) == PartResult("x", amounts, {"failed: denied": 2}, 7)
    assert end_of("x", record(verified=None)).verified == 0


@pytest.mark.parametrize(
    "data",
    [
        record("gone"),
        record(verified="some"),
        record(verified="9" * 5_000),
        record(verified="-1"),
        record(schema=LISTING),
        record(schema=RESULTS.append(pa.field("more", pa.int64()))),
        record(schema=RESULTS.remove(2)),
    ],
)
def it_names_a_damaged_record(data: bytes) -> None:
    for read in (lambda: read_results(data, name="the/record"), lambda: end_of("the/record", data)):
        with pytest.raises(
            FormatError, match="the record of what the sweep did with these objects"
        ) as caught:
            read()
        assert caught.value.where == "the/record"
        assert caught.value.hint


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 84160 failed"),
        pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),
    ],
)
def it_does_not_call_a_record_damaged_if_memory_is_short(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(file: object) -> None:
        raise error

    monkeypatch.setattr("lakeplan.formats.marks.read_parquet", read)
    with pytest.raises(LakeplanError, match="ran out of memory or threads") as raised:
        read_deleted(record(), name="x")
    assert not isinstance(raised.value, FormatError)


@pytest.mark.parametrize("text", [b"data/a", b"denied"])
def it_names_a_record_with_a_damaged_text(text: bytes) -> None:
    data = write_results({"data/a": (FAILED, "denied")}, {"data/a": 1}, verified=0)
    damaged = data.replace(text, text[:-1] + b"\xff")
    assert damaged != data
    for read in (read_results, read_deleted, lambda data, name: read_part(data, name=name, sha256=None)):
        with pytest.raises(FormatError, match="contains text that is not UTF-8") as caught:
            read(damaged, name="the/record")
        assert caught.value.where == "the/record"
    with pytest.raises(FormatError):
        end_of("x", damaged, where="the/record")
