"""Inspects what holds objects, in the only order that is safe: uncommitted data first, then a refs dump
of our own, then other repositories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from lakeplan.branches.pin_records import check_pins, with_rules_of
from lakeplan.errors import GateRefused, LakeplanError, StalePlan
from lakeplan.formats.namespace import mark_prefix, metadata_key
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.retention.graph import CommitGraph, by_date
from lakeplan.retention.keep import KEEPS, KeepRules, held_prefixes, keep_masks, protectors
from lakeplan.retention.patterns import expand
from lakeplan.review.claims import check_claims
from lakeplan.simulation.requests import Facts, ForeignRanges, RecheckRequest
from lakeplan.sweep.hold_records import keep_held
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.ports import Site, SweepPorts
from lakeplan.sweep.records import KNOWN_NOTHING, KnownAtMark
from lakeplan.sweep.rules import place_of
from lakeplan.values.desired import Cleared, GcDesired
from lakeplan.values.pins import has_pin_commit, may_be_pin
from lakeplan.values.repository import Refs, Repository
from lakeplan.values.rules import GcRules, RulesBefore
from lakeplan.values.sweep import Part, UncommittedRun


@dataclass(frozen=True)
class Inspection:
    """``uncommitted``: keys of the server's run. ``masks``: ``Keep`` bits per commit
    number of ``graph``."""

    rules: KeepRules
    uncommitted: tuple[str, ...]
    refs: Refs
    graph: CommitGraph
    masks: list[int]

    def metaranges(self) -> dict[str, Facts]:
        """Of all commits: their bits, and the position of the last of them by creation date, then id."""
        dates = by_date(self.graph)
        found: dict[str, Facts] = {}
        for commit, id in enumerate(self.graph.meta_range_ids):
            if id:
                found[id] = found.get(id, Facts()) | Facts(self.masks[commit], dates[commit])
        return found

    def named_metaranges(self) -> tuple[dict[str, Facts], tuple[str, ...]]:
        """``metaranges``, with bits of what keeps their commits, and the names of these bits."""
        found = protectors(self.graph, self.refs, self.rules, self.masks)
        named = self.metaranges()
        for commit, id in enumerate(self.graph.meta_range_ids):
            if id and found.masks[commit]:
                named[id] = named[id]._replace(mask=named[id].mask | found.masks[commit])
        return named, found.names

    def last_commits(self) -> Mapping[int, str]:
        return dict(zip(by_date(self.graph), self.graph.ids, strict=True))

    def last_commits_us(self) -> Mapping[int, int]:
        return dict(zip(by_date(self.graph), self.graph.creation_us, strict=True))

    @property
    def held_prefixes(self) -> tuple[str, ...]:
        """Those of unexpired holds, and of holds that have left the tree and still keep what they kept."""
        recorded = {one.name for one in self.rules.recorded if one.kind == "prefix"}
        return tuple(sorted(recorded.union(held_prefixes(self.rules.holds, self.rules.as_of))))

    def kept_metaranges(self) -> set[str]:
        """Metaranges of commits that anything keeps."""
        keeps = int(KEEPS)
        pairs = zip(self.graph.meta_range_ids, self.masks, strict=True)
        return {id for id, mask in pairs if id and mask & keeps}


def inspect_repository(site: Site, stored: GcRules, *, now: datetime, before: RulesBefore) -> Inspection:
    """``stored``: the rules as ``read_rules`` gave them just before; ``before``: those before their last
    recorded change. Raises LakeplanError, by name, for anything that makes a collection unsafe: no branches,
    a HEAD that cannot be had, rules that are gone or others by the time the refs are read."""
    name = site.desired.name
    _check_not_cleared(site)
    check_claims(site.reader.metadata(name), site.desired.tree, site.key)
    runs = site.preparer.prepare_uncommitted(name)
    uncommitted = tuple(key for run in runs for key in _files(site, run))
    refs = site.refs.read(site.server.name, site.reader, site.repository)
    if read_rules(site).etag != stored.etag:
        raise StalePlan(
            "the GC rules changed while the command ran", where=site.key, hint="Run the command again."
        )
    try:
        graph = CommitGraph.from_refs(refs)
        _check_tags(graph)
        rules = _keep_rules(site, stored, refs, now=now, before=before)
        masks = keep_masks(graph, refs, rules)
    except LakeplanError as error:
        raise error.replaced(where=error.where or site.key) from error
    _check_storage(site, graph)
    return Inspection(rules, uncommitted, refs, graph, masks)


def read_rules(site: Site) -> GcRules:
    """The stored rules. Raises LakeplanError when none are set."""
    stored = site.reader.get_gc_rules(site.desired.name)
    if stored is None:
        raise LakeplanError(
            "no GC rules are set, and a collection without rules may delete everything",
            where=site.key,
            hint="Add gc rules to the tree and run `lakeplan apply`.",
        )
    return stored


def _check_not_cleared(site: Site) -> None:
    """The tree may remove rules that the server still has: without rules nothing expires."""
    if site.desired.gc is Cleared.CLEAR:
        raise GateRefused(
            "the tree removes the GC rules (gc: clear), and without rules nothing expires",
            where=site.key,
            hint="Run `lakeplan apply` to remove them, or add gc rules to the tree again.",
        )


def _files(site: Site, run: UncommittedRun) -> list[str]:
    """Keys of the files of a run; none when it found nothing, and wrote nothing (lakefs/api.md). Raises
    LakeplanError when the server wrote where this storage is not, or wrote what nobody here understands: what
    is uncommitted would be taken for garbage."""
    if not run.location:
        return []
    folder = _relative(site, run.location)
    keys = sorted(stored.key for stored in site.store.list_objects(folder))
    odd = [key for key in keys if key.rpartition("/")[2][:1] in ("", ".", "_")]
    if not keys or odd:
        what = f"holds {odd[0]}" if odd else "is empty"
        raise LakeplanError(
            f"the server wrote uncommitted addresses to {run.location}; in this storage that folder {what}",
            where=f"{site.key}: {site.store.url}",
            hint="Check that servers.<name>.storages is the storage that the server uses.",
        )
    return keys


def _relative(site: Site, location: str) -> str:
    """A location of the server's, relative to the namespace, ending in a slash."""
    for base in (site.repository.storage_namespace, site.store.url):
        base = base.rstrip("/") + "/"
        if location.startswith(base):
            return location[len(base) :].strip("/") + "/"
    raise LakeplanError(
        f"the server wrote uncommitted addresses outside the repository's namespace ({location})",
        where=f"{site.key}: {site.repository.storage_namespace}",
        hint="This repository cannot be swept.",
    )


