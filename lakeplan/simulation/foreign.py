"""Full addresses in other repositories. Each range is read once, and its full addresses are cached.

A range's id is the SHA-256 of its records, so its content never changes. Neither its index nor a metarange
says whether it has full addresses.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import random
import secrets
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lakeplan import __version__
from lakeplan.errors import (
    DataGone,
    LakeplanError,
    SimulationFailed,
    StorageNotFound,
    WrongContent,
    failure,
    report_of,
)
from lakeplan.formats.compiled import is_worth_it
from lakeplan.formats.range_arrays import odd_entries, pack_odd
from lakeplan.formats.ranges import KnownRanges, is_file_id, read_metarange, read_range_arrays
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.simulation.cache import LEFTOVER, FolderCache
from lakeplan.simulation.inputs import FETCHES
from lakeplan.simulation.local import Packet, PacketKind
from lakeplan.simulation.requests import ForeignRanges
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
from lakeplan.stores.folder import make_folders
from lakeplan.values.gates import MISSING_METADATA
from lakeplan.values.local import PRIVATE_FOLDER, new_file
from lakeplan.values.own_files import is_own, locked, read_own, user_folder
from lakeplan.values.progress import Progress
from lakeplan.values.repository import RangeInfo
from lakeplan.values.simulation import RunnerChoice


@dataclass
class ForeignFacts:
    """Facts that never change, because an id is a hash of the content. ``ranges``: by range id, the entries
    that may refer to an object of another repository, packed (``range_arrays.odd_entries``), or nothing.
    ``metaranges``: by metarange id, the ranges that have such entries. A metarange is listed only if all its
    ranges are known."""

    ranges: dict[str, bytes] = field(default_factory=dict)
    metaranges: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def update(self, other: ForeignFacts) -> None:
        self.ranges.update(other.ranges)
        self.metaranges.update(other.metaranges)

    def only(self, metaranges: Iterable[str]) -> ForeignFacts:
        """The facts of these metaranges, without ranges that have no such entries."""
        some = {id: self.metaranges[id] for id in metaranges if id in self.metaranges}
        return ForeignFacts({id: self.ranges[id] for ids in some.values() for id in ids}, some)


OpenRunner = Callable[[int], AbstractContextManager[tuple[Runner, RunnerChoice]]]
"""Opens the runner for this many entries."""

SAMPLE_METARANGES, SAMPLE_RANGES = 20, 100
"""The most files of each kind, over all repositories, that are read again to verify a cache."""
GONE = (
    "Restore the file, or delete the repository if nobody needs it. A commit of this repository needs the"
    " file, and without it lakeplan cannot determine which objects of other repositories the commit uses. If"
    f" it uses no objects of the swept repository, override {MISSING_METADATA.name} for this repository in"
    " the tree."
)
MISSING = (DataGone, StorageNotFound, WrongContent)
_ID = 64


class ForeignRange(NamedTuple):
    """A range of another repository. ``packed``: the entries of a range that ``pack_odd`` packed.
    ``repositories``: those that list the range."""

    packed: bytes
    repositories: list[str]


class ForeignReader:
    """Reads other repositories once for all repositories that a command marks."""

    def __init__(
        self,
        open_runner: OpenRunner,
        progress: Progress,
        cache: FolderForeignCache | None,
        *,
        verify: bool = False,
    ) -> None:
        self._open = open_runner
        self._progress = progress
        self._cache = cache
        self._verify = verify
        self._verified: set[str] = set()
        self._facts: dict[str, ForeignFacts] = {}
        self._found: dict[str, tuple[tuple[str, ...], dict[str, bytes]]] = {}
        """By repository: its metaranges, and the entries of their ranges. All marks of a command request the
        same."""
        self._lost: dict[str, LakeplanError] = {}
        """The repositories that lack a metadata file, with the last error."""

    def entries(self, foreign: Sequence[ForeignRanges]) -> list[ForeignRange]:
        """All ranges of these metaranges that have such entries, each once, except files that are missing
        where they may be. Raises LakeplanError for what cannot be read, and if ``verify`` finds the cache
        wrong."""
        for other in foreign:
            if other.name not in self._facts:
                self._facts[other.name] = self._cache.load(other.name) if self._cache else ForeignFacts()
        if self._verify:
            self._check([other for other in foreign if other.name not in self._verified])
            self._verified.update(other.name for other in foreign)
        for other in foreign:
            if self._lost.pop(other.name, None):  # it may be there again, and others do not accept the loss
                self._found.pop(other.name, None)
        new = [
            other
            for other in foreign
            if other.name not in self._found or self._found[other.name][0] is not other.metaranges
        ]
        read = self._read_new(new)
        self._check_lost(foreign)
        for other in new:
            facts = self._facts[other.name]
            found = {id: read.get((other.name, id)) for id in other.metaranges}
            known = (facts.metaranges[id] if ids is None else ids for id, ids in found.items())
            ids = dict.fromkeys(id for one in known for id in one)
            self._found[other.name] = other.metaranges, {id: facts.ranges[id] for id in ids}
        by_id: dict[str, ForeignRange] = {}
        for other in foreign:
            for id, packed in self._found[other.name][1].items():
                by_id.setdefault(id, ForeignRange(packed, [])).repositories.append(other.name)
        return list(by_id.values())

    def _check_lost(self, foreign: Sequence[ForeignRanges]) -> None:
        for other in foreign:
            if error := self._lost.get(other.name):
                if not other.may_lack:
                    raise error
                _log.warning(
                    "%s; objects that only such files refer to are treated as not needed, because the gate"
                    " %s is overridden",
                    error,
                    MISSING_METADATA.name,
                )

    def _read_new(self, foreign: Sequence[ForeignRanges]) -> dict[tuple[str, str], tuple[str, ...]]:
        """Reads new metaranges and the new ranges in them. Returns their ranges that have such entries, as
        far as no file is missing, by repository and metarange."""
        wanted = [
            (other, id)
            for other in foreign
            for id in other.metaranges
            if id not in self._facts[other.name].metaranges
        ]
        if not wanted:
            return {}
        listed = self._ranges_of(wanted)
        unread: dict[tuple[str, str], tuple[ForeignRanges, RangeInfo]] = {}
        for (other, _), infos in listed:
            for info in infos:
                if info.id not in self._facts[other.name].ranges:
                    unread.setdefault((other.name, info.id), (other, info))
        known = self._read_ranges(list(unread.values()))
        for name, id, packed in known:
            self._facts[name].ranges[id] = packed
        found: dict[tuple[str, str], tuple[str, ...]] = {(other.name, id): () for other, id in wanted}
        for (other, id), infos in listed:
            facts = self._facts[other.name]
            ids = found[other.name, id] = tuple(info.id for info in infos if facts.ranges.get(info.id))
            if all(info.id in facts.ranges for info in infos):
                facts.metaranges[id] = ids
        if self._cache is not None:
            changed = {other.name: other for other, _ in wanted}
            for name, other in changed.items():
                self._cache.save(name, self._facts[name], needed=other.metaranges)
        return found

    def _ranges_of(
        self, wanted: Sequence[tuple[ForeignRanges, str]]
    ) -> list[tuple[tuple[ForeignRanges, str], list[RangeInfo]]]:
        listed = []
        records: dict[str, KnownRanges] = {}
        with (
            self._progress.task("reading metaranges of other repositories", len(wanted)) as step,
            ThreadPoolExecutor(FETCHES) as pool,
        ):
            for one, fetched in ahead(wanted, _fetch_metarange, pool, FETCHES):
                other, id = one
                where = f"{other.name}: metarange {id}"
                known = records.setdefault(other.name, {})
                step()
                try:
                    infos = read_metarange(fetched(), name=where, verify_id=id, known=known)
                except MISSING as error:
                    self._lost[other.name] = error.replaced(where=where, hint=GONE)
                    continue
                listed.append((one, infos))
        return listed

    def _read_ranges(self, unread: Sequence[tuple[ForeignRanges, RangeInfo]]) -> list[tuple[str, str, bytes]]:
        """Repository, id and packed entries of each range that is not missing. Raises the first other error.
        Nothing is cached then, because the mark cannot be made anyway."""
        if not unread:
            return []
        sources: dict[str, tuple[int, MetadataReader]] = {}
        items = []
        for other, info in unread:
            number, _ = sources.setdefault(other.name, (len(sources), other.metadata))
            items.append(WorkItem(Kind.FOREIGN_RANGE, number, info.id, weight=max(info.estimated_size, 0)))
        names = list(sources)
        entries = sum(info.count for _, info in unread)
        readers = [(name, reader) for name, (_, reader) in sources.items()]
        read = partial(_read_odd, readers=readers, use_compiled=is_worth_it(entries))
        odd_entries = []
        with (
            self._progress.task(f"reading {len(items)} ranges of other repositories", None),
            self._open(entries) as (runner, _),
        ):
            bins = pack(numbered(items), runner.parallelism)
            for packet in runner.run(bins, [Step(read, 0)], leaves_of(())):
                data = bytes(packet.data)
                if packet.of == PacketKind.ERROR:
                    error = failure(data)
                    if not isinstance(error, MISSING):
                        raise error
                    self._lost[names[packet.source]] = error.replaced(hint=GONE)
                    continue
                odd_entries.append((names[packet.source], data[:_ID].decode(), data[_ID:]))
        return odd_entries

    def _check(self, foreign: Sequence[ForeignRanges]) -> None:
        """Reads a sample of the cached facts again. Raises SimulationFailed if one differs."""
        cached = [
            (other, id)
            for other in foreign
            for id in other.metaranges
            if id in self._facts[other.name].metaranges
        ]
        chosen = random.SystemRandom().sample(cached, min(SAMPLE_METARANGES, len(cached)))
        listed = self._ranges_of(chosen)
        ranges = {(other.name, info.id): (other, info) for (other, _), infos in listed for info in infos}
        keys = random.SystemRandom().sample(sorted(ranges), min(SAMPLE_RANGES, len(ranges)))
        read = {(name, id): packed for name, id, packed in self._read_ranges([ranges[key] for key in keys])}
        self._check_lost(foreign)
        for (other, id), infos in listed:
            known = set(self._facts[other.name].metaranges[id])
            if not known <= {info.id for info in infos}:
                raise self._wrong(f"{other.name}: metarange {id}")
            for info in infos:
                packed = read.get((other.name, info.id))
                if packed is not None and bool(packed) != (info.id in known):
                    raise self._wrong(f"{other.name}: range {info.id}")
        for (name, id), packed in read.items():
            if self._facts[name].ranges.get(id, packed) != packed:
                raise self._wrong(f"{name}: range {id}")

    def _wrong(self, where: str) -> LakeplanError:
        place = self._cache.where if self._cache else ""
        return SimulationFailed(
            "the cached addresses of another repository differ from those in its storage",
            where=where,
            hint=(
                f"Remove the cache in {place}, find out who changed it, and run `lakeplan sweep mark` again."
            ),
        )


def _fetch_metarange(one: tuple[ForeignRanges, str]) -> bytes:
    other, id = one
    if not is_file_id(id):  # clients can create commits with any text here
        raise WrongContent("this is not the id of a metarange")
    return other.metadata.read_metadata("meta_range", id)


def _read_odd(
    packets: Iterable[Packet], _: Leaves, *, readers: Sequence[tuple[str, MetadataReader]], use_compiled: bool
) -> Iterator[Packet]:
    """The step that reads ranges. ``readers``: name and reader of each repository, by number."""
    with ThreadPoolExecutor(FETCH_AHEAD) as pool:

        def fetch(item: WorkItem) -> bytes:
            return readers[item.source][1].read_metadata("range", item.name)

        for packet in packets:
            for item, fetched in ahead(unpack_bin(packet.data), fetch, pool, FETCH_AHEAD):
                where = f"{readers[item.source][0]}: range {item.name}"
                try:
                    arrays = read_range_arrays(
                        fetched(), name=where, verify_id=item.name, use_compiled=use_compiled
                    )
                    data = item.name.encode() + pack_odd(odd_entries(arrays))
                    yield Packet(0, item.source, 0, PacketKind.FOREIGN, data)
                except LakeplanError as error:
                    yield Packet(0, item.source, 0, PacketKind.ERROR, report_of(error, where).encode())


FILE_BYTES = 64 << 20
"""The most for one repository: about a million metaranges and ranges without such entries."""
TOTAL_BYTES = 1 << 30
"""The most for all repositories. The least recently written are removed first."""
KEY_BYTES = 32
_MAGIC = f"lakeplan foreign facts 1 {__version__}\n".encode()
_DIGEST = hashlib.sha256
_log = logging.getLogger(__name__)


def open_foreign_cache(environ: Mapping[str, str], tree: Path) -> FolderForeignCache | None:
    """The cache. None in CI, or if a folder is in the tree's checkout or not private to this user."""
    cache, state = user_folder(environ, "CACHE"), user_folder(environ, "STATE")
    if environ.get("CI") or cache is None or state is None:
        return None
    folders = [cache / "lakeplan" / "foreign", state / "lakeplan" / "keys"]
    top = _checkout_of(tree)
    for folder in folders:
        if top in Path(os.path.realpath(folder)).parents or not _is_private(folder):
            why = "is in the tree's checkout or is not private to this user"
            _log.info("data of other repositories is not cached, because the folder %s %s", folder, why)
            return None
    key = _key(folders[1] / "foreign.key")
    return FolderForeignCache(folders[0], key) if key is not None else None


