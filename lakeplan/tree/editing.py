"""Edits the files of a checked-out tree, all at once, without changing comments and order."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from lakeplan.errors import LakeplanError
from lakeplan.tree.layers import OTHER_NAMES
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.desired import BranchRule, Policy, SettingItem, SettingKind, duration_text
from lakeplan.values.local import SHARED, inside, read_file, why_unreadable, write_file
from lakeplan.values.rules import GcRules

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Words that YAML does not read as text."""

Change = Callable[[str], str | None]
"""Returns the text of a file after one edit, or None if the edit is impossible."""


@dataclass
class EditedTree:
    """The edited files of a tree. They are only in memory until ``keep``, so a command that is killed while
    it tries edits leaves none in the tree. It refuses links that lead out of the tree."""

    root: Path
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _before: dict[Path, str] = field(default_factory=dict, init=False)
    _edited: dict[Path, str] = field(default_factory=dict, init=False)
    _written: set[Path] = field(default_factory=set, init=False)

    @property
    def files(self) -> tuple[str, ...]:
        """The written files, relative to the tree."""
        top = inside(self.root, self.root)
        return tuple(sorted(p.relative_to(top).as_posix() for p in self._written))

    def edit(self, file: str, change: Change) -> bool:
        """Changes a file. Returns False if the change results in None. Raises LakeplanError."""
        path = inside(self.root, self.root / file)
        before = self._edited[path] if path in self._edited else read_text(path)
        changed = change(before)
        if changed is None:
            return False
        self._before.setdefault(path, before)
        self._edited[path] = changed
        return True

    def load(self) -> Tree:
        """The tree with the edits. Raises ConfigError."""
        return load_tree(self.root, self.environ, edited=self._edited)

    def keep(self) -> None:
        """Writes all edits, or none. Raises LakeplanError, also if somebody else has changed a file since it
        was read."""
        for path, text in self._before.items():
            if read_text(path) != text:
                hint = "Run the command again. Nothing was written to the file."
                raise LakeplanError(
                    "the file was changed while the command was running", where=str(path), hint=hint
                )
        done: list[Path] = []
        try:
            for path, text in self._edited.items():
                write_file(path, text, mode=SHARED)
                done.append(path)
        except BaseException:
            for path in done:
                write_file(path, self._before[path], mode=SHARED)
            raise
        self._written.update(done)
        self.undo()

    def undo(self) -> None:
        """Forgets the edits since the last ``keep``."""
        self._before.clear()
        self._edited.clear()


def read_text(path: Path) -> str:
    """The text of a regular file. Raises LakeplanError that names it."""
    try:
        return read_file(path).decode()
    except (OSError, ValueError) as error:
        raise LakeplanError(f"cannot read the file: {why_unreadable(error)}", where=str(path)) from None


