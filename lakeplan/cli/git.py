"""Reads a folder as it is in a git commit. Changes nothing in the work tree or the repository.

The checkout is untrusted, because it comes from the author of the pull request. lakeplan reads only the
repository of the work tree itself, and not a bare repository inside it, a submodule, or what a ``.git`` file
in the tree names. It runs no program that the repository's configuration names, and fetches nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import resource
import select
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lakeplan import limits
from lakeplan.errors import LakeplanError
from lakeplan.limits import TooLarge, check_size
from lakeplan.values.bodies import TooSlow
from lakeplan.values.local import absolute_entries, find_program, read_file

_LARGEST = 8 * 1024 * 1024
"""Bytes. Larger files are written as holes of their size, and a tree that reads one does not validate."""
_MOST = 256 * 1024 * 1024
"""Bytes of all files of the folder."""
_SHA256_DIGITS = 64
_EXECUTABLE = "100755"
_REAL_FILES = ("100644", _EXECUTABLE)
_SYMLINK = "120000"
_FOLDER = "040000"
_HEAD = re.compile(r"(?:HEAD|@)(?:$|[~^])|HEAD@\{|@\{[0-9]+\}")
"""The commit that is checked out, whatever names branches and tags have. ``@{-1}`` names a branch."""
_SETTINGS = {
    "core.warnAmbiguousRefs": "true",
    "safe.bareRepository": "explicit",
    "protocol.allow": "never",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
_ENVIRONMENT = {
    # A list of no protocols: it wins over protocol.<name>.allow of the repository's configuration.
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
_USERS_OWN = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""Where a user's own ``safe.directory`` is. All other GIT_* variables are dropped."""


@dataclass(frozen=True)
class WorkFolder:
    """A folder of a git work tree. ``prefix`` is its path below the top, ``""`` at the top."""

    top: Path
    prefix: str


@dataclass(frozen=True)
class _Blob:
    mode: str
    object_id: str
    size: int
    path: str


def find_work_folder(folder: Path) -> WorkFolder:
    """Return where ``folder`` is in its work tree. Raises LakeplanError outside git, in a submodule, in a
    bare repository, behind a symbolic link of a work tree, and where git does not trust the repository."""
    logical = _logical(folder)
    for part in (*reversed(logical.parents), logical):
        if part.is_symlink() and _top_of(Path(os.path.realpath(part.parent))) is not None:
            raise LakeplanError(
                f"{part.name} is a symbolic link in a git work tree, so git has no history of the files"
                " that it points to",
                where=str(part),
                hint="Replace the link with the folder itself, or use -C with the folder that it points to.",
            )
    real = Path(os.path.realpath(folder))
    top = _top_of(real)
    if top is None:
        raise _no_repository(folder, "the folder is not in a git work tree")
    _require_own_repository(top)
    answer = _git(top, "rev-parse", "--is-inside-work-tree", "--show-toplevel", "--absolute-git-dir")
    lines = os.fsdecode(answer.stdout).splitlines()
    if answer.returncode or len(lines) != 3 or lines[0] != "true":
        raise _no_repository(folder, _first_line(answer.stderr) or "the folder is not in a git work tree")
    if os.path.realpath(lines[1]) != str(top) or os.path.realpath(lines[2]) != str(_git_dir(top)):
        raise _no_repository(folder, f"{lines[2]} is not the repository of {top}")
    prefix = real.relative_to(top).as_posix()
    return WorkFolder(top, "" if prefix == "." else prefix)


def commit_of(work: WorkFolder, ref: str) -> str:
    """The commit (hex id) that ``ref`` names. Raises LakeplanError, also if ``ref`` names several: git would
    choose a tag ``origin/main``, which anybody who may push can create, over the branch."""
    answer = _git(work.top, "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")
    commit = answer.stdout.decode("ascii", "replace").strip()
    if b"' is ambiguous" in answer.stderr and not _HEAD.match(ref) and ref.lower() != commit:
        raise LakeplanError(
            f"{ref!r} is ambiguous: it refers to several commits in this git repository",
            where=str(work.top),
            hint="Use the full name, such as refs/remotes/origin/main, or delete the tag of the same name.",
        )
    if answer.returncode or not commit:
        raise LakeplanError(
            f"this git repository has no commit {ref!r}",
            where=str(work.top),
            hint="Fetch the commit first. A shallow clone has only the newest commit.",
        )
    return commit


