"""Measures the storage of repositories: which branches and tags hold objects, and when they could be deleted.
This module only reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import IntFlag
from functools import reduce
from operator import or_
from typing import Final, Literal, NotRequired, TypedDict, get_args

from lakeplan.branches.pin_records import read_stored
from lakeplan.branches.pins import without_pin_branches
from lakeplan.fleet.audit import AuditPorts, AuditSettings, Inspection, each_repository, is_of
from lakeplan.fleet.judging import masks_of
from lakeplan.formats.namespace import is_candidate_key
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import kept_by_either, to_us
from lakeplan.simulation.requests import AGES, Facts, Surveyed, SurveyRequest
from lakeplan.simulation.verdicts import ObjectClass, RuleSet, Sighting, judge
from lakeplan.stores.open import ClassReader, NamespaceReader
from lakeplan.values.desired import PriceRow
from lakeplan.values.documents import ErrorRow
from lakeplan.values.records import utc_text
from lakeplan.values.repository import Refs
from lakeplan.values.rules import MAX_DAYS, GcRules
from lakeplan.values.simulation import Amount, AmountRow, total_of, total_row


# ---- storage
class HolderRow(TypedDict):
    """A branch or tag: the data that it holds, and the part that nothing else holds."""

    name: str
    held: AmountRow
    exclusive: AmountRow


class ReclaimableRow(TypedDict):
    """The objects that are reclaimable now or will be in this many days, assuming no new commits."""

    days: int
    reclaimable: AmountRow


class ComparedRow(TypedDict):
    """The objects that two branches share, and those that only one of them holds."""

    branches: list[str]
    both: AmountRow
    only_first: AmountRow
    only_second: AmountRow


class PlaceRow(TypedDict):
    """Objects below a prefix of paths; "" is everything. An object counts once for each prefix of its paths,
    and an object in no commit has no path. None means unknown, without a listing."""

    prefix: str
    depth: int
    held: AmountRow
    reclaimable: AmountRow
    young: AmountRow | None
    uncommitted: AmountRow | None
    unreferenced: AmountRow | None


class StoredAgeRow(AmountRow):
    """Objects written this many days ago. If ``to_days`` is None, the age has no upper limit."""

    from_days: int
    to_days: int | None


class StoredClassRow(AmountRow):
    """Objects of one storage class, which is "" if the store names none."""

    storage_class: str


class OwnerRow(TypedDict):
    """Repositories of one owner, or without an owner. A figure is None if it is unknown for one of them."""

    owner: str | None
    repositories: int
    stored: AmountRow | None
    held: AmountRow
    reclaimable: AmountRow
    unreferenced: AmountRow | None
    noncurrent: AmountRow | None


class GrowthRow(TypedDict):
    """Growth since an earlier report. It is negative if there is less now, and None if the two reports cannot
    be compared."""

    since: str
    stored: AmountRow | None
    held: AmountRow | None


class StoredRow(TypedDict):
    """One repository. With a listing, ``stored`` is the sum of ``held``, ``uncommitted``, ``young``,
    ``reclaimable`` and ``unreferenced``. None means unknown."""

    repository: str
    storage_namespace: str
    as_of: str
    listed: bool
    not_listed: str
    dangling_seen: bool
    stored: AmountRow | None
    held: AmountRow
    shared: AmountRow
    exclusive: AmountRow
    tags_only: AmountRow
    reclaimable: AmountRow
    periods: list[ReclaimableRow]
    uncommitted: AmountRow | None
    young: AmountRow | None
    unreferenced: AmountRow | None
    noncurrent: AmountRow | None
    branches: list[HolderRow]
    tags: list[HolderRow]
    compared: ComparedRow | None
    prefixes: NotRequired[list[PlaceRow]]
    prefixes_left_out: NotRequired[int]
    ages: NotRequired[list[StoredAgeRow]]
    classes: NotRequired[list[StoredClassRow] | None]
    owner: NotRequired[str | None]
    growth: NotRequired[GrowthRow]
    cost_per_gb_month: NotRequired[PriceRow]


class StorageDocument(TypedDict):
    """A storage report. ``failed`` and ``unfinished`` are as in an audit. ``owners`` is present if a tree
    names them."""

    format: Literal["lakeplan.storage/v1"]
    at: str
    servers: Mapping[str, str]
    repositories: list[StoredRow]
    owners: NotRequired[list[OwnerRow]]
    failed: Mapping[str, ErrorRow]
    unfinished: list[str]


STORAGE_FORMAT: Final = "lakeplan.storage/v1"
HORIZONS = (7, 30, 90)
"""The numbers of days from now for which reclaimable bytes are forecast."""


class Keeps(IntFlag):
    """Verdict bits of a commit. ``ALL`` marks every commit."""

    ALL = 1
    RULES = 2
    """The server's walk or the documented rule keeps it, or no rules are stored."""
    TAG = 4


