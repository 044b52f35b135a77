"""The graph of the page against the plan's own verdicts and against ``explain``."""

from __future__ import annotations

from datetime import timezone
from typing import Any

from hypothesis import given, settings

from lakeplan.explain.rules import Judge
from lakeplan.plan.page import VERDICTS, History, graph_document, judge_history, report_page_document
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import NEVER_EXPIRES, to_us
from lakeplan.values.plan import Horizon
from lakeplan.values.rules import GcRules
from tests.output import report_pages as pages
from tests.retention.test_properties import World, worlds


def drawn(limit: int = 10_000, read: History | None = None, **fields: Any) -> dict[str, Any]:
    read = read or pages.history()
    return graph_document(judge_history(pages.repository(read, **fields), read, pages.AS_OF), limit=limit)


def by_name(graph: dict[str, Any], column: Any) -> dict[str, Any]:
    names = [bytes.fromhex(id).decode().rstrip("\0") for id in graph["rows"]["id"]]
    return dict(zip(names, column, strict=True))


def verdicts(graph: dict[str, Any], moment: int = 0) -> dict[str, str]:
    return {name: VERDICTS[int(v[moment])] for name, v in by_name(graph, graph["rows"]["verdicts"]).items()}


def it_says_what_becomes_of_every_commit() -> None:
    graph = drawn()
    now = dict.fromkeys("dnco", "kept") | dict.fromkeys("abxz", "expires") | {"g": "gone"}
    assert verdicts(graph) == now
    # old is deleted by then, and its commit has the default days like any that no branch leads to
    assert verdicts(graph, 1) == now | {"o": "expires", "x": "gone"}
    assert verdicts(graph, 2) == now | dict.fromkeys("oc", "expires") | dict.fromkeys("axz", "gone")


def it_shows_what_is_kept_again() -> None:
    graph = drawn(before=GcRules(7), after=GcRules(60))
    assert {name for name, verdict in verdicts(graph).items() if verdict == "released"} >= {"b", "x", "z"}


def it_counts_as_the_plan_does() -> None:
    read = pages.history()
    plan = pages.repository(read)
    judged = judge_history(plan, read, pages.AS_OF)
    graph = graph_document(judged)
    for horizon in Horizon:
        impact = judged.verdicts.commit_impact(horizon)
        counts = graph["counts"][horizon.value]
        assert counts["kept"] + counts["released"] == impact.commits_kept_after
        assert counts["released"] == impact.commits_released
        assert counts["expires"] + counts["at_risk"] == impact.commits_expire
        assert counts["at_risk"] == impact.commits_at_risk
        assert sum(counts.values()) == len(judged.graph)


@settings(max_examples=60)
@given(worlds([timezone.utc]))
def it_gives_the_reasons_that_explain_gives(world: World) -> None:
    read = History(world.refs, "here", world.zone)
    before = GcRules(world.rules.default_retention_days + 3, world.rules.branches)
    plan = pages.repository(read, before=before, after=world.rules, branch_lifecycle=None)
    graph = graph_document(judge_history(plan, read, world.as_of))
    numbers = CommitGraph.from_refs(world.refs)
    rows, names = graph["rows"], [b[0] for b in graph["branches"]]
    for side, rules in (("stored", before), ("proposed", world.rules)):
        judge = Judge(numbers, side, rules, world.as_of, world.zone)
        documented = judge.documented
        assert documented is not None
        for row, id in enumerate(rows["id"]):
            number = numbers.index[id]
            until, branch = rows[side]["until"][row], rows[side]["branch"][row]
            if branch == -1:
                assert not documented.active[number]
            elif until is None:
                assert documented.kept_until_us[number] == NEVER_EXPIRES
                assert any(b.id == names[branch] and b.commit_id == id for b in world.refs.branches)
            else:
                assert until == documented.kept_until_us[number] // 1_000_000
                assert (documented.kept_until_us[number] >= to_us(world.as_of)) == bool(
                    documented.active[number]
                )
            kept = judge.branches
            assert kept is not None
            assert rows[side]["keepers"][row] == kept.count(number)
    for row, id in enumerate(rows["id"]):
        number, verdict = numbers.index[id], VERDICTS[int(rows["verdicts"][row][0])]
        after = Judge(numbers, "after", world.rules, world.as_of, world.zone)
        assert bool(after.server[number]) == (verdict in ("kept", "released"))
        said = after.explain([number])
        assert verdict.startswith("at_risk") == (said.documented and not said.server)


