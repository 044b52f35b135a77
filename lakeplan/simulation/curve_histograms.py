"""Classes of objects become histograms: how many objects need how many days."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lakeplan.model.simulation import Amount
from lakeplan.simulation.curve_scales import Coding
from lakeplan.simulation.ranges import Holders
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.totals import ObjectClass


@dataclass
class Histograms:
    """``scales``: per scale, objects by the number they need. ``masks``: objects by the server's bits.
    All are objects that a collector may take at all: stored where it looks, old enough, not staged."""

    scales: list[dict[int, Amount]]
    masks: dict[int, Amount] = field(default_factory=dict)
    never_committed: Amount = field(default_factory=Amount)


def histograms(
    classes: Iterable[ObjectClass], holder_sets: Sequence[Holders], coding: Coding, *, listing: bool
) -> Histograms:
    """``holder_sets`` are those that the classes number. An object needs the least of what all its holders
    need, under whatever path or doubtful URL they hold it."""
    found = Histograms([{} for _ in coding.values])
    needs = [coding.decode(holders) for holders in holder_sets]
    for each in classes:
        if not each.is_candidate(listing) or each.seen & Seen.UNCOMMITTED:
            continue
        if not each.is_committed:
            found.never_committed += each.amount
            continue
        _add(found.masks, each.any_mask, each.amount)
        for scale, histogram in enumerate(found.scales):
            _add(histogram, min(needs[number][scale] for number in each.holders), each.amount)
    return found


def _add(histogram: dict[int, Amount], key: int, amount: Amount) -> None:
    histogram[key] = histogram.get(key, Amount()) + amount