NOW = Keeps.RULES | Keeps.TAG


def horizon_bit(number: int) -> int:
    """Return the bit for the commits that the rules keep at a horizon, by its place in ``HORIZONS``."""
    return 8 << number


Part = Literal["held", "uncommitted", "young", "reclaimable", "unreferenced"]


def part_of(each: ObjectClass) -> Part:
    """Return the part of a namespace in which a stored object counts. Objects in doubt count as kept."""
    if each.any_mask & NOW:
        return "held"
    if each.flags & Sighting.UNCOMMITTED:
        return "uncommitted"
    if not each.flags & Sighting.OLD:
        return "young"
    return "reclaimable" if each.is_committed else "unreferenced"


def part_by_metadata(each: ObjectClass) -> Part:
    """Return the same as ``part_of`` if storage was not listed."""
    return "held" if each.any_mask & NOW else "reclaimable"


@dataclass(frozen=True)
class Named:
    """Names of branches, then of tags, each of which has a bit. ``other`` is the bit for anything else that
    keeps a commit."""

    branches: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def other(self) -> int:
        return 1 << (len(self.branches) + len(self.tags))


@dataclass(frozen=True)
class Held:
    """Objects that are held by the same refs."""

    holders: int
    amount: Amount


def storage_of_servers(
    servers: Mapping[str, str],
    ports: AuditPorts,
    settings: AuditSettings,
    *,
    takes: Callable[[str, str], bool],
    compare: tuple[str, str] | None = None,
) -> StorageDocument:
    """Measure every repository for which ``takes(server, name)`` is true."""
    read = each_repository(
        servers,
        ports,
        lambda server, repository, min_age: _Stored(
            server, repository, ports, settings.of_server(server), min_age
        ).storage(compare),
        what="measuring",
        takes=takes,
        known={},
    )
    return {
        "format": STORAGE_FORMAT,
        "at": utc_text(settings.as_of),
        "servers": read["servers"],
        "repositories": read["repositories"],
        "failed": read["failed"],
        "unfinished": read["unfinished"],
    }


def with_growth(document: StorageDocument, earlier: StorageDocument) -> StorageDocument:
    """Return the document with the growth since an earlier report, for repositories that are in both."""
    known = {row["repository"]: row for row in earlier["repositories"]}
    rows: list[StoredRow] = []
    for row in document["repositories"]:
        before = known.get(row["repository"])
        same = before is not None and is_of(before, row["repository"], row["storage_namespace"])
        rows.append({**row, "growth": growth_of(row, before)} if before is not None and same else row)
    return {**document, "repositories": rows}


def growth_of(row: StoredRow, before: StoredRow) -> GrowthRow:
    """Return the growth of a repository. Held objects are compared only if both reports have the same
    source."""
    alike = row["listed"] == before["listed"]
    return {
        "since": before["as_of"],
        "stored": _change(row["stored"], before["stored"]),
        "held": _change(row["held"], before["held"]) if alike else None,
    }


def _change(now: AmountRow | None, before: AmountRow | None) -> AmountRow | None:
    if now is None or before is None:
        return None
    return (Amount.from_row(now) - Amount.from_row(before)).to_row()


