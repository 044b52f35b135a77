"""A storage namespace in a folder of this machine (``file://``)."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from lakeplan import limits
from lakeplan.adapters.storage.bounded import too_large
from lakeplan.adapters.storage.folder_files import UNFINISHED
from lakeplan.adapters.storage.translate import translate_os_error
from lakeplan.adapters.storage.urls import FolderLocation
from lakeplan.errors import StorageError, StorageNotFound
from lakeplan.model.objects import StoredObject


def stored_object(key: str, status: os.stat_result) -> StoredObject:
    """A file, with its number and the time of its last change for an ETag: both times of a file can be the
    same before and after somebody wrote it, but nobody can set this one."""
    tag = f"{status.st_ino:x}-{status.st_ctime_ns:x}"
    return StoredObject(key, status.st_size, status.st_mtime_ns // 1000, tag)


class FolderReader:
    """Reads and lists one folder. Nothing outside it is read: a symbolic link that leads out of the folder
    is no object. Linked folders are not listed at all, so a link cannot make a listing endless.

    Keys are file names with ``/`` between; names that are not UTF-8 carry Python's surrogate escapes.
    """

    def __init__(self, path: str) -> None:
        self._root = path
        self._url = FolderLocation(path).url

    @property
    def url(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"

    def read(self, key: str) -> bytes:
        where = f"{self._url}/{key}"
        try:
            with self._open(key) as file:
                status = os.fstat(file.fileno())
                if status.st_size > limits.OBJECT_BYTES:
                    raise too_large(where)
                data = file.read()
        except OSError as error:
            raise translate_os_error(error, where) from error
        if len(data) != status.st_size:
            raise StorageError(
                f"read {len(data)} of {status.st_size} bytes: the file changed meanwhile", where=where
            )
        return data

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        folder, start = self._start(prefix)
        yield from self._list(folder, start, recursive)

    def list_prefixes(self, prefix: str = "") -> list[str]:
        folder, start = self._start(prefix)
        return sorted(
            f"{folder}{entry.name}/"
            for entry in self._scan(folder)
            if entry.name.startswith(start) and entry.is_dir(follow_symlinks=False)
        )

    def _list(self, folder: str, start: str, recursive: bool) -> Iterator[StoredObject]:
        for entry in self._scan(folder):
            if not entry.name.startswith(start) or entry.name.startswith(UNFINISHED):
                continue
            key = folder + entry.name
            if entry.is_dir(follow_symlinks=False):
                if recursive:
                    yield from self._list(key + "/", "", recursive)
            elif (found := self._object(entry, key)) is not None:
                yield found

    def _object(self, entry: os.DirEntry[str], key: str) -> StoredObject | None:
        try:
            if entry.is_symlink() and not self._inside(entry.path):
                return None
            status = entry.stat()
        except FileNotFoundError:
            return None  # removed since the folder was read, or a link to nothing
        except OSError as error:
            raise translate_os_error(error, f"{self._url}/{key}") from error
        if not stat.S_ISREG(status.st_mode):
            return None
        return stored_object(key, status)

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        where = f"{self._url}/{folder}".rstrip("/")
        if folder.count("/") > limits.FOLDER_DEPTH:
            raise StorageError(
                f"there are more than {limits.FOLDER_DEPTH} folders, one in another",
                where=f"{where[:200]}…",
                hint="Move them out of the namespace: lakeFS writes no such folders.",
            )
        try:
            path = self._path(folder) if folder else self._root
            with os.scandir(path) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError, StorageNotFound) as error:
            # Like an object store: under a prefix that nothing has there is nothing. But no root is an error.
            if folder and os.path.isdir(self._root):
                return []
            raise StorageNotFound(
                "there is no such folder", where=where, hint="check the path of the namespace"
            ) from error
        except OSError as error:
            raise translate_os_error(error, where) from error

    @contextlib.contextmanager
    def _open(self, key: str) -> Iterator[BinaryIO]:
        where = f"{self._url}/{key}"
        try:
            # Not blocking: opening a pipe would wait for a writer.
            handle = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise translate_os_error(error, where) from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise StorageNotFound("there is no such object", where=where)
        with open(handle, "rb") as file:
            yield file

    def _start(self, prefix: str) -> tuple[str, str]:
        """A prefix as the folder to begin at ("" or ending in ``/``) and the start of the names in it."""
        folder, slash, start = prefix.rpartition("/")
        return folder + slash, start

    def _path(self, key: str) -> str:
        parts = key.removesuffix("/").split("/")
        if ".." in parts or "\0" in key:
            raise StorageError("a key cannot lead out of its namespace", where=f"{self._url}/{key}")
        if "" in parts or "." in parts:
            raise StorageNotFound("there is no such object", where=f"{self._url}/{key}")
        path = os.path.join(self._root, *parts)
        if not self._inside(path):
            raise StorageNotFound(
                "there is no such object", where=f"{self._url}/{key}", hint="a link leads out of the folder"
            )
        return path

    def _inside(self, path: str) -> bool:
        root = os.path.realpath(self._root)
        return os.path.commonpath((os.path.realpath(path), root)) == root
