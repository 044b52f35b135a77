"""What each branch holds, and what it alone holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lakeplan.model.simulation import Amount
from lakeplan.simulation.ranges import Holders, union
from lakeplan.simulation.totals import BranchTotals, ObjectClass


def branch_totals(
    classes: Iterable[ObjectClass],
    holder_sets: Sequence[Holders],
    rule_set: int,
    branches: int,
    *,
    listing: bool,
) -> BranchTotals:
    """What branches hold under the documented rule. ``rule_set`` is its position in ``Holders``; the bit
    after the branches' stands for dangling commits, which hold and are no branch."""
    by_mask: dict[int, Amount] = {}
    for each in classes:
        if each.holders and each.counts(listing):
            mask = union([holder_sets[n] for n in each.holders])[rule_set]
            by_mask[mask] = by_mask.get(mask, Amount()) + each.amount
    held = np.zeros((4, branches), dtype=np.int64)
    width = branches // 8 + 1
    for mask, amount in by_mask.items():
        alone = mask.bit_count() == 1
        bits = np.unpackbits(np.frombuffer(mask.to_bytes(width, "little"), np.uint8), bitorder="little")
        flags = bits[:branches].astype(np.int64)
        held[0] += flags * amount.objects
        held[1] += flags * amount.size_bytes
        if alone:
            held[2] += flags * amount.objects
            held[3] += flags * amount.size_bytes
    return BranchTotals(*(row.tolist() for row in held))
