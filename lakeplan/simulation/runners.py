"""The interface of runners, and the choice of one."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lakeplan.errors import UsageError
from lakeplan.values.simulation import RunnerChoice

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from lakeplan.simulation.documents import RunnerVersions
    from lakeplan.simulation.local import Packet


Leaves: TypeAlias = "npt.NDArray[np.void]"


@dataclass(frozen=True)
class Step:
    """A step of a job. ``run`` maps packets to packets, and also gets ``steps.leaves_of`` all items. Each
    call gets all packets with the same ``place``. There are ``places`` of them. ``run`` may carry
    credentials, so runners must not write it to a file. Leaves carry none."""

    run: Callable[[Iterable[Packet], Leaves], Iterator[Packet]]
    places: int


class Runner(Protocol):
    name: str

    @property
    def versions(self) -> RunnerVersions: ...

    @property
    def parallelism(self) -> int:
        """The number of tasks that run at the same time."""

    def run(self, bins: Sequence[bytes], steps: Sequence[Step], leaves: Leaves) -> Iterator[Packet]:
        """Yields the packets of the last step. Each bin is a packet for the first step. Raises
        LakeplanError."""


_log = logging.getLogger(__name__)

AUTO, LOCAL, SPARK = "auto", "local", "spark"
NAMES = (AUTO, LOCAL, SPARK)

LOCAL_ENTRIES = 20_000_000
"""The most entries for which ``auto`` is ``local``. Threads read millions in the time that Spark takes to
start."""


def choose(asked: str, entries: int | None, *, master: str | None) -> RunnerChoice:
    """The runner for this many entries, the same on every machine. ``entries`` is None for work that reads
    none, such as deletions. Raises UsageError for a Spark master with the local runner."""
    if asked == LOCAL and master is not None:
        raise UsageError(
            "--runner local cannot be combined with --master", hint="Remove one of the two options."
        )
    if asked in (LOCAL, SPARK):
        return RunnerChoice(asked, "requested")
    if master is not None:
        return RunnerChoice(SPARK, "--master is set")
    if entries is not None and entries > LOCAL_ENTRIES:
        return RunnerChoice(SPARK, f"{entries:,} entries exceed the threshold of {LOCAL_ENTRIES:,}")
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return RunnerChoice(SPARK, "spark-submit started this process")
    if entries is None:
        return RunnerChoice(LOCAL, "no entries are read")
    return RunnerChoice(LOCAL, f"{entries:,} entries do not exceed the threshold of {LOCAL_ENTRIES:,}")


@dataclass(frozen=True)
class Runners:
    """The user's choice of a runner, else the tree's: one of ``NAMES``, or None. ``master``, ``conf`` and
    ``spark_home`` are for Spark, and a tree cannot set them. ``master`` None: ``local[*]``, or that of
    spark-submit. ``spark_home`` None: the Spark that pyspark came with."""

    asked: str | None = None
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    spark_home: str | None = None

    def __post_init__(self) -> None:
        if self.asked is not None and self.asked not in NAMES:
            raise UsageError(f"unknown runner {self.asked}", hint=f"Use one of {', '.join(NAMES)}.")

    @property
    def is_local(self) -> bool:
        """Whether workers see the folders of this machine."""
        return not self.master or self.master.startswith("local")

    def or_else(self, asked: str | None) -> Runners:
        """The same choice, or the tree's if the user made none."""
        return self if self.asked is not None else replace(self, asked=asked)

    def choose(self, entries: int | None) -> RunnerChoice:
        """The runner for this many entries. The choice is logged."""
        choice = choose(self.asked or AUTO, entries, master=self.master)
        _log.info("runner %s: %s", choice.name, choice.reason)
        return choice

    @contextmanager
    def open(self, entries: int) -> Iterator[tuple[Runner, RunnerChoice]]:
        """The open runner, and the reason for its choice. Raises SimulationFailed if Spark does not start."""
        choice = self.choose(entries)
        # Arrow takes long to import, and pyspark longer than most local runs take.
        if choice.name == LOCAL:
            from lakeplan.simulation.local import LocalRunner

            yield LocalRunner(), choice
            return
        from lakeplan.simulation.spark import SparkRunner, open_session

        with open_session(self) as session:
            yield SparkRunner(session), choice
