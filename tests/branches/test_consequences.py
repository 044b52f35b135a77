"""What retention makes of deleted branches."""

from __future__ import annotations

from array import array
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import ClassVar
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.branches.consequences import BY_MOMENT, MAX_BRANCHES, MOMENTS, consequences, safe_until
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import ServerWalk
from lakeplan.values.branches import SETTLED
from lakeplan.values.repository import Branch, Commit, Refs, Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import MAX_VERDICT_BITS, Amount, ImpactResult

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
UTC = timezone.utc


def us(days: float) -> int:
    return int((NOW - timedelta(days=days)).timestamp() * 1_000_000)


def graph(commits: dict[str, tuple[float, str]], branches: dict[str, str]) -> CommitGraph:
    """Commits as id → (age in days, parent)."""
    return CommitGraph.from_refs(
        Refs(
            tuple(
                Commit(id, us(age), f"r{id}", (parent,) if parent else ())
                for id, (age, parent) in commits.items()
            ),
            tuple(Branch(n, c) for n, c in branches.items()),
            (),
        )
    )


HISTORY = {"a": (100, ""), "b": (1, "a"), "f1": (40, "a"), "f2": (10, "f1")}
BRANCHES = {"main": "b", "feature": "f2"}


def it_follows_a_deleted_branch_to_the_default_days():
    old = {**HISTORY, "f2": (30, "f1")}
    found = consequences(graph(old, BRANCHES), ["feature"], GcRules(21, {"feature": 60}), NOW, UTC)
    totals = found.totals(None)
    # The branch's 60 days kept f2 and f1; dangling, f2 is past the default 21 days, and nothing keeps f1.
    assert totals["now"].commits == 2
    # In 30 days the branch would keep only its HEAD.
    assert totals[SETTLED].commits == 1
    assert found.by_branch(None)["feature"].commits == 2
    assert found.by_branch(None)["feature"].objects is None


def moments_of(days: int, *, head_age: float = 1, as_of: datetime = NOW) -> dict[str, float]:
    """Days from now on, by moment."""
    drawn = graph({**HISTORY, "b": (head_age, "a")}, BRANCHES)
    totals = consequences(drawn, ["feature"], GcRules(days), as_of, UTC).totals(None)
    return {name: (total.as_of - as_of) / timedelta(days=1) for name, total in totals.items()}


def it_looks_ahead_until_all_that_exists_is_past_the_default_days():
    assert moments_of(40) == {"now": 0, "plus_7_days": 7, "plus_30_days": 30, SETTLED: 42}
    assert moments_of(7)[SETTLED] == 30
    assert moments_of(-5)[SETTLED] == 30
    assert moments_of(40, head_age=-3)[SETTLED] == 45  # a commit of a clock that is ahead
    assert moments_of(-5, head_age=-29)[SETTLED] == 31
    nothing = consequences(graph({}, {}), [], GcRules(40), NOW, UTC)
    assert nothing.moments[SETTLED] == NOW + timedelta(days=42)


def it_counts_days_in_the_time_zone_of_the_server():
    as_of = datetime(2022, 3, 31, 12, tzinfo=UTC)  # in New York clocks went forward on 2022-03-13
    head = (NOW - as_of + timedelta(days=21, minutes=-30)) / timedelta(days=1)
    drawn = graph({"m": (head - 21, ""), "p": (head + 20, ""), "h": (head, "p")}, {"main": "m", "dev": "h"})
    rules = GcRules(21, {"dev": 90})
    for zone, lost in ((UTC, 0), (ZoneInfo("America/New_York"), 2)):
        assert consequences(drawn, ["dev"], rules, as_of, zone).totals(None)["now"].commits == lost


def it_says_that_nothing_follows_a_branch_that_is_not_in_the_history():
    found = consequences(graph(HISTORY, BRANCHES), ["later", "feature"], GcRules(21), NOW, UTC)
    later = found.by_branch(None)["later"]
    assert (later.commits, later.objects, later.size_bytes, later.tags) == (0, 0, 0, ())