def _check_storage(site: Site, graph: CommitGraph) -> None:
    """The metadata of a HEAD has to be in the storage that is about to be swept: else it is not the server's,
    and nothing that is read of it proves anything."""
    heads = {graph.meta_range_ids[head] for head in graph.heads}
    held = next((id for id in sorted(heads) if id), None)
    if held is not None and site.store.stat(metadata_key(held)) is None:
        raise LakeplanError(
            f"metarange {held} of a branch HEAD is not in this storage, so it is not the server's storage",
            where=f"{site.key}: {site.store.url}",
            hint="Check servers.<name>.storages.",
        )


def _check_tags(graph: CommitGraph) -> None:
    """A tag of a commit that was made while the dump was written: its protection would go unseen."""
    for tag in graph.tags:
        if tag.commit_id not in graph.index:
            raise StalePlan(
                f"tag {tag.id} names commit {tag.commit_id}, which the refs dump lacks",
                hint="Run the command again.",
            )


def _keep_rules(site: Site, stored: GcRules, refs: Refs, *, now: datetime, before: RulesBefore) -> KeepRules:
    desired = site.desired
    pins = _pins_in(site, refs)
    entries = {branch: days for branch, days in stored.branches.items() if branch in pins}
    expanded = None
    if isinstance(desired.gc, GcDesired):
        branches = [branch.id for branch in refs.branches if branch.id not in pins]
        expanded = with_rules_of(expand(desired.gc, branches).rules, entries)
    return KeepRules(
        stored=stored,
        as_of=now,
        zone=ZoneInfo(site.server.time_zone),
        margin_seconds=desired.sweep.margin_seconds,
        expanded=expanded,
        before=with_rules_of(before, entries) if isinstance(before, GcRules) else before,
        protected_tags=desired.safety.protected_tags,
        holds=desired.holds,
        recorded=keep_held(site, refs, now),
        pins=pins,
    )


