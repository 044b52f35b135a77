"""Finds what WHAT names (a path, a commit, a branch or an address), and which commits hold an object.
Metaranges and ranges are read with a limited number of concurrent requests."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, Protocol

from lakeplan.errors import NotFound, PermissionDenied, UnexpectedAnswer, UsageError
from lakeplan.formats.namespace import is_usual_key, keeps_its_name
from lakeplan.formats.ranges import RangeColumns, read_metarange, read_range_columns
from lakeplan.lakefs.protocols import MetadataReader, StagingReader
from lakeplan.retention.graph import CommitGraph
from lakeplan.simulation.inputs import fetch_metadata
from lakeplan.tree.structure import nearest
from lakeplan.values.progress import Progress
from lakeplan.values.repository import AddressType, RangeInfo
from lakeplan.values.units import count_of

Kind = Literal["path", "commit", "branch", "address"]
KINDS: tuple[Kind, ...] = ("path", "commit", "branch", "address")
SHORTEST_PREFIX = 6
NAMED = 5

_HEX = re.compile(r"[0-9a-f]{6,64}\Z")
_ADDRESS = re.compile(r"data/(![^/]+/[^/]+/)?[0-9a-v]{20}/[0-9a-v]{20}(,[\w-]+)?\Z")
"""The form of addresses of new objects on a server (``lakefs/format.md``). People do not name paths like
that."""


@dataclass(frozen=True)
class Subject:
    """The subject of an explanation. ``text`` is the path, full commit id, branch or address. ``ref`` and
    ``ref_commit`` say where to find the path (None: anywhere). ``via`` is the name of a commit that was not
    given by its id, such as ``tag v1.0``."""

    kind: Kind
    text: str
    ref: str | None = None
    ref_commit: str | None = None
    via: str | None = None


def read_subject(
    text: str, graph: CommitGraph, *, ref: str | None = None, kind: Kind | None = None
) -> Subject:
    """Return the subject that a text names. Raises UsageError for an empty text, an unknown ref or branch,
    and a prefix of several commit ids."""
    if not text:
        raise UsageError("WHAT is empty", hint="Enter a path, a commit, a branch or an address.")
    if ref is not None:
        if kind not in (None, "path"):
            raise UsageError(f"--ref can only be used with a path, not with a {kind}", hint="Remove --ref.")
        if (named := _find_ref(ref, graph)) is None:
            close = nearest_ref(ref, graph)
            hint = f"Did you mean --ref {close}?" if close else "Check --ref."
            raise UsageError(f"{ref!r} is not a branch, tag or commit", hint=hint)
        return Subject("path", text, ref, named)
    match kind:
        case "address":
            return Subject("address", text)
        case "branch":
            return _branch(text, graph)
        case "commit":
            return _commit(text, graph)
        case "path":
            return _path(text, graph)
        case None:
            return _guess(text, graph)


def _guess(text: str, graph: CommitGraph) -> Subject:
    if "://" in text or _ADDRESS.match(text):
        return Subject("address", text)
    if any(branch.id == text for branch in graph.branches):
        return Subject("branch", text)
    if any(tag.id == text for tag in graph.tags) or (_HEX.match(text) and _with_prefix(text, graph)):
        return _commit(text, graph)
    return _path(text, graph)


def _path(text: str, graph: CommitGraph) -> Subject:
    before, colon, path = text.partition(":")
    # A path may contain a colon, so the text before it is a ref only if that ref exists.
    if colon and path and (commit := _find_ref(before, graph)) is not None:
        return Subject("path", path, before, commit)
    return Subject("path", text)


def _branch(text: str, graph: CommitGraph) -> Subject:
    if not any(branch.id == text for branch in graph.branches):
        raise UsageError(
            f"branch {text!r} does not exist", hint="Run `lakectl branch list` to list the branches."
        )
    return Subject("branch", text)


def _commit(text: str, graph: CommitGraph) -> Subject:
    tag = next((t for t in graph.tags if t.id == text), None)
    if tag is not None:
        return Subject("commit", tag.commit_id, via=f"tag {tag.id}")
    ids = _with_prefix(text, graph) if _HEX.match(text) else []
    if text in graph.index:
        ids = [text]
    if len(ids) == 1:
        return Subject("commit", ids[0])
    if ids:
        more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
        raise UsageError(
            f"{len(ids)} commit ids begin with {text}: {', '.join(i[:16] for i in ids[:NAMED])}{more}",
            hint="Enter more digits of the id.",
        )
    raise UsageError(
        f"commit {text!r} does not exist",
        hint=f"Enter the full id, or at least {SHORTEST_PREFIX} digits of it.",
    )


def nearest_ref(name: str, graph: CommitGraph) -> str | None:
    """Return the branch or tag whose name is most similar, or None if none is similar."""
    return nearest(name, [*(branch.id for branch in graph.branches), *(tag.id for tag in graph.tags)])


def _find_ref(ref: str, graph: CommitGraph) -> str | None:
    heads = {tag.id: tag.commit_id for tag in graph.tags}
    heads.update((branch.id, branch.commit_id) for branch in graph.branches)
    if ref in heads:
        return heads[ref]
    if ref in graph.index:
        return ref
    ids = _with_prefix(ref, graph) if _HEX.match(ref) else []
    if len(ids) > 1:
        return _commit(ref, graph).text  # raises an error, because the id is ambiguous
    return ids[0] if ids else None


def _with_prefix(prefix: str, graph: CommitGraph) -> list[str]:
    first = bisect_left(graph.ids, prefix)
    return list(
        takewhile(lambda i: i.startswith(prefix), (graph.ids[n] for n in range(first, len(graph.ids))))
    )


class AddressBook(Protocol):
    """Resolves the addresses of entries to objects of the namespace."""

    def meaning(self, address: str, address_type: int) -> tuple[str | None, list[str]]:
        """Return the key that the address certainly refers to, if any, and other keys that it may refer to
        and therefore protects."""

    def protected(self, address: str, address_type: int) -> list[str]:
        """Return every key that the address refers to or may refer to."""


@dataclass
class Holding:
    """One address with the entries that name it. ``metaranges`` certainly hold it. ``aliases`` may hold it,
    by a full address. ``size`` is the greatest size among its entries, in bytes. If ``maybe_inside``, the
    address seems to be outside, but the namespace's own URL is not known, so it may be an object of the
    namespace."""

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


class Search:
    """Searches one history. ``name`` is the repository or namespace in errors."""

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
        self.read = Counter(metaranges=0, ranges=0, entries=0)
        self._listed: dict[str, list[RangeInfo]] = {}
        self._commits: dict[str, list[int]] = {}
        for number, meta_range_id in enumerate(graph.meta_range_ids):
            if meta_range_id:
                self._commits.setdefault(meta_range_id, []).append(number)

    @property
    def metaranges(self) -> list[str]:
        return list(self._commits)

    def commits_of(self, holding: Holding) -> list[int]:
        """Return the numbers of the commits that hold or may hold the object, in ascending order."""
        metaranges = holding.metaranges | holding.aliases
        return sorted(number for m in metaranges for number in self._commits.get(m, ()))

    def holding(self, address: str, address_type: int) -> Holding:
        """Return a new holding for the address of an entry."""
        inside, others = self._addresses.meaning(address, address_type)
        if inside is not None:
            return Holding(inside)
        return Holding(address, inside=False, maybe_inside=bool(others))

    def path(self, path: str, metaranges: Collection[str]) -> list[Holding]:
        """Return every object at ``path`` in these metaranges."""
        key = path.encode(errors="surrogateescape")
        shown = key.decode(errors="backslashreplace")
        holdings: dict[str, Holding] = {}
        for columns, holders in self._ranges(metaranges, lambda info: info.min_key <= key <= info.max_key):
            if shown not in columns.paths:
                continue
            n = columns.paths.index(shown)
            address = columns.addresses[n]
            holding = self.holding(address, columns.address_types[n])
            holding = holdings.setdefault(holding.address, holding)
            holding.note(shown, columns.sizes[n], holders)
        return list(holdings.values())

    def fill(self, wanted: Collection[Holding], metaranges: Collection[str]) -> None:
        """Add to each of ``wanted`` the metaranges that hold its address, at any path."""
        by_address = {holding.address: holding for holding in wanted}
        if not by_address:
            return
        for columns, holders in self._ranges(metaranges, lambda info: True):
            for n, address, alias in self._hits(columns, by_address):
                by_address[address].note(columns.paths[n], columns.sizes[n], holders, alias=alias)

    def _hits(self, columns: RangeColumns, wanted: Collection[str]) -> Iterator[tuple[int, str, bool]]:
        names = {address.rpartition("/")[2] for address in wanted}
        for n, (text, kind) in enumerate(zip(columns.addresses, columns.address_types, strict=True)):
            if kind == AddressType.RELATIVE and text in wanted and is_usual_key(text):
                yield n, text, False
                continue
            if text.rpartition("/")[2] not in names and keeps_its_name(text):
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
        """Return the ranges that can hold the object, each with the metaranges that list it."""
        self._list([m for m in metaranges if m not in self._listed])
        holders: dict[str, set[str]] = {}
        for metarange in metaranges:
            for info in self._listed[metarange]:
                if can_hold(info):
                    holders.setdefault(info.id, set()).add(metarange)
        with self._progress.task("reading ranges", len(holders)) as step:
            for range_id, data in fetch_metadata(self._metadata, "range", holders):
                where = f"{self._name}: range {range_id}"
                columns = read_range_columns(data, name=where, verify_id=range_id)
                self.read.update(ranges=1, entries=len(columns))
                yield columns, holders[range_id]
                step()

    def _list(self, metaranges: Sequence[str]) -> None:
        with self._progress.task("reading metaranges", len(metaranges)) as step:
            for id, data in fetch_metadata(self._metadata, "meta_range", metaranges):
                where = f"{self._name}: metarange {id}"
                self._listed[id] = read_metarange(data, name=where, verify_id=id)
                self.read.update(metaranges=1)
                step()


WORKERS = 8
MAX_BRANCHES = 500
MAX_ENTRIES = 1_000
"""The maximum number of uncommitted objects of a branch that are inspected if no path is known."""


@dataclass(frozen=True)
class Staged:
    """Uncommitted objects. ``holders`` says where each address is uncommitted (``branch main``, ``run …``).
    ``paths`` has the uncommitted paths of each address. ``inspected`` describes what was inspected. If
    ``complete``, everything was inspected, so no other object is uncommitted."""

    holders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    inspected: str = ""
    complete: bool = True


class Staging(Protocol):
    def find(self, addresses: Collection[str], paths: Sequence[str], branch: str | None) -> Staged:
        """Return the uncommitted objects at ``paths`` (everywhere without paths) on one branch, or on all
        branches if it is None, and those of ``addresses`` that are uncommitted anywhere that can be
        inspected."""


@dataclass(frozen=True)
class RunStaging:
    """The newest run of uncommitted addresses of a namespace. ``run_id`` is None if there is none."""

    run_id: str | None
    addresses: frozenset[str]

    def find(self, addresses: Collection[str], paths: Sequence[str], branch: str | None) -> Staged:
        if self.run_id is None:
            return Staged(complete=False)  # the world has its own note about this
        named = (f"run {self.run_id}",)
        return Staged(
            {address: named for address in addresses if address in self.addresses},
            inspected=f"the run of uncommitted addresses {self.run_id}",
        )


@dataclass(frozen=True)
class BranchStaging:
    """The uncommitted changes on the branches of a live server."""

    reader: StagingReader
    repository: str
    branches: tuple[str, ...]
    book: AddressBook

    def find(self, addresses: Collection[str], paths: Sequence[str], branch: str | None) -> Staged:
        asked = self.branches if branch is None else (branch,)
        left_out = len(asked) > MAX_BRANCHES
        holders: dict[str, set[str]] = {}
        at: dict[str, set[str]] = {}
        capped = False
        with ThreadPoolExecutor(WORKERS) as pool:
            for name, (changes, cut) in zip(
                asked, pool.map(lambda b: self._on_branch(b, paths), asked[:MAX_BRANCHES]), strict=False
            ):
                capped = capped or cut
                for path, address in changes:
                    holders.setdefault(address, set()).add(f"branch {name}")
                    at.setdefault(address, set()).add(path)
        where = f"{min(len(asked), MAX_BRANCHES)} of {count_of(len(asked), 'branch')}"
        what = f"at {', '.join(paths[:3])}" if paths else "everywhere"
        what += ", but not completely" if capped else ""
        return Staged(
            {address: tuple(sorted(names)) for address, names in holders.items()},
            {address: tuple(sorted(names)) for address, names in at.items()},
            inspected=f"uncommitted changes on {where}, {what}",
            # An old address can be uncommitted at an unknown path.
            complete=not paths and not capped and not left_out,
        )

    def _on_branch(self, branch: str, paths: Sequence[str]) -> tuple[list[tuple[str, str]], bool]:
        """Return path and address of uncommitted objects, and whether some were omitted."""
        changes: list[tuple[str, str]] = []
        try:
            return changes, self._search_branch(branch, paths, changes)
        except (PermissionDenied, NotFound, UnexpectedAnswer):
            # No permission, the branch no longer exists, or the server reads its name as a commit.
            return changes, True

    def _search_branch(self, branch: str, paths: Sequence[str], changes: list[tuple[str, str]]) -> bool:
        for wanted in paths or ("",):
            listed = self.reader.list_uncommitted(self.repository, branch, wanted)
            for count, path in enumerate(listed):
                if paths and path != wanted:
                    break  # paths are in order, so longer ones with this prefix come later
                if count == MAX_ENTRIES:
                    return True
                full = self.reader.physical_address(self.repository, branch, path)
                if full is not None:
                    keys = self.book.protected(full, AddressType.BY_PREFIX)
                    changes += [(path, key) for key in keys or [full]]
        return False
