from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakeplan.cli.git import commit_of, find_work_folder, has_file, head_of, tree_prefix, write_folder
from lakeplan.errors import LakeplanError

ROOT_FILE = "lakeplan.yaml"


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "init.defaultBranch=main"]
    who += ["-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)
    return done.stdout.decode().strip()


def commit_all(folder: Path, message: str) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-m", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    (top / "deploy/trée").mkdir(parents=True)
    (top / "deploy/lakeplan.yaml").write_text("one\n")
    (top / "deploy/trée/a b.yaml").write_bytes(b"\xff\x00no text\n")
    (top / "deploy/link.yaml").symlink_to("../../outside")
    (top / "other.txt").write_text("not of the tree\n")
    git(top, "init")
    commit_all(top, "one")
    (top / "deploy/lakeplan.yaml").write_text("two\n")
    commit_all(top, "two")
    return top


def base_text(folder: Path, target: Path, ref: str = "HEAD^") -> str:
    """The content of the base of ``folder``."""
    work = find_work_folder(folder)
    commit = commit_of(work, ref)
    assert has_file(work, commit, ROOT_FILE)
    write_folder(work, commit, target)
    return (target / ROOT_FILE).read_text()


def it_writes_a_folder_as_it_was(repository: Path, tmp_path: Path) -> None:
    assert base_text(repository / "deploy", tmp_path / "out") == "one\n"
    assert (tmp_path / "out/trée/a b.yaml").read_bytes() == b"\xff\x00no text\n"
    assert (tmp_path / "out/link.yaml").readlink() == Path("../../outside")
    assert not (tmp_path / "out/other.txt").exists()
    assert (repository / "deploy/lakeplan.yaml").read_text() == "two\n"


def it_finds_no_tree_where_the_commit_has_no_such_folder(repository: Path) -> None:
    (repository / "later").mkdir()
    work = find_work_folder(repository / "later")
    assert not has_file(work, commit_of(work, "HEAD"), ROOT_FILE)


@pytest.mark.parametrize("ref", ["nowhere", "--help", "HEAD^^^", "", "-x", "--all", "--git-dir=/tmp"])
def it_names_a_commit_that_is_not_there(repository: Path, ref: str) -> None:
    with pytest.raises(LakeplanError, match="no commit") as caught:
        commit_of(find_work_folder(repository), ref)
    assert "shallow" in caught.value.hint


@pytest.mark.parametrize("kind", ["branch", "short id"])
def it_compares_with_no_tag_that_has_the_name_of_another_commit(repository: Path, kind: str) -> None:
    work, before = find_work_folder(repository), git(repository, "rev-parse", "HEAD^")
    git(repository, "update-ref", "refs/remotes/origin/main", before)
    name = "origin/main" if kind == "branch" else before[:10]
    assert commit_of(work, name) == before
    git(repository, "tag", name, "HEAD")
    with pytest.raises(LakeplanError, match="refers to several commits") as caught:
        commit_of(work, name)
    assert "full name" in caught.value.hint
    for full in ("refs/remotes/origin/main", before):
        assert commit_of(work, full) == before


def it_compares_with_no_tag_that_has_the_name_of_the_branch_before(repository: Path) -> None:
    work, before = find_work_folder(repository), git(repository, "rev-parse", "HEAD^")
    git(repository, "branch", "earlier", before)
    for branch in ("earlier", "main"):
        git(repository, "checkout", branch)
    assert commit_of(work, "@{-1}") == before
    git(repository, "tag", "earlier", "HEAD")
    with pytest.raises(LakeplanError, match="refers to several commits"):
        commit_of(work, "@{-1}")


def it_finds_commits_whose_names_somebody_gave_to_a_tag_too(repository: Path) -> None:
    work, before = find_work_folder(repository), git(repository, "rev-parse", "HEAD^")
    for name in ("HEAD", before):
        git(repository, "update-ref", f"refs/tags/{name}", "HEAD" if name == before else before)
    for ref in ("HEAD^1", "HEAD~1", "@^", "HEAD@{1}", "@{1}", before, before.upper()):
        assert commit_of(work, ref) == before
    assert commit_of(work, "HEAD") == git(repository, "rev-parse", "refs/heads/main")


def it_says_when_a_folder_is_in_no_work_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LakeplanError, match="--base requires a git repository: the folder is not in a git"):
        find_work_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert (tree_prefix(tmp_path), tree_prefix(tmp_path / "deploy")) == ("", "deploy")
    assert head_of(tmp_path) is None


def it_knows_a_folder_from_the_top(repository: Path) -> None:
    assert (tree_prefix(repository), tree_prefix(repository / "deploy")) == ("", "deploy")
    assert tree_prefix(repository / "deploy/trée") == "deploy/trée"
    assert head_of(repository / "deploy") == git(repository, "rev-parse", "HEAD")


