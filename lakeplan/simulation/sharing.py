"""Which hashes stand in more than one group, so that all others are counted where they are read.

Nearly every object lies in one region. A run that had all rows meet knows which do not, and keeps that beside
the ids of its groups. For the groups of a later run that were among these nothing else can be shared; of a
group that was not, everything may be. What may be shared, the *suspects*, takes the way through the second
step; so a run after a small change sends little through it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from lakeplan.errors import LakeplanError
from lakeplan.formats.hashing import Hashes
from lakeplan.ports.range_cache import RangeCache
from lakeplan.simulation.blocks import Question
from lakeplan.simulation.counting import MAX_ROWS, MAX_SHARED, TOO_MANY
from lakeplan.simulation.digest_cache import DigestCache, group_id, namespace_key
from lakeplan.simulation.fetching import FETCH_AHEAD
from lakeplan.simulation.folding import Classes
from lakeplan.simulation.groups import Shared
from lakeplan.simulation.reading import Source
from lakeplan.simulation.versions import GroupReader
from lakeplan.simulation.work import Kind, WorkItem, in_groups

MAX_CHANGED_BYTES = 128 << 20
"""Range bytes of new groups that the driver reads itself, before anything else, of all repositories."""
LOOKED_UP_AT_ONCE = 16
"""Repositories whose cache is asked at once: in a store each answer is waited for."""
READ_AT_ONCE = 2


class Memory:
    """Of one source: what an earlier run knew of its groups, and what this one finds. Nothing is known, and
    nothing kept, without a cache, or where something else than ranges has rows: a listing, a staged run."""

    def __init__(
        self,
        source: Source,
        questions: Sequence[Question],
        items: Sequence[WorkItem],
        cache: RangeCache | None,
    ) -> None:
        self._source = source
        self._questions = tuple(questions)
        self._cache = cache
        self.is_kept = cache is not None and all(item.kind is Kind.RANGE for item in items)
        self._digests = DigestCache(cache, namespace_key(source.addresses)) if cache is not None else None
        self._groups = {group_id([i.name for i in g]): g for g in in_groups(items)} if self.is_kept else {}
        self._known: Shared | None = None

    @property
    def groups_of_a_region(self) -> int:
        """The most that any has."""
        return max(Counter(items[0].sort_key for items in self._groups.values()).values(), default=1)

    def look_up(self) -> int | None:
        """Range bytes of the groups that no earlier run knew; None when nothing is known at all."""
        self._known = self._digests.shared() if self._digests is not None and self.is_kept else None
        if self._known is None:
            return None
        return sum(item.weight for items in self._changed(self._known) for item in items)

    def suspects(self) -> Hashes | None:
        """All that may stand in more than one group, ascending; None where nothing was looked up, or a range
        cannot be read. What is read on the way is in the cache afterwards."""
        if self._known is None:
            return None
        found = [self._known.hashes]
        reader = GroupReader(self._source, self._questions, self._cache, Classes(), MAX_ROWS)
        with ThreadPoolExecutor(FETCH_AHEAD) as pool:
            try:
                for step, fetched in reader.steps(self._changed(self._known), pool):
                    block = reader.block(step, fetched)
                    if block is not None:
                        found.append(block.rows.hashes)
            except LakeplanError:
                return None  # a worker meets it too, and says what it is
        return np.unique(np.concatenate(found))

    def remember(self, told: Sequence[bytes]) -> None:
        """``told``: what the second step's partitions said of all rows that may stand in several groups;
        ``TOO_MANY`` from any of them, and nothing is kept."""
        if self._digests is None or not self.is_kept or TOO_MANY in told:
            return
        joined = b"".join(told)
        hashes = np.sort(np.frombuffer(joined, "<u8").astype(np.uint64)) if joined else np.zeros(0, np.uint64)
        if hashes.size <= MAX_SHARED:
            self._digests.put_shared(Shared(frozenset(self._groups), hashes))

    def _changed(self, known: Shared) -> list[list[WorkItem]]:
        return [items for id, items in self._groups.items() if id not in known.groups]


def suspects_of(memories: Sequence[Memory]) -> tuple[Hashes | None, ...]:
    """Of each, as far as what has to be read for it is small: those with least of it first."""
    with ThreadPoolExecutor(LOOKED_UP_AT_ONCE) as pool:
        changed = dict(enumerate(pool.map(Memory.look_up, memories)))
    affordable: set[int] = set()
    left = MAX_CHANGED_BYTES
    for n, size in sorted(changed.items(), key=lambda item: item[1] or 0):
        if size is not None and size <= left:
            left -= size
            affordable.add(n)
    with ThreadPoolExecutor(READ_AT_ONCE) as pool:
        asked = [pool.submit(m.suspects) if n in affordable else None for n, m in enumerate(memories)]
        return tuple(None if future is None else future.result() for future in asked)


def remember_all(memories: Iterable[tuple[Memory, Sequence[bytes]]]) -> None:
    with ThreadPoolExecutor(LOOKED_UP_AT_ONCE) as pool:
        for future in [pool.submit(memory.remember, told) for memory, told in memories]:
            future.result()