def it_names_the_tags_on_commits_that_follow():
    tags = [Tag("v2", "f2"), Tag("v1", "f1"), Tag("main-tag", "b"), Tag("lost", "nowhere")]
    found = consequences(
        graph({**HISTORY, "f2": (30, "f1")}, BRANCHES), ["feature"], GcRules(21), NOW, UTC, tags
    )
    # f1 is past every day already with the branch; only its HEAD hangs on it.
    assert found.by_branch(None)["feature"].tags == ("v2",)


class DescribeALineWithACommitThatStays:
    """main's HEAD stays, and older commits below it that only the days of ``release`` kept go."""

    RULES = GcRules(21, {"main": 21, "release": 90})
    IDLE: ClassVar = {"a": (70, ""), "tagged": (60, "a"), "m": (50, "tagged"), "h": (10, "m")}
    AHEAD: ClassVar = {**IDLE, "r": (1, "h")}

    @pytest.mark.parametrize(
        ("commits", "branches", "follow"),
        [
            (IDLE, {"main": "h", "release": "h"}, 3),
            (AHEAD, {"main": "h", "release": "r"}, 4),
            (AHEAD, {"main": "r", "other": "h", "release": "r"}, 3),
        ],
        ids=["made from main's HEAD", "one ahead of main", "another HEAD on the line"],
    )
    def it_sees_the_tags_below_it(self, commits, branches, follow):
        tags = [Tag("v1", "tagged"), Tag("kept", "h")]
        found = consequences(graph(commits, branches), ["release"], self.RULES, NOW, UTC, tags)
        follows = found.by_branch(None)["release"]
        assert follows.tags == ("v1",)
        # Now a and the tagged one; m too once its child is past the default days, and then r.
        assert found.totals(None)["now"].commits == 2
        assert follows.commits == follow

    def it_counts_objects_below_it(self):
        drawn = graph(self.IDLE, {"main": "h", "release": "h"})
        found = consequences(drawn, ["release"], self.RULES, NOW, UTC)
        result = ImpactResult({found.metaranges()["rtagged"]: Amount(3, 300)})
        assert found.by_branch(result)["release"].objects == 3
        marked = [bool(mask >> 2 * len(MOMENTS)) for mask in found.masks]
        assert dict(zip(drawn.ids, marked, strict=True)) == {"a": True, "tagged": True, "m": True, "h": False}
        assert found.transitions()["branch:release"].before == 1 << 2 * len(MOMENTS)

    def it_puts_a_tag_beside_the_branch_with_the_most_days(self):
        drawn = graph(self.AHEAD, {"main": "r", "early": "r", "release": "r"})
        tags = [Tag("v1", "tagged"), Tag("v2", "tagged")]
        found = consequences(drawn, ["early", "release"], self.RULES, NOW, UTC, tags)
        assert dict(found.tags) == {"early": (), "release": ("v1", "v2")}

    def it_follows_many_branches_along_a_long_line_once(self):
        """Each branch is one commit ahead of a line that expires as a whole. The walk's steps are counted."""
        size = 1_000
        line = {f"l{n:04d}": (40.0, f"l{n - 1:04d}" if n else "") for n in range(size)}
        names = [f"b{n:03d}" for n in range(4 * MAX_BRANCHES)]
        tips = {f"t{n}": (30.0, f"l{size - 1:04d}") for n in names}
        drawn = graph(line | tips, {n: f"t{n}" for n in names})
        counted = Steps("i", drawn.main_parent)
        rules = GcRules(21, dict.fromkeys(names, 60))
        tags = [Tag("v1", "l0000")]
        found = consequences(replace(drawn, main_parent=counted), names, rules, NOW, UTC, tags)
        assert found.by_branch(None)[names[-1]].commits == size + 1
        assert sum(len(tags) for tags in found.tags.values()) == 1
        assert counted.taken < 2 * MAX_BRANCHES * size


