"""Ranges that are damaged in their structure while their checksums match, and what all decoders say of them.

``make fuzz FUZZ_ARGS="--seed N --count N [--start N] [--real FOLDER]"`` runs many; sample ``n`` of a seed is
always the same file, so a run that was stopped goes on with ``--start``. Half of the samples have the records
of ranges below ``FOLDER``, such as a namespace that a real server wrote.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cramjam
import numpy as np

from lakeplan.errors import FormatError
from lakeplan.formats import ranges, wire
from lakeplan.formats import ranges as entries
from lakeplan.formats.compiled import kernels
from lakeplan.formats.namespace import is_candidate_key, is_usual_key
from lakeplan.formats.range_arrays import RangeArrays, hash_spans, joined
from lakeplan.formats.ranges import (
    RANGES,
    encode_entry,
    is_file_id,
    read_range,
    read_range_arrays,
    read_range_columns,
)
from lakeplan.formats.sstable import file_id, read_sstable
from lakeplan.formats.sstable_blocks import (
    FORMAT_VERSION,
    HANDLES_END,
    MAGIC,
    PROPERTIES_KEY,
    _common_prefix,
    masked_crc32c,
)
from lakeplan.formats.wire import join_value, split_value, uvarint
from lakeplan.values.repository import AddressType, Entry

SET, SEPARATOR = (1).to_bytes(8, "little"), bytes.fromhex("11ffffffffffffff")
_POWERS = (40, 48, 49, 50, 56, 62, 63, 64)
HUGE = (
    *(0, 1, 7, 8, 59, 60, 61, 127, 128, 255, 256, 16383, 16384, 16385),
    *((1 << 21) - 1, 1 << 31, 1 << 32, *((1 << bits) - 1 for bits in _POWERS)),
)
SLOWEST_SECONDS = 20.0
Row = tuple[str, str, int, int]
Records = Sequence[tuple[bytes, bytes]]


def varint(draw: random.Random, number: int) -> bytes:
    """Now and then longer than it has to be, or with bits that nobody asked for."""
    data = uvarint(number)
    if draw.random() < 0.9:
        return data
    return data[:-1] + bytes((data[-1] | 0x80, *[0x80] * draw.randrange(9), draw.choice((0, 0, 0, 1))))


def number(draw: random.Random, near: int) -> int:
    if draw.random() < 0.5:
        return min(max(near + draw.choice((-9, -8, -2, -1, 1, 2, 8, 9)), 0), (1 << 64) - 1)
    return draw.choice(HUGE)


def mangled(draw: random.Random, data: bytes) -> bytes:
    """A few bytes changed, inserted, cut out or doubled."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        at = draw.randrange(len(found) + 1)
        match draw.randrange(5):
            case 0 if at < len(found):
                found[at] ^= 1 << draw.randrange(8)
            case 1 if at < len(found):
                found[at] = draw.choice((0, 1, 0x2F, 0x2E, 0x7F, 0x80, 0xC3, 0xFF, draw.randrange(256)))
            case 2:
                found[at:at] = draw.randbytes(draw.choice((1, 2, 9)))
            case 3:
                del found[at : at + draw.choice((1, 2, 9, 100))]
            case _:
                found[at:at] = found[max(at - draw.choice((1, 4, 30)), 0) : at]
    return bytes(found)


@dataclass
class Hostile:
    """How one sample differs from a good file. Each is the chance that one thing of its kind is damaged."""

    draw: random.Random
    chances: dict[str, float] = field(default_factory=dict)
    real: Sequence[Records] = ()

    def hit(self, kind: str) -> bool:
        chance = self.chances.get(kind, 0.0)
        return bool(chance) and self.draw.random() < chance


KINDS = (
    *("key", "order", "shared", "trailer", "lengths", "restart", "restarts", "block"),
    *("snappy", "stream", "packing", "handle", "index", "two-level", "parts"),
    *("field", "unknown", "repeat", "shuffle", "text", "time", "message", "identity", "value"),
    *("count", "property", "footer", "file", "varint", "long", "many", "empty"),
)
"""What may be damaged. Most samples have one or two of these, so that something of them is still read."""


