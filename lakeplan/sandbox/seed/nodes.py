"""YAML read as nodes that know their place: every mistake is told with line and column, all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Protocol, TypeVar

import yaml

from lakeplan.errors import ConfigError
from lakeplan.sandbox.seed.units import parse_age, parse_size

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
                    f"{_position(event.start_mark)}aliases are not taken here",
                    where=file,
                    hint="write the value out",
                )
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        place = _position(error.problem_mark)
        raise ConfigError(f"{place}{error.problem or error.context}", where=file) from error
    except yaml.YAMLError as error:
        raise ConfigError("is no YAML", where=file, detail=str(error)) from error
    if root is None:
        raise ConfigError("the seed file is empty", where=file, hint="it needs `repositories:`")
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
