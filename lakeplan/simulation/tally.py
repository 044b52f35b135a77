"""Rows that have met all others of their hashes: counted by class, and what goes of them with its texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan.errors import SimulationFailed
from lakeplan.formats.namespace import is_candidate_key
from lakeplan.simulation.blocks import Question
from lakeplan.simulation.folding import STORED, Class, Classes, Rows, in_order, places_in
from lakeplan.simulation.pieces import GOING, ROWS_A_PIECE, to_bytes
from lakeplan.simulation.seen import Seen


@dataclass(frozen=True)
class Tally:
    """For one repository. Rows have each hash once; their class numbers are of ``classes``."""

    source: int
    questions: Sequence[Question]
    listing: bool
    classes: Classes

    def counts(self, rows: Rows) -> str:
        """Per class: where seen, verdicts, holders, objects, bytes."""
        classes = self.classes.all
        sizes = rows.sizes & (STORED - 1)
        objects = np.bincount(rows.numbers, minlength=len(classes)).tolist()
        # in halves, so that no sum runs over 64 bits
        low, high = np.zeros(len(classes), np.int64), np.zeros(len(classes), np.int64)
        np.add.at(low, rows.numbers, sizes & 0xFFFFFFFF)
        np.add.at(high, rows.numbers, sizes >> 32)
        amounts = [
            [c.seen, c.mask, c.alias_mask, sorted(c.holders), count, (above << 32) + below]
            for c, count, above, below in zip(classes, objects, high.tolist(), low.tolist(), strict=True)
            if count
        ]
        return json.dumps({"classes": amounts})

    def objects(self, rows: Rows, texts: Iterable[pa.Table]) -> Iterator[bytes]:
        """What goes of the rows: packed tables ``GOING``, told apart by whole
        addresses. ``texts`` (``TEXTS``) may be of other rows too.

        Raises SimulationFailed when something goes that no address was sent of.
        """
        goes = np.array([self._goes(each) for each in self.classes.all], np.bool_)[rows.numbers]
        if not goes.any():
            return
        chosen = np.flatnonzero(goes)
        chosen = chosen[in_order(rows.hashes[chosen])]
        gone = Rows(rows.hashes[chosen], rows.sizes[chosen] & (STORED - 1), rows.numbers[chosen])
        grouped = _by_address(gone, texts)
        places = np.searchsorted(gone.hashes, grouped["hash"].to_numpy())
        classes = self.classes.all
        numbers = gone.numbers[places]
        sizes = pa.array(gone.sizes[places])

        def of_class(values: list[int], kind: pa.DataType) -> pa.Array:
            return pa.array(np.array(values, np.int64)[numbers]).cast(kind)

        columns = {
            "source": pa.repeat(pa.scalar(self.source, pa.int32()), len(numbers)),
            "address": grouped["address"],
            "seen": of_class([each.seen for each in classes], pa.int32()),
            "mask": of_class([each.mask for each in classes], pa.int64()),
            "alias_mask": of_class([each.alias_mask for each in classes], pa.int64()),
            "last": grouped["last_max"],
            "size": sizes,
            "stored_size": sizes,
            "paths": grouped["path_distinct"].cast(GOING.field("paths").type),
        }
        table = pa.Table.from_arrays([columns[name] for name in GOING.names], schema=GOING)
        for at in range(0, table.num_rows, ROWS_A_PIECE):
            yield to_bytes(table.slice(at, ROWS_A_PIECE))

    def _goes(self, each: Class) -> bool:
        wanted = Seen.OLD if self.listing else Seen.ENTRY | Seen.CANDIDATE
        if each.seen & wanted != wanted or each.seen & Seen.UNCOMMITTED:
            return False
        return any(question.goes(each.any_mask) for question in self.questions)


def _by_address(gone: Rows, texts: Iterable[pa.Table]) -> pa.Table:
    """One row an address: ``hash``, ``address``, ``path_distinct``, ``last_max``."""
    tables = []
    found: npt.NDArray[np.bool_] = np.zeros(len(gone), np.bool_)
    for table in texts:
        hashes = table["hash"].to_numpy()
        places, hit = places_in(gone.hashes, hashes)
        found[places[hit]] = True
        tables.append(table if hit.all() else table.filter(pa.array(hit)))
    if not found.all():
        raise SimulationFailed(f"{int((~found).sum())} objects go that no address was sent of")
    grouped = (
        pa.concat_tables(tables)
        .group_by(["hash", "address"])
        .aggregate([("path", "distinct", pc.CountOptions(mode="only_valid")), ("last", "max")])
    )
    if grouped.num_rows == len(gone):
        return grouped
    # several addresses have one hash, and not each of them needs to be where a collector looks
    return grouped.filter(pa.array([is_candidate_key(text) for text in grouped["address"].to_pylist()]))