class _Stored(Inspection):
    """One repository whose storage is measured."""

    def _request(self, facts: Mapping[str, Facts], store: NamespaceReader | None) -> SurveyRequest:
        request = super()._request(facts, store)
        if not self._settings.places:
            return request
        part = part_by_metadata if store is None else part_of
        return replace(request, part_of=part, as_of_us=to_us(self._settings.as_of))

    def storage(self, compare: tuple[str, str] | None) -> StoredRow:
        rules = read_stored(self._reader, self._name).raw
        refs = self._refs()
        graph = CommitGraph.from_refs(refs)
        names, holders = holders_of(graph, refs, rules, self._settings)
        store = self._ports.store(self._server, self._repository)
        surveyed, why = self._survey(graph, keeping(graph, refs, rules, self._settings), store, holders)
        listed = surveyed.listed
        parts = _parts(surveyed) if listed else {}
        held = held_of(surveyed)
        has_run = listed and not isinstance(store, str) and bool(self._staged(store))
        remnants = self._remnants(store) if listed else None
        shown = {branch.id for branch in without_pin_branches(refs).branches}
        row: StoredRow = {
            "repository": f"{self._server}/{self._name}",
            "storage_namespace": self._repository.storage_namespace,
            "as_of": utc_text(self._settings.as_of),
            "listed": listed,
            "not_listed": "" if listed else why,
            "dangling_seen": self._settings.dump_refs,
            "stored": total_of(parts.values()).to_row() if listed else None,
            "held": total_of(one.amount for one in held).to_row(),
            "shared": total_of(one.amount for one in held if one.holders.bit_count() > 1).to_row(),
            "exclusive": total_of(one.amount for one in held if one.holders.bit_count() == 1).to_row(),
            "tags_only": total_of(
                each.amount
                for each in surveyed.classes
                if each.counts(listed) and each.any_mask & NOW == Keeps.TAG
            ).to_row(),
            "reclaimable": reclaimable(surveyed, NOW).to_row(),
            "periods": [
                {"days": days, "reclaimable": reclaimable(surveyed, horizon_bit(number) | Keeps.TAG).to_row()}
                for number, days in enumerate(HORIZONS)
            ],
            "uncommitted": parts["uncommitted"].to_row() if has_run else None,
            "young": parts["young"].to_row() if listed else None,
            "unreferenced": parts["unreferenced"].to_row() if listed else None,
            "noncurrent": None if remnants is None else remnants["noncurrent"],
            "branches": _rows(names.branches, held, first=0, shown=shown),
            "tags": _rows(names.tags, held, first=len(names.branches), shown=set(names.tags)),
            "compared": None if compare is None else compared(names, held, compare),
        }
        if self._settings.places:
            places = places_of(surveyed)
            row["prefixes"] = sorted(places[:MAX_PLACES], key=lambda place: place["prefix"])
            row["prefixes_left_out"] = len(places[MAX_PLACES:])
            row["ages"] = ages_of(surveyed)
        if self._settings.classes:
            row["classes"] = classes_of(store) if listed else None
        return row


MAX_PLACES = 2_000
"""The maximum number of prefixes per repository in a report: those with the most bytes."""


def places_of(surveyed: Surveyed) -> list[PlaceRow]:
    """Return objects by prefix, beginning with the prefix that has the most bytes."""
    sizes: dict[str, int] = {}
    for of_prefix in surveyed.by_part.values():
        for prefix, found_there in of_prefix.items():
            sizes[prefix] = sizes.get(prefix, 0) + found_there.size_bytes

    def amount(part: Part, prefix: str) -> AmountRow:
        return surveyed.by_part.get(part, {}).get(prefix, Amount()).to_row()

    return [
        {
            "prefix": prefix,
            "depth": prefix.count("/"),
            "held": amount("held", prefix),
            "reclaimable": amount("reclaimable", prefix),
            "young": amount("young", prefix) if surveyed.listed else None,
            "uncommitted": amount("uncommitted", prefix) if surveyed.listed else None,
            "unreferenced": amount("unreferenced", prefix) if surveyed.listed else None,
        }
        for prefix in sorted(sizes, key=lambda prefix: (-sizes[prefix], prefix))
    ]


def ages_of(surveyed: Surveyed) -> list[StoredAgeRow]:
    """Return objects by days since they were written, or nothing without a listing."""
    next_age = dict(zip(AGES, [*AGES[1:], None], strict=True))
    return [
        {**amount.to_row(), "from_days": days, "to_days": next_age[days]}
        for days, amount in sorted(surveyed.by_age.items())
    ]


def classes_of(store: NamespaceReader | str) -> list[StoredClassRow] | None:
    """Return the objects of the namespace by storage class, beginning with the class that has the most bytes,
    or None if the store has no classes. Raises StorageError."""
    if not isinstance(store, ClassReader):
        return None
    amounts: dict[str, Amount] = {}
    for key, size, name in store.list_classes():
        if is_candidate_key(key) and (size or not key.endswith("/")):
            amounts[name] = amounts.get(name, Amount()) + Amount(1, size)
    order = sorted(amounts.items(), key=lambda one: (-one[1].size_bytes, one[0]))
    return [{**amount.to_row(), "storage_class": name} for name, amount in order]


def with_owners(document: StorageDocument, owner_of: Callable[[str], str]) -> StorageDocument:
    """Return the document with the owner of each repository and the totals by owner."""
    rows: list[StoredRow] = [
        {**row, "owner": owner_of(row["repository"]) or None} for row in document["repositories"]
    ]
    names = sorted({row["owner"] for row in rows}, key=lambda name: (name is None, name or ""))
    owners = [_owner(name, [row for row in rows if row["owner"] == name]) for name in names]
    return {**document, "repositories": rows, "owners": owners}


def _owner(name: str | None, rows: Sequence[StoredRow]) -> OwnerRow:
    return {
        "owner": name,
        "repositories": len(rows),
        "stored": _all_of([row["stored"] for row in rows]),
        "held": _all_of([row["held"] for row in rows]) or Amount().to_row(),
        "reclaimable": _all_of([row["reclaimable"] for row in rows]) or Amount().to_row(),
        "unreferenced": _all_of([row["unreferenced"] for row in rows]),
        "noncurrent": _all_of([row["noncurrent"] for row in rows]),
    }


