"""Sentences of documents and the tests that show them, by name: ``file::name``, files below ``tests``."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent


@cache
def tests_of(file: str) -> frozenset[str]:
    """Names of the tests in a file, in classes too."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith(("it_", "test_"))
    )


def missing(names: Sequence[str]) -> list[str]:
    """Those that are no test any more."""
    return [n for n in names if n.partition("::")[2] not in tests_of(n.partition("::")[0])]
