"""Uncommitted changes of a branch: staged entries and deletions."""

from __future__ import annotations

import json

from lakeplan.model.objects import AddressType, Entry
from lakeplan.sandbox.store import Store


class Staging:
    """Per branch: path → entry, or None where the path is to be deleted."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def changes(self, repository: str, branch: str) -> dict[str, Entry | None]:
        """All staged changes, by path in byte order."""
        sql = "SELECT path, entry FROM staged WHERE repository = ? AND branch = ? ORDER BY path"
        rows = self._store.rows(sql, repository, branch)
        return {str(path): _decode(str(path), entry) for path, entry in rows}

    def find(self, repository: str, branch: str, path: str) -> tuple[bool, Entry | None]:
        """(whether anything is staged at the path, the entry; None is a deletion)."""
        sql = "SELECT entry FROM staged WHERE repository = ? AND branch = ? AND path = ?"
        rows = self._store.rows(sql, repository, branch, path)
        return (True, _decode(path, rows[0][0])) if rows else (False, None)

    def put(self, repository: str, branch: str, path: str, entry: Entry | None) -> None:
        sql = "INSERT OR REPLACE INTO staged VALUES (?, ?, ?, ?)"
        self._store.run(sql, repository, branch, path, None if entry is None else _encode(entry))

    def forget(self, repository: str, branch: str, path: str) -> None:
        sql = "DELETE FROM staged WHERE repository = ? AND branch = ? AND path = ?"
        self._store.run(sql, repository, branch, path)

    def clear(self, repository: str, branch: str) -> None:
        self._store.run("DELETE FROM staged WHERE repository = ? AND branch = ?", repository, branch)


def _encode(entry: Entry) -> str:
    return json.dumps(
        [
            entry.address,
            int(entry.address_type),
            entry.size,
            entry.last_modified_us,
            entry.e_tag,
            entry.content_type,
            list(entry.metadata),
        ]
    )


def _decode(path: str, text: object) -> Entry | None:
    if text is None:
        return None
    address, kind, size, modified, e_tag, content_type, metadata = json.loads(str(text))
    pairs = tuple((str(k), str(v)) for k, v in metadata)
    return Entry(path, address, AddressType(kind), size, modified, e_tag, content_type, pairs)
