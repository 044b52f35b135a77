"""What runs in Spark's Python workers: reads ranges, listings and uncommitted runs into Arrow batches.

A worker never guesses: what cannot be read becomes one row that says why, and the driver raises it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from lakeplan import errors
from lakeplan.errors import FormatError, LakeplanError, SimulationFailed
from lakeplan.formats.addresses import is_usual_key
from lakeplan.formats.mark_parts import read_part
from lakeplan.formats.namespace import DATA_PREFIX, is_candidate_key
from lakeplan.formats.ranges import RangeColumns, read_range_columns
from lakeplan.formats.uncommitted import read_uncommitted
from lakeplan.model.objects import AddressType, StoredObject
from lakeplan.ports.lakefs import MetadataReader
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.addresses import Addresses
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.work import Kind, WorkItem, unpack

BATCH_ROWS = 1 << 16
FETCH_AHEAD = 4
"""Range files in flight in one worker: at most 20 MiB each."""

ARROW_SCHEMA = pa.schema(
    [
        pa.field("source", pa.int32(), nullable=False),
        pa.field("address", pa.string()),
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("stored_size", pa.int64()),
        pa.field("version", pa.int64()),
        pa.field("mask", pa.int64(), nullable=False),
        pa.field("alias_mask", pa.int64(), nullable=False),
        pa.field("last", pa.int64()),
        pa.field("holders", pa.int32()),
        pa.field("seen", pa.int32(), nullable=False),
    ]
)
"""``schemas.SIGHTINGS`` in Arrow; a test compares the two."""


@dataclass(frozen=True)
class Source:
    """One repository as a worker sees it. Both readers can be pickled; ``namespace`` is needed for listings
    and uncommitted runs only. Objects stored at ``young_from_us`` or later are too young to go. Objects at
    paths under ``held_prefixes`` are noted. ``target``: for another repository's ranges, the position of the
    source whose namespace ``addresses`` knows."""

    name: str
    metadata: MetadataReader
    addresses: Addresses
    namespace: NamespaceReader | None = None
    young_from_us: int = 0
    held_prefixes: tuple[str, ...] = ()
    target: int | None = None


def read_bins(
    batches: Iterable[pa.RecordBatch], bins: Sequence[bytes], sources: Sequence[Source]
) -> Iterator[pa.RecordBatch]:
    """The function of ``mapInArrow``: each row's ``id`` is the number of a bin."""
    with ThreadPoolExecutor(FETCH_AHEAD) as pool:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from _read(unpack(bins[number]), sources, pool)


def _read(
    items: list[WorkItem], sources: Sequence[Source], pool: ThreadPoolExecutor
) -> Iterator[pa.RecordBatch]:
    for item, fetched in _ahead(items, sources, pool):
        source = sources[item.source]
        try:
            match item.kind:
                case Kind.RANGE:
                    columns = read_range_columns(fetched(), name=where_of(source, item), verify_id=item.name)
                    yield from _entries(columns, item, source)
                case Kind.FOREIGN_RANGE:
                    columns = read_range_columns(fetched(), name=where_of(source, item), verify_id=item.name)
                    yield from _foreign(columns, item, source)
                case Kind.LISTED | Kind.MARKED:
                    yield from _from_part(fetched(), item, source)
                case Kind.UNCOMMITTED:
                    yield from _staged(fetched(), item, source)
                case Kind.LISTING:
                    yield from _listed(_namespace(source).list_objects(item.name), item, source)
                case Kind.ROOT_LISTING:
                    root = _namespace(source).list_objects("", recursive=False)
                    beside = _namespace(source).list_objects(DATA_PREFIX, recursive=False)
                    yield from _listed(root, item, source)
                    yield from _listed(beside, item, source)
        except LakeplanError as error:
            yield _failed(item, source, error)


def _ahead(
    items: list[WorkItem], sources: Sequence[Source], pool: ThreadPoolExecutor
) -> Iterator[tuple[WorkItem, Callable[[], bytes]]]:
    """Each item with a function that gives its bytes, while the next ones are being fetched."""
    waiting: deque[tuple[WorkItem, Future[bytes] | None]] = deque()
    coming = iter(items)
    while True:
        for item in islice(coming, FETCH_AHEAD - len(waiting)):
            waiting.append((item, _fetch(item, sources[item.source], pool)))
        if not waiting:
            return
        item, future = waiting.popleft()
        yield item, (future.result if future is not None else bytes)