def _all_of(amounts: Sequence[AmountRow | None]) -> AmountRow | None:
    known = [one for one in amounts if one is not None]
    return total_row(known) if len(known) == len(amounts) else None


def keeping(graph: CommitGraph, refs: Refs, rules: GcRules | None, settings: AuditSettings) -> list[int]:
    """Return, for each commit, the bits of ``Keeps``, and those of the horizons at which the rules still keep
    it."""
    tagged = {tag.commit_id for tag in refs.tags}
    flags: dict[int, Sequence[int]] = {
        Keeps.RULES: kept_by_either(graph, rules, settings.as_of, settings.zone),
        Keeps.TAG: [id in tagged for id in graph.ids],
    }
    for number, days in enumerate(HORIZONS):
        at = settings.as_of + timedelta(days=days)
        flags[horizon_bit(number)] = kept_by_either(graph, rules, at, settings.zone)
    return masks_of(flags, len(graph))


def holders_of(
    graph: CommitGraph, refs: Refs, rules: GcRules | None, settings: AuditSettings
) -> tuple[Named, list[int]]:
    """Return the names of refs, and for each commit the bits of the refs that keep it. A branch keeps commits
    by the documented rule, and a tag keeps its commit. A kept commit that no ref keeps has the bit
    ``other``."""
    judged = judge(graph, RuleSet("rules", rules or GcRules(MAX_DAYS)), settings.as_of, settings.zone)
    tags = sorted(refs.tags, key=lambda tag: tag.id)
    names = Named(judged.branches.names, tuple(tag.id for tag in tags))
    masks = [judged.branches.masks[judged.branches.of_commit[commit]] for commit in range(len(graph))]
    for number, tag in enumerate(tags, len(names.branches)):
        if tag.commit_id in graph.index:
            masks[graph.index[tag.commit_id]] |= 1 << number
    kept = kept_by_either(graph, rules, settings.as_of, settings.zone)
    for commit, mask in enumerate(masks):
        if kept[commit] and (not mask or judged.dangling[commit]):
            masks[commit] |= names.other
    return names, masks


def held_of(surveyed: Surveyed) -> list[Held]:
    """Return held objects by the refs that hold them."""
    sets = surveyed.holder_sets
    return [
        Held(reduce(or_, (bits for number in each.holders for bits in sets[number]), 0), each.amount)
        for each in surveyed.classes
        if each.counts(surveyed.listed) and each.any_mask & NOW
    ]


def reclaimable(surveyed: Surveyed, keeps: int) -> Amount:
    """Return committed objects that are in no commit with a bit of ``keeps``, without uncommitted objects and
    without expired objects that are too young to be deleted."""
    return total_of(
        each.amount
        for each in surveyed.classes
        if (each.is_candidate(surveyed.listed) or (surveyed.listed and keeps != NOW and each.counts(True)))
        and each.is_committed
        and not each.any_mask & keeps
        and not each.flags & Sighting.UNCOMMITTED
    )


def compared(names: Named, held: Sequence[Held], branches: tuple[str, str]) -> ComparedRow | None:
    """Return the objects that two branches share, or None if one of the branches does not exist."""
    if not set(branches) <= set(names.branches):
        return None
    first, second = (1 << names.branches.index(name) for name in branches)

    def amount(bits: int) -> AmountRow:
        return total_of(one.amount for one in held if one.holders & (first | second) == bits).to_row()

    return {
        "branches": list(branches),
        "both": amount(first | second),
        "only_first": amount(first),
        "only_second": amount(second),
    }


def _parts(surveyed: Surveyed) -> dict[Part, Amount]:
    parts: dict[Part, Amount] = dict.fromkeys(get_args(Part), Amount())
    for each in surveyed.classes:
        if each.counts(surveyed.listed):
            parts[part_of(each)] += each.amount
    return parts


def _rows(names: Sequence[str], held: Sequence[Held], *, first: int, shown: set[str]) -> list[HolderRow]:
    """Return the refs in ``shown``, by the bytes that only they hold, then by all their bytes."""
    totals, alone = [Amount()] * len(names), [Amount()] * len(names)
    for one in held:
        bits = one.holders >> first & (1 << len(names)) - 1
        single = one.holders.bit_count() == 1
        while bits:
            lowest = bits & -bits
            number = lowest.bit_length() - 1
            totals[number] += one.amount
            if single:
                alone[number] += one.amount
            bits ^= lowest
    rows: list[HolderRow] = [
        {"name": name, "held": totals[number].to_row(), "exclusive": alone[number].to_row()}
        for number, name in enumerate(names)
        if name in shown
    ]
    return sorted(
        rows, key=lambda row: (-row["exclusive"]["size_bytes"], -row["held"]["size_bytes"], row["name"])
    )
