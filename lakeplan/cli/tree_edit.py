"""Edits files of a checked-out tree, so that they can be put back."""

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
    """Files by their path relative to ``root``; links that lead out of the tree are refused."""

    root: Path
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _originals: dict[Path, str] = field(default_factory=dict, init=False)
    _since: dict[Path, str] = field(default_factory=dict, init=False)

    @property
    def files(self) -> tuple[str, ...]:
        """What was changed, relative to the tree."""
        top = inside(self.root, self.root)
        return tuple(sorted(p.relative_to(top).as_posix() for p in self._originals))

    def edit(self, file: str, change: Callable[[str], str | None]) -> bool:
        """Writes the file as the change leaves it; False when that is None. Raises LakeplanError."""
        path = inside(self.root, self.root / file)
        text = _read(path)
        changed = change(text)
        if changed is None:
            return False
        self._originals.setdefault(path, text)
        self._since.setdefault(path, text)
        write_file(path, changed, mode=SHARED)
        return True

    def load(self) -> Tree:
        """The tree as its files are now. Raises ConfigError."""
        return load_tree(self.root, self.environ)

    def keep(self) -> None:
        """``undo`` keeps what was written until now."""
        self._since.clear()

    def undo(self) -> None:
        """Puts back what was written since the last ``keep``."""
        for path, text in self._since.items():
            write_file(path, text, mode=SHARED)
            if self._originals[path] == text:
                del self._originals[path]
        self._since.clear()

    def restore(self) -> None:
        """Puts every file back as it was."""
        for path, text in self._originals.items():
            write_file(path, text, mode=SHARED)
        self._originals.clear()
        self._since.clear()


def _read(path: Path) -> str:
    try:
        return read_file(path).decode()
    except (OSError, ValueError) as error:
        raise LakeplanError(f"cannot read: {why_unreadable(error)}", where=str(path)) from None
