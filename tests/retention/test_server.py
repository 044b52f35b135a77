"""Hand-drawn histories, and what a server keeps of them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lakeplan.retention.graph import CommitGraph, all_kept
from lakeplan.retention.rules import ServerWalk, documented_verdict, limit_us, server_verdict, to_us
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import GcRules
from tests.retention.literal import fixed_worlds, literal_server_walk

# picture, rules, what the server keeps, what the documented rule keeps (ids ascending)
PICTURES = {
    "the HEAD, every young commit, and the first old one": (
        """
        main -> d   1  c
                c   5  b
                b   9  a
                a  12
        """,
        GcRules(7),
        "b c d",
        "b c d",
    ),
    "a commit exactly at the limit is not after it": (
        """
        main -> d   1  c
                c   7  b
                b   9  a
                a  12
        """,
        GcRules(7),
        "c d",
        "c d",
    ),
    "an old HEAD stays, and nothing below it": (
        """
        main -> c  90  b
                b  91  a
                a  92
        """,
        GcRules(7),
        "c",
        "c",
    ),
    "branches have their own days, or else the default": (
        """
        main -> m3  1  m2
                m2 15  m1
                m1 30  m0
                m0 31
        dev ->  d3  1  d2
                d2 15  d1
                d1 30
        """,
        GcRules(7, {"main": 28}),
        "d2 d3 m1 m2 m3",
        "d2 d3 m1 m2 m3",
    ),
    "a merge keeps what it merged only through the branch that made it": (
        """
        main ->    m2  1  m1 f1
                   m1 20  m0
                   m0 40
                   f1 19  m0
        feature -> f2  1  f1
        """,
        GcRules(7),
        "f1 f2 m1 m2",
        "f1 f2 m1 m2",
    ),
    "of an old version's merge the last parent is the main one": (
        """
        main ->    m2  1  f1 m1  v0
                   m1 20  m0
                   m0 40
                   f1 19  m0
        """,
        GcRules(7),
        "m1 m2",
        "m1 m2",
    ),
    "of an old version's only parent": (
        """
        main -> b  1  a  v0
                a 40
        """,
        GcRules(7),
        "a b",
        "a b",
    ),
    "the end of a deleted branch stays while it is young, by the default": (
        """
        main -> m1  1  m0
                m0 40
                x2  3  x1
                x1  9  m0
                y2  8  y1
                y1  9  m0
        """,
        GcRules(7, {"main": 1}),
        "m1 x1 x2",
        "m1 x1 x2",
    ),
    "a back-dated child hides its parent; walks go on above it": (
        """
        main -> e   1  d
                d  50  c
                c   2  b
                b   3  a
                a  60
        """,
        GcRules(7),
        "a b d e",
        "a b d e",
    ),
    "one branch's older limit stops another's walk that comes later by id": (
        # main (100 days) comes first and visits p; it is not active for main, whose m is too old
        """
        main ->    a   200  p
                   p   300
        feature -> b     1  p
        """,
        GcRules(7, {"main": 100}),
        "a b",
        "a b p",
    ),
    "and does not when its id sorts after it": (
        """
        main ->    z   200  p
                   p   300
        feature -> b     1  p
        """,
        GcRules(7, {"main": 100}),
        "b p z",
        "b p z",
    ),
    "an equal limit stops a walk as well": (
        """
        main ->    a    20  p
                   p    30
        feature -> b     1  p
        """,
        GcRules(7),
        "a b",
        "a b p",
    ),
    "a dangling commit is stopped by a branch's walk like any other": (
        """
        main ->    a    20  p
                   p    30
                   x     1  p
        """,
        GcRules(7),
        "a x",
        "a p x",
    ),
    "a walk that was stopped keeps what it passed before": (
        """
        main ->    a    20  p
                   p    30  o
                   o    40
        feature -> c     1  b
                   b     2  p
        """,
        GcRules(7),
        "a b c",
        "a b c p",
    ),
    "a HEAD on another branch's way": (
        """
        late ->    z     1  h
        old ->     h     2  p
                   p     3  o
                   o    30
        """,
        GcRules(1, {"old": 7}),
        "h o p z",
        "h o p z",
    ),
    "twin branches: the longer one decides": (
        """
        long short -> c   1  b
                      b   5  a
                      a  40
        """,
        GcRules(1, {"long": 7}),
        "a b c",
        "a b c",
    ),
    "no days at all: only HEADs": (
        """
        main -> b  1  a
                a  2
                x  1  a
        """,
        GcRules(0),
        "b",
        "b",
    ),
    "negative days put the limit in the future": (
        """
        main -> b  -1  a
                a   2
        """,
        GcRules(-2),
        "b",
        "b",
    ),
    "days past all calendars keep everything": (
        """
        main -> c     1  b
                b  9000  a
                a 30000
                x 20000  a
        """,
        GcRules(2**31 - 1),
        "a b c x",
        "a b c x",
    ),
    "several roots, and a history of one commit": (
        """
        main ->  a  90
        other -> b  90
                 x   1
        """,
        GcRules(7),
        "a b x",
        "a b x",
    ),
    "no branches: only young ends": (
        """
                x  1  w
                w  9
                y  9
        """,
        GcRules(7),
        "w x",
        "w x",
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def it_keeps(name: str, draw: Any, kept: Any, now: Any) -> None:
    picture, rules, server, documented = PICTURES[name]
    graph = draw(picture)
    assert kept(graph, server_verdict(graph, rules, now)) == server
    assert kept(graph, documented_verdict(graph, rules, now).active) == documented


def it_gives_the_worked_example_of_the_lakefs_documents(draw: Any, kept: Any, now: Any) -> None:
    # lakeFS documents, "Committed Garbage Collection Internals": on 2022-03-31, main 21 days, dev 7 days.
    # 21 days ago, on 2022-03-10, the HEAD of main was 2022-03-09; 7 days ago, on 2022-03-24, that of dev was
    # d:2022-03-23. These and all later commits stay; 2022-02-27, 2022-03-01 and the older d: ones go.
    assert limit_us(now, 21) == to_us(datetime(2022, 3, 10, 12, tzinfo=timezone.utc))
    assert limit_us(now, 7) == to_us(datetime(2022, 3, 24, 12, tzinfo=timezone.utc))
    graph = draw(
        """
        main -> 2022-03-27     4  2022-03-12
                2022-03-12    19  2022-03-09
                2022-03-09    22  2022-03-01
                2022-03-01    30  2022-02-27
                2022-02-27    32
        dev ->  d:2022-03-30   1  d:2022-03-23
                d:2022-03-23   8  d:2022-03-20
                d:2022-03-20  11  d:2022-03-14
                d:2022-03-14  17  2022-02-27
        """
    )
    rules = GcRules(14, {"main": 21, "dev": 7})
    expected = "2022-03-09 2022-03-12 2022-03-27 d:2022-03-23 d:2022-03-30"
    assert kept(graph, server_verdict(graph, rules, now)) == expected
    assert kept(graph, documented_verdict(graph, rules, now).active) == expected


@pytest.mark.parametrize(("main_age", "dev_age"), [("21", "7"), ("20.9", "6.9")])
def it_keeps_the_head_of_that_very_moment(
    main_age: str, dev_age: str, draw: Any, kept: Any, now: Any
) -> None:
    # The same moment and days, with commits on 2022-03-10 and 2022-03-24 themselves: the HEADs of then.
    graph = draw(
        f"""
        main -> m5  3  m4
                m4 16  m-2022-03-10
                m-2022-03-10 {main_age} m2
                m2 30  m1
                m1 31
        dev ->  d5  3  d-2022-03-24
                d-2022-03-24 {dev_age} d3
                d3 11  d2
                d2 12
        """
    )
    rules = GcRules(14, {"main": 21, "dev": 7})
    exactly_then = main_age == "21"
    expected = (
        "d-2022-03-24 d5 m-2022-03-10 m4 m5" if exactly_then else "d-2022-03-24 d3 d5 m-2022-03-10 m2 m4 m5"
    )
    assert kept(graph, server_verdict(graph, rules, now)) == expected
    assert kept(graph, documented_verdict(graph, rules, now).active) == expected


def it_is_not_monotone_in_days(draw: Any, kept: Any, now: Any) -> None:
    # p: kept by main at 1 day (feature's walk comes first to it), gone at 7 and 15 (main's walk stops
    # feature's), kept again at 30 (main keeps it itself). The documented rule keeps it throughout.
    graph = draw(
        """
        main ->    a   20  p
                   p   40
        feature -> b    1  p
        """
    )
    answers = {}
    for days in (1, 7, 15, 30):
        rules = GcRules(2, {"main": days})
        answers[days] = "p" in kept(graph, server_verdict(graph, rules, now))
        assert "p" in kept(graph, documented_verdict(graph, rules, now).active)
    assert answers == {1: True, 7: False, 15: False, 30: True}


def it_depends_on_commit_ids_and_the_documented_rule_does_not(draw: Any, kept: Any, now: Any) -> None:
    picture = """
        main ->    {main}     20  p
                   p          40
        feature -> {feature}   1  p
    """
    rules = GcRules(7)
    first = draw(picture.format(main="a", feature="b"))
    second = draw(picture.format(main="b", feature="a"))
    assert kept(first, server_verdict(first, rules, now)) == "a b"
    assert kept(second, server_verdict(second, rules, now)) == "a b p"
    assert kept(first, documented_verdict(first, rules, now).active) == "a b p"
    assert kept(second, documented_verdict(second, rules, now).active) == "a b p"


def it_looks_for_dangling_commits_by_the_second_of_three_old_parents(draw: Any, kept: Any, now: Any) -> None:
    # A server takes "second" for a parent (so no walk starts there) and "last" for an end of history.
    graph = draw(
        """
        main -> m       1  first second last  v0
                first   2
                second  2
                last    2
        """
    )
    assert kept(graph, server_verdict(graph, GcRules(0, {"main": 1}), now)) == "m"
    assert kept(graph, server_verdict(graph, GcRules(3, {"main": 1}), now)) == "first last m"
    assert (
        kept(graph, documented_verdict(graph, GcRules(3, {"main": 1}), now).active) == "first last m second"
    )


def it_counts_days_in_the_zone_of_the_server(draw: Any, kept: Any, now: Any) -> None:
    # In New York clocks went forward on 2022-03-13: 21 calendar days before noon UTC is 13:00 UTC.
    graph = draw(
        """
        main -> b  20.98  a
                a  30
        """
    )
    assert kept(graph, server_verdict(graph, GcRules(21), now)) == "a b"
    assert kept(graph, server_verdict(graph, GcRules(21), now, ZoneInfo("America/New_York"))) == "b"


def it_keeps_everything_without_rules(draw: Any, kept: Any) -> None:
    graph = draw("main -> b 900 a\n a 901\n x 902")
    assert kept(graph, all_kept(graph)) == "a b x"


def it_stops_at_an_equal_limit_that_other_days_gave(kept: Any) -> None:
    # Samoa had no 2011-12-30: one and two days before this moment are the same instant.
    apia = ZoneInfo("Pacific/Apia")
    as_of = datetime(2011, 12, 31, 20, tzinfo=timezone.utc)
    assert limit_us(as_of, 1, apia) == limit_us(as_of, 2, apia) == to_us(as_of - timedelta(days=1))
    young, old = to_us(as_of) - 1, to_us(as_of - timedelta(days=20))
    commits = (Commit("a", old, "", ("p",)), Commit("b", young, "", ("p",)), Commit("p", old, ""))
    refs = Refs(commits, (Branch("main", "a"), Branch("feature", "b"), Branch("none", "a")), ())
    graph = CommitGraph.from_refs(refs)
    for first, second in ((1, 2), (2, 1)):
        walk = ServerWalk(graph, GcRules(0, {"main": first, "feature": second}))
        assert kept(graph, walk.active(as_of, timezone.utc)) == ("a b p" if first < second else "a b")
        assert kept(graph, walk.active(as_of, apia)) == "a b"
        assert kept(graph, walk.active(as_of, timezone.utc)) == ("a b p" if first < second else "a b")


def it_keeps_what_the_literal_walk_keeps(kept: Any) -> None:
    for world in fixed_worlds():
        graph = CommitGraph.from_refs(world.refs)
        flags = server_verdict(graph, world.rules, world.as_of, world.zone)
        assert kept(graph, flags) == " ".join(sorted(literal_server_walk(world))), world
        assert set(flags) <= {0, 1}
