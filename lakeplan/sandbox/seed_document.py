"""The YAML of a seed: what it may say, with places."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Protocol, TypeVar

import yaml

from lakeplan.errors import ConfigError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE = re.compile(r"(?:\d+[smhdw])+")
_AGE_PART = re.compile(r"(\d+)([smhdw])")
_SIZE = re.compile(r"(\d+)\s*(B|KB|MB|GB|KiB|MiB|GiB)?")
_BYTES = {
    None: 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


def parse_age(text: str) -> int | None:
    """Seconds of an age such as ``40d`` or ``1w3d12h``; None for what is none."""
    if not _AGE.fullmatch(text):
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in _AGE_PART.findall(text))


def parse_size(text: str) -> int | None:
    """Bytes of a size such as ``512`` or ``4KB``; None for what is none."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _BYTES[match[2]] if match else None


T = TypeVar("T")
_INT, _BOOL, _NULL, _STR, _FLOAT = (f"tag:yaml.org,2002:{t}" for t in ("int", "bool", "null", "str", "float"))


class Problems:
    """Mistakes of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._lines: list[tuple[int, int, str]] = []

    def place(self, node: yaml.Node) -> str:
        return f"{self.file}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"

    def add(self, node: yaml.Node, path: str, text: str) -> None:
        mark = node.start_mark
        self._lines.append((mark.line, mark.column, f"{self.place(node)}: {path or 'file'}: {text}"))

    def raise_any(self) -> None:
        """Raises ConfigError when there were any, in the order of the file."""
        if self._lines:
            lines = tuple(text for _, _, text in sorted(self._lines))
            count = f"{len(lines)} problem{'s' if len(lines) > 1 else ''}"
            raise ConfigError(f"the seed file has {count}", where=self.file, problems=lines)


def load(text: str, file: str) -> yaml.Node:
    """The root node. Raises ConfigError for what is no YAML, and for aliases (a few lines of them can stand
    for gigabytes)."""
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ConfigError(
                    f"{_position(event.start_mark)}aliases are not supported",
                    where=file,
                    hint="Write the value out.",
                )
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        place = _position(error.problem_mark)
        raise ConfigError(f"{place}{error.problem or error.context}", where=file) from error
    except yaml.YAMLError as error:
        raise ConfigError("is no YAML", where=file, detail=str(error)) from error
    if root is None:
        raise ConfigError("the seed file is empty", where=file, hint="Start the file with `repositories:`")
    return root


class _Mark(Protocol):
    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


def _position(mark: _Mark | None) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


class Mapped:
    """A mapping node: keys are taken one by one, and ``done`` reports those that nobody took."""

    def __init__(self, node: yaml.Node, path: str, problems: Problems) -> None:
        self.node = node
        self.path = path
        self._problems = problems
        self._values: dict[str, yaml.Node] = {}
        self._keys: dict[str, yaml.Node] = {}
        self._known: list[str] = []
        if not isinstance(node, yaml.MappingNode):
            problems.add(node, path, "must be a mapping")
            return
        for key, value in node.value:
            self._insert(key, value)

    def _insert(self, key: yaml.Node, value: yaml.Node) -> None:
        if not isinstance(key, yaml.ScalarNode):
            self._problems.add(key, self.path, "a key must be a word")
        elif key.value in self._values:
            self._problems.add(key, self.child(key.value), "stands here twice")
        else:
            self._values[key.value] = value
            self._keys[key.value] = key

    def child(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def items(self) -> list[tuple[str, yaml.Node]]:
        """All of them, taken."""
        self._known.extend(self._values)
        return list(self._values.items())

    def take(self, name: str, *, required: bool = False) -> yaml.Node | None:
        self._known.append(name)
        if name not in self._values and required and isinstance(self.node, yaml.MappingNode):
            self._problems.add(self.node, self.path, f"`{name}` is missing")
        return self._values.get(name)

    def done(self) -> None:
        """Reports keys that mean nothing here, with the nearest one that does."""
        for name, node in self._keys.items():
            if name not in self._known:
                near = get_close_matches(name, self._known, 1)
                meant = (
                    f", did you mean `{near[0]}`?" if near else f": one of {', '.join(sorted(self._known))}"
                )
                self._problems.add(node, self.child(name), f"unknown key{meant}")

    def text(self, name: str, default: str | None = None) -> str:
        """A required text without a default. A number counts as its digits."""
        return self._scalar(name, default, "a text", lambda n: n.value if n.tag != _NULL else None) or ""

    def optional_text(self, name: str) -> str | None:
        if name in self._values:
            return self.text(name)
        self._known.append(name)
        return None

    def integer(self, name: str, default: int | None = None, *, least: int | None = None) -> int:
        def read(node: yaml.ScalarNode) -> int | None:
            value = _integer(node)
            return None if value is None or (least is not None and value < least) else value

        what = "a whole number" if least is None else f"a whole number of at least {least}"
        return self._scalar(name, default, what, read) or 0

    def flag(self, name: str) -> bool:
        def read(node: yaml.ScalarNode) -> bool | None:
            return node.value.lower() in ("true", "yes", "on") if node.tag == _BOOL else None

        return self._scalar(name, False, "true or false", read) or False

    def age(self, name: str) -> int | None:
        if name not in self._values:
            self._known.append(name)
            return None
        return self._scalar(name, 0, "an age such as 40d or 1w3d12h", lambda n: parse_age(n.value))

    def size(self, name: str, default: int) -> int:
        return self._scalar(name, default, "a size such as 512 or 4KB", lambda n: parse_size(n.value)) or 0

    def words(self, name: str) -> dict[str, str]:
        """A mapping of texts; {} when absent."""
        node = self.take(name)
        if node is None:
            return {}
        inner = Mapped(node, self.child(name), self._problems)
        return {key: inner.text(key) for key, _ in inner.items()}

    def _scalar(
        self, name: str, default: T | None, what: str, read: Callable[[yaml.ScalarNode], T | None]
    ) -> T | None:
        node = self.take(name, required=default is None)
        if node is None:
            return default
        value = read(node) if isinstance(node, yaml.ScalarNode) else None
        if value is None:
            self._problems.add(node, self.child(name), f"must be {what}")
            return default
        return value


def sequence(node: yaml.Node | None, path: str, problems: Problems) -> list[yaml.Node]:
    """The items of a list; a problem when it is none, [] when absent."""
    if node is None:
        return []
    if not isinstance(node, yaml.SequenceNode):
        problems.add(node, path, "must be a list")
        return []
    return list(node.value)


def _integer(node: yaml.ScalarNode) -> int | None:
    if node.tag != _INT:
        return None
    try:
        return int(node.value.replace("_", ""))
    except ValueError:
        return None


def only_key(
    node: yaml.Node, path: str, known: Mapping[str, object], problems: Problems
) -> tuple[str, yaml.Node] | None:
    """The one (key, value) of a step, or None with a problem."""
    if not isinstance(node, yaml.MappingNode) or len(node.value) != 1:
        problems.add(node, path, "must be one step, such as `commit: {branch: main, message: …}`")
        return None
    key, value = node.value[0]
    name = key.value if isinstance(key, yaml.ScalarNode) else ""
    if name not in known:
        near = get_close_matches(str(name), list(known), 1)
        meant = f", did you mean `{near[0]}`?" if near else f": one of {', '.join(sorted(known))}"
        problems.add(key, path, f"unknown step `{name}`{meant}")
        return None
    return str(name), value


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


@dataclass(frozen=True)
class Seed:
    repositories: tuple[RepositorySeed, ...]


HELP = """\
repositories:
  - name: analytics  # default_branch: main, storage_namespace: <prefix><name>
    steps:  # in order, each one of these
      - upload: {branch: main, path: raw/a.csv, size: 4KB, metadata: {k: v}}
      - upload: {branch: main, path: raw/b.csv, content: "text"}
      - upload: {branch: main, path: raw/day-1/, count: 20, size: 1KB}
      - copy: {branch: main, source: raw/a.csv, destination: b.csv, ref: v1}
      - delete: {branch: main, path: raw/day-1/}
      - commit: {branch: main, message: first day, age: 40d}
      - commit: {branch: main, message: b, metadata: {k: v}, allow_empty: no}
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


