"""What is read, as rows of numbers, with the texts of those that may go."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakeplan.simulation.folding import Rows

TEXTS = pa.schema(
    [
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("address", pa.string(), nullable=False),
        pa.field("path", pa.string()),
        pa.field("last", pa.int64()),
    ]
)
"""Texts of what may go: one row each time an address was seen."""


@dataclass(frozen=True)
class Question:
    """An object goes if its verdicts have a bit of ``before`` (0: whatever they have) and none of ``after``;
    then its texts are wanted."""

    before: int
    after: int

    def goes(self, mask: int) -> bool:
        return not mask & self.after and (not self.before or bool(mask & self.before))


@dataclass(frozen=True)
class Block:
    """``rows`` are in ascending order of hashes, each once. ``texts`` (``TEXTS``) are of rows that may go;
    none are given of what is surely kept."""

    rows: Rows
    texts: pa.Table | None = None


def texts_of(hashes: pa.Array, addresses: pa.Array, paths: pa.Array, *, last: int) -> pa.Table:
    """``TEXTS`` of rows that one commit held last (-1: none)."""
    lasts = pa.repeat(pa.scalar(None if last < 0 else last, pa.int64()), len(hashes))
    return pa.Table.from_arrays([hashes, addresses, paths, lasts], schema=TEXTS)
