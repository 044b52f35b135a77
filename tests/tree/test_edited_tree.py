"""Edits of a checked-out tree, which are written all at once or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeplan.errors import ConfigError, LakeplanError
from lakeplan.tree.editing import EditedTree
from lakeplan.values.local import write_file

ROOT = """apiVersion: lakeplan/v1
servers: {prod: {endpoint_url: https://lakefs.example.com}}
include: ["?.yaml"]
"""
FILES = ("a.yaml", "b.yaml")


def entry(name: str, days: int) -> str:
    gc = f"{{default_retention_days: {days}}}"
    return f"apiVersion: lakeplan/v1\nrepositories: {{{name}-lake: {{gc: {gc}}}}}\n"


@pytest.fixture
def tree(tmp_path: Path) -> EditedTree:
    (tmp_path / "lakeplan.yaml").write_text(ROOT)
    for file in FILES:
        (tmp_path / file).write_text(entry(file[0], 7))
    return EditedTree(tmp_path, {})


def stored(tree: EditedTree) -> list[str]:
    return [(tree.root / file).read_text() for file in FILES]


def put(tree: EditedTree, file: str, days: int) -> None:
    assert tree.edit(file, lambda text: text.replace("days: 7", f"days: {days}"))


def days_of(tree: EditedTree) -> list[int]:
    loaded = tree.load()
    found = [loaded.find("prod", f"{file[0]}-lake") for file in FILES]
    return [one.gc.default_retention_days for one in found]  # type: ignore[union-attr]


def it_writes_nothing_before_it_keeps_the_edits(tree: EditedTree) -> None:
    before = stored(tree)
    for number, file in enumerate(FILES, start=8):
        put(tree, file, number)
        assert tree.edit(file, lambda text: text + "# edited twice\n")
        assert not tree.edit(file, lambda text: None)
    assert days_of(tree) == [8, 9]
    assert (stored(tree), tree.files) == (before, ())
    tree.keep()
    assert stored(tree) == [f"{entry('a', 8)}# edited twice\n", f"{entry('b', 9)}# edited twice\n"]
    assert (days_of(tree), tree.files) == ([8, 9], FILES)


def it_forgets_edits_that_are_undone(tree: EditedTree) -> None:
    put(tree, "a.yaml", 8)
    tree.keep()
    put(tree, "b.yaml", 9)
    tree.edit("a.yaml", lambda text: "repositories: [")
    with pytest.raises(ConfigError):
        tree.load()
    tree.undo()
    tree.keep()
    assert stored(tree) == [entry("a", 8), entry("b", 7)]
    assert tree.files == ("a.yaml",)


def it_writes_no_file_when_somebody_else_changed_one(tree: EditedTree) -> None:
    for file in FILES:
        put(tree, file, 8)
    (tree.root / "b.yaml").write_text(entry("b", 30))
    with pytest.raises(LakeplanError, match="was changed while the command was running") as caught:
        tree.keep()
    assert caught.value.where.endswith("b.yaml")
    assert stored(tree) == [entry("a", 7), entry("b", 30)]


def it_writes_no_file_when_one_cannot_be_written(tree: EditedTree, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored(tree)
    for file in FILES:
        put(tree, file, 8)

    def write(path: Path, text: str, *, mode: int) -> None:
        if path.name == "b.yaml":
            raise LakeplanError("cannot write: No space left on device")
        write_file(path, text, mode=mode)

    monkeypatch.setattr("lakeplan.tree.editing.write_file", write)
    with pytest.raises(LakeplanError, match="No space left"):
        tree.keep()
    assert (stored(tree), tree.files) == (before, ())