def default_branch_of(folder: Path) -> str | None:
    """The default branch of ``origin`` as the clone saw it, or None outside git and without one."""
    try:
        work = find_work_folder(folder)
    except LakeplanError:
        return None
    begin = "refs/remotes/origin/"
    name = os.fsdecode(_git(work.top, "symbolic-ref", "--quiet", f"{begin}HEAD").stdout).strip()
    return name.removeprefix(begin) if name.startswith(begin) else None


def tree_prefix(tree: Path) -> str:
    """The tree's folder as its host knows it: relative to the git repository, else to where the command
    runs; ``""`` at the top."""
    try:
        return find_work_folder(tree).prefix
    except LakeplanError:
        relative = os.path.relpath(tree)
        return "" if relative == "." or relative.startswith("..") else relative.replace(os.sep, "/")


def head_of(folder: Path) -> str | None:
    """The git commit that ``folder`` is checked out at, or None outside git."""
    try:
        return commit_of(find_work_folder(folder), "HEAD")
    except LakeplanError:
        return None


def is_dirty(folder: Path, files: Collection[str]) -> bool | None:
    """Whether the files of a tree in ``folder`` differ from the checked-out commit: a file was changed or
    added, or a YAML file is missing. None outside git, or where git cannot tell."""
    try:
        work = find_work_folder(folder)
        below = [f"{work.prefix}/"] if work.prefix else []
        blobs = {blob.path: blob for blob in _list(work, commit_of(work, "HEAD"), "-r", below)}
    except LakeplanError:
        return None
    start = f"{work.prefix}/" if work.prefix else ""
    if any(f"{start}{file}" not in blobs or _differs(folder / file, blobs[start + file]) for file in files):
        return True
    yaml_files = (path for path in blobs if path.endswith((".yaml", ".yml")))
    return any(not os.path.lexists(work.top / path) for path in yaml_files)


def _differs(path: Path, blob: _Blob) -> bool:
    """Whether the content has a different id in git, both with a checkout's line ends and a commit's."""
    try:
        data = read_file(path, limits.TREE_FILE_BYTES)
    except (OSError, TooLarge):
        return True
    make = hashlib.sha256 if len(blob.object_id) == _SHA256_DIGITS else hashlib.sha1
    texts = (data, data.replace(b"\r\n", b"\n"))
    return blob.object_id not in {make(b"blob %d\0" % len(text) + text).hexdigest() for text in texts}


def has_file(work: WorkFolder, commit: str, name: str) -> bool:
    """Whether the folder has a file ``name`` in the commit. Raises LakeplanError if a part of its path is
    something else, such as a link, a submodule, or a file in place of a folder."""
    path = f"{work.prefix}/{name}" if work.prefix else name
    parts = PurePosixPath(path).parts
    paths = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    modes = {blob.path: blob.mode for blob in _list(work, commit, "-t", paths)}
    for at in paths:
        mode = modes.get(at)
        if mode is None:
            return False
        if mode not in (_REAL_FILES if at == path else (_FOLDER,)):
            kind = {_SYMLINK: "a symbolic link", "160000": "a submodule", _FOLDER: "a folder"}
            raise LakeplanError(
                f"{at} is {kind.get(mode, 'a file')} at the base commit, so there is no tree to compare with",
                where=str(work.top),
                hint="First merge a change that restores the tree's folder and its files.",
            )
    return True


