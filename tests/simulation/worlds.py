"""The inputs of steps, in memory and again as dictionaries: which object is where."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from lakeplan.errors import StorageNotFound
from lakeplan.formats.collector import write_uncommitted
from lakeplan.formats.namespace import Addresses
from lakeplan.formats.range_arrays import odd_entries, pack_odd
from lakeplan.formats.ranges import read_range_arrays, write_range
from lakeplan.simulation.engine import Asking, CountsOnly, ask
from lakeplan.simulation.local import PacketKind, from_bytes, to_bytes
from lakeplan.simulation.observing import Source
from lakeplan.simulation.runners import Kind, Runner, WorkItem
from lakeplan.simulation.table import Class
from lakeplan.simulation.verdicts import Sighting
from lakeplan.values.repository import AddressType, Entry, StoredObject

URL = "s3://bucket/ns"
YOUNG_FROM = 1_000
HELD_PREFIX = "b/"
NOWHERE = Sighting(0)


@dataclass(frozen=True)
class Meant:
    """An entry, the key that it means or may mean (None: nothing here), and how it is seen."""

    entry: Entry
    key: str | None
    flags: Sighting = NOWHERE


def relative(path: str, key: str, size: int) -> Meant:
    is_candidate = key.startswith("data/") or "/" not in key
    seen = Sighting.ENTRY | Sighting.CANDIDATE if is_candidate else Sighting.ENTRY
    return Meant(Entry(path, key, AddressType.RELATIVE, size), key, seen)


def inside(path: str, key: str, size: int) -> Meant:
    found = relative(path, key, size)
    return replace(found, entry=Entry(path, f"{URL}/{key}", AddressType.FULL, size))


def alias(path: str, key: str, size: int) -> Meant:
    return Meant(Entry(path, f"s3://any/where/{key}", AddressType.FULL, size), key, Sighting.ALIAS)


def outside(path: str, key: str, size: int) -> Meant:
    return Meant(Entry(path, f"s3://imports/{path}", AddressType.FULL, size), None)


@dataclass(frozen=True)
class Range:
    """What lists a range, and what it holds. ``foreign``: it is another repository's."""

    mask: int
    last: int
    holders: int
    entries: tuple[Meant, ...]
    foreign: bool = False


@dataclass(frozen=True)
class World:
    """``stored`` maps keys to sizes and whether they are old."""

    ranges: Sequence[Range] = ()
    stored: dict[str, tuple[int, bool]] = field(default_factory=dict)
    staged: Sequence[Sequence[str]] = ()
    held: bool = False

    @property
    def foreign(self) -> list[Range]:
        return [each for each in self.ranges if each.foreign]

    @property
    def own(self) -> list[Range]:
        return [each for each in self.ranges if not each.foreign]


@dataclass
class Found:
    flags: Sighting = NOWHERE
    mask: int = 0
    alias_mask: int = 0
    holders: frozenset[int] = frozenset()
    last: int = -1
    size: int = 0
    paths: frozenset[str] = frozenset()

    @property
    def of(self) -> Class:
        return Class(int(self.flags), self.mask, self.alias_mask, self.holders)


def expected(world: World, name: Callable[[str], Hashable] = str) -> dict[Hashable, Found]:
    """Every object by its key, or by what ``name`` makes of it."""
    found: dict[Hashable, Found] = defaultdict(Found)
    for each in world.ranges:
        for meant in each.entries:
            if meant.key is None:
                continue
            if not each.foreign:
                _add(found[name(meant.key)], each, meant, held=world.held)
            elif meant.entry.address_type is AddressType.FULL:
                found[name(meant.key)].flags |= (
                    Sighting.ALIAS if meant.flags is Sighting.ALIAS else Sighting.FOREIGN
                )
    for run in world.staged:
        for key in run:
            found[name(key)].flags |= Sighting.UNCOMMITTED
    stored: Counter[Hashable] = Counter()
    for key, (size, old) in world.stored.items():
        found[name(key)].flags |= Sighting.LISTED | (Sighting.OLD if old else NOWHERE)
        stored[name(key)] = max(stored[name(key)], size)
    for named, size in stored.items():
        found[named].size = size  # what the storage says
    return dict(found)


def _add(one: Found, each: Range, meant: Meant, *, held: bool) -> None:
    one.flags |= meant.flags
    if meant.flags is Sighting.ALIAS:
        one.alias_mask |= each.mask
    else:
        one.mask |= each.mask
        if held and meant.entry.path.startswith(HELD_PREFIX):
            one.flags |= Sighting.HELD
    if each.holders >= 0:
        one.holders |= {each.holders}
    one.last = max(one.last, each.last)
    one.size = max(one.size, meant.entry.size)
    one.paths |= {meant.entry.path}


