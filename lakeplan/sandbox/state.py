"""A sandbox's state, which survives a restart: records in one SQLite file, and namespaces beside it, with
links to their files and the trees of objects in them."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from lakeplan.errors import UsageError
from lakeplan.formats.namespace import DUMMY_KEY, ROOT_DUMMY_KEY, metadata_key
from lakeplan.formats.ranges import read_metarange, read_range, write_metarange, write_ranges
from lakeplan.sandbox.graph import Tree, in_order
from lakeplan.sandbox.messages import ApiError, bad_request, not_found
from lakeplan.values.repository import AddressType, Branch, Commit, Entry, Refs, Repository, Tag

_SCHEMA = """
CREATE TABLE IF NOT EXISTS repositories (
    id TEXT PRIMARY KEY, namespace TEXT NOT NULL, default_branch TEXT NOT NULL,
    created INTEGER NOT NULL, read_only INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS branches (
    repository TEXT, id TEXT, commit_id TEXT NOT NULL, hidden INTEGER NOT NULL,
    created INTEGER NOT NULL, updated INTEGER NOT NULL, PRIMARY KEY (repository, id));
CREATE TABLE IF NOT EXISTS tags (
    repository TEXT, id TEXT, commit_id TEXT NOT NULL, PRIMARY KEY (repository, id));
CREATE TABLE IF NOT EXISTS commits (
    repository TEXT, id TEXT, record TEXT NOT NULL, PRIMARY KEY (repository, id));
CREATE TABLE IF NOT EXISTS staged (
    repository TEXT, branch TEXT, path TEXT, entry TEXT, PRIMARY KEY (repository, branch, path));
CREATE TABLE IF NOT EXISTS settings (
    repository TEXT, name TEXT, value TEXT NOT NULL, PRIMARY KEY (repository, name));
CREATE TABLE IF NOT EXISTS documents (
    repository TEXT, kind TEXT, id TEXT, value TEXT NOT NULL, PRIMARY KEY (repository, kind, id));
"""

_TABLES_OF_A_REPOSITORY = ("branches", "tags", "commits", "staged", "settings", "documents")

Value = str | int | None
Row = tuple[Value, ...]


class Store:
    """SQL with one writer at a time. Each request is one transaction.

    Raises UsageError when the file cannot be made, another process has it, or it is not a database.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, timeout=0.2, check_same_thread=False, isolation_level=None
            )
        except (OSError, sqlite3.DatabaseError) as error:
            raise _unusable(path, error) from error
        try:
            # One server owns the file until it ends: two would hand out the same names.
            self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode=WAL")
            # A sandbox need not survive a power cut, only the end of its process.
            self._connection.execute("PRAGMA synchronous=OFF")
            self._connection.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise _unusable(path, error) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Runs the block alone and commits it only if it ends without an error."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def rows(self, sql: str, *values: Value) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def run(self, sql: str, *values: Value) -> int:
        """Runs a statement and returns the number of changed rows."""
        return self._connection.execute(sql, values).rowcount

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _unusable(path: Path, error: OSError | sqlite3.DatabaseError) -> UsageError:
    return UsageError(
        f"cannot use the sandbox's data: {getattr(error, 'strerror', None) or error}",
        where=str(path),
        hint="Choose a different folder. Another sandbox may be running in this one, or this file may be"
        " damaged.",
    )


@dataclass(frozen=True)
class BranchRecord:
    """A branch. ``created`` and ``updated`` are epoch seconds. Only the Enterprise flavour shows them."""

    id: str
    commit_id: str
    hidden: bool
    created: int
    updated: int


