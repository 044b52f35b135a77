"""A repository as a server, a refs dump or its storage shows it: settings, commits, branches, tags, ranges,
objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from hashlib import blake2b
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

FIRST_VERSION_WITH_FIRST_PARENT_MAIN = 1
"""From this commit version on, the main parent is the first parent. In version 0 it is the last."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit. ``creation_us`` is UTC microseconds since the epoch. ``meta_range_id`` is "" for a
    repository's first commit, which has no objects."""

    id: str
    creation_us: int
    meta_range_id: str
    parents: tuple[str, ...] = ()
    version: int = 1
    generation: int = 0
    message: str = ""
    committer: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    """Sorted by key. Part of the commit's id."""

    @property
    def main_parent(self) -> str | None:
        """The parent that retention walks along (lakefs/retention.md: the first; for version 0, the last)."""
        if not self.parents:
            return None
        return self.parents[0] if self.version >= FIRST_VERSION_WITH_FIRST_PARENT_MAIN else self.parents[-1]


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch. ``creation_date`` and ``update_date`` (last write) are in epoch seconds on Enterprise
    servers, and None on open-source servers and in refs dumps."""

    id: str
    commit_id: str
    creation_date: int | None = None
    update_date: int | None = None


@dataclass(frozen=True, slots=True)
class Tag:
    id: str
    commit_id: str


@dataclass(frozen=True)
class Refs:
    """All commits (dangling ones too), branches (hidden ones too) and tags of a repository at one moment."""

    commits: tuple[Commit, ...]
    branches: tuple[Branch, ...]
    tags: tuple[Tag, ...]


@dataclass(frozen=True)
class RefsDumpIds:
    """Metarange ids of a refs dump: the three keys of ``_lakefs/refs_manifest.json``."""

    commits_meta_range_id: str
    branches_meta_range_id: str
    tags_meta_range_id: str


@dataclass(frozen=True)
class Repository:
    """A repository. ``creation_date`` is epoch seconds. ``storage_namespace`` is the server's own URL for it
    (``s3://``, ``gs://``, ``https://<account>.blob…``, ``local://``, ``mem://``)."""

    id: str
    storage_namespace: str
    default_branch: str
    creation_date: int = 0
    storage_id: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class ServerIdentity:
    """The identity of a server. ``context`` is its ``version_context``, and ``date`` is the time of its
    clock, or None."""

    version: str
    context: str
    date: datetime | None

    @property
    def is_enterprise(self) -> bool:
        return "enterprise" in self.context.lower()

    @property
    def flavour(self) -> str:
        return "lakeFS Enterprise" if self.is_enterprise else "lakeFS (open source)"


class AddressType(IntEnum):
    """Protobuf ``Entry.address_type`` (lakefs/format.md). ``BY_PREFIX`` comes from old versions: the address
    is full if it parses as a URI, and otherwise relative."""

    BY_PREFIX = 0
    RELATIVE = 1
    FULL = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """An object of a commit: its path, where it is stored, and its size in bytes.

    ``last_modified_us`` is UTC microseconds.
    """

    path: str
    address: str
    address_type: AddressType
    size: int
    last_modified_us: int = 0
    e_tag: str = ""
    content_type: str = ""
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RangeInfo:
    """A range of a metarange: its id (hex), key bounds, estimated bytes and number of entries."""

    id: str
    min_key: bytes
    max_key: bytes
    estimated_size: int
    count: int


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as its store describes it. ``key`` is relative to the namespace. ``modified_us`` is the
    storage's own time, UTC microseconds. ``e_tag`` is the store's ("" if it has none)."""

    key: str
    size: int
    modified_us: int
    e_tag: str = ""
    readable: bool = field(default=True, compare=False)
    """False for archived data, which must be restored before it is read or copied. S3 listings do not say."""

    @property
    def version(self) -> int:
        """A signed 64-bit number that differs for another object at the same key. The time alone is not
        enough, because S3 dates a multipart upload at its start."""
        text = f"{self.modified_us} {self.size} {self.e_tag}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in order, in lists of at most ``size``."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
