"""Text for people: makes text from strangers harmless, formats amounts and JSON, and builds what terminals
and Markdown show: headings, lines and tables."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from lakeplan.values.desired import Price
from lakeplan.values.records import moment_in
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.values.documents import ErrorRow


# Control, format (bidirectional overrides, zero width), surrogate, private, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_INVISIBLE = frozenset(
    chr(code)
    for first, last in (
        *((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800)),
        *((0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF)),
    )
    for code in range(first, last + 1)
)
"""Fillers and variation selectors, which are letters, marks or symbols in Unicode. With such a character, a
name looks like a different name."""
_MARKS, _MOST_MARKS = frozenset({"Mn", "Me"}), 4
"""Marks over, under and around a letter. More marks than any script needs on one letter cover the lines
around it."""
_COMMAND = re.compile(r"^(\s*):(?=:)")
"""GitHub's runner runs a line that begins with two colons as a command, on either stream."""
_MARKED_COMMAND = re.compile(r"#(?=#[A-Za-z]*\[)")
"""Other runners find commands anywhere in a line: ``##[add-mask]``, ``##vso[task.setvariable …]``."""
_JSON_COMMAND = re.compile(r"##(?=[A-Za-z]*\[)")


def safe(text: str, encoding: str = "utf-8") -> str:
    """Return ``text`` on one line, without characters that a terminal acts on or ``encoding`` lacks."""
    return _escaped(text, _escape).encode(encoding, "backslashreplace").decode(encoding)


def safe_lines(text: str, encoding: str = "utf-8") -> str:
    """Return text of several lines for a terminal or a log. No line is a command for a CI runner."""
    return "\n".join(_no_command(safe(line, encoding)) for line in text.split("\n"))


def safe_segments(line: Sequence[Segment]) -> list[Segment]:
    """Return a line, which is already ``safe``, in a form that no CI runner reads as a command."""
    safe_ones, begun = [], False
    for segment in line:
        text = _MARKED_COMMAND.sub(r"\\x23", segment.text)
        text = text if begun else _COMMAND.sub(r"\1\\x3a", text)
        begun = begun or bool(segment.text.strip())
        safe_ones.append(segment._replace(text=text))
    return safe_ones


def safe_output(text: str) -> str:
    """Return the text of a file, such as XML or Markdown, with every unsafe character escaped."""
    return _escaped(text, _escape, kept="\n\t")


def safe_json(text: str) -> str:
    """Return the same JSON document with unsafe characters as JSON escapes, and without commands for a CI
    runner."""
    return _JSON_COMMAND.sub("#\\\\u0023", _escaped(text, _json_escape, kept="\n"))


def _escaped(text: str, escape: Callable[[str], str], kept: str = "") -> str:
    shown, marks = [], _MOST_MARKS  # a mark at the beginning would be drawn over what precedes the text
    for character in text:
        kind = unicodedata.category(character)
        marks = marks + 1 if kind in _MARKS else 0
        unsafe = kind in _UNSAFE or character in _INVISIBLE or marks > _MOST_MARKS
        shown.append(escape(character) if unsafe and character not in kept else character)
    return "".join(shown)


def _no_command(line: str) -> str:
    return _MARKED_COMMAND.sub(r"\\x23", _COMMAND.sub(r"\1\\x3a", line))


def _escape(character: str) -> str:
    code = ord(character)
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


UNKNOWN = "unknown"
_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def count(value: int) -> str:
    """An integer with thousands separators: ``1,204,331`` for ``1204331``."""
    return f"{value:,}"


def size(value: int) -> str:
    """Bytes in decimal units with one decimal: ``999 B``, ``1.0 kB``, ``3.1 TB``."""
    if abs(value) < 1000:
        return f"{value} B"
    power = 1
    while power < len(_UNITS) and abs(round(value / 1000**power, 1)) >= 1000:
        power += 1  # by the rounded value: 999,950 bytes are 1.0 MB, not 1000.0 kB
    return f"{value / 1000**power:,.1f} {_UNITS[power - 1]}"


def percent(part: int, whole: int) -> str:
    """Return ``part`` as a percentage of ``whole`` with one decimal, or ``0 %`` if ``part`` is zero."""
    if part <= 0:
        return "0 %"
    if part >= whole:
        return "100 %"
    share = round(100 * part / whole, 1)
    if share <= 0:
        return "<0.1 %"
    return ">99.9 %" if share >= 100 else f"{share:.1f} %"


def days(value: int) -> str:
    """Retention days: ``1 day``, ``21 days``. Impossible values of a server are shown as they are."""
    return f"{value} day" if value == 1 else f"{value:,} days"


