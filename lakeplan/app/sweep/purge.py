"""``sweep purge``: the end of a quarantine. What it deletes cannot come back."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from lakeplan.app.run import Run
from lakeplan.app.sweep.clock import site_clocks, site_lease
from lakeplan.app.sweep.mark import by_text
from lakeplan.app.sweep.ports import Site, SweepPorts
from lakeplan.app.sweep.record import record_purge
from lakeplan.app.sweep.safeguards import is_over, read_summary
from lakeplan.errors import LakeplanError
from lakeplan.formats.sweep_keys import CLOCK_FILE, QUARANTINE_PREFIX, sweep_prefix
from lakeplan.model.moments import utc_text
from lakeplan.model.simulation import Amount
from lakeplan.ports.sweep import DeleteSettings

_log = logging.getLogger(__name__)
PURGE_FORMAT = "lakeplan.purge/v1"
KEYS_A_LEASE = 50_000
"""Deletions between two renewals of the lease."""


@dataclass(frozen=True)
class Quarantine:
    """The copies that one sweep made. ``newest``: when the last of them was written."""

    site: Site
    mark_id: str
    amount: Amount
    newest: datetime


def list_quarantines(site: Site, *, older_than: datetime) -> list[Quarantine]:
    """Quarantines whose last copy was written before a moment, oldest first."""
    found = []
    for prefix in site.store.list_prefixes(QUARANTINE_PREFIX):
        objects, size, newest = 0, 0, 0
        for stored in site.store.list_objects(prefix):
            objects, size, newest = objects + 1, size + stored.size, max(newest, stored.modified_us)
        at = datetime.fromtimestamp(0, tz=timezone.utc) + timedelta(microseconds=newest)
        if objects and at < older_than:
            mark_id = prefix.removeprefix(QUARANTINE_PREFIX).rstrip("/")
            found.append(Quarantine(site, mark_id, Amount(objects, size), at))
    return sorted(found, key=lambda quarantine: quarantine.newest)


def purge(quarantine: Quarantine, ports: SweepPorts, run: Run, *, older_than: datetime) -> dict[str, Any]:
    """Deletes the copies of one quarantine that were written before a moment, and says what became of them.
    Raises ClockSkew when clocks differ, LakeplanError while its sweep is not finished (it may be about to
    copy, or to be closed), StorageError when the store cannot be used; what is left is purged by the next
    call."""
    site = quarantine.site
    settings = DeleteSettings(
        mode="delete",
        versions=site.desired.sweep.versions,
        verify_all=False,
        cutoff_us=0,
        rate=site.desired.sweep.rate,
    )
    site_clocks(site, sweep_prefix(quarantine.mark_id) + CLOCK_FILE, ports.now, by=by_text(run))
    limit_us = round(older_than.timestamp() * 1_000_000)
    lease = site_lease(site, ports.state, run)
    with lease:
        _check_over(site, quarantine.mark_id)
        prefix = f"{QUARANTINE_PREFIX}{quarantine.mark_id}/"
        copies = [o for o in site.store.list_objects(prefix) if o.modified_us < limit_us]
        sizes = {o.key: o.size for o in copies}
        answers = []
        for start in range(0, len(copies), KEYS_A_LEASE):
            lease.renew()
            some = copies[start : start + KEYS_A_LEASE]
            answers += ports.sweeper.delete_objects(site.store, some, settings)
    failed = {a.key: a.reason for a in answers if not a.deleted}
    deleted = [a.key for a in answers if a.deleted]
    size_bytes = sum(sizes[key] for key in deleted)
    try:
        record_purge(ports.state, site.key, quarantine.mark_id, Amount(len(deleted), size_bytes))
    except LakeplanError as error:
        # Figures only, and the copies are gone: what became of them must still be told.
        _log.warning("the state does not know of this purge: %s", error)
    return {
        "repository": site.key,
        "mark_id": quarantine.mark_id,
        "deleted": len(deleted),
        "size_bytes": size_bytes,
        "failed": len(failed),
        "failures": dict(list(failed.items())[:100]),
        "newest": utc_text(quarantine.newest),
    }


def _check_over(site: Site, mark_id: str) -> None:
    summary = read_summary(site, mark_id)
    if summary is None or not is_over(summary):
        raise LakeplanError(
            f"the sweep of mark {mark_id} is not finished: its copies may be all there is",
            where=site.key,
            hint=f"lakeplan sweep run {mark_id} goes on with it; with --close it deletes nothing more",
        )
