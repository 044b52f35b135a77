"""The clocks that a sweep is judged by: this machine's, the server's and the store's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from lakeplan.app.clocks import Clocks, read_clocks, server_clock, store_time
from lakeplan.app.run import Run
from lakeplan.app.state import Lease
from lakeplan.app.sweep.ports import Site
from lakeplan.ports.storage import StateWriter

LEASE_SECONDS = 30 * 60
"""A round, its inspection, and room: a killed run on another machine blocks the repository for this long."""


def site_clocks(site: Site, key: str, now: Callable[[], datetime], *, by: str) -> Clocks:
    """Writes a small file to ``key`` for the store's clock. Raises ClockSkew when clocks differ, ServerError,
    StorageError."""
    others = {
        "the server's clock": lambda: site.reader.server_time(site.desired.name),
        "the store's clock": lambda: store_time(site.store, key, {"by": by, "at": now().isoformat()}),
    }
    return read_clocks(now, others, where=site.key)


def site_lease(site: Site, state: StateWriter, run: Run) -> Lease:
    """The repository's lease, for as long as a round may take."""

    def confirm() -> datetime:
        return server_clock(site.reader, site.desired.name, run.now, where=site.key).earliest

    return Lease(state, site.key, run.holder, run.now, run.is_gone, confirm, seconds=LEASE_SECONDS)
