"""Reads YAML 1.2 (core schema) with the place of each value, and reports problems with file, line and
column."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import yaml

from lakeplan import limits
from lakeplan.errors import ConfigError
from lakeplan.values.desired import Source

if TYPE_CHECKING:
    from lakeplan.values.documents import ProblemRow

D = TypeVar("D")
T = TypeVar("T")
Scalar = str | int | float | bool | None

SURPRISES = frozenset({"on", "off", "yes", "no"})
"""Words (in upper or lower case) that some YAML parsers interpret as true or false."""

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+", re.ASCII)
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_MAX_DIGITS = 30


class Ambiguous(ValueError):
    """YAML parsers interpret a scalar differently. The message says how to write it."""


def resolve_plain(text: str) -> Scalar:
    """Return the value of an unquoted scalar. Raises Ambiguous if YAML parsers interpret it differently."""
    if text in NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _LEADING_ZERO.fullmatch(text):
        raise Ambiguous(
            f"YAML parsers interpret {text} differently; write the number without leading zeros, or put it"
            " in quotes"
        )
    if len(text) > _MAX_DIGITS:
        return text
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def is_surprise(text: str) -> bool:
    """Return whether an unquoted word is text here and true or false to other readers."""
    return text.lower() in SURPRISES


TOP = "(top)"
"""The path of a problem with a whole file."""

NodePath = tuple[str | int, ...]


def show_path(path: Sequence[object]) -> str:
    """Return a path as text: ``repositories.analytics.gc.branches[0].retention_days``. A part that is not a
    string is an item of a list."""
    text = ""
    for part in path:
        if isinstance(part, str):
            text += f".{part}" if text else part
        else:
            text += f"[{part}]"
    return text or TOP


@dataclass(frozen=True, order=True)
class Problem:
    """A problem of a tree. Problems sort by position."""

    source: Source
    path: str
    text: str

    def __str__(self) -> str:
        # A name in the tree may contain a line break, but a problem must fit on one line.
        return f"{self.source}: {_one_line(self.path)}: {_one_line(self.text)}"

    def to_json(self) -> ProblemRow:
        return {
            "file": self.source.file,
            "line": self.source.line,
            "column": self.source.column,
            "path": self.path,
            "message": self.text,
        }


class TreeError(ConfigError):
    """A ConfigError with its problems as data (``items``), for ``--format json``."""

    def __init__(
        self,
        items: Iterable[Problem],
        *,
        message: str = "",
        where: str = "",
        hint: str = "",
        silent: bool = False,
    ) -> None:
        """If ``silent``, the message is enough, and problems are not listed."""
        self.items = tuple(sorted(set(items)))
        count = len(self.items)
        super().__init__(
            message or f"the tree has {count} problem{'' if count == 1 else 's'}",
            problems=() if silent else tuple(str(p) for p in self.items),
            where=where,
            hint=hint,
        )


class Problems:
    """Collects problems, and raises them together (``raise_any``)."""

    def __init__(self) -> None:
        self._items: list[Problem] = []
        self._paths: list[NodePath] = []
        self._places: set[tuple[Source, str]] = set()

    def add(self, source: Source, path: NodePath, text: str) -> None:
        if len(self._items) >= limits.TREE_PROBLEMS:
            hint = f"Fix these problems first. Only the first {limits.TREE_PROBLEMS:,} are reported."
            raise TreeError(self._items, hint=hint)
        if len(text) > limits.PROBLEM_CHARACTERS:
            text = text[: limits.PROBLEM_CHARACTERS] + "…"
        problem = Problem(source, show_path(path), text)
        self._items.append(problem)
        self._paths.append(path)
        self._places.add((source, problem.path))

    def add_first(self, source: Source, path: NodePath, text: str) -> None:
        """Add a problem unless its value already has a problem, which would be the cause of this one."""
        if not self.has(source, path):
            self.add(source, path, text)

    def parsed(self, node: MapNode, key: str, path: NodePath, parse: Callable[[Any], T], default: D) -> T | D:
        """Return ``parse`` of the scalar at a key, or ``default`` without one. A ValueError adds a problem. A
        TypeError does not, because the schema reports that the value has another type."""
        child = node.items.get(key)
        if not isinstance(child, ScalarNode) or child.value is None or isinstance(child.value, bool):
            return default
        try:
            return parse(child.value)
        except ValueError as error:
            self.add_first(child.source, (*path, key), str(error))
        except TypeError:
            pass
        return default

    def has(self, source: Source, path: NodePath) -> bool:
        return (source, show_path(path)) in self._places

    def paths_since(self, count: int) -> set[NodePath]:
        """Return the paths of the problems after the first ``count``."""
        return set(self._paths[count:])

    def raise_any(self, *, where: str = "") -> None:
        if self._items:
            raise TreeError(self._items, where=where)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})
_ANY_TAGS = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})
# YAML's printable characters without the line breaks of YAML 1.1, so that line numbers match those of
# editors.
_NOT_PRINTABLE = re.compile(
    "[^\x09\x0a\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", re.UNICODE
)


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A scalar. ``text`` is as written, and ``plain`` says that it has no quotes."""

    source: Source
    value: Scalar
    text: str
    plain: bool


