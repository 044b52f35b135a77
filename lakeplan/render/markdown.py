"""Markdown for comments on GitHub and GitLab, out of text that other people wrote.

A comment runs under a bot's rights: a name in it must not mention a person, refer to an issue, become a link,
close a table cell or hide what follows. Names are ``<code>`` elements with character references (hosts look
for mentions nowhere in them); prose gets references for what marks text up, and a zero-width space between
a sigil and the word behind it. No line of a comment begins with such text, so none is a quick action.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from lakeplan.render.clean import safe

_IN_CODE = frozenset("\\`*_{}[]<>#!|~@&$^%")
_IN_PROSE = frozenset("\\`*_[]<>|~@#&$^")
_SIGILS = frozenset("@#!~%&$^")
_BREAK = "&#8203;"


def code(text: str) -> str:
    """A name, exactly as it is, in code type."""
    shown = "".join(_reference(c) if c in _IN_CODE else c for c in safe(text))
    return f"<code>{_no_link(shown)}</code>"


def prose(text: str) -> str:
    """A sentence that may hold names."""
    shown, clean = [], safe(text)
    for at, character in enumerate(clean):
        following = clean[at + 1 : at + 2]
        shown.append(_reference(character) if character in _IN_PROSE else character)
        if character in _SIGILS and (following.isalnum() or following in ('"', "'", "_")):
            shown.append(_BREAK)
    return _no_link("".join(shown))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, figures: Container[int] = ()) -> str:
    """A table of cells that are Markdown already; columns in ``figures`` stand right."""
    rule = ["---:" if i in figures else "---" for i in range(len(headers))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (headers, rule, *rows))


def folded(title: str, body: str) -> str:
    """Details that open on a click. ``title`` is Markdown of one line, ``body`` of whole lines."""
    return f"<details><summary>{title}</summary>\n\n{body}\n</details>\n"


def length(text: str) -> int:
    """What a host may count at most: bytes of UTF-8 are never fewer than characters or UTF-16 units."""
    return len(text.encode())


def _reference(character: str) -> str:
    return f"&#{ord(character)};"


def _no_link(text: str) -> str:
    return text.replace("://", "&#58;//").replace("www.", "www&#46;").replace("WWW.", "WWW&#46;")
