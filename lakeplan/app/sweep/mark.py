"""``sweep mark``: what a sweep would take, written down in the namespace for somebody to approve.

Strictly in this order: list; have uncommitted addresses prepared; have refs dumped; judge. Nothing is deleted
but the mark's own listing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakeplan.app.run import Run
from lakeplan.app.sweep.clock import site_clocks
from lakeplan.app.sweep.look import Look, foreign_ranges, read_rules, take_look
from lakeplan.app.sweep.places import mark_index_key
from lakeplan.app.sweep.ports import Site, SweepPorts
from lakeplan.app.sweep.rules_seen import see_rules
from lakeplan.app.sweep.safeguards import begun_sweeps, check_no_open_sweep, check_site
from lakeplan.core.planning.gates import Openers
from lakeplan.core.sweep.gates import mark_gates
from lakeplan.errors import StorageError
from lakeplan.formats.sweep_keys import CLOCK_FILE, COLLECTOR_RUNS, MARK_FILE, SEEN_FILE, mark_prefix
from lakeplan.model.mark import Mark, digest_of
from lakeplan.model.moments import utc_text
from lakeplan.model.simulation import Amount
from lakeplan.model.stored import Versions
from lakeplan.model.sweep import Part, SweepSettings, going_classes
from lakeplan.ports.lakefs import LakeFSReader
from lakeplan.ports.sweep import ForeignRanges, MarkRequest


@dataclass(frozen=True)
class MarkOptions:
    """``settings`` replaces the tree's where a person gave options. ``mark_id`` is new."""

    mark_id: str
    settings: SweepSettings
    openers: Openers


def make_mark(site: Site, ports: SweepPorts, options: MarkOptions, run: Run) -> Mark:
    """Marks one repository. Raises LakeplanError, by name, for whatever makes a collection unsafe."""
    settings = options.settings
    check_site(site, ports.now().date())
    check_no_open_sweep(site)
    prefix = mark_prefix(options.mark_id)
    now = site_clocks(site, prefix + CLOCK_FILE, ports.now, by=by_text(run)).earliest
    cutoff = now - timedelta(seconds=settings.min_age_seconds)
    collectors = collector_runs(site)
    listing = ports.marker.list_candidates(site.store, prefix, older_than=cutoff)
    try:
        mark = _judge(site, ports, options, run, listing, (now, cutoff), collectors)
    finally:
        _drop_listing(site, listing)
    # Last: a mark without its document is none.
    data = mark.to_bytes()
    site.store.create(prefix + MARK_FILE, data)
    index = {
        "repository": site.key,
        "marked_at": utc_text(now),
        "by": mark.by,
        "digest": digest_of(data),
    }
    ports.state.write(mark_index_key(mark.mark_id), _json(index), if_version=None)
    return mark


def _judge(
    site: Site,
    ports: SweepPorts,
    options: MarkOptions,
    run: Run,
    listing: tuple[Part, ...],
    moments: tuple[datetime, datetime],
    collectors: tuple[str, ...],
) -> Mark:
    """Everything after the listing. ``moments``: when the mark began, and what is too young for it."""
    settings, prefix = options.settings, mark_prefix(options.mark_id)
    now, cutoff = moments
    clocks = site_clocks(site, prefix + CLOCK_FILE, ports.now, by=by_text(run))
    looked_at = clocks.earliest
    stored = read_rules(site)
    seen = see_rules(site, ports.state, stored, clocks, settle_seconds=settings.settle_seconds)
    look = take_look(site, stored, now=looked_at, before=seen.before)
    foreign, unreadable = foreign_ranges(site)
    marked = ports.marker.mark(_request(site, options, listing, look, foreign))
    candidates = Amount(sum(p.rows for p in listing), sum(p.size_bytes for p in listing))
    gates = mark_gates(
        site.desired,
        marked.amount(*going_classes(settings.never_committed)),
        candidates,
        settings,
        site.desired.safety,
        grace_period_seconds=site.preparer.grace_period_seconds(),
        openers=options.openers,
    )
    return Mark(
        mark_id=options.mark_id,
        server=site.desired.server,
        repository=site.desired.name,
        endpoint_url=site.server.endpoint_url,
        storage_namespace=site.repository.storage_namespace,
        repository_created=site.repository.creation_date,
        marked_at=now,
        cutoff=cutoff,
        looked_at=looked_at,
        lowered_at=seen.lowered_at,
        rules=look.rules.stored,
        settings=settings,
        tree_settings=site.desired.sweep,
        held_prefixes=look.held_prefixes,
        marked=marked,
        candidates=candidates,
        seen_sha256=_write_seen(site, prefix, look, foreign),
        collector_runs=collectors,
        unreadable=unreadable,
        gates=gates,
        by=by_text(run),
        tree_commit=run.tree_commit,
    )


def collector_runs(site: Site) -> tuple[str, ...]:
    """Ids of all runs in which a collector deleted something, and of marks whose sweep began, sorted."""
    theirs = [
        prefix.removesuffix("/").rpartition("/")[2].removeprefix("run_id=")
        for place in COLLECTOR_RUNS
        for prefix in site.store.list_prefixes(place)
    ]
    return tuple(sorted([*theirs, *begun_sweeps(site)]))


def _request(
    site: Site,
    options: MarkOptions,
    listing: tuple[Part, ...],
    look: Look,
    foreign: tuple[ForeignRanges, ...],
) -> MarkRequest:
    reader: LakeFSReader = site.reader
    return MarkRequest(
        store=site.store,
        prefix=mark_prefix(options.mark_id),
        storage_namespace=site.repository.storage_namespace,
        metadata=reader.metadata_reader(site.desired.name),
        listing=listing,
        uncommitted=look.uncommitted,
        metaranges=look.metaranges(),
        last_commits=look.last_commits(),
        held_prefixes=look.held_prefixes,
        foreign=foreign,
        collect_never_committed=options.settings.never_committed == "collect",
    )


def _write_seen(site: Site, prefix: str, look: Look, foreign: tuple[ForeignRanges, ...]) -> str:
    """What the mark knew to be kept, and what it read elsewhere: a sweep reads only what is new since."""
    kept = look.kept_metaranges()
    data = _json(
        {
            "kept_metaranges": sorted(kept),
            "other_metaranges": sorted(look.metaranges().keys() - kept),
            "foreign": {other.name: list(other.metaranges) for other in foreign},
        }
    )
    site.store.create(prefix + SEEN_FILE, data)
    return hashlib.sha256(data).hexdigest()


def _drop_listing(site: Site, listing: tuple[Part, ...]) -> None:
    """It is large and has served; one that cannot be deleted harms nobody."""
    keys = [part.name for part in listing]
    with suppress(StorageError):
        for start in range(0, len(keys), site.store.batch_size):
            site.store.delete(keys[start : start + site.store.batch_size], versions=Versions.MARKER)


def by_text(run: Run) -> str:
    """Who runs, as records say it."""
    holder: Mapping[str, object] = run.holder
    return "@".join(str(holder[k]) for k in ("user", "host") if k in holder) or "unknown"


def _json(value: object) -> bytes:
    return (json.dumps(value, sort_keys=True) + "\n").encode()
