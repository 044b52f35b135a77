"""``sweep mark``: writes a list of the objects that a sweep would delete to the namespace, for approval.

The order matters: list storage, have the server prepare uncommitted addresses, dump refs, dump the refs of
all other repositories, judge. A mark deletes only its own listing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lakeplan.errors import LakeplanError, StorageError
from lakeplan.formats.namespace import CLOCK_FILE, COLLECTOR_RUNS, KNOWN_FILE, MARK_FILE, mark_prefix
from lakeplan.review.gates import GateOverrides
from lakeplan.review.run import Run
from lakeplan.simulation.requests import ForeignRanges, MarkRequest
from lakeplan.sweep.inspection import (
    Inspection,
    Others,
    as_overridden,
    inspect_repository,
    read_others,
    read_rules,
)
from lakeplan.sweep.mark_record import Mark, digest_of
from lakeplan.sweep.neighbours import Probes, begun_sweeps, check_no_open_sweep, check_site
from lakeplan.sweep.observed_rules import observe_rules, site_clocks
from lakeplan.sweep.ports import Site, SweepPorts, mark_index_key
from lakeplan.sweep.records import MarkIndex
from lakeplan.sweep.rules import candidate_age_seconds, check_collectable, check_engine, mark_gates
from lakeplan.values.desired import duration_text
from lakeplan.values.documents import encode
from lakeplan.values.records import json_line, utc_text
from lakeplan.values.repository import Repository, batches
from lakeplan.values.simulation import Amount, Part, deleted_classes
from lakeplan.values.sweep import SweepSettings, Versions

_log = logging.getLogger(__name__)
GROUP_COMMITS = 200_000
"""A group with more commits than this is finished, to limit memory."""
GROUP_TIME = timedelta(minutes=10)
"""The marks of a group are written at its end, so a killed command loses no more than this time."""


@dataclass(frozen=True)
class MarkOptions:
    """``settings`` are the tree's with a person's options. ``mark_id`` is new."""

    mark_id: str
    settings: SweepSettings
    overrides: GateOverrides


@dataclass(frozen=True)
class StartedMark:
    """A repository that was listed and inspected. What other repositories need of it is not known yet.
    ``now``: when the mark began; ``inspection.rules.as_of``: when the inspection began."""

    site: Site
    options: MarkOptions
    listing: tuple[Part, ...]
    now: datetime
    collectors: tuple[str, ...]
    lowered_at: datetime
    inspection: Inspection


Made = Mark | LakeplanError | str
"""A mark, why there is none, or why none is needed."""


def make_marks(
    wanted: Sequence[tuple[Site, MarkOptions]], ports: SweepPorts, run: Run
) -> Iterator[tuple[Site, Made]]:
    """Marks repositories in groups, and yields each with its mark or error. The repositories of a group are
    listed and inspected, then all other repositories are read once (``read_others``), then each is judged."""
    marker = _Marker(ports, run)
    for site, _ in wanted:
        marker.probe(site)
    group: list[StartedMark] = []
    try:
        for site, options in wanted:
            try:
                begun = marker.begin(site, options)
            except LakeplanError as error:
                yield site, error
                continue
            if isinstance(begun, str):
                yield site, begun
                continue
            group.append(begun)
            if _is_full(group, ports.now()):
                yield from marker.finish(group)
        yield from marker.finish(group)
    finally:
        for begun in group:
            _drop_listing(begun.site, begun.listing)


def _is_full(group: Sequence[StartedMark], now: datetime) -> bool:
    commits = sum(len(begun.inspection.graph.ids) for begun in group)
    return commits > GROUP_COMMITS or now - group[0].inspection.rules.as_of > GROUP_TIME


@dataclass(frozen=True)
class _Marker:
    _ports: SweepPorts
    _run: Run
    _probes: Probes = field(default_factory=Probes)
    _listed: dict[str, tuple[Repository, ...]] = field(default_factory=dict)

    def probe(self, site: Site) -> None:
        """Writes the probe of a site. The check repeats what fails here."""
        if not site.repository.read_only:
            with suppress(LakeplanError):
                self._probes.write(site)

    def begin(self, site: Site, options: MarkOptions) -> StartedMark | str:
        """Lists and inspects a repository; or says why no mark is needed. Raises LakeplanError for anything
        that makes a collection unsafe."""
        check_engine(options.settings, site.key)
        ports, prefix, by = self._ports, mark_prefix(options.mark_id), by_text(self._run)
        if site.server.name not in self._listed:
            self._listed[site.server.name] = tuple(site.reader.list_repositories())
        listed = self._listed[site.server.name]
        check_site(site, ports.now().date(), listed=listed, probes=self._probes)
        check_no_open_sweep(site)
        now = site_clocks(site, prefix + CLOCK_FILE, ports.now, by=by).earliest
        collectors = collector_runs(site)
        age_seconds = candidate_age_seconds(options.settings)
        listing = ports.marker.list_candidates(
            site.store, prefix, older_than=now - timedelta(seconds=age_seconds)
        )
        # An inspection records what holds keep, even if there is nothing to delete.
        if not listing and not site.desired.holds:
            return f"no object is older than {duration_text(age_seconds)}"
        try:
            clocks = site_clocks(site, prefix + CLOCK_FILE, ports.now, by=by)
            stored = read_rules(site)
            settle = options.settings.settle_seconds
            observed = observe_rules(site, ports.state, stored, clocks, settle_seconds=settle)
            inspection = inspect_repository(site, stored, now=clocks.earliest, before=observed.before)
        except BaseException:
            _drop_listing(site, listing)
            raise
        return StartedMark(site, options, listing, now, collectors, observed.lowered_at, inspection)

    def finish(self, group: list[StartedMark]) -> Iterator[tuple[Site, Made]]:
        """Judges the repositories of a group, and empties it."""
        if not group:
            return
        others = read_others([begun.site for begun in group])
        for foreign in others:
            begun = group[0]
            made: Made
            try:
                made = foreign if isinstance(foreign, LakeplanError) else self._judge(begun, foreign)
            except LakeplanError as error:
                made = error
            _drop_listing(begun.site, begun.listing)
            del group[0]
            yield begun.site, made

    def _judge(self, begun: StartedMark, others: Others) -> Mark:
        site, options, inspection = begun.site, begun.options, begun.inspection
        foreign = as_overridden(site, others.foreign, inspection)
        marked = self._ports.marker.mark(_request(begun, foreign))
        candidates = Amount(sum(p.rows for p in begun.listing), sum(p.size_bytes for p in begun.listing))
        gates = mark_gates(
            site.desired,
            marked.amount(*deleted_classes(options.settings.never_committed)),
            candidates,
            options.settings,
            site.desired.safety,
            grace_period_seconds=site.preparer.grace_period_seconds(),
            overrides=options.overrides,
        )
        mark = Mark(
            mark_id=options.mark_id,
            server=site.desired.server,
            repository=site.desired.name,
            endpoint_url=site.server.endpoint_url,
            storage_namespace=site.repository.storage_namespace,
            repository_created=site.repository.creation_date,
            marked_at=begun.now,
            cutoff=begun.now - timedelta(seconds=options.settings.min_age_seconds),
            looked_at=inspection.rules.as_of,
            lowered_at=begun.lowered_at,
            rules=inspection.rules.stored,
            rules_before=inspection.rules.before,
            settings=options.settings,
            tree_settings=site.desired.sweep,
            held_prefixes=inspection.held_prefixes,
            marked=marked,
            candidates=candidates,
            seen_sha256=_write_known(site, mark_prefix(options.mark_id), inspection, foreign),
            collector_runs=begun.collectors,
            unreadable=others.unreadable,
            gates=gates,
            by=by_text(self._run),
            tree_commit=self._run.tree_commit,
        )
        check_collectable(mark)
        self._write(site, mark)
        return mark

    def _write(self, site: Site, mark: Mark) -> None:
        """Writes the mark's document, which makes it a mark, and its record in the state."""
        data = mark.to_bytes()
        site.store.create(mark_prefix(mark.mark_id) + MARK_FILE, data)
        index = MarkIndex(site.key, digest_of(data), utc_text(mark.marked_at), mark.by, mark.to_delete)
        self._ports.state.write(mark_index_key(mark.mark_id), json_line(encode(index)), if_version=None)


