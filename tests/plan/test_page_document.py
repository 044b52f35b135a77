"""Branches, timeline and curves of the page's document."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.plan.page import (
    DAYS,
    branches_document,
    judge_history,
    own_commits,
    report_page_document,
    shown_repositories,
    timeline_document,
)
from lakeplan.retention.graph import CommitGraph
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import Action, GcRules
from tests.output import report_pages as pages

DAY = 86_400


def branches(read: Any = None, **fields: Any) -> dict[str, dict[str, Any]]:
    plan = pages.repository(pages.history(), **fields)
    judged = None if read is None else judge_history(plan, read, pages.AS_OF)
    rows = branches_document(plan, judged, pages.AS_OF)["rows"]
    assert [r["goes_at"] for r in rows] == sorted((r["goes_at"] for r in rows), key=lambda at: at or "9")
    return {row["branch"]: row for row in rows}


class DescribeBranches:
    def it_knows_from_the_plan_alone_what_policies_delete(self) -> None:
        rows = branches()
        assert rows["old"]["goes_at"] == "2026-04-05T00:00:00Z"
        assert (rows["old"]["age_seconds"], rows["old"]["idle_seconds"]) == (41 * DAY, None)
        assert (rows["main"]["age_seconds"], rows["main"]["own_commits"]) == (None, None)
        assert (rows["main"]["days_before"], rows["main"]["days_after"]) == (60, 20)

    def it_dates_branches_by_their_commits(self) -> None:
        rows = branches(pages.history())
        assert (rows["main"]["idle_seconds"], rows["main"]["own_commits"]) == (5 * DAY, 1)
        assert rows[pages.NASTY]["idle_seconds"] == rows[pages.NASTY]["age_seconds"] == 10 * DAY
        assert rows["old"]["created_at"] is not None
        assert rows["old"]["age_seconds"] == 41 * DAY, "the server's date, not its only commit's"

    def it_takes_the_servers_dates_where_it_has_some(self) -> None:
        now = int(pages.AS_OF.timestamp())
        read = pages.history()
        listed = (Branch("main", pages.commit_id("d"), now - 300 * DAY, now - 2 * DAY),)
        row = branches(pages.History(read.refs, "s", read.zone, (), listed))["main"]
        assert (row["age_seconds"], row["idle_seconds"]) == (300 * DAY, 2 * DAY)

    @given(st.data())
    def it_counts_commits_that_no_other_branch_leads_to(self, data: st.DataObject) -> None:
        size = data.draw(st.integers(1, 15))
        commits = [
            Commit(f"{n:02d}", n, "m", (f"{data.draw(st.integers(0, n - 1)):02d}",) if n else ())
            for n in range(size)
        ]
        heads = data.draw(st.lists(st.sampled_from([c.id for c in commits]), max_size=5))
        refs = Refs(tuple(commits), tuple(Branch(f"b{n}", h) for n, h in enumerate(heads)), ())
        parent = {c.id: c.main_parent for c in commits}

        def line(head: str | None) -> set[str]:
            found = set()
            while head is not None:
                found.add(head)
                head = parent[head]
            return found

        found = own_commits(CommitGraph.from_refs(refs))
        for n, head in enumerate(heads):
            others = set().union(*(line(h) for m, h in enumerate(heads) if m != n))
            assert found[f"b{n}"][0] == len(line(head) - others)


class DescribeTheTimeline:
    def it_says_which_commits_go_on_which_day(self) -> None:
        read = pages.history()
        plan = pages.repository(read)
        made = timeline_document(plan, judge_history(plan, read, pages.AS_OF), None, pages.AS_OF)
        proposed = {d["day"]: d["proposed"] for d in made["days"] if d["proposed"]}
        # c was followed by d 5 days ago on main (20 days); nothing else is kept but HEADs
        assert proposed[15] == 1
        assert all(1 <= day <= DAYS for day in proposed)
        assert {d["day"]: d["branches"] for d in made["days"] if d["branches"]} == {5: [["old", "quiet"]]}

    def it_has_no_commits_without_a_history(self) -> None:
        made = timeline_document(pages.repository(pages.history()), None, None, pages.AS_OF)
        assert made["has_commits"] is False
        assert [d["day"] for d in made["days"]] == [5]

    def it_takes_objects_from_a_curve(self) -> None:
        made = report_page_document(pages.plan(pages.repository(pages.history())), curves=[pages.curve()])
        (timeline,) = made["timelines"]
        assert {d["day"]: d["objects"] for d in timeline["days"]} == {2: 5, 5: None, 15: 10}

    def it_takes_none_from_a_curve_of_other_rules(self) -> None:
        other = pages.curve(rules=GcRules(99))
        made = report_page_document(pages.plan(pages.repository(pages.history())), curves=[other])
        assert made["timelines"][0]["has_objects"] is False
        assert made["curves"][0]["rules"] is None


class DescribeCurves:
    def it_finds_the_repository_of_a_curve(self) -> None:
        plan = pages.plan(pages.repository(pages.history(), storage_namespace="s3://bucket/shop"))
        names = ["prod/shop", "s3://bucket/shop", "file:///elsewhere", "file:///copy"]
        made = report_page_document(
            plan, curves=[pages.curve(n) for n in names], other_names={"file:///copy": "prod/shop"}
        )
        assert [c["key"] for c in made["curves"]] == ["prod/shop", "prod/shop", None, "prod/shop"]
        assert [c["rules"] for c in made["curves"]] == ["after", "after", None, "after"]

    def it_knows_a_curve_of_the_stored_rules(self) -> None:
        plan = pages.plan(pages.repository(pages.history()))
        made = report_page_document(plan, curves=[pages.curve(rules=pages.BEFORE)])
        assert made["curves"][0]["rules"] == "before"


class DescribeWhatIsShown:
    def it_shows_what_would_be_written_or_what_is_named(self) -> None:
        read = pages.history()
        quiet = pages.repository(
            read, "quiet", action=Action.NONE, before=pages.AFTER, changes=(), branch_lifecycle=None
        )
        plan = pages.plan(pages.repository(read), quiet)
        assert [r.name for r in shown_repositories(plan)] == ["shop"]
        assert [r.name for r in shown_repositories(plan, ["prod/quiet"])] == ["quiet"]

    def it_leaves_out_details_past_a_bound_and_says_so(self, monkeypatch: Any) -> None:
        monkeypatch.setattr("lakeplan.plan.page.MAX_DETAILED", 2)
        read = pages.history()
        made = report_page_document(pages.plan(*(pages.repository(read, f"r{n}") for n in range(3))))
        assert len(made["repositories"]) == 3
        assert len(made["timelines"]) == len(made["branches"]) == 2
        assert made["missing"] == [
            "the timeline and branches of 1 more repository (use --target to show them)"
        ]
