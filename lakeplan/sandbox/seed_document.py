"""Reads the YAML of a seed and reports problems with their positions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from typing import Annotated, Protocol, TypeVar, get_type_hints

import yaml

from lakeplan.errors import ConfigError
from lakeplan.limits import YAML_DEPTH

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE = re.compile(r"(?:\d+[smhdw])+")
_AGE_PART = re.compile(r"(\d+)([smhdw])")
_SIZE = re.compile(r"(\d+)\s*(B|KB|MB|GB|KiB|MiB|GiB)?")
_BYTES = {None: 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_age(text: str) -> int | None:
    """Seconds of an age such as ``40d`` or ``1w3d12h``, or None for any other text."""
    if not _AGE.fullmatch(text):
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in _AGE_PART.findall(text))


def parse_size(text: str) -> int | None:
    """Bytes of a size such as ``512`` or ``4KB``, or None for any other text."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _BYTES[match[2]] if match else None


T = TypeVar("T")
_INT, _BOOL, _NULL = (f"tag:yaml.org,2002:{kind}" for kind in ("int", "bool", "null"))


class Problems:
    """The problems of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._lines: list[tuple[int, int, str]] = []

    def place(self, node: yaml.Node) -> str:
        return f"{self.file}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"

    def add(self, node: yaml.Node, path: str, text: str) -> None:
        mark = node.start_mark
        self._lines.append((mark.line, mark.column, f"{self.place(node)}: {path or 'file'}: {text}"))

    def raise_any(self) -> None:
        """Raises ConfigError with all problems, in the order of the file."""
        if self._lines:
            lines = tuple(text for _, _, text in sorted(self._lines))
            count = f"{len(lines)} problem{'s' if len(lines) > 1 else ''}"
            raise ConfigError(f"the seed file has {count}", where=self.file, problems=lines)


def load(text: str, file: str) -> yaml.Node:
    """The root node. Raises ConfigError for text that is not YAML, and for aliases (a few lines of them can
    stand for gigabytes)."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > YAML_DEPTH:  # the parser takes minutes for a thousand times this
                raise ConfigError(
                    f"{_position(event.start_mark)}the file exceeds the limit of {YAML_DEPTH}"
                    " levels of nesting",
                    where=file,
                )
            if isinstance(event, yaml.AliasEvent):
                raise ConfigError(
                    f"{_position(event.start_mark)}aliases are not supported",
                    where=file,
                    hint="Write out the value instead.",
                )
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        place = _position(error.problem_mark)
        raise ConfigError(f"{place}{error.problem or error.context}", where=file) from error
    except yaml.YAMLError as error:
        raise ConfigError("the file is not valid YAML", where=file, detail=str(error)) from error
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
    """A mapping node. Keys are read one by one, and ``done`` reports those that were not read."""

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
            self._problems.add(key, self.path, "a key must be plain text")
        elif key.value in self._values:
            self._problems.add(key, self.child(key.value), "appears twice")
        else:
            self._values[key.value] = value
            self._keys[key.value] = key

    def child(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def items(self) -> list[tuple[str, yaml.Node]]:
        """All keys with their values, which then count as read."""
        self._known.extend(self._values)
        return list(self._values.items())

    def take(self, name: str, *, required: bool = False) -> yaml.Node | None:
        self._known.append(name)
        if name not in self._values and required and isinstance(self.node, yaml.MappingNode):
            self._problems.add(self.node, self.path, f"`{name}` is missing")
        return self._values.get(name)

    def done(self) -> None:
        """Reports unknown keys, each with the nearest known one."""
        for name, node in self._keys.items():
            if name not in self._known:
                self._problems.add(node, self.child(name), f"unknown key{_suggestion(name, self._known)}")

    def text(self, name: str, default: str | None = None) -> str:
        """The text of a required key. A number becomes its digits."""
        return self._scalar(name, default, "a string", lambda n: n.value if n.tag != _NULL else None) or ""

    def optional_text(self, name: str, default: None = None) -> str | None:
        return self.text(name) if self._has(name) else None

    def integer(self, name: str, default: int | None = None) -> int:
        return self._scalar(name, default, "a whole number", _integer) or 0

    def count(self, name: str, default: int) -> int:
        def read(node: yaml.ScalarNode) -> int | None:
            return _integer(node) or None

        return self._scalar(name, default, "a whole number of at least 1", read) or 0

    def flag(self, name: str, default: bool) -> bool:
        def read(node: yaml.ScalarNode) -> bool | None:
            return node.value.lower() in ("true", "yes", "on") if node.tag == _BOOL else None

        return self._scalar(name, default, "true or false", read) or False

    def age(self, name: str, default: None) -> int | None:
        read = "an age such as 40d or 1w3d12h", lambda n: parse_age(n.value)
        return self._scalar(name, 0, *read) if self._has(name) else None

    def size(self, name: str, default: int) -> int:
        return self._scalar(name, default, "a size such as 512 or 4KB", lambda n: parse_size(n.value)) or 0

    def strategy(self, name: str, default: str) -> str:
        def read(node: yaml.ScalarNode) -> str | None:
            return node.value if node.value in ("", "source-wins", "dest-wins") else None

        return self._scalar(name, default, "source-wins or dest-wins", read) or ""

    def texts(self, name: str) -> dict[str, str]:
        """A mapping of texts, or {} if absent."""
        inner = self._inner(name)
        return {key: inner.text(key) for key, _ in inner.items()} if inner else {}

    def numbers(self, name: str) -> dict[str, int]:
        """A mapping of whole numbers, or {} if absent."""
        inner = self._inner(name)
        return {key: inner.integer(key) for key, _ in inner.items()} if inner else {}

    def names(self, name: str) -> tuple[str, ...]:
        """A required list of texts."""
        texts = []
        for item in sequence(self.take(name, required=True), self.child(name), self._problems):
            if isinstance(item, yaml.ScalarNode) and item.value:
                texts.append(item.value)
            else:
                self._problems.add(item, self.child(name), "must be a string")
        return tuple(texts)

    def _has(self, name: str) -> bool:
        self._known.append(name)
        return name in self._values

    def _inner(self, name: str) -> Mapped | None:
        node = self.take(name)
        return None if node is None else Mapped(node, self.child(name), self._problems)

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


def _suggestion(name: str, known: Iterable[str]) -> str:
    """The nearest known word, or all of them."""
    words = sorted(known)
    if near := get_close_matches(name, words, 1):
        return f"; did you mean `{near[0]}`?"
    return f": use `{words[0]}`" if len(words) == 1 else f": use one of {', '.join(words)}"


def sequence(node: yaml.Node | None, path: str, problems: Problems) -> list[yaml.Node]:
    """The items of a list. Adds a problem if it is no list, and returns [] if it is absent."""
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
        problems.add(key, path, f"unknown step `{name}`{_suggestion(name, known)}")
        return None
    return str(name), value


Text = Annotated[str, Mapped.text]
OptionalText = Annotated[str | None, Mapped.optional_text]
Flag = Annotated[bool, Mapped.flag]
Count = Annotated[int, Mapped.count]
Age = Annotated[int | None, Mapped.age]
Texts = Annotated[Mapping[str, str], Mapped.texts]


@dataclass(frozen=True)
class Upload:
    """Stages ``count`` objects: at ``path``, or at ``path`` + ``00000``… when it ends in ``/``. Each has
    ``size`` bytes that no other has, or the text ``content``."""

    branch: Text
    path: Text
    size: Annotated[int, Mapped.size] = 16
    count: Count = 1
    content: OptionalText = None
    metadata: Texts = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        if not self.path.endswith("/"):
            return [self.path]
        return [f"{self.path}{number:05d}" for number in range(self.count)]


@dataclass(frozen=True)
class Copy:
    branch: Text
    source: Text
    destination: Text
    ref: OptionalText = None


@dataclass(frozen=True)
class Delete:
    """Stages deletions: of ``path``, or of everything under it when it ends in ``/``."""

    branch: Text
    path: Text


@dataclass(frozen=True)
class Commit:
    """A commit. ``age`` is seconds before the seed's time (None: the server's current time)."""

    branch: Text
    message: Text
    age: Age = None
    metadata: Texts = field(default_factory=dict)
    allow_empty: Flag = False


@dataclass(frozen=True)
class MakeBranch:
    name: Text
    source: Text
    hidden: Flag = False


@dataclass(frozen=True)
class DropBranch:
    name: Text


@dataclass(frozen=True)
class Merge:
    """lakeFS dates merges, reverts and cherry-picks itself: they are new whatever is around them."""

    source: Text
    into: Text
    message: Text = ""
    strategy: Annotated[str, Mapped.strategy] = ""


@dataclass(frozen=True)
class Revert:
    branch: Text
    ref: Text
    parent: Count = 1


@dataclass(frozen=True)
class CherryPick:
    branch: Text
    ref: Text


@dataclass(frozen=True)
class HardReset:
    branch: Text
    to: Text


@dataclass(frozen=True)
class DropStaged:
    branch: Text


@dataclass(frozen=True)
class Tag:
    name: Text
    ref: Text


@dataclass(frozen=True)
class SortHeads:
    """Adds empty commits to ``first``, each ``age`` old, until its HEAD's id sorts before that of ``then``:
    what a server expires can depend on that order (lakefs/retention.md, "Early stop"). Where the id of
    ``then`` is among the very smallest, ``then`` gets an empty commit as old as its HEAD."""

    first: Text
    then: Text
    age: Age = None


@dataclass(frozen=True)
class SetGcRules:
    default_retention_days: Annotated[int, Mapped.integer]
    branches: Annotated[Mapping[str, int], Mapped.numbers] = field(default_factory=dict)


@dataclass(frozen=True)
class Protect:
    patterns: Annotated[tuple[str, ...], Mapped.names]


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
"""The fields of a step are its keys. Their types say how they are read."""


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


def read_seed(text: str, file: str) -> list[RepositorySeed]:
    """The repositories in a seed file. Raises ConfigError with every mistake and its position."""
    problems = Problems(file)
    root = Mapped(load(text, file), "", problems)
    nodes = sequence(root.take("repositories", required=True), "repositories", problems)
    root.done()
    seeds = [_repository(node, f"repositories[{i}]", problems) for i, node in enumerate(nodes)]
    _check_names(seeds, nodes, problems)
    problems.raise_any()
    return seeds


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
    only = only_key(node, path, STEPS, problems)
    if only is None:
        return None
    name, value = only
    body = Mapped(value, f"{path}.{name}", problems)
    hints = get_type_hints(STEPS[name], include_extras=True)
    values = {}
    for each in fields(STEPS[name]):
        (read,) = hints[each.name].__metadata__
        default = () if each.default is MISSING else (each.default,)
        values[each.name] = read(body, each.name, *default)
    step = STEPS[name](**values)
    body.done()
    if isinstance(step, Upload) and step.count > 1 and step.path and not step.path.endswith("/"):
        problems.add(body.node, body.path, "with `count`, the path must end in `/`")
    return PlacedStep(step, problems.place(node))


def _check_names(seeds: list[RepositorySeed], nodes: list[yaml.Node], problems: Problems) -> None:
    names: set[str] = set()
    for seed, node in zip(seeds, nodes, strict=True):
        if seed.name and seed.name in names:
            problems.add(node, "repositories", f"two repositories are named {seed.name}")
        names.add(seed.name)