def moment(value: str | datetime) -> str:
    """A time in UTC to the minute: ``2026-03-31T12:00Z``. Text is ISO 8601, in UTC if it has no time zone.
    Any other text is returned unchanged."""
    if isinstance(value, datetime):
        time = value
    else:
        try:
            time = moment_in(value)
        except ValueError:
            return value
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%MZ")


def duration(seconds: float) -> str:
    """``0.4 s``, ``45 s``, ``3 min 05 s``, ``2 h 10 min``, ``3 d 4 h``."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400:,} d {whole % 86400 // 3600} h"


Json = Mapping[str, Any]
KEY = "cost_per_gb_month"


@dataclass(frozen=True)
class Money:
    """The price of the bytes in a part of a document. If ``mixed``, the part is a row in a table of several
    servers. All rows have the column, which is empty for servers without a price."""

    price: Price | None = None
    mixed: bool = False

    @classmethod
    def of(cls, part: Json, *, mixed: bool = False) -> Money:
        price = part.get(KEY)
        return cls(None if price is None else Price(price["amount"], price["currency"]), mixed)

    @property
    def shown(self) -> bool:
        """Whether a table has the column."""
        return self.mixed or self.price is not None

    def header(self, between: str = "\n") -> tuple[str, ...]:
        """The column's header, with the currency if all rows have the same, or nothing without a column."""
        currency = self.price.currency if self.price is not None and not self.mixed else ""
        return (between.join(part for part in (currency, "a month") if part),) if self.shown else ()

    def cells(self, size_bytes: int | None) -> tuple[str, ...]:
        """The column's cell, or nothing without a column."""
        if not self.shown:
            return ()
        if self.price is None:
            return ("",)
        if size_bytes is None:
            return (UNKNOWN,)
        return (money(self.price.monthly(size_bytes), self.price.currency if self.mixed else ""),)

    def words(self, size_bytes: int | None) -> str:
        """Return ``, 71.30 USD a month``, to follow a figure of bytes, or "" without a price or bytes."""
        if self.price is None or not size_bytes:
            return ""
        return f", {money(self.price.monthly(size_bytes), self.price.currency)} a month"


NO_MONEY = Money()


def priced(parts: Iterable[Json]) -> bool:
    """Whether a table of these parts has a column of money."""
    return any(part.get(KEY) is not None for part in parts)


def known(value: int | None, form: Callable[[int], str] = count) -> str:
    """A figure in its ``form``, or ``unknown``."""
    return UNKNOWN if value is None else form(value)


def amounts(part: Json, cost: Money = NO_MONEY) -> list[str]:
    """The cells of ``objects``, ``size_bytes`` and, where there is a price, money."""
    size_bytes = part["size_bytes"]
    return [known(part["objects"]), known(size_bytes, size), *cost.cells(size_bytes)]


def volume(part: Json, cost: Money = NO_MONEY) -> str:
    """Objects, bytes and money in a sentence: ``2 objects, 3.1 TB, 71.30 USD a month``."""
    size_bytes = part["size_bytes"]
    return f"{count_of(part['objects'], 'object')}, {size(size_bytes)}{cost.words(size_bytes)}"


def money(value: float, currency: str) -> str:
    """An amount with two decimals. An amount above zero is never shown as 0.00."""
    shown = "<0.01" if 0 < value < 0.005 else f"{value:,.2f}"
    return f"{shown} {currency}".rstrip()


def sums(costs: Iterable[Json], key: str) -> str:
    """Return the costs of a summary, ``, 62.00 EUR and 71.30 USD a month``, or ""."""
    amounts = [money(cost[key], cost["currency"]) for cost in costs if cost[key]]
    return f", {' and '.join(amounts)} a month" if amounts else ""


def json_text(document: Mapping[str, Any], *, encoding: str = "utf-8") -> str:
    """Return a document with sorted keys and indents, in characters that ``encoding`` can represent."""
    return json_for(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding)


def json_for(text: str, encoding: str) -> str:
    """Return the same JSON document with escapes for characters that ``encoding`` cannot represent."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(_fitting(character, encoding) for character in text)
    return text


def _fitting(character: str, encoding: str) -> str:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(character)[1:-1]
    return character


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


def cut_lines(text: str, room: int) -> str:
    """Return the first lines that fit, and a note that there are more. This is the last resort."""
    kept, used = [], 0
    note = "\n**Shortened to fit the comment.** The plan file has everything.\n"
    for line in text.splitlines(keepends=True):
        used += length(line)
        if used > room - length(note):
            break
        kept.append(line)
    return "".join(kept) + note
