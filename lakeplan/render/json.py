"""A document as JSON text: what ``--format json`` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def json_text(document: Mapping[str, Any], *, encoding: str = "utf-8") -> str:
    """Sorted keys, two blanks of indent, a newline at the end. Other than UTF-8, and for text that is not
    UTF-8 itself, characters are written as JSON escapes: the result can be written in any encoding."""
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=not encoding.lower().startswith("utf"))
    return text.encode("utf-8", "backslashreplace").decode() + "\n"
