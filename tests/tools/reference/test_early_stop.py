"""The picture of the early stop says what the verdicts are."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from lakeplan.retention.rules import documented_verdict, server_verdict
from tools.reference.early_stop import AS_OF, LOST, MESSAGES, RULES, early_stop_picture, history


@pytest.mark.parametrize(("message", "kept"), list(zip(MESSAGES, (False, True), strict=True)))
def it_shows_one_order_that_loses_a_commit_and_one_that_keeps_it(message: str, kept: bool) -> None:
    drawn = history(message)
    lost = drawn.graph.index[drawn.ids[LOST]]
    assert documented_verdict(drawn.graph, RULES, AS_OF).active[lost]
    assert bool(server_verdict(drawn.graph, RULES, AS_OF)[lost]) is kept
    assert (drawn.ids["M"] < drawn.ids["F"]) is not kept


def it_changes_one_commit_only() -> None:
    one, other = (history(message).ids for message in MESSAGES)
    assert [letter for letter in one if one[letter] != other[letter]] == ["M"]


def it_is_a_picture_with_both_results_in_words() -> None:
    root = ET.fromstring(early_stop_picture())
    described = root.findtext("{http://www.w3.org/2000/svg}desc") or ""
    assert "but the server does not" in described
    assert "the server keeps it too" in described
    assert len(root.findall(".//{http://www.w3.org/2000/svg}path[@class='at_risk']")) == 2  # legend, P
