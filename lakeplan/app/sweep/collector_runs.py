"""Reports of collections in a namespace, whoever wrote them: lakeplan, lakeFS's job, or the job of earlier
versions, whose reports can be read and which is never run."""

from __future__ import annotations

from typing import Any

from lakeplan.app.plan import Selection
from lakeplan.app.sweep.ports import Site, SweepPorts, open_site, select
from lakeplan.errors import LakeplanError, StorageNotFound
from lakeplan.formats.sweep_keys import OLD_RUNS_PREFIX, UNIFIED_PREFIX
from lakeplan.formats.unified import UnifiedRun, read_deleted, read_summary
from lakeplan.model.desired import DesiredRepository
from lakeplan.ports.tree import DesiredTree

Json = dict[str, Any]
RUNS_FORMAT = "lakeplan.collector-runs/v1"


def collector_reports(tree: DesiredTree, selection: Selection, ports: SweepPorts) -> Json:
    """Every run of every selected repository. ``objects``: how many addresses a report names, which for
    lakeFS's jobs is what they marked; null when it does not tell. Raises UsageError when none is selected."""
    wanted, failed = select(tree, selection, ports)
    repositories: dict[str, list[Json]] = {}
    for desired in wanted:
        found = _runs(desired, tree, ports)
        if isinstance(found, LakeplanError):
            failed[desired.key] = found
        else:
            repositories[desired.key] = found
    return {
        "format": RUNS_FORMAT,
        "repositories": repositories,
        "failed": {
            key: {"message": error.message, "where": error.where, "hint": error.hint}
            for key, error in failed.items()
        },
    }


def _runs(desired: DesiredRepository, tree: DesiredTree, ports: SweepPorts) -> list[Json] | LakeplanError:
    try:
        return _of_site(open_site(desired, tree, ports))
    except LakeplanError as error:
        return error


def _of_site(site: Site) -> list[Json]:
    unified = [_unified(site, _name(prefix)) for prefix in site.store.list_prefixes(UNIFIED_PREFIX)]
    old = [_old(site, prefix) for prefix in site.store.list_prefixes(OLD_RUNS_PREFIX)]
    return sorted([*unified, *old], key=lambda run: str(run["started"]), reverse=True)


def _unified(site: Site, run_id: str) -> Json:
    run = UnifiedRun(run_id)
    try:
        data = site.store.read(run.summary_key)
    except StorageNotFound:
        return _row(run_id, "", note="it has no summary: it did not finish, or a sweep refused it")
    summary = read_summary(data, name=f"{site.store.url}/{run.summary_key}")
    return _row(
        run_id,
        summary.written_by or "lakefs-spark-client",
        objects=summary.objects,
        success=summary.success,
        started=summary.started,
        cutoff=summary.cutoff,
    )


def _old(site: Site, prefix: str) -> Json:
    objects = sum(
        len(read_deleted(site.store.read(stored.key), name=f"{site.store.url}/{stored.key}"))
        for stored in site.store.list_objects(prefix)
        if stored.key.endswith(".parquet")
    )
    return _row(_name(prefix).rpartition("=")[2], "the old collector", objects=objects)


def _row(
    run_id: str,
    by: str,
    *,
    objects: int | None = None,
    success: bool | None = None,
    started: str = "",
    cutoff: str = "",
    note: str = "",
) -> Json:
    return {
        "run_id": run_id,
        "by": by,
        "objects": objects,
        "success": success,
        "started": started,
        "cutoff": cutoff,
        "note": note,
    }


def _name(prefix: str) -> str:
    return prefix.removesuffix("/").rpartition("/")[2]