def write_folder(work: WorkFolder, commit: str, target: Path) -> int:
    """Writes the files that the folder has in ``commit`` to ``target``, and returns their number. Symbolic
    links stay links (nothing is written through one). Raises LakeplanError."""
    below = [f"{work.prefix}/"] if work.prefix else []
    blobs = [blob for blob in _list(work, commit, "-r", below) if blob.mode in (*_REAL_FILES, _SYMLINK)]
    large = [blob for blob in blobs if blob.size > _LARGEST]
    small = [blob for blob in blobs if blob.size <= _LARGEST]
    if sum(blob.size for blob in small) > _MOST:
        raise LakeplanError(
            f"at the base commit, the files in the tree's folder exceed the limit of {_MOST >> 20} MiB in"
            " total",
            where=str(work.top / work.prefix),
            hint="Move the tree to a folder of its own.",
        )
    try:
        for blob in large:
            with _inside(work, blob, target).open("wb") as file:
                file.truncate(blob.size)
        for blob, data in _contents(work, sorted(small, key=lambda blob: blob.mode == _SYMLINK)):
            path = _inside(work, blob, target)
            if blob.mode == _SYMLINK:
                path.symlink_to(os.fsdecode(data))
            else:
                path.write_bytes(data)
                if blob.mode == _EXECUTABLE:
                    path.chmod(0o755)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LakeplanError(
            f"cannot write a file from the base commit to a temporary folder: {reason}",
            where=str(work.top / work.prefix),
            hint="First merge a change that removes symbolic links and renames files with unusual names.",
        ) from None
    return len(blobs)


def _inside(work: WorkFolder, blob: _Blob, target: Path) -> Path:
    path = target / PurePosixPath(blob.path).relative_to(work.prefix)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _list(work: WorkFolder, commit: str, how: str, paths: Sequence[str]) -> Iterator[_Blob]:
    """Entries of a commit, with paths from the top. ``how`` is an option of ls-tree; no ``paths``: all."""
    answer = _git(work.top, "ls-tree", "-z", "--full-tree", "-l", how, commit, "--", *paths)
    if answer.returncode:
        raise LakeplanError(
            "git cannot list the tree at the base commit",
            where=str(work.top),
            hint="Fetch the commit first. A shallow or partial clone may lack it.",
            detail=os.fsdecode(answer.stderr),
        )
    for line in answer.stdout.split(b"\0"):
        head, _, name = line.partition(b"\t")
        fields, path = head.split(), os.fsdecode(name)
        if len(fields) != 4:
            continue
        if any(part in ("", ".", "..") for part in path.split("/")):
            raise LakeplanError(
                f"git lists an invalid path at the base commit: {path!r}", where=str(work.top)
            )
        size = int(fields[3]) if fields[3].isdigit() else 0
        yield _Blob(fields[0].decode(), fields[2].decode(), size, path)


def _contents(work: WorkFolder, blobs: list[_Blob]) -> Iterator[tuple[_Blob, bytes]]:
    ids = "".join(f"{b.object_id}\n" for b in blobs).encode()
    answer = _git(work.top, "cat-file", "--batch", given=ids)
    data, at = answer.stdout, 0
    for blob in blobs:
        end = data.find(b"\n", at)
        fields = data[at:end].split()
        if end < 0 or len(fields) != 3 or answer.returncode:
            raise LakeplanError(
                f"git cannot read {blob.path} at the base commit",
                where=str(work.top),
                hint="Fetch the commit first. A partial clone may lack it.",
                detail=os.fsdecode(answer.stderr),
            )
        size = int(fields[2])
        yield blob, data[end + 1 : end + 1 + size]
        at = end + 1 + size + 1


# ---- which repository
def _logical(folder: Path) -> Path:
    """The absolute path, with symbolic links in the current folder's path, as ``pwd -L`` prints it."""
    shell = os.environ.get("PWD", "")
    try:
        usable = os.path.isabs(shell) and os.path.samefile(shell, os.curdir)
    except OSError:
        usable = False
    return Path(os.path.normpath(Path(shell if usable else os.getcwd()) / folder))


def _top_of(folder: Path) -> Path | None:
    """The nearest folder upwards that has a ``.git``, as a real path."""
    return next((top for top in (folder, *folder.parents) if os.path.lexists(top / ".git")), None)


def _git_dir(top: Path) -> Path:
    """The repository that ``.git`` is or, of a work tree that ``git worktree`` made, names."""
    entry = top / ".git"
    if not entry.is_file():
        return entry
    return Path(os.path.realpath(top / _named_path(entry).removeprefix("gitdir:").strip()))


def _named_path(file: Path) -> str:
    """The text of a file that names a path. Raises OSError, also for a device, a pipe or a long file."""
    try:
        return os.fsdecode(read_file(file, 4 * limits.KIB)).strip()
    except TooLarge as error:
        raise OSError(str(error)) from None


