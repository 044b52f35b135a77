from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from lakeplan.output.annotations import render_github_plan, render_junit_plan
from lakeplan.output.comments import render_markdown
from lakeplan.output.plan import circumstances, render_plan
from lakeplan.output.report import render_report
from lakeplan.plan.page import report_page_document
from lakeplan.values.plan import (
    STAGED_DATA,
    Backlog,
    GateOutcome,
    GateResult,
    Horizon,
    Impact,
    ImpactStatus,
    TagLoss,
)
from lakeplan.values.plan_document import to_document
from lakeplan.values.rules import GcRules

NASTY = "[red]x[/red]\x1b[2J\u202eevil\n:boom:"
SECTIONS = ("Changes", "Impact", "Backlog", "Gates", "Warnings", "Adopted", "Failed", "Not managed", "Plan:")


def flat(text: str) -> str:
    return " ".join(text.split())


class DescribeAWholePlan:
    @pytest.mark.parametrize("width", [80, 160])
    def it_looks_as_reviewed(self, plans: Any, show: Any, golden_output: Any, width: int) -> None:
        golden_output(f"plan-full-{width}", show(render_plan, to_document(plans.full()), width))

    @pytest.mark.parametrize("width", [80, 160])
    def it_shows_its_parts_in_order(self, plans: Any, show: Any, width: int) -> None:
        lines = show(render_plan, to_document(plans.full()), width).splitlines()
        places = [next(i for i, line in enumerate(lines) if line.startswith(s)) for s in SECTIONS]
        assert places == sorted(places)

    @pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160])
    def it_never_prints_a_line_wider_than_the_terminal(self, plans: Any, show: Any, width: int) -> None:
        assert all(
            len(line) <= width for line in show(render_plan, to_document(plans.full()), width).splitlines()
        )

    @pytest.mark.parametrize("width", range(10, 200, 7))
    def it_cuts_no_figure_at_any_width(self, plans: Any, show: Any, width: int) -> None:
        shown = re.sub(r"\s", "", show(render_plan, to_document(plans.full()), width))
        digits = sum(shown.count(c) for c in "0123456789")
        wide = re.sub(r"\s", "", show(render_plan, to_document(plans.full()), 119 if width < 120 else 400))
        assert digits == sum(wide.count(c) for c in "0123456789")

    def it_is_rendered_from_json_alone(self, plans: Any, show: Any) -> None:
        import json

        document = to_document(plans.full())
        again = json.loads(json.dumps(document, sort_keys=True))
        assert show(render_plan, again, 100) == show(render_plan, document, 100)


class DescribeNoChanges:
    def it_says_so_in_one_line(self, plans: Any, show: Any) -> None:
        plan = plans.make(plans.unchanged("a"), plans.unchanged("b"))
        text = show(render_plan, to_document(plan), 80)
        assert text == "Plan: no changes, 2 unchanged.\n"

    def it_says_when_only_some_repositories_were_planned(self, plans: Any, show: Any) -> None:
        plan = plans.make(plans.unchanged("a"), targets=("team-*",))
        assert "only team-*" in show(render_plan, to_document(plan), 80)

    def it_still_shows_failures(self, plans: Any, show: Any) -> None:
        plan = plans.full()
        plan = replace(plan, repositories=tuple(r for r in plan.repositories if not r.action.writes))
        text = show(render_plan, to_document(plan), 80)
        assert "no changes, 5 unchanged, 1 failed." in text
        assert "permission" in text
        assert "hint: ask for the policy" in text


