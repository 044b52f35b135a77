"""The sandbox's own memory: one SQLite file beside the namespaces, so that state survives a restart."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lakeplan.errors import UsageError
from lakeplan.sandbox.messages import ApiError, not_found
from lakeplan.values.repository import Branch, Commit, Refs, Repository, Tag

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

TABLES_OF_A_REPOSITORY = ("branches", "tags", "commits", "staged", "settings", "documents")

Value = str | int | None


class Store:
    """SQL with one writer at a time. A request is one transaction: all of it or nothing.

    Raises UsageError when another process has the file, or when it is none.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, timeout=0.2, check_same_thread=False, isolation_level=None)
        try:
            # One server owns the file until it ends: two would hand out the same names.
            self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode=WAL")
            # A sandbox need not survive a power cut, only the end of its process.
            self._connection.execute("PRAGMA synchronous=OFF")
            self._connection.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise UsageError(
                f"cannot use the sandbox's state: {error}",
                where=str(path),
                hint="Choose another folder. Another sandbox may be running there, or the file is damaged.",
            ) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside happens alone and is kept only when the block ends without an error."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def rows(self, sql: str, *values: Value) -> list[tuple[Value, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def run(self, sql: str, *values: Value) -> int:
        """Runs a statement and returns how many rows it touched."""
        return self._connection.execute(sql, values).rowcount

    def close(self) -> None:
        with self._lock:
            self._connection.close()


@dataclass(frozen=True)
class BranchRecord:
    """A branch. ``created`` and ``updated`` are epoch seconds; only the Enterprise flavour shows them."""

    id: str
    commit_id: str
    hidden: bool
    created: int
    updated: int


