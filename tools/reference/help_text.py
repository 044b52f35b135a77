"""A command's help, taken apart: click's paragraphs, what is shown as it stands, and examples."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from tools.reference.markdown import block

AS_IT_STANDS = "\b"
"""The first line of a paragraph that click does not wrap."""
EXAMPLES = "Examples:"


@dataclass(frozen=True)
class HelpText:
    """``paragraphs``: text, and whether it is shown as it stands. ``examples``: command lines."""

    paragraphs: tuple[tuple[str, bool], ...]
    examples: str = ""

    @property
    def summary(self) -> str:
        """The first paragraph in one line."""
        return " ".join(self.paragraphs[0][0].split()) if self.paragraphs else ""

    def markdown(self) -> Iterator[str]:
        for text, as_it_stands in self.paragraphs:
            yield block(text) if as_it_stands else text


def split_help(text: str) -> HelpText:
    paragraphs: list[tuple[str, bool]] = []
    prose, _, examples = inspect.cleandoc(text).partition(EXAMPLES)
    for paragraph in prose.split("\n\n"):
        as_it_stands = paragraph.startswith(AS_IT_STANDS)
        body = paragraph.removeprefix(AS_IT_STANDS).strip("\n")
        if body.strip():
            paragraphs.append((body, as_it_stands))
    lines = [line for line in examples.splitlines() if line.strip()]
    return HelpText(tuple(paragraphs), textwrap.dedent("\n".join(lines)))
