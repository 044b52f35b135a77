"""docs/report.md is held against the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakeplan.cli.main import whole_command
from lakeplan.output.report import VERDICTS as SHOWN
from lakeplan.plan.page import MAX_COMMITS, MAX_DETAILED, MAX_DRAWN, VERDICTS

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT))
def it_has_small_pictures(name: str) -> None:
    data = (DOCS / name).read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) < 200_000


def it_explains_every_verdict() -> None:
    assert tuple(SHOWN) == VERDICTS
    for label, _ in SHOWN.values():
        assert f"| {label} |" in TEXT


def it_names_only_options_that_there_are() -> None:
    commands = whole_command().commands
    there = {o for c in ("report", "curve") for p in commands[c].params for o in p.opts}
    assert set(re.findall(r"(?<=[ `])--[a-z][a-z-]+", TEXT)) <= there


def it_knows_the_bounds() -> None:
    assert f"for up to {MAX_DETAILED} repositories, and draws up to {MAX_COMMITS:,} commits" in TEXT
    assert f"and {MAX_DRAWN:,}" in TEXT
