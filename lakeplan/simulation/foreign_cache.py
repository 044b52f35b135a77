"""Facts about other repositories' ranges in the user's own cache folder (``lakeplan.ports.foreign``).

They license deletions, so nobody but this user may have written them. The folder, and every folder above it,
can be changed by this user and root alone. Each file carries an HMAC of its content and its name; the key is
in another private folder of the user. A cache that a CI service, a backup or an archive brought back has no
such key beside it, and is not used. Nor is any cache used in CI, inside the tree, or one that ``--cache``
names.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import logging
import os
import secrets
import stat
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from lakeplan import __version__
from lakeplan.formats.compiled import is_own
from lakeplan.simulation.foreign import ForeignFacts
from lakeplan.stores.folder import make_folders
from lakeplan.values.local import PRIVATE, PRIVATE_FOLDER

FILE_BYTES = 64 << 20
"""Of one repository: about a million metaranges and ranges that hold nothing."""
TOTAL_BYTES = 1 << 30
"""Of all together, the least recently written out."""
KEY_BYTES = 32
_MAGIC = f"lakeplan foreign facts 1 {__version__}\n".encode()
_DIGEST = hashlib.sha256
_log = logging.getLogger(__name__)


def open_foreign_cache(environ: Mapping[str, str], tree: Path) -> FolderForeignCache | None:
    """None where there is no folder that is this user's alone, in CI, and in a checkout that has the tree."""
    home = environ.get("HOME", "")
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    state = environ.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state")
    if environ.get("CI") or not (os.path.isabs(cache) and os.path.isabs(state)):
        return None
    folders = [Path(base) / "lakeplan" / name for base, name in ((cache, "foreign"), (state, "keys"))]
    top = _checkout_of(tree)
    for folder in folders:
        if top in Path(os.path.realpath(folder)).parents or not _is_private(folder):
            _log.info("other repositories are read again: %s is not a private folder of this user", folder)
            return None
    key = _key(folders[1] / "foreign.key")
    return FolderForeignCache(folders[0], key) if key is not None else None


class FolderForeignCache:
    """One file a repository, written beside its place and renamed; writers take turns by a lock."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder = folder
        self._key = key

    @property
    def where(self) -> str:
        return str(self._folder)

    def load(self, repository: str) -> ForeignFacts:
        name = _name(repository)
        data = _read_own(self._folder / name, FILE_BYTES)
        if data is None:
            return ForeignFacts()
        front = len(_MAGIC) + _DIGEST().digest_size
        if not hmac.compare_digest(data[len(_MAGIC) : front], self._digest(name, data[front:])):
            _log.info("the cache of %s is damaged or not of this user and version: not used", repository)
            return ForeignFacts()
        content = json.loads(zlib.decompress(data[front:]))
        ranges = dict.fromkeys(content["empty"], b"")
        ranges |= {id: b64decode(text) for id, text in content["odd"].items()}
        return ForeignFacts(ranges, {id: tuple(ids) for id, ids in content["metaranges"].items()})

    def save(self, repository: str, facts: ForeignFacts, *, needed: Iterable[str]) -> None:
        name = _name(repository)
        try:
            with self._locked():
                merged = self.load(repository)
                merged.update(facts)
                data = _packed(merged)
                if len(data) > FILE_BYTES // 2:
                    data = _packed(merged.only(needed))
                data = _MAGIC + self._digest(name, data) + data
                if len(data) <= FILE_BYTES:
                    self._replace(name, data)
                self._trim()
        except OSError as error:  # a full disk is no reason to stop
            _log.info("the cache of %s was not written: %s", repository, error.strerror)

    def _digest(self, name: str, data: bytes) -> bytes:
        return hmac.new(self._key, _MAGIC + name.encode() + b"\n" + data, _DIGEST).digest()

    def _replace(self, name: str, data: bytes) -> None:
        new = self._folder / f".new-{secrets.token_hex(8)}"
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
                file.write(data)
            new.replace(self._folder / name)
        finally:
            new.unlink(missing_ok=True)

    def _trim(self) -> None:
        """Also removes what a killed writer left behind: there is one writer at a time."""
        found = []
        for path in self._folder.iterdir():
            if path.name.startswith(".new-"):
                path.unlink()
            elif path.suffix == ".facts":
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= TOTAL_BYTES:
                return
            path.unlink()
            total -= size

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
        with open(os.open(self._folder / ".lock", flags, PRIVATE), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _packed(facts: ForeignFacts) -> bytes:
    content = {
        "empty": [id for id, packed in facts.ranges.items() if not packed],
        "odd": {id: b64encode(packed).decode() for id, packed in facts.ranges.items() if packed},
        "metaranges": facts.metaranges,
    }
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 1)


def _name(repository: str) -> str:
    return f"{hashlib.sha256(repository.encode()).hexdigest()[:32]}.facts"


def _is_private(folder: Path) -> bool:
    try:
        make_folders(str(folder), PRIVATE_FOLDER)
        return is_own(folder)
    except OSError:
        return False


def _read_own(path: Path, most: int) -> bytes | None:
    """A regular file that is this user's alone, whole; else None."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            if not own or status.st_mode & 0o077 or status.st_size > most:
                return None
            return file.read(most)
    except OSError:
        return None


def _key(path: Path) -> bytes | None:
    """The user's key, made on first use; of two processes that make one, the first counts."""
    with contextlib.suppress(OSError):
        new = path.with_name(f".new-{secrets.token_hex(8)}")
        if not path.exists():
            try:
                with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
                    file.write(secrets.token_bytes(KEY_BYTES))
                    file.flush()
                    os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):
                    os.link(new, path)
            finally:
                new.unlink(missing_ok=True)
    found = _read_own(path, KEY_BYTES)
    return found if found is not None and len(found) == KEY_BYTES else None


def _checkout_of(tree: Path) -> Path:
    """The real folder of the tree, or of the git work tree that has it."""
    real = Path(os.path.realpath(tree))
    return next((folder for folder in (real, *real.parents) if (folder / ".git").exists()), real)
