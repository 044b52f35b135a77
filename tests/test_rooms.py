"""Each room's ``__init__`` names the modules that other rooms may import. import-linter checks the layers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "lakeplan"
OPEN = {"values", "cli"}
"""All of one is shared; nothing of the other is, but how it starts."""


def rooms() -> dict[str, list[str]]:
    """The modules that each room names."""
    found = {}
    for face in PACKAGE.glob("*/__init__.py"):
        for node in ast.parse(face.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found[face.parent.name] = ast.literal_eval(node.value)
    return found


def imports() -> Iterator[tuple[str, str, str]]:
    """File, room and module of every import from another room."""
    for file in PACKAGE.rglob("*.py"):
        own = file.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("lakeplan."):
                continue
            _, room, *below = (node.module or "").split(".")
            if room != own and (PACKAGE / room).is_dir():
                for module in below[:1] or [alias.name for alias in node.names]:
                    yield str(file.relative_to(PACKAGE)), room, module


def it_imports_from_another_room_only_what_that_room_names() -> None:
    named = rooms()
    wrong = [
        (file, room, module) for file, room, module in imports() if module not in named.get(room, [module])
    ]
    assert wrong == [], "name the module in the room's __init__, or use one that is named there"


def it_names_in_every_room_what_others_use_and_nothing_else() -> None:
    named = rooms()
    assert {folder.parent.name for folder in PACKAGE.glob("*/__init__.py")} - OPEN == set(named)
    used: dict[str, set[str]] = {room: set() for room in named}
    for _, room, module in imports():
        used.setdefault(room, set()).add(module)
    assert {room: sorted(used[room]) for room in named} == {
        room: sorted(all_) for room, all_ in named.items()
    }
