from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.tree.structure import edit_distance, nearest

KNOWN = ["default_retention_days", "branches", "file", "gc"]


@pytest.mark.parametrize(
    ("word", "close"),
    [
        ("branchs", "branches"),
        ("brnaches", "branches"),
        ("defaultRetentionDays", "default_retention_days"),
        ("files", "file"),
        ("GC", "gc"),
        ("retention", None),
        ("x", None),
        ("", None),
        ("b" * 500, None),
    ],
)
def it_finds_the_word_that_was_probably_meant(word: str, close: str | None) -> None:
    assert nearest(word, KNOWN) == close


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def it_measures_the_same_both_ways(a: str, b: str) -> None:
    assert edit_distance(a, b, 10) == edit_distance(b, a, 10)
    assert (edit_distance(a, b, 10) == 0) == (a == b)


@given(st.text("abc", max_size=8), st.integers(0, 3), st.integers(0, 7))
def it_counts_one_for_one_deletion(word: str, limit: int, place: int) -> None:
    shorter = word[:place] + word[place + 1 :]
    assert edit_distance(word, shorter, max(limit, 1)) == (len(word) - len(shorter))
