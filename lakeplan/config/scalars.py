"""What a plain YAML scalar means here: YAML 1.2's core schema, and no surprises of YAML 1.1.

``on``, ``off``, ``yes`` and ``no`` are booleans to YAML 1.1 readers and text to 1.2 readers; ``010`` is 8 to
one and 10 to the other. Such a scalar is never given a value silently: see ``SURPRISES`` and ``Ambiguous``.
Dates stay text. Whole numbers may have single underscores between digits (``10_000_000``).
"""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

SURPRISES = frozenset({"on", "off", "yes", "no"})
"""Words (in any case) that other YAML readers take for true or false."""

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+", re.ASCII)
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_MAX_DIGITS = 30


class Ambiguous(ValueError):
    """A scalar that YAML readers disagree about. The message says how to write it."""


def resolve_plain(text: str) -> Scalar:
    """The value of an unquoted scalar. Raises Ambiguous where readers disagree."""
    if text in NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _LEADING_ZERO.fullmatch(text):
        raise Ambiguous(
            f"YAML readers disagree about {text}: write the number without leading zeros, or put it in quotes"
        )
    if len(text) > _MAX_DIGITS:
        return text
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def is_surprise(text: str) -> bool:
    """True for an unquoted word that is text here and true or false to other readers."""
    return text.lower() in SURPRISES
