"""Which hashes stand in more than one group, so that all others are counted where they are read.

Nearly every object lies in one region. A run that had all rows meet knows which do not, and keeps that beside
the ids of its groups. For the groups of a later run that were among these nothing else can be shared; of a
group that was not, everything may be. What may be shared, the *suspects*, takes the way through the second
step; so a run after a small change sends little through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from lakeplan.errors import LakeplanError
from lakeplan.formats.hashing import Hashes
from lakeplan.ports.range_cache import RangeCache
from lakeplan.simulation.counting import MAX_ROWS, MAX_SHARED
from lakeplan.simulation.digest_cache import DigestCache, group_id, namespace_key
from lakeplan.simulation.fetching import FETCH_AHEAD
from lakeplan.simulation.folding import Classes
from lakeplan.simulation.groups import Shared
from lakeplan.simulation.reading import Source
from lakeplan.simulation.versions import GroupReader
from lakeplan.simulation.work import Kind, WorkItem, in_groups

MAX_CHANGED_BYTES = 128 << 20
"""Range bytes of new groups that the driver reads itself, before anything else."""


class Memory:
    """Of one source: what an earlier run knew of its groups, and what this one finds. Nothing is known, and
    nothing kept, without a cache, or where something else than ranges has rows: a listing, a staged run."""

    def __init__(
        self, source: Source, position: int, items: Sequence[WorkItem], cache: RangeCache | None
    ) -> None:
        self._source = source
        self._cache = cache
        mine = [item for item in items if item.source == position]
        self.is_kept = cache is not None and all(item.kind is Kind.RANGE for item in mine)
        self._digests = DigestCache(cache, namespace_key(source.addresses)) if cache is not None else None
        self._groups = {group_id([i.name for i in g]): g for g in in_groups(mine)} if self.is_kept else {}
        self._suspects: Hashes | None = None

    def suspects(self) -> Hashes | None:
        """All that may stand in more than one group, ascending; None where that is not known, or too much is
        new. What is read on the way is in the cache afterwards."""
        known = self._digests.shared() if self._digests is not None and self.is_kept else None
        if known is None:
            return None
        changed = [items for id, items in self._groups.items() if id not in known.groups]
        if sum(item.weight for items in changed for item in items) > MAX_CHANGED_BYTES:
            return None
        found = [known.hashes]
        reader = GroupReader(self._source, (), self._cache, Classes(), MAX_ROWS)
        with ThreadPoolExecutor(FETCH_AHEAD) as pool:
            try:
                for step, fetched in reader.steps(changed, pool):
                    block = reader.block(step, fetched)
                    if block is not None:
                        found.append(block.rows.hashes)
            except LakeplanError:
                return None  # a worker meets it too, and says what it is
        return np.unique(np.concatenate(found))

    def remember(self, shared: Sequence[bytes]) -> None:
        """``shared``: what the partitions of the second step told."""
        if self._digests is None or not self.is_kept or any(len(part) % 8 for part in shared):
            return
        told = b"".join(shared)
        hashes = np.sort(np.frombuffer(told, "<u8").astype(np.uint64)) if told else np.zeros(0, np.uint64)
        if hashes.size <= MAX_SHARED:
            self._digests.put_shared(Shared(frozenset(self._groups), hashes))
