"""Schemas of the tree: what ``values`` declares of settings, put into the blocks that hold them.

Everything else in these files is written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakeplan.tree.schemas import schema_folder
from lakeplan.values.declare import Setting
from lakeplan.values.desired import BOUNDS, SAFETY
from lakeplan.values.settings import LIFECYCLE
from lakeplan.values.sweep import SWEEP

WIDTH = 118


@dataclass(frozen=True)
class Block:
    """Where a schema has the settings of a block. ``by_hand`` are keys beside them."""

    schema: str
    place: tuple[str, ...]
    settings: tuple[Setting, ...]
    by_hand: tuple[str, ...] = ()


BLOCKS = (
    Block("tree", ("$defs", "safety"), SAFETY),
    Block("tree", ("properties", "bounds"), BOUNDS),
    Block("repository", ("$defs", "branch_lifecycle"), LIFECYCLE, by_hand=("policies", "file")),
    Block("repository", ("$defs", "sweep"), SWEEP),
)


def schema_text(name: str) -> str:
    """The text of ``schemas/NAME.v1.json``, out of the file and the declarations."""
    schema: dict[str, Any] = json.loads((schema_folder() / f"{name}.v1.json").read_text(encoding="utf-8"))
    for block in BLOCKS:
        if block.schema == name:
            found = schema
            for part in block.place:
                found = found[part]
            kept = {key: found["properties"][key] for key in block.by_hand}
            file = "" if name == "repository" else "repository.v1.json"
            found["properties"] = kept | {s.key: _schema(s, f"{file}#/$defs/") for s in block.settings}
    return _text(schema) + "\n"


def _schema(setting: Setting, definitions: str) -> dict[str, Any]:
    described = {"description": setting.help, "default": setting.default}
    if setting.kind.words:
        return described | {"enum": list(setting.kind.words)}
    return described | {"$ref": definitions + setting.kind.definition}


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
