"""The few pieces of Markdown that reference pages are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

GENERATED = "<!-- Made by `make docs` from the program. Do not edit. -->"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    """Text as code in a line; nothing for nothing."""
    return f"`{text}`" if text else ""


def block(text: str, language: str = "") -> str:
    return f"```{language}\n{text}\n```"


def anchor(heading: str) -> str:
    """How Git hosts name the anchor of a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
