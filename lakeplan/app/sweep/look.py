"""One look at what a repository holds, in the only order that is safe: uncommitted data first, then a refs
dump of our own (retention.md, "What a safe mark must respect"). Whatever is committed between the two is in
the dump; whatever is staged later is young, or an address that the next look finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from lakeplan.app.sweep.hold_records import keep_held
from lakeplan.app.sweep.ports import Site
from lakeplan.core.holds import held_prefixes
from lakeplan.core.patterns import expand
from lakeplan.core.retention import CommitGraph, by_date
from lakeplan.core.sweep.keep import KEEPS, KeepRules, keep_masks
from lakeplan.errors import GateRefused, LakeplanError, StalePlan
from lakeplan.formats.namespace import metadata_key
from lakeplan.model.desired import Cleared, GcDesired
from lakeplan.model.refs import Refs
from lakeplan.model.rules import GcRules
from lakeplan.ports.sweep import Facts, UncommittedRun


@dataclass(frozen=True)
class Look:
    """``at``: when it began. ``uncommitted``: keys of the server's run. ``masks``: ``Keep`` bits per commit
    number of ``graph``."""

    at: datetime
    rules: KeepRules
    uncommitted: tuple[str, ...]
    uncommitted_runs: tuple[str, ...]
    refs: Refs
    graph: CommitGraph
    masks: list[int]

    def metaranges(self) -> dict[str, Facts]:
        """Of all commits: their bits, and the position of the last of them by creation date, then id."""
        dates = by_date(self.graph)
        found: dict[str, Facts] = {}
        for commit, id in enumerate(self.graph.meta_range_ids):
            if not id:
                continue
            known = found.get(id, Facts(0))
            found[id] = Facts(known.mask | self.masks[commit], max(known.last, dates[commit]))
        return found

    def last_commits(self) -> Mapping[int, str]:
        return dict(zip(by_date(self.graph), self.graph.ids, strict=True))

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


def take_look(site: Site, stored: GcRules, *, now: datetime, before: GcRules | None) -> Look:
    """``stored``: the rules as ``read_rules`` gave them just before; ``before``: those before their last
    recorded change. Raises LakeplanError, by name, for anything that makes a collection unsafe: no branches,
    a HEAD that cannot be had, rules that are gone or others by the time the refs are read."""
    name = site.desired.name
    _check_not_cleared(site)
    runs = site.preparer.prepare_uncommitted(name)
    uncommitted = tuple(key for run in runs for key in _files(site, run))
    run_ids = tuple(dict.fromkeys(run.run_id for run in runs))
    refs = site.refs.read(site.server.name, site.reader, site.repository)
    if read_rules(site).etag != stored.etag:
        raise StalePlan("the GC rules changed meanwhile", where=site.key, hint="run the command again")
    try:
        graph = CommitGraph.from_refs(refs)
        _check_tags(graph)
        rules = _keep_rules(site, stored, refs, now=now, before=before)
        masks = keep_masks(graph, refs, rules)
    except LakeplanError as error:
        error.where = error.where or site.key
        raise
    _check_storage(site, graph)
    return Look(now, rules, uncommitted, run_ids, refs, graph, masks)


def read_rules(site: Site) -> GcRules:
    """The stored rules. Raises LakeplanError when none are set."""
    stored = site.reader.get_gc_rules(site.desired.name)
    if stored is None:
        raise LakeplanError(
            "no GC rules are set: a collection without rules may take everything",
            where=site.key,
            hint="write gc rules in the tree and run lakeplan apply",
        )
    return stored


def _check_not_cleared(site: Site) -> None:
    """The tree may remove rules that the server still has: without rules nothing expires."""
    if site.desired.gc is Cleared.CLEAR:
        raise GateRefused(
            "the tree removes the GC rules (gc: clear): without rules nothing expires",
            where=site.key,
            hint="run `lakeplan apply` to remove them, or write gc rules in the tree again",
        )


def _files(site: Site, run: UncommittedRun) -> list[str]:
    """Keys of the files of a run; none when it found nothing, and wrote nothing (api.md). Raises
    LakeplanError when the server wrote where this storage is not, or wrote what nobody here understands: what
    is staged would be taken for garbage."""
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
            hint="check that servers.<name>.storages is the storage that the server itself uses",
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
        hint="this repository cannot be swept",
    )


def _check_storage(site: Site, graph: CommitGraph) -> None:
    """The metadata of a HEAD has to be in the storage that is about to be swept: else it is not the server's,
    and nothing that is read of it proves anything."""
    heads = {graph.meta_range_ids[head] for head in graph.heads}
    held = next((id for id in sorted(heads) if id), None)
    if held is not None and site.store.stat(metadata_key(held)) is None:
        raise LakeplanError(
            f"this storage does not hold metarange {held} of a branch's HEAD: it is not the server's",
            where=f"{site.key}: {site.store.url}",
            hint="check servers.<name>.storages",
        )


def _check_tags(graph: CommitGraph) -> None:
    """A tag of a commit that was made while the dump was written: its protection would go unseen."""
    for tag in graph.tags:
        if tag.commit_id not in graph.index:
            raise StalePlan(
                f"tag {tag.id} names commit {tag.commit_id}, which the refs dump lacks",
                hint="run the command again",
            )


def _keep_rules(
    site: Site, stored: GcRules, refs: Refs, *, now: datetime, before: GcRules | None
) -> KeepRules:
    desired = site.desired
    expanded = None
    if isinstance(desired.gc, GcDesired):
        expanded = expand(desired.gc, [branch.id for branch in refs.branches]).rules
    return KeepRules(
        stored=stored,
        as_of=now,
        zone=ZoneInfo(site.server.time_zone),
        margin_seconds=desired.sweep.margin_seconds,
        expanded=expanded,
        before=before,
        protected_tags=desired.safety.protected_tags,
        holds=desired.holds,
        recorded=keep_held(site, refs, now),
    )
