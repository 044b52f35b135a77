"""The parts of lakeplan's comments besides the plan: a page, and other pull requests of the same
repositories."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.hosts.protocols import (
    ANY,
    LIMIT,
    MOST,
    Comment,
    changes_in,
    put_plan_comment,
    shared,
    with_changes,
    with_others,
    with_page,
)
from lakeplan.output.comments import COMMENT_LIMIT

MARKER = "<!-- lakeplan:plan:. -->"
BODY = f"{MARKER}\nPlan: 1 to change\n"


class Board:
    """A host that has open pull requests and keeps their comments."""

    sign = "#"

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)
        self.bodies: dict[int, str] = {}
        self.written: list[int] = []

    def open_requests(self) -> list[int]:
        return self.numbers

    def own_comment(self, number: int, marker: str) -> Comment | None:
        body = self.bodies.get(number)
        return Comment(number, number * 10, body) if body is not None and body.startswith(marker) else None

    def write_comment(self, number: int, body: str, old: Comment | None) -> str:
        assert (old is None) == (number not in self.bodies)
        self.bodies[number] = body
        self.written.append(number)
        return f"https://x/{number}"

    def plan(self, number: int, *repositories: str) -> None:
        put_plan_comment(self, number, with_changes(BODY, repositories), MARKER)  # type: ignore[arg-type]

    def others(self, number: int) -> list[str]:
        return [line for line in self.bodies[number].splitlines() if line.startswith("- #")]


class DescribeTwoPullRequests:
    def it_says_in_both_that_they_change_the_same(self):
        board = Board(7, 8, 9)
        board.plan(7, "prod/a", "prod/b")
        board.plan(8, "prod/b", "prod/c")
        board.plan(9, "prod/d")
        assert board.others(7) == ["- #8 changes `prod/b`"]
        assert board.others(8) == ["- #7 changes `prod/b`"]
        assert board.others(9) == []
        assert board.written == [7, 8, 7, 9]

    def it_takes_that_back_when_one_of_them_no_longer_does(self):
        board = Board(7, 8)
        board.plan(7, "prod/a")
        board.plan(8, "prod/a")
        board.plan(8, "prod/c")
        assert (board.others(7), board.others(8)) == ([], [])
        assert board.bodies[7] == with_changes(BODY, ["prod/a"])

    def it_takes_that_back_when_one_is_no_longer_open(self):
        board = Board(7, 8)
        board.plan(7, "prod/a")
        board.plan(8, "prod/a")
        board.numbers = [8]
        put_plan_comment(board, None, "", MARKER)  # type: ignore[arg-type]
        assert board.others(8) == []
        assert board.others(7), "nothing is written to a pull request that is not open"

    def it_compares_a_plan_of_very_many_with_every_other(self):
        board = Board(7, 8)
        board.plan(7, *(f"prod/r{n}" for n in range(1000)))
        board.plan(8, "prod/a")
        assert board.others(8) == ["- #7 changes `prod/a`"]
        assert changes_in(board.bodies[7]) == {ANY}
        assert len(board.bodies[7]) < 1000

    def it_leaves_the_comments_of_trees_in_other_folders_alone(self):
        board = Board(7, 8)
        board.bodies[7] = with_changes("<!-- lakeplan:plan:other -->\n", ["prod/a"])
        before = board.bodies[7]
        board.bodies.pop(8, None)
        board.plan(8, "prod/a")
        assert (board.bodies[7], board.others(8)) == (before, [])


class DescribeNamesOfOthers:
    @given(st.lists(st.text(max_size=40), max_size=5))
    @settings(max_examples=200, deadline=None)
    def it_writes_no_text_of_theirs_into_the_hidden_line(self, names: Sequence[str]):
        """A server names its repositories; one that is no name of lakeFS is there as a digest."""
        body = with_changes(BODY, names)
        *rest, line = body.splitlines()
        assert "\n".join(rest) + "\n" == BODY + "\n" or not names or rest == [*BODY.splitlines(), ""]
        assert line.startswith("<!-- lakeplan:changes ")
        assert line.endswith(" -->")
        assert ">" not in line[:-3]
        assert len(changes_in(body)) == len(set(names))

    def it_counts_the_line_that_lakeplan_wrote_last(self):
        """A hidden line in the plan itself would be text of others."""
        forged = f"{MARKER}\n<!-- lakeplan:changes prod/x -->\n"
        assert changes_in(with_changes(forged, ["prod/a"])) == {"prod/a"}

    @pytest.mark.parametrize("one", [frozenset(), frozenset({"a/b"}), frozenset({ANY})])
    def it_shares_nothing_with_a_plan_without_changes(self, one):
        assert shared(one, frozenset()) == frozenset() == shared(frozenset(), one)


class DescribeTheLimitOfAComment:
    def it_links_the_page_where_there_is_room(self):
        linked, full = (with_page("x" * size, "https://host.example/page") for size in (10, LIMIT - 6))
        assert len(linked) == 10 + len("\n[Report page](https://host.example/page)\n")
        assert full == "x" * (LIMIT - 6)

    @pytest.mark.parametrize(
        "url", ["", "javascript:alert(1)", "https://x/)(evil", "https://x y", "https://x\n#"]
    )
    def it_links_nothing_that_is_no_address(self, url):
        assert with_page(BODY, url) == BODY

    @pytest.mark.parametrize("size", [COMMENT_LIMIT, COMMENT_LIMIT - 60, COMMENT_LIMIT - 3_000, 30_000])
    def it_fits_with_the_longest_plan_and_the_longest_names(self, size):
        """A comment that the host refuses would leave the comment of an earlier plan."""
        names = [f"{'s' * 64}/{number:063}" for number in range(MOST)]
        plan = BODY + "x" * (size - len(BODY))
        body = with_changes(with_page(plan, "https://host.example/page"), names)
        assert len(body.encode()) <= LIMIT
        assert body.startswith(plan)
        assert changes_in(body) == ({*names} if size == 30_000 else {ANY})

    def it_keeps_the_plan_when_the_others_do_not_fit(self):
        body = with_changes(BODY + "x" * (LIMIT - 200), ["prod/a"])
        assert with_others(body, {8: frozenset({"prod/a"})}) == body