class Steps(array):
    """Main parents that count how often one is looked up."""

    taken = 0

    def __getitem__(self, place):
        self.taken += 1
        return super().__getitem__(place)


def it_may_take_a_while_until_anything_follows():
    totals = consequences(graph(HISTORY, BRANCHES), ["feature"], GcRules(21), NOW, UTC).totals(None)
    assert [t.commits for t in totals.values()] == [0, 0, 1, 1]
    assert [t.objects for t in totals.values()] == [0, 0, None, None]


def it_counts_objects_for_each_branch_and_all_together():
    found = consequences(graph(HISTORY, BRANCHES), ["feature"], GcRules(21), NOW, UTC)
    mask = found.metaranges()["rf2"]
    result = ImpactResult(
        {mask: Amount(3, 300), BY_MOMENT[SETTLED].after | mask: Amount(5, 500)}, ranges_read=1
    )
    assert (found.totals(result)[SETTLED].objects, found.totals(result)[SETTLED].size_bytes) == (3, 300)
    follows = found.by_branch(result)["feature"]
    assert (follows.commits, follows.objects, follows.size_bytes) == (1, 3, 300)


def it_follows_nothing_for_a_branch_at_a_commit_that_another_keeps():
    found = consequences(graph(HISTORY, {**BRANCHES, "same": "b"}), ["same"], GcRules(21), NOW, UTC)
    assert not found.any_follow
    follows = found.by_branch(ImpactResult({}))["same"]
    assert (follows.commits, follows.objects, follows.size_bytes) == (0, 0, 0)


def it_fits_into_the_mask_however_many_branches_go():
    names = [f"b{n:03d}" for n in range(MAX_BRANCHES + 20)]
    commits = {"a": (1.0, "")} | {f"c{n}": (1.0, "a") for n in names}
    found = consequences(graph(commits, {n: f"c{n}" for n in names}), names, GcRules(7), NOW, UTC)
    assert max(found.masks) < 1 << MAX_VERDICT_BITS
    counts = found.by_branch(ImpactResult({}))
    assert all(c.commits == 1 for c in counts.values())
    assert counts[names[-1]].objects is None
    assert counts[names[0]].objects == 0


@given(st.data())
def it_never_loses_what_stays_kept_without_the_branches(data):
    size = data.draw(st.integers(1, 12))
    commits = {
        f"c{n}": (
            float(data.draw(st.integers(0, 60))),
            f"c{data.draw(st.integers(0, n - 1))}" if n else "",
        )
        for n in range(size)
    }
    heads = data.draw(st.dictionaries(st.sampled_from("vwxyz"), st.sampled_from(sorted(commits))))
    deleted = data.draw(st.lists(st.sampled_from(sorted(heads) or ["none"]), unique=True))
    drawn = graph(commits, heads)
    rules = GcRules(data.draw(st.integers(1, 40)), {"v": 30})
    found = consequences(drawn, deleted, rules, NOW, UTC)
    without = ServerWalk(drawn.without_branches(deleted), rules).active(NOW, UTC)
    for mask, kept in zip(found.masks, without, strict=True):
        assert bool(mask & BY_MOMENT["now"].after) == bool(kept)
    if not deleted:
        assert not found.any_follow


