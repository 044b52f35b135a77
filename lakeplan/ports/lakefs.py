"""What lakeplan needs of a lakeFS server. A planner gets a reader and so cannot write."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal, Protocol

from lakeplan.model.refs import Branch, Commit, RefsDumpIds, Tag
from lakeplan.model.repository import Repository
from lakeplan.model.rules import GcRules
from lakeplan.ports.policies import SettingsReader

MetadataKind = Literal["meta_range", "range"]


class MetadataReader(Protocol):
    """Range and metarange files by id, as bytes. Picklable, so that Spark workers read with it."""

    def read_metadata(self, kind: MetadataKind, id: str) -> bytes:
        """The whole file. Raises DataGone or StorageNotFound when it is not there."""


class LakeFSReader(SettingsReader, Protocol):
    """Everything a plan asks of a server. Errors are those of ``lakeplan.errors.ServerError``."""

    @property
    def name(self) -> str:
        """The server's name in the tree."""

    def version(self) -> str: ...
    def server_time(self, repository: str) -> datetime | None:
        """The server's clock, to the second; None when it does not say."""

    def list_repositories(self, prefix: str = "") -> Iterator[Repository]: ...
    def get_repository(self, repository: str) -> Repository: ...

    def get_gc_rules(self, repository: str) -> GcRules | None:
        """The stored rules, as they are; None when unset. Raises RepositoryNotFound."""

    def list_branches(self, repository: str, prefix: str = "") -> Iterator[Branch]:
        """All branches, hidden ones too."""

    def list_tags(self, repository: str) -> Iterator[Tag]: ...
    def get_commit(self, repository: str, commit_id: str) -> Commit: ...
    def log_commits(self, repository: str, ref: str) -> Iterator[Commit]:
        """Commits reachable from ``ref`` along every parent, newest first. For ``--read-only`` plans."""

    def dump_refs(self, repository: str) -> RefsDumpIds:
        """Asks for a refs dump: a plan's only request that is not a GET."""

    def metadata_reader(self, repository: str) -> MetadataReader: ...


class GcRulesWriter(Protocol):
    """The writes that apply makes. Kept apart from the reader."""

    def can_set_gc_rules(self, repository: str) -> bool:
        """The server's preflight (``gc/rules/set_allowed``)."""

    def set_gc_rules(self, repository: str, rules: GcRules) -> None: ...
    def delete_gc_rules(self, repository: str) -> None: ...


class StagingReader(Protocol):
    """What is staged on a branch, by GET only."""

    def list_uncommitted(self, repository: str, branch: str, prefix: str = "") -> Iterator[str]:
        """Paths of objects that are staged on a branch (added or changed; no deletions), in order."""

    def physical_address(self, repository: str, ref: str, path: str) -> str | None:
        """The full address of the object at a path, staged data first; None when there is none."""
