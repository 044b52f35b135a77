"""When a commit expires by the documented rule. test_server compares its verdicts with the server's."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import NEVER_EXPIRES, NEVER_KEPT, DocumentedRule, documented_verdict, to_us
from lakeplan.values.rules import GcRules
from tests.retention.literal import fixed_worlds, literal_documented_walk

DAY = 86_400_000_000


def _days_left(graph: Any, until: Any, now: Any) -> dict[str, float | None]:
    """Days from now until each commit expires, or None for one that never does."""
    return {
        graph.ids[n]: None if at == NEVER_EXPIRES else (at + 1 - to_us(now)) / DAY
        for n, at in enumerate(until)
    }


def it_lets_a_parent_go_when_its_youngest_keeper_ends(draw: Any, now: Any) -> None:
    graph = draw(
        """
        main ->    d   1  c
                   c   5  b
                   b   9  a
                   a  12
        feature -> f   2  b
                   x   3  a
        """
    )
    verdict = documented_verdict(graph, GcRules(7, {"main": 28}), now)
    assert _days_left(graph, verdict.kept_until_us, now) == {
        "a": 28 - 9,  # through b, which main keeps longest
        "b": 28 - 5,  # through c; feature's f would let go after 5 days
        "c": 28 - 1,
        "d": None,
        "f": None,
        "x": 7 - 3,  # dangling: its own date
    }
    assert all(verdict.active)


def it_gives_the_past_moment_of_an_expired_commit(draw: Any, now: Any) -> None:
    graph = draw("main -> c 20 b\n b 30 a\n a 40")
    verdict = documented_verdict(graph, GcRules(7), now)
    assert list(verdict.active) == [0, 0, 1]
    assert _days_left(graph, verdict.kept_until_us, now) == {"a": 7 - 30, "b": 7 - 20, "c": None}


def it_answers_several_moments_from_one_preparation(draw: Any, kept: Any, now: Any) -> None:
    graph = draw("main -> d 1 c\n c 5 b\n b 9 a\n a 12")
    rule = DocumentedRule(graph, GcRules(7))
    answers = [kept(graph, rule.active(now + timedelta(days=days))) for days in (0, 2, 6, 30)]
    assert answers == ["b c d", "c d", "d", "d"]
    assert rule.verdict(now).kept_until_us is rule.verdict(now + timedelta(days=7)).kept_until_us


def it_says_never_for_a_root_that_nothing_ever_kept(draw: Any, now: Any) -> None:
    # "second" is taken for a parent by a server, and still is an end of history by the rule; nothing that
    # the graph holds is out of every walk's reach, so no commit is without a moment.
    graph = draw("main -> m 1 first second last v0\n first 2\n second 2\n last 2")
    until = documented_verdict(graph, GcRules(7), now).kept_until_us
    assert NEVER_KEPT not in until


def it_keeps_what_a_full_walk_from_every_start_keeps_and_until_then(kept: Any) -> None:
    microsecond = timedelta(microseconds=1)
    for world in fixed_worlds():
        graph = CommitGraph.from_refs(world.refs)
        rule = DocumentedRule(graph, world.rules)
        verdict = documented_verdict(graph, world.rules, world.as_of, world.zone)
        assert kept(graph, verdict.active) == " ".join(sorted(literal_documented_walk(world))), world
        assert set(verdict.active) <= {0, 1}
        assert verdict.kept_until_us == rule.kept_until_us(world.zone)
        for n, until in enumerate(rule.kept_until_us(world.zone)):
            assert (until == NEVER_EXPIRES) == bool(graph.is_head[n])
            if until != NEVER_EXPIRES:
                last = datetime(1970, 1, 1, tzinfo=timezone.utc) + until * microsecond
                assert rule.active(last, world.zone)[n]
                assert not rule.active(last + microsecond, world.zone)[n]
