"""Which commits hold an object: metaranges and ranges read with a bounded number of requests in flight.

For a path only ranges whose bounds can hold its key are read; for addresses all ranges of the commits in
question. Each file is read once, and verified against its id before anything is taken from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from lakeplan.core.retention import CommitGraph
from lakeplan.formats.ranges import RangeColumns, read_metarange, read_range_columns
from lakeplan.model.objects import AddressType, RangeInfo
from lakeplan.ports.lakefs import MetadataKind, MetadataReader
from lakeplan.ports.progress import Progress

IN_FLIGHT = 16


class AddressBook(Protocol):
    """Which object of the namespace an entry's address means."""

    def meaning(self, address: str, address_type: int) -> tuple[str | None, list[str]]:
        """The key that the address means for certain (None: none, as far as is known), and others that it may
        mean: they are protected by it too."""

    def protected(self, address: str, address_type: int) -> list[str]:
        """Every key that the address means or may mean."""


@dataclass
class Holding:
    """One address. ``metaranges``: those that hold it for certain; ``aliases``: those that may, by a full
    address elsewhere. ``size`` is bytes, the greatest that an entry says. ``maybe_inside``:
    outside as far as is known, and may mean an object of the namespace, whose own URL is not known."""

    address: str
    inside: bool = True
    maybe_inside: bool = False
    metaranges: set[str] = field(default_factory=set)
    aliases: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    size: int | None = None

    def note(self, path: str, size: int, metaranges: Iterable[str], *, alias: bool = False) -> None:
        (self.aliases if alias else self.metaranges).update(metaranges)
        self.paths.add(path)
        self.size = size if self.size is None else max(self.size, size)


@dataclass
class Read:
    """How much was read."""

    metaranges: int = 0
    ranges: int = 0
    entries: int = 0


class Search:
    """Looks through one history. ``name`` is the repository or namespace in errors."""

    def __init__(
        self,
        name: str,
        graph: CommitGraph,
        metadata: MetadataReader,
        addresses: AddressBook,
        progress: Progress,
    ) -> None:
        self._name, self._metadata, self._addresses = name, metadata, addresses
        self._progress = progress
        self.read = Read()
        self._listed: dict[str, list[RangeInfo]] = {}
        self._commits: dict[str, list[int]] = {}
        for number, meta_range_id in enumerate(graph.meta_range_ids):
            if meta_range_id:
                self._commits.setdefault(meta_range_id, []).append(number)

    @property
    def metaranges(self) -> list[str]:
        return list(self._commits)

    def commits_of(self, metaranges: Iterable[str]) -> list[int]:
        """Numbers of the commits with these metaranges, ascending."""
        return sorted(number for m in metaranges for number in self._commits.get(m, ()))

    def holding(self, address: str, address_type: int) -> Holding:
        """A new holding of an address as it stands in an entry."""
        inside, others = self._addresses.meaning(address, address_type)
        if inside is not None:
            return Holding(inside)
        return Holding(address, inside=False, maybe_inside=bool(others))

    def path(self, path: str, metaranges: Collection[str]) -> list[Holding]:
        """Every object at ``path`` in these metaranges, in the order first met."""
        key = path.encode(errors="surrogateescape")
        shown = key.decode(errors="backslashreplace")
        found: dict[str, Holding] = {}
        for columns, holders in self._ranges(metaranges, lambda info: info.min_key <= key <= info.max_key):
            if shown not in columns.paths:
                continue
            n = columns.paths.index(shown)
            address = columns.addresses[n]
            holding = self.holding(address, columns.address_types[n])
            holding = found.setdefault(holding.address, holding)
            holding.note(shown, columns.sizes[n], holders)
        return list(found.values())

    def fill(self, wanted: Collection[Holding], metaranges: Collection[str]) -> None:
        """Notes on each of ``wanted`` every one of ``metaranges`` that holds its address, at any path."""
        by_address = {holding.address: holding for holding in wanted}
        if not by_address:
            return
        for columns, holders in self._ranges(metaranges, lambda info: True):
            for n, address, alias in self._hits(columns, by_address):
                by_address[address].note(columns.paths[n], columns.sizes[n], holders, alias=alias)

    def _hits(self, columns: RangeColumns, wanted: Collection[str]) -> Iterator[tuple[int, str, bool]]:
        for n, (text, kind) in enumerate(zip(columns.addresses, columns.address_types, strict=True)):
            if kind == AddressType.RELATIVE and text in wanted:
                yield n, text, False
                continue
            inside, others = self._addresses.meaning(text, kind)
            if (text if inside is None else inside) in wanted:
                yield n, text if inside is None else inside, False
            for alias in others:
                if alias in wanted:
                    yield n, alias, True

    def _ranges(
        self, metaranges: Collection[str], can_hold: Callable[[RangeInfo], bool]
    ) -> Iterator[tuple[RangeColumns, set[str]]]:
        """Each range that passes, with those of ``metaranges`` that list it."""
        self._list([m for m in metaranges if m not in self._listed])
        holders: dict[str, set[str]] = {}
        for metarange in metaranges:
            for info in self._listed[metarange]:
                if can_hold(info):
                    holders.setdefault(info.id, set()).add(metarange)
        with self._progress.task("reading ranges", len(holders)) as step:
            for range_id, data in self._fetch("range", list(holders)):
                where = f"{self._name}: range {range_id}"
                columns = read_range_columns(data, name=where, verify_id=range_id)
                self.read.ranges += 1
                self.read.entries += len(columns)
                yield columns, holders[range_id]
                step()

    def _list(self, metaranges: Sequence[str]) -> None:
        with self._progress.task("reading metaranges", len(metaranges)) as step:
            for id, data in self._fetch("meta_range", metaranges):
                where = f"{self._name}: metarange {id}"
                self._listed[id] = read_metarange(data, name=where, verify_id=id)
                self.read.metaranges += 1
                step()

    def _fetch(self, kind: MetadataKind, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Files in order, a bounded number in flight."""
        coming = iter(ids)
        waiting: deque[tuple[str, Future[bytes]]] = deque()
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            try:
                while True:
                    for id in islice(coming, IN_FLIGHT - len(waiting)):
                        waiting.append((id, pool.submit(self._metadata.read_metadata, kind, id)))
                    if not waiting:
                        return
                    id, future = waiting.popleft()
                    yield id, future.result()
            finally:
                for _, future in waiting:
                    future.cancel()
