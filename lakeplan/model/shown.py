"""What a plan showed, one by one: digests of the objects and commits that would expire.

A record has 17 bytes: 16 of BLAKE2b (digest size 16) over ``server/name``, a zero byte and the object's
address relative to its namespace (of a commit: ``commit``, a zero byte and its id), then one byte of ``Bit``.
Records are in ascending order of their digests, each digest once. See ``docs/plan-objects.md``.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from enum import IntFlag
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeplan.model.shown_records import Records

RECORD_BYTES = 17
BESIDE = {"beside": True}
"""Metadata of a field that is not in the document of a plan."""
INLINE_RECORDS = 2_000
"""Up to so many of a repository are in the plan file itself."""


class Bit(IntFlag):
    """Why a record is there."""

    NOW = 1
    """The object expires at once."""
    WEEK = 2
    """It expires within seven days, if nobody writes."""
    BACKLOG = 4
    """The stored rules do not keep it already."""
    COMMIT_NOW = 8
    COMMIT_WEEK = 16


@dataclass(frozen=True)
class Shown:
    """The records of one repository: how many, and the SHA-256 of all of them. ``inline`` has them in base64
    when they are few; otherwise they are in the file beside the plan, and ``data`` when that was read."""

    records: int
    sha256: str
    inline: str = ""
    data: bytes | None = field(default=None, compare=False, repr=False, metadata=BESIDE)

    @classmethod
    def of(cls, data: bytes) -> Shown:
        count = len(data) // RECORD_BYTES
        inline = base64.b64encode(data).decode() if count <= INLINE_RECORDS else ""
        return cls(count, hashlib.sha256(data).hexdigest(), inline, data)

    def is_of(self, data: bytes) -> bool:
        size = self.records * RECORD_BYTES
        return len(data) == size and hashlib.sha256(data).hexdigest() == self.sha256

    def read(self) -> Records | None:
        """The records; None when they are beside the plan and were not found there. Raises ValueError when
        they are not those that the plan names."""
        # numpy is needed here alone: commands that read no plan start without it
        from lakeplan.model.shown_records import Records

        data = self.data
        if data is None and self.records and not self.inline:
            return None
        if data is None:
            data = base64.b64decode(self.inline, validate=True)
        if not self.is_of(data):
            raise ValueError("the objects that the plan showed are not those that it names")
        return Records(data)
