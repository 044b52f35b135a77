"""Edits files of a checked-out tree, all at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakeplan.errors import LakeplanError
from lakeplan.limits import read_file, why_unreadable
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.local import SHARED, inside, write_file


@dataclass
class EditedTree:
    """The edited files of a tree. They are only in memory until ``keep``, so a command that is killed while
    it tries edits leaves none in the tree. It refuses links that lead out of the tree."""

    root: Path
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _before: dict[Path, str] = field(default_factory=dict, init=False)
    _edited: dict[Path, str] = field(default_factory=dict, init=False)
    _written: set[Path] = field(default_factory=set, init=False)

    @property
    def files(self) -> tuple[str, ...]:
        """The written files, relative to the tree."""
        top = inside(self.root, self.root)
        return tuple(sorted(p.relative_to(top).as_posix() for p in self._written))

    def edit(self, file: str, change: Callable[[str], str | None]) -> bool:
        """Changes a file. Returns False if the change results in None. Raises LakeplanError."""
        path = inside(self.root, self.root / file)
        before = self._edited[path] if path in self._edited else read_text(path)
        changed = change(before)
        if changed is None:
            return False
        self._before.setdefault(path, before)
        self._edited[path] = changed
        return True

    def load(self) -> Tree:
        """The tree with the edits. Raises ConfigError."""
        return load_tree(self.root, self.environ, edited=self._edited)

    def keep(self) -> None:
        """Writes all edits, or none. Raises LakeplanError, also if somebody else has changed a file since it
        was read."""
        for path, text in self._before.items():
            if read_text(path) != text:
                hint = "Run the command again. Nothing was written to the file."
                raise LakeplanError(
                    "the file was changed while the command was running", where=str(path), hint=hint
                )
        done: list[Path] = []
        try:
            for path, text in self._edited.items():
                write_file(path, text, mode=SHARED)
                done.append(path)
        except BaseException:
            for path in done:
                write_file(path, self._before[path], mode=SHARED)
            raise
        self._written.update(done)
        self.undo()

    def undo(self) -> None:
        """Forgets the edits since the last ``keep``."""
        self._before.clear()
        self._edited.clear()


def read_text(path: Path) -> str:
    """The text of a regular file. Raises LakeplanError that names it."""
    try:
        return read_file(path).decode()
    except (OSError, ValueError) as error:
        raise LakeplanError(f"cannot read the file: {why_unreadable(error)}", where=str(path)) from None
