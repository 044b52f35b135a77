"""What lakeplan needs of a lakeFS server: small protocols, readers apart from writers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

from lakeplan.values.branches import LiveBranch, PullRequest, StagedData
from lakeplan.values.repository import Branch, Commit, RefsDumpIds, Repository, Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.settings import ObjectRule, Policy, SettingItem, SettingKind, Stored


class SettingsReader(Protocol):
    def get_policies(self, repository: str) -> Stored[Policy]:
        """The stored policies in their order, with the server's ETag."""

    def get_object_rules(self, repository: str) -> Stored[ObjectRule]: ...


class SettingsWriter(Protocol):
    """The writes that apply makes. Kept apart from the reader."""

    def can_set(self, repository: str, kind: SettingKind) -> bool:
        """The server's preflight where it has one; True where it has none."""

    def set_items(
        self, repository: str, kind: SettingKind, items: Sequence[SettingItem], *, if_match: str
    ) -> None:
        """Replaces the whole list. ``if_match`` is the ETag read before; "" sends no precondition. Raises
        PreconditionFailed when the server has another one."""

    def delete_items(self, repository: str, kind: SettingKind) -> None:
        """Removes the list; idempotent. The server takes no precondition here."""


MetadataKind = Literal["meta_range", "range"]


class MetadataReader(Protocol):
    """Range and metarange files by id, as bytes. Picklable, so that Spark workers read with it."""

    def read_metadata(self, kind: MetadataKind, id: str) -> bytes:
        """The whole file. Raises DataGone or StorageNotFound when it does not exist."""


class StagingReader(Protocol):
    """What is uncommitted on a branch, by GET only."""

    def list_uncommitted(self, repository: str, branch: str, prefix: str = "") -> Iterator[str]:
        """Paths of objects that are uncommitted on a branch (added or changed; no deletions), in order."""

    def physical_address(self, repository: str, ref: str, path: str) -> str | None:
        """The full address of the object at a path, staged data first; None when there is none."""


class LakeFSReader(SettingsReader, StagingReader, Protocol):
    """Everything a plan reads of a server. Errors are those of ``lakeplan.errors.ServerError``."""

    @property
    def name(self) -> str:
        """The server's name in the tree."""

    def version(self) -> str: ...
    def server_time(self, repository: str) -> datetime | None:
        """The server's clock, to the second; None when it does not say."""

    def list_repositories(self, prefix: str = "") -> Iterator[Repository]: ...
    def get_repository(self, repository: str) -> Repository: ...

    def get_gc_rules(self, repository: str) -> GcRules | None:
        """The stored rules, as they are, those of pins too; None when unset. Raises RepositoryNotFound."""

    def list_branches(self, repository: str, prefix: str = "") -> Iterator[Branch]:
        """All branches, hidden ones too, but no pins (``list_pins``)."""

    def list_pins(self, repository: str) -> list[LiveBranch]:
        """All branches that are named like pins, with their hidden flag, sorted by id."""

    def list_tags(self, repository: str) -> Iterator[Tag]: ...
    def get_commit(self, repository: str, commit_id: str) -> Commit: ...
    def log_commits(self, repository: str, ref: str) -> Iterator[Commit]:
        """Commits reachable from ``ref`` along every parent, newest first. For ``--read-only`` plans."""

    def dump_refs(self, repository: str) -> RefsDumpIds:
        """Asks for a refs dump: a plan's only request that is not a GET."""

    def metadata_reader(self, repository: str) -> MetadataReader: ...
    def metadata(self, repository: str) -> Mapping[str, str]:
        """The key-value map that a repository carries."""


class MetadataWriter(Protocol):
    """Changes the key-value map of a repository; keys that are not named stay as they are."""

    def set_metadata(self, repository: str, values: Mapping[str, str]) -> None: ...
    def delete_metadata(self, repository: str, keys: Sequence[str]) -> None: ...


class GcRulesWriter(Protocol):
    """The writes that apply makes. Kept apart from the reader."""

    def can_set_gc_rules(self, repository: str) -> bool:
        """The server's preflight (``gc/rules/set_allowed``)."""

    def set_gc_rules(self, repository: str, rules: GcRules) -> None: ...
    def delete_gc_rules(self, repository: str) -> None: ...


class ObjectPinger(Protocol):
    def readable(self, repository: str, commit_id: str, path: str) -> bool:
        """Whether the server can read an object of a commit: by GET of one byte, since HEAD and stat answer
        for collected data too."""


class BranchReader(ObjectPinger, Protocol):
    """Only reads. Errors are those of ``lakeplan.errors.ServerError``."""

    def list_live(self, repository: str) -> list[LiveBranch]:
        """All branches but pins with their hidden flag, sorted by id. No answer carries the flag: it is the
        difference of two listings (lakefs/api.md), so a branch that is deleted between the two may look
        hidden."""

    def find_branch(self, repository: str, branch_id: str) -> str | None:
        """The HEAD of a branch now, or None when there is no such branch."""

    def staged(self, repository: str, branch_id: str) -> StagedData:
        """Its uncommitted changes, at most 1,000 of them."""

    def written_at(self, repository: str, branch_id: str, path: str) -> datetime | None:
        """When the object at a path was written; None when there is none (any more)."""

    def open_pulls(self, repository: str) -> Iterator[PullRequest]: ...

    def protected_patterns(self, repository: str) -> Iterator[str]:
        """The globs of its branch protection rules."""

    def metadata(self, repository: str) -> Mapping[str, str]:
        """The key-value map that a repository carries."""

    def readable_sample(self, repository: str, commit_id: str, count: int) -> tuple[int, int]:
        """Of at most ``count`` objects of a commit: how many were requested, and how many of these are gone
        (410)."""


class BranchWriter(Protocol):
    """Deletes and makes branches, and marks the repository; nothing else."""

    def delete_branch(self, repository: str, branch_id: str) -> None:
        """By the standard path, so hooks fire. Raises PreconditionFailed when a hook refuses, NotFound when
        the branch is gone, PermissionDenied for the default branch."""

    def create_branch(self, repository: str, branch: LiveBranch) -> None:
        """A branch at a commit, hidden or not."""

    def set_metadata(self, repository: str, values: Mapping[str, str]) -> None:
        """Sets keys of the repository's metadata; others stay as they are."""
