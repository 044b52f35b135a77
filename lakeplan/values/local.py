"""Files and programs of this machine. Links in a checkout, which may be a stranger's, are not followed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import BinaryIO

from lakeplan import limits
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.limits import TooLarge, check_size

PRIVATE, SHARED = 0o600, 0o666
"""Modes of new files: for the owner only, or as the user's umask allows."""
PRIVATE_FOLDER = 0o700
_DEVICES, _MEMORY = ("/dev/", "/proc/"), "/dev/shm/"  # the latter holds files as any disk does
_PARTIAL = ".lakeplan-new-"


class OutsideFolder(ValueError):
    """A path leads out of its folder. The message completes a sentence whose subject is the path."""

    def __init__(self) -> None:
        super().__init__("points outside the tree through a symbolic link")


def inside(root: str | Path, path: str | Path) -> Path:
    """Return the real path of ``path``. Raises OutsideFolder if that is outside the real ``root``."""
    try:
        real, top = Path(os.path.realpath(path)), Path(os.path.realpath(root))
    except (OSError, ValueError):
        raise OutsideFolder from None
    if real != top and top not in real.parents:
        raise OutsideFolder
    return real


def read_inside(root: str | Path, path: str | Path, limit: int) -> bytes:
    """Return the bytes of a regular file of a tree. Raises OSError, OutsideFolder, and TooLarge like
    ``read_file``."""
    return read_file(inside(root, path), limit)


def write_file(path: Path, data: str | bytes, *, mode: int = PRIVATE) -> None:
    """Write a file atomically, so that no reader sees an incomplete file. A link of the same name is
    replaced, not followed. Links in the path, below the current folder, are refused. Only absolute paths may
    name a device or a pipe. Raises LakeplanError."""
    content = data.encode() if isinstance(data, str) else data
    with _write_errors(path):
        refuse_links(path)
        if path.is_absolute() and _is_special(path):
            with path.open("wb") as file:
                file.write(content)
            return
        _replace(path, content, mode)


def check_writable(path: Path) -> None:
    """Raise the LakeplanError of ``write_file`` if it is certain that the file cannot be written."""
    with _write_errors(path):
        refuse_links(path)
        if not (path.is_absolute() and _is_special(path)):
            _refuse_other_kinds(path)
            with new_file(path):
                pass


@contextlib.contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, TooLarge) as error:
        raise LakeplanError(
            f"cannot write: {getattr(error, 'strerror', None) or error}",
            where=str(path),
            hint="Specify a file in an existing folder.",
        ) from None


def refuse_links(path: Path, below: Path | None = None) -> None:
    """Raise LakeplanError if a folder on the way to ``path`` is a symbolic link below the folder ``below``
    (default: the current one)."""
    here = Path.cwd() if below is None else below
    if below is None and not path.is_absolute():
        parts = path.parent.parts
    elif here in path.parents:
        parts = path.parent.relative_to(here).parts
    else:
        return
    for part in parts:
        here = here / part
        if here.is_symlink():
            raise LakeplanError(
                f"{part} is a symbolic link, and lakeplan does not follow links when it writes output",
                where=str(path),
                hint="Specify a file in a folder that is not a link, or use an absolute path outside this"
                " folder.",
            )


def _is_special(path: Path) -> bool:
    """Return whether a path is a device, a pipe, or a name such as /dev/stdout, which may be any file."""
    if str(path).startswith(_DEVICES) and not str(path).startswith(_MEMORY):
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


def _refuse_other_kinds(path: Path) -> None:
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        kind = stat.S_IFREG
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
        raise TooLarge("it is not a regular file")


def _replace(path: Path, content: bytes, mode: int) -> None:
    _refuse_other_kinds(path)
    with new_file(path, mode=mode) as file:
        file.write(content)
        file.close()
        os.replace(file.name, path)


