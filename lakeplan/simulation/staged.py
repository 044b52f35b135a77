"""The newest run of uncommitted addresses: what is staged must not go."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from lakeplan.errors import LakeplanError, StorageDenied
from lakeplan.formats.namespace import GC_UNCOMMITTED_PREFIX
from lakeplan.formats.uncommitted import files_of_run, newest_run, run_time
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.work import Kind, WorkItem

SECOND_US = 1_000_000


@dataclass(frozen=True)
class StagedRun:
    """``run_id`` None: no run is at hand (a run that finds nothing staged leaves no file at all)."""

    run_id: str | None = None
    created_us: int | None = None
    files: tuple[str, ...] = ()

    def items(self) -> list[WorkItem]:
        return [WorkItem(Kind.UNCOMMITTED, 0, key) for key in self.files]


def find_run(namespace: NamespaceReader, *, as_of_us: int, max_age_seconds: int) -> StagedRun:
    """The newest run of the namespace; only the newest counts (golden/README.md, risk-2).

    Raises LakeplanError for a run that is older than ``max_age_seconds`` at ``as_of_us``: what was staged
    since would be shown as garbage.
    """
    try:
        keys = [o.key for o in namespace.list_objects(GC_UNCOMMITTED_PREFIX)]
    except StorageDenied:
        return StagedRun()
    run_id = newest_run(keys)
    if run_id is None:
        return StagedRun()
    created_us = run_time(run_id) * SECOND_US
    age = as_of_us - created_us
    if age > max_age_seconds * SECOND_US:
        raise LakeplanError(
            f"the newest run of uncommitted addresses, {run_id}, is {timedelta(microseconds=age)} old",
            where=f"{namespace.url}/{GC_UNCOMMITTED_PREFIX}{run_id}",
            hint="what was staged since is not in it: make a new one, or raise --max-uncommitted-age",
        )
    return StagedRun(run_id, created_us, tuple(files_of_run(keys, run_id)))