@dataclass(frozen=True, slots=True)
class ListNode:
    source: Source
    items: Sequence[Node]


@dataclass(frozen=True, slots=True)
class MapNode:
    """A map. ``keys`` has the place of each key."""

    source: Source
    items: Mapping[str, Node]
    keys: Mapping[str, Source]

    def where(self, key: str) -> Source:
        """Return the place of a key, or of the map if it does not have the key."""
        return self.keys.get(key, self.source)


Node = ScalarNode | ListNode | MapNode


class NodeCount:
    """The number of values in the files of one tree so far."""

    def __init__(self) -> None:
        self.nodes = 0


def parse_yaml(
    text: str, file: str, problems: Problems, *, loader: Any = None, tree: NodeCount | None = None
) -> Node | None:
    """Return the document of a file, or None if it cannot be read, which adds a problem. ``tree`` counts the
    values of the file."""
    before = len(problems)
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if len(text) > limits.TREE_FILE_BYTES:
        problems.add(
            Source(file, 1, 1),
            (),
            f"the file exceeds the limit of {limits.TREE_FILE_BYTES:,} characters",
        )
        return None
    if odd := _NOT_PRINTABLE.search(text):
        line = text.count("\n", 0, odd.start()) + 1
        column = odd.start() - text.rfind("\n", 0, odd.start())
        problems.add(
            Source(file, line, column), (), f"the character {odd.group()!r} is not allowed in a YAML file"
        )
        return None
    builder = _Builder(text, file, problems, tree or NodeCount())
    node = builder.run(loader or LOADER)
    if node is None and len(problems) == before:
        problems.add(Source(file, 1, 1), (), "the file is empty, but it needs at least apiVersion")
    return node


class _Stop(Exception):
    """The rest of a file cannot be read. The problem was already added."""


class _Frame:
    """A list or map that is not complete yet."""

    def __init__(self, source: Source, anchor: str | None, *, is_map: bool) -> None:
        self.source = source
        self.anchor = anchor
        self.is_map = is_map
        self.size = 1
        self.characters = 0
        self.height = 1
        self.list: list[Node] = []
        self.map: dict[str, Node] = {}
        self.keys: dict[str, Source] = {}
        self.key: str | None = None
        self.key_source = source
        self.has_key = False

    def node(self) -> Node:
        return MapNode(self.source, self.map, self.keys) if self.is_map else ListNode(self.source, self.list)

    def path_part(self) -> str | int:
        return (self.key if self.has_key and self.key else "") if self.is_map else len(self.list)