class DescribeValues:
    def it_shows_what_a_branch_falls_back_to(self, plans: Any, show: Any) -> None:
        plan = plans.make(plans.repository("a", GcRules(21, {"main": 90}), GcRules(21, {"dev": 7})))
        text = flat(show(render_plan, to_document(plan), 80))
        assert "- branch main 90 days → not set (21 days) shorter" in text
        assert "+ branch dev not set (21 days) → 7 days shorter" in text

    @pytest.mark.parametrize(("number", "whose"), [(1, "this repository"), (2, "these repositories")])
    def it_speaks_of_all_repositories_that_change_alike(
        self, plans: Any, show: Any, number: int, whose: str
    ) -> None:
        plan = plans.make(*(plans.repository(f"r{n}", None, GcRules(21, {})) for n in range(number)))
        text = flat(show(render_plan, to_document(plan), 80))
        assert f"first rules for {whose}: garbage collection starts" in text

    def it_shows_a_clear_as_removed_rules(self, plans: Any, show: Any) -> None:
        plan = plans.make(plans.repository("a", GcRules(21, {}), None))
        text = flat(show(render_plan, to_document(plan), 80))
        assert "clear: all rules are removed" in text
        assert "- default 21 days → not set" in text

    def it_shows_nonsense_the_server_stored(self, plans: Any, show: Any) -> None:
        plan = plans.make(plans.repository("a", GcRules(-3, {}), GcRules(1, {})))
        assert "-3 days → 1 day longer" in flat(show(render_plan, to_document(plan), 80))

    def it_joins_very_many_branches_that_change_alike(self, plans: Any, show: Any) -> None:
        branches = {f"feature-{i:04}": 7 for i in range(4812)}
        plan = plans.make(plans.repository("a", GcRules(28, {}), GcRules(28, branches)))
        text = show(render_plan, to_document(plan), 80)
        assert "4,812 branches: feature-0000" in flat(text)
        assert "and 4,807 more" in flat(text)
        assert len(text.splitlines()) < 30


class DescribeImpact:
    def it_never_shows_an_unknown_impact_as_nothing(self, plans: Any, show: Any) -> None:
        impact = Impact(ImpactStatus.UNKNOWN, reason="a range cannot be read")
        plan = plans.make(plans.repository("a", GcRules(9, {}), GcRules(8, {}), impact=impact))
        text = flat(show(render_plan, to_document(plan), 80))
        assert "unknown: a range cannot be read" in text
        assert "Impact: UNKNOWN in 1 repository." in text
        assert "0 objects" not in text

    def it_breaks_a_long_sum_between_its_parts_only(self, plans: Any, show: Any) -> None:
        ends = show(render_plan, to_document(plans.full()), 140).splitlines()[-3:]
        assert [line.split()[0] for line in ends] == ["Plan:", "Impact:", "BLOCKED"]
        wide = show(render_plan, to_document(plans.full()), 300).splitlines()[-1]
        assert wide == " ".join(ends)

    def it_keeps_unknown_and_known_apart_in_the_sum(self, plans: Any, show: Any) -> None:
        text = flat(show(render_plan, to_document(plans.full()), 80))
        assert "Impact: UNKNOWN in 1 repository; elsewhere 1,204,331 objects, 3.1 TB" in text
        assert "(1,420,000 objects, 3.7 TB in 30 days)" in text
        assert text.endswith("BLOCKED by tag-loss, unknown-impact.")

    def it_tells_what_was_allowed_from_what_blocks(self, plans: Any, show: Any) -> None:
        plan = replace(plans.full(), allowed=("clear", "tag-loss"))
        (facts,) = [p for p in circumstances(to_document(plan)) if p.startswith("allowed")]
        assert facts == "allowed: clear"
        assert "--allow without effect: tag-loss" in flat(show(render_plan, to_document(plan), 80))

    def it_says_when_only_time_makes_objects_expire(self, plans: Any, show: Any) -> None:
        objects = {Horizon.NOW: 0, Horizon.WEEK: 0, Horizon.MONTH: 50}
        impact = Impact(ImpactStatus.SIMULATED, horizons=plans.horizons((9, 9), objects, kept=100))
        plan = plans.make(plans.repository("a", GcRules(9, {}), GcRules(8, {}), impact=impact))
        text = flat(show(render_plan, to_document(plan), 80))
        assert "Impact: 0 objects, 0 B (50 objects, 128.7 MB in 30 days)." in text
        assert "Nothing expires" not in text

    def it_does_not_call_commits_without_known_objects_quiet(self, plans: Any, show: Any) -> None:
        impact = Impact(ImpactStatus.UNKNOWN, reason="no answer", horizons=plans.horizons((5, 5), None))
        plan = plans.make(plans.repository("a", GcRules(9, {}), GcRules(8, {}), impact=impact))
        assert "Nothing expires" not in show(render_plan, to_document(plan), 80)

    def it_names_commits_that_are_kept_again(self, plans: Any, show: Any) -> None:
        made = plans.horizons((5, 5), dict.fromkeys(Horizon, 0))
        made = {name: replace(h, commits_released=120) for name, h in made.items()}
        impact = Impact(
            ImpactStatus.SIMULATED, horizons={**made, "now": replace(made["now"], commits_expire=1)}
        )
        plan = plans.make(plans.repository("a", GcRules(9, {}), GcRules(80, {}), impact=impact))
        assert "120 commits that expired under the stored rules would be kept again" in show(
            render_plan, to_document(plan), 80
        )

    def it_shows_a_backlog_whose_objects_were_read(self, plans: Any, show: Any) -> None:
        impact = Impact(ImpactStatus.SIMULATED, backlog=Backlog(12, 3_400, 5_000_000))
        plan = plans.make(replace(plans.unchanged("a"), impact=impact))
        assert "prod/a 12 3,400 5.0 MB" in flat(show(render_plan, to_document(plan), 80))