def _require_own_repository(top: Path) -> None:
    entry = top / ".git"
    if entry.is_symlink():
        raise _no_repository(top, ".git is a symbolic link")
    if entry.is_dir():
        return
    try:
        linked = _git_dir(top)
        back = Path(_named_path(linked / "gitdir"))
        is_worktree = (linked / "commondir").is_file() and os.path.samefile(back, entry)
    except OSError:
        is_worktree = False
    if not is_worktree:
        raise _no_repository(top, "its .git file points to another folder (as in a submodule, for example)")


def _no_repository(folder: Path, reason: str) -> LakeplanError:
    return LakeplanError(
        f"--base requires a git repository: {reason}",
        where=str(folder),
        hint="Run the command in a git work tree that contains the lakeplan tree, or without --base.",
    )


def _first_line(text: bytes) -> str:
    return os.fsdecode(text).partition("\n")[0].removeprefix("fatal: ")


def _git(top: Path, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    program = find_program("git", os.environ)
    if program is None:
        raise LakeplanError("git is not installed", hint="Install git, or run without --base.")
    settings = [part for key, value in _SETTINGS.items() for part in ("-c", f"{key}={value}")]
    try:
        done = _run([program, *settings, "--no-pager", "-C", str(top), *arguments], _environment(top), given)
        check_size(len(done.stdout) + len(done.stderr), limits.GIT_BYTES)
        return done
    except TooLarge as error:
        raise LakeplanError(f"cannot use the output of git: {error}", where=str(top)) from None
    except (TooSlow, subprocess.TimeoutExpired):
        raise LakeplanError(
            f"git did not respond within {limits.GIT_SILENT_SECONDS:g} seconds",
            where=str(top),
            hint="Run `git status` in this folder. A file in .git may be a pipe, or be on a disk that does"
            " not respond.",
        ) from None
    except OSError as error:
        raise LakeplanError("git cannot be run", where=str(top), detail=str(error)) from None


def _run(command: list[str], environ: dict[str, str], given: bytes) -> subprocess.CompletedProcess[bytes]:
    """Like ``subprocess.run``, but kills git as soon as its answer gets too long or stops arriving: a commit
    of 1 kB may list endless folders, and a file that git opens may be a pipe that nobody writes to."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
        stdin.write(given)
        stdin.seek(0)
        with subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, env=environ
        ) as git:
            assert git.stdout is not None
            try:
                _limit_memory(git.pid)
                answer = _answer(git.stdout.fileno())
                if len(answer) <= limits.GIT_BYTES:
                    git.wait(limits.GIT_SILENT_SECONDS)
            finally:
                git.kill()  # does nothing to one that has ended
        stderr.seek(0)
        return subprocess.CompletedProcess(command, git.returncode, answer, stderr.read(limits.MIB))


def _answer(pipe: int) -> bytes:
    """The output of a pipe, up to a byte more than the limit. Raises TooSlow."""
    answer, began = bytearray(), time.monotonic()
    while len(answer) <= limits.GIT_BYTES:
        left = limits.GIT_SECONDS - (time.monotonic() - began)
        if not select.select([pipe], [], [], max(0.0, min(limits.GIT_SILENT_SECONDS, left)))[0]:
            raise TooSlow("git did not respond within the time limit")
        piece = os.read(pipe, limits.MIB)
        if not piece:
            break
        answer += piece
    return bytes(answer)


def _limit_memory(pid: int) -> None:
    """Limits git's memory, because small objects may unpack to any size. Mapped packs do not count."""
    if hasattr(resource, "prlimit"):
        size = limits.GIT_MEMORY_BYTES
        with contextlib.suppress(OSError):  # it has ended already
            resource.prlimit(pid, resource.RLIMIT_DATA, (size, size))


def _environment(top: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k in _USERS_OWN}
    return {
        **kept,
        **_ENVIRONMENT,
        "PATH": absolute_entries(os.environ.get("PATH", os.defpath)),
        "GIT_CEILING_DIRECTORIES": str(top.parent),
        "GIT_ALLOC_LIMIT": str(limits.GIT_MEMORY_BYTES),
    }
