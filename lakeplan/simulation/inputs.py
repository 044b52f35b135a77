"""Reads the inputs of a simulation: rules from a file, refs and listing prefixes of a namespace, and the
ranges that commits use, with the verdicts on those commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from lakeplan.errors import (
    ConfigError,
    DataGone,
    FormatError,
    LakeplanError,
    StorageDenied,
    StorageNotFound,
    UsageError,
)
from lakeplan.formats.namespace import DATA_PREFIX, REFS_MANIFEST_KEY, metadata_key
from lakeplan.formats.ranges import KnownRanges, read_metarange
from lakeplan.formats.refs import read_manifest, read_refs
from lakeplan.lakefs.protocols import MetadataKind, MetadataReader
from lakeplan.limits import parse_json
from lakeplan.retention.graph import CommitGraph, missing_heads
from lakeplan.simulation.requests import Facts, Holders, union
from lakeplan.simulation.runners import Kind, WorkItem, ahead
from lakeplan.stores.open import NamespaceReader
from lakeplan.values.local import read_file, why_unreadable
from lakeplan.values.repository import RangeInfo, Refs, RefsDumpIds
from lakeplan.values.rules import GcRules

MAX_NAMED = 5


@dataclass(frozen=True)
class NamespaceMetadata:
    """A MetadataReader that reads files of a namespace by their id."""

    namespace: NamespaceReader

    def read_metadata(self, kind: MetadataKind, id: str) -> bytes:
        return self.namespace.read(metadata_key(id))


@dataclass(frozen=True)
class CommitHistory:
    """A refs dump as a graph. ``dumped_us``: when the manifest was written, by the storage's clock (UTC
    microseconds), or None if the namespace cannot be listed."""

    ids: RefsDumpIds
    graph: CommitGraph
    dumped_us: int | None

    def warnings(self, young_from_us: int) -> list[str]:
        """What a refs dump lacks that was written before ``young_from_us``."""
        if self.dumped_us is None or self.dumped_us >= young_from_us:
            return []
        return [
            f"the refs dump of {iso(self.dumped_us)} is older than the minimum age, so objects that were"
            " committed after the dump may be shown as never committed"
        ]


def read_history(namespace: NamespaceReader) -> CommitHistory:
    """The refs dump as a graph. Raises what ``read_refs_dump`` raises."""
    ids, refs = read_refs_dump(namespace)
    return CommitHistory(ids, CommitGraph.from_refs(refs), _time_of(namespace, REFS_MANIFEST_KEY))


def read_refs_dump(namespace: NamespaceReader) -> tuple[RefsDumpIds, Refs]:
    """The refs dump that ``_lakefs/refs_manifest.json`` names.

    Raises StorageNotFound without a dump, FormatError for a damaged one, LakeplanError when branch HEADs are
    missing from it (commits made while it was written).
    """
    where = f"{namespace.url}/{REFS_MANIFEST_KEY}"
    try:
        manifest = namespace.read(REFS_MANIFEST_KEY)
    except StorageNotFound as error:
        raise StorageNotFound(
            "the namespace has no refs dump",
            where=where,
            hint="Check the URL, or run `lakectl refs-dump lakefs://REPOSITORY` to write one.",
        ) from error
    ids = read_manifest(manifest, name=where)
    try:
        refs = read_refs(ids, NamespaceMetadata(namespace).read_metadata)
    except StorageNotFound as error:
        raise FormatError(
            "the refs dump is incomplete: a file that its manifest lists is missing",
            where=error.where,
            hint="Run `lakectl refs-dump` again, or copy the whole namespace.",
        ) from error
    missing = missing_heads(refs)
    if missing:
        lost = sorted(f"{b.id} ({b.commit_id})" for b in refs.branches if b.commit_id in set(missing))
        named = ", ".join(lost[:MAX_NAMED]) + (", …" if len(lost) > MAX_NAMED else "")
        raise LakeplanError(
            f"the refs dump lacks the HEAD of {len(lost)} of its branches: {named}",
            where=where,
            hint="Run `lakectl refs-dump` again. Commits were created while this dump was being written.",
        )
    return ids, refs


def _time_of(namespace: NamespaceReader, key: str) -> int | None:
    try:
        return next((o.modified_us for o in namespace.list_objects(key) if o.key == key), None)
    except StorageDenied:
        return None


def listing_items(namespace: NamespaceReader) -> list[WorkItem] | None:
    """The items that list every object that may be garbage, or None if the namespace cannot be listed.

    Each folder below ``data/`` is an item, so that a large namespace is listed in parallel.
    """
    try:
        folders = namespace.list_prefixes(DATA_PREFIX)
    except StorageDenied:
        return None
    root = WorkItem(Kind.ROOT_LISTING, 0, "")
    return [root, *(WorkItem(Kind.LISTING, 0, folder) for folder in folders)]


def required_listing(namespace: NamespaceReader) -> list[WorkItem]:
    """The items of ``listing_items``. Raises StorageDenied if the namespace cannot be listed."""
    items = listing_items(namespace)
    if items is None:
        raise StorageDenied(
            "the namespace cannot be listed",
            where=namespace.url,
            hint="Grant these credentials permission to list the namespace.",
        )
    return items


def iso(us: int) -> str:
    """UTC microseconds as ISO 8601 text that ends in Z."""
    moment = datetime.fromtimestamp(us // 1_000_000, tz=timezone.utc).replace(microsecond=us % 1_000_000)
    return moment.isoformat().replace("+00:00", "Z")


_KEYS = {"default_retention_days", "branches"}
_BRANCH_KEYS = {"branch_id", "retention_days"}
_EXAMPLE = (
    'For example, write {"default_retention_days": 21,'
    ' "branches": [{"branch_id": "main", "retention_days": 28}]}'
)


def read_rules(path: Path | str) -> GcRules:
    """The rules in a file in the format of ``lakectl gc set-config``.

    Raises UsageError when it cannot be read, ConfigError when it holds no rules.
    """
    try:
        data = read_file(path)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the rules: {why_unreadable(error)}",
            where=str(path),
            hint="Specify a JSON file with GC rules.",
        ) from None
    return parse_rules(data, name=str(path))


def parse_rules(data: bytes, *, name: str) -> GcRules:
    """The rules in JSON. Any whole number of days is allowed, as on the server (lakefs/api.md).

    Raises ConfigError that names the file for text that is not JSON, an unknown or repeated key, a wrong
    type, a repeated branch, and a missing default. A file without rules is refused, because without rules a
    collector marks every committed object (lakefs/retention.md), which nobody wants.
    """
    rules = _parse(data, name)
    if rules is None or rules == {}:
        raise ConfigError(
            "the file contains no rules, and without rules a collector deletes every committed object",
            where=name,
            hint=_EXAMPLE,
        )
    if not isinstance(rules, dict):
        raise _bad("the file is not a JSON object of GC rules", name)
    _only(rules, _KEYS, "", name)
    if "default_retention_days" not in rules:
        raise _bad("default_retention_days is missing", name)
    branches: dict[str, int] = {}
    listed = rules.get("branches")
    if listed is not None and not isinstance(listed, list):
        raise _bad("`branches` is not a list", name)
    for n, item in enumerate(listed or ()):
        at = f"branches[{n}]"
        if not isinstance(item, dict):
            raise _bad(f"{at} is not an object", name)
        _only(item, _BRANCH_KEYS, at, name)
        branch = item.get("branch_id")
        if not isinstance(branch, str) or not branch:
            raise _bad(f"{at}.branch_id is missing or not a string", name)
        if branch in branches:
            raise _bad(f"{at}: branch {branch} is listed twice", name)
        branches[branch] = _days(item.get("retention_days"), f"{at}.retention_days", name)
    return GcRules(_days(rules["default_retention_days"], "default_retention_days", name), branches)


def _parse(data: bytes, name: str) -> Any:
    if not data.strip():
        return None
    try:
        return parse_json(data.decode("utf-8-sig"), pairs=_no_doubles)
    except JSONDecodeError as error:
        raise _bad(f"the file is not JSON (line {error.lineno}, column {error.colno})", name) from None
    except ValueError as error:  # beyond a limit, or a key that appears twice
        why = "the file is not UTF-8 text" if isinstance(error, UnicodeError) else str(error)
        raise _bad(f"cannot read the rules: {why}", name) from None


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key!r} appears twice in one object")
        values[key] = value
    return values


def _only(mapping: dict[str, Any], known: set[str], at: str, name: str) -> None:
    unknown = sorted(set(mapping) - known)
    if unknown:
        raise _bad(f"unknown key {(at + '.' if at else '') + unknown[0]!r}", name)


def _days(value: Any, at: str, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad(f"{at} is not a whole number", name)
    if not -(2**31) <= value < 2**31:
        raise _bad(f"{at} is outside the range that the server supports (32 bits)", name)
    return value


def _bad(message: str, name: str) -> ConfigError:
    return ConfigError(message, where=name, hint=_EXAMPLE)


class Regions:
    """Groups of ranges that share first or last keys. Another range never divides a group."""

    def __init__(self, spans: Iterable[tuple[bytes, bytes]]) -> None:
        """Makes the groups of all ranges, whose first and last keys are ``spans``."""
        self._parents: dict[tuple[bool, bytes], tuple[bool, bytes]] = {}
        self._first: dict[tuple[bool, bytes], bytes] = {}
        for first, last in spans:
            for end in ((False, first), (True, last)):
                self._parents.setdefault(end, end)
            low, high = self._root((False, first)), self._root((True, last))
            least = min(self._first.pop(low, first), self._first.pop(high, first), first)
            self._parents[high] = low
            self._first[low] = least

    def key(self, first: bytes) -> bytes:
        """The key of the region of the range that begins with ``first``: its least key, which is unique."""
        return self._first[self._root((False, first))]

    def _root(self, end: tuple[bool, bytes]) -> tuple[bool, bytes]:
        while (parent := self._parents[end]) != end:
            self._parents[end] = self._parents[parent]  # shortens the way for later calls
            end = parent
        return end


FETCHES = 16
"""Files in flight. Metaranges are small, so most of the time is waiting."""


@dataclass
class _Range:
    info: RangeInfo
    mask: int = 0
    last: int = -1
    holders: set[Holders] = field(default_factory=set)


@dataclass(frozen=True)
class Collected:
    """The ranges of some metaranges. ``holder_sets`` are the distinct sets that work items refer to by
    number."""

    items: list[WorkItem]
    holder_sets: list[Holders]
    metaranges: int
    entries: int
    size_bytes: int


GONE = (
    "Restore the file. A commit of this repository needs it, and without it lakeplan cannot determine what"
    " would expire."
)


def collect_ranges(
    metadata: MetadataReader,
    facts: Mapping[str, Facts],
    *,
    name: str,
    step: Callable[[], None] = lambda: None,
) -> Collected:
    """The ranges of the metaranges, each with the joined facts of those that list it. Every metarange is
    verified against its id.

    Items are in the order in which ranges are first listed. If ``facts`` are in order of dates, a new commit
    adds its ranges at the end. ``name`` is the repository in errors, and ``step`` is called after each
    metarange. Raises FormatError that names the metarange, and what ``metadata`` raises.
    """
    ranges: dict[str, _Range] = {}
    records: KnownRanges = {}
    for meta_range_id, fetched in fetch_each(metadata, "meta_range", facts):
        fact = facts[meta_range_id]
        where = f"{name}: metarange {meta_range_id}"
        try:
            data = fetched()
        except DataGone as error:
            raise error.replaced(where=where, hint=GONE) from error
        for info in read_metarange(data, name=where, verify_id=meta_range_id, known=records):
            known = ranges.get(info.id)
            if known is None:
                known = ranges[info.id] = _Range(info)
            known.mask |= fact.mask
            known.last = max(known.last, fact.last)
            if any(fact.holders):
                known.holders.add(fact.holders)
        step()
    return _number_holders(ranges, len(facts))


def _number_holders(ranges: dict[str, _Range], metaranges: int) -> Collected:
    regions = Regions((known.info.min_key, known.info.max_key) for known in ranges.values())
    numbers: dict[Holders, int] = {}
    unions: dict[frozenset[Holders], int] = {}
    items = []
    for range_id, known in ranges.items():
        holders = -1
        if known.holders:
            key = frozenset(known.holders)
            if key not in unions:
                unions[key] = numbers.setdefault(union(key), len(numbers))
            holders = unions[key]
        info = known.info
        items.append(
            WorkItem(
                Kind.RANGE,
                0,
                range_id,
                weight=max(info.estimated_size, 0),
                mask=known.mask,
                last=known.last,
                holders=holders,
                sort_key=regions.key(info.min_key),
            )
        )
    infos = [known.info for known in ranges.values()]
    entries, size = sum(i.count for i in infos), sum(i.estimated_size for i in infos)
    return Collected(items, list(numbers), metaranges, entries, size)


def fetch_metadata(
    metadata: MetadataReader, kind: MetadataKind, ids: Iterable[str]
) -> Iterator[tuple[str, bytes]]:
    """Yields the files in order. Fetches a bounded number at a time."""
    for id, fetched in fetch_each(metadata, kind, ids):
        yield id, fetched()


def fetch_each(
    metadata: MetadataReader, kind: MetadataKind, ids: Iterable[str]
) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yields for each file, in order, a function that returns it or raises its error."""
    with ThreadPoolExecutor(FETCHES) as pool:
        yield from ahead(ids, partial(metadata.read_metadata, kind), pool, FETCHES)
