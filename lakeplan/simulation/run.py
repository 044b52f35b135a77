"""``lakeplan simulate``: what rules would delete in one namespace, before they are set."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from lakeplan.ports.progress import Progress
from lakeplan.ports.range_cache import RangeCache
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.digest_cache import trimmed
from lakeplan.simulation.document import Json
from lakeplan.simulation.job import NamespaceJob
from lakeplan.simulation.output import check_target, written
from lakeplan.simulation.prepare import Prepared, prepare
from lakeplan.simulation.request import SimulateRequest
from lakeplan.simulation.session import SparkOptions, expect, explained, open_session

START_AFTER_SECONDS = 0.2


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
    with (
        ThreadPoolExecutor(1) as pool,
        _begun(pool.submit(prepare, request, namespace, progress)) as coming,
        open_session(options, light=True) as session,
        explained(),
    ):
        prepared = coming.result()
        expect(session, options, prepared.collected.size_bytes)
        with NamespaceJob(session, request, namespace, prepared, cache) as job:
            return _answer(request, prepared, job, progress)


@contextmanager
def _begun(coming: Future[Prepared]) -> Iterator[Future[Prepared]]:
    """Java takes seconds to start, in which metaranges are read; but what is wrong with a namespace mostly
    shows at once, and then it is not started."""
    wait([coming], START_AFTER_SECONDS)
    if coming.done():
        coming.result()
    yield coming


def _answer(request: SimulateRequest, prepared: Prepared, job: NamespaceJob, progress: Progress) -> Json:
    with progress.task(f"reading {len(prepared.collected.items)} ranges", None):
        job.read()
    if request.output is None:
        return job.document()
    with written(request.output, overwrite=request.overwrite) as folder:
        return job.write(folder)