def quoted(text: str) -> str:
    """Return a YAML scalar for this text, plain if that is safe and in double quotes otherwise."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return double_quoted(text)


def double_quoted(text: str) -> str:
    """Return a YAML scalar for this text, in double quotes."""
    return "".join(c if c.isprintable() else _escape(c) for c in json.dumps(text, ensure_ascii=False))


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def gc_lines(rules: GcRules | None, remove: Iterable[BranchRule] = ()) -> list[str]:
    """Return the lines of the block with these rules, ``gc: clear`` for none. ``remove`` drops inherited
    rules."""
    if rules is None:
        return ["gc: clear"]
    items = [f"{{branch_id: {quoted(b)}, retention_days: {d}}}" for b, d in rules.branches.items()]
    items += [
        f"{{{'pattern' if r.is_pattern else 'branch_id'}: {quoted(r.name)}, remove: true}}" for r in remove
    ]
    lines = ["gc:", f"  default_retention_days: {rules.default_retention_days}"]
    if items:
        lines += ["  branches:", *(f"    - {item}" for item in items)]
    return lines


def setting_lines(kind: SettingKind, items: Sequence[SettingItem]) -> list[str]:
    """Return the lines of the block with these policies or object rules, ``clear`` for none."""
    if not items:
        return [f"{kind.value}: clear"]
    return [f"{kind.value}:", f"  {kind.items_key}:", *(f"    - {_item(item)}" for item in items)]


def _item(item: SettingItem) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in _fields(item).items()) + "}"


def _fields(item: SettingItem | None) -> dict[str, str]:
    """Return the values of an item by key, as YAML."""
    values: dict[str, str] = {}
    if isinstance(item, Policy):
        values = {
            "id": quoted(item.id) if item.id is not None else "",
            "patterns": _list(item.patterns),
            "max_age": duration_text(item.max_age_seconds),
            "max_idle_age": duration_text(item.max_idle_seconds),
        }
    elif item is not None:
        values = {
            "id": quoted(item.id),
            "branches": _list(item.branches),
            "prefix": quoted(item.prefix),
            "expire_after_days": str(item.expire_after_days),
        }
    values["description"] = quoted(item.description) if item is not None and item.description else ""
    return {key: value for key, value in values.items() if value}


def _list(names: Sequence[str]) -> str:
    return f"[{', '.join(quoted(name) for name in names)}]"


def set_gc(text: str, entry: str, lines: list[str]) -> str | None:
    """Return the text with the entry's ``gc`` block replaced, or added as its first block. None unless the
    entry is a map in block style."""
    node = _entry(text, entry)
    if node is None or node.flow_style or not node.value:
        return None
    for key, value in node.value:
        if key.value == "gc":
            if _is_elsewhere(node, value):
                return None
            block = _indented(text, lines, key.start_mark.column)
            return text[: key.start_mark.index] + block + text[_end(value) :]
    return _before_first(text, node, lines)


def add_entry(text: str, entry: str, lines: list[str]) -> str | None:
    """Return the text with a new entry that has these lines. None unless ``repositories`` is in block
    style."""
    body = [f"{quoted(entry)}:", *(f"  {line}" for line in lines)]
    repositories = _repositories(text)
    if repositories is None:
        added = _indented(text, ["", "repositories:"], 0) + _indented(text, ["", *body], 2)
        return text.rstrip("\r\n") + added + _line_end(text)
    if not isinstance(repositories, yaml.MappingNode) or repositories.flow_style or not repositories.value:
        return None
    return _before_first(text, repositories, body)


def _before_first(text: str, node: yaml.MappingNode, lines: list[str]) -> str:
    """Return the text with lines before the first key of a block."""
    first = node.value[0][0].start_mark
    return text[: first.index] + _indented(text, [*lines, ""], first.column) + text[first.index :]


def _entry(text: str, entry: str) -> yaml.MappingNode | None:
    repositories = _repositories(text)
    if not isinstance(repositories, yaml.MappingNode):
        return None
    nodes = [value for key, value in repositories.value if key.value == entry]
    return nodes[0] if len(nodes) == 1 and isinstance(nodes[0], yaml.MappingNode) else None


def _repositories(text: str) -> yaml.Node | None:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise LakeplanError("the file is no longer valid YAML", detail=str(error)) from None
    if not isinstance(root, yaml.MappingNode):
        return None
    return next((value for key, value in root.value if key.value == "repositories"), None)


def _end(node: yaml.Node) -> int:
    """Return the end of a value. The end mark of a block is at the next token, after comments that belong to
    the text that follows."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _indented(text: str, lines: Sequence[str], column: int) -> str:
    return f"{_line_end(text)}{' ' * column}".join(lines)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def replace_number(text: str, line: int, column: int, number: int) -> str | None:
    """Return the text with the whole number at a place (from 1) replaced. None if there is no number at that
    place."""
    at = _offset(text, line, column)
    match = _NUMBER.match(text, at) if at is not None else None
    if at is None or match is None:
        return None
    return text[:at] + str(number) + text[match.end() :]


_NUMBER = re.compile(r"[0-9][0-9_]*(?![^\s,\]}#:])")
_LINE_ENDS = re.compile(r"\r\n|\r|\n")


def _offset(text: str, line: int, column: int) -> int | None:
    starts = [0, *(match.end() for match in _LINE_ENDS.finditer(text))]
    if not 1 <= line <= len(starts):
        return None
    at = starts[line - 1] + column - 1
    return at if at < len(text) else None


def put_default(text: str, entry: str, days: int) -> str | None:
    """Return the text with a default in an entry that inherits one. None if that cannot be edited."""
    return _put(text, entry, "gc", "default_retention_days", str(days), [f"default_retention_days: {days}"])


