"""CRC32C of blocks, masked as LevelDB, RocksDB and snappy's framing mask it.

google-crc32c computes it in a twentieth of the time that reading a block takes. Where its compiled part is
not at hand there is another way: snappy's framing format (github.com/google/snappy, framing_format.txt) puts
exactly this masked CRC32C of at most 65,536 bytes in front of each chunk, so the snappy library that is
needed anyway computes it in native code: frame the bytes, read the checksum. Larger blocks, which only a
value over 64 KiB makes, go through a table then.
"""

from __future__ import annotations

import cramjam
import google_crc32c

IS_NATIVE = google_crc32c.implementation == "c"
FRAME_LIMIT = 65_536
_CHECKSUM = slice(14, 18)
"""After the stream identifier (10 bytes), the chunk's type (1) and its length (3)."""
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8


def masked_crc32c(data: bytes) -> int:
    """The masked CRC32C of ``data``: ``((crc >> 15 | crc << 17) + 0xa282ead8) mod 2**32``."""
    if IS_NATIVE:
        return _mask(google_crc32c.value(data))
    if 0 < len(data) <= FRAME_LIMIT:
        return int.from_bytes(bytes(cramjam.snappy.compress(data))[_CHECKSUM], "little")
    return _mask(_crc32c(data))


def _mask(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _make_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _make_table()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