class Repositories:
    """The repositories of a server."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> list[Repository]:
        """All repositories, by id."""
        return [_repository(row) for row in self._store.rows("SELECT * FROM repositories ORDER BY id")]

    def get(self, id: str) -> Repository:
        rows = self._store.rows("SELECT * FROM repositories WHERE id = ?", id)
        if not rows:
            raise not_found("repository not found")
        return _repository(rows[0])

    def add(self, repository: Repository) -> None:
        if self._store.rows("SELECT 1 FROM repositories WHERE id = ?", repository.id):
            raise ApiError(409, "error creating repository: not unique")
        self._store.run(
            "INSERT INTO repositories VALUES (?, ?, ?, ?, ?)",
            repository.id,
            repository.storage_namespace,
            repository.default_branch,
            repository.creation_date,
            int(repository.read_only),
        )

    def drop(self, id: str) -> None:
        self._store.run("DELETE FROM repositories WHERE id = ?", id)
        for table in _TABLES_OF_A_REPOSITORY:
            self._store.run(f"DELETE FROM {table} WHERE repository = ?", id)


class Records:
    """The records of one repository, without its namespace. ``now`` returns epoch seconds: a branch
    records when it was last written."""

    def __init__(self, store: Store, repository: str, now: Callable[[], int]) -> None:
        self._store = store
        self._repository = repository
        self._now = now

    def _rows(self, sql: str, *values: Value) -> list[Row]:
        """The rows of a query, whose ``?1`` is the repository."""
        return self._store.rows(sql, self._repository, *values)

    def _run(self, sql: str, *values: Value) -> None:
        """Runs a statement, whose ``?1`` is the repository."""
        self._store.run(sql, self._repository, *values)

    # branches

    def branches(self, *, show_hidden: bool) -> list[BranchRecord]:
        rows = self._rows(f"SELECT {_BRANCH} FROM branches WHERE repository = ?1 ORDER BY id")
        records = [_branch(row) for row in rows]
        return [b for b in records if show_hidden or not b.hidden]

    def find_branch(self, id: str) -> BranchRecord | None:
        rows = self._rows(f"SELECT {_BRANCH} FROM branches WHERE repository = ?1 AND id = ?2", id)
        return _branch(rows[0]) if rows else None

    def branch(self, id: str) -> BranchRecord:
        record = self.find_branch(id)
        if record is None:
            raise not_found("branch not found")
        return record

    def add_branch(self, id: str, commit_id: str, *, hidden: bool = False) -> None:
        if self.find_branch(id):
            raise ApiError(409, "branch already exists: not unique")
        if self.find_tag(id):
            raise ApiError(409, f"tag ID {id}: conflict found")
        if self.find_commit(id):
            raise ApiError(409, f"commit ID {id}: conflict found")
        sql = "INSERT INTO branches VALUES (?1, ?2, ?3, ?4, ?5, ?5)"
        self._run(sql, id, commit_id, int(hidden), self._now())

    def move_branch(self, id: str, commit_id: str) -> None:
        sql = "UPDATE branches SET commit_id = ?3, updated = ?4 WHERE repository = ?1 AND id = ?2"
        self._run(sql, id, commit_id, self._now())

    def touch_branch(self, id: str) -> None:
        """Records a write that resets the idle clock without a commit: staging, discarding."""
        self._run("UPDATE branches SET updated = ?3 WHERE repository = ?1 AND id = ?2", id, self._now())

    def drop_branch(self, id: str) -> None:
        self._run("DELETE FROM branches WHERE repository = ?1 AND id = ?2", id)

    # tags

    def tags(self) -> list[Tag]:
        rows = self._rows("SELECT id, commit_id FROM tags WHERE repository = ?1 ORDER BY id")
        return [Tag(str(id), str(commit)) for id, commit in rows]

    def find_tag(self, id: str) -> Tag | None:
        rows = self._rows("SELECT commit_id FROM tags WHERE repository = ?1 AND id = ?2", id)
        return Tag(id, str(rows[0][0])) if rows else None

    def tag(self, id: str) -> Tag:
        tag = self.find_tag(id)
        if tag is None:
            raise not_found("tag not found")
        return tag

    def add_tag(self, tag: Tag) -> None:
        if self.find_tag(tag.id):
            raise ApiError(409, "tag already exists: not unique")
        if self.find_branch(tag.id):
            raise ApiError(409, f"branch name {tag.id}: conflict found")
        self._run("INSERT INTO tags VALUES (?1, ?2, ?3)", tag.id, tag.commit_id)

    def drop_tag(self, id: str) -> None:
        self.tag(id)
        self._run("DELETE FROM tags WHERE repository = ?1 AND id = ?2", id)

    # commits

    def find_commit(self, id: str) -> Commit | None:
        rows = self._rows("SELECT record FROM commits WHERE repository = ?1 AND id = ?2", id)
        return _commit(rows[0][0]) if rows else None

    def commit(self, id: str) -> Commit:
        commit = self.find_commit(id)
        if commit is None:
            raise not_found("commit not found")
        return commit

    def commits_with_prefix(self, prefix: str) -> list[str]:
        """At most two ids, enough to know whether the prefix is unique."""
        sql = "SELECT id FROM commits WHERE repository = ?1 AND id >= ?2 AND id < ?3 ORDER BY id LIMIT 2"
        return [str(id) for (id,) in self._rows(sql, prefix, prefix + "g")]

    def add_commit(self, commit: Commit) -> None:
        """Adds a commit. The same one may be added again, because its id identifies its content."""
        self._run("INSERT OR IGNORE INTO commits VALUES (?1, ?2, ?3)", commit.id, json.dumps(asdict(commit)))

    def refs(self) -> Refs:
        """The content of a refs dump: commits by id, branches (including hidden ones), tags."""
        rows = self._rows("SELECT record FROM commits WHERE repository = ?1 ORDER BY id")
        branches = tuple(Branch(b.id, b.commit_id) for b in self.branches(show_hidden=True))
        return Refs(tuple(_commit(record) for (record,) in rows), branches, tuple(self.tags()))

    # staged changes: an entry by its path, or None where the path is to be deleted

    def staged(self, branch: str) -> dict[str, Entry | None]:
        """All staged changes, by path in byte order."""
        sql = "SELECT path, entry FROM staged WHERE repository = ?1 AND branch = ?2 ORDER BY path"
        return {str(path): _entry(str(path), entry) for path, entry in self._rows(sql, branch)}

    def find_staged(self, branch: str, path: str) -> tuple[bool, Entry | None]:
        """Whether anything is uncommitted at the path, and the entry, which is None for a deletion."""
        sql = "SELECT entry FROM staged WHERE repository = ?1 AND branch = ?2 AND path = ?3"
        rows = self._rows(sql, branch, path)
        return (True, _entry(path, rows[0][0])) if rows else (False, None)

    def stage(self, branch: str, path: str, entry: Entry | None) -> None:
        text = None if entry is None else json.dumps(astuple(entry)[1:])
        self._run("INSERT OR REPLACE INTO staged VALUES (?1, ?2, ?3, ?4)", branch, path, text)

    def unstage(self, branch: str, path: str) -> None:
        self._run("DELETE FROM staged WHERE repository = ?1 AND branch = ?2 AND path = ?3", branch, path)

    def unstage_all(self, branch: str) -> None:
        self._run("DELETE FROM staged WHERE repository = ?1 AND branch = ?2", branch)

    # settings: any JSON value by its name

    def setting(self, name: str) -> Any:
        """The value, or None if unset."""
        rows = self._rows("SELECT value FROM settings WHERE repository = ?1 AND name = ?2", name)
        return json.loads(str(rows[0][0])) if rows else None

    def set(self, name: str, value: object) -> None:
        text = json.dumps(value, sort_keys=True)
        self._run("INSERT OR REPLACE INTO settings VALUES (?1, ?2, ?3)", name, text)

    def unset(self, name: str) -> None:
        self._run("DELETE FROM settings WHERE repository = ?1 AND name = ?2", name)

    # documents, of a kind and with an id: tasks, pull requests

    def document(self, kind: str, id: str) -> Any:
        """The document of a kind and id. Raises ApiError 404."""
        sql = "SELECT value FROM documents WHERE repository = ?1 AND kind = ?2 AND id = ?3"
        rows = self._rows(sql, kind, id)
        if not rows:
            raise not_found()
        return json.loads(str(rows[0][0]))

    def documents(self, kind: str) -> list[tuple[str, Any]]:
        """The (id, document) pairs of a kind, by id."""
        sql = "SELECT id, value FROM documents WHERE repository = ?1 AND kind = ?2 ORDER BY id"
        return [(str(id), json.loads(str(value))) for id, value in self._rows(sql, kind)]

    def put_document(self, kind: str, id: str, value: object) -> None:
        self._run("INSERT OR REPLACE INTO documents VALUES (?1, ?2, ?3, ?4)", kind, id, json.dumps(value))


def _repository(row: Row) -> Repository:
    id, namespace, default_branch, created, read_only = row
    return Repository(
        str(id), str(namespace), str(default_branch), int(created or 0), "", read_only=bool(read_only)
    )


_BRANCH = "id, commit_id, hidden, created, updated"


def _branch(row: Row) -> BranchRecord:
    id, commit_id, hidden, created, updated = row
    return BranchRecord(str(id), str(commit_id), bool(hidden), int(created or 0), int(updated or 0))


def _commit(record: Value) -> Commit:
    commit = Commit(**json.loads(str(record)))
    # JSON has no tuples.
    return replace(commit, parents=tuple(commit.parents), metadata=_pairs(commit.metadata))


def _entry(path: str, text: Value) -> Entry | None:
    if text is None:
        return None
    entry = Entry(path, *json.loads(str(text)))
    return replace(entry, address_type=AddressType(entry.address_type), metadata=_pairs(entry.metadata))


def _pairs(metadata: Iterable[Sequence[object]]) -> tuple[tuple[str, str], ...]:
    return tuple((str(key), str(value)) for key, value in metadata)


SCHEME = "local://"
_DUMMY = b"written by the lakeplan sandbox to see whether it can write here"


class Namespace:
    """One storage namespace. Keys are relative to it, with ``/`` between parts. Writes are atomic."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def path(self, key: str) -> Path:
        """The file of a key. Raises ApiError when the key leads outside the namespace."""
        path = self.folder / key
        if not key or not Path(os.path.normpath(path)).is_relative_to(self.folder):
            raise bad_request("bad path traversal blocked")
        return path

    def write(self, key: str, data: bytes) -> None:
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.parent / f".{secrets.token_hex(8)}.unfinished"
        unfinished.write_bytes(data)
        unfinished.replace(path)

    def write_once(self, key: str, data: bytes) -> None:
        """Writes a file that is named by its content, unless it exists."""
        if not self.path(key).is_file():
            self.write(key, data)

    def read(self, key: str) -> bytes | None:
        """The bytes, or None if the file does not exist."""
        try:
            return self.path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def full_address(self, key: str) -> str:
        """The URL of a key, as answers of the API show it."""
        return f"{self.url.rstrip('/')}/{key}"

    @property
    def in_use(self) -> bool:
        return any(self.path(key).is_file() for key in (DUMMY_KEY, ROOT_DUMMY_KEY))

    def claim(self) -> None:
        """Marks the namespace as in use, as a lakeFS server does."""
        self.write(DUMMY_KEY, _DUMMY)


