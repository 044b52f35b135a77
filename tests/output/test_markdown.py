from __future__ import annotations

import html
import io
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from lakeplan.output.comments import COMMENT_LIMIT, marker, render_markdown
from lakeplan.output.plan import render_plan
from lakeplan.output.text import code, length, prose, safe, table
from lakeplan.values.plan import Failure, GateOutcome, GateResult, WeakenedSetting
from lakeplan.values.plan_document import to_document
from lakeplan.values.rules import GcRules

NASTY = "@org/team |x| <!-- --> `a` [l](https://evil.example) #12 ![i](x) </details> *b* ~~c~~ :boom:\n/close"
TEXT = st.text(st.characters() | st.sampled_from("@#|`<>*_[]!~&\\/w.:\n"), max_size=40)
LOOSENINGS = (
    WeakenedSetting("tree", "safety.max_expired_bytes", "5,000 bytes", "unlimited", "lakeplan.yaml:9:3"),
    WeakenedSetting("tree", "overrides: tag-loss of analytics", "absent", "up to 1: moved", "a.yaml:30:5"),
    WeakenedSetting("prod/analytics", "sweep.automatic", "false", "true", "lakeplan.yaml:12:7"),
    WeakenedSetting("prod/events", "sweep.automatic", "false", "true", "lakeplan.yaml:12:7"),
)


def full(plans: Any) -> Any:
    return replace(plans.full(), base="ab" * 20, loosenings=LOOSENINGS)


def many(plans: Any, count: int, message: str = "30.1 percent expire") -> Any:
    return to_document(many_plans(plans, count, message))


def many_plans(plans: Any, count: int, message: str = "30.1 percent expire") -> Any:
    before, after = GcRules(28, {"main": 90}), GcRules(21, {"main": 28})
    made = [
        plans.repository(
            f"team-{i:04}",
            before,
            after,
            gates=(
                GateResult(
                    "expired-objects",
                    f"prod/team-{i:04}",
                    GateOutcome.REFUSED,
                    message,
                    opens_with="--allow expired-objects",
                ),
            ),
        )
        for i in range(count)
    ]
    return plans.make(*made)


class DescribeEscaping:
    @given(TEXT)
    def it_keeps_a_name_readable_and_inert(self, text: str) -> None:
        shown = code(text)
        inner = shown.removeprefix("<code>").removesuffix("</code>")
        assert not re.search(r"[\n\r|<>@`*_\[\]~\\]", inner)
        assert "://" not in inner
        assert "www." not in inner

    @given(TEXT)
    def it_lets_prose_neither_mention_nor_refer_nor_break_a_table(self, text: str) -> None:
        shown = prose(text)
        assert not re.search(r"[\n\r|<>@`*_\[\]~\\]", shown)
        seen = html.unescape(shown)  # what a host looks for references in
        assert not re.search(r"[@#!~%&$^](?=[\w\"'])", seen)

    @given(TEXT)
    def it_comes_out_of_a_markdown_parser_as_it_went_in(self, text: str) -> None:
        parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
        shown = parser.render(f"{table(('a', 'b'), [[code(text), prose(text)]])}\nAfter.\n")
        cells = re.findall(r"<td>(.*?)</td>", shown)
        assert len(cells) == 2
        assert shown.endswith("</table>\n<p>After.</p>\n")
        name, sentence = cells[0].removeprefix("<code>").removesuffix("</code>"), cells[1]
        assert not re.search("<[a-z/!]", name + sentence)
        assert html.unescape(name) == safe(text)
        # A parser drops the blanks at the ends of a cell.
        assert html.unescape(sentence).replace("\u200b", "").strip() == safe(text).strip()

    def it_shows_the_characters_that_were_there(self) -> None:
        assert html.unescape(code("a|b_c@d`e")) == "<code>a|b_c@d`e</code>"
        assert html.unescape(prose("1 tag: v1.0 | x")) == "1 tag: v1.0 | x"

    def it_begins_no_line_with_a_command_of_gitlab(self) -> None:
        assert prose("/merge").startswith("&#47;merge")
        assert html.unescape(prose("/merge a/b")) == "/merge a/b"

    def it_makes_tables_with_figures_on_the_right(self) -> None:
        assert table(("a", "b"), [["x", "1"]], figures=(1,)) == "| a | b |\n| --- | ---: |\n| x | 1 |\n"