def it_shows_what_at_risk_means() -> None:
    # The walk of hold (older limit, smaller id) passes p, does not keep it, and stops the other walk there.
    read = pages.history(
        pages.commit("p", 200, "a"),
        pages.commit("q", 190, "p"),
        pages.commit("r", 2, "p"),
        hold="q",
        quick="r",
    )
    after = GcRules(7, {"hold": 100})
    already = drawn(read=read, before=GcRules(30, {"hold": 100}), after=after)
    assert verdicts(already)["p"] == "at_risk_already"
    newly = drawn(read=read, before=GcRules(30, {"hold": 250}), after=after)
    assert verdicts(newly)["p"] == "at_risk"
    assert newly["counts"]["now"]["at_risk"] == 1


def it_draws_first_what_changes_then_heads_then_the_newest() -> None:
    graph = drawn(limit=7)
    # six change sides by thirty days from now; of the HEADs that stay main's is the newest
    assert set(by_name(graph, graph["rows"]["id"])) == {*"abcoxz", "d"}
    assert graph["commits"] == 9
    assert sum(graph["counts"]["now"].values()) == 9, "counts are of all commits"
    few = drawn(limit=3)
    assert by_name(few, few["rows"]["parents"]) == {"z": [-1], "x": [-1], "c": [-1]}, "b is not drawn"
    at = graph["rows"]["at"]
    assert at == sorted(at, reverse=True)


def it_names_parents_by_row_the_main_one_first() -> None:
    graph = drawn()
    names = list(by_name(graph, graph["rows"]["id"]))
    parents = by_name(graph, graph["rows"]["parents"])
    assert [names[row] for row in parents["d"]] == ["c", "x"]
    assert parents["a"] == []


def it_keeps_everything_where_no_rules_are_set() -> None:
    graph = drawn(before=None, after=None, branch_lifecycle=None)
    assert set(verdicts(graph).values()) == {"kept"}
    assert graph["rows"]["stored"] is graph["rows"]["proposed"] is None


def it_tells_whether_the_history_is_the_plans() -> None:
    read = pages.history()
    judged = judge_history(pages.repository(read), read, pages.AS_OF)
    impact = pages.Impact(pages.ImpactStatus.UNAFFECTED, commits_digest=judged.verdicts.digest())
    assert drawn(impact=impact)["same_as_plan"] is True
    later = pages.history(pages.commit("y", 0.1, "d"), main="y")
    assert drawn(read=later, impact=impact)["same_as_plan"] is False
    assert drawn()["same_as_plan"] is None, "this plan judged no history"


def it_draws_no_more_than_a_page_can_hold(monkeypatch: Any) -> None:
    monkeypatch.setattr("lakeplan.plan.page.MAX_DRAWN", 11)
    read = pages.history()
    one, two, three = (pages.repository(read, name) for name in ("one", "two", "three"))
    document = report_page_document(
        pages.plan(one, two, three), histories={r.key: read for r in (one, two, three)}
    )
    assert [(g["key"], len(g["rows"]["id"])) for g in document["graphs"]] == [
        ("prod/one", 9),
        ("prod/three", 2),
    ]
    assert document["missing"] == [
        "the commit graph of prod/two, because the page would be too large (use --target to show it alone)"
    ]


def it_says_whether_the_server_follows_the_documented_rule() -> None:
    read = pages.history(
        pages.commit("p", 200, "a"),
        pages.commit("q", 190, "p"),
        pages.commit("r", 2, "p"),
        hold="q",
        quick="r",
    )
    graph = drawn(read=read, before=GcRules(30, {"hold": 250}), after=GcRules(7, {"hold": 100}))
    stored, proposed = (by_name(graph, graph["rows"][side]["server"]) for side in ("stored", "proposed"))
    assert (stored["p"], proposed["p"]) == ("1", "0")
    assert by_name(graph, graph["rows"]["proposed"]["until"])["p"] > graph["as_of"]
