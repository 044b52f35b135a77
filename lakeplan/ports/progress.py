"""Progress of long work, as the application reports it. The terminal shows it or stays silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Progress(Protocol):
    def task(self, text: str, total: int | None) -> AbstractContextManager[Callable[[], None]]:
        """A piece of work of ``total`` steps (None: unknown); the callable reports one step done."""


class Silent:
    """No terminal, no progress."""

    @contextmanager
    def task(self, text: str, total: int | None) -> Iterator[Callable[[], None]]:
        yield lambda: None
