"""All decoders read the same rows of damaged ranges, or refuse them: the short run of ``make fuzz``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.formats import compiled, wire
from lakeplan.formats.ranges import _compiled, read_range, read_range_arrays, read_range_columns
from lakeplan.formats.sstable_blocks import masked_crc32c
from lakeplan.formats.wire import join_value, uvarint
from lakeplan.values import records
from tests.cpu import at_most_cpu_seconds
from tests.formats.hostile_ranges import SET, _handle, judge, sample, table

SAMPLES = 200
CHECKED = """
import sys, pytest, numba, numpy as np
sys.path.insert(0, {root!r})
from lakeplan.formats import compiled
from tests.formats.hostile_ranges import judge, sample
kernels = compiled.kernels()
assert numba.core.config.BOUNDSCHECK == 1
# the checks are there: a limit that lies is noticed
with pytest.raises(IndexError):
    kernels.handles_in(compiled.read_only(b"123456789"), 400, np.empty((9, 2), np.int64))
for at in range({count}):
    judge(sample(2, at))
print("checked")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "start", [0, *(pytest.param(n * SAMPLES, marks=pytest.mark.extended) for n in (1, 2, 3))]
)
def it_reads_the_same_rows_with_every_decoder_or_none(start: int) -> None:
    ends = Counter(judge(sample(1, at)) for at in range(start, start + SAMPLES))
    assert ends["rows, compiled"] > SAMPLES / 3
    assert ends["refused"] > SAMPLES / 10
    assert ends["rows"]


@pytest.mark.slow
@pytest.mark.extended
def it_stays_inside_every_buffer() -> None:
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHECKED.format(root=root, count=200)],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.endswith("checked\n"), done.stderr


def it_makes_the_same_file_of_a_number() -> None:
    assert [sample(1, 3), sample(1, 4)] == [sample(1, 3), sample(1, 4)]
    assert sample(1, 3) != sample(2, 3)


def it_compiles_with_the_limits_of_the_others() -> None:
    kernels = compiled.kernels()
    assert kernels is not None
    assert (kernels.MAX_BLOCK, kernels.MAX_TABLE) == (limits.BLOCK_BYTES, limits.TABLE_BYTES)
    assert (kernels.RATIO, kernels.KEY_RATIO) == (limits.SNAPPY_RATIO, limits.KEY_RATIO)
    assert (kernels.MAX_KEY, kernels.MAX_KEYS) == (limits.KEY_BYTES, limits.TABLE_KEY_BYTES)
    assert kernels.LAST_SECOND == records.LAST_SECOND


def entry(shared: int, suffix: bytes, value: bytes | None = None) -> bytes:
    value = join_value(b"i" * 32, wire.field_text(1, "data/a")) if value is None else value
    return uvarint(shared) + uvarint(len(suffix)) + uvarint(len(value)) + suffix + value


def block(*entries: bytes, restarts: tuple[int, ...] = (0,)) -> bytes:
    points = (*restarts, len(restarts))
    return b"".join(entries) + b"".join(point.to_bytes(4, "little") for point in points)


A, B = entry(0, b"a" + SET), entry(0, b"b" + SET)
LATE = join_value(
    b"", wire.field_text(1, "data/a") + wire.field_bytes(2, b"\x08" + uvarint(records.LAST_SECOND + 1))
)
REFUSED = {
    "the first restart point is not the first entry": block(A, B, restarts=(len(A),)),
    "restart points are doubled": block(A, B, restarts=(0, 0)),
    "no entry begins at a restart point": block(A, B, restarts=(0, 3)),
    "a restart point is behind the entries": block(A, B, restarts=(0, len(A + B))),
    "an entry at a restart point shares": block(A, entry(1, b"b" + SET), restarts=(0, len(A))),
    "the first entry shares": block(entry(1, b"b" + SET)),
    "more is shared than there is": block(A, entry(30, b"b" + SET)),
    "keys descend": block(B, A),
    "keys are equal": block(A, A),
    "a key begins the one before it": block(entry(0, b"ab" + SET), A),
    "a key is too short": block(entry(0, SET[1:])),
    "a key is too long": block(entry(0, b"a" * limits.KEY_BYTES + SET)),
    "keys are longer than the block could ever mean": block(
        entry(0, b"a" * 16_000 + SET), *(entry(16_000, uvarint(at) + SET, b"\0\0") for at in range(200))
    ),
    "a value is cut": block(entry(0, b"a" + SET, b"\x40")),
    "the message is longer than the value": block(entry(0, b"a" + SET, b"\0\x10abc")),
    "the message is shorter than the value": block(entry(0, b"a" + SET, b"\0\x02abc")),
    "a number has too many bytes": block(b"\x80" * 10 + b"\0" + A[1:]),
    "a length is huge": block(b"\0" + uvarint((1 << 48) - 1) + uvarint((1 << 48) - 1) + A[3:]),
    "there are no restart points": A + bytes(4),
}


