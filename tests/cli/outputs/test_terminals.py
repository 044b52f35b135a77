"""Terminals of other widths and kinds, and none at all."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.outputs.site import Site, Terminal

ESCAPE = "\x1b["
ROOT = Path(__file__).parents[3]


def it_uses_what_a_wide_terminal_has(open_site: Callable[[str], Site]) -> None:
    site = open_site("observed")
    wide = site.lakeplan("branches plan --no-simulate", 200).out
    row = next(line for line in wide.splitlines() if "feature-a-rather-long" in line)
    assert "feature-a-rather-long-name-of-a-branch-about-customers" in row
    assert row.endswith("nothing")
    assert max(map(len, wide.splitlines())) <= 200


def it_cuts_no_figure_on_a_narrow_one(open_site: Callable[[str], Site]) -> None:
    told = open_site("seeded").lakeplan("plan --no-simulate", 60)
    assert told.code == 4
    assert told.out.count("180 days") >= 2
    assert "…" not in told.out


class DescribeColours:
    @pytest.fixture
    def coloured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Terminals say nothing about themselves; the environment does."""
        monkeypatch.setattr("tests.cli.outputs.site.TERM", "xterm-256color")

    @pytest.mark.usefixtures("coloured")
    def it_has_them_on_a_terminal(self, open_site: Callable[[str], Site]) -> None:
        told = open_site("seeded").lakeplan("plan --no-simulate --no-progress", FORCE_COLOR="1")
        assert f"{ESCAPE}3" in told.out

    @pytest.mark.usefixtures("coloured")
    @pytest.mark.parametrize(
        ("more", "environment"),
        [("", {"NO_COLOR": "1"}), (" --no-color", {}), ("", {"LAKEPLAN_NO_COLOR": "1"})],
    )
    def it_has_none_when_asked(
        self, open_site: Callable[[str], Site], more: str, environment: dict[str, str]
    ) -> None:
        told = open_site("seeded").lakeplan(f"plan --no-simulate --no-progress{more}", **environment)
        assert f"{ESCAPE}3" not in told.out
        assert f"{ESCAPE}9" not in told.out


class DescribeWithoutATerminal:
    @pytest.fixture(autouse=True)
    def no_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Terminal, "isatty", lambda _: False)
        monkeypatch.setattr("tests.cli.outputs.site.TERM", "xterm")

    def it_shows_no_bars_and_no_escapes(self, open_site: Callable[[str], Site]) -> None:
        told = open_site("seeded").lakeplan("drift", CI="true")
        assert told.err == ""
        assert ESCAPE not in told.out

    def it_keeps_an_error_on_one_line(self, open_site: Callable[[str], Site]) -> None:
        told = open_site("seeded").lakeplan("plan --allow tag-lost", 40)
        assert [line.partition(":")[0] for line in told.err.splitlines()] == ["error", "hint"]

    @pytest.mark.parametrize(
        "line", ["plan --no-simulate --out plan.json -q", "drift --out drift.json -q", "branches run -q"]
    )
    def it_is_quiet(self, open_site: Callable[[str], Site], line: str) -> None:
        site = open_site("applied")
        told = site.lakeplan(line)
        assert (told.code, told.out, told.err) == (0, "", "")

    def it_still_says_why_it_failed(self, open_site: Callable[[str], Site]) -> None:
        told = open_site("seeded").lakeplan("plan --no-simulate --out plan.json -q")
        assert told.code == 4
        assert told.err.startswith("error: refused by unknown-impact (prod/analytics)")


def it_is_a_plugin_of_lakectl() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["lakectl-lakeplan"] == scripts["lakeplan"]
