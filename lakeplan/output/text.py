"""Text for people: other people's text made harmless, amounts, money, JSON."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from rich.segment import Segment

from lakeplan.values.desired import Price

# Control, format (bidirectional overrides, zero width), surrogate, private, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_ORDER = re.compile(r"^(\s*):(?=:)")
"""GitHub's runner treats a line that begins with it as a command, on either stream."""
_OLD_ORDER = re.compile(r"#(?=#[A-Za-z]*\[)")
"""Other runners do so anywhere in a line: ``##[add-mask]``, ``##vso[task.setvariable …]``."""
_JSON_ORDER = re.compile(r"##(?=[A-Za-z]*\[)")


def safe(text: str, encoding: str = "utf-8") -> str:
    """``text`` in one line, with every character escaped that must not be acted on or cannot be written."""
    shown = "".join(_escape(c) if unicodedata.category(c) in _UNSAFE else c for c in text)
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def safe_lines(text: str, encoding: str = "utf-8") -> str:
    """Prose of several lines for a terminal or a log: each line ``safe`` and no command for a runner."""
    return "\n".join(_no_order(safe(line, encoding)) for line in text.split("\n"))


def safe_segments(line: Sequence[Segment]) -> list[Segment]:
    """One line of a page that is ``safe`` already: no command for a runner."""
    found, begun = [], False
    for segment in line:
        text = _OLD_ORDER.sub(r"\\x23", segment.text)
        text = text if begun else _ORDER.sub(r"\1\\x3a", text)
        begun = begun or bool(segment.text.strip())
        found.append(segment._replace(text=text))
    return found


def safe_output(text: str) -> str:
    """A whole file of lines, such as XML or Markdown: no character that ``safe`` would escape is left."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _UNSAFE else _escape(c) for c in text)


def safe_json(text: str) -> str:
    """The same JSON document, with such characters as JSON writes them, and no command for a runner."""
    shown = "".join(
        c if c == "\n" or unicodedata.category(c) not in _UNSAFE else _json_escape(c) for c in text
    )
    return _JSON_ORDER.sub("#\\\\u0023", shown)


def _no_order(line: str) -> str:
    return _OLD_ORDER.sub(r"\\x23", _ORDER.sub(r"\1\\x3a", line))


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
    """``1204331`` as ``1,204,331``."""
    return f"{value:,}"


def count_of(value: int, noun: str, plural: str = "") -> str:
    """A count with its noun: ``1 object``, ``2 objects``, ``3 repositories``."""
    if value == 1:
        return f"1 {noun}"
    return f"{count(value)} {plural or _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("y"):
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith("ch") else "s")


def size(value: int) -> str:
    """Bytes in decimal units with one decimal: ``999 B``, ``1.0 kB``, ``3.1 TB``."""
    if abs(value) < 1000:
        return f"{value} B"
    power = 1
    while power < len(_UNITS) and abs(round(value / 1000**power, 1)) >= 1000:
        power += 1  # by what is shown: 999,950 bytes are 1.0 MB, not 1000.0 kB
    return f"{value / 1000**power:,.1f} {_UNITS[power - 1]}"


def percent(part: int, whole: int) -> str:
    """``part`` of ``whole`` with one decimal; a part of nothing is everything, nothing of it is ``0 %``."""
    if part <= 0:
        return "0 %"
    if part >= whole:
        return "100 %"
    share = round(100 * part / whole, 1)
    if share <= 0:
        return "<0.1 %"
    return ">99.9 %" if share >= 100 else f"{share:.1f} %"


def days(value: int) -> str:
    """Retention days: ``1 day``, ``21 days``. Nonsense a server stored is shown as it is."""
    return f"{value} day" if value == 1 else f"{value:,} days"


def moment(value: str | datetime) -> str:
    """A time in UTC to the minute: ``2026-03-31T12:00Z``. Takes ISO 8601 text (UTC unless it says
    otherwise) or a datetime; text that is no time is given back as it is."""
    if isinstance(value, datetime):
        time = value
    else:
        try:
            time = datetime.fromisoformat(value.replace("Z", "+00:00"))
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
    """The money of one part. ``mixed``: it is a row among those of several servers, whose column is there
    for all, and empty where there is no price."""

    price: Price | None = None
    mixed: bool = False

    @classmethod
    def of(cls, part: Json, *, mixed: bool = False) -> Money:
        price = part.get(KEY)
        return cls(None if price is None else Price(price["amount"], price["currency"]), mixed)

    @property
    def shown(self) -> bool:
        """Whether there is a column."""
        return self.mixed or self.price is not None

    def header(self, between: str = "\n") -> tuple[str, ...]:
        """The column's header, or no column. The currency stands in it where all rows have the same."""
        currency = self.price.currency if self.price is not None and not self.mixed else ""
        return (between.join(part for part in (currency, "a month") if part),) if self.shown else ()

    def cells(self, size_bytes: int | None) -> tuple[str, ...]:
        """The column's cell, or no column."""
        if not self.shown:
            return ()
        if self.price is None:
            return ("",)
        if size_bytes is None:
            return (UNKNOWN,)
        return (money(self.price.monthly(size_bytes), self.price.currency if self.mixed else ""),)

    def words(self, size_bytes: int | None) -> str:
        """``, 71.30 USD a month`` behind a figure of bytes; "" without a price or bytes."""
        if self.price is None or not size_bytes:
            return ""
        return f", {money(self.price.monthly(size_bytes), self.price.currency)} a month"


