"""A policy test: a drawing, and what must become of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakeplan.core.drawing import Drawing, Fate
from lakeplan.model.desired import Source

Judge = Literal["server", "documented"]


@dataclass(frozen=True)
class Expected:
    """``ref``: a commit, branch or tag when ``kind`` is commit; ``path`` or ``path@REF`` for an object."""

    kind: Literal["commit", "object"]
    ref: str
    fate: Fate
    source: Source


@dataclass(frozen=True)
class ExpectedDays:
    branch: str
    days: int
    source: Source


@dataclass(frozen=True)
class PolicyTest:
    """``judge`` ``documented``: what is at risk counts as surviving."""

    name: str
    repository: str
    drawing: Drawing
    source: Source
    judge: Judge = "server"
    expected: tuple[Expected, ...] = ()
    days: tuple[ExpectedDays, ...] = ()
    repository_source: Source | None = None
