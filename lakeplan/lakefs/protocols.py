"""Protocols of a lakeFS server. Readers and writers are separate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

from lakeplan.values.branches import LiveBranch, PullRequest, StagedData
from lakeplan.values.desired import ObjectRule, Policy, SettingItem, SettingKind, Stored
from lakeplan.values.repository import Branch, Commit, RefsDumpIds, Repository, Tag
from lakeplan.values.rules import GcRules


class SettingsReader(Protocol):
    def get_policies(self, repository: str) -> Stored[Policy]:
        """Return the stored policies in their order, with the server's ETag."""

    def get_object_rules(self, repository: str) -> Stored[ObjectRule]: ...


class SettingsWriter(Protocol):
    """The writes of an apply to policies and object rules."""

    def can_set(self, repository: str, kind: SettingKind) -> bool:
        """Return the answer of the server's preflight request, or True if there is none."""

    def set_items(
        self, repository: str, kind: SettingKind, items: Sequence[SettingItem], *, if_match: str
    ) -> None:
        """Replace the whole list. ``if_match`` is the ETag that was read before; "" sends no precondition.
        Raises PreconditionFailed if the server has another one."""

    def delete_items(self, repository: str, kind: SettingKind) -> None:
        """Remove the list. May be repeated. The server supports no precondition here."""


MetadataKind = Literal["meta_range", "range"]


class MetadataReader(Protocol):
    """Range and metarange files by id, as bytes. Picklable, so that Spark workers read with it."""

    def read_metadata(self, kind: MetadataKind, id: str) -> bytes:
        """Return the whole file. Raises DataGone or StorageNotFound if it does not exist."""


class StagingReader(Protocol):
    """Reads uncommitted changes, by GET only."""

    def list_uncommitted(self, repository: str, branch: str, prefix: str = "") -> Iterator[str]:
        """Yield the paths of uncommitted objects of a branch (added or changed, not removed), in order."""

    def physical_address(self, repository: str, branch: str, path: str) -> str | None:
        """Return the full address of the object at a path, the uncommitted one first, or None. Like the two
        other methods that read objects of a branch, it raises UnexpectedAnswer if the server reads the name
        of the branch as a commit."""

    def list_addresses(self, repository: str, branch: str) -> Iterator[str]:
        """Yield the full address of every object that reading the branch returns, the uncommitted one first.
        These include objects that are staged again with the HEAD's content, which ``list_uncommitted``
        omits."""


class LakeFSReader(SettingsReader, StagingReader, Protocol):
    """Everything that a plan reads from a server. Errors are ``lakeplan.errors.ServerError``."""

    @property
    def name(self) -> str:
        """The server's name in the tree."""

    def server_time(self, repository: str) -> datetime | None:
        """Return the server's clock, to the second, or None if it does not say."""

    def list_repositories(self, prefix: str = "") -> Iterator[Repository]: ...
    def get_repository(self, repository: str) -> Repository: ...

    def get_gc_rules(self, repository: str) -> GcRules | None:
        """Return the stored rules unchanged, with those of pins, or None if unset. Raises
        RepositoryNotFound."""

    def list_branches(self, repository: str, prefix: str = "") -> Iterator[Branch]:
        """Yield all branches, including hidden ones, but no pins."""

    def list_pins(self, repository: str) -> list[LiveBranch]:
        """Return all branches that have the name of a pin, with their hidden flag, sorted by id."""

    def list_tags(self, repository: str) -> Iterator[Tag]: ...
    def get_commit(self, repository: str, commit_id: str) -> Commit: ...
    def log_commits(self, repository: str, ref: str) -> Iterator[Commit]:
        """Yield the commits reachable from ``ref`` by all parents, newest first. For ``--read-only``
        plans."""

    def dump_refs(self, repository: str) -> RefsDumpIds:
        """Request a refs dump, a plan's only request that is not a GET, and return its ids."""

    def metadata_reader(self, repository: str) -> MetadataReader: ...
    def metadata(self, repository: str) -> Mapping[str, str]:
        """Return the key-value map of a repository."""


class MetadataWriter(Protocol):
    """Changes the key-value map of a repository. Other keys are unchanged."""

    def set_metadata(self, repository: str, values: Mapping[str, str]) -> None: ...
    def delete_metadata(self, repository: str, keys: Sequence[str]) -> None: ...


class GcRulesWriter(Protocol):
    """The writes of an apply to GC rules."""

    def can_set_gc_rules(self, repository: str) -> bool:
        """Return the answer of the server's preflight request (``gc/rules/set_allowed``)."""

    def set_gc_rules(self, repository: str, rules: GcRules) -> None: ...
    def delete_gc_rules(self, repository: str) -> None: ...


class ObjectPinger(Protocol):
    def readable(self, repository: str, commit_id: str, path: str) -> bool:
        """Return whether the server can read an object of a commit, by GET of one byte: HEAD and stat succeed
        for collected data too."""


class BranchReader(ObjectPinger, Protocol):
    """Reads branches and their contents. Errors are ``lakeplan.errors.ServerError``."""

    def list_live(self, repository: str) -> list[LiveBranch]:
        """Return all branches except pins, with their hidden flag, sorted by id. The flag is the difference
        of two listings (lakefs/api.md), so a branch that is deleted between them may look hidden."""

    def find_branch(self, repository: str, branch_id: str) -> str | None:
        """Return the HEAD of a branch, or None if the branch does not exist."""

    def staged(self, repository: str, branch_id: str) -> StagedData:
        """Return its uncommitted changes, at most 1,000 of them."""

    def written_at(self, repository: str, branch_id: str, path: str) -> datetime | None:
        """Return when the object at a path was written, or None if there is none."""

    def open_pulls(self, repository: str) -> Iterator[PullRequest]: ...

    def protected_patterns(self, repository: str) -> Iterator[str]:
        """Yield the globs of its branch protection rules."""

    def metadata(self, repository: str) -> Mapping[str, str]:
        """Return the key-value map of a repository."""

    def readable_sample(self, repository: str, commit_id: str, count: int) -> tuple[int, int]:
        """Request at most ``count`` objects of a commit, and return how many these are and how many are gone
        (410)."""


class BranchWriter(Protocol):
    """Deletes and creates branches, and sets metadata of the repository."""

    def delete_branch(self, repository: str, branch_id: str) -> None:
        """Delete a branch by the API, so that hooks run. Raises PreconditionFailed if a hook refuses,
        NotFound if the branch does not exist, PermissionDenied for the default branch."""

    def create_branch(self, repository: str, branch: LiveBranch) -> None:
        """Create a branch at a commit, hidden or not."""

    def set_metadata(self, repository: str, values: Mapping[str, str]) -> None:
        """Set keys of the repository's metadata. Other keys are unchanged."""
