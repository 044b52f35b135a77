"""Versions of a region read together: from the cache as they were folded, or one by one.

Texts are made only of what may go: of a version that some question does not keep, the addresses that no
version does that all questions keep. So those that surely stay are read first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from lakeplan.errors import LakeplanError
from lakeplan.formats.hashing import Hashes
from lakeplan.formats.ranges import read_range_arrays
from lakeplan.ports.range_cache import RangeCache
from lakeplan.simulation.blocks import Block, Question, texts_of
from lakeplan.simulation.digest_cache import TEXTS, DigestCache, namespace_key
from lakeplan.simulation.digests import Digest, Texts, digest_of
from lakeplan.simulation.fetching import FETCH_AHEAD, ahead
from lakeplan.simulation.folding import Classes, places_in
from lakeplan.simulation.groups import Gathering, Group
from lakeplan.simulation.reading import Source, where_of
from lakeplan.simulation.work import WorkItem

Numbered = tuple[int, WorkItem]
"""A version with its position in its group."""


@dataclass(frozen=True)
class Known:
    """What the cache has of a group: its rows, and texts of versions that may let something go."""

    group: Group
    texts: dict[str, pa.Table]


@dataclass(frozen=True)
class Step:
    """One thing to fetch: a version, or nothing where the whole group is ``known``."""

    items: list[WorkItem]
    known: Known | None = None
    version: Numbered | None = None
    is_last: bool = True


Fetched = bytes | Digest | None


@dataclass
class GroupReader:
    """Reads for one repository. Class numbers are of ``classes``; ``max_rows`` wait at most to be folded."""

    source: Source
    questions: tuple[Question, ...]
    cache: RangeCache | None
    classes: Classes
    max_rows: int
    _open: _Open | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        key = namespace_key(self.source.addresses)
        self._digests = None if self.cache is None else DigestCache(self.cache, key)

    def look_up(self, items: list[WorkItem]) -> Known | None:
        """May be called from another thread, as ``fetch``."""
        if self._digests is None:
            return None
        ids = [item.name for item in items]
        if len(items) == 1:
            digest = self._digests.digest(ids[0])
            group = None if digest is None else _alone(digest)
        else:
            group = self._digests.group(ids)
        if group is None:
            return None
        _, others = self._divided(items)
        found = {item.name: self._digests.texts(item.name) for _, item in others}
        return Known(group, {name: texts for name, texts in found.items() if texts is not None})

    def steps(
        self, groups: Iterable[list[WorkItem]], pool: ThreadPoolExecutor
    ) -> Iterator[tuple[Step, Callable[[], Fetched]]]:
        """What ``block`` wants, in its order, each with a function that gives what was fetched."""
        looked_up = ahead(groups, self.look_up, pool, FETCH_AHEAD)
        return ahead(self._steps(looked_up), self.fetch, pool, FETCH_AHEAD)

    def _steps(
        self, looked_up: Iterable[tuple[list[WorkItem], Callable[[], Known | None]]]
    ) -> Iterator[Step]:
        for items, known in looked_up:
            found = known()
            if found is not None:
                yield Step(items, known=found)
                continue
            kept, others = self._divided(items)
            versions = kept + others
            for version in versions:
                yield Step(items, version=version, is_last=version is versions[-1])

    def fetch(self, step: Step) -> Fetched:
        if step.version is None:
            return None
        name = step.version[1].name
        known = None if self._digests is None else self._digests.digest(name)
        return known if known is not None else self.source.metadata.read_metadata("range", name)

    def block(self, step: Step, fetched: Callable[[], Fetched]) -> Block | None:
        """A group's, with its last step. Raises what cannot be read, as LakeplanError, and gives no block of
        that group then."""
        if step.known is not None:
            return self._from_cache(step.items, step.known)
        assert step.version is not None, "a step has a version or the group"
        if self._open is None:
            self._open = _Open(Gathering(self.max_rows))
        reading = self._open
        if step.is_last:
            self._open = None
        try:
            with self._saying_where(step.version[1]):
                self._add(step.version, fetched(), reading)
        except LakeplanError:
            reading.failed = True
            raise
        return self._ended(step.items, reading) if step.is_last and not reading.failed else None

    @contextmanager
    def _saying_where(self, item: WorkItem) -> Iterator[None]:
        try:
            yield
        except LakeplanError as error:
            error.where = error.where or where_of(self.source, item)
            raise

    def _divided(self, items: list[WorkItem]) -> tuple[list[Numbered], list[Numbered]]:
        """Those that surely stay, all that they hold, and the others."""
        kept: list[Numbered] = []
        others: list[Numbered] = []
        for version, item in enumerate(items):
            (kept if self._stays(item) else others).append((version, item))
        return kept, others

    def _stays(self, item: WorkItem) -> bool:
        """Whether nothing that this range holds goes in any question."""
        return all(item.mask & question.after for question in self.questions)

    def _from_cache(self, items: list[WorkItem], known: Known) -> Block:
        kept, others = self._divided(items)
        keeping = [n for n, _ in kept]
        texts = []
        for version, item in others:
            wanted = known.group.held_only_by(version, keeping)
            if wanted.size:
                with self._saying_where(item):
                    texts.append(self._texts(item, wanted, known.texts.get(item.name), None))
        return _block(known.group, items, texts, self.classes)

    def _add(self, numbered: Numbered, fetched: Fetched, reading: _Open) -> None:
        version, item = numbered
        texts: Texts | None = None
        if isinstance(fetched, Digest):
            digest = fetched
        else:
            digest, texts = self._decoded(item, fetched)
            if self._digests is not None:
                self._digests.put_digest(item.name, digest)
        reading.gathering.add(version, digest)
        if self._stays(item):
            reading.kept.append(digest.hashes)
            return
        wanted = np.unique(reading.lacking(digest.hashes))
        if wanted.size:
            known = None if self._digests is None or texts is not None else self._digests.texts(item.name)
            reading.texts.append(self._texts(item, wanted, known, None if texts is None else (digest, texts)))

    def _ended(self, items: list[WorkItem], reading: _Open) -> Block:
        group = reading.gathering.group()
        if self._digests is not None and len(items) > 1:
            self._digests.put_group([item.name for item in items], group)
        return _block(group, items, reading.texts, self.classes)

    def _texts(
        self, item: WorkItem, wanted: Hashes, known: pa.Table | None, decoded: tuple[Digest, Texts] | None
    ) -> pa.Table:
        """Of all rows of a range with one of these hashes, which ascend."""
        if known is not None:
            places, hit = places_in(wanted, known["hash"].to_numpy())
            if np.unique(places[hit]).size == wanted.size:
                return _last(known.filter(pa.array(hit)), item)
        digest, texts = decoded or self._decoded(item, None)
        rows = np.flatnonzero(places_in(wanted, digest.hashes)[1])
        table = pa.Table.from_arrays([pa.array(digest.hashes[rows]), *texts(rows)], schema=TEXTS)
        if self._digests is not None:
            self._digests.put_texts(item.name, table)
        return _last(table, item)

    def _decoded(self, item: WorkItem, data: bytes | None) -> tuple[Digest, Texts]:
        if data is None:
            data = self.source.metadata.read_metadata("range", item.name)
        arrays = read_range_arrays(data, name=where_of(self.source, item), verify_id=item.name)
        return digest_of(arrays, self.source.addresses)


@dataclass
class _Open:
    """A group that is being read."""

    gathering: Gathering
    kept: list[Hashes] = field(default_factory=list)
    texts: list[pa.Table] = field(default_factory=list)
    failed: bool = False

    def lacking(self, hashes: Hashes) -> Hashes:
        """Those that no version holds that surely stays; all of these were read before."""
        return hashes[~places_in(self._surely, hashes)[1]]

    @cached_property
    def _surely(self) -> Hashes:
        # with doubles: np.unique takes longer than sorting
        return np.sort(np.concatenate([np.zeros(0, np.uint64), *self.kept]))


def _alone(digest: Digest) -> Group:
    gathering = Gathering(len(digest) + 1)
    gathering.add(0, digest)
    return gathering.group()


def _last(table: pa.Table, item: WorkItem) -> pa.Table:
    columns = table.combine_chunks()
    return texts_of(*(columns[name] for name in TEXTS.names), last=item.last)


def _block(group: Group, items: list[WorkItem], texts: list[pa.Table], classes: Classes) -> Block:
    return Block(group.rows(items, classes), pa.concat_tables(texts) if texts else None)
