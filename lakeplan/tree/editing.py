"""Changes YAML text of a tree as a person would, and keeps comments and order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

import yaml

from lakeplan.errors import LakeplanError
from lakeplan.values.desired import BranchRule
from lakeplan.values.rules import GcRules
from lakeplan.values.settings import Policy, SettingItem, SettingKind, duration_text

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""What YAML takes for something else than a text."""


def quoted(text: str) -> str:
    """A YAML scalar that is read back as this text: plain where that is safe, in double quotes elsewhere."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in json.dumps(text, ensure_ascii=False))


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def gc_lines(rules: GcRules | None, remove: Iterable[BranchRule] = ()) -> list[str]:
    """The block that gives these rules: ``gc: clear`` for none. ``remove`` drops inherited rules."""
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
    """The block that gives these policies or object rules: ``clear`` for none."""
    if not items:
        return [f"{kind.value}: clear"]
    key = "policies" if kind is SettingKind.BRANCH_LIFECYCLE else "rules"
    return [f"{kind.value}:", f"  {key}:", *(f"    - {_item(item)}" for item in items)]


def _item(item: SettingItem) -> str:
    if isinstance(item, Policy):
        values = {
            "id": quoted(item.id) if item.id is not None else "",
            "patterns": _list(item.patterns),
            "max_age": duration_text(item.max_age_seconds),
            "max_idle_age": duration_text(item.max_idle_seconds),
        }
    else:
        values = {
            "id": quoted(item.id),
            "branches": _list(item.branches),
            "prefix": quoted(item.prefix),
            "expire_after_days": str(item.expire_after_days),
        }
    values["description"] = quoted(item.description) if item.description else ""
    return "{" + ", ".join(f"{key}: {value}" for key, value in values.items() if value) + "}"


def _list(names: Sequence[str]) -> str:
    return f"[{', '.join(quoted(name) for name in names)}]"


def set_gc(text: str, entry: str, lines: list[str]) -> str | None:
    """The text with the entry's ``gc`` block replaced, or put first into the entry. None where the entry is
    not there as a map of its own, in block style."""
    node = _entry(text, entry)
    if node is None or node.flow_style or not node.value:
        return None
    for key, value in node.value:
        if key.value == "gc":
            end = _end(value)
            if end <= key.end_mark.index:
                return None  # an alias: its text stands somewhere else
            return text[: key.start_mark.index] + _indented(lines, key.start_mark.column) + text[end:]
    first = node.value[0][0].start_mark
    indent = " " * first.column
    return text[: first.index] + _indented(lines, first.column) + f"\n{indent}" + text[first.index :]


def add_entry(text: str, entry: str, lines: list[str]) -> str | None:
    """The text with a new entry of this ``gc`` block. None where ``repositories`` is not in block style."""
    body = [f"{quoted(entry)}:", *(f"  {line}" for line in lines)]
    repositories = _repositories(text)
    if repositories is None:
        return text.rstrip("\n") + "\nrepositories:\n  " + _indented(body, 2) + "\n"
    if not isinstance(repositories, yaml.MappingNode) or repositories.flow_style or not repositories.value:
        return None
    first = repositories.value[0][0].start_mark
    indent = " " * first.column
    return text[: first.index] + _indented(body, first.column) + f"\n{indent}" + text[first.index :]


def _entry(text: str, entry: str) -> yaml.MappingNode | None:
    repositories = _repositories(text)
    if not isinstance(repositories, yaml.MappingNode):
        return None
    found = [value for key, value in repositories.value if key.value == entry]
    return found[0] if len(found) == 1 and isinstance(found[0], yaml.MappingNode) else None


def _repositories(text: str) -> yaml.Node | None:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise LakeplanError("the file is not YAML any more", detail=str(error)) from None
    if not isinstance(root, yaml.MappingNode):
        return None
    return next((value for key, value in root.value if key.value == "repositories"), None)


def _end(node: yaml.Node) -> int:
    """Where the last character of a value stands. The end mark of a block reaches to the next token, over
    comments that belong to what follows."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _indented(lines: list[str], column: int) -> str:
    return f"\n{' ' * column}".join(lines)
