"""A document as JSON text: what ``--format json`` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


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