def sample(seed: int, at: int, real: Sequence[Records] = ()) -> bytes:
    """The bytes of one hostile file. ``real``: records of ranges."""
    draw = random.Random(f"{seed}/{at}")
    kinds = draw.sample(KINDS, draw.choice((0, 1, 1, 1, 2, 2, 3)))
    return make(Hostile(draw, {kind: draw.choice((0.02, 0.1, 0.5)) for kind in kinds}, real))


def make(hostile: Hostile) -> bytes:
    draw = hostile.draw
    records = _records(hostile)
    count = len(records)
    out = bytearray()
    index: list[tuple[bytes, bytes]] = []
    while records:
        some = records[: draw.choice((1, 3, 16, 17, 40))]
        del records[: len(some)]
        index.append(
            (some[-1][0] + SEPARATOR, _place(hostile, *_write(hostile, out, _block(hostile, some, 16))))
        )
    if not index or hostile.hit("empty"):
        index.append((SEPARATOR, _place(hostile, *_write(hostile, out, _block(hostile, [], 16)))))
    if hostile.hit("index"):
        _disorder(draw, index)
    two_level = draw.random() < 0.2
    if two_level:
        index = _parts(hostile, out, index)
    place = _write(hostile, out, _block(hostile, index, 1, is_index=True))
    level = 2 if two_level != hostile.hit("two-level") else 0
    properties = _properties(hostile, level, count)
    block = _write(hostile, out, _block(Hostile(draw), properties, 1 << 30, is_index=True))
    meta = _write(hostile, out, _block(Hostile(draw), [(PROPERTIES_KEY, _handle(block))], 1, is_index=True))
    footer = _footer(meta, _place(hostile, *place))
    out += mangled(draw, footer) if hostile.hit("footer") else footer
    return mangled(draw, bytes(out)) if hostile.hit("file") else bytes(out)


# ---- records
def _records(hostile: Hostile) -> list[tuple[bytes, bytes]]:
    draw = hostile.draw
    if hostile.real and draw.random() < 0.5:
        found = draw.choice(hostile.real)
        at = draw.randrange(len(found))
        records = [
            (key, _value(hostile, *split_value(value)))
            for key, value in found[at : at + draw.choice((1, 5, 40))]
        ]
        if hostile.hit("order"):
            _disorder(draw, records)
        return records
    count = draw.choice((1, 2, 5, 17, 40)) if not hostile.hit("many") else 200
    begin = (
        "x" * draw.choice((0, 3, 20, 300))
        if not hostile.hit("long")
        else "p" * draw.choice((16370, 16376, 16377))
    )
    records = []
    for at in range(count):
        path = f"{begin}tables/{at // 7:02}/part-{at:05}" + ("é" if draw.random() < 0.02 else "")
        made = Entry(
            path,
            draw.choice(
                (
                    f"data/gp{at % 3}/c{at:04}",
                    f"data/gp{at % 3}/c{at:04}",
                    f"s3://b/ns/{at}",
                    "data//x",
                    f"old{at}",
                )
            ),
            draw.choice((AddressType.RELATIVE, AddressType.RELATIVE, AddressType.FULL, AddressType(0))),
            draw.choice((0, at, 1 << 40)),
            draw.choice((0, 1_700_000_000_123_456)),
            "0123456789abcdef",
            draw.choice(("", "text/plain")),
            (("k", "v"), ("l", "w")) if draw.random() < 0.3 else (),
        )
        records.append((path.encode(), _value(hostile, *encode_entry(made))))
    if hostile.hit("order"):
        _disorder(draw, records)
    return records


def _disorder(draw: random.Random, items: list[tuple[bytes, bytes]]) -> None:
    if not items:
        return
    at, to = draw.randrange(len(items)), draw.randrange(len(items))
    match draw.randrange(4):
        case 0:
            items[at], items[to] = items[to], items[at]
        case 1:
            items.insert(to, items[at])
        case 2:
            items[at] = (items[to][0], items[at][1])
        case _:
            del items[at]