def open_namespace(directory: Path, url: str) -> Namespace:
    """The namespace of a URL below a sandbox's directory. Raises ApiError 400 for what cannot be one of the
    sandbox's."""
    if not url.startswith(SCHEME):
        raise bad_request(f"failed to match required regex ^{SCHEME}: invalid namespace")
    parts = [part for part in url[len(SCHEME) :].split("/") if part]
    if not parts or any(part.startswith(".") for part in parts):
        raise bad_request(f"{url}: invalid namespace")
    return Namespace(url, directory.joinpath(*parts))


PRESIGNED_PATH = "/_presigned"


class Presigner:
    """Signs (repository, key, expiry). The secret and its links end with the process."""

    def __init__(self, secret: bytes, seconds: int) -> None:
        self._secret = secret
        self._seconds = seconds

    def link(self, base_url: str, repository: str, key: str, now: int) -> str:
        """A URL on the server at ``base_url``."""
        expires = now + self._seconds
        query = urlencode({"expires": expires, "signature": self._sign(repository, key, expires)})
        return f"{base_url}{PRESIGNED_PATH}/{quote(repository)}/{quote(key)}?{query}"

    def allows(self, repository: str, key: str, expires: str, signature: str, now: int) -> bool:
        """Whether a link was signed here and still works."""
        if not expires.isdecimal() or int(expires) < now:
            return False
        return hmac.compare_digest(self._sign(repository, key, int(expires)), signature)

    def _sign(self, repository: str, key: str, expires: int) -> str:
        text = f"{repository}\n{key}\n{expires}"
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


