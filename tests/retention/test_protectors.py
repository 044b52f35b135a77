"""The names of what keeps a commit that the server would let expire."""

from __future__ import annotations

from dataclasses import replace
from datetime import timezone

import pytest

from lakeplan.retention import keep as module
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import FIRST_BIT, KEEPS, Keep, KeepRules, keep_masks, protectors
from lakeplan.values.repository import Refs, Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import MAX_VERDICT_BITS
from lakeplan.values.sweep import HeldCommit, Hold
from tests.retention.conftest import NOW, draw_refs

LINE = """
main -> h 1 p
        p 9 q
        q 20 r
        r 30
"""


def line() -> Refs:
    """A line of commits with a tag on the oldest."""
    return replace(draw_refs(LINE), tags=(Tag("v1", "r"),))


def names_of(refs: Refs, days: int = 5, *, margin_hours: int = 0, **more: object) -> dict[str, list[str]]:
    """The names of what keeps each commit."""
    rules = KeepRules(GcRules(days), NOW, timezone.utc, margin_hours * 3600, **more)  # type: ignore[arg-type]
    graph = CommitGraph.from_refs(refs)
    masks = keep_masks(graph, refs, rules)
    found = protectors(graph, refs, rules, masks)
    for own, mask in zip(found.masks, masks, strict=True):
        assert not own & sum(Keep), "bits of Keep are left alone"
        assert not own or (mask & KEEPS and not mask & Keep.SERVER)
    return {
        id: sorted(name for at, name in enumerate(found.names) if mask >> FIRST_BIT + at & 1)
        for id, mask in zip(graph.ids, found.masks, strict=True)
        if mask and mask & ~sum(Keep)
    }


def it_names_nothing_where_the_server_keeps_it_or_nothing_does() -> None:
    assert names_of(line()) == {}


def it_names_protected_tags_and_holds() -> None:
    refs = line()
    assert names_of(refs, protected_tags=("v*",)) == {"r": ["tag v1"]}
    assert names_of(refs, holds=(Hold("commit", "q"),)) == {"q": ["hold commit q"]}
    both = names_of(refs, protected_tags=("v1",), holds=(Hold("tag", "v1"),))
    assert both == {"r": ["hold tag v1", "tag v1"]}


def it_names_a_hold_on_a_branch_for_all_that_its_head_was_made_from() -> None:
    held = names_of(line(), holds=(Hold("branch", "main"),))
    assert held == {"q": ["hold branch main"], "r": ["hold branch main"]}


def it_names_what_an_earlier_mark_recorded_of_a_hold() -> None:
    recorded = (HeldCommit("tag", "gone", "q"), HeldCommit("prefix", "audit/", "r"))
    assert names_of(line(), recorded=recorded) == {"q": ["hold tag gone"]}


def it_names_the_branch_whose_margin_or_pattern_keeps_it() -> None:
    refs = line()
    assert names_of(refs, 8, margin_hours=26) == {"q": ["branch main"]}
    assert names_of(refs, expanded=GcRules(10)) == {"q": ["branch main"]}
    assert names_of(refs, expanded=GcRules(8), margin_hours=26) == {"q": ["branch main"]}


def it_names_the_branch_whose_newest_commits_are_kept() -> None:
    place = CommitGraph.from_refs(line()).index["r"]
    assert names_of(line(), newest={"main": frozenset({place})}) == {"r": ["branch main"]}


def it_names_ten_branches_for_a_commit() -> None:
    many = " ".join(f"b{n:02}" for n in range(12))
    refs = draw_refs(LINE.replace("main", many))
    assert names_of(refs, 8, margin_hours=26) == {"q": [f"branch b{n:02}" for n in range(10)]}


def it_names_the_largest_and_counts_the_others_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMES", 1)
    refs = line()
    holds = (Hold("branch", "main"), Hold("commit", "q"), Hold("tag", "v1"))
    assert names_of(refs, holds=holds) == {
        "q": ["hold (others)", "hold branch main"],
        "r": ["hold (others)", "hold branch main"],
    }


def it_names_what_keeps_most_commits_before_what_is_first_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMES", 1)
    recorded = (HeldCommit("tag", "zz", "q"), HeldCommit("tag", "zz", "r"))
    assert names_of(line(), holds=(Hold("commit", "q"),), recorded=recorded) == {
        "q": ["hold (others)", "hold tag zz"],
        "r": ["hold tag zz"],
    }
    same = names_of(line(), holds=(Hold("tag", "v1"), Hold("commit", "q")))
    assert same == {"q": ["hold commit q"], "r": ["hold (others)"]}


def it_leaves_bits_for_other_repositories() -> None:
    kinds = 3
    assert FIRST_BIT + module.MOST_NAMES + kinds < MAX_VERDICT_BITS - 1
