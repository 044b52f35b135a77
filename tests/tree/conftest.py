"""A tree on disk from texts, and its problems."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lakeplan.tree.tree import Tree, load_tree
from lakeplan.tree.yaml import TreeError

HEAD = "apiVersion: lakeplan/v1\n"
SERVERS = (
    HEAD
    + "servers: {prod: {endpoint_url: 'https://lakefs.example.com', branch_lifecycle: {engine: server}}}\n"
)
ENTRIES = HEAD + "repositories:\n"


class TreeBuilder:
    """Writes a tree: ``root`` follows one server, ``entries`` stand in ``repositories/a.yaml``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, root: str = "", entries: str = "", files: Mapping[str, str] | None = None) -> Path:
        texts = {"lakeplan.yaml": root if root.startswith(HEAD) else SERVERS + root, **(files or {})}
        shutil.rmtree(self.folder / "repositories", ignore_errors=True)
        if entries:
            texts["repositories/a.yaml"] = ENTRIES + entries
        for name, text in texts.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return self.folder

    def load(
        self,
        root: str = "",
        entries: str = "",
        files: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Tree:
        return load_tree(self.write(root, entries, files), environ or {})

    def problems(
        self,
        root: str = "",
        entries: str = "",
        files: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The problem lines of a tree; none when it loads."""
        try:
            self.load(root, entries, files, environ)
        except TreeError as error:
            return list(error.problems)
        return []


@pytest.fixture
def tree(tmp_path: Path) -> TreeBuilder:
    return TreeBuilder(tmp_path)


@pytest.fixture
def problem(tree: TreeBuilder) -> Callable[..., str]:
    """The only problem of a tree; fails when there are none or several."""

    def only(
        root: str = "",
        entries: str = "",
        files: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> str:
        found = tree.problems(root, entries, files, environ)
        assert len(found) == 1, found
        return found[0]

    return only
