"""A repository as a server or a refs dump shows it: its settings, commits, branches and tags."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

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
