"""The effect of a change of rules on commits, now and later."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from lakeplan.plan import impact
from lakeplan.plan.impact import (
    BACKLOG,
    EXISTS_BIT,
    Course,
    Missing,
    Outcome,
    Verdicts,
    expires_later,
    judge,
    side_bits,
    simulated,
    transitions,
)
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import to_us
from lakeplan.values.plan import (
    STAGED_DATA,
    Backlog,
    Bit,
    Horizon,
    HorizonImpact,
    Impact,
    ImpactStatus,
    PrefixImpact,
    Shown,
    TagLoss,
)
from lakeplan.values.repository import Branch, Commit, Refs, Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.shown_records import commit_digests, object_digests, packed
from lakeplan.values.simulation import Amount, ImpactResult, PrefixAmount, Transition

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
UTC = timezone.utc


def chain(*ages: float, tags: tuple[int, ...] = ()) -> CommitGraph:
    """``main`` with one commit per age in days, oldest first, and tags on commits by number."""
    commits = []
    for i, age in enumerate(ages):
        created = int((NOW - timedelta(days=age)).timestamp() * 1e6)
        commits.append(Commit(f"c{i}", created, f"m{i}" if i else "", (f"c{i - 1}",) if i else ()))
    refs = Refs(
        tuple(commits),
        (Branch("main", f"c{len(ages) - 1}"),),
        tuple(Tag(f"v{i}", f"c{i}") for i in tags),
    )
    return CommitGraph.from_refs(refs)


def it_expires_what_the_proposed_rules_no_longer_keep():
    verdicts = judge(chain(50, 40, 20, 10, 1), GcRules(30), GcRules(5), NOW, UTC)
    now = verdicts.commit_impact(Horizon.NOW)
    # 30 days keep ages 1, 10, 20 and the first past the limit (40); 5 days keep 1 and 10
    assert (now.commits_kept_before, now.commits_kept_after, now.commits_expire) == (4, 2, 2)
    assert now.commits_released == 0
    assert [verdicts.graph.ids[i] for i in verdicts.expiring()] == ["c1", "c2"]
    assert verdicts.backlog_commits() == 1
    assert verdicts.changes_sides(backlog=False)


def it_judges_later_moments_as_if_nobody_wrote():
    # 10 and 5 days keep the same today; in a week 5 days let the commit of age 10 go
    verdicts = judge(chain(10, 1), GcRules(10), GcRules(5), NOW, UTC)
    assert verdicts.commit_impact(Horizon.NOW).commits_expire == 0
    assert verdicts.commit_impact(Horizon.WEEK).commits_expire == 1
    assert verdicts.commit_impact(Horizon.MONTH).commits_expire == 0  # 10 days let it go as well by then


def it_releases_what_longer_rules_keep_again():
    verdicts = judge(chain(50, 40, 20, 1), GcRules(5), GcRules(30), NOW, UTC)
    now = verdicts.commit_impact(Horizon.NOW)
    assert (now.commits_expire, now.commits_released) == (0, 1)
    assert not verdicts.changes_sides(backlog=False)


def it_takes_unset_rules_for_keeping_everything():
    first = judge(chain(50, 40, 1), None, GcRules(5), NOW, UTC)
    assert first.commit_impact(Horizon.NOW).commits_expire == 1
    cleared = judge(chain(50, 40, 1), GcRules(5), None, NOW, UTC)
    assert cleared.commit_impact(Horizon.NOW).commits_released == 1
    assert not cleared.changes_sides(backlog=False)


def it_tells_commits_that_only_the_server_lets_go():
    # main's HEAD sorts first, so the walk of dev stops at the shared parent before marking it (retention.md)
    def at(age: float) -> int:
        return int((NOW - timedelta(days=age)).timestamp() * 1e6)

    commits = (
        Commit("p0", at(300), "", ()),
        Commit("p1", at(200), "m1", ("p0",)),
        Commit("a-main", at(150), "m2", ("p1",)),
        Commit("b-dev", at(3), "m3", ("p1",)),
    )
    graph = CommitGraph.from_refs(Refs(commits, (Branch("main", "a-main"), Branch("dev", "b-dev")), ()))
    verdicts = judge(graph, None, GcRules(7, {"main": 100}), NOW, UTC)
    now = verdicts.commit_impact(Horizon.NOW)
    assert (now.commits_expire, now.commits_at_risk) == (2, 1)


def it_counts_the_backlog_only_when_asked():
    graph = chain(50, 40, 20, 10, 1)
    asked = judge(graph, GcRules(15), GcRules(15), NOW, UTC, backlog=True)
    assert asked.changes_sides(backlog=True)
    assert not asked.changes_sides(backlog=False)
    goes = [graph.ids[i] for i, m in enumerate(asked.masks) if transitions(backlog=True)[BACKLOG].expires(m)]
    assert goes == ["c0", "c1"]


def it_has_a_digest_that_moves_with_any_verdict_of_now():
    graph = chain(50, 40, 20, 10, 1)
    one = judge(graph, GcRules(30), GcRules(5), NOW, UTC)
    assert one.digest() == judge(graph, GcRules(31), GcRules(5), NOW, UTC).digest()
    assert one.digest() != judge(graph, GcRules(30), GcRules(15), NOW, UTC).digest()
    assert one.digest() != judge(graph, GcRules(30), GcRules(5), NOW + timedelta(days=11), UTC).digest()


def it_has_a_digest_that_moves_with_a_tag_that_may_lose_data():
    def digest(*tags: int) -> str:
        return judge(chain(50, 40, 20, 10, 1, tags=tags), GcRules(30), GcRules(5), NOW, UTC).digest()

    assert digest() == digest(4)  # a tag on what stays
    assert digest() != digest(1)
    assert digest(1) != digest(1, 2)


def it_asks_for_every_tag_that_may_lose_data_through_the_change():
    verdicts = judge(chain(50, 40, 20, 10, 1, tags=(0, 1, 2, 4)), GcRules(15), GcRules(5), NOW, UTC)
    # c1 is past 15 days already and c2 goes now: the objects they share go with c2
    assert [verdicts.graph.ids[i] for i in verdicts.expiring()] == ["c2"]
    assert impact.tag_metaranges(verdicts) == {"v1": "m1", "v2": "m2"}
    result = ImpactResult(by_mask={}, tags={"v1": Amount(1, 10), "v2": Amount(2, 20)}, ranges_read=2)
    folded = impact.simulated(verdicts, result, backlog=False)
    assert [(t.tag, t.commit_id) for t in folded.tags] == [("v1", "c1"), ("v2", "c2")]


def it_asks_for_tags_whose_commit_goes_later_because_of_the_change():
    # 5 days keep all of these today, and let the oldest go within the week
    verdicts = judge(chain(8, 4, 1, tags=(0, 1)), GcRules(90), GcRules(5), NOW, UTC)
    assert verdicts.expiring() == []
    assert [t.tag for t in impact.unknown(verdicts, "time-out").tags] == ["v0", "v1"]
    assert impact.tag_metaranges(verdicts) == {"v1": "m1"}  # a first commit holds nothing


def it_folds_objects_by_mask():
    verdicts = judge(chain(50, 40, 20, 10, 1, tags=(1,)), GcRules(30), GcRules(5), NOW, UTC)
    stored, proposed = (side_bits(Horizon.NOW, proposed=p) for p in (False, True))
    result = ImpactResult(
        by_mask={
            stored.server: Amount(3, 30),  # goes
            stored.server | proposed.documented: Amount(2, 20),  # goes, at risk
            stored.server | proposed.server: Amount(5, 50),  # stays
            0: Amount(7, 70),  # was gone before
        },
        tags={"v1": Amount(4, 40)},
        ranges_read=4,
    )
    folded = impact.simulated(verdicts, result, backlog=False)
    now = folded.now
    assert now is not None
    assert (now.objects_expire, now.bytes_expire, now.objects_at_risk) == (5, 50, 2)
    assert (now.objects_kept, now.percent_expire) == (10, 50.0)
    assert [(t.tag, t.commit_id, t.objects) for t in folded.tags] == [("v1", "c1", 4)]


def it_never_shows_unknown_objects_as_zero():
    verdicts = judge(chain(50, 40, 20, 10, 1, tags=(1,)), GcRules(30), GcRules(5), NOW, UTC)
    unknown = impact.unknown(verdicts, "time-out")
    assert unknown.status is ImpactStatus.UNKNOWN
    assert unknown.now is not None
    assert unknown.now.objects_expire is None
    assert unknown.now.commits_expire == 2
    assert [t.tag for t in unknown.tags] == ["v1"]


def it_counts_an_object_that_expires_only_while_policies_have_not_deleted_its_branch():
    """After the deletion the default days keep one commit of the object, but writes may keep the branch."""

    def commit(name: str, age: int, *parents: str) -> Commit:
        at = int((NOW - timedelta(days=age)).timestamp() * 1e6)
        return Commit(name, at, f"m-{name}", parents)

    # What both "old" and "new" hold is kept by rule "f" now, and by nothing once the rule has one day.
    commits = (
        commit("root", 50),
        commit("main", 1, "root"),
        commit("old", 25, "root"),
        commit("new", 20, "old"),
        commit("head", 15, "new"),
    )
    graph = CommitGraph.from_refs(Refs(commits, (Branch("main", "main"), Branch("f", "head")), ()))
    verdicts = judge(
        graph,
        GcRules(30, {"f": 18}),
        GcRules(30, {"f": 1}),
        NOW,
        UTC,
        missing=Missing(lambda moment, proposed: frozenset({"f"})),
    )
    masks = verdicts.metaranges()
    held = masks["m-old"] | masks["m-new"]
    assert transitions(backlog=False)["expire_now"].expires(held)
    result = ImpactResult({held: Amount(1, 10)}, ranges_read=1)
    now = simulated(verdicts, result, backlog=False).horizons["now"]
    assert (now.objects_expire, now.bytes_expire, now.objects_kept) == (1, 10, 1)


def it_says_what_expires_sooner_but_at_no_horizon():
    graph = chain(50, 40, 20, 1)
    (later,) = expires_later(graph, GcRules(365), GcRules(100), NOW, UTC)
    assert later.startswith("3 commits that would expire sooner")
    assert later.endswith("The first would expire in 59 days")  # c0, since c1 is 40 days old
    assert not judge(graph, GcRules(365), GcRules(100), NOW, UTC).changes_sides(backlog=False)
    (between,) = expires_later(graph, GcRules(66), GcRules(51), NOW, UTC)
    assert between.endswith("The first would expire in 10 days")
    assert expires_later(graph, None, GcRules(100), NOW, UTC)
    (beyond,) = expires_later(graph, GcRules(365), GcRules(51), NOW, UTC, beyond=True)
    assert beyond.startswith("2 commits ")  # without c0, which expires within 30 days
    assert beyond.endswith("The first would expire in 30 days")
    assert not expires_later(graph, GcRules(66), GcRules(31), NOW, UTC, beyond=True)
    assert not expires_later(graph, GcRules(100), GcRules(365), NOW, UTC)
    assert not expires_later(graph, GcRules(100), None, NOW, UTC)


class DescribeAnImpact:
    """Rules of 30 days become 5: c1 (tag v1) and c2 of five commits expire, and c0 did before."""

    def verdicts(self, *, backlog: bool = False) -> Verdicts:
        graph = chain(50, 40, 20, 10, 1, tags=(1,))
        return judge(graph, GcRules(30), GcRules(5), NOW, UTC, backlog=backlog)

    def horizons(self, verdicts: Verdicts) -> dict[str, HorizonImpact]:
        return {
            "now": HorizonImpact(NOW, 4, 2, 2, 0, 0),
            "plus_7_days": HorizonImpact(NOW + timedelta(days=7), 4, 1, 3, 0, 0),
            "plus_30_days": HorizonImpact(NOW + timedelta(days=30), 1, 1, 0, 0, 0),
        }

    def it_has_figures_of_commits_alone_if_objects_are_unknown(self) -> None:
        verdicts = self.verdicts()
        assert impact.unknown(verdicts, "time-out", ("blind",)) == Impact(
            ImpactStatus.UNKNOWN,
            reason="time-out",
            horizons=self.horizons(verdicts),
            tags=(TagLoss("v1", "c1", None, None),),
            backlog=Backlog(1),
            commits_digest=verdicts.digest(),
            blind_to=("blind",),
        )
        nothing = Impact(ImpactStatus.UNKNOWN, reason="no refs", blind_to=("blind",))
        assert impact.unknown(None, "no refs", ("blind",)) == nothing

    def it_is_zero_and_not_unknown_if_no_commit_expires(self) -> None:
        verdicts = judge(chain(10, 1), GcRules(5), GcRules(90), NOW, UTC)
        found = impact.unaffected(verdicts, ("blind",))
        assert (found.status, found.blind_to) == (ImpactStatus.UNAFFECTED, ("blind",))
        assert (found.backlog, found.commits_digest) == (Backlog(0), verdicts.digest())
        for horizon in Horizon:
            expected = verdicts.commit_impact(horizon)
            zero = {"objects_expire": 0, "bytes_expire": 0, "objects_at_risk": 0, "bytes_at_risk": 0}
            assert found.horizons[horizon.value] == replace(expected, **zero)

    def it_folds_what_the_simulation_read(self) -> None:
        verdicts = self.verdicts(backlog=True)
        old, new = (side_bits(Horizon.NOW, proposed=proposed) for proposed in (False, True))
        result = ImpactResult(
            by_mask={
                old.server: Amount(3, 30),
                old.server | new.documented: Amount(2, 20),
                old.server | new.server: Amount(5, 50),
                EXISTS_BIT: Amount(7, 70),
            },
            prefixes=(PrefixAmount("raw/", 1, Amount(4, 40)),),
            tags={"v1": Amount(4, 40), "v0": Amount(0, 0)},
            ranges_read=4,
            entries_read=9,
        )
        found = simulated(verdicts, result, backlog=True, blind_to=("blind",))
        expected = self.horizons(verdicts)
        zero = {"objects_expire": 0, "bytes_expire": 0, "objects_at_risk": 0, "bytes_at_risk": 0}
        later = {**zero, "objects_kept": 0, "bytes_kept": 0}
        figures = {"objects_expire": 5, "bytes_expire": 50, "objects_kept": 10, "bytes_kept": 100}
        assert found == Impact(
            ImpactStatus.SIMULATED,
            horizons={
                "now": replace(expected["now"], **figures, objects_at_risk=2, bytes_at_risk=20),
                "plus_7_days": replace(expected["plus_7_days"], **later),
                "plus_30_days": replace(expected["plus_30_days"], **later),
            },
            tags=(TagLoss("v1", "c1", 4, 40),),
            prefixes=(PrefixImpact("raw/", 1, 4, 40),),
            backlog=Backlog(1, 7, 70),
            ranges_read=4,
            entries_read=9,
            commits_digest=verdicts.digest(),
            blind_to=("blind", STAGED_DATA),
        )
        assert simulated(verdicts, result, backlog=False).backlog == Backlog(1)

    def it_knows_nothing_of_kept_objects_if_no_range_was_read(self) -> None:
        now = simulated(self.verdicts(), ImpactResult({}), backlog=False).now
        assert now is not None
        assert (now.objects_expire, now.objects_kept, now.bytes_kept) == (0, None, None)

    def it_counts_the_commits_that_are_at_risk(self) -> None:
        assert impact.outcome_of(side_bits(Horizon.NOW, proposed=True).documented, Horizon.NOW) == Outcome(
            kept_before=False, kept_after=False, expires=False, at_risk=True
        )
        deleted = side_bits(Horizon.NOW, proposed=True, course=Course.DELETE)
        assert impact.outcome_of(deleted.server, Horizon.NOW).kept_after
        assert not impact.outcome_of(deleted.server, Horizon.WEEK).kept_after

    def it_names_what_expires_now_and_within_a_week(self) -> None:
        assert impact.named_transitions(backlog=False) == {
            "expire_now": Bit.NOW,
            "expire_plus_7_days": Bit.WEEK,
        }
        assert impact.named_transitions(backlog=True)[BACKLOG] is Bit.BACKLOG

    def it_records_commits_and_objects_that_expire(self, monkeypatch: pytest.MonkeyPatch) -> None:
        verdicts = self.verdicts()
        objects = packed([(object_digests("prod/lake", ["data/a"]), int(Bit.NOW))])
        weekly, now = ["c1", "c2", "c3"], ["c1", "c2"]
        expected = Shown.of(
            packed(
                [
                    (object_digests("prod/lake", ["data/a"]), int(Bit.NOW)),
                    (commit_digests("prod/lake", now), int(Bit.COMMIT_NOW)),
                    (commit_digests("prod/lake", weekly), int(Bit.COMMIT_WEEK)),
                ]
            )
        )
        monkeypatch.setattr(impact.limits, "SHOWN_RECORDS", 6)
        assert impact.shown_of("prod/lake", verdicts, objects) == expected
        assert impact.shown_of("prod/lake", verdicts, None) is None
        monkeypatch.setattr(impact.limits, "SHOWN_RECORDS", 5)
        assert impact.shown_of("prod/lake", verdicts, objects) is None


def it_judges_branches_that_are_absent_before_or_after_the_change():
    commits = (Commit("a", 0, "m-a"), Commit("b", to_us(NOW - timedelta(days=20)), "m-b", ("a",)))
    commits += (Commit("c", to_us(NOW - timedelta(days=2)), "m-c", ("a",)),)
    graph = CommitGraph.from_refs(Refs(commits, (Branch("f", "b"), Branch("main", "c")), ()))

    def expiring(missing: Missing) -> list[str]:
        rules = GcRules(5, {"main": 5})
        verdicts = judge(graph, rules, rules, NOW, UTC, missing=missing)
        return [graph.ids[i] for i in verdicts.expiring()]

    assert expiring(Missing()) == []
    assert expiring(Missing(absent=lambda proposed: frozenset({"f"} if proposed else ()))) == ["b"]
    assert expiring(Missing(absent=lambda proposed: frozenset({"f"}))) == []
    assert expiring(Missing(lambda moment, proposed: frozenset({"f"} if proposed else ()))) == ["b"]
    later = Missing(lambda moment, proposed: frozenset({"f"} if moment > NOW else ()))
    assert expiring(later) == []


def it_asks_for_both_courses_and_for_the_backlog_of_the_stored_rules():
    asked = transitions(backlog=True)
    assert [len(asked[name].others) for name in ("expire_now", "expire_plus_7_days")] == [1, 1]
    assert asked[BACKLOG] == Transition(EXISTS_BIT, side_bits(Horizon.NOW, proposed=False).server)
    masks = judge(chain(50, 1), GcRules(15), GcRules(15), NOW, UTC).masks
    assert not any(mask & EXISTS_BIT for mask in masks)


def it_says_of_one_commit_that_it_would_expire_sooner():
    (later,) = expires_later(chain(50, 1), GcRules(365), GcRules(100), NOW, UTC)
    assert later.startswith("1 commit that would expire sooner")


def it_names_the_tags_of_commits_that_expire_sooner_but_at_no_horizon():
    graph = chain(50, 40, 20, 1, tags=(0, 3))
    (later,) = expires_later(graph, GcRules(365), GcRules(100), NOW, UTC)
    assert later.endswith(". The tag-loss gate does not include their tags: v0")
    (later,) = expires_later(chain(*[20] * 8, tags=tuple(range(7))), GcRules(365), GcRules(100), NOW, UTC)
    assert later.endswith(": v0, v1, v2, v3, v4 and 2 more")


def it_has_a_digest_of_tags_that_are_no_text():
    graph = chain(50, 40, 20, 10, 1)
    tagged = replace(graph, tags=(Tag("\udcfc", "c1"),))
    digests = {judge(one, GcRules(30), GcRules(5), NOW, UTC).digest() for one in (graph, tagged)}
    assert len(digests) == 2


def it_judges_in_the_zone_of_the_server():
    # Between now and the month the clocks of Berlin go forward, so there 40 days end an hour sooner
    graph = chain(50, 10 - 0.5 / 24, 1)

    def in_a_month(zone: tzinfo) -> tuple[int, int]:
        month = judge(graph, GcRules(90), GcRules(40), NOW, zone).commit_impact(Horizon.MONTH)
        return month.commits_expire, month.commits_at_risk

    assert in_a_month(UTC) == (0, 0)
    assert in_a_month(ZoneInfo("Europe/Berlin")) == (1, 0)


def it_adds_up_what_is_at_risk():
    stored, proposed = (side_bits(Horizon.NOW, proposed=p) for p in (False, True))
    risk = stored.server | proposed.documented
    masks = [risk, risk | stored.documented, stored.server]
    verdicts = Verdicts(chain(3, 2, 1), masks, dict.fromkeys(Horizon, NOW))
    now = verdicts.commit_impact(Horizon.NOW)
    assert (now.commits_expire, now.commits_at_risk) == (3, 2)
    result = ImpactResult({mask: Amount(2, 20) for mask in masks}, ranges_read=1)
    objects = simulated(verdicts, result, backlog=False).now
    assert objects is not None
    assert (objects.objects_expire, objects.objects_at_risk, objects.bytes_at_risk) == (6, 4, 40)


def it_has_a_digest_of_the_verdicts_of_now_alone():
    graph = chain(10, 1)
    proposals = [judge(graph, GcRules(10), GcRules(days), NOW, UTC) for days in (10, 5)]
    assert [one.commit_impact(Horizon.WEEK).commits_expire for one in proposals] == [0, 1]
    assert proposals[0].digest() == proposals[1].digest()
