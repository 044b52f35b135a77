"""Schemas of the tree: what ``values`` declares of settings, put into the blocks that hold them.

Everything else in these files is written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakeplan.tree.schemas import load_schema
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
    """The text of ``schemas/NAME.v1.json``."""
    schema: dict[str, Any] = json.loads(json.dumps(load_schema(name)))
    for block in BLOCKS:
        if block.schema == name:
            found = schema
            for part in block.place:
                found = found[part]
            kept = {key: found["properties"][key] for key in block.by_hand}
            found["properties"] = kept | properties(block.settings, "" if name == "repository" else name)
    return _text(schema) + "\n"


def properties(settings: Iterable[Setting], schema: str = "") -> dict[str, Any]:
    """JSON Schemas of settings by key, for the repository schema, or for one that refers to it."""
    file = "repository.v1.json" if schema else ""
    return {
        setting.key: {
            "description": setting.help,
            "default": setting.default,
            **(
                {"enum": list(setting.kind.words)}
                if setting.kind.words
                else {"$ref": f"{file}#/$defs/{setting.kind.definition}"}
            ),
        }
        for setting in settings
    }


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
    return f"{opening}\n{',\n'.join(inner)}\n{indent}{closing}" if inner else opening + closing


SCHEMAS = {f"{name}.v1.json": partial(schema_text, name) for name in ("tree", "repository")}
"""Name in ``schemas/``, and what makes its text."""
