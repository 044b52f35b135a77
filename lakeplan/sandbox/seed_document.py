"""Reads the YAML of a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeplan.tree.structure import check_structure
from lakeplan.tree.yaml import NodePath, Problems, TreeError, parse_yaml, to_plain, walk
from lakeplan.values.desired import Source
from lakeplan.values.units import count_of, parse_age, parse_bytes


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
    """A commit. ``age`` is seconds before the seed's time (None: the server's current time)."""

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
    what a server expires can depend on that order (lakefs/retention.md, "Early stop"). Where the id of
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


Changes = Upload | Copy | Delete | DropStaged | Commit | Merge | Revert | CherryPick | HardReset
Step = Changes | MakeBranch | DropBranch | Tag | SortHeads | SetGcRules | Protect
STEPS: Mapping[str, type[Step]] = {
    "upload": Upload,
    "copy": Copy,
    "delete": Delete,
    "commit": Commit,
    "branch": MakeBranch,
    "drop_branch": DropBranch,
    "merge": Merge,
    "revert": Revert,
    "cherry_pick": CherryPick,
    "hard_reset": HardReset,
    "drop_staged": DropStaged,
    "tag": Tag,
    "sort_heads": SortHeads,
    "gc_rules": SetGcRules,
    "protect": Protect,
}
"""The fields of a step are its keys."""


@dataclass(frozen=True)
class PlacedStep:
    """A step and where it is (``file:line:column``), for messages."""

    step: Step
    place: str


@dataclass(frozen=True)
class RepositorySeed:
    """``storage_namespace`` None: the prefix that the seeder was given, and the name."""

    name: str
    default_branch: str
    storage_namespace: str | None
    steps: tuple[PlacedStep, ...]


HELP = """\
repositories:
  - name: analytics  # default_branch: main, storage_namespace: <prefix><name>
    steps:  # in order, each one of these
      - upload: {branch: main, path: raw/a.csv, size: 4KB, metadata: {k: v}}
      - upload: {branch: main, path: raw/b.csv, content: "text"}
      - upload: {branch: main, path: raw/day-1/, count: 20, size: 1KB}
      - copy: {branch: main, source: raw/a.csv, destination: b.csv, ref: v1}
      - delete: {branch: main, path: raw/day-1/}
      - commit: {branch: main, message: first day, age: 40d, metadata: {k: v}}
      - commit: {branch: main, message: b, allow_empty: true}
      - branch: {name: dev, source: main, hidden: false}
      - merge: {source: dev, into: main, message: "", strategy: ""}
      - revert: {branch: main, ref: main, parent: 1}
      - cherry_pick: {branch: main, ref: dev}
      - hard_reset: {branch: main, to: main~1}
      - drop_staged: {branch: main}
      - drop_branch: {name: dev}
      - tag: {name: v1, ref: main}
      - sort_heads: {first: main, then: dev, age: 120d}
      - gc_rules: {default_retention_days: 21, branches: {main: 28}}
      - protect: {patterns: [main]}
"""


_PARSERS: Mapping[str, Callable[[Any], object]] = {"age": parse_age, "size": parse_bytes, "patterns": tuple}
"""The keys whose values are not what YAML has."""


def read_seed(text: str, file: str) -> list[RepositorySeed]:
    """Return the repositories in a seed file. Raises ConfigError with every mistake and its position."""
    problems = Problems()
    root = parse_yaml(text, file, problems)
    seeds: list[RepositorySeed] = []
    if root is not None and not check_structure(root, "seed", problems):
        reader = _Reader({path: node.source for path, node in walk(root)}, problems)
        for place, body in enumerate(to_plain(root)["repositories"]):
            seeds.append(reader.repository(("repositories", place), body))
            if seeds[-1].name in {seed.name for seed in seeds[:-1]}:
                reader.add(("repositories", place), f"two repositories are named {seeds[-1].name}")
    if len(problems):
        message = f"the seed file has {count_of(len(problems), 'problem')}"
        raise TreeError(problems, message=message, where=file)
    return seeds


class _Reader:
    """Reads a document that matches the schema."""

    def __init__(self, places: Mapping[NodePath, Source], problems: Problems) -> None:
        self._places, self._problems = places, problems

    def add(self, path: NodePath, text: str) -> None:
        self._problems.add(self._places[path], path, text)

    def repository(self, path: NodePath, body: dict[str, Any]) -> RepositorySeed:
        placed = []
        for number, item in enumerate(body.get("steps", ())):
            ((kind, values),) = item.items()
            step_path: NodePath = (*path, "steps", number)
            step = self._step(STEPS[kind], (*step_path, kind), values)
            placed.append(PlacedStep(step, str(self._places[step_path])))
        default_branch = body.get("default_branch", "main")
        return RepositorySeed(body["name"], default_branch, body.get("storage_namespace"), tuple(placed))

    def _step(self, kind: type[Step], path: NodePath, values: dict[str, Any]) -> Step:
        for key in values.keys() & _PARSERS.keys():
            try:
                values[key] = _PARSERS[key](values[key])
            except ValueError as error:
                self.add((*path, key), str(error))
        step = kind(**values)
        if isinstance(step, Upload) and step.count > 1 and not step.path.endswith("/"):
            self.add(path, "with `count`, the path must end in `/`")
        return step
