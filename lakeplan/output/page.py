"""Building blocks of output: headings, lines and tables on a terminal, and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from lakeplan.output.text import count, safe, safe_segments
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.values.documents import ErrorRow

_NARROWEST = 40
_NAME_WIDTH = 14
"""The minimum width of a column of names before columns of figures may be folded."""


@dataclass(frozen=True)
class Cell:
    """Words in a style."""

    text: str
    style: str = ""


@dataclass
class Page:
    """Output on a terminal. Every string is escaped, because strangers may have written it."""

    console: Console
    _begun: bool = field(default=False, init=False, repr=False)

    @property
    def arrow(self) -> str:
        return "->" if self.console.options.ascii_only else "→"

    @property
    def width(self) -> int:
        """The number of cells in a line. A terminal that is too narrow for tables gets longer lines, which it
        wraps."""
        return max(self.console.width, _NARROWEST)

    def text(self, value: str, style: str = "") -> Text:
        return Text(safe(value, self.console.encoding), style=style, overflow="fold")

    def join(self, *parts: str | Cell) -> Text:
        """Return the parts as one text, each in its style."""
        whole = Text(overflow="fold")
        for part in parts:
            cell = part if isinstance(part, Cell) else Cell(part)
            whole.append_text(self.text(cell.text, cell.style))
        return whole

    def heading(self, title: str, note: str = "") -> None:
        """Print a blank line, then the title of a section."""
        self.blank()
        self.line(Cell(title, "bold underline"), Cell(f"  {note}" if note else "", "dim"))

    def line(self, *parts: str | Cell, indent: int = 0) -> None:
        self.show(self.join(*parts), indent=indent)

    def dim(self, text: str, *, indent: int = 2) -> None:
        """Print a dimmed line."""
        self.line(Cell(text, "dim"), indent=indent)

    def labelled(self, label: str, style: str, text: str, *, indent: int = 2) -> None:
        """Print ``FAILED why`` with the label in its style."""
        self.line(Cell(label, style), f" {text}", indent=indent)

    def total(self, label: str, text: str) -> None:
        """Print the summary after a blank line."""
        self.blank()
        self.labelled(label, "bold", text, indent=0)

    def failed(self, failed: Mapping[str, ErrorRow], what: str) -> None:
        """Print each repository that failed: ``what`` was not done, why, and what to do."""
        for key, error in failed.items():
            self.heading(key, what)
            self.failure(error["message"], hint=error["hint"], indent=2)

    def failure(self, *lines: str | Cell | Text, hint: str = "", indent: int = 0) -> None:
        """Print what failed, why, and what to do."""
        shown = [line if isinstance(line, Text) else self.join(line) for line in lines]
        if hint:
            shown.append(self.join(Cell("hint: ", "dim"), hint))
        self.hanging(Cell("x", "bold red"), *shown, indent=indent)

    def warnings(self, texts: Iterable[str], *, indent: int = 0) -> None:
        for text in texts:
            self.hanging(Cell("!", "bold yellow"), text, indent=indent)

    def facts(self, facts: Mapping[str, str], *, lead_width: int = 0) -> None:
        """Print names and values, one per line. Empty values are omitted."""
        for name, value in facts.items():
            if value:
                self.hanging(Cell(name, "dim"), value, indent=2, lead_width=lead_width)

    def rest(
        self, total: int, limit: int | None, where: str = "", *, noun: str = "", indent: int = 2
    ) -> None:
        """Print how many rows a table of ``limit`` rows omits, if any: ``and 2 more tags in the plan file``
        for the noun ``tag``."""
        if limit is not None and total > limit:
            left = count_of(total - limit, f"more {noun}") if noun else f"{count(total - limit)} more"
            self.dim(f"and {left} {where}".rstrip().replace(" ;", ";"), indent=indent)

    def show(self, what: RenderableType, *, indent: int = 0) -> None:
        padded = Padding(what, (0, 0, 0, indent), expand=False) if indent else what
        self.console.print(_Lines(padded), crop=False)
        self._begun = True

    def blank(self) -> None:
        """Print an empty line, except at the top."""
        if self._begun:
            self.console.print()

    def hanging(self, lead: Cell, *lines: Text | str, indent: int = 0, lead_width: int = 0) -> None:
        """Print lines that are all aligned to the right of ``lead``, wrapped or not."""
        table = Table.grid(Column(min_width=lead_width), Column(overflow="fold"), padding=(0, 2, 0, 0))
        for number, line in enumerate(lines):
            shown = line if isinstance(line, Text) else self.text(line)
            table.add_row(self.text(lead.text, lead.style) if not number else Text(), shown)
        self.show(table, indent=indent)

    def table(
        self,
        headers: Sequence[str],
        rows: Iterable[Sequence[str | Cell]],
        *,
        figures: Container[int] = (),
        solid: Container[int] = (),
        indent: int = 2,
    ) -> None:
        """Print a table without rules. Headers may have several lines. Columns in ``figures`` are aligned
        right. They and the columns in ``solid`` keep their width while the others fold. If the table is still
        too wide, they fold too, so that no figure is ever cut. Empty columns are omitted."""
        lines = [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in rows]
        used = [i for i, header in enumerate(headers) if header or any(row[i].text.strip() for row in lines)]
        firm = {i for i in used if i in figures or i in solid}
        widths = {i: self._width(headers[i], [row[i].text for row in lines]) for i in used}
        wanted = (widths[i] if i in firm else min(widths[i], _NAME_WIDTH) for i in used)
        fits = indent + sum(wanted) + 2 * (len(used) - 1) <= self.width
        columns = [
            Column(
                Text("\n").join(self.text(line) for line in headers[i].split("\n")),
                justify="right" if i in figures else "left",
                no_wrap=fits and i in firm,
                overflow="fold",
            )
            for i in used
        ]
        titled = any(headers)
        table = Table(
            *columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=titled
        )
        for row in lines:
            table.add_row(*(self.text(row[i].text, row[i].style) for i in used))
        self.show(table, indent=indent)

    def has_room(
        self, headers: Sequence[str], rows: Sequence[Sequence[str | Cell]], *, indent: int = 2
    ) -> bool:
        """Whether ``table`` would print these rows without folding any."""
        columns = [
            (header, [cell.text if isinstance(cell, Cell) else cell for cell in cells])
            for header, cells in zip(headers, zip(*rows, strict=True), strict=True)
        ]
        widths = [self._width(header, texts) for header, texts in columns if header or any(texts)]
        return indent + sum(widths) + 2 * (len(widths) - 1) <= self.width

    def _width(self, header: str, texts: Iterable[str]) -> int:
        return max([*map(len, header.split("\n")), *(self.text(text).cell_len for text in texts)])


@dataclass(frozen=True)
class _Lines:
    """Content that is laid out at least as wide as a table needs. The spaces with which rich fills the ends
    of lines are removed, because logs and files would keep them."""

    content: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.update_width(max(options.max_width, _NARROWEST))
        for line in Segment.split_lines(console.render(self.content, wide)):
            yield from safe_segments(_without_blanks_at_the_end(line))
            yield Segment.line()


def _without_blanks_at_the_end(line: list[Segment]) -> list[Segment]:
    while line and not line[-1].text.rstrip(" "):
        line = line[:-1]
    if not line:
        return []
    return [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip(" "))]


def names(values: Sequence[str], limit: int | None = None, form: Callable[[str], str] = str) -> str:
    """Return all names, each in its ``form``, or the first ``limit`` names and the number of the others."""
    return names_of(values[:limit], len(values), form)


def names_of(shown: Sequence[str], total: int, form: Callable[[str], str] = str) -> str:
    """Return these names, and how many others of ``total`` there are."""
    more = f" and {count(total - len(shown))} more" if total > len(shown) else ""
    return ", ".join(map(form, shown)) + more


_IN_CODE = frozenset("\\`*_{}[]<>#!|~@&$^%")
_IN_PROSE = frozenset("\\`*_[]<>|~@#&$^")
_SIGILS = frozenset("@#!~%&$^")
_BREAK = "&#8203;"


def code(text: str) -> str:
    """Return a name as Markdown code."""
    shown = "".join(_reference(c) if c in _IN_CODE else c for c in safe(text))
    return f"<code>{_no_link(shown)}</code>"


def prose(text: str) -> str:
    """Return a sentence as Markdown without mentions, links or formatting. GitLab would run a line that
    begins with a slash as a command."""
    shown, clean = [], safe(text)
    for at, character in enumerate(clean):
        following = clean[at + 1 : at + 2]
        is_command = at == 0 and character == "/"
        shown.append(_reference(character) if character in _IN_PROSE or is_command else character)
        if character in _SIGILS and (following.isalnum() or following in ('"', "'", "_")):
            shown.append(_BREAK)
    return _no_link("".join(shown))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, figures: Container[int] = ()) -> str:
    """Return a table of cells that are already Markdown. Columns in ``figures`` are aligned right."""
    rule = ["---:" if i in figures else "---" for i in range(len(headers))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (headers, rule, *rows))


def markdown_failures(failed: Mapping[str, ErrorRow], what: str) -> str:
    """Return the repositories that failed: what was not done, why, and what to do."""
    return "".join(
        f"\n#### {code(key)}: {what}\n{prose(error['message'])}\n"
        + (f"\n{prose(error['hint'])}\n" if error["hint"] else "")
        for key, error in failed.items()
    )


def folded(title: str, body: str) -> str:
    """Return details that open on a click. ``title`` is one line of Markdown, and ``body`` is complete
    lines."""
    return f"<details><summary>{title}</summary>\n\n{body}\n</details>\n"


def length(text: str) -> int:
    """Return the size of a text in bytes. A host may count characters or UTF-16 units, of which there are
    never more."""
    return len(text.encode())


def _reference(character: str) -> str:
    return f"&#{ord(character)};"


def _no_link(text: str) -> str:
    return text.replace("://", "&#58;//").replace("www.", "www&#46;").replace("WWW.", "WWW&#46;")
