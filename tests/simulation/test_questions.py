"""What is asked of objects: texts are sent early enough, whatever else an object turns out to be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.simulation.engine import CountsOnly, ExpiryInTransitions, ExpiryUnderRules, Naming
from lakeplan.simulation.marking import HeldAgain, Marks
from lakeplan.simulation.runners import Kind
from lakeplan.simulation.table import CODES, NOWHERE, Class, leaf_of
from lakeplan.simulation.verdicts import RuleSetBits, Sighting
from lakeplan.values.simulation import Transition

RULES = (RuleSetBits("rules", 1, 2), RuleSetBits("compare", 4, 8))
QUESTIONS = {
    "simulate": ExpiryUnderRules(RULES, listing=False, rows=True),
    "simulate a listing": ExpiryUnderRules(RULES, listing=True, rows=True),
    "plan": ExpiryInTransitions(Transition(1, 2), Naming("a/b", ((1, 1, 4), (2, 4, 8)))),
    "mark": Marks({}),
    "mark again": HeldAgain(),
}
OWN = [kind for kind in Kind if kind is not Kind.FOREIGN_RANGE]
leaves = st.builds(
    lambda kind, code, mask: leaf_of(kind, code, mask, 0, -1).of,
    st.sampled_from(OWN),
    st.integers(0, CODES - 1),
    st.integers(0, 15),
)


def whole(parts: list[Class]) -> Class:
    found = NOWHERE
    for part in parts:
        found |= part
    return found


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name != "mark again"])
@given(st.lists(leaves, min_size=1, max_size=4))
def test_whatever_may_be_first_of_an_object_has_its_text(name: str, parts: list[Class]) -> None:
    """A text is sent with the first leaf of a pair, and more leaves never make an object less kept. What is
    listed has no path, so an entry is of another pair, and a plan names objects by entries alone."""
    question: Any = QUESTIONS[name]
    if question.takes(whole(parts)):
        firsts = [part for part in parts if name != "plan" or part.flags & Sighting.ENTRY]
        assert firsts
        assert all(question.wants(part) for part in firsts)


@given(st.lists(st.sampled_from([(Kind.MARKED, 2), (Kind.UNCOMMITTED, 6)]), min_size=1, max_size=4))
def test_what_is_marked_and_staged_has_its_text(parts: list[tuple[Kind, int]]) -> None:
    found = [leaf_of(kind, code, 0, -1, -1).of for kind, code in parts]
    if HeldAgain().takes(whole(found)):
        assert all(HeldAgain().wants(part) for part in found)


@given(leaves)
def test_nothing_is_asked_for_where_only_counts_are(each: Class) -> None:
    assert not CountsOnly().wants(each)
    assert not CountsOnly().takes(each)
