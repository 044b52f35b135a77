"""Tables declared once: headers and rows of values, which a terminal, Markdown and a page print their way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lakeplan.output.page import Cell, Page, code, prose
from lakeplan.output.page import table as markdown
from lakeplan.output.text import NO_MONEY, UNKNOWN, Json, Money, count, known, percent, size


@dataclass(frozen=True)
class Label:
    """Words of lakeplan's own, on a terminal in a style."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Name:
    """A name or id, exactly as it is."""

    text: str


@dataclass(frozen=True)
class Amount:
    """A figure that matters when it is not nothing; an unknown one never looks like nothing."""

    value: int | None
    form: Callable[[int], str] = count
    at_risk: bool = False

    @property
    def text(self) -> str:
        return known(self.value, self.form)


@dataclass(frozen=True)
class Share:
    part: int | None
    whole: int | None

    @property
    def text(self) -> str:
        if self.part is None or (self.whole is None and self.part):
            return UNKNOWN
        return percent(self.part, self.whole or 0)


@dataclass(frozen=True)
class Change:
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.before} → {self.after}"


@dataclass(frozen=True)
class Cost:
    """Money; sorts as the bytes it is for."""

    text: str
    size_bytes: int | None


Value = Label | Name | Amount | Share | Change | Cost


def volume_cells(part: Json | None, cost: Money = NO_MONEY, *, at_risk: bool = False) -> list[Value]:
    """Objects, bytes and, where there is a price, money; None is unknown."""
    objects, size_bytes = (None, None) if part is None else (part["objects"], part["size_bytes"])
    return [Amount(objects, at_risk=at_risk), Amount(size_bytes, size), *costs(cost, size_bytes)]


def costs(cost: Money, size_bytes: int | None) -> list[Cost]:
    """The cell behind a figure of bytes; none without a price."""
    return [Cost(text, size_bytes) for text in cost.cells(size_bytes)]


@dataclass(frozen=True)
class Table:
    """``headers`` may have several lines. The first ``names`` columns are no figures."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Value]]
    names: int = 1

    @property
    def figures(self) -> range:
        return range(self.names, len(self.headers))

    def print_on(
        self, page: Page, limit: int | None = None, *, solid: Iterable[int] = (), indent: int = 2
    ) -> None:
        """At most ``limit`` rows for a terminal, nothing without rows."""
        if self.rows:
            rows = [[_terminal_cell(value) for value in row] for row in self.rows[:limit]]
            page.table(self.headers, rows, figures=self.figures, solid=tuple(solid), indent=indent)

    def markdown(self, limit: int | None = None) -> str:
        """At most ``limit`` rows as Markdown, nothing without rows."""
        if not self.rows:
            return ""
        rows = [markdown_cells(row) for row in self.rows[:limit]]
        return markdown([header.replace("\n", " ") for header in self.headers], rows, figures=self.figures)


def _terminal_cell(value: Value) -> str | Cell:
    return Cell(value.text, value.style) if isinstance(value, Label) else value.text


def markdown_cells(row: Iterable[Value]) -> list[str]:
    return [_markdown_cell(value) for value in row]


def _markdown_cell(value: Value) -> str:
    match value:
        case Name(text):
            return code(text) if text else ""
        case Cost(text):
            return prose(text)
        case Amount() | Share():
            return f"**{UNKNOWN}**" if value.text == UNKNOWN else value.text
        case _:
            return value.text