def _fetch(item: WorkItem, source: Source, pool: ThreadPoolExecutor) -> Future[bytes] | None:
    match item.kind:
        case Kind.RANGE | Kind.FOREIGN_RANGE:
            return pool.submit(source.metadata.read_metadata, "range", item.name)
        case Kind.UNCOMMITTED | Kind.LISTED | Kind.MARKED:
            return pool.submit(_namespace(source).read, item.name)
        case _:
            return None


def _namespace(source: Source) -> NamespaceReader:
    if source.namespace is None:
        raise SimulationFailed("has no namespace to list", where=source.name)
    return source.namespace


def where_of(source: Source, item: WorkItem) -> str:
    is_range = item.kind in (Kind.RANGE, Kind.FOREIGN_RANGE)
    return f"{source.name}: range {item.name}" if is_range else f"{source.name}/{item.name}"


def _entries(columns: RangeColumns, item: WorkItem, source: Source) -> Iterator[pa.RecordBatch]:
    """The entries of a range inside the namespace; those that may be inside stand apart as aliases."""
    addresses = source.addresses
    for start in range(0, len(columns), BATCH_ROWS):
        rows = slice(start, start + BATCH_ROWS)
        texts, types = columns.addresses[rows], columns.address_types[rows]
        paths, sizes = columns.paths[rows], columns.sizes[rows]
        odd = [
            kind != AddressType.RELATIVE or not is_usual_key(a) for a, kind in zip(texts, types, strict=True)
        ]
        if any(odd):
            meanings = [
                addresses.meaning(a, kind) if is_odd else (a, [])
                for a, kind, is_odd in zip(texts, types, odd, strict=True)
            ]
            inside = [key for key, _ in meanings]
            aliases = [(alias, n) for n, (_, others) in enumerate(meanings) for alias in others]
            if aliases:
                yield _batch(
                    item,
                    [alias for alias, _ in aliases],
                    seen=[int(Seen.ALIAS)] * len(aliases),
                    path=[paths[n] for _, n in aliases],
                    size=[sizes[n] for _, n in aliases],
                    alias_mask=item.mask,
                )
            kept = [n for n, found in enumerate(inside) if found is not None]
            texts = [found for found in inside if found is not None]
            paths, sizes = [paths[n] for n in kept], [sizes[n] for n in kept]
        plain, candidate = int(Seen.ENTRY), int(Seen.ENTRY | Seen.CANDIDATE)
        seen = [candidate if is_candidate_key(a) else plain for a in texts]
        if source.held_prefixes:
            held = int(Seen.HELD)
            seen = [
                s | held if p.startswith(source.held_prefixes) else s
                for s, p in zip(seen, paths, strict=True)
            ]
        yield _batch(item, texts, seen=seen, path=paths, size=sizes, mask=item.mask)


def _foreign(columns: RangeColumns, item: WorkItem, source: Source) -> Iterator[pa.RecordBatch]:
    """Full addresses of another repository's range that lie, or may lie, in the namespace of
    ``source.target``."""
    found: list[str] = []
    seen: list[int] = []
    for text, kind in zip(columns.addresses, columns.address_types, strict=True):
        inside, others = source.addresses.foreign(text, kind)
        if inside is not None:
            found.append(inside)
            seen.append(int(Seen.FOREIGN))
        found += others
        seen += [int(Seen.ALIAS)] * len(others)
    if source.target is None:
        raise SimulationFailed("has no namespace to compare with", where=source.name)
    item = item._replace(source=source.target, last=-1, holders=-1)
    for start in range(0, len(found), BATCH_ROWS):
        rows = slice(start, start + BATCH_ROWS)
        yield _batch(item, found[rows], seen=seen[rows])


