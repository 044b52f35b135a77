"""Makes marks: decides which objects may be deleted, and writes them as parts."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from datetime import datetime
from functools import partial, reduce
from operator import attrgetter, or_
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan.errors import LakeplanError, SimulationFailed, failure, report_of
from lakeplan.formats.marks import KEPT_BY, LISTING, MARKED, MODIFIED_US, write_part
from lakeplan.formats.namespace import Addresses
from lakeplan.formats.range_arrays import hash_texts
from lakeplan.retention.keep import FIRST_BIT, OTHERS, Keep
from lakeplan.retention.rules import to_us
from lakeplan.simulation.engine import Asking, CountsOnly, Take, ask, sorted_paths
from lakeplan.simulation.foreign import FolderForeignCache, ForeignReader, OpenRunner
from lakeplan.simulation.inputs import collect_ranges, required_listing
from lakeplan.simulation.listings import (
    StagedRun,
    candidates,
    check_none_nested,
    chosen,
    in_batches,
    is_text,
    list_item,
)
from lakeplan.simulation.local import ROWS_A_PIECE, Data, Packet, PacketKind, from_bytes, to_bytes
from lakeplan.simulation.observing import Source
from lakeplan.simulation.output import EXPIRED, MAX_NAMES, NEVER_COMMITTED
from lakeplan.simulation.requests import Facts, ForeignRanges, MarkRequest, RecheckRequest
from lakeplan.simulation.runners import (
    FETCH_AHEAD,
    Kind,
    Leaves,
    Runner,
    Step,
    WorkItem,
    ahead,
    numbered,
    pack,
    unpack_bin,
)
from lakeplan.simulation.steps import leaves_of
from lakeplan.simulation.table import Class
from lakeplan.simulation.verdicts import Sighting
from lakeplan.stores.open import RecordWriter, StoredColumns, SweepStore
from lakeplan.values.progress import Progress, Silent
from lakeplan.values.simulation import EXPIRED_CLASSES, MAX_VERDICT_BITS, Amount, MarkClass, Marked, Part

LISTING_ROWS = 200_000
PART_ROWS = 10_000
"""A part of a mark is what a worker deletes between two records: ten of S3's largest batches."""
GOING, KEPT = "going", "kept"
REPOSITORY = "repository"
"""The first word of the names of other repositories, among the names of what keeps an object."""


@dataclass(frozen=True)
class Writer:
    """Writes parts below ``prefix`` in a namespace. ``going`` are the classes that may be deleted."""

    store: RecordWriter
    prefix: str
    going: frozenset[str] = frozenset()

    def write(self, table: str, rows: pa.Table) -> Packet:
        """Writes a part and returns the packet that names it, relative to ``prefix``."""
        name = f"{table}/part-{uuid4().hex}.parquet"
        columns = {field.name: rows.column(field.name).combine_chunks() for field in MARKED}
        data, sha256 = write_part(columns, MARKED)
        self.store.create(self.prefix + name, data)
        size = pc.sum(columns["size_bytes"]).as_py()
        return _written(table, Part(name, rows.num_rows, size, sha256), _amounts(rows))


def _amounts(rows: pa.Table) -> Mapping[str, tuple[int, int]]:
    grouped = rows.group_by("class").aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    return {row["class"]: (row["size_bytes_count"], row["size_bytes_sum"]) for row in grouped.to_pylist()}


def list_into_parts(packets: Iterable[Packet], _: Leaves, *, source: Source, prefix: str) -> Iterator[Packet]:
    """The only step of a listing job. The name of a listing's part is its whole key."""
    store: RecordWriter = source.opened()  # type: ignore[assignment]  # a SweepStore, by the marker
    for packet in packets:
        try:
            for rows in in_batches(_old(_stored(unpack_bin(packet.data), source), source), LISTING_ROWS):
                columns: dict[str, Sequence[object] | pa.Array] = {
                    "address": rows.keys.cast(pa.string()),
                    "size_bytes": pa.array(rows.sizes),
                    "version": [stored.version for stored in rows.objects()],
                    MODIFIED_US: pa.array(rows.modified_us),
                }
                data, sha256 = write_part(columns, LISTING)
                name = f"{prefix}listing/part-{uuid4().hex}.parquet"
                store.create(name, data)
                yield _written(GOING, Part(name, len(rows), int(rows.sizes.sum()), sha256), {})
        except LakeplanError as error:
            yield _packet(PacketKind.ERROR, report_of(error, source.name))


