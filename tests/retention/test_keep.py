"""Who keeps a commit when data is at stake: nothing that any reading of the rules keeps may be missing."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.errors import LakeplanError
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import (
    KEEPS,
    Keep,
    KeepRules,
    _without_entries,
    held_prefixes,
    keep_masks,
    reachable,
    tags_on,
)
from lakeplan.values.repository import Branch, Refs, Tag
from lakeplan.values.rules import NO_RULES, GcRules
from lakeplan.values.sweep import HeldCommit, Hold
from tests.retention.conftest import NOW, draw_refs
from tests.retention.literal import World, literal_documented_walk, literal_server_walk, worlds

HOUR = 3600
LINE = """
main -> h 1 p
        p 9 q
        q 20 r
        r 30
"""


def masks_of(refs: Refs, rules: KeepRules) -> dict[str, Keep]:
    graph = CommitGraph.from_refs(refs)
    return {id: Keep(m) for id, m in zip(graph.ids, keep_masks(graph, refs, rules), strict=True)}


def rules_of(days: int, *, margin_hours: float = 0, **more: object) -> KeepRules:
    return KeepRules(GcRules(days), NOW, timezone.utc, int(margin_hours * HOUR), **more)  # type: ignore[arg-type]


def kept(refs: Refs, rules: KeepRules, bits: Keep = KEEPS) -> str:
    return " ".join(sorted(id for id, mask in masks_of(refs, rules).items() if mask & bits))


def it_keeps_the_head_at_the_limit_and_everything_since() -> None:
    refs = draw_refs(LINE)
    assert kept(refs, rules_of(10)) == "h p q"
    assert kept(refs, rules_of(5)) == "h p"
    assert kept(refs, rules_of(25)) == "h p q r"


@pytest.mark.parametrize(("margin", "expected"), [(0, "h p"), (23, "h p"), (25, "h p q"), (26, "h p q")])
def it_keeps_what_left_within_the_margin(margin: float, expected: str) -> None:
    refs = draw_refs(LINE)
    assert kept(refs, rules_of(8, margin_hours=margin)) == expected


def it_tells_what_only_the_margin_keeps() -> None:
    masks = masks_of(draw_refs(LINE), rules_of(8, margin_hours=26))
    assert masks["q"] == Keep.MARGIN
    assert masks["p"] == Keep.SERVER | Keep.DOCUMENTED | Keep.MARGIN
    assert masks["r"] == Keep(0)


def it_keeps_what_the_server_forgets_because_of_its_early_stop() -> None:
    # retention.md: main's HEAD id sorts first, visits the shared parent, and the other branch stops there
    refs = draw_refs(
        """
        main    -> a 3 p
        feature -> b 1 p
                   p 100
        """
    )
    rules = KeepRules(GcRules(2, {"main": 2, "feature": 2}), NOW, timezone.utc, 0)
    assert masks_of(refs, rules)["p"] & (Keep.SERVER | Keep.DOCUMENTED) == Keep.DOCUMENTED


def it_keeps_what_either_the_stored_or_the_tree_s_rules_keep() -> None:
    refs = draw_refs(LINE)
    longer = rules_of(5, expanded=GcRules(25))
    assert kept(refs, longer) == "h p q r"
    assert kept(refs, longer, Keep.EXPANDED) == "h p q r"
    assert kept(refs, rules_of(25, expanded=GcRules(5))) == "h p q r"
    assert kept(refs, rules_of(8, expanded=GcRules(19), margin_hours=26), Keep.MARGIN) == "h p q r"


LOST_BY_THE_SERVER = """
main    -> a 3 p
feature -> b 1 p
           p 100
"""
"""The server's walk visits p by main, and stops; the documented rule keeps it by feature."""


def bits_of(id: str, refs: Refs, rules: KeepRules) -> Keep:
    return masks_of(refs, rules)[id]


