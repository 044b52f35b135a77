"""Per-repository settings and small documents, as JSON texts in the store."""

from __future__ import annotations

import json
from typing import Any

from lakeplan.sandbox.store import Store

GC_RULES = "gc_rules"
BRANCH_PROTECTION = "branch_protection"
BRANCH_LIFECYCLE = "branch_lifecycle"
OBJECT_LIFECYCLE = "object_lifecycle"
METADATA = "metadata"


class Settings:
    """A setting is any JSON value. A document has a kind and an id: tasks, pull requests."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, repository: str, name: str) -> Any:
        """The value, or None when unset."""
        sql = "SELECT value FROM settings WHERE repository = ? AND name = ?"
        rows = self._store.rows(sql, repository, name)
        return json.loads(str(rows[0][0])) if rows else None

    def put(self, repository: str, name: str, value: object) -> None:
        sql = "INSERT OR REPLACE INTO settings VALUES (?, ?, ?)"
        self._store.run(sql, repository, name, json.dumps(value, sort_keys=True))

    def unset(self, repository: str, name: str) -> None:
        self._store.run("DELETE FROM settings WHERE repository = ? AND name = ?", repository, name)

    def document(self, repository: str, kind: str, id: str) -> Any:
        """The document, or None."""
        sql = "SELECT value FROM documents WHERE repository = ? AND kind = ? AND id = ?"
        rows = self._store.rows(sql, repository, kind, id)
        return json.loads(str(rows[0][0])) if rows else None

    def documents(self, repository: str, kind: str) -> list[tuple[str, Any]]:
        """(id, document) of a kind, by id."""
        sql = "SELECT id, value FROM documents WHERE repository = ? AND kind = ? ORDER BY id"
        return [(str(id), json.loads(str(value))) for id, value in self._store.rows(sql, repository, kind)]

    def put_document(self, repository: str, kind: str, id: str, value: object) -> None:
        sql = "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?)"
        self._store.run(sql, repository, kind, id, json.dumps(value))
