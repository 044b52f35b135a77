"""A folder as a store. A file is complete or does not exist, even if a process is killed while it writes.
State in a folder (``file://``) may be used by several processes of one machine."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from lakeplan import limits
from lakeplan.errors import StorageError, StorageNotFound
from lakeplan.limits import TooLarge
from lakeplan.stores.bounded import too_large
from lakeplan.stores.faults import OS_ERRORS, Kind, error_of, translate_os_error
from lakeplan.stores.open import FolderLocation, Versioned, check_copy, check_data, check_key
from lakeplan.stores.shared import CHANGED, NO_KEY, BatchDeleter, Opened, not_equal
from lakeplan.values.local import PRIVATE_FOLDER, SHARED, new_file, read_file
from lakeplan.values.own_files import LOCK_SECONDS, locked
from lakeplan.values.repository import StoredObject
from lakeplan.values.sweep import Deletion, StoreFacts, Versions

UNFINISHED = ".lakeplan-unfinished-"
"""The beginning of the names of unfinished files. Readers of a namespace do not list them."""


@contextlib.contextmanager
def os_errors(where: str) -> Iterator[None]:
    """Translate errors of the operating system by the table in ``faults``."""
    try:
        yield
    except OSError as error:
        raise translate_os_error(error, where) from error


def make_folders(path: str, mode: int = 0o777) -> None:
    """Like makedirs, but each new folder is flushed to the disk before anything is put into it."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_folders(parent, mode)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
    flush_folder(parent)