def read_seed(text: str, file: str) -> Seed:
    """Raises ConfigError with every mistake and its place."""
    problems = Problems(file)
    root = Mapped(load(text, file), "", problems)
    nodes = sequence(root.take("repositories", required=True), "repositories", problems)
    root.done()
    seeds = [_repository(node, f"repositories[{i}]", problems) for i, node in enumerate(nodes)]
    _check_names(seeds, nodes, problems)
    problems.raise_any()
    return Seed(tuple(seeds))


def _repository(node: yaml.Node, path: str, problems: Problems) -> RepositorySeed:
    body = Mapped(node, path, problems)
    name = body.text("name")
    default_branch = body.text("default_branch", "main")
    namespace = body.optional_text("storage_namespace")
    items = sequence(body.take("steps"), body.child("steps"), problems)
    body.done()
    placed = [_step(item, f"{path}.steps[{i}]", problems) for i, item in enumerate(items)]
    return RepositorySeed(name, default_branch, namespace, tuple(p for p in placed if p))


def _step(node: yaml.Node, path: str, problems: Problems) -> PlacedStep | None:
    found = only_key(node, path, _READERS, problems)
    if found is None:
        return None
    name, value = found
    body = Mapped(value, f"{path}.{name}", problems)
    step = _READERS[name](body, problems)
    body.done()
    return PlacedStep(step, problems.place(node))


