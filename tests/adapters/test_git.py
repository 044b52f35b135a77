from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lakeplan.adapters.git import commit_of, prefix_of, write_folder
from lakeplan.errors import LakeplanError


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    (top / "deploy/trée").mkdir(parents=True)
    (top / "deploy/lakeplan.yaml").write_text("one\n")
    (top / "deploy/trée/a b.yaml").write_bytes(b"\xff\x00no text\n")
    (top / "deploy/link.yaml").symlink_to("../../outside")
    (top / "other.txt").write_text("not of the tree\n")
    git(top, "init")
    git(top, "add", "-A")
    git(top, "commit", "-m", "one")
    (top / "deploy/lakeplan.yaml").write_text("two\n")
    git(top, "commit", "-am", "two")
    return top


def it_writes_a_folder_as_it_was(repository: Path, tmp_path: Path) -> None:
    folder = repository / "deploy"
    assert write_folder(folder, commit_of(folder, "HEAD^"), tmp_path / "out") == 3
    assert (tmp_path / "out/lakeplan.yaml").read_text() == "one\n"
    assert (tmp_path / "out/trée/a b.yaml").read_bytes() == b"\xff\x00no text\n"
    assert (tmp_path / "out/link.yaml").readlink() == Path("../../outside")
    assert not (tmp_path / "out/other.txt").exists()
    assert (folder / "lakeplan.yaml").read_text() == "two\n"


def it_writes_nothing_where_the_commit_has_no_such_folder(repository: Path, tmp_path: Path) -> None:
    later = repository / "later"
    later.mkdir()
    assert write_folder(later, commit_of(later, "HEAD"), tmp_path / "out") == 0


@pytest.mark.parametrize("ref", ["nowhere", "--help", "HEAD^^^", "", "-x"])
def it_names_a_commit_that_is_not_there(repository: Path, ref: str) -> None:
    with pytest.raises(LakeplanError, match="no commit") as caught:
        commit_of(repository, ref)
    assert "shallow" in caught.value.hint


def it_says_when_a_folder_is_in_no_work_tree(tmp_path: Path) -> None:
    with pytest.raises(LakeplanError, match="git finds no repository to compare with: not a git"):
        commit_of(tmp_path, "HEAD")
    assert prefix_of(tmp_path) is None


def it_knows_a_folder_from_the_top(repository: Path) -> None:
    assert (prefix_of(repository), prefix_of(repository / "deploy")) == ("", "deploy")
    assert prefix_of(repository / "deploy/trée") == "deploy/trée"