@pytest.mark.parametrize("why", REFUSED)
@pytest.mark.parametrize("pack", [lambda b: (0, b), lambda b: (1, bytes(cramjam.snappy.compress_raw(b)))])
def it_refuses_a_block_by_every_decoder(why: str, pack: Callable[[bytes], tuple[int, bytes]]) -> None:
    data = table([pack(REFUSED[why])], count=REFUSED[why].count(SET))
    for read in (
        lambda: list(read_range(data, name="r")),
        lambda: read_range_columns(data, name="r"),
        lambda: read_range_arrays(data, name="r"),
        lambda: read_range_arrays(data, name="r", use_compiled=True),
        lambda: read_range_arrays(data, name="r", verify_id="0" * 64, use_compiled=True),
    ):
        with pytest.raises(FormatError):
            read()
    assert judge(data) == "refused"


def it_reads_an_object_that_was_written_after_the_calendar() -> None:
    """Clients choose these times, some in milliseconds. One such object made the whole range unreadable."""
    data = table([(0, block(entry(0, b"a" + SET, LATE)))], count=1)
    assert judge(data).startswith("rows")
    assert [one.last_modified_us for one in read_range(data, name="r")] == [records.LAST_SECOND * 1_000_000]


def it_reads_two_good_blocks_with_compiled_code() -> None:
    data = table([(0, block(A)), (1, bytes(cramjam.snappy.compress_raw(block(B))))], count=2)
    assert _compiled(data, "r", None) is not None
    assert judge(data) == "rows, compiled"


class DescribeBombs:
    """Small files that would need much memory or time."""

    @pytest.mark.parametrize("use_compiled", [True, False])
    def it_counts_the_blocks_of_all_parts_of_an_index(
        self, monkeypatch: pytest.MonkeyPatch, use_compiled: bool
    ) -> None:
        monkeypatch.setattr(limits, "TABLE_RECORDS", 100)
        data = table([(0, block(A))], count=1, parts=3, index=[(b"k", _handle((0, 0)))] * 60)
        with pytest.raises(FormatError, match="more blocks"):
            read_range_arrays(data, name="r", use_compiled=use_compiled)

    @pytest.mark.parametrize("use_compiled", [True, False])
    def it_reads_no_part_of_an_index_twice(self, use_compiled: bool) -> None:
        data = table([(0, block(A))], count=1, parts=20_000, same_part=True)
        with at_most_cpu_seconds(5), pytest.raises(FormatError, match="overlap"):
            read_range_arrays(data, name="r", use_compiled=use_compiled)

    def it_gives_up_at_once_on_more_records_than_the_file_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        buffers: list[int] = []
        compiled._scratch()  # made once a thread, whichever test comes first
        made = compiled._buffer
        monkeypatch.setattr(compiled, "_buffer", lambda size: buffers.append(size) or made(size))
        data = table([(0, block(A, B))], count=1)
        assert _compiled(data, "r", None) is None
        assert len(buffers) == 1

    def it_stops_at_the_longest_keys_of_a_table(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "TABLE_KEY_BYTES", 30_000)
        keys = block(entry(0, b"a" * 9_000 + SET), *(entry(9_000, uvarint(at) + SET) for at in range(9)))
        with pytest.raises(FormatError, match="more keys, or longer keys"):
            list(read_range(table([(0, keys)], count=10), name="r"))


def it_reads_a_block_of_which_a_key_ends_at_the_last_byte() -> None:
    data = table([(0, block(entry(0, b"a" + SET, join_value(b"", b""))))], count=1)
    assert judge(data).startswith("rows")


def it_checks_the_checksum_where_no_id_is_known() -> None:
    stored = bytearray(table([(0, block(A))], count=1))
    stored[len(block(A)) + 1] ^= 1
    assert masked_crc32c(bytes(stored[: len(block(A)) + 1])) != int.from_bytes(
        stored[len(block(A)) + 1 :][:4], "little"
    )
    with pytest.raises(FormatError, match="checksum"):
        read_range_arrays(bytes(stored), name="r", use_compiled=True)
