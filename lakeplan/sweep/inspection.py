"""Inspects everything that needs objects, in the only safe order: uncommitted data, then a new refs dump,
then other repositories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import count
from zoneinfo import ZoneInfo

from lakeplan.branches.pin_records import check_pins, with_rules_of
from lakeplan.branches.pins import newest_kept
from lakeplan.errors import (
    GateRefused,
    LakeplanError,
    NotFound,
    PermissionDenied,
    RepositoryNotFound,
    StalePlan,
)
from lakeplan.formats.namespace import Addresses, mark_prefix, metadata_key
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.retention.graph import CommitGraph, by_date
from lakeplan.retention.keep import KEEPS, KeepRules, held_prefixes, keep_masks, protectors
from lakeplan.retention.patterns import expand
from lakeplan.review.claims import check_claims
from lakeplan.simulation.requests import Facts, ForeignRanges, RecheckRequest
from lakeplan.sweep.hold_records import keep_held
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.neighbours import check_new, may_lack_metadata
from lakeplan.sweep.ports import HIDDEN, Site, SweepPorts, why_hidden
from lakeplan.sweep.records import KNOWN_NOTHING, KnownAtMark, read_marked
from lakeplan.sweep.rules import place_of
from lakeplan.values.desired import Cleared, GcDesired
from lakeplan.values.pins import has_pin_commit, may_be_pin
from lakeplan.values.progress import in_parallel
from lakeplan.values.repository import Refs, Repository
from lakeplan.values.rules import GcRules, RulesBefore
from lakeplan.values.simulation import Part, UncommittedRun
from lakeplan.values.units import count_of


@dataclass(frozen=True)
class Inspection:
    """The facts that keep objects of a repository. ``uncommitted``: keys of the server's run. ``masks``:
    ``Keep`` bits per commit number of ``graph``. ``on_branches``: the keys that reading a branch gives, as in
    ``_on_branches``."""

    rules: KeepRules
    uncommitted: tuple[str, ...]
    refs: Refs
    graph: CommitGraph
    masks: list[int]
    on_branches: frozenset[str] | LakeplanError = frozenset()

    def metaranges(self) -> dict[str, Facts]:
        """Facts about the metaranges of all commits: the bits of their commits, and the position of the last
        commit by creation date, then id."""
        dates = by_date(self.graph)
        facts: dict[str, Facts] = {}
        for commit, id in enumerate(self.graph.meta_range_ids):
            if id:
                facts[id] = facts.get(id, Facts()) | Facts(self.masks[commit], dates[commit])
        return facts

    def named_metaranges(self) -> tuple[dict[str, Facts], tuple[str, ...]]:
        """``metaranges``, with further bits for what keeps their commits, and the names of these bits."""
        keepers = protectors(self.graph, self.refs, self.rules, self.masks)
        named = self.metaranges()
        for commit, id in enumerate(self.graph.meta_range_ids):
            if id and keepers.masks[commit]:
                named[id] = named[id]._replace(mask=named[id].mask | keepers.masks[commit])
        return named, keepers.names

    def last_commits(self) -> Mapping[int, str]:
        return dict(zip(by_date(self.graph), self.graph.ids, strict=True))

    def last_commits_us(self) -> Mapping[int, int]:
        return dict(zip(by_date(self.graph), self.graph.creation_us, strict=True))

    @property
    def held_prefixes(self) -> tuple[str, ...]:
        """Prefixes of unexpired holds, and of holds that left the tree and still keep their data."""
        recorded = {one.name for one in self.rules.recorded if one.kind == "prefix"}
        return tuple(sorted(recorded.union(held_prefixes(self.rules.holds, self.rules.as_of))))

    def kept_metaranges(self) -> set[str]:
        """The metaranges of commits that something keeps."""
        keeps = int(KEEPS)
        pairs = zip(self.graph.meta_range_ids, self.masks, strict=True)
        return {id for id, mask in pairs if id and mask & keeps}


def inspect_repository(
    site: Site, stored: GcRules, *, now: datetime, before: RulesBefore, collects: bool = False
) -> Inspection:
    """Inspects one repository. ``stored`` are the rules that ``read_rules`` just returned, ``before`` those
    before their last recorded change. ``collects``: objects that may be staged again without being listed
    may be deleted, so branches are listed.

    Raises LakeplanError for anything that makes a collection unsafe, such as no branches, a HEAD that cannot
    be read, or rules that changed before the refs were read.
    """
    name = site.desired.name
    _check_not_cleared(site)
    check_claims(site.reader.metadata(name), site.desired.tree, site.key)
    runs = Counter(_prepare(site))
    uncommitted = tuple(key for run, pages in runs.items() for key in _files(site, run, pages))
    on_branches = _on_branches(site) if collects else frozenset()
    refs = site.refs.read(site.server.name, site.reader, site.repository)
    if read_rules(site).etag != stored.etag:
        raise StalePlan(
            "the GC rules changed while the command ran", where=site.key, hint="Run the command again."
        )
    try:
        graph = CommitGraph.from_refs(refs)
        _check_tags(graph)
        rules = _keep_rules(site, stored, refs, graph, now=now, before=before)
        masks = keep_masks(graph, refs, rules)
    except LakeplanError as error:
        raise error.replaced(where=error.where or site.key) from error
    _check_storage(site, graph)
    return Inspection(rules, uncommitted, refs, graph, masks, on_branches)


def read_rules(site: Site) -> GcRules:
    """The rules on the server. Raises LakeplanError when none are set."""
    stored = site.reader.get_gc_rules(site.desired.name)
    if stored is None:
        raise LakeplanError(
            "no GC rules are set, and a collection without rules may delete everything",
            where=site.key,
            hint="Add gc rules to the tree and run `lakeplan apply`.",
        )
    return stored


def _check_not_cleared(site: Site) -> None:
    """Raises GateRefused when the tree removes the rules that the server still has."""
    if site.desired.gc is Cleared.CLEAR:
        raise GateRefused(
            "the tree removes the GC rules (gc: clear), and without rules nothing expires",
            where=site.key,
            hint="Run `lakeplan apply` to remove them, or add gc rules to the tree again.",
        )


EMPTY_TRIES = 3
"""How often a server is asked if it lists nothing although something is uncommitted."""
BRANCHES_AT_ONCE = 8


def _prepare(site: Site) -> tuple[UncommittedRun, ...]:
    """The server's runs. Since December 2025 a server drops all it listed for an answer when a branch is
    deleted while it lists, unless a later branch has something (treeverse/lakeFS#9792). So an answer without
    a file counts only if nothing is uncommitted on the branches that it covers. Raises StalePlan while
    something is."""
    for _ in range(EMPTY_TRIES):
        runs = site.preparer.prepare_uncommitted(site.desired.name)
        empty = [run for run in runs if not run.location]
        if not empty:
            return runs
        with ThreadPoolExecutor(BRANCHES_AT_ONCE) as pool:
            branch = next(filter(None, pool.map(partial(_stages, site, empty), _branch_ids(site))), "")
        if not branch:
            return runs
    raise StalePlan(
        f"the server listed no uncommitted data, although branch {branch} has uncommitted changes",
        where=site.key,
        hint="Wait until no branches are being deleted, then run the command again.",
    )


MOST_ON_BRANCHES = 2_000_000
"""The most objects on all branches together. Listing more would take until the inspection is too old."""
KEY_WEIGHT = 512
"""An address also counts as an object for each time that the keys which it may mean have this many
characters."""


def _on_branches(site: Site) -> frozenset[str] | LakeplanError:
    """Every key that reading a branch may need, or why they are not known. The server's runs lack objects
    that are staged again with the content that they have in the HEAD (lakeFS since 2024). No answer says
    which branches have such objects, so all branches are listed."""
    reader, name, listed = site.reader, site.desired.name, count(1)
    addresses = Addresses((site.repository.storage_namespace, site.store.url))

    def keys(branch: str) -> set[str]:
        addressed: set[str] = set()
        try:
            for address in reader.list_addresses(name, branch):
                meant = addresses.staged(address)
                weight = 1 + sum(len(key) for key in meant) // KEY_WEIGHT
                if any(next(listed) > MOST_ON_BRANCHES for _ in range(weight)):
                    raise LakeplanError(
                        f"in total, the branches contain more objects than the limit of {MOST_ON_BRANCHES:,}"
                    )
                addressed.update(meant)
        except RepositoryNotFound:
            raise
        except NotFound:
            return set()  # deleted meanwhile, with what was staged on it
        return addressed

    try:
        return frozenset().union(*in_parallel(keys, _branch_ids(site), BRANCHES_AT_ONCE))
    except LakeplanError as error:
        return error


def _branch_ids(site: Site) -> list[str]:
    """All branches and pins: clients can write to a pin too."""
    reader, name = site.reader, site.desired.name
    return [
        *(branch.id for branch in reader.list_branches(name)),
        *(pin.id for pin in reader.list_pins(name)),
    ]


def _stages(site: Site, empty: Sequence[UncommittedRun], branch: str) -> str:
    """The branch if its uncommitted changes that the empty answers cover use this namespace; else ""."""
    if not any(run.first[0] <= branch and (run.end is None or branch <= run.end[0]) for run in empty):
        return ""
    reader, name = site.reader, site.desired.name
    inside = place_of(site.repository.storage_namespace).parts
    try:
        for path in reader.list_uncommitted(name, branch):
            if not any(run.covers(branch, path) for run in empty):
                continue
            address = reader.physical_address(name, branch, path) or ""
            if place_of(address).parts[: len(inside)] == inside:
                return branch
    except RepositoryNotFound:
        raise
    except NotFound:
        return ""  # deleted meanwhile
    except PermissionDenied:
        return branch
    return ""


def _files(site: Site, run: UncommittedRun, pages: int) -> list[str]:
    """The keys of the files of a run: one for each page. A run that found nothing wrote none
    (lakefs/api.md). Raises LakeplanError when the files are not in this storage, when some are not listed, or
    when lakeplan cannot read one of them, because uncommitted data would then count as garbage."""
    if not run.location:
        return []
    folder = _relative(site, run.location)
    keys = sorted(stored.key for stored in site.store.list_objects(folder))
    odd = [key for key in keys if key.rpartition("/")[2][:1] in ("", ".", "_")]
    if not keys or odd:
        what = f"contains {odd[0]}, which is not an address file" if odd else "is empty"
        raise LakeplanError(
            f"the server wrote uncommitted addresses to {run.location}, but in this storage that"
            f" folder {what}",
            where=f"{site.key}: {site.store.url}",
            hint="Check that servers.<name>.storages points to the location that the server uses.",
        )
    if len(keys) < pages:
        raise LakeplanError(
            f"the server wrote {count_of(pages, 'file')} of uncommitted addresses to {run.location}, but the"
            f" storage lists only {len(keys)} of them",
            where=f"{site.key}: {site.store.url}",
            hint="Run the command again. The storage may list new files late.",
        )
    return keys


def _relative(site: Site, location: str) -> str:
    """A location that the server reported, relative to the namespace, ending in a slash."""
    for base in (site.repository.storage_namespace, site.store.url):
        base = base.rstrip("/") + "/"
        if location.startswith(base):
            return location[len(base) :].strip("/") + "/"
    raise LakeplanError(
        f"the server wrote uncommitted addresses outside the repository's namespace ({location})",
        where=f"{site.key}: {site.repository.storage_namespace}",
        hint="To mark the other repositories, select them with `lakeplan sweep mark --target`.",
    )


def _check_storage(site: Site, graph: CommitGraph) -> None:
    """Raises LakeplanError unless the metadata of a HEAD is in the storage that is to be swept. Without it
    the storage is not the server's."""
    heads = {graph.meta_range_ids[head] for head in graph.heads}
    held = next((id for id in sorted(heads) if id), None)
    if held is not None and site.store.stat(metadata_key(held)) is None:
        raise LakeplanError(
            f"the metarange {held} of a branch's HEAD is not in this storage location, so the server must be"
            " using a different one",
            where=f"{site.key}: {site.store.url}",
            hint="Check that servers.<name>.storages points to the location that the server uses.",
        )


def _check_tags(graph: CommitGraph) -> None:
    """Raises StalePlan when a tag names a commit that was made while the dump was written: what the tag
    protects would be missed."""
    for tag in graph.tags:
        if tag.commit_id not in graph.index:
            raise StalePlan(
                f"tag {tag.id} references commit {tag.commit_id}, which is missing from the refs dump",
                hint="Run the command again.",
            )


def _keep_rules(
    site: Site, stored: GcRules, refs: Refs, graph: CommitGraph, *, now: datetime, before: RulesBefore
) -> KeepRules:
    desired = site.desired
    pins = pins_in(site, refs)
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
        protected_tags=desired.kept_tags,
        holds=desired.holds,
        recorded=keep_held(site, refs, now),
        newest=newest_kept(desired, ZoneInfo(site.server.time_zone), graph, pins),
        pins=pins,
    )


