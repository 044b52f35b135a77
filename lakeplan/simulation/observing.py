"""Reads addresses, paths, hashes and sizes from ranges, listings and runs, and where each was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan import limits
from lakeplan.errors import FormatError, SimulationFailed
from lakeplan.formats.collector import read_uncommitted
from lakeplan.formats.marks import LISTING, MODIFIED_US, read_part
from lakeplan.formats.namespace import Addresses, is_candidate_key
from lakeplan.formats.range_arrays import Bytes, Hashes, Ints, Odd, RangeArrays, hash_texts, unpack_odd
from lakeplan.formats.ranges import read_range_arrays
from lakeplan.formats.wire import LIMIT_HINT
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.simulation.cache import RangeCache
from lakeplan.simulation.listings import Inventory, candidates, chosen, hash_strings, list_item, strings_of
from lakeplan.simulation.runners import Kind, WorkItem
from lakeplan.simulation.table import STORED, Code, Listed, pairs_of
from lakeplan.stores.open import NamespaceReader, StoredColumns
from lakeplan.values.repository import AddressType

Fetched = bytes | Iterator[StoredColumns]
Texts = Callable[[Ints], tuple[pa.Array, pa.Array]]
"""Returns addresses relative to the namespace, and paths, of some rows."""


@dataclass(frozen=True)
class Source:
    """Where a worker reads one repository. Both readers can be pickled.

    - ``namespace``: needed only for listings and uncommitted runs
    - ``young_from_us``: objects stored at this time or later are too young to be deleted
    - ``held_prefixes``: objects at paths below these are noted
    - ``target``: for ranges of another repository, the position of the source that ``addresses`` are of
    - ``cache``: keeps what was read of ranges; a mark has none
    - ``copies``: a folder whose copies of marked objects count as marked too
    - ``verify_ids``: compare a range's id with its bytes, besides the checksums of its blocks
    """

    name: str
    metadata: MetadataReader
    addresses: Addresses
    namespace: NamespaceReader | None = None
    young_from_us: int = 0
    held_prefixes: tuple[str, ...] = ()
    copies: str = ""
    target: int | None = None
    inventory: Inventory | None = None
    stored_sizes: bool = True
    """Whether the storage's sizes of objects count, rather than those of entries."""
    cache: RangeCache | None = None
    verify_ids: bool = True
    outside: bool = False
    """Whether full addresses outside the namespace are noted, each as a separate object."""

    def opened(self) -> NamespaceReader:
        if self.namespace is None:
            raise SimulationFailed("there is no namespace to list", where=self.name)
        return self.namespace


@dataclass(frozen=True)
class Sightings:
    """Columns of equal length that say where addresses were seen. ``codes`` are ``Code`` or ``Listed``.
    Listings have ``modified_us``, and the listing of a mark has ``versions``."""

    hashes: Hashes
    pairs: Hashes
    sizes: Ints
    codes: Bytes
    texts: Texts
    versions: Ints | None = None
    modified_us: Ints | None = None


def where_of(source: Source, item: WorkItem) -> str:
    return f"{source.name}: range {item.name}" if item.kind is Kind.RANGE else f"{source.name}/{item.name}"


def fetch(source: Source, item: WorkItem) -> Fetched:
    """The data of an item for ``observe``. The first rows of a listing are fetched, the rest on demand."""
    match item.kind:
        case Kind.RANGE:
            return source.metadata.read_metadata("range", item.name)
        case Kind.UNCOMMITTED | Kind.LISTED | Kind.MARKED:
            return source.opened().read(item.name)
        case Kind.LISTING | Kind.ROOT_LISTING | Kind.INVENTORY:
            return list_item(source, item)
        case Kind.SEGMENT:
            raise SimulationFailed("the data is already decoded", where=where_of(source, item))
        case Kind.FOREIGN_RANGE:
            return item.body


def observe(
    source: Source, item: WorkItem, fetched: Fetched, *, use_compiled: bool = False
) -> Iterator[Sightings]:
    """The sightings of an item. Raises LakeplanError for what cannot be read."""
    if not isinstance(fetched, bytes):
        yield from _listed(fetched, source.young_from_us, sizes=source.stored_sizes)
        return
    data, name = fetched, where_of(source, item)
    match item.kind:
        case Kind.RANGE:
            verify_id = item.name if source.verify_ids else None
            arrays = read_range_arrays(data, name=name, verify_id=verify_id, use_compiled=use_compiled)
            yield of_range(arrays, source)
        case Kind.FOREIGN_RANGE:
            yield foreign_sightings(unpack_odd(data), source.addresses)
        case Kind.LISTED | Kind.MARKED:
            columns = LISTING.names if item.kind is Kind.LISTED else ("address", "size_bytes")
            part = read_part(data, name=name, sha256=item.sort_key.hex(), columns=columns)
            yield _part(part, item.kind)
            if item.kind is Kind.MARKED and source.copies:
                keys = pc.binary_join_element_wise(source.copies, part.column("address"), "")
                yield _part(part.set_column(0, "address", keys), item.kind)
        case Kind.UNCOMMITTED:
            yield _staged(read_uncommitted(data, name=name), source.addresses)
        case _:
            raise SimulationFailed("lakeplan cannot read this kind of file", where=name)