class DescribeTagsAndRisk:
    def it_lists_tags_whose_loss_is_unknown(self, plans: Any, show: Any) -> None:
        impact = Impact(ImpactStatus.UNKNOWN, reason="x", tags=(TagLoss("v1", "ab" * 32, None, None),))
        plan = plans.make(plans.repository("a", GcRules(9, {}), GcRules(8, {}), impact=impact))
        text = flat(show(render_plan, to_document(plan), 80))
        assert "1 tag would lose data" in text
        assert "v1 abababababab unknown unknown" in text

    def it_names_the_worst_moment_of_objects_at_risk(self, plans: Any, show: Any) -> None:
        made = plans.horizons((5, 4), dict.fromkeys(Horizon, 9), at_risk=1)
        made["plus_7_days"] = replace(made["plus_7_days"], objects_at_risk=7, bytes_at_risk=7_000)
        impact = Impact(ImpactStatus.SIMULATED, horizons=made)
        plan = plans.make(plans.repository("a", GcRules(9, {}), GcRules(8, {}), impact=impact))
        text = flat(show(render_plan, to_document(plan), 80))
        assert "prod/a in 7 days 7 7.0 kB" in text


class DescribeManyRepositories:
    def a_plan(self, plans: Any, alike: bool) -> Any:
        objects = dict.fromkeys(Horizon, 1000)
        made = []
        for i in range(1_000):
            impact = Impact(
                ImpactStatus.SIMULATED, horizons=plans.horizons((90, 80), objects, object_bytes=1_000 + i)
            )
            after = GcRules(21 if alike else 10 + i % 18, {})
            made.append(plans.repository(f"team-{i:03}-landing", GcRules(28, {}), after, impact=impact))
        return plans.make(*made)

    def it_counts_unchanged_ones_only(self, plans: Any, show: Any) -> None:
        plan = plans.make(*(plans.unchanged(f"quiet-{i}") for i in range(1_000)))
        text = show(render_plan, to_document(plan), 80)
        assert "1,000 unchanged" in text
        assert "quiet-" not in text

    def it_joins_those_that_change_alike_and_still_names_each(self, plans: Any, show: Any) -> None:
        text = show(render_plan, to_document(self.a_plan(plans, alike=True)), 80)
        changes = text.split("Impact")[0]
        assert "1,000 repositories with identical changes" in changes
        assert flat(changes).count("-landing") == 1_000
        assert changes.count("default") == 1

    def it_gives_each_one_line_of_impact_the_largest_first(self, plans: Any, show: Any) -> None:
        text = show(render_plan, to_document(self.a_plan(plans, alike=True)), 80)
        rows = [line for line in text.split("Impact", 1)[1].splitlines() if "-landing" in line]
        assert len(rows) == 1_000
        assert rows[0].startswith("prod/team-999-landing")

    def it_shows_many_different_changes_in_one_table(self, plans: Any, show: Any, golden_output: Any) -> None:
        made = [
            plans.repository(f"team-{i:02}", GcRules(28, {"main": 90}), GcRules(28 - i, {"dev": 60 + i}))
            for i in range(1, 13)
        ]
        unknown = Impact(ImpactStatus.UNKNOWN, reason="not simulated (--no-simulate)")
        plan = plans.make(*(replace(r, impact=unknown) for r in made), simulate="none")
        golden_output("plan-many-80", show(render_plan, to_document(plan), 80))


