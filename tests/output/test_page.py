from __future__ import annotations

import io
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lakeplan.output.text import Cell, Page, names, safe

ANY = st.text(st.characters() | st.characters(categories=["Cs", "Cc", "Cf"]), max_size=30)


def printed(width: int, use: Any) -> str:
    stream = io.StringIO()
    use(Page(Console(file=stream, width=width, highlight=False)))
    return stream.getvalue()


@given(ANY, st.sampled_from(["utf-8", "ascii", "latin-1", "cp1252", "shift_jis"]))
def it_makes_any_text_printable_in_any_encoding(text: str, encoding: str) -> None:
    shown = safe(text, encoding)
    shown.encode(encoding)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)


BLANK = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and symbols that look like nothing."""


@given(st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters=BLANK), max_size=30))
def it_leaves_readable_text_as_it_is(text: str) -> None:
    assert safe(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\u202ereversed", r"\u202ereversed"),
        ("\x9b", r"\x9b"),
        ("\udcff", r"\udcff"),
        ("\u200bhidden", r"\u200bhidden"),
        ("\U000e0041", r"\U000e0041"),
        ("v1.0\u3164", r"v1.0\u3164"),
        ("main\ufe0f", r"main\ufe0f"),
    ],
)
def it_escapes_what_a_terminal_would_act_on(text: str, shown: str) -> None:
    assert safe(text) == shown


@given(ANY)
def it_prints_markup_and_emoji_codes_as_they_are(text: str) -> None:
    value = f"[bold]{text}[/]:smile:"
    assert safe(value).strip() in printed(500, lambda page: page.line(value)).replace("\n", " ")


@pytest.mark.parametrize("width", [12, 30, 79])
def it_cuts_no_figure_in_a_table(width: int) -> None:
    figures = [str(n) * 9 for n in range(1, 6)]
    text = printed(width, lambda page: page.table(("", *"abcde"), [["name", *figures]], figures=range(1, 6)))
    assert all(text.count(f[0]) == 9 for f in figures)


def it_ends_every_line_where_its_text_ends() -> None:
    def use(page: Page) -> None:
        page.table(("name", "note"), [["a", "of some length"], [Cell("b", "bold"), ""]])
        page.hanging(Cell("lead"), page.text("one  "), page.text("another line"), indent=2)

    lines = printed(60, use).split("\n")
    assert [line for line in lines if line != line.rstrip()] == []
    assert lines[1:] == ["  a     of some length", "  b", "  lead  one", "        another line", ""]


def it_folds_names_before_figures() -> None:
    row = ["n" * 100, "1,204,331", "3.1 TB"]
    text = printed(60, lambda page: page.table(("name", "objects", "bytes"), [row], figures=(1, 2)))
    assert "1,204,331  3.1 TB" in text
    assert text.count("n") >= 100


def it_leaves_out_columns_with_nothing_in_them() -> None:
    text = printed(60, lambda page: page.table(("a", "", "b"), [["1", Cell(""), "2"]]))
    assert "1  2" in text


def it_shortens_lists_of_names_only_when_asked() -> None:
    assert names(["a", "b", "c"]) == "a, b, c"
    assert names(["a", "b", "c"], 3) == "a, b, c"
    assert names(["a", "b", "c"], 1) == "a and 2 more"


@pytest.mark.parametrize(
    ("left", "noun", "where", "text"),
    [
        (1, "", "", "and 1 more"),
        (1200, "", "in the plan file", "and 1,200 more in the plan file"),
        (1, "last commit", "", "and 1 more last commit"),
        (2, "prefix", "", "and 2 more prefixes"),
        (1, "branch", "in the plan file", "and 1 more branch in the plan file"),
        (2, "branch", "; see JSON", "and 2 more branches; see JSON"),
    ],
)
def it_says_how_many_rows_it_leaves_out(left: int, noun: str, where: str, text: str) -> None:
    assert printed(80, lambda page: page.rest(left + 5, 5, where, noun=noun)).strip() == text
