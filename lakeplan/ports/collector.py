"""lakeFS's own garbage collection job, as a sweep with ``engine: lakefs-spark-client`` uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lakeplan.model.collector import CollectorJob


class Collector(Protocol):
    def check(self) -> None:
        """Raises LakeplanError, by name, for settings under which it must not be started."""

    def run(self, job: CollectorJob, *, keep: Callable[[], None], stop: Callable[[], bool]) -> None:
        """Runs the job to its end. ``keep`` is called every few minutes (a lease to renew; what it raises
        ends the job), ``stop`` is asked often. Raises LakeplanError when the job failed or was stopped, with
        the last lines it printed, without secrets: what it did until then is not known."""