def _stored(items: Iterable[WorkItem], source: Source) -> Iterator[StoredColumns]:
    """Lists several prefixes in parallel, because a store lists each of them page by page."""
    with ThreadPoolExecutor(FETCH_AHEAD) as pool:
        for _, listed in ahead(items, lambda item: list_item(source, item), pool, FETCH_AHEAD):
            yield from listed()


def _old(listing: Iterable[StoredColumns], source: Source) -> Iterator[StoredColumns]:
    """Candidates that are old enough. Keys that are not UTF-8 are not candidates: lakeFS writes no such key,
    and a key that cannot be recorded exactly is not deleted."""
    for columns in listing:
        check_none_nested(columns.keys)
        old = columns.modified_us < source.young_from_us
        yield chosen(columns, old & candidates(columns.keys) & is_text(columns.keys))


def write_parts(packets: Iterable[Packet], _: Leaves, *, writer: Writer) -> Iterator[Packet]:
    """The last step of a mark: writes what may be deleted and what is kept into separate parts, by
    address."""
    by_place: defaultdict[int, list[pa.Table]] = defaultdict(list)
    for packet in packets:
        if packet.of == PacketKind.OBJECTS:
            by_place[packet.place].append(from_bytes(packet.data))
        else:
            yield packet
    try:
        for place in sorted(by_place):
            rows = pa.concat_tables(by_place.pop(place)).sort_by("address")
            goes = pc.is_in(rows["class"], pa.array(sorted(writer.going)))
            for table, chosen in ((GOING, rows.filter(goes)), (KEPT, rows.filter(pc.invert(goes)))):
                for at in range(0, chosen.num_rows, PART_ROWS):
                    yield writer.write(table, chosen.slice(at, PART_ROWS))
    except LakeplanError as error:
        yield _packet(PacketKind.ERROR, report_of(error, writer.prefix))


def _written(table: str, part: Part, amounts: Mapping[str, tuple[int, int]]) -> Packet:
    """A packet that ``_parts_of`` reads. ``amounts`` are objects and bytes by class."""
    return _packet(PacketKind.PART, json.dumps((table, astuple(part), amounts)))


def _packet(of: PacketKind, text: str) -> Packet:
    return Packet(0, 0, 0, of, text.encode())


NAME_BEGINS = 4
"""Characters of a name that change about once an hour in names that lakeFS makes."""
PLACES_A_MARK = 64
"""The most groups of neighbours that are written together."""
_NEIGHBOURHOOD = re.compile(rf"^(?:.*/)?[^/]{{0,{NAME_BEGINS}}}")


