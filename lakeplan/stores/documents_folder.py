"""State in a folder: atomic and safe with several processes on one machine (``file://``)."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator

from lakeplan.errors import StorageError
from lakeplan.limits import TooLarge, read_file
from lakeplan.stores.faults import Kind, check_data, check_key, error_of, translate_os_error
from lakeplan.stores.folder import flush_folder, make_folders
from lakeplan.stores.protocols import Versioned
from lakeplan.stores.urls import FolderLocation, Opened
from lakeplan.values.local import PRIVATE, PRIVATE_FOLDER

LOCK = ".lock"
LEFTOVER = ".new-"


class FolderState(Opened):
    """``lakeplan.stores.protocols.StateWriter`` in a folder. A version is the SHA-256 of the record.

    Writers take turns by a lock on one file of the folder, which the system releases when a process dies. A
    record is written beside its place, flushed to the disk and then renamed: whoever is killed, and
    whenever, a reader finds the old record or the new one, whole. Records are for their owner alone, and no
    symbolic link below the folder is followed.
    """

    def __init__(self, path: str) -> None:
        super().__init__(FolderLocation(path))
        self._root = path

    def read(self, key: str) -> Versioned | None:
        check_key(key, self._url)
        try:
            data = read_file(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except TooLarge as error:
            raise StorageError(str(error), where=self._where(key)) from None
        except OSError as error:
            raise translate_os_error(error, self._where(key)) from error
        return Versioned(data, _version(data))

    def list_keys(self, prefix: str = "") -> list[str]:
        found: list[str] = []

        def fail(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise translate_os_error(error, self._url) from error

        for folder, names, files in os.walk(self._root, onerror=fail):
            names[:] = [name for name in names if not name.startswith(".")]
            relative = os.path.relpath(folder, self._root)
            base = "" if relative == "." else relative.replace(os.sep, "/") + "/"
            found += [base + name for name in files if not name.startswith(".")]
        return sorted(key for key in found if key.startswith(prefix))

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        check_key(key, self._url)
        check_data(data, self._where(key))
        with self._locked(key):
            self._require(key, if_version)
            self._replace(self._path(key), data)
        return _version(data)

    def delete(self, key: str, *, if_version: str) -> None:
        check_key(key, self._url)
        with self._locked(key):
            self._require(key, if_version)
            os.unlink(self._path(key))
            flush_folder(os.path.dirname(self._path(key)))

    def _require(self, key: str, version: str | None) -> None:
        present = self.read(key)
        if (present.version if present else None) != version:
            raise error_of(Kind.CONFLICT, self._where(key))

    def _replace(self, path: str, data: bytes) -> None:
        folder = os.path.dirname(path)
        make_folders(folder, PRIVATE_FOLDER)
        for name in os.listdir(folder):
            if name.startswith(LEFTOVER):
                os.unlink(os.path.join(folder, name))  # we hold the lock: its writer was killed
        new = os.path.join(folder, LEFTOVER + secrets.token_hex(8))
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
            raise
        flush_folder(folder)

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        try:
            make_folders(self._root, PRIVATE_FOLDER)
            lock_path = os.path.join(self._root, LOCK)
            with open(os.open(lock_path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, PRIVATE), "wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except StorageError:
            raise
        except OSError as error:
            raise translate_os_error(error, self._where(key)) from error

    def _path(self, key: str) -> str:
        """Raises StorageError where a part of it below the folder is a symbolic link."""
        path = os.path.join(os.path.realpath(self._root), *key.split("/"))
        if os.path.realpath(path) != path:
            raise StorageError(
                "a symbolic link is not followed in a state folder",
                where=self._where(key),
                hint="Replace the link by the file or folder itself.",
            )
        return path


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