def _check_names(seeds: list[RepositorySeed], nodes: list[yaml.Node], problems: Problems) -> None:
    seen: set[str] = set()
    for seed, node in zip(seeds, nodes, strict=True):
        if seed.name and seed.name in seen:
            problems.add(node, "repositories", f"two repositories have the name {seed.name}")
        seen.add(seed.name)


def _upload(body: Mapped, problems: Problems) -> Step:
    path = body.text("path")
    count = body.integer("count", 1, least=1)
    content = body.optional_text("content")
    if count > 1 and path and not path.endswith("/"):
        problems.add(body.node, body.path, "several objects need a path that ends in `/`")
    size = body.size("size", 16)
    return Upload(body.text("branch"), path, size, count, content, body.words("metadata"))


def _copy(body: Mapped, problems: Problems) -> Step:
    return Copy(body.text("branch"), body.text("source"), body.text("destination"), body.optional_text("ref"))


def _commit(body: Mapped, problems: Problems) -> Step:
    return Commit(
        body.text("branch"),
        body.text("message"),
        body.age("age"),
        body.words("metadata"),
        body.flag("allow_empty"),
    )


def _merge(body: Mapped, problems: Problems) -> Step:
    strategy = body.text("strategy", "")
    if strategy not in ("", "source-wins", "dest-wins"):
        problems.add(body.node, body.child("strategy"), "must be source-wins or dest-wins")
    return Merge(body.text("source"), body.text("into"), body.text("message", ""), strategy)


def _gc_rules(body: Mapped, problems: Problems) -> Step:
    default = body.integer("default_retention_days")
    node = body.take("branches")
    branches: dict[str, int] = {}
    if node is not None:
        inner = Mapped(node, body.child("branches"), problems)
        branches = {name: inner.integer(name) for name, _ in inner.items()}
    return SetGcRules(default, branches)


def _protect(body: Mapped, problems: Problems) -> Step:
    items = sequence(body.take("patterns", required=True), body.child("patterns"), problems)
    patterns = []
    for item in items:
        if isinstance(item, yaml.ScalarNode) and item.value:
            patterns.append(item.value)
        else:
            problems.add(item, body.child("patterns"), "must be a text")
    return Protect(tuple(patterns))


_READERS: Mapping[str, Callable[[Mapped, Problems], Step]] = {
    "upload": _upload,
    "copy": _copy,
    "delete": lambda b, _: Delete(b.text("branch"), b.text("path")),
    "commit": _commit,
    "branch": lambda b, _: MakeBranch(b.text("name"), b.text("source"), b.flag("hidden")),
    "drop_branch": lambda b, _: DropBranch(b.text("name")),
    "merge": _merge,
    "revert": lambda b, _: Revert(b.text("branch"), b.text("ref"), b.integer("parent", 1, least=1)),
    "cherry_pick": lambda b, _: CherryPick(b.text("branch"), b.text("ref")),
    "hard_reset": lambda b, _: HardReset(b.text("branch"), b.text("to")),
    "drop_staged": lambda b, _: DropStaged(b.text("branch")),
    "tag": lambda b, _: Tag(b.text("name"), b.text("ref")),
    "sort_heads": lambda b, _: SortHeads(b.text("first"), b.text("then"), b.age("age")),
    "gc_rules": _gc_rules,
    "protect": _protect,
}