class StepMarker:
    """Implements ``Marker`` on either runner."""

    def __init__(
        self,
        open_runner: OpenRunner,
        progress: Progress | None = None,
        cache: FolderForeignCache | None = None,
        *,
        verify_cache: bool = False,
    ) -> None:
        self._open = open_runner
        self._progress = progress or Silent()
        self._others = ForeignReader(open_runner, self._progress, cache, verify=verify_cache)

    def list_candidates(self, store: SweepStore, prefix: str, *, older_than: datetime) -> tuple[Part, ...]:
        """Implements the port. Raises StorageError."""
        items = required_listing(store)
        source = Source(store.url, _NoMetadata(), Addresses(()), store, to_us(older_than))
        with self._progress.task("listing the namespace", None), self._open(0) as (runner, _):
            step = Step(partial(list_into_parts, source=source, prefix=prefix), 0)
            packets = runner.run(pack(numbered(items), runner.parallelism), [step], leaves_of(()))
            return _parts_of(map(_part, packets))[0]

    def mark(self, request: MarkRequest) -> Marked:
        """Implements the port. Raises LakeplanError for what could not be read or written."""
        source = _source(request)
        with self._progress.task("reading metaranges", len(request.metaranges)) as step:
            collected = collect_ranges(request.metadata, request.metaranges, name=source.name, step=step)
        listed = [WorkItem(Kind.LISTED, 0, p.name, sort_key=bytes.fromhex(p.sha256)) for p in request.listing]
        items = [*listed, *StagedRun(files=request.uncommitted).items(), *collected.items]
        wanted = {item.last for item in collected.items}
        last = {
            at: (id, request.last_commits_us.get(at))
            for at, id in request.last_commits.items()
            if at in wanted
        }
        names = _names(request)
        rows = collected.entries + sum(part.rows for part in request.listing)
        asking = [
            Asking(source, Marks(last, names, request.held_prefixes), items, rows, exact=True),
            *self._foreign(request.foreign, request.storage_namespace, request.store, names),
        ]
        going = {kind.value for kind in EXPIRED_CLASSES}
        if request.collect_never_committed:
            going.add(MarkClass.NEVER_COMMITTED.value)
        writer = Writer(request.store, request.prefix, frozenset(going))
        files = sum(len(one.items) for one in asking)
        with self._progress.task(f"reading {files} files", None), self._open(rows) as (runner, choice):
            written = Step(partial(write_parts, writer=writer), PLACES_A_MARK)
            parts: list[bytes] = []
            _ask(runner, asking, lambda _, kind, data: parts.append(data), [written])
            return Marked(*_parts_of(parts), choice)

    def held_again(self, request: RecheckRequest, *, limit: int) -> frozenset[str]:
        """Implements the port. Reads nothing if nothing new could hold an object."""
        facts = {id: Facts() for id in request.other_metaranges}
        facts |= {id: Facts(int(Keep.SERVER)) for id in request.metaranges}
        source = _source(request)
        items: list[WorkItem] = []
        entries = 0
        if facts:
            collected = collect_ranges(request.metadata, facts, name=source.name)
            items, entries = collected.items, collected.entries
        items = [*items, *StagedRun(files=request.uncommitted).items()]
        foreign = self._foreign(request.foreign, request.storage_namespace, request.store)
        if not request.parts or not (items or foreign):
            return frozenset()
        items += [
            WorkItem(Kind.MARKED, 0, request.prefix + part.name, sort_key=bytes.fromhex(part.sha256))
            for part in request.parts
        ]
        rows = entries + sum(part.rows for part in request.parts)
        asking = [Asking(source, HeldAgain(), items, rows), *foreign]
        addresses: set[str] = set()
        with (
            self._progress.task("checking which objects are needed now", None),
            self._open(rows) as (runner, _),
        ):
            _ask(
                runner,
                asking,
                lambda _, kind, data: addresses.update(from_bytes(data)["address"].to_pylist()),
            )
        return frozenset(sorted(addresses)[: limit + 1])

    def _foreign(
        self,
        foreign: Sequence[ForeignRanges],
        storage_namespace: str,
        store: SweepStore,
        names: Sequence[str] = (),
    ) -> list[Asking]:
        """The question, for the same job, that searches other repositories for full addresses in this
        namespace. Their items have the bits of those repositories that are among ``names``."""
        packed = self._others.entries(foreign)
        if not packed:
            return []
        addresses = _addresses(storage_namespace, store)
        source = Source("other repositories", _NoMetadata(), addresses, target=0)
        bits = {name: 1 << FIRST_BIT + number for number, name in enumerate(names)}
        items = [
            WorkItem(
                Kind.FOREIGN_RANGE,
                1,
                one.repositories[0],
                weight=len(one.packed),
                mask=reduce(or_, (bits.get(_repository(r, bits), 0) for r in one.repositories)),
                body=one.packed,
            )
            for one in packed
        ]
        return [Asking(source, CountsOnly(), items, 0)]


