"""The progress of long work, which a terminal may show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Step(Protocol):
    def __call__(self, count: int = 1) -> None:
        """Report that ``count`` more steps are done."""


class Progress(Protocol):
    @property
    def is_shown(self) -> bool:
        """Whether progress is shown. If not, nothing needs to be counted for it alone."""

    def task(self, text: str, total: int | None) -> AbstractContextManager[Step]:
        """Begin work of ``total`` steps (None: unknown). The callable reports finished steps."""

    def note(self, text: str) -> None:
        """Report on the work of another program, even without a terminal."""


class Silent:
    """No progress."""

    @property
    def is_shown(self) -> bool:
        return False

    @contextmanager
    def task(self, text: str, total: int | None) -> Iterator[Step]:
        yield nothing

    def note(self, text: str) -> None:
        return


def nothing(count: int = 1) -> None:
    """A step that is not shown."""


def in_parallel(work: Callable[[T], U], items: Iterable[T], workers: int, step: Step = nothing) -> list[U]:
    """Return the results of ``work`` in the order of ``items``. Several calls run at a time. ``step`` is
    called after each."""

    def one(item: T) -> U:
        try:
            return work(item)
        finally:
            step()

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, items))
