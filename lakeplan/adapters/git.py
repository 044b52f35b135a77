"""Reading a folder as it is in a git commit. Nothing of the work tree or the repository is changed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lakeplan.errors import LakeplanError

_TIMEOUT = 120
_LARGEST = 8 * 1024 * 1024
"""Larger files are no part of a tree and are left out."""
_SYMLINK = "120000"


@dataclass(frozen=True)
class _Blob:
    mode: str
    object_id: str
    path: str


def commit_of(folder: Path, ref: str) -> str:
    """The commit (hex id) that ``ref`` names in the repository around ``folder``. Raises LakeplanError."""
    inside = _git(folder, "rev-parse", "--is-inside-work-tree")
    if inside.returncode:
        # Outside any repository, or one that git does not trust (another owner, as in containers).
        reason = os.fsdecode(inside.stderr).partition("\n")[0].removeprefix("fatal: ")
        raise LakeplanError(
            f"git finds no repository to compare with: {reason or 'it says no more'}",
            where=str(folder),
            hint="--base names a commit of the git repository that holds the tree",
        )
    answer = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if answer.returncode:
        raise LakeplanError(
            f"git knows no commit {ref!r} here",
            where=str(folder),
            hint="fetch it first (a shallow clone has the newest commit alone)",
        )
    return answer.stdout.decode().strip()


def prefix_of(folder: Path) -> str | None:
    """``folder`` relative to the top of its git work tree (``""`` at the top), or None outside git."""
    try:
        answer = _git(folder, "rev-parse", "--show-prefix")
    except LakeplanError:
        return None
    return os.fsdecode(answer.stdout).strip("\n").rstrip("/") if answer.returncode == 0 else None


def write_folder(folder: Path, commit: str, target: Path) -> int:
    """Writes the files that ``folder`` has in ``commit`` to ``target``; how many. Symbolic links stay links
    (nothing is written through one). Raises LakeplanError."""
    blobs = list(_blobs(folder, commit))
    links = [b for b in blobs if b.mode == _SYMLINK]
    files = [b for b in blobs if b.mode != _SYMLINK]
    for blob, data in _contents(folder, [*files, *links]):
        path = target.joinpath(*PurePosixPath(blob.path).parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        if blob.mode == _SYMLINK:
            path.symlink_to(os.fsdecode(data))
        else:
            path.write_bytes(data)
    return len(blobs)


def _blobs(folder: Path, commit: str) -> Iterator[_Blob]:
    answer = _git(folder, "ls-tree", "-r", "-z", "-l", commit)
    if answer.returncode:
        raise LakeplanError(
            "git cannot list the tree of the base", where=str(folder), detail=os.fsdecode(answer.stderr)
        )
    for line in answer.stdout.split(b"\0"):
        head, _, name = line.partition(b"\t")
        fields, path = head.split(), os.fsdecode(name)
        if len(fields) != 4 or fields[1] != b"blob" or int(fields[3]) > _LARGEST:
            continue
        if not any(part in ("", ".", "..") for part in path.split("/")):
            yield _Blob(fields[0].decode(), fields[2].decode(), path)


def _contents(folder: Path, blobs: list[_Blob]) -> Iterator[tuple[_Blob, bytes]]:
    asked = "".join(f"{b.object_id}\n" for b in blobs).encode()
    answer = _git(folder, "cat-file", "--batch", given=asked)
    data, at = answer.stdout, 0
    for blob in blobs:
        end = data.find(b"\n", at)
        fields = data[at:end].split()
        if end < 0 or len(fields) != 3 or answer.returncode:
            raise LakeplanError(
                f"git cannot read {blob.path} of the base",
                where=str(folder),
                hint="fetch it first (a partial clone may lack it)",
                detail=os.fsdecode(answer.stderr),
            )
        size = int(fields[2])
        yield blob, data[end + 1 : end + 1 + size]
        at = end + 1 + size + 1


def _git(folder: Path, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            input=given,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LakeplanError("git does not run", where=str(folder), detail=str(error)) from None