def _pins_in(site: Site, refs: Refs) -> frozenset[str]:
    """Branches of the dump that are pins; what is visible is not one, whatever its name."""
    if not any(has_pin_commit(branch.id, branch.commit_id) for branch in refs.branches):
        return frozenset()
    live = site.reader.list_pins(site.desired.name)
    return frozenset(branch.id for branch in live if may_be_pin(branch))


REPOSITORIES_AT_ONCE = 8
"""Refs dumps that are requested at the same time."""


@dataclass(frozen=True)
class Others:
    """Metaranges of other repositories, and those that could not be read, with why."""

    foreign: tuple[ForeignRanges, ...]
    unreadable: dict[str, str]


@dataclass(frozen=True)
class _Server:
    """Its repositories as they are now, or why they cannot be listed."""

    reader: LakeFSReader
    repositories: tuple[Repository, ...] = ()
    error: LakeplanError | None = None

    @classmethod
    def of(cls, reader: LakeFSReader) -> _Server:
        try:
            return cls(reader, tuple(reader.list_repositories()))
        except LakeplanError as error:
            return cls(reader, error=error)


_ForeignByRepository = Mapping[tuple[str, Repository], ForeignRanges | str]
"""By server and repository: what it has, or why it cannot be read."""


def all_others(site: Site, *, keep: Callable[[], None]) -> tuple[ForeignRanges, ...]:
    """As ``foreign_ranges``. Raises GateRefused while one of them cannot be read."""
    foreign, unreadable = foreign_ranges(site, keep=keep)
    if unreadable:
        name, why = next(iter(unreadable.items()))
        raise GateRefused(
            f"repository {name} cannot be read, and it may refer to objects of this one: {why}",
            where=site.key,
            hint="Grant the user of this tree read access (retention and List permissions).",
        )
    return foreign


def foreign_ranges(
    site: Site, *, keep: Callable[[], None] = lambda: None
) -> tuple[tuple[ForeignRanges, ...], dict[str, str]]:
    """``Others`` of one repository. ``keep`` is called after each of them. Raises the error of its server."""
    found = read_others([site], keep=keep)[0]
    if isinstance(found, LakeplanError):
        raise found
    return found.foreign, found.unreadable


def read_others(
    sites: Sequence[Site], *, keep: Callable[[], None] = lambda: None
) -> list[Others | LakeplanError]:
    """What each of some repositories has to know of all others, asked for now and once for all of them."""
    readers: dict[str, LakeFSReader] = {}
    for site in sites:
        readers.setdefault(site.server.name, site.reader)
        for server, reader in site.other_servers:
            readers.setdefault(server.name, reader)
    servers = {name: _Server.of(reader) for name, reader in readers.items()}
    wanted = dict.fromkeys(
        (name, repository)
        for site in sites
        for name, server in servers.items()
        for repository in server.repositories
        if _concerns(site, name, repository)
    )
    memory = sites[0].refs

    def read(one: tuple[str, Repository]) -> ForeignRanges | str:
        name, repository = one
        reader = servers[name].reader
        try:
            metaranges = memory.metaranges(name, reader, repository)
            metadata = memory.metadata(name, reader, repository)
        except LakeplanError as error:
            return error.message
        return ForeignRanges(f"{name}/{repository.id}", metadata, metaranges)

    with ThreadPoolExecutor(REPOSITORIES_AT_ONCE) as pool:
        found: dict[tuple[str, Repository], ForeignRanges | str] = {}
        for one, answer in zip(wanted, pool.map(read, wanted), strict=True):
            keep()
            found[one] = answer
    return [_of_site(site, servers, found) for site in sites]


def _concerns(site: Site, server: str, repository: Repository) -> bool:
    """Of other servers, only repositories on the same kind of storage."""
    if server == site.server.name:
        return repository.id != site.desired.name
    if all(other.name != server for other, _ in site.other_servers):
        return False
    return place_of(repository.storage_namespace).kind == place_of(site.repository.storage_namespace).kind


