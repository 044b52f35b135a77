"""Names that a server gives, as text of a tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeplan.cli.commands.claims import write_entries
from lakeplan.errors import LakeplanError
from lakeplan.tree.tree import load_tree

ROOT = """apiVersion: lakeplan/v1
servers: {prod: {endpoint_url: https://lakefs.example.com}}
include: ["repositories/*.yaml", "away/*.yaml"]
repositories:
  "*": {gc: {default_retention_days: 30}}
"""
FILE = Path("repositories/adopted.yaml")


@pytest.mark.parametrize(
    "name",
    ['raw": {gc: {default_retention_days: 1}}\n  "other', "a\\b", "a\x07b", "a\u2028b", "a\ud800b"],
    ids=ascii,
)
def it_writes_no_name_that_is_none_and_says_which(tmp_path: Path, name: str) -> None:
    (tmp_path / "lakeplan.yaml").write_text(ROOT)
    tree = load_tree(tmp_path, {})
    with pytest.raises(LakeplanError):
        write_entries(tree, FILE, ["prod/analytics", f"prod/{name}"])
    assert not (tmp_path / FILE).exists()
    write_entries(tree, FILE, ["prod/analytics"])
    assert '"analytics": {}' in (tmp_path / FILE).read_text()


def it_names_a_file_that_is_no_text_and_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "lakeplan.yaml").write_text(ROOT)
    tree = load_tree(tmp_path, {})
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_bytes(b"\xff")
    with pytest.raises(LakeplanError, match=r"adopted\.yaml: cannot read the file: it is not UTF-8 text"):
        write_entries(tree, FILE, ["prod/analytics"])
    assert (tmp_path / FILE).read_bytes() == b"\xff"


def it_names_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "lakeplan.yaml").write_text(ROOT)
    tree = load_tree(tmp_path, {})
    (tmp_path / "away").write_text("a file in the place of a folder")
    with pytest.raises(LakeplanError, match=r"adopted\.yaml: cannot write"):
        write_entries(tree, Path("away/adopted.yaml"), ["prod/analytics"])
