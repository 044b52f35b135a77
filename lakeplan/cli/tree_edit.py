"""Edits files of a checked-out tree, so that they can be put back."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakeplan.errors import LakeplanError
from lakeplan.limits import read_file, why_unreadable
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.local import SHARED, inside, write_file

log = logging.getLogger(__name__)


@dataclass
class EditedTree:
    """The files of a tree by their path relative to ``root``. It refuses links that lead out of the tree, and
    does not restore a file that somebody else has changed since."""

    root: Path
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _originals: dict[Path, str] = field(default_factory=dict, init=False)
    _since: dict[Path, str] = field(default_factory=dict, init=False)
    _written: dict[Path, str] = field(default_factory=dict, init=False)

    @property
    def files(self) -> tuple[str, ...]:
        """The changed files, relative to the tree."""
        top = inside(self.root, self.root)
        return tuple(sorted(p.relative_to(top).as_posix() for p in self._originals))

    def edit(self, file: str, change: Callable[[str], str | None]) -> bool:
        """Writes the changed file. Returns False if the change results in None. Raises LakeplanError."""
        path = inside(self.root, self.root / file)
        text = read_text(path)
        changed = change(text)
        if changed is None:
            return False
        self._originals.setdefault(path, text)
        self._since.setdefault(path, text)
        write_file(path, changed, mode=SHARED)
        self._written[path] = changed
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
            self._put_back(path, text)
            if self._originals[path] == text:
                del self._originals[path]
        self._since.clear()

    def restore(self) -> None:
        """Puts every file back as it was."""
        for path, text in self._originals.items():
            self._put_back(path, text)
        self._originals.clear()
        self._since.clear()

    def _put_back(self, path: Path, text: str) -> None:
        try:
            is_ours = read_text(path) == self._written[path]
        except LakeplanError:
            is_ours = False
        if not is_ours:
            log.warning("%s was changed meanwhile: lakeplan's edit of it was not undone", path)
            return
        write_file(path, text, mode=SHARED)
        self._written[path] = text


def read_text(path: Path) -> str:
    """The text of a regular file. Raises LakeplanError that names it."""
    try:
        return read_file(path).decode()
    except (OSError, ValueError) as error:
        raise LakeplanError(f"cannot read: {why_unreadable(error)}", where=str(path)) from None