NO_MONEY = Money()


def priced(parts: Iterable[Json]) -> bool:
    """Whether a table of these has money in it."""
    return any(part.get(KEY) is not None for part in parts)


def known(value: int | None, form: Callable[[int], str] = count) -> str:
    """A figure, or that it is unknown."""
    return UNKNOWN if value is None else form(value)


def amounts(part: Json, cost: Money = NO_MONEY) -> list[str]:
    """The cells of ``objects``, ``size_bytes`` and, where there is a price, money."""
    size_bytes = part["size_bytes"]
    return [known(part["objects"]), known(size_bytes, size), *cost.cells(size_bytes)]


def volume(part: Json, cost: Money = NO_MONEY) -> str:
    """``2 objects, 3.1 TB, 71.30 USD a month``: the same in a sentence."""
    size_bytes = part["size_bytes"]
    return f"{count_of(part['objects'], 'object')}, {size(size_bytes)}{cost.words(size_bytes)}"


def money(value: float, currency: str) -> str:
    """Two decimals; what is not nothing never reads 0.00."""
    shown = "<0.01" if 0 < value < 0.005 else f"{value:,.2f}"
    return f"{shown} {currency}".rstrip()


def sums(costs: Iterable[Json], key: str) -> str:
    """``, 62.00 EUR and 71.30 USD a month`` of a summary's costs; "" without any."""
    found = [money(cost[key], cost["currency"]) for cost in costs if cost[key]]
    return f", {' and '.join(found)} a month" if found else ""


def json_text(document: Mapping[str, Any], *, encoding: str = "utf-8") -> str:
    """Sorted keys, two blanks of indent, a newline at the end; can be written in ``encoding``."""
    return json_for(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding)


def json_for(text: str, encoding: str) -> str:
    """JSON text with what ``encoding`` cannot write as JSON escapes: the same document, in any terminal."""
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


def csv_text(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A header and a line for each row. None is empty; truth is ``true`` or ``false``."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(_csv_cell, row) for row in rows)
    return text.getvalue()


_FORMULA = ("=", "+", "-", "@")


def _csv_cell(value: object) -> str | int:
    """Names are other people's: none may become a formula of a spreadsheet."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = "" if value is None else safe(str(value).lower() if isinstance(value, bool) else str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text
