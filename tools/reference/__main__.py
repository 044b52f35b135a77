"""``python -P -m tools.reference FOLDER``: writes pages and schemas below the folder of a checkout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tools.reference.commands import commands_page
from tools.reference.early_stop import early_stop_picture
from tools.reference.gates import gates_page
from tools.reference.schemas import NAMES, schema_text
from tools.reference.settings import settings_page

PAGES: Mapping[str, Callable[[], str]] = {
    **{f"schemas/{name}.v1.json": partial(schema_text, name) for name in NAMES},
    "docs/settings.md": settings_page,  # after the schemas that it is made from
    "docs/commands.md": commands_page,
    "docs/gates.md": gates_page,
    "docs/images/early-stop.svg": early_stop_picture,
}
"""Path below the folder, and what makes its text."""


def write_pages(folder: Path) -> list[Path]:
    """Writes every page; the paths of those that changed, in order. Folders are made as needed."""
    changed = []
    for name, page in PAGES.items():
        path, text = folder / name, page()
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -P -m tools.reference FOLDER\n")
        return 64
    for path in write_pages(Path(arguments[0])):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
