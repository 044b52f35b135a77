"""Problems of a tree: each with its position and path, all collected before any is reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakeplan import limits
from lakeplan.errors import ConfigError
from lakeplan.model.desired import Source

TOP = "(top)"
"""The path of a problem with a file as a whole."""

Path = tuple[str | int, ...]


def show_path(path: Path) -> str:
    """A path as people write it: ``repositories.analytics.gc.branches[0].retention_days``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text or TOP


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong. Sorts by position."""

    source: Source
    path: str
    text: str

    def __str__(self) -> str:
        # A name in the tree may hold a line break; a problem is one line all the same.
        return f"{self.source}: {_one_line(self.path)}: {_one_line(self.text)}"

    def to_json(self) -> dict[str, object]:
        return {
            "file": self.source.file,
            "line": self.source.line,
            "column": self.source.column,
            "path": self.path,
            "message": self.text,
        }


class TreeError(ConfigError):
    """A ConfigError that also keeps its problems as data (``items``), for ``--format json``."""

    def __init__(
        self, items: Iterable[Problem], *, message: str = "", where: str = "", hint: str = ""
    ) -> None:
        self.items = tuple(sorted(set(items)))
        count = len(self.items)
        super().__init__(
            message or f"the tree has {count} problem{'' if count == 1 else 's'}",
            problems=tuple(str(p) for p in self.items),
            where=where,
            hint=hint,
        )


class Problems:
    """Collects problems; ``raise_any`` ends a step when there are some."""

    def __init__(self) -> None:
        self._items: list[Problem] = []
        self._paths: list[Path] = []
        self._places: set[tuple[Source, str]] = set()

    def add(self, source: Source, path: Path, text: str) -> None:
        if len(self._items) >= limits.TREE_PROBLEMS:
            hint = f"fix these first: no more than {limits.TREE_PROBLEMS:,} are looked for"
            raise TreeError(self._items, hint=hint)
        problem = Problem(source, show_path(path), text)
        self._items.append(problem)
        self._paths.append(path)
        self._places.add((source, problem.path))

    def add_first(self, source: Source, path: Path, text: str) -> None:
        """Adds a problem unless its value already has one, of which this would be the echo."""
        if not self.has(source, path):
            self.add(source, path, text)

    def has(self, source: Source, path: Path) -> bool:
        return (source, show_path(path)) in self._places

    def paths_since(self, count: int) -> set[Path]:
        """Paths of the problems after the first ``count``."""
        return set(self._paths[count:])

    def raise_any(self, *, where: str = "") -> None:
        if self._items:
            raise TreeError(self._items, where=where)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