class Files:
    """``MetadataReader`` and ``NamespaceReader`` of a world. ``read`` notes names."""

    url = URL

    def __init__(self, stored: dict[str, tuple[int, bool]] | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self.names: list[str] = []
        self.stored = stored or {}

    def read_metadata(self, kind: str, id: str) -> bytes:
        return self.read(id)

    def read(self, key: str) -> bytes:
        self.names.append(key)
        if key not in self.files:
            raise StorageNotFound("does not exist", where=key)
        return self.files[key]

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        for key, (size, old) in self.stored.items():
            if key.startswith(prefix) and (recursive or "/" not in key[len(prefix) :]):
                yield StoredObject(key, size, YOUNG_FROM - 1 if old else YOUNG_FROM)

    def list_prefixes(self, prefix: str = "") -> list[str]:
        folders = {k[len(prefix) :].partition("/") for k in self.stored if k.startswith(prefix)}
        return sorted(prefix + name + slash for name, slash, _ in folders if slash)


def items_of(world: World, files: Files) -> tuple[list[WorkItem], list[WorkItem]]:
    """The items of the repository and of another one."""
    own = [_range(each, files, 0) for each in world.own]
    # what holds nothing is known without it
    foreign = [item for each in world.foreign if (item := _range(each, files, 1)).body]
    if world.stored:
        own.append(WorkItem(Kind.ROOT_LISTING, 0, ""))
        own += [WorkItem(Kind.LISTING, 0, folder) for folder in files.list_prefixes("data/")]
    for number, run in enumerate(world.staged):
        files.files[f"run-{number}"] = write_uncommitted(list(run), [1] * len(run))
        own.append(WorkItem(Kind.UNCOMMITTED, 0, f"run-{number}"))
    return own, foreign


def _range(each: Range, files: Files, source: int) -> WorkItem:
    info, data = write_range(sorted((m.entry for m in each.entries), key=lambda e: e.path.encode()))
    files.files[info.id] = data
    if each.foreign:
        odd = pack_odd(odd_entries(read_range_arrays(data, name=info.id)))
        return WorkItem(Kind.FOREIGN_RANGE, source, info.id, 1, body=odd)
    facts = (each.mask, each.last, each.holders)
    return WorkItem(Kind.RANGE, source, info.id, 1, *facts, sort_key=info.min_key)


@dataclass(frozen=True)
class Unkept:
    """Asks for objects that no commit with one of ``bits`` holds or may hold, as they are. ``early``: texts
    are sent of those alone that may be asked for."""

    bits: int
    early: bool = True

    def wants(self, each: Class) -> bool:
        return not (self.early and each.any_mask & self.bits)

    def takes(self, each: Class) -> bool:
        return not each.any_mask & self.bits

    def answers(self, objects: Any) -> Iterator[tuple[int, PacketKind, bytes]]:
        yield 0, PacketKind.OBJECTS, to_bytes(objects)


@dataclass
class Said:
    """``classes`` are objects and bytes."""

    classes: dict[Class, tuple[int, int]]
    rows: list[dict[str, Any]]
    errors: list[Exception]


def said_of(
    runner: Runner, world: World, question: Any, *, exact: bool = False, files: Files | None = None
) -> Said:
    """The output of the steps. ``files``: those of the world, if they were changed."""
    files = files or Files(world.stored)
    own, foreign = items_of(world, files)
    held = (HELD_PREFIX,) if world.held else ()
    source = Source("repo", files, Addresses((URL,)), files, YOUNG_FROM, held)  # type: ignore[arg-type]
    asking = [Asking(source, question, own, len(own) * 4, exact)]
    if foreign:
        other = Source("other", files, Addresses((URL,)), target=0)
        asking.append(Asking(other, CountsOnly(), foreign, 0))
    said = Said({}, [], [])
    ends = ask(runner, asking, take=lambda _, kind, data: said.rows.extend(from_bytes(data).to_pylist()))
    for place, found in enumerate(ends):
        if found.error is not None:
            said.errors.append(found.error)
        for each in found.classes:
            assert place == 0
            key = Class(int(each.flags), each.mask, each.alias_mask, frozenset(each.holders))
            assert key not in said.classes
            said.classes[key] = (each.amount.objects, each.amount.size_bytes)
    return said


def classes_of(found: dict[Hashable, Found]) -> dict[Class, tuple[int, int]]:
    classes: dict[Class, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for one in found.values():
        objects, size = classes[one.of]
        classes[one.of] = (objects + 1, size + one.size)
    return dict(classes)


# Random worlds ----------------------------------------------------------------------------------------

KEYS = [*(f"data/p{n % 2}/o{n}" for n in range(6)), "data/direct", "root", "data/ü"]
PATHS = ["a/1", "a/2", "b/x/3", "c", "d/ü"]

_meant = st.builds(
    lambda make, path, key, size: make(path, key, size),
    st.sampled_from([relative, relative, relative, inside, alias, outside]),
    st.sampled_from(PATHS),
    st.sampled_from([*(key for key in KEYS if key.startswith("data/") and key.isascii()), "data/p9/x"]),
    st.integers(0, 2**40),
) | st.builds(relative, st.sampled_from(PATHS), st.sampled_from([*KEYS, "other/place"]), st.integers(0, 99))
_entries = st.lists(_meant, max_size=5, unique_by=lambda m: m.entry.path).map(tuple)
_ranges = st.lists(
    st.builds(
        Range,
        st.integers(0, 7),
        st.integers(-1, 5),
        st.integers(-1, 3),
        _entries,
        st.sampled_from([False, False, False, True]),
    ),
    max_size=9,
    unique_by=lambda r: (
        r.foreign,
        tuple(sorted((e.entry.path, e.entry.address, e.entry.size) for e in r.entries)),
    ),
)
worlds = st.builds(
    World,
    _ranges,
    st.dictionaries(st.sampled_from(KEYS), st.tuples(st.integers(0, 2**50), st.booleans()), max_size=7),
    st.lists(st.lists(st.sampled_from(KEYS), max_size=3, unique=True), max_size=2),
    st.booleans(),
)