def pins_in(site: Site, refs: Refs) -> frozenset[str]:
    """The branches of the dump that are pins. A visible branch is never a pin, whatever its name."""
    if not any(has_pin_commit(branch.id, branch.commit_id) for branch in refs.branches):
        return frozenset()
    live = site.reader.list_pins(site.desired.name)
    return frozenset(branch.id for branch in live if may_be_pin(branch))


REPOSITORIES_AT_ONCE = 8
"""Refs dumps that are requested at the same time."""


@dataclass(frozen=True)
class Others:
    """The metaranges of other repositories, and the repositories that could not be read, with the reasons."""

    foreign: tuple[ForeignRanges, ...]
    unreadable: dict[str, str]


@dataclass(frozen=True)
class _Server:
    """A server with its current repositories, or why they cannot be listed. ``hides``: why it may have
    more."""

    repositories: tuple[Repository, ...] = ()
    error: LakeplanError | None = None
    hides: str = ""


def _list_server(reader: LakeFSReader) -> _Server:
    try:
        return _Server(tuple(reader.list_repositories()), hides=why_hidden(reader))
    except LakeplanError as error:
        return _Server(error=error)


_ForeignByRepository = Mapping[tuple[str, Repository], ForeignRanges | str]
"""By server and repository: its metaranges, or why it cannot be read."""


