"""What S3 says of one object (the answer to HEAD)."""

from __future__ import annotations

from typing import Any

from lakeplan.model.stored import StoredFacts

ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Storage classes whose objects must be restored before they can be read. GLACIER_IR is not one."""


def facts_of(key: str, head: dict[str, Any]) -> StoredFacts:
    return StoredFacts(
        key,
        int(head["ContentLength"]),
        round(head["LastModified"].timestamp() * 1_000_000),
        str(head.get("ETag", "")),
        str(head.get("StorageClass", "")),
        is_readable(head),
    )


def is_readable(head: dict[str, Any]) -> bool:
    """Archived objects are, while a restored copy of them is there (``x-amz-restore``)."""
    archived = head.get("StorageClass") in ARCHIVES or bool(head.get("ArchiveStatus"))
    return not archived or 'ongoing-request="false"' in str(head.get("Restore", ""))
