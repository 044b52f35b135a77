"""Changes the ``gc`` block of one entry in the text of a tree's file, and leaves every other character alone.

Whoever uses it loads the tree again and looks whether it says what was meant: an edit is a proposal.
"""

from __future__ import annotations

import yaml

from lakeplan.core.tree_text import quoted
from lakeplan.errors import LakeplanError


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