def all_others(site: Site, *, keep: Callable[[], None]) -> tuple[ForeignRanges, ...]:
    """The metaranges of all other repositories. ``keep`` is called after each of them. Raises the error of
    the site's own server, GateRefused while a repository cannot be read, and LakeplanError if one now shares
    the storage."""
    others = read_others([site], keep=keep)[0]
    if isinstance(others, LakeplanError):
        raise others
    if others.unreadable:
        name, why = next(iter(others.unreadable.items()))
        raise GateRefused(
            f"repository {name} cannot be read, and it may refer to objects in this repository: {why}",
            where=site.key,
            hint=f"If access was denied, grant this tree's lakeFS user the plan permissions on {name} (see"
            " docs/permissions.md). Otherwise, run the command again.",
        )
    check_new(site)
    return others.foreign


def read_others(
    sites: Sequence[Site], *, keep: Callable[[], None] = lambda: None
) -> list[Others | LakeplanError]:
    """For each site, the metaranges of other repositories now, or the error of its own server. Every
    repository is read once, and ``keep`` is called after each."""
    readers: dict[str, LakeFSReader] = {}
    for site in sites:
        readers.setdefault(site.server.name, site.reader)
        for server, reader in site.other_servers:
            readers.setdefault(server.name, reader)
    servers = {name: _list_server(reader) for name, reader in readers.items()}
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
        reader = readers[name]
        try:
            metaranges = memory.metaranges(name, reader, repository)
            metadata = memory.metadata(name, reader, repository)
        except LakeplanError as error:
            return error.message
        return ForeignRanges(f"{name}/{repository.id}", metadata, metaranges)

    with ThreadPoolExecutor(REPOSITORIES_AT_ONCE) as pool:
        answers: dict[tuple[str, Repository], ForeignRanges | str] = {}
        for one, answer in zip(wanted, pool.map(read, wanted), strict=True):
            keep()
            answers[one] = answer
    return [_of_site(site, servers, answers) for site in sites]


