"""Other people's text made harmless for whatever shows it: terminals, logs, comments, pages, collectors.

Messages of servers, names, paths, YAML, what git and Java print: each of them may come from somebody who
wants to move the cursor, hide or reorder text, or give the runner of a workflow a command.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from rich.segment import Segment

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
