"""What a seed file asks for, as data: repositories and their steps in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Upload:
    """Stages ``count`` objects: at ``path``, or at ``path`` + ``00000``… when it ends in ``/``. Each has
    ``size`` bytes that no other has, or the text ``content``."""

    branch: str
    path: str
    size: int = 16
    count: int = 1
    content: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        if not self.path.endswith("/"):
            return [self.path]
        return [f"{self.path}{number:05d}" for number in range(self.count)]


@dataclass(frozen=True)
class Copy:
    branch: str
    source: str
    destination: str
    ref: str | None = None


@dataclass(frozen=True)
class Delete:
    """Stages deletions: of ``path``, or of everything under it when it ends in ``/``."""

    branch: str
    path: str


@dataclass(frozen=True)
class Commit:
    """``age``: seconds before the seed's moment; None is the server's own now."""

    branch: str
    message: str
    age: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    allow_empty: bool = False


@dataclass(frozen=True)
class MakeBranch:
    name: str
    source: str
    hidden: bool = False


@dataclass(frozen=True)
class DropBranch:
    name: str


@dataclass(frozen=True)
class Merge:
    """lakeFS dates merges, reverts and cherry-picks itself: they are new whatever is around them."""

    source: str
    into: str
    message: str = ""
    strategy: str = ""


@dataclass(frozen=True)
class Revert:
    branch: str
    ref: str
    parent: int = 1


@dataclass(frozen=True)
class CherryPick:
    branch: str
    ref: str


@dataclass(frozen=True)
class HardReset:
    branch: str
    to: str


@dataclass(frozen=True)
class DropStaged:
    branch: str


@dataclass(frozen=True)
class Tag:
    name: str
    ref: str


@dataclass(frozen=True)
class SortHeads:
    """Adds empty commits to ``first``, each ``age`` old, until its HEAD's id sorts before that of ``then``:
    what a server expires can depend on that order (shared/lakefs/retention.md, "Early stop"). Where the id of
    ``then`` is among the very smallest, ``then`` gets an empty commit as old as its HEAD."""

    first: str
    then: str
    age: int | None = None


@dataclass(frozen=True)
class SetGcRules:
    default_retention_days: int
    branches: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Protect:
    patterns: tuple[str, ...]


Step = (
    Upload
    | Copy
    | Delete
    | Commit
    | MakeBranch
    | DropBranch
    | Merge
    | Revert
    | CherryPick
    | HardReset
    | DropStaged
    | Tag
    | SortHeads
    | SetGcRules
    | Protect
)


@dataclass(frozen=True)
class PlacedStep:
    """A step and where it stands (``file:line:column``), for messages."""

    step: Step
    place: str


@dataclass(frozen=True)
class RepositorySeed:
    """``storage_namespace`` None: the prefix that the seeder was given, and the name."""

    name: str
    default_branch: str
    storage_namespace: str | None
    steps: tuple[PlacedStep, ...]


@dataclass(frozen=True)
class Seed:
    repositories: tuple[RepositorySeed, ...]