def _concerns(site: Site, server: str, repository: Repository) -> bool:
    """Whether a repository may refer to objects of the site: on other servers, only one on the same kind of
    storage."""
    if server == site.server.name:
        return repository.id != site.desired.name
    if all(other.name != server for other, _ in site.other_servers):
        return False
    return place_of(repository.storage_namespace).kind == place_of(site.repository.storage_namespace).kind


def _of_site(
    site: Site, servers: Mapping[str, _Server], answers: _ForeignByRepository
) -> Others | LakeplanError:
    this = servers[site.server.name]
    if this.error is not None:
        return this.error
    foreign: list[ForeignRanges] = []
    unreadable: dict[str, str] = {}
    others = {other.name for other, _ in site.other_servers}
    for name, server in servers.items():
        if server.error is not None and name in others:
            unreadable[f"of server {name}"] = server.error.message
        if server.hides and (server is this or name in others):
            unreadable[HIDDEN if server is this else f"{HIDDEN} of server {name}"] = server.hides
        for repository in server.repositories:
            if not _concerns(site, name, repository):
                continue
            answer = answers[name, repository]
            if isinstance(answer, str):
                unreadable[repository.id if server is this else f"{name}/{repository.id}"] = answer
            elif answer.metaranges:
                foreign.append(answer)
    return Others(tuple(foreign), unreadable)