def _names(request: MarkRequest) -> tuple[str, ...]:
    """The names of the bits that say what keeps an object: the request's, then other repositories."""
    left = MAX_VERDICT_BITS - FIRST_BIT - len(request.protectors)
    others = [f"{REPOSITORY} {name}" for name in sorted({other.name for other in request.foreign})]
    if len(others) > left:
        others = [*others[: left - 1], f"{REPOSITORY} {OTHERS}"]
    return (*request.protectors, *others)


def _repository(name: str, bits: Mapping[str, int]) -> str:
    key = f"{REPOSITORY} {name}"
    return key if key in bits else f"{REPOSITORY} {OTHERS}"


@dataclass(frozen=True)
class Marks:
    """Requests what a mark records: all candidates that the server's walk does not keep. ``last_commits``
    maps positions to ids and dates. ``names`` are those of a mask's bits from ``FIRST_BIT`` on."""

    last_commits: Mapping[int, tuple[str, int | None]]
    names: tuple[str, ...] = ()
    held_prefixes: tuple[str, ...] = ()

    def wants(self, each: Class) -> bool:
        return not (each.mask & Keep.SERVER or each.flags & Sighting.UNCOMMITTED)

    def takes(self, each: Class) -> bool:
        return mark_class(each.flags, each.mask) is not None

    def answers(self, objects: pa.Table) -> Iterator[tuple[int, PacketKind, bytes]]:
        rows = self._rows(objects)
        keys = [_NEIGHBOURHOOD.match(key).group() for key in rows["address"].to_pylist()]  # type: ignore[union-attr]
        places = (hash_texts(keys) % np.uint64(PLACES_A_MARK)).astype(np.int64)
        for place in np.unique(places).tolist():
            some = rows.filter(pa.array(places == place))
            for at in range(0, some.num_rows, ROWS_A_PIECE):
                yield place, PacketKind.OBJECTS, to_bytes(some.slice(at, ROWS_A_PIECE))

    def _rows(self, objects: pa.Table) -> pa.Table:
        """The rows of ``MARKED``."""
        flags, mask = objects["seen"].to_numpy(), objects["mask"].to_numpy()
        committed = flags & int(Sighting.ENTRY | Sighting.ALIAS) != 0
        kinds = {pair: mark_class(*pair) for pair in set(zip(flags.tolist(), mask.tolist(), strict=True))}
        classes = [kinds[pair] for pair in zip(flags.tolist(), mask.tolist(), strict=True)]
        last = [self.last_commits.get(at, (None, None)) for at in objects["last"].to_pylist()]
        paths = sorted_paths(objects["paths"])
        columns = [
            objects["address"],
            objects["size"],
            pc.fill_null(objects["version"], 0),
            objects["modified_us"],
            pc.list_slice(paths, 0, MAX_NAMES).cast(MARKED.field("paths").type),
            pa.array([id for id, _ in last], pa.string()),
            pc.if_else(pa.array(committed), EXPIRED, NEVER_COMMITTED),
            pa.array([kind.value if kind is not None else None for kind in classes], pa.string()),
            pa.array([us for _, us in last], pa.int64()),
            self._kept_by(objects, paths),
        ]
        return pa.table(columns, names=MARKED.names)

    def _kept_by(self, objects: pa.Table, paths: pa.ListArray) -> pa.Array:
        """The sorted names of what keeps each object, or would if an unusual address refers to it."""
        masks = objects["mask"].to_numpy() | objects["alias_mask"].to_numpy()
        named = {
            mask: sorted(name for at, name in enumerate(self.names) if mask >> FIRST_BIT + at & 1)
            for mask in np.unique(masks).tolist()
        }
        keepers = [named[mask] for mask in masks.tolist()]
        maybe_held = np.flatnonzero(objects["seen"].to_numpy() & int(Sighting.HELD | Sighting.ALIAS))
        for row in maybe_held.tolist():
            of_row = paths[row].as_py()
            prefixes = [p for p in self.held_prefixes if any(path.startswith(p) for path in of_row)]
            keepers[row] = sorted([*keepers[row], *(f"hold prefix {prefix}" for prefix in prefixes)])
        return pa.array(keepers, MARKED.field(KEPT_BY).type)


