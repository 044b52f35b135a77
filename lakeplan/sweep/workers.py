"""Who deletes the parts of a round: threads of this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Protocol

from lakeplan.errors import LakeplanError
from lakeplan.model.runner import Choice
from lakeplan.model.sweep import Part, PartEnd
from lakeplan.sweep.deleting import Halt, Work, sweep_parts


class Workers(Protocol):
    """``parallelism``: how many delete at the same time, unless somebody chose another number."""

    @property
    def parallelism(self) -> int: ...

    def run(self, shares: Sequence[Sequence[Part]], work: Work) -> Iterable[PartEnd | LakeplanError]:
        """``sweep_parts`` of every share, in parallel. When it returns or raises, nobody deletes any more.
        Raises SweepStopped when the workers themselves fail, and may do so after ``cancel``."""

    def cancel(self) -> None:
        """Ends what runs, from another thread. Parts that were begun are for the next run."""


class OpenWorkers(Protocol):
    def __call__(self, parallelism: int | None) -> AbstractContextManager[tuple[Workers, Choice]]: ...


class SweepStopped(Exception):
    """The workers failed, and not with an error of a part. Finished parts have their records."""


class ThreadWorkers:
    """``Workers`` in this process. ``cancel`` ends them before their next request that deletes anything;
    a copy that was begun is finished."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self._halt = Halt()

    @property
    def parallelism(self) -> int:
        return self._parallelism

    def run(self, shares: Sequence[Sequence[Part]], work: Work) -> list[PartEnd | LakeplanError]:
        """See ``Workers``. Ctrl-C ends the threads before it ends this."""

        def sweep(parts: Sequence[Part]) -> list[PartEnd | LakeplanError]:
            return list(sweep_parts(parts, work, self._halt))

        with ThreadPoolExecutor(self._parallelism, thread_name_prefix="lakeplan-sweep") as pool:
            try:
                return [*_flat(pool.map(sweep, shares))]
            except BaseException:
                self.cancel()
                raise

    def cancel(self) -> None:
        self._halt.set()


def _flat(
    answers: Iterable[Sequence[PartEnd | LakeplanError]],
) -> Iterator[PartEnd | LakeplanError]:
    for answer in answers:
        yield from answer