def as_overridden(
    site: Site, foreign: tuple[ForeignRanges, ...], inspection: Inspection
) -> tuple[ForeignRanges, ...]:
    """Other repositories, which may lack metadata files if the tree overrides ``missing-metadata``."""
    if not may_lack_metadata(site, inspection.rules.as_of.date()):
        return foreign
    return tuple(replace(other, may_lack=True) for other in foreign)


def only_new(
    foreign: tuple[ForeignRanges, ...], known: Mapping[str, frozenset[str]]
) -> tuple[ForeignRanges, ...]:
    """The metaranges that a mark did not read. ``known``: the ids that it read, by repository."""
    unread = (
        replace(other, metaranges=tuple(id for id in other.metaranges if id not in known.get(other.name, ())))
        for other in foreign
    )
    return tuple(other for other in unread if other.metaranges)


def recheck_request(
    site: Site,
    mark: Mark,
    parts: tuple[Part, ...],
    inspection: Inspection,
    foreign: tuple[ForeignRanges, ...],
    known: KnownAtMark,
) -> RecheckRequest:
    """The request that finds which objects of these parts are needed. It leaves out what the mark read."""
    kept, prefixes = inspection.kept_metaranges(), inspection.held_prefixes
    # The mark compared what it read elsewhere only with the prefixes that were held then.
    read = known.other_metaranges if {*prefixes} <= {*mark.held_prefixes} else frozenset()
    others = inspection.metaranges().keys() - kept - read if prefixes else ()
    return RecheckRequest(
        store=site.store,
        parts=parts,
        prefix=mark_prefix(mark.mark_id),
        storage_namespace=site.repository.storage_namespace,
        metadata=site.reader.metadata_reader(site.desired.name),
        uncommitted=inspection.uncommitted,
        metaranges=tuple(sorted(kept - known.kept_metaranges)),
        foreign=as_overridden(site, only_new(foreign, known.foreign), inspection),
        other_metaranges=tuple(sorted(others)),
        held_prefixes=prefixes,
    )


def marked_on_branches(
    site: Site, mark: Mark, parts: Sequence[Part], inspection: Inspection, copies: str = ""
) -> frozenset[str]:
    """The addresses in these parts that reading a branch returns, with ``copies`` also those of the copies in
    this folder. Raises LakeplanError if the branches could not be listed, but for a mark that has only
    expired objects, returns none: then only some of these could be staged again."""
    if isinstance(inspection.on_branches, LakeplanError):
        if not mark.collects:
            return frozenset()
        raise inspection.on_branches.replaced(where=inspection.on_branches.where or site.key)
    if not inspection.on_branches:
        return frozenset()
    marked = (read_marked(site.store, mark.mark_id, part).column("address").to_pylist() for part in parts)
    names = (name for part in marked for key in part for name in {key, copies + key})
    return frozenset(name for name in names if name in inspection.on_branches)


MOST_NEEDED = 1_000_000


class TooManyNeeded(LakeplanError):
    """More than ``MOST_NEEDED`` addresses are needed."""


@dataclass(frozen=True)
class Needed:
    """The addresses of a mark that something needs. ``inspected_at``: when the inspection of the repository
    itself began, by this machine's clock."""

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
    copies: str = "",
) -> Needed:
    """Inspects as a mark does: other repositories on all servers of the tree, uncommitted data, then a refs
    dump, with protected tags and holds. ``now`` is the earliest of all clocks, ``keep`` is called several
    times. ``parts`` limits the answer to what these name; None means the whole mark. ``copies``: as in
    ``RecheckRequest``.

    Raises GateRefused for a repository that cannot be read, TooManyNeeded, and LakeplanError for anything
    that makes an inspection unsafe.
    """
    check_pins(site.reader, ports.state, site.key)
    foreign = all_others(site, keep=keep)
    inspected_at = ports.now()
    inspection = inspect_repository(
        site, read_rules(site), now=now, before=None, collects=mark.lists_branches
    )
    keep()
    wanted = mark.marked.going if parts is None else parts
    request = recheck_request(site, mark, wanted, inspection, foreign, KNOWN_NOTHING)
    addresses = ports.marker.held_again(replace(request, copies=copies), limit=MOST_NEEDED)
    if len(addresses) > MOST_NEEDED:
        raise TooManyNeeded(
            f"more than {MOST_NEEDED:,} marked objects are needed again",
            where=f"{site.key}: mark {mark.mark_id}",
            hint=f"Run `lakeplan sweep restore {mark.mark_id} --path PATH` for one path at a time.",
        )
    return Needed(addresses | marked_on_branches(site, mark, wanted, inspection, copies), inspected_at)
