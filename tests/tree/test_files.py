from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeplan.tree.files import TreeFiles
from lakeplan.tree.tree import load_tree
from lakeplan.tree.yaml import Problems, TreeError
from lakeplan.values.desired import Source

AT = Source("lakeplan.yaml", 1, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("lakeplan.yaml", "r/a.yaml", "r/x/b.yaml", "r/x/y/c.yaml", "r/.hidden/d.yaml", "r/e.txt"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("apiVersion: lakeplan/v1\n")
    return tmp_path / "tree"


def expand(folder: Path, pattern: str) -> tuple[list[str], list[str]]:
    problems = Problems()
    found = TreeFiles(folder, problems).expand(pattern, AT, ("include", 0))
    return found, [str(p) for p in problems]


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("r/*.yaml", ["r/a.yaml"]),
        ("r/**/*.yaml", ["r/a.yaml", "r/x/b.yaml", "r/x/y/c.yaml"]),
        ("**/*.yaml", ["r/a.yaml", "r/x/b.yaml", "r/x/y/c.yaml"]),
        ("r/*/b.yaml", ["r/x/b.yaml"]),
        ("r/x/[bc].yaml", ["r/x/b.yaml"]),
        ("./r//a.yaml", ["r/a.yaml"]),
        ("r/.hidden/*.yaml", ["r/.hidden/d.yaml"]),
        ("none/*.yaml", []),
    ],
)
def it_expands_a_pattern(folder: Path, pattern: str, files: list[str]) -> None:
    assert expand(folder, pattern) == (files, [])


@pytest.mark.parametrize(
    "file", ["r/n.yaml", "r/x/n.yaml", "new/n.yaml", "new/x/n.yaml", "r/.n.yaml", "n/.h/n"]
)
@pytest.mark.parametrize(
    "pattern", ["r/*.yaml", "r/**/*.yaml", "**/*.yaml", "**", "*/*/*.yaml", "new/n.yaml", "r/.*", "**/.h/*"]
)
def it_expands_a_pattern_to_a_file_that_is_not_written_yet(folder: Path, pattern: str, file: str) -> None:
    edited = {(folder / file).resolve(): "apiVersion: lakeplan/v1\n"}
    before = TreeFiles(folder, Problems(), edited).expand(pattern, AT, ("include", 0))
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text("apiVersion: lakeplan/v1\n")
    assert before == expand(folder, pattern)[0]


@pytest.mark.parametrize("pattern", ["../x.yaml", "r/../../x.yaml", "/etc/passwd", "~/x", "C:/x", "a\0b"])
def it_refuses_a_pattern_that_leaves_the_tree(folder: Path, pattern: str) -> None:
    files, problems = expand(folder, pattern)
    assert files == []
    assert len(problems) == 1


def it_misses_a_file_that_is_named_in_full(folder: Path) -> None:
    assert expand(folder, "r/gone.yaml")[1] == [
        "lakeplan.yaml:1:1: include[0]: the file r/gone.yaml does not exist"
    ]