def it_reads_a_work_tree_that_git_worktree_made(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", str(tmp_path / "linked"), "HEAD")
    assert base_text(tmp_path / "linked/deploy", tmp_path / "out") == "one\n"


def it_takes_no_bare_repository_inside_the_tree_for_its_own(repository: Path, tmp_path: Path) -> None:
    """A pull request can commit HEAD, config, objects/ and refs/: git would take that for a repository."""
    deploy = repository / "deploy"
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init")
    (other / ROOT_FILE).write_text("permissive\n")
    commit_all(other, "permissive")
    subprocess.run(["cp", "-r", *(str(p) for p in (other / ".git").iterdir()), str(deploy)], check=True)
    ran = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {ran}\n")
    script.chmod(0o755)
    git(other, "config", "--file", str(deploy / "config"), "core.worktree", str(deploy))
    git(other, "config", "--file", str(deploy / "config"), "core.bare", "false")
    git(other, "config", "--file", str(deploy / "config"), "core.fsmonitor", str(script))
    commit_all(repository, "a bare repository in the tree")
    assert base_text(deploy, tmp_path / "out") == "two\n"
    assert not ran.exists()


def it_reads_no_submodule(repository: Path, tmp_path: Path) -> None:
    """A pull request can replace the tree's folder by a submodule, whose history is its author's."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init")
    (other / ROOT_FILE).write_text("permissive\n")
    commit_all(other, "permissive")
    git(repository, "rm", "-rq", "deploy")
    git(repository, "submodule", "add", str(other), "deploy")
    commit_all(repository, "a submodule")
    with pytest.raises(LakeplanError, match="submodule"):
        find_work_folder(repository / "deploy")


def _link_to_folder(top: Path) -> Path:
    (top / "deploy").rename(top / "elsewhere")
    (top / "deploy").symlink_to("elsewhere")
    return top / "deploy"


def _link_above(top: Path) -> Path:
    (top / "a").mkdir()
    (top / "deploy").rename(top / "a/deploy")
    (top / "b").symlink_to("a")
    return top / "b/deploy"


def _link_to_other_repository(top: Path) -> Path:
    other = top.parent / "other"
    (top / "deploy").rename(other)
    git(other, "init")
    commit_all(other, "permissive")
    (top / "deploy").symlink_to(other)
    return top / "deploy"


def _gitfile_elsewhere(top: Path) -> Path:
    other = top.parent / "other"
    other.mkdir()
    git(other, "init")
    (top / "deploy/.git").write_text(f"gitdir: {other}/.git\n")
    return top / "deploy"


@pytest.mark.parametrize(
    "make", [_link_to_folder, _link_above, _link_to_other_repository, _gitfile_elsewhere]
)
def it_reads_no_history_that_is_another_folders(repository: Path, make: Callable[[Path], Path]) -> None:
    folder = make(repository)
    with pytest.raises(LakeplanError, match=r"symbolic link|points to another folder") as caught:
        find_work_folder(folder)
    assert caught.value.hint


def it_sees_the_link_that_the_shell_went_through(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = _link_to_folder(repository)
    monkeypatch.chdir(link)
    monkeypatch.setenv("PWD", str(link))
    with pytest.raises(LakeplanError, match="symbolic link"):
        find_work_folder(Path())


def _root_file_as_link(top: Path) -> None:
    (top / "deploy/lakeplan.yaml").unlink()
    (top / "deploy/lakeplan.yaml").symlink_to("../other.txt")


def _folder_as_link(top: Path) -> None:
    _link_to_folder(top)


def _folder_as_file(top: Path) -> None:
    (top / "deploy").rename(top / "elsewhere")
    (top / "deploy").write_text("a file")


def _root_file_as_folder(top: Path) -> None:
    (top / "deploy/lakeplan.yaml").unlink()
    (top / "deploy/lakeplan.yaml").mkdir()
    (top / "deploy/lakeplan.yaml/x").write_text("x")


@pytest.mark.parametrize(
    "at_base", [_root_file_as_link, _folder_as_link, _folder_as_file, _root_file_as_folder]
)
def it_never_takes_a_base_that_it_cannot_read_for_none(
    repository: Path, at_base: Callable[[Path], None]
) -> None:
    before = git(repository, "rev-parse", "HEAD")
    at_base(repository)
    commit_all(repository, "unusual")
    git(repository, "checkout", "-q", "-b", "fixed", before)
    work = find_work_folder(repository / "deploy")
    with pytest.raises(LakeplanError, match="no tree to compare with"):
        has_file(work, commit_of(work, "main"), ROOT_FILE)


def it_fetches_nothing_and_runs_nothing_for_an_object_that_is_missing(
    repository: Path, tmp_path: Path
) -> None:
    ran, script = tmp_path / "ran", tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {ran}\n")
    script.chmod(0o755)
    for key, value in {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{script}",
        "protocol.ext.allow": "always",
        "protocol.file.allow": "always",
        "core.sshCommand": str(script),
        "core.fsmonitor": str(script),
        "core.pager": str(script),
        "core.hooksPath": str(tmp_path),
    }.items():
        git(repository, "config", key, value)
    blob = git(repository, "rev-parse", "HEAD^:deploy/lakeplan.yaml")
    (repository / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(LakeplanError, match=r"git cannot (read|list)") as caught:
        base_text(repository / "deploy", tmp_path / "out")
    assert "Fetch" in caught.value.hint
    assert not ran.exists()


def it_reads_no_replaced_objects_and_no_foreign_variables(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "replace", "HEAD^", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path))
    assert base_text(repository / "deploy", tmp_path / "out") == "one\n"


def it_finds_git_by_no_relative_path(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = repository / "git"
    fake.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    fake.chmod(0o755)
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}{os.environ['PATH']}")
    assert head_of(Path("deploy")) is not None
    assert not (tmp_path / "ran").exists()


def it_leaves_out_no_file_for_its_size(repository: Path, tmp_path: Path) -> None:
    with (repository / "deploy/large.yaml").open("wb") as file:
        file.truncate(9 << 20)
    commit_all(repository, "large")
    base_text(repository / "deploy", tmp_path / "out", "HEAD")
    assert (tmp_path / "out/large.yaml").stat().st_size == 9 << 20


def it_stops_git_when_a_commit_lists_folders_without_end(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten trees, each ten times in the next: less than 10 kB of objects, and 10,000,000,000 files."""
    monkeypatch.setattr("lakeplan.limits.GIT_BYTES", 1_000_000)
    monkeypatch.setattr("lakeplan.limits.GIT_SECONDS", 30)
    inner = git(repository, "rev-parse", "HEAD:deploy")
    for _ in range(10):
        listed = "".join(f"040000 tree {inner}\td{n}\n" for n in range(10))
        done = subprocess.run(
            ["git", "-C", str(repository), "mktree"], input=listed.encode(), check=True, capture_output=True
        )
        inner = done.stdout.decode().strip()
    commit = git(repository, "commit-tree", inner, "-m", "bomb")
    work = find_work_folder(repository)
    with pytest.raises(LakeplanError, match="cannot use the output of git: it is larger than"):
        write_folder(work, commit, tmp_path / "out")


def names_a_pipe(evil: Path) -> None:
    os.mkfifo(evil / "gitdir")


def names_a_device(evil: Path) -> None:
    (evil / "gitdir").symlink_to("/dev/zero")


def names_a_sparse_file(evil: Path) -> None:
    with (evil / "gitdir").open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("make", [names_a_pipe, names_a_device, names_a_sparse_file])
def it_reads_no_pipe_or_device_that_a_git_file_leads_to(tmp_path: Path, make: Callable[[Path], None]) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "commondir").touch()
    (tmp_path / ".git").write_text("gitdir: evil\n")
    make(evil)
    with limited_memory(), pytest.raises(LakeplanError, match="points to another folder"):
        find_work_folder(tmp_path)


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def it_does_not_wait_for_a_pipe_that_git_opens(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeplan.limits.GIT_SILENT_SECONDS", 0.5)
    os.mkfifo(repository / "pipe")
    git(repository, "config", "include.path", "../pipe")
    with pytest.raises(LakeplanError, match="git did not respond within"):
        find_work_folder(repository)


def it_gives_git_no_memory_for_a_commit_that_unpacks_to_more_than_the_limit(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakeplan.limits.GIT_MEMORY_BYTES", 64 << 20)
    head = f"tree {git(repository, 'rev-parse', 'HEAD^{tree}')}\nauthor a <a@b> 1 +0000\n\n".encode()
    piece, times = b"a" * (16 << 20), 8
    packer, digest = zlib.compressobj(1), hashlib.sha1(usedforsecurity=False)
    packed = []
    for data in (b"commit %d\0" % (len(head) + times * len(piece)) + head, *[piece] * times):
        digest.update(data)
        packed.append(packer.compress(data))
    commit = digest.hexdigest()
    path = repository / ".git/objects" / commit[:2] / commit[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(packed) + packer.flush())
    work = find_work_folder(repository)
    assert commit_of(work, "HEAD")
    with pytest.raises(LakeplanError, match="this git repository has no commit"):
        commit_of(work, commit)


@pytest.mark.parametrize(
    "listed",
    [
        b"100644 " + b"a" * 300 + b"\0%s",
        b"120000 link\0%s120000 link\0%s",
        b"100644 a\0%s100644 a.b\0%s120000 a\0%s",
    ],
)
def it_explains_files_that_no_file_system_has(repository: Path, tmp_path: Path, listed: bytes) -> None:
    blob = bytes.fromhex(git(repository, "rev-parse", "HEAD:other.txt"))
    entries = listed.replace(b"%s", blob)
    folder = bytes.fromhex(tree_of(repository, entries))
    commit = git(repository, "commit-tree", tree_of(repository, b"40000 deploy\0" + folder), "-m", "odd")
    work = find_work_folder(repository / "deploy")
    with pytest.raises(LakeplanError, match="cannot write a file from the base commit"):
        write_folder(work, commit, tmp_path / "out")


def tree_of(repository: Path, entries: bytes) -> str:
    command = ["git", "-C", str(repository), "hash-object", "-w", "-t", "tree", "--literally", "--stdin"]
    done = subprocess.run(command, input=entries, check=True, capture_output=True)
    return done.stdout.decode().strip()
