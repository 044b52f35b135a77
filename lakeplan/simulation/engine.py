"""One question about the objects of some repositories, asked of a runner."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter

from lakeplan.errors import LakeplanError
from lakeplan.formats.compiled import is_worth_it
from lakeplan.simulation.exchange import Of, Piece
from lakeplan.simulation.observing import Source
from lakeplan.simulation.runners import Runner, Step
from lakeplan.simulation.segments import Manifest, Segment, item_of
from lakeplan.simulation.steps import Asked, Job, Question, leaves_of, meet, read_bins
from lakeplan.simulation.verdicts import ObjectClass, Seen
from lakeplan.simulation.work import LISTINGS, Kind, WorkItem, failure, numbered, pack
from lakeplan.values.simulation import Amount

_log = logging.getLogger(__name__)
ROWS_A_PART = 1_000_000
"""Rows of numbers that meet in one task: 32 bytes each, and as much again while they are sorted."""
FEW_ROWS = 500_000
"""Below this many a repository's objects meet in one task."""
LISTED_PARTS = 16
"""Into so many at least, where nobody knows before the listing how much is stored: objects that no commit has
may be many times those that commits have."""


@dataclass(frozen=True)
class Asking:
    """One repository; of another one whose full addresses are looked for (``source.target``), only the items
    count. ``rows``: how many entries and stored objects there are, about. ``items`` name it by its place
    among all that are asked about."""

    source: Source
    question: Question
    items: Sequence[WorkItem]
    rows: int
    exact: bool = False
    compares_sizes: bool = False


@dataclass(frozen=True)
class Answer:
    """``classes`` of all objects; or the ``error`` of what could not be read: there is no answer then."""

    classes: list[ObjectClass] = field(default_factory=list)
    error: LakeplanError | None = None


def ask(
    runner: Runner, asking: Sequence[Asking], more: Sequence[Step] = ()
) -> Iterator[tuple[int, Answer | tuple[Of, bytes]]]:
    """Everything in one job. Gives, by place of the repository, what the question makes of the objects that
    it takes, as it comes; at the end an ``Answer`` for each repository. ``more``: steps after ``meet``."""
    items = numbered([item for one in asking for item in one.items])
    of_source = {source: list(of) for source, of in groupby(items, key=attrgetter("source"))}
    kept = [_Kept(one.source, of_source.get(place, [])) for place, one in enumerate(asking)]
    to_read = [item for one in kept for item in one.to_read]
    parallelism = runner.parallelism
    parts = [_parts_of(one, parallelism) for one in asking]
    spread = max([1, *parts, min(parallelism, len(asking))])
    job = Job(
        tuple(
            Asked(one.source, one.question, count, one.exact, one.compares_sizes)
            for one, count in zip(asking, parts, strict=True)
        ),
        spread,
        use_compiled=is_worth_it(
            sum(int(one.rows * its.share) for one, its in zip(asking, kept, strict=True))
        ),
    )
    steps = (Step(partial(read_bins, job=job), 0), Step(partial(meet, job=job), spread), *more)
    found: defaultdict[int, dict[tuple[object, ...], Amount]] = defaultdict(dict)
    errors: dict[int, LakeplanError] = {}
    for piece in runner.run(pack(to_read, parallelism), steps, leaves_of(items)) if to_read else ():
        if piece.of == Of.ERROR:
            errors.setdefault(piece.source, failure(bytes(piece.data)))
        elif piece.of == Of.COUNTS:
            _count(found[piece.source], piece)
        elif piece.of == Of.SEGMENT:
            kept[piece.source].wrote(bytes(piece.data))
        else:
            yield piece.source, (Of(piece.of), piece.data)
    for one in kept:
        one.end()
    for place in range(len(asking)):
        classes = [
            ObjectClass(Seen(seen), mask, alias_mask, holders, amount)  # type: ignore[arg-type]
            for (seen, mask, alias_mask, holders), amount in found[place].items()
        ]
        yield place, Answer(classes, errors.get(place))


def _parts_of(one: Asking, parallelism: int) -> int:
    listed = LISTED_PARTS if any(item.kind in LISTINGS for item in one.items) else 1
    return listed if one.rows < FEW_ROWS else max(parallelism, listed, -(-one.rows // ROWS_A_PART))


class _Kept:
    """What the cache has of one repository's ranges, and what a run adds. ``share`` of its items must be
    read."""

    def __init__(self, source: Source, items: Sequence[WorkItem]) -> None:
        self._source = source
        self._written: list[Segment] = []
        self.to_read, self.share = list(items), 1.0
        if source.cache is None:
            return
        numbers = {item.name: item.number for item in items if item.kind is Kind.RANGE}
        self._used = Manifest.read(source).useful(numbers)
        known = {id for segment in self._used for id in segment.ranges}
        self.to_read = [item for item in items if item.kind is not Kind.RANGE or item.name not in known]
        weight = sum(item.weight for item in items)
        if weight:
            self.share = sum(item.weight for item in self.to_read) / weight
        left = sum(item.kind is Kind.RANGE for item in self.to_read)
        _log.info(
            "%s: %d of %d ranges are in the cache (%d MB)",
            source.name,
            len(numbers) - left,
            len(numbers),
            sum(segment.size for segment in self._used) // 1_000_000,
        )
        place = items[0].source if items else 0
        self.to_read += [item_of(segment, place, numbers) for segment in self._used]

    def wrote(self, data: bytes) -> None:
        name, ranges, *amounts = json.loads(data)
        self._written.append(Segment(name, tuple(ranges), *amounts))

    def end(self) -> None:
        if self._written:
            Manifest.after(self._used, self._written).write(self._source)
        if self._written and self._source.cache is not None:
            self._source.cache.trim()


def _count(found: dict[tuple[object, ...], Amount], piece: Piece) -> None:
    for seen, mask, alias_mask, holders, objects, size in json.loads(bytes(piece.data)):
        key = (seen, mask, alias_mask, tuple(holders))
        found[key] = found.get(key, Amount()) + Amount(objects, size)
