"""Progress of long work, as the application reports it. The terminal shows it or stays silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Step(Protocol):
    def __call__(self, count: int = 1) -> None:
        """So many more steps are done."""


class Progress(Protocol):
    @property
    def is_shown(self) -> bool:
        """Whether anybody sees it: what is counted only to be shown need not be counted otherwise."""

    def task(self, text: str, total: int | None) -> AbstractContextManager[Step]:
        """A piece of work of ``total`` steps (None: unknown); the callable reports steps that are done."""

    def note(self, text: str) -> None:
        """Reports on work that another program does; without a terminal too."""


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
    """A step that nobody sees."""
