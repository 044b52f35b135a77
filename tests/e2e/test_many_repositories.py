"""A tree of very many repositories: the output stays short, and totals are easy to find."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lakeplan.output.comments import COMMENT_LIMIT

COUNT = 200
CHANGED = COUNT // 2
NAMES = [f"data-{number:03}" for number in range(COUNT)]
SUMMARY = f"Plan: 0 to add, {CHANGED} to change, 0 to clear, {COUNT - CHANGED} unchanged."


@pytest.fixture
def many(world: Any) -> Any:
    """Half of the repositories keep on the server what the tree asks for, half keep longer."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(world.api.repository, NAMES))
        list(pool.map(lambda name: world.api.set_rules(name, 30), NAMES[:CHANGED]))
        list(pool.map(lambda name: world.api.set_rules(name, 21), NAMES[CHANGED:]))
    entries = "".join(f"  {name}: {{gc: {{default_retention_days: 21}}}}\n" for name in NAMES)
    world.write("repositories/all.yaml", f"apiVersion: lakeplan/v1\nrepositories:\n{entries}")
    return world


def it_validates_in_one_line(many: Any) -> None:
    result = many.lakeplan("validate")
    valid = f"The tree is valid: {COUNT} repositories by name and 0 globs on 1 server, in 2 files.\n"
    assert (result.code, result.out) == (0, valid)


def it_plans_with_the_sum_where_people_look_first(many: Any) -> None:
    comment = many.folder / "comment.md"
    result = many.lakeplan("plan", "--no-simulate", "--format", "markdown", "--out", comment)
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[-1].startswith(SUMMARY), "on a terminal the end is in sight"
    assert len(lines) < CHANGED // 2
    assert all(f"prod/{name}" in result.out for name in NAMES[:CHANGED])
    assert not any(name in result.out for name in NAMES[CHANGED:])
    text = comment.read_text(encoding="utf-8")
    assert SUMMARY in text.splitlines()[1], "a comment begins with it, below its marker"
    assert len(text) <= COMMENT_LIMIT