def _value(hostile: Hostile, identity: bytes, message: bytes) -> bytes:
    draw = hostile.draw
    fields = [
        (number << 3 | (wire.LENGTH if isinstance(value, bytes) else wire.VARINT), value)
        for number, value in wire.read_fields(message)
    ]
    if hostile.hit("field") and fields:
        at = draw.randrange(len(fields))
        tag, value = fields[at]
        fields[at] = (draw.choice((tag, tag ^ draw.randrange(8), draw.randrange(256))), _other(draw, value))
    if hostile.hit("text") and fields:
        at = draw.randrange(len(fields))
        text = draw.choice(
            (b"", b"\xff", b"a\x80", "é".encode(), b"/", b"a//b", b"./a", b"data/", b"\0", b"x" * 300)
        )
        fields[at] = (fields[at][0], text)
    if hostile.hit("time"):
        seconds = draw.choice((0, 1, 253402300799, 253402300800, 1 << 40, (1 << 40) + 1, (1 << 64) - 1))
        nanos = draw.choice((0, 1, 999_999_999, 1_000_000_000, (1 << 64) - 1))
        parts = [b"\x08" + varint(draw, seconds), b"\x10" + varint(draw, nanos), b"\x18\x01"]
        time = b"".join(draw.sample(parts, draw.randrange(3)))
        fields = [(tag, time if tag == 0x12 else value) for tag, value in fields]
    if hostile.hit("unknown"):
        fields.insert(
            draw.randrange(len(fields) + 1),
            draw.choice(
                ((0x40, 5), (0x42, b"abc"), (0x49, b"8bytes!!"), (0x4D, b"four"), (0x3, b""), (0x1F8, 1))
            ),
        )
    if hostile.hit("repeat") and fields:
        fields.append(fields[draw.randrange(len(fields))])
    if hostile.hit("shuffle"):
        draw.shuffle(fields)
    write = (lambda n: varint(draw, n)) if hostile.hit("varint") else uvarint
    parts = []
    for tag, value in fields:
        if isinstance(value, int):
            parts.append(write(tag) + write(value))
        elif tag & 7 == wire.LENGTH:
            size = number(draw, len(value)) if hostile.hit("message") else len(value)
            parts.append(write(tag) + write(size) + value)
        else:
            parts.append(write(tag) + value)
    message = b"".join(parts)
    if hostile.hit("message"):
        message = mangled(draw, message)
    if hostile.hit("identity"):
        identity = draw.choice((b"", identity[:-1], identity * 9))
    value = join_value(identity, message)
    if hostile.hit("lengths"):
        first, second = (number(draw, 2 * len(part)) for part in (identity, message))
        value = varint(draw, first) + identity + varint(draw, second) + message
    return mangled(draw, value) if hostile.hit("value") else value


def _other(draw: random.Random, value: int | bytes) -> int | bytes:
    if isinstance(value, int):
        return draw.choice((*HUGE, b"text"))
    return draw.choice((b"", value * 2, value[:-1], mangled(draw, value), 7))


# ---- blocks
def _block(
    hostile: Hostile, items: list[tuple[bytes, bytes]], interval: int, *, is_index: bool = False
) -> bytes:
    draw = hostile.draw
    if interval > 1 and draw.random() < 0.1:
        interval = draw.choice((1, 2, 1 << 20))
    out, restarts, before = bytearray(), [], b""
    for at, (key, value) in enumerate(items):
        key = key if is_index else key + SET
        if hostile.hit("key"):
            key = draw.choice(
                (b"", key[:7], key[-8:], mangled(draw, key), b"\xff\xfe" + key, key[:-8] + b"\0" + key[-8:])
            )
        if hostile.hit("trailer"):
            key = key[:-8] + draw.choice((b"\x01" + b"\x07" * 7, b"\x00" * 8, b"\x11" + b"\xff" * 7))
        shared = 0
        if at % interval:
            shared = _common_prefix(before, key)
            if draw.random() < 0.1:
                shared = min(shared, max(len(key) - 8, 0), draw.randrange(shared + 1))
        else:
            restarts.append(len(out))
        sizes = [shared, len(key) - shared, len(value)]
        if hostile.hit("shared"):
            sizes[0] = number(draw, shared)
        if hostile.hit("lengths"):
            which = draw.randrange(3)
            sizes[which] = number(draw, sizes[which])
        write = (lambda n: varint(draw, n)) if hostile.hit("varint") else uvarint
        out += b"".join(map(write, sizes)) + key[shared:] + value
        before = key
    restarts = restarts or [0]
    if hostile.hit("restart"):
        at = draw.randrange(len(restarts))
        restarts[at] = min(number(draw, restarts[at]), (1 << 32) - 1)
    if hostile.hit("restarts"):
        match draw.randrange(4):
            case 0:
                draw.shuffle(restarts)
            case 1:
                restarts.insert(draw.randrange(len(restarts) + 1), draw.randrange(len(out) + 9))
            case 2:
                del restarts[draw.randrange(len(restarts))]
            case _:
                restarts *= 2
    count = len(restarts)
    if hostile.hit("restarts"):
        count = min(number(draw, count), (1 << 32) - 1)
    block = bytes(out) + b"".join(point.to_bytes(4, "little") for point in (*restarts, count))
    return mangled(draw, block) if hostile.hit("block") else block