def put_branch(text: str, entry: str, branch: str, days: int | None) -> str | None:
    """Return the text with another branch rule in the entry. Without ``days``, it drops an inherited rule.
    None if that cannot be edited."""
    last = "remove: true" if days is None else f"retention_days: {days}"
    item = f"{{branch_id: {quoted(branch)}, {last}}}"
    return _put_item(text, entry, "gc", "branches", item)


def drop_branch(text: str, entry: str, branch: str) -> str | None:
    """Return the text without the entry's own rule of a branch. None if it has none, or if that cannot be
    edited."""
    gc = _block(text, entry, "gc")
    branches = _list_of(gc, "branches")
    names = [_child(item, "branch_id") for item in branches.value] if branches is not None else []
    positions = [n for n, name in enumerate(names) if name is not None and name.value == branch]
    return _drop(text, gc, branches, positions[0]) if len(positions) == 1 else None


def put_setting(
    text: str, entry: str, kind: SettingKind, old: SettingItem | None, new: SettingItem | None
) -> str | None:
    """Return the text with a policy or an object rule changed from ``old`` to ``new``: value by value if the
    entry itself has ``old``, and as another item if it inherits ``old`` or there is none. Without ``new``, it
    drops the item. None if that cannot be edited."""
    block = _block(text, entry, kind.value)
    items = _list_of(block, kind.items_key)
    positions = [n for n, item in enumerate(items.value if items is not None else ()) if _is_item(item, old)]
    if len(positions) > 1:
        return None
    if positions and new is None:
        return _drop(text, block, items, positions[0])
    if positions:
        return _put_values(text, (entry, kind, positions[0]), _fields(old), _fields(new))
    if old is not None and old.id is None:
        return None  # only an item with an id overrides an inherited one
    item = _item(new) if new is not None else f"{{id: {quoted(str(old.id if old else ''))}, remove: true}}"
    return _put_item(text, entry, kind.value, kind.items_key, item)


def _is_item(node: yaml.Node, item: SettingItem | None) -> bool:
    """Return whether an entry's own item is this one, by its id or else by its patterns."""
    if item is None:
        return False
    id_node = _child(node, "id")
    if item.id is not None or id_node is not None:
        return id_node is not None and id_node.value == item.id
    patterns = _child(node, "patterns")
    names = {n.value for n in patterns.value} if isinstance(patterns, yaml.SequenceNode) else set()
    return names == set(getattr(item, "patterns", ()))


def _put_values(
    text: str, place: tuple[str, SettingKind, int], old: Mapping[str, str], new: Mapping[str, str]
) -> str | None:
    """Return the text with the values of an item that differ."""
    entry, kind, index = place
    changed: str | None = text
    for key in sorted(old.keys() | new.keys(), key=lambda key: (key not in new, key)):
        if old.get(key) != new.get(key) and changed is not None:
            items = _list_of(_block(changed, entry, kind.value), kind.items_key)
            changed = _put_value(changed, items.value[index] if items else None, key, new.get(key))
    return changed


def _put_value(text: str, item: yaml.Node | None, key: str, new: str | None) -> str | None:
    if not isinstance(item, yaml.MappingNode) or not item.value:
        return None
    name = next((k for k, _ in item.value if OTHER_NAMES.get(k.value, k.value) == key), None)
    if name is None:
        if new is None:
            return None
        if item.flow_style:
            return _before_end(text, item, f"{key}: {new}")
        return _after(text, item, [f"{key}: {new}"], item.value[0][0].start_mark.column)
    value = next(v for k, v in item.value if k is name)
    if _is_elsewhere(item, value) or text[value.start_mark.index] in "&!":
        return None  # an alias or an anchor
    if new is None:
        return _cut(text, item, name, value)
    start = value.start_mark.index
    if text[name.end_mark.index : start].strip() == ":":
        start = text.index(":", name.end_mark.index) + 1
        new = f" {new}"
    return text[:start] + new + text[_end(value) :]


def _put_item(text: str, entry: str, block: str, key: str, item: str) -> str | None:
    """Return the text with another item at the end of a list, which is created with its block if needed."""
    node = _block(text, entry, block)
    items = _child(node, key)
    if items is None:
        return _put(text, entry, block, key, f"[{item}]", [f"{key}:", f"  - {item}"])
    if not isinstance(items, yaml.SequenceNode) or _is_elsewhere(node, items):
        return None
    if items.flow_style:
        return _before_end(text, items, item)
    return _after(text, items, [f"- {item}"], items.start_mark.column)


