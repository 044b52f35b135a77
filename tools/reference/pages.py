"""Which pages are made, and where they lie below the folder of the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference.commands import commands_page
from tools.reference.early_stop import early_stop_picture
from tools.reference.settings import settings_page

PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "settings.md": settings_page,
    "images/early-stop.svg": early_stop_picture,
}
"""Path below the folder, and what makes its text."""


def write_pages(folder: Path) -> list[Path]:
    """Writes every page; the paths, in order. Folders are made as needed."""
    written = []
    for name, page in PAGES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(), encoding="utf-8")
        written.append(path)
    return written
