"""The properties of a table: which are part of its id, and the set that a lakeFS server writes."""

from __future__ import annotations

from collections.abc import Mapping

COUNT = b"count"
ESTIMATED_SIZE = b"estimated_size_bytes"
MIN_KEY = b"min_key"
MAX_KEY = b"max_key"
_ADDED_AT_CLOSE = frozenset({COUNT, ESTIMATED_SIZE, MIN_KEY, MAX_KEY})
_ENGINE_PREFIXES = (b"rocksdb.", b"pebble.")


def user_properties(properties: Mapping[bytes, bytes]) -> dict[str, str]:
    """What the writer had set before it added bounds, count and size: the part that the file's id covers.

    Raises UnicodeDecodeError for text that is not UTF-8 (``damage.blame`` turns it into a FormatError).
    """
    return {
        key.decode(): value.decode()
        for key, value in properties.items()
        if key not in _ADDED_AT_CLOSE and not key.startswith(_ENGINE_PREFIXES)
    }