class DescribeOtherPeoplesText:
    def a_nasty_plan(self, plans: Any) -> Any:
        gate = GateResult("tag-loss", f"prod/{NASTY}", GateOutcome.REFUSED, NASTY, opens_with=NASTY)
        impact = Impact(
            ImpactStatus.UNKNOWN, reason=NASTY, tags=(TagLoss(NASTY, NASTY, 1, 1),), blind_to=(NASTY,)
        )
        return plans.make(
            plans.repository(
                NASTY,
                GcRules(9, {}),
                GcRules(8, {NASTY: 3, "[/]": 4, "\udcff": 5}),
                entry=NASTY,
                adopted=True,
                impact=impact,
                gates=(gate,),
                warnings=(NASTY,),
            ),
            unmanaged=(NASTY,),
            warnings=(NASTY,),
            targets=(NASTY,),
        )

    def it_is_never_markup_nor_control_characters(self, plans: Any, show: Any) -> None:
        text = show(render_plan, to_document(self.a_nasty_plan(plans)), 200)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert r"[red]x[/red]\x1b[2J\u202eevil\n:boom:" in text
        assert "branch [/]" in text
        assert r"\udcff" in text

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
    def it_can_be_written_in_every_encoding(self, plans: Any, encoding: str) -> None:
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        console = Console(file=stream, width=80, highlight=False)
        render_plan(to_document(self.a_nasty_plan(plans)), console)
        render_plan(to_document(plans.full()), console)
        stream.flush()
        arrow = "→" if encoding == "utf-8" else "->"
        assert f"90 days            {arrow} 28 days" in stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]

    def it_folds_wide_and_endless_names(self, plans: Any, show: Any) -> None:
        name = "長い名前" * 40
        plan = plans.make(plans.repository("a", GcRules(9, {}), GcRules(9, {name: 5, "b" * 300: 6})))
        text = show(render_plan, to_document(plan), 80)
        packed = re.sub(r"[\s+]", "", text)
        assert packed.count("長い名前") == 40
        assert packed.count("b") >= 300


def it_sums_up_the_moment_at_which_most_objects_expire(plans: Any, show: Any) -> None:
    week = {Horizon.NOW: 0, Horizon.WEEK: 3, Horizon.MONTH: 1}
    impact = Impact(ImpactStatus.SIMULATED, horizons=plans.horizons((5, 4), week))
    made = [plans.repository(name, GcRules(10), GcRules(6), impact=impact) for name in "ab"]
    document = to_document(plans.make(*made))
    assert "Impact: 0 objects, 0 B (6 objects, " in show(render_plan, document, 160)
    comment = render_markdown(document)
    for objects in (3, 6):
        assert re.search(rf"Impact: 0 objects, 0 B \({objects} objects, [^)]*in 7 days\)\.", comment)


def it_shows_what_the_impact_does_not_include_in_every_format(plans: Any, show: Any) -> None:
    impact = Impact(ImpactStatus.UNAFFECTED, horizons={}, blind_to=("3 commits of later", STAGED_DATA))
    plan = plans.make(plans.repository("a", GcRules(9), GcRules(5), impact=impact))
    document = to_document(plan)
    texts = {
        "terminal": show(render_plan, document, 120),
        "comment": render_markdown(document),
        "annotations": render_github_plan(document),
        "junit": render_junit_plan(document),
        "page": render_report(report_page_document(plan)),
    }
    for name, text in texts.items():
        assert len(re.findall("[Nn]ot included: 3 commits of later", text)) == 1, name


class DescribeColours:
    def it_marks_additions_changes_and_removals(self, plans: Any) -> None:
        stream = io.StringIO()
        console = Console(
            file=stream, width=80, force_terminal=True, color_system="standard", highlight=False
        )
        render_plan(to_document(plans.full()), console)
        text = stream.getvalue()
        assert "\x1b[1;32m+" in text
        assert "\x1b[1;33m~" in text
        assert "\x1b[1;31m-" in text
        assert "\x1b[1;31mREFUSED" in text