_CACHED_ENTRIES = 1_000_000


class Trees:
    """Trees by metarange id. The last used ones are kept in memory. Callers must not change a tree.

    Only used inside a transaction, so it needs no lock of its own.
    """

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[str, str], Tree] = OrderedDict()

    def load(self, namespace: Namespace, meta_range_id: str) -> Tree:
        """The objects of a metarange by path; "" is the empty tree of a repository's first commit.

        Raises ApiError 410 when one of its files is missing.
        """
        if not meta_range_id:
            return {}
        key = (str(namespace.folder), meta_range_id)
        if key not in self._cache:
            self._remember(key, self._read(namespace, meta_range_id))
        self._cache.move_to_end(key)
        return self._cache[key]

    def save(self, namespace: Namespace, tree: Tree) -> str:
        """Writes ranges and metarange of a tree and returns the metarange's id."""
        infos = []
        for info, data in write_ranges(tree[path] for path in in_order(tree)):
            namespace.write_once(metadata_key(info.id), data)
            infos.append(info)
        meta_range_id, data = write_metarange(infos)
        namespace.write_once(metadata_key(meta_range_id), data)
        self._remember((str(namespace.folder), meta_range_id), tree)
        return meta_range_id

    def _read(self, namespace: Namespace, meta_range_id: str) -> Mapping[str, Entry]:
        tree: dict[str, Entry] = {}
        for info in read_metarange(_file(namespace, meta_range_id), name=meta_range_id):
            for entry in read_range(_file(namespace, info.id), name=info.id):
                tree[entry.path] = entry
        return tree

    def _remember(self, key: tuple[str, str], tree: Tree) -> None:
        self._cache[key] = tree
        self._cache.move_to_end(key)
        while len(self._cache) > 1 and sum(map(len, self._cache.values())) > _CACHED_ENTRIES:
            self._cache.popitem(last=False)


def _file(namespace: Namespace, id: str) -> bytes:
    data = namespace.read(metadata_key(id))
    if data is None:
        raise ApiError(410, "No data")
    return data