def flush_folder(path: str) -> None:
    """Flush a folder to the disk. Otherwise a power cut may undo a rename."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_file(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def stored_object(key: str, status: os.stat_result) -> StoredObject:
    """Return a file as an object. Its ETag is the inode and ctime, which nobody can set: size and mtime may
    be the same after a write."""
    tag = f"{status.st_ino:x}-{status.st_ctime_ns:x}"
    return StoredObject(key, status.st_size, status.st_mtime_ns // 1000, tag)


class FolderReader(Opened):
    """Reads and lists one folder, and nothing outside it: a symbolic link that leads out is not an object.
    Linked folders are not listed, so that a link cannot make a listing endless.

    Keys are file names with ``/`` between them. Names that are not UTF-8 have Python's surrogate escapes.
    """

    def __init__(self, path: str) -> None:
        super().__init__(FolderLocation(path))
        self._root = path

    def read(self, key: str) -> bytes:
        where = self._where(key)
        with os_errors(where), self._open(key) as file:
            status = os.fstat(file.fileno())
            if status.st_size > limits.OBJECT_BYTES:
                raise too_large(where)
            data = file.read()
        if len(data) != status.st_size:
            raise StorageError(
                f"the file changed while it was being read: received {len(data)} of {status.st_size} bytes",
                where=where,
                hint="Run the command again.",
            )
        return data

    def read_span(self, key: str, start: int, length: int) -> bytes:
        with os_errors(self._where(key)), self._open(key) as file:
            file.seek(start)
            return file.read(length)

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
            elif (stored := self._object(entry, key)) is not None:
                yield stored

    def _object(self, entry: os.DirEntry[str], key: str) -> StoredObject | None:
        try:
            if entry.is_symlink() and not self._inside(entry.path):
                return None
            status = entry.stat()
        except FileNotFoundError:
            return None  # removed meanwhile, or a link without a target
        except OSError as error:
            raise translate_os_error(error, self._where(key)) from error
        return stored_object(key, status) if stat.S_ISREG(status.st_mode) else None

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        where = f"{self._url}/{folder}".rstrip("/")
        if folder.count("/") > limits.FOLDER_DEPTH:
            raise StorageError(
                f"folders are nested more deeply than the limit of {limits.FOLDER_DEPTH} levels",
                where=f"{where[:200]}…",
                hint="Move these folders out of the namespace. lakeFS does not create such folders.",
            )
        try:
            path = self._path(folder) if folder else self._root
            with os.scandir(path) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError, StorageNotFound) as error:
            # As in an object store, a prefix without objects is empty. A missing root is an error.
            if folder and os.path.isdir(self._root):
                return []
            raise _no_root(where) from error
        except OSError as error:
            raise translate_os_error(error, where) from error

    @contextlib.contextmanager
    def _open(self, key: str) -> Iterator[BinaryIO]:
        where = self._where(key)
        with os_errors(where):
            # Opening a pipe would otherwise wait for a writer.
            handle = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise StorageNotFound("the object does not exist", where=where)
        with open(handle, "rb") as file:
            yield file

    def _start(self, prefix: str) -> tuple[str, str]:
        """Return the folder of a prefix ("" or ending in ``/``) and the beginning of the names in it."""
        folder, slash, start = prefix.rpartition("/")
        return folder + slash, start

    def _path(self, key: str) -> str:
        parts = key.removesuffix("/").split("/")
        if ".." in parts or "\0" in key:
            raise StorageError("the key refers to a place outside the namespace", where=self._where(key))
        if "" in parts or "." in parts:
            raise StorageNotFound("the object does not exist", where=self._where(key))
        path = os.path.join(self._root, *parts)
        if not self._inside(path):
            raise StorageNotFound(
                "the object does not exist",
                where=self._where(key),
                hint="Check the path: a symbolic link points outside the folder.",
            )
        return path

    def _inside(self, path: str) -> bool:
        root = os.path.realpath(self._root)
        return os.path.commonpath((os.path.realpath(path), root)) == root


CHUNK = 1 << 20
COPY = ".lakeplan-copy-"
"""The beginning of the names of unfinished copies. They are listed, so that those of killed processes are
collected like other objects that were never committed."""
NO_NAMES = frozenset(("", ".", ".."))
NO_FILE = "this key cannot be used as the name of a file"
ALREADY = "the object already exists"
LINKED = "the path contains a symbolic link to another object"


class FolderStore(BatchDeleter, FolderReader):
    """Implements ``SweepStore`` in a folder.

    Deletes files and links that are objects, but no folder (empty ones remain) and nothing in a linked
    folder. It opens the folders of a path without following links, so that a link that is created meanwhile
    is not followed either.
    """

    batch_size = 1_000

    def _unusable(self, key: str) -> str:
        return "" if key else NO_KEY  # names need not be Unicode

    def _delete_keys(
        self, keys: list[str], versions: Versions, expected: Mapping[str, StoredObject]
    ) -> dict[str, Deletion]:
        """Delete files. Files have no versions. Raises StorageNotFound if the root folder does not exist, for
        example because its disk is not mounted: a missing file then does not mean that it was deleted."""
        with _Folders(self._root, self.url) as folders:
            answers = [self._delete(key, folders, expected.get(key)) for key in keys]
        return {answer.key: answer for answer in answers if not answer.deleted}

    def find(self, keys: Sequence[str]) -> dict[str, StoredObject]:
        with _Folders(self._root, self.url) as folders:
            objects = {key: self._find(key, folders) for key in keys}
        return {key: stored for key, stored in objects.items() if stored is not None}

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
        return self.stat(key)  # links and everything odd, as any reader finds it

    def stat(self, key: str) -> StoredObject | None:
        try:
            status = os.stat(self._path(key))
        except (StorageNotFound, OSError) as error:
            if isinstance(error, OSError) and OS_ERRORS.get(error.errno or 0) is not Kind.MISSING:
                raise translate_os_error(error, self._where(key)) from error
            self._require_root()
            return None
        return stored_object(key, status) if stat.S_ISREG(status.st_mode) else None

    def is_gone(self, key: str) -> bool:
        try:
            with os_errors(self._where(key)), self._open(key) as file:
                file.read(1)
        except StorageNotFound:
            self._require_root()
            return True
        return False

    def facts(self) -> StoreFacts:
        return StoreFacts(versioned=False, soft_delete=False)

    def copy(self, source: str, target: str, *, create: bool = False) -> StoredObject:
        """Copy to a file beside ``target``, flush it, read it again, and rename it if its SHA-256 is the
        source's. As in an object store, its modification time is new."""
        check_copy(source, target, self._where(target))
        with self._open(source) as file, self._written(target, create=create, prefix=COPY) as new:
            wanted = _copy(file, new)
            os.fchmod(new.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
            flush_file(new)  # before it is read, so that a failing disk is noticed
            new.seek(0)
            if _copy(new, None) != wanted:
                raise not_equal(source, self._where(target))
        stored = self.stat(target)
        if stored is None:
            raise error_of(Kind.CONFLICT, self._where(target), message="the copy was deleted in the meantime")
        return stored

    def put(self, key: str, data: bytes) -> None:
        with self._written(key, create=False) as new:
            new.write(data)

    def create(self, key: str, data: bytes) -> None:
        with self._written(key, create=True) as new:
            new.write(data)

    @contextlib.contextmanager
    def _written(self, key: str, *, create: bool, prefix: str = UNFINISHED) -> Iterator[BinaryIO]:
        """Yield a new file beside the key's place, which is flushed and moved there at the end. Raises
        WriteConflict if ``create`` finds a file there."""
        place = self._place(key)
        with os_errors(self._where(key)):
            make_folders(os.path.dirname(place))
            with new_file(place, prefix=prefix, mode=SHARED) as new:
                yield new
                flush_file(new)
                if not create:
                    os.replace(new.name, place)
                else:
                    try:
                        os.link(new.name, place, follow_symlinks=False)
                    except FileExistsError:
                        raise error_of(Kind.CONFLICT, self._where(key), message=ALREADY) from None
            flush_folder(os.path.dirname(place))

    def _delete(self, key: str, folders: _Folders, expected: StoredObject | None) -> Deletion:
        folder, slash, name = key.rpartition("/")
        if name in NO_NAMES or "\0" in key or (slash and not folder):
            return Deletion(key, NO_FILE)
        try:
            place = folders.open(folder)
            status = os.stat(name, dir_fd=place, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                if expected is not None and stored_object(key, status) != expected:
                    return Deletion(key, CHANGED, changed=True)
                os.unlink(name, dir_fd=place)
            elif stat.S_ISLNK(status.st_mode):
                if not self._inside(os.path.join(self._root, folder, name)):
                    return Deletion(key, "a symbolic link points outside the folder")
                if expected is not None and self._find(key, folders) != expected:
                    return Deletion(key, CHANGED, changed=True)
                os.unlink(name, dir_fd=place)
            # Folders and pipes are not objects.
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
        """Return the path of a new file. Raises StorageError if it is the place of another key, or of
        none."""
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
        """Raise StorageNotFound if the root does not exist: nothing is then known about its keys."""
        if not os.path.isdir(self._root):
            raise _no_root(self.url)


class _Folders:
    """Opens folders below a root, without following links. The last one remains open, because the keys of a
    batch are mostly neighbours."""

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

    def __exit__(self, *_: object) -> None:
        self._close_last()
        os.close(self._root)

    def open(self, path: str) -> int:
        """Return a handle of the folder ("" is the root), which is valid until the next call. Raises OSError,
        and ValueError for a path that no folder below the root can have."""
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
        # Only now: a failed path must not be remembered with a folder on the way.
        self._last, self._path = at, path
        return at

    def _close_last(self) -> None:
        if self._last != self._root:
            os.close(self._last)
        self._last, self._path = self._root, ""


# O_PATH, if the system has it, needs no permission to read the folder.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def _no_root(url: str) -> StorageNotFound:
    return StorageNotFound("the folder does not exist", where=url, hint="Check the path of the namespace.")


def _copy(source: BinaryIO, target: BinaryIO | None) -> bytes:
    """Copy to the end, or only read, and return the SHA-256 of the data."""
    digest = hashlib.sha256()
    while data := source.read(CHUNK):
        digest.update(data)
        if target is not None:
            target.write(data)
    return digest.digest()


LOCK = ".lock"
LEFTOVER = ".new-"


class FolderState(Opened):
    """Implements ``StateWriter`` in a folder. A version is the SHA-256 of the record.

    Writers lock a file of the folder, which the system unlocks when a process ends. A record is written to a
    new file, flushed and then renamed, so that a reader always finds either the old or the new record. Only
    their owner may read records, and symbolic links below the folder are not followed.
    """

    def __init__(self, path: str) -> None:
        super().__init__(FolderLocation(path))
        self._root = path

    def read(self, key: str) -> Versioned | None:
        check_key(key, self._url)
        try:
            data = read_file(self._path(key))
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise self._no_folder(os.path.dirname(key)) from None
        except TooLarge as error:
            raise StorageError(str(error), where=self._where(key)) from None
        except OSError as error:
            raise translate_os_error(error, self._where(key)) from error
        return Versioned(data, _version(data))

    def _no_folder(self, key: str) -> StorageError:
        return StorageError(
            "this path must be a folder, but it is a file",
            where=self._where(key) if key else self._url,
            hint="Move the file elsewhere, or restore the folder from a backup.",
        )

    def list_keys(self, prefix: str = "") -> list[str]:
        keys: list[str] = []

        def fail(error: OSError) -> None:
            if isinstance(error, NotADirectoryError):
                raise self._no_folder("") from None
            if not isinstance(error, FileNotFoundError):
                raise translate_os_error(error, self._url) from error

        for folder, names, files in os.walk(self._root, onerror=fail):
            names[:] = [name for name in names if not name.startswith(".")]
            relative = os.path.relpath(folder, self._root)
            base = "" if relative == "." else relative.replace(os.sep, "/") + "/"
            for name in files:
                if prefix.startswith(f"{base}{name}/"):  # "no records" would be a guess
                    raise self._no_folder(base + name)
            keys += [base + name for name in files if not name.startswith(".")]
        return sorted(key for key in keys if key.startswith(prefix))

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
                os.unlink(os.path.join(folder, name))  # its writer was killed, because we have the lock
        with new_file(path, prefix=LEFTOVER) as file:
            file.write(data)
            flush_file(file)
            os.replace(file.name, path)
        flush_folder(folder)

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        try:
            make_folders(self._root, PRIVATE_FOLDER)
            with locked(os.path.join(self._root, LOCK)):
                yield
        except StorageError:
            raise
        except TimeoutError:
            raise StorageError(
                "the state folder is locked by another process, which did not release it within"
                f" {LOCK_SECONDS} seconds",
                where=self._where(key),
                hint="Look for a suspended lakeplan process, for example one that was stopped with Ctrl-Z.",
            ) from None
        except OSError as error:
            raise translate_os_error(error, self._where(key)) from error

    def _path(self, key: str) -> str:
        """Return the path of a record. Raises StorageError if it has a symbolic link below the folder."""
        path = os.path.join(os.path.realpath(self._root), *key.split("/"))
        if os.path.realpath(path) != path:
            raise StorageError(
                "symbolic links are not followed in a state folder",
                where=self._where(key),
                hint="Replace the link with the file or folder itself.",
            )
        return path


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