def it_does_not_ignore_a_folder_that_it_cannot_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the files in it, holds and longer retention would be missing from the tree."""
    scandir = os.scandir

    def scan(path: Path) -> Any:
        if path.name == "y":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr("lakeplan.tree.files.os.scandir", scan)
    assert expand(folder, "r/**/*.yaml")[1] == [
        "lakeplan.yaml:1:1: include[0]: cannot read the folder r/x/y: Permission denied"
    ]


class DescribeSymbolicLinks:
    def it_does_not_ignore_one_without_a_target(self, folder: Path) -> None:
        """A file in a folder without permission looks the same. Reading it reports why it cannot be read."""
        (folder / "r" / "b.yaml").symlink_to("gone.yaml")
        assert expand(folder, "r/*.yaml") == (["r/a.yaml", "r/b.yaml"], [])

    def it_follows_none_out_of_the_tree(self, folder: Path) -> None:
        outside = folder.parent / "outside"
        outside.mkdir()
        (outside / "secret.yaml").write_text("apiVersion: lakeplan/v1\n")
        (folder / "r" / "file.yaml").symlink_to(outside / "secret.yaml")
        (folder / "r" / "dir").symlink_to(outside)
        files, problems = expand(folder, "r/*.yaml")
        assert files == ["r/a.yaml"]
        assert problems == [
            "lakeplan.yaml:1:1: include[0]: r/file.yaml points outside the tree through a symbolic link"
        ]
        files, problems = expand(folder, "r/dir/*.yaml")
        assert files == []
        assert "r/dir points outside the tree" in problems[0]

    def it_reads_no_rules_through_one(self, folder: Path, problem: Callable[..., str], tree: Any) -> None:
        tree.folder = folder
        secret = folder.parent / "secret.json"
        secret.write_text("{}")
        (folder / "s.json").symlink_to(secret)
        text = problem("", "  data-a: {gc: {file: ../s.json}}")
        assert "'../s.json' points outside the tree through a symbolic link" in text

    def it_takes_one_inside_the_tree_and_ends_in_a_circle(self, folder: Path) -> None:
        (folder / "r" / "link.yaml").symlink_to(folder / "r" / "a.yaml")
        (folder / "r" / "round").symlink_to(folder / "r")
        files = ["r/a.yaml", "r/link.yaml", "r/x/b.yaml", "r/x/y/c.yaml"]
        assert expand(folder, "r/**/*.yaml") == (files, [])

    @pytest.mark.parametrize(
        ("target", "why"),
        [
            ("s", "links to a folder, whose files ** does not include"),
            ("..", "points outside the tree through"),
        ],
    )
    def it_does_not_ignore_a_folder_that_it_does_not_follow(
        self, folder: Path, target: str, why: str
    ) -> None:
        (folder / "s").mkdir()
        (folder / "r" / "x" / "more").symlink_to(folder / target)
        assert f"include[0]: r/x/more {why}" in expand(folder, "r/**/*.yaml")[1][0]


@pytest.mark.parametrize("root", ["", "include: ['repositories/**/*.yaml']\n"])
@pytest.mark.parametrize("name", ["b.yml", "x/b.YAML"])
def it_does_not_ignore_a_file_with_a_similar_ending(tree: Any, root: str, name: str) -> None:
    """It may have holds. Other files and rules files are not the tree's."""
    held = "apiVersion: lakeplan/v1\nrepositories: {data-b: {holds: [{branch: main, reason: a case}]}}\n"
    rules = {"repositories/p.yml": "policies: [{patterns: [x], max_age: 1d}]\n", "repositories/n.xml": ""}
    uses = "  data-a: {branch_lifecycle: {file: p.yml}}"
    assert tree.problems(root, uses, rules) == []
    assert "does not end with .yaml" in tree.problems(root, uses, {**rules, f"repositories/{name}": held})[0]
    assert (
        tree.problems("include: ['repositories/*.yaml']", uses, {f"repositories/{name}": held, **rules}) == []
    )


def it_reports_what_is_not_utf_8(folder: Path) -> None:
    (folder / "r" / "a.yaml").write_bytes(b"a: 1\nb: \xff\n")
    problems = Problems()
    assert TreeFiles(folder, problems).parse("r/a.yaml", AT, ()) is None
    assert [str(p) for p in problems] == ["r/a.yaml:2:4: (top): the file is not UTF-8 text"]


def it_reads_windows_line_ends_and_byte_order_marks(folder: Path) -> None:
    (folder / "r" / "a.yaml").write_bytes("\ufeffa: 1\r\nb: 2\r\n".encode())
    problems = Problems()
    assert TreeFiles(folder, problems).parse("r/a.yaml", AT, ()) is not None
    assert not list(problems)


def it_does_not_take_a_rules_file_for_a_repository_file(tree: Any) -> None:
    files = {"repositories/p.yaml": "policies: [{patterns: [x], max_age: 1d}]\n"}
    assert tree.problems("", "  data-a: {branch_lifecycle: {file: p.yaml}}", files) == []
    assert tree.problems("", "  data-a: {}", files) != []


def it_reads_a_base_with_files_that_it_ignores(tree: Any) -> None:
    """So that a change can correct it."""
    tree.write("", "  data-a: {}", {"repositories/b.yml": "", "more/c.yaml": ""})
    (tree.folder / "repositories" / "more").symlink_to("../more")
    (tree.folder / "repositories" / "c.yml").symlink_to("/outside.yml")
    with pytest.raises(TreeError) as found:
        load_tree(tree.folder, {})
    assert len(found.value.problems) == 3
    assert load_tree(tree.folder, {}, is_base=True).files == ("lakeplan.yaml", "repositories/a.yaml")