@dataclass(frozen=True)
class HeldAgain:
    """Requests objects of a mark that something holds now."""

    def wants(self, each: Class) -> bool:
        # An uncommitted object has no path either, so both can be one row, whichever is read first.
        return bool(each.flags & (Sighting.MARKED | Sighting.UNCOMMITTED))

    def takes(self, each: Class) -> bool:
        holders = Sighting.HELD | Sighting.ALIAS | Sighting.UNCOMMITTED | Sighting.FOREIGN
        return bool(each.flags & Sighting.MARKED and (each.flags & holders or each.mask & Keep.SERVER))

    def answers(self, objects: pa.Table) -> Iterator[tuple[int, PacketKind, bytes]]:
        yield 0, PacketKind.OBJECTS, to_bytes(objects.select(["address"]))


def mark_class(flags: int, mask: int) -> MarkClass | None:
    """The class of an object, or None if it is no candidate or the server keeps it. The order of the tests is
    the rule: first what the server keeps, then what anything else keeps. Only the rest may be deleted."""
    if not flags & Sighting.OLD or flags & Sighting.UNCOMMITTED or mask & Keep.SERVER:
        return None
    if mask & Keep.DOCUMENTED:
        return MarkClass.AT_RISK
    if flags & (Sighting.HELD | Sighting.FOREIGN) or mask & Keep.PROTECTED:
        return MarkClass.PROTECTED
    if flags & Sighting.ALIAS:
        return MarkClass.UNCERTAIN_ADDRESS
    if mask & (Keep.EXPANDED | Keep.MARGIN):
        return MarkClass.NEAR_LIMIT
    if flags & Sighting.ENTRY:
        return MarkClass.NEWLY_EXPIRED if mask & Keep.BEFORE else MarkClass.BACKLOG
    return MarkClass.NEVER_COMMITTED


def _ask(runner: Runner, asking: Sequence[Asking], take: Take, more: Sequence[Step] = ()) -> None:
    """Raises at the end if any repository could not be read."""
    for answer in ask(runner, asking, more, take):
        answer.checked()


def _part(packet: Packet) -> Data:
    if packet.of == PacketKind.ERROR:
        raise failure(bytes(packet.data))
    return packet.data


class _NoMetadata:
    """A metadata reader for a listing, which reads no metadata."""

    def read_metadata(self, kind: str, id: str) -> bytes:
        raise SimulationFailed(f"a listing asked for {kind} {id}")


def _addresses(storage_namespace: str, store: SweepStore) -> Addresses:
    return Addresses((storage_namespace, store.url))


def _source(request: MarkRequest | RecheckRequest) -> Source:
    return Source(
        request.store.url,
        request.metadata,
        _addresses(request.storage_namespace, request.store),
        request.store,
        held_prefixes=request.held_prefixes,
        copies=request.copies if isinstance(request, RecheckRequest) else "",
    )


def _parts_of(
    written: Iterable[Data],
) -> tuple[tuple[Part, ...], tuple[Part, ...], dict[MarkClass, Amount]]:
    """The parts that the workers wrote, sorted by name, and amounts by class."""
    going: list[Part] = []
    kept: list[Part] = []
    amounts: dict[MarkClass, Amount] = {}
    for data in written:
        table, part, of_part = json.loads(bytes(data))
        (going if table == GOING else kept).append(Part(*part))
        for name, amount in of_part.items():
            kind = MarkClass(name)
            amounts[kind] = amounts.get(kind, Amount()) + Amount(*amount)
    by_name = attrgetter("name")
    return tuple(sorted(going, key=by_name)), tuple(sorted(kept, key=by_name)), amounts
