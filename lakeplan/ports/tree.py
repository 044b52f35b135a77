"""What planning asks of the tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

from lakeplan.model.desired import DesiredRepository, Override, Safety, ServerConfig


class DesiredTree(Protocol):
    """A loaded tree, every problem already reported."""

    @property
    def servers(self) -> Mapping[str, ServerConfig]: ...
    @property
    def safety(self) -> Safety: ...
    @property
    def overrides(self) -> Sequence[Override]: ...
    @property
    def unmanaged_policy(self) -> Literal["ignore", "warn", "fail"]: ...
    @property
    def digest(self) -> str:
        """Tells one tree from another; the same for the same tree at another place or commit."""

    def resolve(self, server: str, live_repositories: Iterable[str]) -> list[DesiredRepository]:
        """Every repository that an entry names: exact entries always, globs over the live ones."""

    def unmanaged(self, server: str, live_repositories: Iterable[str]) -> list[str]:
        """Live repositories that no entry names."""