class DescribeAComment:
    def it_looks_as_reviewed(self, plans: Any, golden_output: Any) -> None:
        golden_output(
            "plan-full-markdown", render_markdown(to_document(full(plans)), tree="deploy/retention")
        )

    def it_begins_with_a_marker_that_other_plans_of_the_tree_share(self, plans: Any) -> None:
        one = render_markdown(to_document(full(plans)), tree="deploy")
        other = render_markdown(to_document(plans.make(plans.unchanged("x"))), tree="deploy")
        assert one.splitlines()[0] == other.splitlines()[0] == "<!-- lakeplan:plan:deploy -->"
        assert marker("") != marker("deploy")
        assert marker("a-->b").count("-->") == 1

    def it_has_one_summary_line_before_everything_else(self, plans: Any) -> None:
        line = render_markdown(to_document(full(plans))).splitlines()[1]
        assert "Plan: 1 to add, 1 to change, 1 to clear" in line
        assert "UNKNOWN in 1 repository" in line
        assert "BLOCKED" in line

    def it_puts_loosenings_before_gates_and_gates_before_changes(self, plans: Any) -> None:
        text = render_markdown(to_document(full(plans)))
        places = [
            text.index(w) for w in ("This change weakens 4 safety settings", "### :no_entry: BLOCKED", "####")
        ]
        assert places == sorted(places)
        assert text.count("sweep.automatic") == 1

    def it_has_a_table_and_folded_details_for_every_repository_that_changes(self, plans: Any) -> None:
        text = render_markdown(to_document(full(plans)))
        assert text.count("#### <code>") == text.count("| value | now | proposed |") == 3
        assert text.count("<summary>details</summary>") == 3
        assert text.count("<details>") == text.count("</details>")

    def it_names_every_branch_that_changes_like_many_others(self, plans: Any) -> None:
        before = GcRules(28, {**{f"a{i:02}": 90 for i in range(30)}, "main": 90})
        made = plans.repository("analytics", before, GcRules(28, dict.fromkeys(before.branches, 7)))
        text = render_markdown(to_document(plans.make(made)))
        table, details = text.split("<details>", 1)
        assert "31 branches: a00" in table
        assert "branch main" in details

    def it_is_one_short_comment_when_nothing_changes(self, plans: Any) -> None:
        text = render_markdown(to_document(plans.make(plans.unchanged("x"))))
        assert "no changes, 1 unchanged" in text
        assert len(text.splitlines()) <= 6

    def it_lets_no_name_out(self, plans: Any) -> None:
        before, after = GcRules(28, {}), GcRules(21, {NASTY: 3})
        made = plans.repository(
            NASTY,
            before,
            after,
            entry=NASTY,
            owner=NASTY,
            source=NASTY,
            warnings=(NASTY,),
            gates=(GateResult("clear", NASTY, GateOutcome.REFUSED, NASTY, opens_with=NASTY),),
        )
        broken = plans.repository("b", None, None, failure=Failure(NASTY, where=NASTY, hint=NASTY))
        loose = WeakenedSetting(NASTY, NASTY, NASTY, NASTY, NASTY)
        plan = plans.make(made, broken, base=f"\ud800{NASTY}", loosenings=(loose,), unmanaged=(NASTY,))
        text = render_markdown(to_document(replace(plan, warnings=(NASTY,), targets=(NASTY,))), tree=NASTY)
        for raw in ("@org", " #12", "`a`", "](https", "![i]", "</details> *b*", "\n/close", "|x|"):
            assert raw not in text
        for line in text.splitlines():
            if line.startswith("| "):
                assert line.count("|") in (5, 6, 8)
        assert text.encode()


