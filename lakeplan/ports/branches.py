"""What deleting branches by policy needs of a lakeFS server: a reader, and apart from it a writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Protocol

from lakeplan.model.branches import LiveBranch, PullRequest, StagedData


class BranchReader(Protocol):
    """Only reads. Errors are those of ``lakeplan.errors.ServerError``."""

    def list_live(self, repository: str) -> list[LiveBranch]:
        """All branches with their hidden flag, sorted by id. No answer carries the flag: it is the
        difference of two listings (api.md), so a branch that goes between the two may look hidden."""

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
        """Of at most ``count`` objects of a commit: how many were asked for, and how many of these are gone
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
