"""``lakeplan simulate``: what rules would delete in one namespace, before they are set."""

from __future__ import annotations

from lakeplan.ports.progress import Progress
from lakeplan.ports.range_cache import RangeCache
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.document import Json
from lakeplan.simulation.job import run_job
from lakeplan.simulation.output import check_target, written
from lakeplan.simulation.prepare import prepare
from lakeplan.simulation.request import SimulateRequest
from lakeplan.simulation.runners import Runners


def simulate(
    request: SimulateRequest,
    namespace: NamespaceReader,
    runners: Runners,
    progress: Progress,
    cache: RangeCache | None = None,
) -> Json:
    """The summary document of a whole run; writes the tables when an output is asked for.

    Raises UsageError for the output, StorageError and FormatError for what cannot be read, SimulationFailed
    when the runner stops. There is no partial answer.
    """
    if request.output is not None:
        check_target(request.output, overwrite=request.overwrite)
    prepared = prepare(request, namespace, progress)
    collected = prepared.collected
    with (
        runners.open(collected.entries, collected.size_bytes) as (runner, choice),
        progress.task(f"reading {len(collected.items)} ranges", None),
    ):
        if request.output is None:
            return run_job(runner, choice, request, namespace, prepared, None, cache)
        with written(request.output, overwrite=request.overwrite) as folder:
            return run_job(runner, choice, request, namespace, prepared, folder, cache)
