"""Checks of a tree's own: commands that judge a plan (``checks``)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

DEFAULT_SECONDS = 60
LONGEST_SECONDS = 600


@dataclass(frozen=True)
class Check:
    """``run``: a program and its arguments; a program with a slash is a file of the tree."""

    name: str
    run: tuple[str, ...]
    time_limit_seconds: int = DEFAULT_SECONDS

    def __str__(self) -> str:
        return f"{self.name}: {shlex.join(self.run)}"