@given(st.data())
def it_puts_every_tag_that_may_lose_data_beside_a_branch(data):
    """Whatever the shape: merges, several branches on a line, commits with many parents of old versions."""
    names = [f"c{n:02d}" for n in data.draw(st.permutations(range(data.draw(st.integers(1, 12)))))]
    commits = [
        Commit(
            name,
            us(data.draw(st.integers(0, 100))),
            f"r{name}",
            tuple(data.draw(st.lists(st.sampled_from(names[:place]), max_size=3, unique=True)))
            if place
            else (),
            version=data.draw(st.sampled_from([0, 1])),
        )
        for place, name in enumerate(names)
    ]
    heads = data.draw(st.dictionaries(st.sampled_from("vwxyz"), st.sampled_from(names), min_size=1))
    tags = tuple(Tag(f"at-{name}", name) for name in names)
    drawn = CommitGraph.from_refs(Refs(tuple(commits), tuple(Branch(n, c) for n, c in heads.items()), tags))
    deleted = data.draw(st.lists(st.sampled_from(sorted(heads)), unique=True))
    days = data.draw(st.dictionaries(st.sampled_from("vwxyz"), st.integers(1, 90)))
    found = consequences(drawn, deleted, GcRules(data.draw(st.integers(1, 40)), days), NOW, UTC, tags)
    moments = [found.transitions()[name] for name in MOMENTS]
    gone = {drawn.ids[n] for n, mask in enumerate(found.masks) if any(t.expires(mask) for t in moments)}
    seen = [tag for follows in found.by_branch(None).values() for tag in follows.tags]
    assert sorted(seen) == sorted(f"at-{commit}" for commit in gone)
    assert all(follows.commits for follows in found.by_branch(None).values() if follows.tags)


class DescribeSafety:
    @staticmethod
    def after(age: float, days: int) -> datetime:
        return NOW + timedelta(days=days - age)

    @staticmethod
    def until(rules: GcRules, heads: dict[str, str], *deleted: str) -> datetime:
        ends = safe_until(graph(HISTORY, heads), deleted, rules, UTC)
        return ends[deleted[0]] + timedelta(microseconds=1)

    def it_is_safe_for_the_default_days_after_its_head(self):
        assert self.until(GcRules(21, {"feature": 90}), BRANCHES, "feature") == self.after(10, 21)

    def it_is_safe_only_for_the_days_of_the_branch_that_contains_its_head(self):
        rules = GcRules(21, {"main": 3})
        assert self.until(rules, {"main": "b", "old": "a"}, "old") == self.after(1, 3)

    def it_is_safe_for_the_default_days_if_that_branch_is_deleted_too(self):
        rules, heads = GcRules(21, {"other": 3}), {"main": "b", "feature": "f1", "other": "f2"}
        assert self.until(rules, heads, "feature") == self.after(10, 3)
        assert self.until(rules, heads, "feature", "other") == self.after(10, 21)

    def it_counts_the_fewest_days_of_branches_at_the_same_head(self):
        rules, heads = GcRules(21, {"main": 3, "next": 5}), {"main": "f2", "next": "f2", "feature": "f2"}
        assert self.until(rules, heads, "feature") == self.after(10, 3)
        assert self.until(replace(rules, default_retention_days=2), heads, "feature") == self.after(10, 2)

    def it_counts_the_default_days_of_a_pin_at_the_head_whatever_its_rule(self):
        pin, head = "lakeplan-pin-abababababab", "ab" * 8
        drawn = graph({**HISTORY, head: (10, "f1")}, {"main": "b", pin: head, "feature": head})
        until = safe_until(drawn, ["feature"], GcRules(21, {pin: 0}), UTC)["feature"]
        assert until + timedelta(microseconds=1) == self.after(10, 21)

    def it_counts_calendar_days_where_clocks_change(self):
        zone = ZoneInfo("Europe/Berlin")
        head = datetime(2026, 3, 20, 12, tzinfo=zone).astimezone(UTC)
        for heads in ({"feature": "a"}, {"feature": "a", "main": "a"}):
            drawn = graph({"a": ((NOW - head) / timedelta(days=1), "")}, heads)
            until = safe_until(drawn, ["feature"], GcRules(21), zone)["feature"]
            # An hour was skipped on the way: 21 days by the calendar are 503 hours.
            assert abs(until - (head + timedelta(hours=503))) < timedelta(seconds=2)

    def it_has_no_end_without_rules_or_in_any_calendar(self):
        drawn = graph(HISTORY, BRANCHES)
        assert safe_until(drawn, ["feature"], None, UTC) == {}
        assert safe_until(drawn, ["feature"], GcRules(705_032_704), UTC) == {}
