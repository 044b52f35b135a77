"""One thing to read becomes rows of numbers, and the texts of those of its rows that may go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeplan.errors import SimulationFailed
from lakeplan.formats.hashing import Hashes, Ints, hash_texts
from lakeplan.formats.namespace import DATA_PREFIX, is_candidate_key
from lakeplan.formats.ranges import read_range_arrays
from lakeplan.formats.uncommitted import read_uncommitted
from lakeplan.model.objects import AddressType, StoredObject
from lakeplan.ports.range_cache import RangeCache
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.digests import CachedTexts, Digest, DigestCache, Texts, digest_of, namespace_key
from lakeplan.simulation.folding import STORED, Class, Classes, Rows
from lakeplan.simulation.reading import Source
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.work import Kind, WorkItem

LISTED_AT_ONCE = 1 << 16
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
    """``texts`` (``TEXTS``) are of rows that may go; none are given of what is surely kept."""

    rows: Rows
    texts: pa.Table | None = None


Fetched = bytes | tuple[Digest, CachedTexts | None] | None
"""A file; or what the cache has of a range; or nothing, for what is listed."""


class Kept:
    """Hashes of what surely stays, so far."""

    def __init__(self) -> None:
        self._parts: list[Hashes] = []
        self._all: Hashes = np.zeros(0, np.uint64)

    def add(self, hashes: Hashes) -> None:
        self._parts.append(hashes)

    def lacks(self, hashes: Hashes) -> Ints:
        """Positions of those that are not in it."""
        if self._parts:
            # with doubles: np.unique takes longer than sorting
            self._all = np.sort(np.concatenate((self._all, *self._parts)))
            self._parts = []
        if not self._all.size:
            return np.arange(hashes.size)
        places = np.minimum(np.searchsorted(self._all, hashes), self._all.size - 1)
        lacking: Ints = np.flatnonzero(self._all[places] != hashes)
        return lacking


@dataclass
class BlockReader:
    """Reads for one repository. Class numbers are of ``classes``."""

    source: Source
    questions: tuple[Question, ...]
    cache: RangeCache | None
    classes: Classes
    kept: Kept = field(default_factory=Kept)

    def __post_init__(self) -> None:
        key = namespace_key(self.source.addresses)
        self._digests = None if self.cache is None else DigestCache(self.cache, key)

    def surely_keeps(self, item: WorkItem) -> bool:
        """Whether nothing that this range holds goes in any question."""
        return item.kind is Kind.RANGE and all(item.mask & q.after for q in self.questions)

    def fetch(self, item: WorkItem) -> Fetched:
        """What ``blocks`` needs of the item; may be called from another thread."""
        match item.kind:
            case Kind.RANGE:
                known = self._cached(item)
                if known is not None:
                    return known
                return self.source.metadata.read_metadata("range", item.name)
            case Kind.UNCOMMITTED:
                return self._namespace().read(item.name)
            case _:
                return None

    def blocks(self, item: WorkItem, fetched: Fetched) -> Iterator[Block]:
        """Raises what cannot be read, as LakeplanError."""
        match item.kind:
            case Kind.RANGE:
                yield self._range(item, fetched)
            case Kind.UNCOMMITTED:
                assert isinstance(fetched, bytes), "a run's file was fetched"
                yield self._staged(item, fetched)
            case Kind.LISTING:
                yield from self._listed(self._namespace().list_objects(item.name))
            case Kind.ROOT_LISTING:
                yield from self._listed(self._namespace().list_objects("", recursive=False))
                yield from self._listed(self._namespace().list_objects(DATA_PREFIX, recursive=False))
            case Kind.FOREIGN_RANGE | Kind.LISTED | Kind.MARKED:
                raise SimulationFailed(f"only a mark reads {item.kind.name}", where=self.source.name)

    def _cached(self, item: WorkItem) -> tuple[Digest, CachedTexts | None] | None:
        digest = None if self._digests is None else self._digests.digest(item.name)
        if self._digests is None or digest is None:
            return None
        return digest, None if self.surely_keeps(item) else self._digests.texts(item.name)

    def _namespace(self) -> NamespaceReader:
        if self.source.namespace is None:
            raise SimulationFailed("has no namespace to list", where=self.source.name)
        return self.source.namespace

    def _range(self, item: WorkItem, fetched: Fetched) -> Block:
        texts: Texts | None = None
        known: CachedTexts | None = None
        if isinstance(fetched, tuple):
            digest, known = fetched
        else:
            digest, texts = self._decoded(item, fetched)
            if self._digests is not None:
                self._digests.put_digest(item.name, digest)
        rows = Rows(digest.hashes, digest.sizes, self._numbers(item)[digest.seen])
        if self.surely_keeps(item):
            self.kept.add(digest.hashes)
            return Block(rows)
        wanted = self.kept.lacks(digest.hashes)
        if not wanted.size:
            return Block(rows)
        found = known.of(wanted) if known is not None else None
        if found is None:
            found = (texts or self._decoded(item, None)[1])(wanted)
            if self._digests is not None:
                self._digests.put_texts(item.name, wanted, *found)
        return Block(rows, _texts(digest.hashes[wanted], *found, last=item.last))

    def _decoded(self, item: WorkItem, data: Fetched) -> tuple[Digest, Texts]:
        if not isinstance(data, bytes):
            data = self.source.metadata.read_metadata("range", item.name)
        where = f"{self.source.name}: range {item.name}"
        arrays = read_range_arrays(data, name=where, verify_id=item.name)
        return digest_of(arrays, self.source.addresses)

    def _numbers(self, item: WorkItem) -> Ints:
        """Class numbers by the ``seen`` of a range's rows."""
        holders = frozenset(() if item.holders < 0 else (item.holders,))
        numbers = np.full(int(Seen.ENTRY | Seen.ALIAS | Seen.CANDIDATE) + 1, -1, np.int64)
        for seen in (int(Seen.ENTRY), int(Seen.ENTRY | Seen.CANDIDATE)):
            numbers[seen] = self.classes.number(Class(seen, item.mask, 0, holders))
        numbers[int(Seen.ALIAS)] = self.classes.number(Class(int(Seen.ALIAS), 0, item.mask, holders))
        return numbers

    def _staged(self, item: WorkItem, data: bytes) -> Block:
        """Addresses of a run are relative; a full one, should a server write it, protects all it may mean."""
        found: list[str] = []
        known = self.source.addresses
        for address in read_uncommitted(data, name=f"{self.source.name}/{item.name}").addresses:
            inside = known.inside(address, AddressType.BY_PREFIX)
            found += known.aliases(address) if inside is None else [inside]
        number = self.classes.number(Class(int(Seen.UNCOMMITTED)))
        zeros = np.zeros(len(found), np.int64)
        return Block(Rows(hash_texts(found), zeros, zeros + number))

    def _listed(self, objects: Iterator[StoredObject]) -> Iterator[Block]:
        old = self.classes.number(Class(int(Seen.LISTED | Seen.OLD)))
        young = self.classes.number(Class(int(Seen.LISTED)))
        candidates = (stored for stored in objects if is_candidate_key(stored.key))
        while part := list(islice(candidates, LISTED_AT_ONCE)):
            keys = [text_of(stored.key) for stored in part]
            hashes = hash_texts(keys)
            is_old = np.array([stored.modified_us < self.source.young_from_us for stored in part])
            sizes = np.array([stored.size for stored in part], dtype=np.int64) | STORED
            rows = Rows(hashes, sizes, np.where(is_old, old, young))
            chosen = np.flatnonzero(is_old) if self.questions else np.zeros(0, np.int64)
            addresses = pa.array([keys[n] for n in chosen.tolist()], pa.string())
            paths = pa.nulls(chosen.size, pa.string())
            yield Block(rows, _texts(hashes[chosen], addresses, paths, last=-1))


def text_of(key: str) -> str:
    """Keys that are not UTF-8 (surrogate escapes) as text that Arrow takes, always the same."""
    if key.isascii():
        return key
    return key.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _texts(hashes: npt.NDArray[np.uint64], address: pa.Array, path: pa.Array, *, last: int) -> pa.Table:
    lasts = pa.repeat(pa.scalar(None if last < 0 else last, pa.int64()), len(hashes))
    return pa.Table.from_arrays([pa.array(hashes), address, path, lasts], schema=TEXTS)