def _of_site(
    site: Site, servers: Mapping[str, _Server], found: _ForeignByRepository
) -> Others | LakeplanError:
    own = servers[site.server.name]
    if own.error is not None:
        return own.error
    foreign: list[ForeignRanges] = []
    unreadable: dict[str, str] = {}
    for name, server in servers.items():
        if server.error is not None and any(other.name == name for other, _ in site.other_servers):
            unreadable[f"of server {name}"] = server.error.message
        for repository in server.repositories:
            if not _concerns(site, name, repository):
                continue
            answer = found[name, repository]
            if isinstance(answer, str):
                unreadable[repository.id if server is own else f"{name}/{repository.id}"] = answer
            elif answer.metaranges:
                foreign.append(answer)
    return Others(tuple(foreign), unreadable)


def only_new(
    foreign: tuple[ForeignRanges, ...], seen: Mapping[str, frozenset[str]]
) -> tuple[ForeignRanges, ...]:
    """What appeared since a mark looked (``seen``: metarange ids by repository)."""
    fresh = (
        replace(other, metaranges=tuple(id for id in other.metaranges if id not in seen.get(other.name, ())))
        for other in foreign
    )
    return tuple(other for other in fresh if other.metaranges)


def recheck_request(
    site: Site,
    mark: Mark,
    parts: tuple[Part, ...],
    look: Inspection,
    foreign: tuple[ForeignRanges, ...],
    seen: KnownAtMark,
) -> RecheckRequest:
    """Which objects of these parts a snapshot holds, without what the mark saw already."""
    kept, prefixes = look.kept_metaranges(), look.held_prefixes
    # what the mark read elsewhere was compared with the prefixes that it knew, and with no others
    read = seen.other_metaranges if {*prefixes} <= {*mark.held_prefixes} else frozenset()
    others = look.metaranges().keys() - kept - read if prefixes else ()
    return RecheckRequest(
        store=site.store,
        parts=parts,
        prefix=mark_prefix(mark.mark_id),
        storage_namespace=site.repository.storage_namespace,
        metadata=site.reader.metadata_reader(site.desired.name),
        uncommitted=look.uncommitted,
        metaranges=tuple(sorted(kept - seen.kept_metaranges)),
        foreign=only_new(foreign, seen.foreign),
        other_metaranges=tuple(sorted(others)),
        held_prefixes=prefixes,
    )


MOST_NEEDED = 1_000_000


@dataclass(frozen=True)
class Needed:
    """Addresses of a mark that something needs. ``inspected_at``: when this machine began to inspect the
    repository itself."""

    addresses: frozenset[str]
    inspected_at: datetime


def needed_now(
    site: Site,
    mark: Mark,
    ports: SweepPorts,
    *,
    now: datetime,
    keep: Callable[[], None],
    parts: tuple[Part, ...] | None = None,
) -> Needed:
    """Inspects as a mark does: other repositories (those of the tree's other servers too), uncommitted data,
    then a refs dump; with protected tags and holds. ``now`` is the safest of all clocks; ``keep`` is called
    now and then. ``parts``: only what these name; None for the whole mark. Raises GateRefused for a
    repository that cannot be read and for a pin that is gone, and LakeplanError for whatever makes an
    inspection unsafe."""
    check_pins(site.reader, ports.state, site.key)
    foreign = all_others(site, keep=keep)
    inspected_at = ports.now()
    look = inspect_repository(site, read_rules(site), now=now, before=None)
    keep()
    wanted = mark.marked.going if parts is None else parts
    addresses = ports.marker.held_again(
        recheck_request(site, mark, wanted, look, foreign, KNOWN_NOTHING), limit=MOST_NEEDED
    )
    if len(addresses) > MOST_NEEDED:
        raise LakeplanError(
            f"more than {MOST_NEEDED:,} objects of the mark are needed again",
            where=f"{site.key}: mark {mark.mark_id}",
            hint=f"Run `lakeplan sweep restore {mark.mark_id} --path PATH` for one part after another.",
        )
    return Needed(addresses, inspected_at)