def _write(hostile: Hostile, out: bytearray, block: bytes) -> tuple[int, int]:
    """Appends a block with a checksum that matches; where it is."""
    draw, kind, stored = hostile.draw, 0, block
    match draw.randrange(4):
        case 0:
            pass
        case 1 | 2:
            kind, stored = 1, bytes(cramjam.snappy.compress_raw(block))
        case _:
            kind, stored = 1, packed(draw, block)
    if kind and hostile.hit("stream"):
        stored = mangled(draw, stored)
    if kind and hostile.hit("snappy"):
        stored = varint(draw, number(draw, len(block))) + stored[len(uvarint(len(block))) :]
    if hostile.hit("packing"):
        kind = draw.choice((0, 1, 2, 7, 255))
    place = _append(out, kind, stored)
    if draw.random() < 0.05:
        out += b"a gap"
    return place


def _append(out: bytearray, kind: int, stored: bytes) -> tuple[int, int]:
    place = len(out), len(stored)
    body = stored + bytes((kind,))
    out += body + masked_crc32c(body).to_bytes(4, "little")
    return place


def _footer(meta: tuple[int, int], index: bytes) -> bytes:
    handles = b"\x01" + _handle(meta) + index
    footer = handles[:HANDLES_END].ljust(HANDLES_END, b"\0")
    return footer + FORMAT_VERSION.to_bytes(4, "little") + MAGIC.to_bytes(8, "little")


def packed(draw: random.Random, block: bytes) -> bytes:
    """Raw snappy with elements of every kind: literals of each length of length, copies that overlap."""
    out, at = bytearray(uvarint(len(block))), 0
    while at < len(block):
        if at and draw.random() < 0.6:
            offset = draw.choice((1, 2, 3, 7, 8, 9, 16, draw.randrange(1, at + 1)))
            if offset <= at:
                most = min(draw.choice((4, 11, 64)), len(block) - at)
                length = 0
                while length < most and block[at + length] == block[at - offset + length]:
                    length += 1
                if length:
                    out += _copy(draw, offset, length)
                    at += length
                    continue
        length = min(draw.choice((1, 5, 60, 61, 200, 300)), len(block) - at)
        extra = draw.choice((1, 2, 3, 4)) if length > 60 or draw.random() < 0.1 else 0
        if extra == 1 and length > 256:
            extra = 2
        if extra:
            out += bytes(((59 + extra) << 2,)) + (length - 1).to_bytes(extra, "little")
        else:
            out.append((length - 1) << 2)
        out += block[at : at + length]
        at += length
    return bytes(out)


def _copy(draw: random.Random, offset: int, length: int) -> bytes:
    if 4 <= length <= 11 and offset < 2048 and draw.random() < 0.6:
        return bytes((1 | (length - 4) << 2 | offset >> 8 << 5, offset & 255))
    if offset < 1 << 16 and draw.random() < 0.8:
        return bytes((2 | (length - 1) << 2,)) + offset.to_bytes(2, "little")
    return bytes((3 | (length - 1) << 2,)) + offset.to_bytes(4, "little")


# ---- index, properties
def _handle(place: tuple[int, int]) -> bytes:
    return uvarint(place[0]) + uvarint(place[1])


def _place(hostile: Hostile, offset: int, size: int) -> bytes:
    draw = hostile.draw
    if hostile.hit("handle"):
        pair = [offset, size]
        pair[draw.randrange(2)] = number(draw, draw.choice(pair))
        return b"".join(varint(draw, each) for each in pair) + draw.choice((b"", b"", b"\0"))
    return _handle((offset, size))