class DescribeTheLimit:
    def it_keeps_a_large_plan_within_it_and_says_what_was_cut(self, plans: Any) -> None:
        text = render_markdown(many(plans, 150))
        assert length(text) <= COMMENT_LIMIT
        assert len(text) > COMMENT_LIMIT // 2
        assert "**Omitted to fit the comment:** the details of" in text
        assert text.count("#### ") == 150
        assert "team-0149</code> " in text or "team-0149</code>:" in text

    def it_drops_details_before_tables_and_keeps_every_blocked_gate(self, plans: Any) -> None:
        text = render_markdown(many(plans, 1_000))
        assert length(text) <= COMMENT_LIMIT
        assert "<details><summary>what" not in text
        assert "the changes of" in text
        blocked = text.split("BLOCKED\n", 1)[1].split("####", 1)[0]
        assert all(f"team-{i:04}" in blocked for i in range(1_000))

    def it_fits_when_the_gates_alone_do_not(self, plans: Any) -> None:
        document = many(plans, 4_000, "x" * 200)
        text = render_markdown(document)
        assert length(text) <= COMMENT_LIMIT
        assert "Plan: 0 to add, 4,000 to change" in text
        assert "(4,000 gates)" in text

    @pytest.mark.parametrize("limit", [8_000, 12_345, 30_000])
    @pytest.mark.parametrize("character", ["x", "é", "\U0001f980", "|"])
    def it_holds_whatever_the_characters_are(self, plans: Any, limit: int, character: str) -> None:
        document = many(plans, 60, character * 300)
        for index, gate in enumerate(g for r in document["repositories"] for g in r["gates"]):
            gate["message"] += str(index)
        text = render_markdown(document, limit=limit)
        assert length(text) <= limit
        assert text.startswith(marker())
        assert "to fit the comment" in text

    def it_holds_when_a_single_name_is_longer_than_a_comment(self, plans: Any) -> None:
        before, after = GcRules(28, {}), GcRules(21, {})
        made = [plans.repository(f"{'a' * 9_000}{i}", before, after) for i in range(12)]
        text = render_markdown(to_document(plans.make(*made)))
        assert length(text) <= COMMENT_LIMIT
        assert "Plan: 0 to add, 12 to change" in text
        assert "to fit the comment" in text

    def it_lets_no_long_reason_push_out_a_refused_gate_or_a_change(self, plans: Any) -> None:
        plan = many_plans(plans, 1)
        long = tuple(replace(item, after=f"up to 1: {'x' * 70_000}") for item in LOOSENINGS[:2])
        text = render_markdown(
            to_document(replace(plan, base="ab" * 20, loosenings=(*long, *LOOSENINGS[2:])))
        )
        assert length(text) < 10_000
        for kept in ("sweep.automatic", "<code>expired-objects</code> of", "#### <code>prod/team-0000"):
            assert kept in text

    def it_lets_many_overrides_push_out_no_gate_no_other_setting_and_no_change(self, plans: Any) -> None:
        note = LOOSENINGS[1]
        notes = tuple(replace(note, path=f"overrides: tag-loss of x{i}", after="x" * 90) for i in range(900))
        hold = WeakenedSetting("prod/z", "holds[prefix audit/]", "no end date", "absent", "z.yaml:1:1")
        plan = replace(many_plans(plans, 3), base="ab" * 20, loosenings=(*notes, *LOOSENINGS, hold))
        text = render_markdown(to_document(plan))
        assert length(text) <= COMMENT_LIMIT
        assert "This change weakens 905 safety settings" in text
        assert "898 of <code>overrides: tag-loss</code>" in text
        for kept in ("holds[prefix audit/]", "safety.max_expired_bytes", "<code>expired-objects</code> of"):
            assert kept in html.unescape(text)
        assert text.count("#### ") == 3

    def it_lets_the_longest_repository_push_out_no_other(self, plans: Any) -> None:
        before = GcRules(28, {f"b{i:05}": i for i in range(1, 3_000)})
        long = plans.repository(
            "big", before, GcRules(28, {name: 2 * n for name, n in before.branches.items()})
        )
        small = plans.repository("small", GcRules(28, {}), GcRules(1, {}))
        text = render_markdown(to_document(plans.make(long, small)))
        assert "#### <code>prod/small</code>" in text
        assert "the changes of 1 repository (<code>prod/big</code>)" in text

    def it_begins_with_the_loudest_repository(self, plans: Any) -> None:
        text = render_markdown(to_document(full(plans)))
        assert text.index("#### <code>prod/analytics") < text.index("#### <code>prod/scratch")


class DescribeLooseningsAtATerminal:
    @pytest.mark.parametrize("width", [80, 160])
    def it_shows_them_first(self, plans: Any, show: Any, golden_output: Any, width: int) -> None:
        shown = show(render_plan, to_document(full(plans)), width)
        first, _, plan = shown.partition("\n\n")
        golden_output(f"plan-loosened-{width}", first + "\n")
        assert "This change weakens 4 safety settings" in first
        assert "Changes" in plan
        assert "base abababababab" in plan

    def it_is_silent_without_any(self, plans: Any) -> None:
        stream = io.StringIO()
        render_plan(to_document(replace(plans.full(), base="ab" * 20)), Console(file=stream, width=100))
        assert "loosens" not in stream.getvalue()
        assert "base abababababab" in stream.getvalue()