class FolderForeignCache:
    """Facts by repository. They allow deletions, so nobody but this user may have written them. Only this
    user and root can change the folder and every folder above it. Each file has an HMAC of its content and
    its name, whose key is in another private folder of the user. A cache that a CI service, a backup or an
    archive restored lacks that key and is not used. No cache is used in CI, inside the tree, or where
    ``--cache`` points.

    There is one file for each repository. It is written under another name and renamed, and writers take
    turns by a lock. A cache that cannot be read or written counts as empty.
    """

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder = folder
        self._key = key

    @property
    def where(self) -> str:
        """The folder, for error messages."""
        return str(self._folder)

    def load(self, repository: str) -> ForeignFacts:
        name = _name(repository)
        data = read_own(self._folder / name, FILE_BYTES)
        if data is None:
            return ForeignFacts()
        front = len(_MAGIC) + _DIGEST().digest_size
        if not hmac.compare_digest(data[len(_MAGIC) : front], self._digest(name, data[front:])):
            _log.info(
                "the cache of %s is not used, because it is damaged, or was written by another user or"
                " version",
                repository,
            )
            return ForeignFacts()
        content = json.loads(zlib.decompress(data[front:]))
        ranges = dict.fromkeys(content["empty"], b"")
        ranges |= {id: b64decode(text) for id, text in content["odd"].items()}
        return ForeignFacts(ranges, {id: tuple(ids) for id, ids in content["metaranges"].items()})

    def save(self, repository: str, facts: ForeignFacts, *, needed: Iterable[str]) -> None:
        """Adds facts to the stored ones. If there are too many, keeps those of the ``needed`` metaranges."""
        name = _name(repository)
        try:
            with locked(self._folder / ".lock"):
                merged = self.load(repository)
                merged.update(facts)
                data = _packed(merged)
                if len(data) > FILE_BYTES // 2:
                    data = _packed(merged.only(needed))
                data = _MAGIC + self._digest(name, data) + data
                files = FolderCache(str(self._folder), TOTAL_BYTES)
                if len(data) <= FILE_BYTES:
                    files.put(name, data)
                files.trim()
        except OSError as error:  # a full disk is no reason to stop
            _log.info("the cache of %s could not be written: %s", repository, error.strerror)

    def _digest(self, name: str, data: bytes) -> bytes:
        return hmac.new(self._key, _MAGIC + name.encode() + b"\n" + data, _DIGEST).digest()


def _packed(facts: ForeignFacts) -> bytes:
    content = {
        "empty": [id for id, packed in facts.ranges.items() if not packed],
        "odd": {id: b64encode(packed).decode() for id, packed in facts.ranges.items() if packed},
        "metaranges": facts.metaranges,
    }
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 1)


def _name(repository: str) -> str:
    return f"{hashlib.sha256(repository.encode()).hexdigest()[:32]}.facts"


def _is_private(folder: Path) -> bool:
    try:
        make_folders(str(folder), PRIVATE_FOLDER)
        return is_own(folder)
    except OSError:
        return False


def _key(path: Path) -> bytes | None:
    """The user's key, created on first use. If two processes create one, the first counts."""
    with contextlib.suppress(OSError):
        if not path.exists():
            with new_file(path, prefix=LEFTOVER) as file:
                file.write(secrets.token_bytes(KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):
                    os.link(file.name, path)
    key = read_own(path, KEY_BYTES)
    return key if key is not None and len(key) == KEY_BYTES else None


def _checkout_of(tree: Path) -> Path:
    """The real folder of the git work tree that contains the tree, or else of the tree itself."""
    real = Path(os.path.realpath(tree))
    return next((folder for folder in (real, *real.parents) if (folder / ".git").exists()), real)