def _from_part(data: bytes, item: WorkItem, source: Source) -> Iterator[pa.RecordBatch]:
    """A part of a listing or of a mark (formats/mark_parts.py); ``sort_key`` is its SHA-256."""
    part = read_part(data, name=where_of(source, item), sha256=item.sort_key.hex())
    seen = int(Seen.LISTED | Seen.OLD) if item.kind is Kind.LISTED else int(Seen.MARKED)
    addresses, sizes = part.column("address").to_pylist(), part.column("size_bytes").to_pylist()
    versions = part.column("version").to_pylist() if item.kind is Kind.LISTED else None
    for start in range(0, len(addresses), BATCH_ROWS):
        rows = slice(start, start + BATCH_ROWS)
        texts = addresses[rows]
        some = None if versions is None else versions[rows]
        yield _batch(item, texts, seen=[seen] * len(texts), stored_size=sizes[rows], version=some)


def _staged(data: bytes, item: WorkItem, source: Source) -> Iterator[pa.RecordBatch]:
    """Addresses of a run are relative; a full one, should a server write it, protects all it may mean."""
    found: list[str] = []
    for address in read_uncommitted(data, name=where_of(source, item)).addresses:
        found += source.addresses.staged(address)
    for start in range(0, len(found), BATCH_ROWS):
        part = found[start : start + BATCH_ROWS]
        yield _batch(item, part, seen=[int(Seen.UNCOMMITTED)] * len(part))


def _listed(objects: Iterator[StoredObject], item: WorkItem, source: Source) -> Iterator[pa.RecordBatch]:
    old, young = int(Seen.LISTED | Seen.OLD), int(Seen.LISTED)
    candidates = (stored for stored in objects if is_candidate_key(stored.key))
    while part := list(islice(candidates, BATCH_ROWS)):
        seen = [old if stored.modified_us < source.young_from_us else young for stored in part]
        keys, sizes = [text_of(stored.key) for stored in part], [stored.size for stored in part]
        yield _batch(item, keys, seen=seen, stored_size=sizes)


def _batch(
    item: WorkItem,
    address: Sequence[str | None],
    *,
    seen: list[int],
    path: list[str] | None = None,
    size: list[int] | None = None,
    stored_size: list[int] | None = None,
    version: list[int] | None = None,
    mask: int = 0,
    alias_mask: int = 0,
) -> pa.RecordBatch:
    rows = len(address)

    def repeat(value: int | None, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), rows)

    def column(values: Sequence[object] | None, kind: pa.DataType) -> pa.Array:
        return pa.nulls(rows, kind) if values is None else pa.array(values, kind)

    return pa.RecordBatch.from_arrays(
        [
            repeat(item.source, pa.int32()),
            column(address, pa.string()),
            column(path, pa.string()),
            column(size, pa.int64()),
            column(stored_size, pa.int64()),
            column(version, pa.int64()),
            repeat(mask, pa.int64()),
            repeat(alias_mask, pa.int64()),
            repeat(None if item.last < 0 else item.last, pa.int64()),
            repeat(None if item.holders < 0 else item.holders, pa.int32()),
            column(seen, pa.int32()),
        ],
        schema=ARROW_SCHEMA,
    )


def text_of(key: str) -> str:
    """Keys that are not UTF-8 (surrogate escapes) as text that Arrow takes, always the same."""
    if key.isascii():
        return key
    return key.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _failed(item: WorkItem, source: Source, error: LakeplanError) -> pa.RecordBatch:
    return _batch(item, [None], seen=[int(Seen.ERROR)], path=[report_of(error, where_of(source, item))])


def report_of(error: LakeplanError, where: str) -> str:
    """An error as text, on its way from a worker to the driver; ``where`` when it does not say itself."""
    report = {
        "kind": type(error).__name__,
        "message": error.message,
        "where": error.where or where,
        "hint": error.hint,
        "detail": error.detail,
    }
    return json.dumps(report)


def failure(report: str) -> LakeplanError:
    """The error a worker met, out of its row."""
    fields = json.loads(report)
    kind = getattr(errors, fields.pop("kind"), FormatError)
    error: LakeplanError = FormatError.__new__(kind)
    LakeplanError.__init__(error, **fields)
    return error