class _Builder:
    def __init__(self, text: str, file: str, problems: Problems, tree: NodeCount) -> None:
        self._tree = tree
        self._lines = text.split("\n")
        self._text = text
        self._file = file
        self._problems = problems
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Node, int, int, int] | None] = {}
        self._nodes = self._characters = 0
        self._documents = 0
        self._root: Node | None = None
        self._last = Source(file, 1, 1)

    def run(self, loader: Any) -> Node | None:
        try:
            for event in yaml.parse(self._text, Loader=loader):
                self._take(event)
        except _Stop:
            return None
        except yaml.MarkedYAMLError as error:
            self._syntax(error)
            return None
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            # The pure Python scanner raises ValueError for escapes such as "\UFFFFFFFF".
            self._problem(
                self._last, f"this is not valid YAML: {str(error).splitlines()[0] if str(error) else error!r}"
            )
            return None
        return self._root

    # ---- events
    def _take(self, event: Any) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._stop(
                        self._at(event.start_mark),
                        "a file can contain only one document, but a second one begins here",
                    )
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case _:
                pass

    def _open(self, event: Any) -> None:
        source = self._at(event.start_mark)
        if event.tag is not None and event.tag not in _ANY_TAGS:
            self._problem(
                source, f"the tag {event.tag} is not supported; a tree can contain only plain values"
            )
        if len(self._stack) >= limits.YAML_DEPTH:
            self._stop(source, f"the file exceeds the limit of {limits.YAML_DEPTH} levels of nesting")
        self._count(1, 0, source)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        is_map = isinstance(event, yaml.MappingStartEvent)
        self._stack.append(_Frame(source, event.anchor, is_map=is_map))

    def _close(self) -> None:
        frame = self._stack.pop()
        node = frame.node()
        if frame.anchor is not None:
            self._anchors[frame.anchor] = (node, frame.size, frame.characters, frame.height)
        self._place(node, frame.size, frame.characters, frame.height)

    def _alias(self, event: Any) -> None:
        source = self._at(event.start_mark)
        if event.anchor not in self._anchors:
            self._stop(source, f"there is no anchor &{event.anchor} above this alias")
        known = self._anchors[event.anchor]
        if known is None:
            self._stop(source, f"the alias *{event.anchor} is inside its own anchor")
        node, size, characters, height = known
        if len(self._stack) + height > limits.YAML_DEPTH:
            self._stop(source, f"the file exceeds the limit of {limits.YAML_DEPTH} levels of nesting")
        self._count(size, characters, source)
        self._place(node, size, characters, height)

    def _scalar(self, event: Any) -> None:
        source = self._at(event.start_mark)
        text: str = event.value
        plain = not event.style and event.tag not in _TEXT_TAGS
        if event.tag is not None and event.tag not in _TEXT_TAGS:
            self._problem(
                source, f"the tag {event.tag} is not supported; a tree can contain only plain values"
            )
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            self._stop(source, "this text contains half of a surrogate pair, which is not a valid character")
        value: Scalar = text
        is_key = bool(self._stack) and self._stack[-1].is_map and not self._stack[-1].has_key
        if plain and not is_key:
            try:
                value = resolve_plain(text)
            except Ambiguous as error:
                self._problem(source, str(error))
        self._count(1, len(text), source)
        node = ScalarNode(source, value, text, plain)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, 1, len(text), 0)
        self._place(node, 1, len(text), 0)

    # ---- building
    def _place(self, node: Node, size: int, characters: int, height: int) -> None:
        """Add a complete node to the list or map that contains it. ``height`` is its number of nested
        levels."""
        if not self._stack:
            self._root = node
            return
        frame = self._stack[-1]
        frame.size += size
        frame.characters += characters
        frame.height = max(frame.height, height + 1)
        if not frame.is_map:
            frame.list.append(node)
        elif not frame.has_key:
            frame.key, frame.key_source, frame.has_key = self._key(node, frame), node.source, True
        else:
            if frame.key is not None:
                frame.map[frame.key] = self._value_at_key(node, frame)
                frame.keys[frame.key] = frame.key_source
            frame.key, frame.has_key = None, False

    def _value_at_key(self, node: Node, frame: _Frame) -> Node:
        """Return the value of a key. An empty value gets the place of its key, because its own place may be
        past the end of the file."""
        if isinstance(node, ScalarNode) and node.plain and not node.text:
            return ScalarNode(frame.key_source, None, "", True)
        return node

    def _key(self, node: Node, frame: _Frame) -> str | None:
        """Return the key, or None if its value must be dropped."""
        if not isinstance(node, ScalarNode):
            self._problem(node.source, "a key must be plain text, not a list or a map")
            return None
        key = node.text
        if len(key) > limits.YAML_KEY_CHARACTERS:
            self._stop(node.source, f"a key may have at most {limits.YAML_KEY_CHARACTERS:,} characters")
        if node.plain and key == "<<":
            self._problem(node.source, "merge keys (<<) are not supported; use a profile")
            return None
        if node.plain and (key in NULLS or is_surprise(key) or key.lower() in ("true", "false")):
            shown = f"the key {key}" if key else "an empty key"
            self._problem(
                node.source, f"some YAML parsers do not interpret {shown} as text; put it in quotes"
            )
            return None
        if key in frame.map:
            first = frame.keys[key]
            self._problem(
                node.source, f"the key {key!r} appears twice; the first is on line {first.line}", extra=(key,)
            )
            return None
        return key

    def _count(self, nodes: int, characters: int, source: Source) -> None:
        self._nodes += nodes
        self._characters += characters
        if self._characters > limits.YAML_TEXT:
            text = f"with its aliases expanded, the file exceeds the limit of {limits.YAML_TEXT:,} characters"
            self._stop(source, text)
        if self._nodes > limits.YAML_NODES:
            self._stop(
                source,
                f"with its aliases expanded, the file exceeds the limit of {limits.YAML_NODES:,} values",
            )
        self._tree.nodes += nodes
        if self._tree.nodes > limits.TREE_NODES:
            self._stop(source, f"the files of the tree exceed the limit of {limits.TREE_NODES:,} values")

    # ---- problems
    def _at(self, mark: Any) -> Source:
        line = min(mark.line, len(self._lines) - 1)
        column = mark.column if line == mark.line else len(self._lines[line])
        self._last = Source(self._file, line + 1, min(column, len(self._lines[line])) + 1)
        return self._last

    def _path(self) -> NodePath:
        return tuple(frame.path_part() for frame in self._stack if frame.path_part() != "")

    def _problem(self, source: Source, text: str, *, extra: NodePath = ()) -> None:
        self._problems.add(source, self._path() + extra, text)

    def _stop(self, source: Source, text: str) -> NoReturn:
        self._problem(source, text)
        raise _Stop

    def _syntax(self, error: yaml.MarkedYAMLError) -> None:
        mark = error.problem_mark or error.context_mark
        source = self._at(mark) if mark else self._last
        line = self._lines[source.line - 1]
        at = line[source.column - 1 : source.column]
        if at == "\t" or (at.strip() == "" and "\t" in line[: len(line) - len(line.lstrip())]):
            text = "YAML cannot be indented with tabs; use spaces"
        else:
            text = f"this is not valid YAML: {error.problem or error.context}"
            if error.context and error.problem:
                text += f" ({error.context})"
        self._problem(source, text)


def walk(node: Node, path: NodePath = ()) -> Iterator[tuple[NodePath, Node]]:
    """Yield every node with its path, parents before their children."""
    pending: list[tuple[NodePath, Node]] = [(path, node)]
    while pending:
        here, current = pending.pop()
        yield here, current
        if isinstance(current, MapNode):
            pending.extend(((*here, key), child) for key, child in reversed(list(current.items.items())))
        elif isinstance(current, ListNode):
            pending.extend(((*here, i), child) for i, child in reversed(list(enumerate(current.items))))


def to_plain(node: Node) -> Any:
    """Return the node as JSON data."""
    if isinstance(node, MapNode):
        return {key: to_plain(child) for key, child in node.items.items()}
    if isinstance(node, ListNode):
        return [to_plain(child) for child in node.items]
    return node.value


def text_of(node: Node | None) -> str | None:
    """Return the text of a scalar, or None if the node is not text."""
    return node.value if isinstance(node, ScalarNode) and isinstance(node.value, str) else None
