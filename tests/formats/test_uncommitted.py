from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.errors import FormatError
from lakeplan.formats.collector import (
    files_of_run,
    newest_run,
    read_uncommitted,
    run_time,
    write_uncommitted,
)

BASE = "_lakefs/retention/gc/uncommitted"
NEWER, OLDER = "ft6viapksdu8jkn65m40", "ft6vidhksdu8jkn65m0g"
KEYS = [
    f"{BASE}/{OLDER}/uncommitted/dc0gjihksdu8jkn65m10",
    f"{BASE}/{NEWER}/uncommitted/b",
    f"{BASE}/{NEWER}/uncommitted/a",
    f"{BASE}/{NEWER}/uncommitted/_SUCCESS",
    f"{BASE}/{NEWER}/uncommitted/.part.crc",
    f"{BASE}/{NEWER}/uncommitted/deeper/c",
    f"{BASE}/{NEWER}/something-else",
    f"{BASE}/0-not-a-run/uncommitted/a",
    f"{BASE}/a",
    "_lakefs/dummy",
    "data/x",
]
SAMPLE = write_uncommitted([f"data/p/{i}" for i in range(50)], list(range(50)))


def it_takes_the_newest_run_alone() -> None:
    assert newest_run(KEYS) == NEWER
    assert files_of_run(KEYS, NEWER) == [f"{BASE}/{NEWER}/uncommitted/a", f"{BASE}/{NEWER}/uncommitted/b"]
    assert run_time(NEWER) > run_time(OLDER)


def it_finds_no_run_among_foreign_files() -> None:
    assert newest_run([]) is None
    assert newest_run(KEYS[3:]) is None
    assert newest_run([f"{BASE}/0000000000000000000/uncommitted/a"]) is None


def it_refuses_the_time_of_what_is_no_run() -> None:
    with pytest.raises(FormatError) as caught:
        run_time("uncommitted")
    assert caught.value.where == "uncommitted"


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**40)), max_size=20)
)
def it_reads_what_it_writes(rows: list[tuple[str, int]]) -> None:
    addresses, dates = [a for a, _ in rows], [d for _, d in rows]
    data = write_uncommitted(addresses, dates)
    assert read_uncommitted(data, name="x") == addresses
    assert pq.read_table(io.BytesIO(data))["creation_date"].to_pylist() == dates


def it_writes_the_servers_columns() -> None:
    file = pq.ParquetFile(io.BytesIO(SAMPLE))
    assert file.schema_arrow.names == ["physical_address", "creation_date"]
    assert file.metadata.row_group(0).column(0).compression == "GZIP"
    assert not any(field.nullable for field in file.schema_arrow)


@settings(max_examples=200)
@given(st.integers(0, len(SAMPLE) - 1), st.integers(1, 255))
def it_never_loses_an_address_to_a_flipped_byte(position: int, mask: int) -> None:
    damaged = bytearray(SAMPLE)
    damaged[position] ^= mask
    try:
        read = read_uncommitted(bytes(damaged), name="x")
    except FormatError:
        return
    assert read == [f"data/p/{i}" for i in range(50)]


def _parquet(columns: dict[str, list[object]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1",
        SAMPLE[:-1],
        SAMPLE[:200],
        _parquet({"address": ["x"]}),
        _parquet({"physical_address": [None], "creation_date": [1]}),
        _parquet({"physical_address": ["x"], "creation_date": ["soon"]}),
    ],
)
def it_names_a_damaged_file(data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        read_uncommitted(data, name="run/file")
    assert caught.value.where == "run/file"