def it_tells_apart_whose_walk_keeps_a_commit_under_which_rules() -> None:
    """Every verdict has its own bit, and no verdict replaces another."""
    refs = draw_refs(LOST_BY_THE_SERVER)
    days = GcRules(2, {"main": 2, "feature": 2})
    none = GcRules(0)
    stored = KeepRules(days, NOW, timezone.utc, 0)
    assert bits_of("p", refs, stored) == Keep.DOCUMENTED | Keep.MARGIN
    expanded = KeepRules(none, NOW, timezone.utc, 0, expanded=days)
    assert bits_of("p", refs, expanded) == Keep.EXPANDED | Keep.MARGIN
    before = KeepRules(none, NOW, timezone.utc, 0, before=days)
    assert bits_of("p", refs, before) == Keep.BEFORE
    both = KeepRules(none, NOW, timezone.utc, 0, expanded=days, before=days)
    assert bits_of("p", refs, both) == Keep.EXPANDED | Keep.MARGIN | Keep.BEFORE
    assert bits_of("a", refs, both) == Keep(0b101111), "a HEAD is kept by everything but a hold"


@pytest.mark.parametrize(("wrong", "own"), [("ServerWalk", Keep.DOCUMENTED), ("DocumentedRule", Keep.SERVER)])
def it_keeps_what_one_walk_keeps_though_the_other_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, wrong: str, own: Keep
) -> None:
    """The two walks are written apart, so that a fault in one of them deletes nothing."""
    refs = draw_refs(LINE)
    nothing = bytearray(len(refs.commits))
    monkeypatch.setattr(f"lakeplan.retention.keep.{wrong}.active", lambda *_: nothing)
    assert masks_of(refs, rules_of(10))["q"] == own | Keep.MARGIN
    assert masks_of(refs, rules_of(8, margin_hours=26))["q"] == Keep.MARGIN
    assert masks_of(refs, rules_of(0, expanded=GcRules(10)))["q"] == Keep.EXPANDED | Keep.MARGIN
    assert masks_of(refs, rules_of(0, expanded=GcRules(8), margin_hours=26))["q"] == Keep.MARGIN
    assert masks_of(refs, rules_of(0, before=GcRules(10)))["q"] == Keep.BEFORE


