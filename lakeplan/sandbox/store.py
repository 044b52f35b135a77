"""The sandbox's own memory: one SQLite file beside the namespaces, so that state survives a restart."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lakeplan.errors import UsageError

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
                hint="another sandbox may be running there, or the file is damaged: choose another folder",
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

    def run_many(self, sql: str, values: Sequence[tuple[Value, ...]]) -> None:
        self._connection.executemany(sql, values)

    def close(self) -> None:
        with self._lock:
            self._connection.close()
