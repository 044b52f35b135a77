"""Schemas with settings: what ``values`` declares of them, put into the blocks that hold them.

Everything else in these files is written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakeplan.tree.schemas import schema_folder
from lakeplan.values.declare import Setting
from lakeplan.values.desired import BOUNDS, BRANCH_SETTINGS, SAFETY
from lakeplan.values.pins import PINS
from lakeplan.values.sweep import SWEEP

WIDTH = 118


@dataclass(frozen=True)
class Block:
    """Where a schema has the settings of a block. ``by_hand`` are keys beside them. ``recorded``: the schema
    is of a document that records the values of all of them, as lakeplan has them."""

    schema: str
    place: tuple[str, ...]
    settings: tuple[Setting, ...]
    by_hand: tuple[str, ...] = ()
    recorded: bool = False


_GUARD = ("properties", "sweep_guards", "additionalProperties", "properties")
BLOCKS = (
    Block("tree", ("$defs", "safety"), SAFETY),
    Block("tree", ("properties", "bounds"), BOUNDS),
    Block("repository", ("$defs", "branch_lifecycle"), BRANCH_SETTINGS, by_hand=("policies", "file")),
    Block("repository", ("$defs", "sweep"), SWEEP),
    Block("repository", ("$defs", "pins"), PINS),
    Block("marks", ("$defs", "settings"), SWEEP, recorded=True),
    Block("sweep", ("$defs", "settings"), SWEEP, recorded=True),
    Block("plan", (*_GUARD, "settings"), SWEEP, recorded=True),
    Block("plan", (*_GUARD, "safety"), SAFETY, recorded=True),
)
NAMES = tuple(dict.fromkeys(block.schema for block in BLOCKS))
"""Schemas with settings."""


def schema_text(name: str) -> str:
    """The text of ``schemas/NAME.v1.json``, out of the file and the declarations."""
    schema: dict[str, Any] = json.loads((schema_folder() / f"{name}.v1.json").read_text(encoding="utf-8"))
    definitions = "#/$defs/" if name == "repository" else "repository.v1.json#/$defs/"
    for block in BLOCKS:
        if block.schema != name:
            continue
        found = schema
        for part in block.place:
            found = found[part]
        if block.recorded:
            found["required"] = [s.field for s in block.settings]
            found["properties"] = {s.field: _recorded(s) for s in block.settings}
        else:
            kept = {key: found["properties"][key] for key in block.by_hand}
            found["properties"] = kept | {s.key: _written(s, definitions) for s in block.settings}
    return _text(schema) + "\n"


def _written(setting: Setting, definitions: str) -> dict[str, Any]:
    """The schema of a setting in a tree."""
    described = {"description": setting.help, "default": setting.default}
    if setting.kind.words:
        return described | {"enum": list(setting.kind.words)}
    return described | {"$ref": definitions + setting.kind.definition}


def _recorded(setting: Setting) -> dict[str, Any]:
    """The schema of a setting in a document."""
    described: dict[str, Any] = {"description": setting.help}
    if setting.kind.words:
        return described | {"enum": list(setting.kind.words)}
    recorded = setting.kind.recorded
    if recorded == "strings":
        return described | {"type": "array", "items": {"type": "string"}}
    described |= {"type": [recorded, "null"] if setting.may_be_null else recorded}
    return described | ({"minimum": 0} if recorded in ("integer", "number") else {})


def _text(value: Any, indent: str = "", before: str = "") -> str:
    """JSON; what fits a line is on one, but for the maps that the outermost ones are made of."""
    line = json.dumps(value, ensure_ascii=False)
    is_parts = isinstance(value, Mapping) and (not indent or before in ('"$defs": ', '"properties": '))
    if not isinstance(value, Mapping | list) or (not is_parts and len(indent + before + line) < WIDTH):
        return line
    deeper = indent + "  "
    if isinstance(value, Mapping):
        keys = ((f"{json.dumps(key, ensure_ascii=False)}: ", child) for key, child in value.items())
        inner = [deeper + key + _text(child, deeper, key) for key, child in keys]
    else:
        inner = [deeper + _text(child, deeper) for child in value]
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    return "\n".join([opening, ",\n".join(inner), indent + closing]) if inner else opening + closing
