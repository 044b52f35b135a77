"""What is stored, and what is staged, as rows of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa

from lakeplan.errors import SimulationFailed
from lakeplan.formats.hashing import hash_texts
from lakeplan.formats.namespace import DATA_PREFIX, is_candidate_key
from lakeplan.formats.uncommitted import read_uncommitted
from lakeplan.model.objects import StoredObject
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.blocks import Block, texts_of
from lakeplan.simulation.folding import STORED, Class, Classes, Rows, fold
from lakeplan.simulation.reading import Source, text_of
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.work import Kind, WorkItem

LISTED_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class ListedReader:
    """Reads for one repository. Class numbers are of ``classes``; texts are given ``with_texts`` only."""

    source: Source
    classes: Classes
    with_texts: bool

    def fetch(self, item: WorkItem) -> bytes:
        """What ``blocks`` needs of the item; may be called from another thread. A listing comes page by page
        when it is read."""
        return self._namespace().read(item.name) if item.kind is Kind.UNCOMMITTED else b""

    def blocks(self, item: WorkItem, fetched: bytes) -> Iterator[Block]:
        """Raises what cannot be read, as LakeplanError."""
        match item.kind:
            case Kind.UNCOMMITTED:
                yield self._staged(item, fetched)
            case Kind.LISTING:
                yield from self._listed(self._namespace().list_objects(item.name))
            case Kind.ROOT_LISTING:
                yield from self._listed(self._namespace().list_objects("", recursive=False))
                yield from self._listed(self._namespace().list_objects(DATA_PREFIX, recursive=False))
            case _:
                raise SimulationFailed(f"only a mark reads {item.kind.name}", where=self.source.name)

    def _namespace(self) -> NamespaceReader:
        if self.source.namespace is None:
            raise SimulationFailed("has no namespace to list", where=self.source.name)
        return self.source.namespace

    def _staged(self, item: WorkItem, data: bytes) -> Block:
        """Addresses of a run are relative; a full one, should a server write it, protects all it may mean."""
        found: list[str] = []
        known = self.source.addresses
        for address in read_uncommitted(data, name=f"{self.source.name}/{item.name}").addresses:
            found += known.staged(address)
        number = self.classes.number(Class(int(Seen.UNCOMMITTED)))
        zeros = np.zeros(len(found), np.int64)
        return Block(fold(Rows(hash_texts(found), zeros, zeros + number), self.classes))

    def _listed(self, objects: Iterator[StoredObject]) -> Iterator[Block]:
        old = self.classes.number(Class(int(Seen.LISTED | Seen.OLD)))
        young = self.classes.number(Class(int(Seen.LISTED)))
        candidates = (stored for stored in objects if is_candidate_key(stored.key))
        while part := list(islice(candidates, LISTED_AT_ONCE)):
            keys = [text_of(stored.key) for stored in part]
            hashes = hash_texts(keys)
            is_old = np.array([stored.modified_us < self.source.young_from_us for stored in part])
            sizes = np.array([stored.size for stored in part], dtype=np.int64) | STORED
            rows = fold(Rows(hashes, sizes, np.where(is_old, old, young)), self.classes)
            chosen = np.flatnonzero(is_old) if self.with_texts else np.zeros(0, np.int64)
            addresses = pa.array([keys[n] for n in chosen.tolist()], pa.string())
            no_paths = pa.nulls(chosen.size, pa.string())
            yield Block(rows, texts_of(pa.array(hashes[chosen]), addresses, no_paths, last=-1))