def _parts(hostile: Hostile, out: bytearray, index: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    top = []
    while index:
        some = index[: hostile.draw.choice((1, 2, 3))]
        del index[: len(some)]
        top.append(
            (some[-1][0], _place(hostile, *_write(hostile, out, _block(hostile, some, 1, is_index=True))))
        )
    if hostile.hit("parts"):
        _disorder(hostile.draw, top)
        top = top or [(b"", _handle((0, 0)))]
    return top


def _properties(hostile: Hostile, level: int, count: int) -> list[tuple[bytes, bytes]]:
    draw = hostile.draw
    found = {
        b"rocksdb.block.based.table.index.type": level.to_bytes(4, "little"),
        b"count": str(count).encode(),
        b"type": RANGES.encode(),
    }
    if hostile.hit("property"):
        name = draw.choice([*found])
        found[name] = draw.choice((b"", b"\xff", b"metaranges", b"9" * 5000, b"\x02"))
    if hostile.hit("count"):
        found[b"count"] = str(number(draw, count)).encode()
    return sorted(found.items())


def table(
    blocks: list[tuple[int, bytes]],
    *,
    count: int,
    parts: int = 0,
    same_part: bool = False,
    index: list[tuple[bytes, bytes]] | None = None,
) -> bytes:
    """A file of these stored blocks (kind of compression, bytes). ``parts``: of an index of two levels, each
    of which names all blocks, or what ``index`` says; ``same_part``: it is one and the same."""
    plain, out = Hostile(random.Random(0)), bytearray()
    places = index or []
    for kind, stored in blocks:
        place = _append(out, kind, stored)
        if index is None:
            places.append((b"k" + SEPARATOR, _handle(place)))
    content = _block(plain, places, 1, is_index=True)
    top = _append(out, 0, content)
    if parts:
        each = [top if same_part or not at else _append(out, 0, content) for at in range(parts)]
        top = _append(out, 0, _block(plain, [(b"k", _handle(one)) for one in each], 1, is_index=True))
    properties = _properties(plain, 2 if parts else 0, count)
    place = _append(out, 0, _block(plain, properties, 1 << 30, is_index=True))
    meta = _append(out, 0, _block(plain, [(PROPERTIES_KEY, _handle(place))], 1, is_index=True))
    return bytes(out) + _footer(meta, _handle(top))


# ---- what the decoders say
@dataclass(frozen=True)
class Said:
    """Rows (path, address, type, size), or why there are none."""

    rows: tuple[Row, ...] | None
    why: str = ""
    arrays: RangeArrays | None = None


def judge(data: bytes) -> str:
    """How the file was taken: ``rows``, ``loose`` (rows, though a text that no rule needs is damaged) or
    ``refused``; with ``, compiled`` where compiled code gave the rows. Raises AssertionError when decoders
    disagree, and whatever is no FormatError."""
    careful = loose = _said(lambda: _rows(read_range(data, name="r")))
    if careful.rows is None:
        with _without_texts():
            loose = _said(lambda: _rows(read_range(data, name="r")))
    id = "0" * 64 if loose.rows is None else _id_of(data)
    found = [
        _arrays(data, use_compiled=True, verify_id=None),
        _arrays(data, use_compiled=True, verify_id=id),
        _arrays(data, use_compiled=False, verify_id=id if len(data) & 1 else None),
    ]
    if not len(data) & 6:
        found.append(_said(lambda: _columns(data)))
    for said in found:
        assert said.rows in (None, loose.rows), "the rows differ"
        assert careful.rows is None or said.rows is not None, said.why
        if said.arrays is not None:
            _check(said.arrays)
    how = "refused" if loose.rows is None else "loose" if careful.rows is None else "rows"
    if loose.rows is None or ranges._compiled(data, "r", None) is None:
        return how
    return f"{how}, compiled"


def _said(read: Callable[[], tuple[Row, ...]]) -> Said:
    try:
        return Said(read())
    except FormatError as error:
        return Said(None, f"{error}")


def _rows(found: Iterator[Entry]) -> tuple[Row, ...]:
    return tuple(
        (_shown(one.path.encode(errors="surrogateescape")), one.address, int(one.address_type), one.size)
        for one in found
    )


def _shown(path: bytes) -> str:
    return path.decode(errors="backslashreplace")


def _columns(data: bytes) -> tuple[Row, ...]:
    found = read_range_columns(data, name="r")
    return tuple(zip(found.paths, found.addresses, found.address_types, found.sizes, strict=True))


def _arrays(data: bytes, *, use_compiled: bool, verify_id: str | None) -> Said:
    try:
        found = read_range_arrays(data, name="r", verify_id=verify_id, use_compiled=use_compiled)
    except FormatError as error:
        return Said(None, f"{error}")
    every = np.arange(len(found))
    rows = zip(
        found.paths(every),
        found.addresses(every),
        found.address_types.tolist(),
        found.sizes.tolist(),
        strict=True,
    )
    return Said(tuple(rows), arrays=found)


def _check(found: RangeArrays) -> None:
    """Everything that a row carries beside its texts follows from them."""
    every = np.arange(len(found))
    addresses = found.addresses(every)
    assert found.hashes.tolist() == _hashes([a.encode() for a in addresses])
    keys = [found.key_buffer[a:b].tobytes() for a, b in zip(found.key_start, found.key_end, strict=True)]
    assert found.path_hashes.tolist() == _hashes(keys)
    assert found.candidates(every).tolist() == [is_candidate_key(address) for address in addresses]
    assert all(odd or is_usual_key(a) for a, odd in zip(addresses, found.unusual.tolist(), strict=True))
    assert not found.plain or (all(key.isascii() for key in keys) and all(map(str.isascii, addresses)))
    texts = [column.to_pylist() for column in found.texts(every)]
    assert texts == [addresses, [_shown(key) for key in keys]]


def _hashes(texts: list[bytes]) -> list[int]:
    found: list[int] = hash_spans(*joined(texts))[0].tolist()
    return found


def _id_of(data: bytes) -> str:
    table = read_sstable(data, name="r")
    return file_id(table, table.user_properties)


@contextmanager
def _without_texts() -> Iterator[None]:
    """Entries whose e-tag, metadata and content type may be anything: fast decoders pass over them."""

    def read(message: bytes) -> Iterator[tuple[int, int | bytes]]:
        return ((number, value) for number, value in wire.read_fields(message) if number not in (4, 5, 7))

    known, entries.wire = entries.wire, _Wire(read)  # type: ignore[assignment]
    try:
        yield
    finally:
        entries.wire = known  # type: ignore[assignment]


class _Wire:
    def __init__(self, read: Callable[[bytes], Iterator[tuple[int, int | bytes]]]) -> None:
        self.read_fields = read

    def __getattr__(self, name: str) -> Any:
        return getattr(wire, name)


def real_records(folder: Path) -> list[Records]:
    """The records of every range below a folder, in order of their names."""
    found: list[Records] = []
    for path in sorted(folder.rglob("*")):
        if is_file_id(path.name) and path.is_file():
            table = read_sstable(path.read_bytes(), name=path.name)
            if table.user_properties.get("type") == RANGES and table.records:
                found.append(table.records)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--start", type=int, default=0, help="the sample to go on with")
    parser.add_argument("--real", type=Path, help="a folder with ranges that a server wrote")
    chosen = parser.parse_args()
    real = real_records(chosen.real) if chosen.real else ()
    if kernels() is None:
        raise SystemExit("numba is not installed: there is nothing to compare")
    ends: Counter[str] = Counter()
    began = said = time.monotonic()
    for at in range(chosen.start, chosen.start + chosen.count):
        before = time.monotonic()
        try:
            ends[judge(sample(chosen.seed, at, real))] += 1
        except BaseException as error:
            place = f"--seed {chosen.seed} --start {at}"
            if isinstance(error, KeyboardInterrupt):
                print(f"stopped; go on with {place}", flush=True)
                return 130
            print(f"WRONG: {place} --count 1", flush=True)
            raise
        now = time.monotonic()
        if now - before > SLOWEST_SECONDS:
            print(f"SLOW: {now - before:.0f} s for --seed {chosen.seed} --start {at} --count 1", flush=True)
            return 1
        if now - said > 60:
            said = now
            done = at + 1 - chosen.start
            print(
                f"{done:,} in {now - began:,.0f} s; go on with --start {at + 1}; {_figures(ends)}", flush=True
            )
    print(f"{chosen.count:,} samples of seed {chosen.seed} from {chosen.start}: {_figures(ends)}", flush=True)
    return 0


def _figures(ends: Counter[str]) -> str:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return ", ".join(f"{count:,} {how}" for how, count in sorted(ends.items())) + f"; at most {peak} MiB"


if __name__ == "__main__":
    sys.exit(main())