def _list_of(node: yaml.MappingNode | None, key: str) -> yaml.SequenceNode | None:
    """Return a list that is written in the node, not an alias."""
    items = _child(node, key)
    if not isinstance(items, yaml.SequenceNode) or _is_elsewhere(node, items):
        return None
    return items


def _drop(
    text: str, block: yaml.MappingNode | None, items: yaml.SequenceNode | None, index: int
) -> str | None:
    """Return the text without an item of a list. If the list becomes empty, its key is removed too."""
    if block is None or items is None:
        return None
    if len(items.value) == 1:
        key = next(key for key, value in block.value if value is items)
        return _cut(text, block, key, items)
    item = items.value[index]
    if not items.flow_style:
        dash = text.rindex("-", 0, item.start_mark.index + 1)
        return _cut_lines(text, dash, _end(item))
    if index + 1 < len(items.value):
        return text[: item.start_mark.index] + text[items.value[index + 1].start_mark.index :]
    return text[: items.value[index - 1].end_mark.index] + text[item.end_mark.index :]


def _put(text: str, entry: str, block: str, key: str, value: str, lines: list[str]) -> str | None:
    """Return the text with another key in a block of the entry, which is created if needed."""
    node, body = _entry(text, entry), _block(text, entry, block)
    if node is None or (body is None and _child(node, block) is not None):
        return None
    if body is None:
        if node.flow_style or not node.value:
            return _before_end(text, node, f"{block}: {{{key}: {value}}}") if node.flow_style else None
        column = node.value[0][0].start_mark.column
        return _after(text, node, [f"{block}:", *(f"  {line}" for line in lines)], column)
    if _child(body, "file") is not None or _child(body, key) is not None:
        return None
    if body.flow_style:
        return _before_end(text, body, f"{key}: {value}")
    return _after(text, body, lines, body.value[0][0].start_mark.column) if body.value else None


def _block(text: str, entry: str, name: str) -> yaml.MappingNode | None:
    node = _entry(text, entry)
    block = _child(node, name)
    if node is None or not isinstance(block, yaml.MappingNode) or _is_elsewhere(node, block):
        return None
    return block


def _child(node: yaml.Node | None, name: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if key.value == name), None)


def _is_elsewhere(parent: yaml.MappingNode | None, child: yaml.Node) -> bool:
    """Return whether a value is an alias, whose text is elsewhere."""
    if parent is None:
        return True
    key = next(key for key, value in parent.value if value is child)
    return bool(child.start_mark.index < key.end_mark.index)


def _before_end(text: str, node: yaml.CollectionNode, item: str) -> str:
    """Return the text with another item in a list or map in flow style."""
    body = text[: node.end_mark.index - 1].rstrip()
    comma = ", " if node.value and not body.endswith(",") else " " if body.endswith(",") else ""
    return body + comma + item + text[len(body) :]


def _after(text: str, node: yaml.Node, lines: list[str], column: int) -> str:
    """Return the text with lines after the last line of a block and its comment."""
    end = len(text[: _end(node)].rstrip())
    stop = _LINE_ENDS.search(text, end)
    at = stop.start() if stop is not None else len(text)
    return text[:at] + _indented(text, ["", *lines], column) + text[at:]


def _cut(text: str, node: yaml.MappingNode, key: yaml.Node, value: yaml.Node) -> str | None:
    """Return the text without a key and its value. None if it is the only key, or shares its line."""
    if len(node.value) == 1:
        return None
    number = next(n for n, pair in enumerate(node.value) if pair[0] is key)
    if not node.flow_style:
        return _cut_lines(text, key.start_mark.index, _end(value))
    if number + 1 < len(node.value):
        return text[: key.start_mark.index] + text[node.value[number + 1][0].start_mark.index :]
    return text[: key.start_mark.index].rstrip().removesuffix(",") + text[_end(value) :]


def _cut_lines(text: str, start: int, end: int) -> str | None:
    """Return the text without complete lines. None if these lines have any other text."""
    begin = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    stop = _LINE_ENDS.search(text, end)
    rest = text[end : stop.start() if stop is not None else len(text)].strip()
    if text[begin:start].strip() or (rest and not rest.startswith("#")):
        return None
    return text[:begin] + (text[stop.end() :] if stop is not None else "")
