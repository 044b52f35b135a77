"""Deleting, looking, copying and recording in a folder of this machine (``file://``)."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import BinaryIO

from lakeplan.adapters.storage.checks import CHANGED, NO_KEY, check_batch, check_copy, not_equal
from lakeplan.adapters.storage.folder import FolderReader, stored_object
from lakeplan.adapters.storage.folder_files import flush_file, flush_folder, written_beside
from lakeplan.adapters.storage.translate import OS_ERRORS, Kind, error_of, translate_os_error
from lakeplan.errors import StorageError, StorageNotFound
from lakeplan.model.objects import StoredObject
from lakeplan.model.stored import Deletion, StoredFacts, StoreFacts, Versions

BATCH = 1_000
CHUNK = 1 << 20
COPY = ".lakeplan-copy-"
"""How names of unfinished copies begin. They are listed: what a kill leaves behind is seen, and collected as
any object that nobody committed."""
NO_NAMES = frozenset(("", ".", ".."))
NO_FILE = "no file can have this key"
ALREADY = "there is something already"
LINKED = "a link is in its path: what it leads to is another object's place"


class FolderStore(FolderReader):
    """``lakeplan.ports.sweep_storage.SweepStore`` in a folder.

    Deletes files and links that are objects, and nothing else: no folder (empty ones stay), and nothing that
    is reached through a linked folder. The path is walked without following links, so that one put there
    meanwhile leads nowhere.
    """

    @property
    def batch_size(self) -> int:
        return BATCH

    def delete(
        self,
        keys: Sequence[str],
        *,
        versions: Versions,
        expected: Mapping[str, StoredObject] | None = None,
    ) -> list[Deletion]:
        """Files have no versions: ``versions`` changes nothing. Without the root folder (a disk that is not
        mounted, say) nothing is known to be deleted: StorageNotFound."""
        check_batch(keys, BATCH, self.url)
        with _Folders(self._root, self.url) as folders:
            return [self._delete(key, folders, (expected or {}).get(key)) for key in keys]

    def find(self, keys: Sequence[str]) -> dict[str, StoredObject]:
        with _Folders(self._root, self.url) as folders:
            found = {key: self._find(key, folders) for key in keys}
        return {key: stored for key, stored in found.items() if stored is not None}

    def _find(self, key: str, folders: _Folders) -> StoredObject | None:
        folder, _, name = key.rpartition("/")
        try:
            status = os.stat(name, dir_fd=folders.open(folder), follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):  # nearly always
                return stored_object(key, status)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            pass
        # Links and everything odd: as any reader finds it.
        facts = self.stat(key)
        return None if facts is None else StoredObject(key, facts.size, facts.modified_us)

    def stat(self, key: str) -> StoredFacts | None:
        try:
            status = os.stat(self._path(key))
        except StorageNotFound:
            self._require_root()
            return None
        except OSError as error:
            if OS_ERRORS.get(error.errno or 0) is not Kind.MISSING:
                raise translate_os_error(error, self._where(key)) from error
            self._require_root()
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return StoredFacts(key, status.st_size, status.st_mtime_ns // 1000)

    def is_gone(self, key: str) -> bool:
        try:
            with self._open(key) as file:
                file.read(1)
        except StorageNotFound:
            self._require_root()
            return True
        except OSError as error:
            raise translate_os_error(error, self._where(key)) from error
        return False

    def facts(self) -> StoreFacts:
        return StoreFacts(versioned=False, soft_delete=False)

    def copy(self, source: str, target: str, *, create: bool = False) -> StoredFacts:
        """The copy is written beside ``target``, flushed, read again, and takes its name only when its
        SHA-256 is the source's. Its modification time is new, as it is in an object store."""
        check_copy(source, target, self._where(target))
        place = self._place(target)
        try:
            with self._open(source) as file, written_beside(place, prefix=COPY) as new:
                wanted = _copy(file, new)
                os.fchmod(new.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
                flush_file(new)
                new.seek(0)
                if _copy(new, None) != wanted:
                    raise not_equal(source, self._where(target))
                self._name(new.name, place, create=create)
            flush_folder(os.path.dirname(place))
        except FileExistsError:
            raise error_of(Kind.CONFLICT, self._where(target), message=ALREADY) from None
        except OSError as error:
            raise translate_os_error(error, self._where(target)) from error
        found = self.stat(target)
        if found is None:
            raise error_of(Kind.CONFLICT, self._where(target), message="the copy was removed at once")
        return found

    def put(self, key: str, data: bytes) -> None:
        self._write(key, data, create=False)

    def create(self, key: str, data: bytes) -> None:
        self._write(key, data, create=True)

    def _write(self, key: str, data: bytes, *, create: bool) -> None:
        place = self._place(key)
        try:
            with written_beside(place) as new:
                new.write(data)
                flush_file(new)
                self._name(new.name, place, create=create)
            flush_folder(os.path.dirname(place))
        except FileExistsError:
            raise error_of(Kind.CONFLICT, self._where(key), message=ALREADY) from None
        except OSError as error:
            raise translate_os_error(error, self._where(key)) from error

    @staticmethod
    def _name(new: str, place: str, *, create: bool) -> None:
        """Raises FileExistsError when ``create`` finds something at the place."""
        if create:
            os.link(new, place, follow_symlinks=False)
        else:
            os.replace(new, place)

    def _delete(self, key: str, folders: _Folders, expected: StoredObject | None) -> Deletion:
        folder, slash, name = key.rpartition("/")
        if name in NO_NAMES or "\0" in key or (slash and not folder):
            return Deletion(key, NO_FILE if key else NO_KEY)
        try:
            place = folders.open(folder)
            status = os.stat(name, dir_fd=place, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):  # nearly always: asked first
                if expected is not None and stored_object(key, status) != expected:
                    return Deletion(key, CHANGED, changed=True)
                os.unlink(name, dir_fd=place)
            elif stat.S_ISLNK(status.st_mode):
                if not self._inside(os.path.join(self._root, folder, name)):
                    return Deletion(key, "a link leads out of the folder")
                if expected is not None and self._find(key, folders) != expected:
                    return Deletion(key, CHANGED, changed=True)
                os.unlink(name, dir_fd=place)
            # Under a folder's or a pipe's name there is no object.
        except (OSError, ValueError) as error:
            return self._failed(key, error)
        return Deletion(key)

    def _failed(self, key: str, error: OSError | ValueError) -> Deletion:
        if isinstance(error, ValueError):
            return Deletion(key, NO_FILE)
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            parts = key.split("/")
            paths = (os.path.join(self._root, *parts[:n]) for n in range(1, len(parts)))
            return Deletion(key, LINKED) if any(map(os.path.islink, paths)) else Deletion(key)
        if error.errno == errno.ENOENT:
            return Deletion(key)
        reason = error.strerror or type(error).__name__
        return Deletion(key, reason, transient=OS_ERRORS.get(error.errno or 0) is Kind.BUSY)

    def _place(self, key: str) -> str:
        """The path that a new file gets. Raises StorageError when another key's place is meant, or none."""
        self._require_root()
        try:
            place = self._path(key)
        except StorageNotFound as error:
            raise StorageError(NO_FILE, where=self._where(key), hint=error.hint) from None
        folders = key.split("/")[:-1]
        if os.path.realpath(os.path.dirname(place)) != os.path.join(os.path.realpath(self._root), *folders):
            raise StorageError(LINKED, where=self._where(key))
        return place

    def _require_root(self) -> None:
        """Nothing is known of a key in a folder that is not there."""
        if not os.path.isdir(self._root):
            raise _no_root(self.url)

    def _where(self, key: str) -> str:
        return f"{self.url}/{key}"


class _Folders:
    """Opens folders below a root, one after the other, following no link. The last one stays open: the keys
    of a batch are mostly neighbours."""

    def __init__(self, root: str, url: str) -> None:
        try:
            self._root = os.open(root, _FOLDER)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _no_root(url) from error
        except OSError as error:
            raise translate_os_error(error, url) from error
        self._path = ""
        self._last = self._root

    def __enter__(self) -> _Folders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_last()
        os.close(self._root)

    def open(self, path: str) -> int:
        """A handle of the folder ("" is the root), valid until the next call. Raises OSError, and ValueError
        for a path that no folder below the root can have."""
        if path == self._path:
            return self._last
        names = path.split("/") if path else []
        if not NO_NAMES.isdisjoint(names):
            raise ValueError(NO_FILE)
        self._close_last()
        at = self._root
        for name in names:
            try:
                below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            finally:
                if at != self._root:
                    os.close(at)
            at = below
        # Only now: a path that failed half-way must not stand for the folder it came to.
        self._last, self._path = at, path
        return at

    def _close_last(self) -> None:
        if self._last != self._root:
            os.close(self._last)
        self._last, self._path = self._root, ""


# Where the system can, a handle that needs no right to read the folder.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def _no_root(url: str) -> StorageNotFound:
    return StorageNotFound("there is no such folder", where=url, hint="check the path of the namespace")


def _copy(source: BinaryIO, target: BinaryIO | None) -> bytes:
    """Copies to the end, or only reads; the SHA-256 of what was read."""
    digest = hashlib.sha256()
    while data := source.read(CHUNK):
        digest.update(data)
        if target is not None:
            target.write(data)
    return digest.digest()
