"""``lakeplan simulate``: what rules would delete in one namespace, before they are set."""

from __future__ import annotations

from lakeplan.ports.progress import Progress
from lakeplan.ports.range_cache import RangeCache
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.digest_cache import trimmed
from lakeplan.simulation.document import Json
from lakeplan.simulation.job import NamespaceJob
from lakeplan.simulation.output import check_target, written
from lakeplan.simulation.prepare import prepare
from lakeplan.simulation.request import SimulateRequest
from lakeplan.simulation.session import SparkOptions, explained, open_session


def simulate(
    request: SimulateRequest,
    namespace: NamespaceReader,
    options: SparkOptions,
    progress: Progress,
    cache: RangeCache | None = None,
) -> Json:
    """The summary document of a whole run; writes the tables when an output is asked for.

    Raises UsageError for the output, StorageError and FormatError for what cannot be read, SimulationFailed
    when Spark stops. There is no partial answer.
    """
    if request.output is not None:
        check_target(request.output, overwrite=request.overwrite)
    with trimmed(cache):
        return _simulate(request, namespace, options, progress, cache)


def _simulate(
    request: SimulateRequest,
    namespace: NamespaceReader,
    options: SparkOptions,
    progress: Progress,
    cache: RangeCache | None,
) -> Json:
    prepared = prepare(request, namespace, progress)
    with (
        open_session(options, estimated_bytes=prepared.collected.size_bytes, light=True) as session,
        explained(),
        NamespaceJob(session, request, namespace, prepared, cache) as job,
    ):
        with progress.task(f"reading {len(prepared.collected.items)} ranges", None):
            job.read()
        if request.output is None:
            return job.document()
        with written(request.output, overwrite=request.overwrite) as folder:
            return job.write(folder)