def collector_runs(site: Site) -> tuple[str, ...]:
    """The ids of all runs in which a collector deleted, and of marks whose sweep began, sorted."""
    theirs = [
        prefix.removesuffix("/").rpartition("/")[2].removeprefix("run_id=")
        for place in COLLECTOR_RUNS
        for prefix in site.store.list_prefixes(place)
    ]
    return tuple(sorted([*theirs, *begun_sweeps(site)]))


def _request(begun: StartedMark, foreign: tuple[ForeignRanges, ...]) -> MarkRequest:
    site, inspection = begun.site, begun.inspection
    metaranges, names = inspection.named_metaranges()
    return MarkRequest(
        store=site.store,
        prefix=mark_prefix(begun.options.mark_id),
        storage_namespace=site.repository.storage_namespace,
        metadata=site.refs.metadata(site.server.name, site.reader, site.repository),
        listing=begun.listing,
        uncommitted=inspection.uncommitted,
        metaranges=metaranges,
        last_commits=inspection.last_commits(),
        last_commits_us=inspection.last_commits_us(),
        protectors=names,
        held_prefixes=inspection.held_prefixes,
        foreign=foreign,
        collect_never_committed=begun.options.settings.never_committed == "collect",
    )


def _write_known(site: Site, prefix: str, inspection: Inspection, foreign: tuple[ForeignRanges, ...]) -> str:
    """Writes which metaranges the mark read, so that its sweep reads only new ones. Returns the file's
    SHA-256."""
    kept = inspection.kept_metaranges()
    data = json_line(
        {
            "kept_metaranges": sorted(kept),
            "other_metaranges": sorted(inspection.metaranges().keys() - kept),
            # a missing file may be there again when the sweep runs
            "foreign": {other.name: list(other.metaranges) for other in foreign if not other.may_lack},
        }
    )
    site.store.create(prefix + KNOWN_FILE, data)
    return hashlib.sha256(data).hexdigest()


def _drop_listing(site: Site, listing: tuple[Part, ...]) -> None:
    """Deletes a listing, which is large and no longer needed. One that stays does no harm, but a sweep would
    fail with these credentials."""
    why = ""
    try:
        for keys in batches((part.name for part in listing), site.store.batch_size):
            answers = site.store.delete(keys, versions=Versions.MARKER)
            why = next((one.reason for one in answers if not one.deleted), why)
    except StorageError as error:
        why = error.message
    if why:
        _log.warning(
            "%s: a temporary file of this mark could not be deleted, so a sweep may not be able to delete"
            " objects either: %s",
            site.key,
            why,
        )


def by_text(run: Run) -> str:
    """Return who runs the command, as records name them."""
    holder: Mapping[str, object] = run.holder
    return "@".join(str(holder[k]) for k in ("user", "host") if k in holder) or "unknown"