@contextlib.contextmanager
def new_file(path: str | Path, *, prefix: str = _PARTIAL, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """Yield a new file in the folder of ``path``, which the caller renames or links to ``path`` (the file's
    ``name`` is its path). A file that still has this name at the end is removed, unless the process was
    killed."""
    new = os.path.join(os.path.dirname(path), prefix + secrets.token_hex(8))
    try:
        with open(new, "x+b", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
    finally:
        with contextlib.suppress(OSError):
            os.unlink(new)


SAFE_PATH = "PYTHONSAFEPATH"
"""With this variable, Python omits the current folder and a script's folder from ``sys.path``."""
_FOLDERS = (
    *("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR"),
    *("PYTHONHOME", "PYTHONUSERBASE", "PYTHONSTARTUP", "PYTHONPYCACHEPREFIX"),
    *("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "BOTO_CONFIG"),
    *("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "NETRC"),
    *("AZURE_CONFIG_DIR", "AZURE_FEDERATED_TOKEN_FILE", "GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG"),
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"),
)
"""Variables for files and folders that programs and libraries run, read or trust."""
_SEARCHED = ("PATH", "PYTHONPATH", "CLASSPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "AWS_DATA_PATH")
"""Search paths. Code is loaded from their folders, and botocore reads there where to send credentials."""
_PROGRAMS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""Names that ``PATH`` resolves, or absolute paths."""


def absolute_entries(paths: str) -> str:
    """Return a search path without empty and relative entries, which mean the current folder."""
    return os.pathsep.join(entry for entry in paths.split(os.pathsep) if os.path.isabs(entry))


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the absolute path of a program, which is searched in ``PATH`` unless it has a slash."""
    path = shutil.which(name, path=absolute_entries(environ.get("PATH", os.defpath)))
    return os.path.abspath(path) if path is not None else None


def safe_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a program whose Python imports nothing from the current folder. Raises
    UsageError for a variable that names a file or folder by a relative path."""
    wrong = relative_settings(environ)
    if wrong:
        raise UsageError(
            "these variables contain relative paths, so programs would load files from the current folder:"
            f" {', '.join(wrong)}",
            hint="Set these variables to absolute paths, or unset them.",
        )
    safe = {**environ, SAFE_PATH: "1"}
    for name in _SEARCHED:
        entries = absolute_entries(safe.pop(name, ""))
        if entries:
            safe[name] = entries
    return safe


def set_environment(environ: Mapping[str, str]) -> None:
    """Make ``environ`` the environment of this process."""
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    os.environ.update(environ)


def relative_settings(environ: Mapping[str, str]) -> list[str]:
    """Return the variables of ``environ`` that name a file or folder by a relative path."""
    folders = [name for name in _FOLDERS if environ.get(name) and not os.path.isabs(environ[name])]
    programs = [n for n in _PROGRAMS if os.sep in environ.get(n, "") and not os.path.isabs(environ[n])]
    return folders + programs


class _Hidden:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is hidden, because this process does not need it", name=name)
        return None


def hide_pandas() -> None:
    """Let imports of pandas fail, in a process that runs one command and does not need pandas."""
    sys.meta_path.insert(0, _Hidden)


def show_pandas() -> None:
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not _Hidden]


def read_file(path: str | Path, limit: int | None = None) -> bytes:
    """The bytes of a regular file within a limit (default ``FILE_BYTES``).

    Raises OSError, and TooLarge for a larger file or one that is no regular file: a device, a pipe or a
    folder is never read.
    """
    allowed = limits.FILE_BYTES if limit is None else limit
    # Not blocking: opening a pipe would wait for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise TooLarge("it is not a regular file")
        check_size(status.st_size, allowed)
        data = file.read(allowed + 1)  # files of /proc have the size 0
    check_size(len(data), allowed)
    return data


def why_unreadable(error: OSError | ValueError) -> str:
    """Return why ``read_file``, or decoding its bytes, failed."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error) if isinstance(error, TooLarge) else "it is not UTF-8 text"