def of_range(arrays: RangeArrays, source: Source) -> Sightings:
    """Sightings of each entry inside the namespace, and of each object that another entry may refer to."""
    relative = (arrays.address_types == AddressType.RELATIVE) & ~arrays.unusual
    rows = np.flatnonzero(relative)
    codes = arrays.candidates(rows).astype(np.uint8)
    others = np.flatnonzero(~relative)
    named = _Named(_room(int((arrays.address_end - arrays.address_start)[others].sum())))
    for row, text in zip(others.tolist(), arrays.addresses(others), strict=True):
        inside, may_mean = source.addresses.meaning(text, int(arrays.address_types[row]))
        if inside is not None:
            named.add(row, inside, Code.CANDIDATE if is_candidate_key(inside) else Code.PLAIN)
        elif source.outside:
            named.add(row, text, Code.OUTSIDE)
        for other in may_mean:
            named.add(row, other, Code.ALIAS)
    chosen = np.concatenate((rows, np.array(named.rows, np.int64)))
    codes = np.concatenate((codes, np.array(named.codes, np.uint8)))
    if source.held_prefixes:
        held = arrays.paths_begin(chosen, source.held_prefixes)
        codes[held & (codes <= Code.CANDIDATE)] += np.uint8(Code.HELD)
    hashes = np.concatenate((arrays.hashes[rows], hash_texts(named.texts)))
    first = rows.size

    def texts(wanted: Ints) -> tuple[pa.Array, pa.Array]:
        addresses, paths = arrays.texts(chosen[wanted])
        if named.texts and (wanted >= first).any():
            known = zip(wanted.tolist(), addresses.to_pylist(), strict=True)
            addresses = pa.array([named.texts[n - first] if n >= first else a for n, a in known], pa.string())
        return addresses, paths

    sizes = np.minimum(arrays.sizes[chosen], STORED - 1)  # clients choose the size of an entry
    pairs = pairs_of(hashes, arrays.path_hashes[chosen], sizes)
    return Sightings(hashes, pairs, sizes, codes, texts)


@dataclass
class _Named:
    """Rows whose key is not the stored address: the entry's row, the key and the code. ``room``: how many
    more characters the keys may have. Raises FormatError beyond that."""

    room: int
    rows: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    def add(self, row: int, text: str, code: Code) -> None:
        self.rows.append(row)
        self.texts.append(text)
        self.codes.append(int(code))
        self.room -= len(text)
        if self.room < 0:
            raise FormatError(
                "its addresses have an unusual spelling, so they may refer to more objects than the limit",
                hint=LIMIT_HINT,
            )


def _room(size: int) -> int:
    """How many characters the keys may have that addresses of this size may mean."""
    return max(limits.ADDRESS_BYTES, limits.ADDRESS_RATIO * size)


def foreign_sightings(entries: Sequence[Odd], known: Addresses) -> Sightings:
    """Sightings of other repositories' addresses that are, or may be, in the namespace of ``known``."""
    named = _Named(_room(sum(len(text) for text, _ in entries)))
    for row, (text, kind) in enumerate(entries):
        inside, others = known.foreign(text, kind)
        if inside is not None:
            named.add(row, inside, Code.FOREIGN)
        for other in others:
            named.add(row, other, Code.ALIAS)
    return _without_path(named)


def _staged(addresses: Sequence[str], known: Addresses) -> Sightings:
    """Sightings of a run's addresses. They are relative. A full one would protect all keys that it may
    mean."""
    named = _Named(_room(sum(map(len, addresses))))
    for row, address in enumerate(addresses):
        for key in known.staged(address):
            named.add(row, key, Code.STAGED)
    return _without_path(named)


def _without_path(named: _Named) -> Sightings:
    keys, codes = pa.array(named.texts, pa.string()), np.array(named.codes, np.uint8)
    return _seen(hash_texts(named.texts), keys, np.zeros(len(keys), np.int64), codes)


def _listed(
    listing: Iterator[StoredColumns], young_from_us: int, *, sizes: bool = True
) -> Iterator[Sightings]:
    """Sightings of a listing. Without ``sizes`` they have none, so that those of entries count."""
    for columns in listing:
        rows = chosen(columns, candidates(columns.keys))
        if len(rows):
            old = (rows.modified_us < young_from_us).astype(np.uint8)
            rows_seen = replace(_stored(strings_of(rows.keys), rows.sizes, old), modified_us=rows.modified_us)
            yield rows_seen if sizes else replace(rows_seen, sizes=np.zeros_like(rows_seen.sizes))


def _part(table: pa.Table, kind: Kind) -> Sightings:
    keys = table.column("address").combine_chunks()
    sizes = table.column("size_bytes").to_numpy()
    if kind is Kind.MARKED:
        return _stored(keys, sizes, np.full(len(keys), int(Listed.MARKED), np.uint8))
    listed = _stored(keys, sizes, np.full(len(keys), int(Listed.OLD), np.uint8))
    versions, modified_us = (table.column(name).to_numpy() for name in ("version", MODIFIED_US))
    return replace(listed, versions=versions, modified_us=modified_us)


def _stored(keys: pa.StringArray, sizes: Ints, codes: Bytes) -> Sightings:
    return _seen(hash_strings(keys), keys, sizes | STORED, codes)


def _seen(hashes: Hashes, keys: pa.StringArray, sizes: Ints, codes: Bytes) -> Sightings:
    def texts(wanted: Ints) -> tuple[pa.Array, pa.Array]:
        return keys.take(wanted), pa.nulls(wanted.size, pa.string())

    return Sightings(hashes, pairs_of(hashes, np.zeros_like(hashes)), sizes, codes, texts)