class Records:
    """``now`` gives epoch seconds: a branch remembers when it was last written."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now

    # repositories

    def repositories(self) -> list[Repository]:
        """All of them, by id."""
        sql = "SELECT id, namespace, default_branch, created, read_only FROM repositories ORDER BY id"
        return [_repository(row) for row in self._store.rows(sql)]

    def repository(self, id: str) -> Repository:
        sql = "SELECT id, namespace, default_branch, created, read_only FROM repositories WHERE id = ?"
        rows = self._store.rows(sql, id)
        if not rows:
            raise not_found("repository not found")
        return _repository(rows[0])

    def add_repository(self, repository: Repository) -> None:
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

    def drop_repository(self, id: str) -> None:
        self._store.run("DELETE FROM repositories WHERE id = ?", id)
        for table in TABLES_OF_A_REPOSITORY:
            self._store.run(f"DELETE FROM {table} WHERE repository = ?", id)

    # branches

    def branches(self, repository: str, *, show_hidden: bool) -> list[BranchRecord]:
        sql = "SELECT id, commit_id, hidden, created, updated FROM branches WHERE repository = ? ORDER BY id"
        found = [_branch(row) for row in self._store.rows(sql, repository)]
        return [b for b in found if show_hidden or not b.hidden]

    def find_branch(self, repository: str, id: str) -> BranchRecord | None:
        sql = "SELECT id, commit_id, hidden, created, updated FROM branches WHERE repository = ? AND id = ?"
        rows = self._store.rows(sql, repository, id)
        return _branch(rows[0]) if rows else None

    def branch(self, repository: str, id: str) -> BranchRecord:
        found = self.find_branch(repository, id)
        if found is None:
            raise not_found("branch not found")
        return found

    def add_branch(self, repository: str, id: str, commit_id: str, *, hidden: bool = False) -> None:
        if self.find_branch(repository, id):
            raise ApiError(409, "branch already exists: not unique")
        if self.find_tag(repository, id):
            raise ApiError(409, f"tag ID {id}: conflict found")
        self._store.run(
            "INSERT INTO branches VALUES (?, ?, ?, ?, ?, ?)",
            repository,
            id,
            commit_id,
            int(hidden),
            self._now(),
            self._now(),
        )

    def move_branch(self, repository: str, id: str, commit_id: str) -> None:
        sql = "UPDATE branches SET commit_id = ?, updated = ? WHERE repository = ? AND id = ?"
        self._store.run(sql, commit_id, self._now(), repository, id)

    def touch_branch(self, repository: str, id: str) -> None:
        """A write that resets the idle clock without a new commit: staging, dropping staged data."""
        sql = "UPDATE branches SET updated = ? WHERE repository = ? AND id = ?"
        self._store.run(sql, self._now(), repository, id)

    def drop_branch(self, repository: str, id: str) -> None:
        self._store.run("DELETE FROM branches WHERE repository = ? AND id = ?", repository, id)

    # tags

    def tags(self, repository: str) -> list[Tag]:
        sql = "SELECT id, commit_id FROM tags WHERE repository = ? ORDER BY id"
        return [Tag(str(id), str(commit)) for id, commit in self._store.rows(sql, repository)]

    def find_tag(self, repository: str, id: str) -> Tag | None:
        rows = self._store.rows("SELECT commit_id FROM tags WHERE repository = ? AND id = ?", repository, id)
        return Tag(id, str(rows[0][0])) if rows else None

    def tag(self, repository: str, id: str) -> Tag:
        found = self.find_tag(repository, id)
        if found is None:
            raise not_found("tag not found")
        return found

    def add_tag(self, repository: str, tag: Tag) -> None:
        if self.find_tag(repository, tag.id):
            raise ApiError(409, "tag already exists: not unique")
        if self.find_branch(repository, tag.id):
            raise ApiError(409, f"branch name {tag.id}: conflict found")
        self._store.run("INSERT INTO tags VALUES (?, ?, ?)", repository, tag.id, tag.commit_id)

    def drop_tag(self, repository: str, id: str) -> None:
        self.tag(repository, id)
        self._store.run("DELETE FROM tags WHERE repository = ? AND id = ?", repository, id)

    # commits

    def find_commit(self, repository: str, id: str) -> Commit | None:
        rows = self._store.rows("SELECT record FROM commits WHERE repository = ? AND id = ?", repository, id)
        return _commit(str(rows[0][0])) if rows else None

    def commit(self, repository: str, id: str) -> Commit:
        found = self.find_commit(repository, id)
        if found is None:
            raise not_found("commit not found")
        return found

    def commits_with_prefix(self, repository: str, prefix: str) -> list[str]:
        """At most two ids: enough to tell whether a prefix is unique."""
        sql = "SELECT id FROM commits WHERE repository = ? AND id >= ? AND id < ? ORDER BY id LIMIT 2"
        return [str(id) for (id,) in self._store.rows(sql, repository, prefix, prefix + "g")]

    def add_commit(self, repository: str, commit: Commit) -> None:
        """The same commit may be added again: its id names its content."""
        sql = "INSERT OR IGNORE INTO commits VALUES (?, ?, ?)"
        self._store.run(sql, repository, commit.id, json.dumps(asdict(commit)))

    def refs(self, repository: str) -> Refs:
        """Everything a refs dump holds: commits by id, branches (hidden too), tags."""
        sql = "SELECT record FROM commits WHERE repository = ? ORDER BY id"
        commits = tuple(_commit(str(record)) for (record,) in self._store.rows(sql, repository))
        branches = tuple(Branch(b.id, b.commit_id) for b in self.branches(repository, show_hidden=True))
        return Refs(commits, branches, tuple(self.tags(repository)))


def _repository(row: tuple[str | int | None, ...]) -> Repository:
    id, namespace, default_branch, created, read_only = row
    return Repository(
        str(id), str(namespace), str(default_branch), int(created or 0), "", read_only=bool(read_only)
    )


def _branch(row: tuple[str | int | None, ...]) -> BranchRecord:
    id, commit_id, hidden, created, updated = row
    return BranchRecord(str(id), str(commit_id), bool(hidden), int(created or 0), int(updated or 0))


def _commit(record: str) -> Commit:
    commit = Commit(**json.loads(record))
    # JSON has no tuples.
    metadata = tuple((str(key), str(value)) for key, value in commit.metadata)
    return replace(commit, parents=tuple(commit.parents), metadata=metadata)
