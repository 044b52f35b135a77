"""What a state record may be called and hold, the same in every store."""

from __future__ import annotations

from lakeplan.errors import StorageError


def check_key(key: str, url: str) -> None:
    """A key is relative, has ``/`` between parts, and no part that is empty or begins with a dot (names that
    begin with a dot are the stores' own). Raises StorageError."""
    parts = key.split("/")
    if any(not part or part.startswith(".") for part in parts) or not key.isprintable() or "\\" in key:
        raise StorageError(f"{key!r} cannot be the key of a state record", where=url)


def check_data(data: bytes, where: str) -> None:
    """An empty record is how S3 remembers a deleted one, so no store takes one. Raises StorageError."""
    if not data:
        raise StorageError("a state record cannot be empty", where=where)
