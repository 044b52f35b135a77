"""Lists of paths with ``prefix``, ``after``, ``delimiter`` and ``amount``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakeplan.sandbox.messages import Request


@dataclass(frozen=True)
class PathPage:
    """``names`` in order: paths, and common prefixes, which end in the delimiter."""

    names: tuple[str, ...]
    prefixes: frozenset[str]
    has_more: bool

    @property
    def next_offset(self) -> str:
        return self.names[-1] if self.names else ""


def page_of_paths(request: Request, paths: Iterable[str]) -> PathPage:
    """The page that a request asks for. ``paths`` come in lakeFS's order."""
    prefix, after = request.text("prefix"), request.text("after")
    delimiter, amount = request.text("delimiter"), request.amount
    names: list[str] = []
    prefixes: set[str] = set()
    for path in paths:
        if not path.startswith(prefix):
            continue
        name, is_prefix = _fold(path, prefix, delimiter)
        if (after and name <= after) or name in prefixes:
            continue
        if len(names) == amount:
            return PathPage(tuple(names), frozenset(prefixes), has_more=True)
        names.append(name)
        if is_prefix:
            prefixes.add(name)
    return PathPage(tuple(names), frozenset(prefixes), has_more=False)


def _fold(path: str, prefix: str, delimiter: str) -> tuple[str, bool]:
    if delimiter:
        end = path.find(delimiter, len(prefix))
        if end >= 0:
            return path[: end + len(delimiter)], True
    return path, False