@pytest.mark.parametrize("wrong", ["ServerWalk", "DocumentedRule"])
def it_counts_days_in_the_zone_of_the_server(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """Clocks went forward in New York on 13 March: 20 days are an hour less there."""
    refs = draw_refs("main -> h 1 p\n p 19.98 q\n q 50")
    nothing = bytearray(len(refs.commits))
    monkeypatch.setattr(f"lakeplan.retention.keep.{wrong}.active", lambda *_: nothing)
    days, none, new_york = GcRules(20), GcRules(0), ZoneInfo("America/New_York")
    for stored, others in ((days, {}), (none, {"expanded": days}), (none, {"before": days})):
        for margin in (0, 60):
            rules = KeepRules(stored, NOW, new_york, margin, **others)  # type: ignore[arg-type]
            assert masks_of(refs, rules)["q"] == Keep(0)
            assert masks_of(refs, replace(rules, zone=timezone.utc))["q"] != Keep(0)


def it_keeps_the_other_bits_of_what_is_protected() -> None:
    refs = replace(draw_refs(LINE), tags=(Tag("v1", "p"),))
    assert bits_of("p", refs, rules_of(10, protected_tags=("v1",))) == Keep(0b11011)


def it_goes_on_to_the_rules_before_where_the_tree_has_none_or_the_same() -> None:
    refs = draw_refs(LINE)
    rules = rules_of(5, expanded=GcRules(5), before=GcRules(25))
    assert kept(refs, rules, Keep.EXPANDED) == ""
    assert kept(refs, rules, Keep.BEFORE) == "h p q r"


def it_keeps_nothing_for_the_rules_that_stood_before() -> None:
    refs = draw_refs(LINE)
    rules = rules_of(5, before=GcRules(25))
    assert kept(refs, rules) == "h p"
    assert kept(refs, rules, Keep.BEFORE) == "h p q r"


def it_keeps_protected_tags_and_no_others() -> None:
    refs = replace(draw_refs(LINE), tags=(Tag("v1", "r"), Tag("nightly", "q"), Tag("v9", "no-such-commit")))
    assert kept(refs, rules_of(5, protected_tags=("v*",))) == "h p r"
    assert kept(refs, rules_of(5), Keep.PROTECTED) == ""


class DescribeHolds:
    @pytest.mark.parametrize(
        ("hold", "expected"),
        [
            (Hold("commit", "r"), "r"),
            (Hold("tag", "v*"), "q"),
            (Hold("branch", "old-*"), "s t u"),
            (Hold("prefix", "audit/"), ""),
        ],
    )
    def it_keeps_what_a_hold_names(self, hold: Hold, expected: str) -> None:
        refs = draw_refs(
            LINE
            + """
            old-1 -> s 300 t u
                     t 310
                     u 320
            """
        )
        refs = replace(refs, tags=(Tag("v1", "q"),))
        # a branch keeps its HEAD by itself: the hold reaches on, along every parent
        assert kept(refs, rules_of(5, holds=(hold,)), Keep.PROTECTED) == expected

    def it_ends_after_its_last_day(self) -> None:
        refs = draw_refs(LINE)
        today = NOW.date()
        for until, expected in ((today, "r"), (today - timedelta(days=1), ""), (None, "r")):
            hold = Hold("commit", "r", until)
            assert kept(refs, rules_of(5, holds=(hold,)), Keep.PROTECTED) == expected

    def it_takes_the_beginning_of_a_commit_id(self) -> None:
        refs = draw_refs("main -> abc1 1 abd2\n abd2 50")
        assert kept(refs, rules_of(0, holds=(Hold("commit", "abd"),)), Keep.PROTECTED) == "abd2"

    @pytest.mark.parametrize(
        ("hold", "what"),
        [
            (Hold("commit", "ab"), "ambiguous"),
            (Hold("commit", "zz"), "keeps nothing"),
            (Hold("branch", "no-such"), "keeps nothing"),
            (Hold("tag", "v*"), "keeps nothing"),
        ],
    )
    def it_refuses_a_hold_that_keeps_nothing_for_certain(self, hold: Hold, what: str) -> None:
        refs = draw_refs("main -> abc1 1 abd2\n abd2 50")
        with pytest.raises(LakeplanError, match=what):
            masks_of(refs, rules_of(5, holds=(hold,)))
        assert masks_of(refs, rules_of(5, holds=(replace(hold, until=date(2020, 1, 1)),)))

    def it_keeps_what_was_recorded_though_the_hold_names_another_commit_now(self) -> None:
        """A tag was moved, a branch was deleted or reset."""
        refs = replace(draw_refs(LINE + "other -> s 300 t\n t 310"), tags=(Tag("v1", "p"),))
        recorded = (HeldCommit("tag", "v1", "r"), HeldCommit("branch", "gone-*", "s"))
        rules = rules_of(5, holds=(Hold("tag", "v1"),), recorded=recorded)
        assert kept(refs, rules, Keep.PROTECTED) == "p r s t"

    def it_keeps_what_was_recorded_beside_what_the_hold_names_now(self) -> None:
        refs = replace(draw_refs(LINE), tags=(Tag("v1", "p"),))
        recorded = (HeldCommit("prefix", "legal/", "q"), HeldCommit("tag", "v9", "q"))
        rules = rules_of(0, holds=(Hold("tag", "v1"),), recorded=recorded)
        assert kept(refs, rules, Keep.PROTECTED) == "p q", "not what q was made from"
        recorded = (HeldCommit("prefix", "legal/", "r"),)
        rules = rules_of(0, holds=(Hold("tag", "v1"),), recorded=recorded)
        assert kept(refs, rules, Keep.PROTECTED) == "p", "a prefix holds paths, not the commit"

    def it_names_at_most_three_commits_to_hold_instead_and_only_of_that_hold(self) -> None:
        recorded = (
            *(HeldCommit("branch", "b", id) for id in "rqph"),
            HeldCommit("branch", "c", "a"),
            HeldCommit("tag", "b", "b"),
        )
        rules = rules_of(5, holds=(Hold("branch", "b"),), recorded=recorded)
        with pytest.raises(LakeplanError) as refused:
            masks_of(draw_refs(LINE), rules)
        assert "(h, p, q)" in refused.value.hint
        with pytest.raises(LakeplanError) as refused:
            masks_of(draw_refs(LINE), rules_of(5, holds=(Hold("branch", "b"),)))
        assert refused.value.hint == "Correct the hold in the tree, or remove it."

    def it_refuses_to_go_on_without_a_commit_that_was_recorded(self) -> None:
        recorded = (HeldCommit("prefix", "legal/", "gone"),)
        with pytest.raises(LakeplanError, match="kept commit gone, which is no longer in the repository"):
            masks_of(draw_refs(LINE), rules_of(5, recorded=recorded))

    def it_says_what_to_hold_instead(self) -> None:
        rules = rules_of(5, holds=(Hold("branch", "b"),), recorded=(HeldCommit("branch", "b", "r"),))
        with pytest.raises(LakeplanError, match="keeps nothing") as refused:
            masks_of(draw_refs(LINE), rules)
        assert "the commit that it kept (r)" in refused.value.hint

    def it_names_the_prefixes_that_are_held_today(self) -> None:
        holds = [
            Hold("prefix", "b/", date(2022, 3, 31)),
            Hold("prefix", "a/"),
            Hold("prefix", "gone/", date(2022, 3, 30)),
            Hold("branch", "main"),
        ]
        assert held_prefixes(holds, NOW) == ("a/", "b/")


def it_refuses_a_repository_without_branches() -> None:
    refs = replace(draw_refs(LINE), branches=())
    with pytest.raises(LakeplanError, match="no branches"):
        masks_of(refs, rules_of(5))


MARGINS = st.integers(0, 40 * HOUR)


def with_branch(world: World) -> World:
    """Without branches nothing is marked at all."""
    if world.refs.branches:
        return world
    return replace(world, refs=replace(world.refs, branches=(Branch("b0", world.refs.commits[0].id),)))


@given(worlds().map(with_branch), MARGINS, st.floats(0, 1))
@settings(max_examples=50)
def test_whatever_is_kept_at_any_moment_of_the_margin_has_a_bit(
    world: World, margin: int, part: float
) -> None:
    rules = KeepRules(world.rules, world.as_of, world.zone, margin)
    found = {id for id, mask in masks_of(world.refs, rules).items() if mask & KEEPS}
    moment = world.as_of - timedelta(seconds=margin)
    for at in (world.as_of, moment, world.as_of - timedelta(seconds=int(margin * part))):
        there = replace(world, as_of=at)
        assert literal_server_walk(there) <= found
    for at in (world.as_of, moment):
        assert set(literal_documented_walk(replace(world, as_of=at))) <= found


@given(worlds([timezone.utc]).map(with_branch), MARGINS, st.floats(0, 1))
@settings(max_examples=50)
def test_where_clocks_never_change_the_documented_rule_is_kept_all_through_the_margin(
    world: World, margin: int, part: float
) -> None:
    rules = KeepRules(world.rules, world.as_of, world.zone, margin)
    found = {id for id, mask in masks_of(world.refs, rules).items() if mask & KEEPS}
    at = world.as_of - timedelta(seconds=int(margin * part))
    assert set(literal_documented_walk(replace(world, as_of=at))) <= found


@given(worlds().map(with_branch), st.integers(-14 * 4, 14 * 4))
@settings(max_examples=50)
def test_a_margin_of_26_hours_covers_every_zone_that_a_server_may_be_in(world: World, quarters: int) -> None:
    rules = KeepRules(world.rules, world.as_of, timezone.utc, 26 * HOUR)
    found = {id for id, mask in masks_of(world.refs, rules).items() if mask & KEEPS}
    elsewhere = replace(world, zone=timezone(timedelta(minutes=15 * quarters)))
    assert set(literal_documented_walk(elsewhere)) <= found
    assert literal_server_walk(elsewhere) <= found
    # and where clocks change: the worlds' own zones
    assert set(literal_documented_walk(world)) <= found


@given(worlds().map(with_branch), worlds(), st.sampled_from(["expanded", "before"]))
@settings(max_examples=40)
def test_other_rules_add_their_own_and_take_nothing_away(world: World, other: World, which: str) -> None:
    plain = KeepRules(world.rules, world.as_of, world.zone, 0)
    more = replace(plain, **{which: other.rules})
    alone, both = masks_of(world.refs, plain), masks_of(world.refs, more)
    under_others = replace(world, rules=other.rules)
    wanted = set(literal_documented_walk(under_others)) | literal_server_walk(under_others)
    bit = Keep.EXPANDED if which == "expanded" else Keep.BEFORE
    for id, mask in both.items():
        assert mask & alone[id] == alone[id]
        if other.rules != world.rules:
            assert bool(mask & bit) == (id in wanted)


def it_counts_every_commit_as_kept_before_where_no_rules_were_set() -> None:
    refs = draw_refs(LINE)
    assert kept(refs, rules_of(5, before=NO_RULES), Keep.BEFORE) == "h p q r"
    assert kept(refs, rules_of(5, before=None), Keep.BEFORE) == ""
    assert kept(refs, rules_of(5, before=NO_RULES)) == "h p"


def it_keeps_what_is_kept_with_or_without_pins() -> None:
    refs, pin = (
        draw_refs("""
                 -> root 50
                 -> x1   40 root
            pin  -> x2   31 x1
            main -> m1    1 root
    """),
        "pin",
    )
    rules = replace(rules_of(35), stored=GcRules(35, {pin: 0}))
    assert kept(refs, rules, Keep.SERVER) == "m1 root x2", "no days stop the walk at the pin"
    assert kept(refs, replace(rules, pins=frozenset({pin})), Keep.SERVER) == "m1 root x1 x2"


def it_takes_only_the_entries_of_pins_out_of_each_rule_set() -> None:
    rules = replace(
        rules_of(7, expanded=GcRules(9, {"dev": 1, "pin": 0}), before=GcRules(1), pins=frozenset({"pin"})),
        stored=GcRules(7, {"main": 3, "pin": 0}),
    )
    without = replace(rules, stored=GcRules(7, {"main": 3}), expanded=GcRules(9, {"dev": 1}), before=None)
    assert _without_entries(rules) == without
    assert _without_entries(replace(rules, expanded=None)) == replace(without, expanded=None)


MERGES = """
             -> a 9
             -> b 8 a
             -> c 7 a
             -> x 6
             -> y 6
             -> e 4 b
        fix  -> f 3 b e
        dev  -> d 5 x b c y
        main -> m 1
"""


def it_reaches_every_ancestor_where_lines_meet_again() -> None:
    refs = draw_refs(MERGES)
    commits = {commit.id: commit for commit in refs.commits}
    assert reachable(commits, ["d"]) == set("abcdxy")
    assert reachable(commits, ["f", "d", "f", "gone"]) == set("abcdefxy")


def it_finds_the_tags_where_lines_meet_again() -> None:
    refs = replace(draw_refs(MERGES), tags=tuple(Tag(f"at-{id}", id) for id in "abfym"))
    assert tags_on(refs, "main") == {
        "dev": ("at-a", "at-b", "at-y"),
        "fix": ("at-a", "at-b", "at-f"),
    }
