"""Tables that are declared once, as headers and rows of values, for terminals, Markdown and HTML pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lakeplan.output.text import (
    NO_MONEY,
    UNKNOWN,
    Cell,
    Json,
    Money,
    Page,
    code,
    count,
    percent,
    prose,
    safe,
    size,
)
from lakeplan.output.text import table as markdown


@dataclass(frozen=True)
class Name:
    """A name, an id or a setting's value, exactly as it is."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Amount:
    """A figure that matters when it is not zero. ``unknown`` is the text for None, which is never a zero."""

    value: int | None
    form: Callable[[int], str] = count
    at_risk: bool = False
    unknown: str = UNKNOWN

    @property
    def text(self) -> str:
        return self.unknown if self.value is None else self.form(self.value)


@dataclass(frozen=True)
class Share:
    """A part of a whole, in percent."""

    part: int | None
    whole: int | None

    @property
    def fraction(self) -> float | None:
        """From 0 to 1, or None if unknown."""
        if self.part is None or (self.whole is None and self.part):
            return None
        return min(self.part / self.whole, 1.0) if self.whole else 0.0

    @property
    def text(self) -> str:
        return UNKNOWN if self.fraction is None else percent(self.part or 0, self.whole or 0)


@dataclass(frozen=True)
class Change:
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.before} → {self.after}"


@dataclass(frozen=True)
class After:
    """The new value, in the column after the old value."""

    value: Cell | Name

    @property
    def text(self) -> str:
        return self.value.text


@dataclass(frozen=True)
class Cost:
    """Money, which is sorted by the number of bytes that it pays for."""

    text: str
    size_bytes: int | None


@dataclass(frozen=True)
class Folder:
    """A prefix of paths, or None for objects without a path. A page shows a tree of them by ``depth``."""

    prefix: str | None
    depth: int = 0

    @property
    def text(self) -> str:
        return "(in no commit)" if self.prefix is None else self.prefix or "(top level)"


Value = Cell | Name | Amount | Share | Change | After | Cost | Folder


def volume_cells(part: Json | None, cost: Money = NO_MONEY, *, at_risk: bool = False) -> list[Value]:
    """Return objects, bytes and, where there is a price, money. Unknown figures are None."""
    objects, size_bytes = (None, None) if part is None else (part["objects"], part["size_bytes"])
    return [Amount(objects, at_risk=at_risk), Amount(size_bytes, size), *costs(cost, size_bytes)]


def costs(cost: Money, size_bytes: int | None) -> list[Cost]:
    """Return the cell after a figure of bytes, or no cell without a price."""
    return [Cost(text, size_bytes) for text in cost.cells(size_bytes)]


@dataclass(frozen=True)
class Table:
    """A table of text. ``headers`` may have several lines. The first ``names`` columns and the last ``words``
    are not figures. ``is_loud``: figures that are not zero stand out on a terminal."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Value]]
    names: int = 1
    words: int = 0
    is_loud: bool = False

    @property
    def figures(self) -> range:
        return range(self.names, len(self.headers) - self.words)

    def without_marks(self) -> Table:
        """Return the same table without its first column."""
        return Table(self.headers[1:], [row[1:] for row in self.rows], self.names - 1)

    def print_on(
        self,
        page: Page,
        limit: int | None = None,
        *,
        solid: Iterable[int] = (),
        indent: int = 2,
        is_grouped: bool = False,
    ) -> None:
        """Print the first ``limit`` rows on a terminal, or nothing without rows. If ``is_grouped``, the first
        two cells are omitted where they equal those of the row above."""
        if self.rows:
            rows = self._cells(page, limit)
            if is_grouped:
                repeats = [False, *(row[:2] == above[:2] for above, row in pairwise(rows))]
                rows = [
                    ["", "", *row[2:]] if repeat else row for row, repeat in zip(rows, repeats, strict=True)
                ]
            page.table(self.headers, rows, figures=self.figures, solid=tuple(solid), indent=indent)

    def fits(self, page: Page, limit: int | None = None, *, indent: int = 2) -> bool:
        """Return whether a terminal shows every row without wrapping."""
        return not self.rows or page.has_room(self.headers, self._cells(page, limit), indent=indent)

    def _cells(self, page: Page, limit: int | None) -> list[list[str | Cell]]:
        return [[_terminal_cell(page, value, self.is_loud) for value in row] for row in self.rows[:limit]]

    def markdown(self, limit: int | None = None) -> str:
        """Return the first ``limit`` rows as Markdown, or nothing without rows."""
        if not self.rows:
            return ""
        headers = [header.replace("\n", " ") for header in self.headers]
        rows = [[markdown_cell(value) for value in row] for row in self.rows[:limit]]
        return markdown(headers, rows, figures=self.figures)


def _terminal_cell(page: Page, value: Value, is_loud: bool) -> str | Cell:
    match value:
        case Cell(text, style) | Name(text, style):
            return Cell(text, style)
        case Change(before, after):
            return f"{before} {page.arrow} {after}"
        case After(inner):
            return Cell(f"{page.arrow} {inner.text}", inner.style)
        case Amount(value=number, at_risk=at_risk) if is_loud:
            some = "bold red" if number is None or at_risk else "bold yellow"
            return Cell(value.text, "dim" if number == 0 else some)
        case Share(part=part) if is_loud:
            return Cell(value.text, "bold red" if value.text == UNKNOWN else "" if part else "dim")
        case _:
            return value.text


def markdown_cell(value: Value) -> str:
    match value:
        case Name(text):
            return code(text) if text else ""
        case Folder():
            return code(value.text)
        case After(inner):
            return f"**{markdown_cell(inner)}**"
        case Cell(text) | Cost(text):
            return prose(text)
        case Amount() | Share() if value.text == UNKNOWN:
            return f"**{UNKNOWN}**"
        case _:
            return value.text


def csv_text(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return CSV with a header and rows. None becomes an empty cell, and booleans become ``true`` or
    ``false``."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(_csv_cell, row) for row in rows)
    return text.getvalue()


_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""The last four are the full-width forms, which some spreadsheets also read as a formula."""


def _csv_cell(value: object) -> str | int:
    """Return a cell that no spreadsheet reads as a formula, because strangers choose the names."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = "" if value is None else safe(str(value).lower() if isinstance(value, bool) else str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


def markdown_failures(failed: Mapping[str, Json], what: str) -> str:
    """Return the repositories that failed: what was not done, why, and what to do."""
    return "".join(
        f"\n#### {code(key)}: {what}\n{prose(error['message'])}\n"
        + (f"\n{prose(error['hint'])}\n" if error["hint"] else "")
        for key, error in failed.items()
    )
