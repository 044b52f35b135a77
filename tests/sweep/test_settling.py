"""When a mark may be swept."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.sweep.rules import Window, lowered, proven_absent, window
from lakeplan.values.rules import GcRules

NOW = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, GcRules(30), True),
        (GcRules(7), GcRules(7), False),
        (GcRules(7), GcRules(8), False),
        (GcRules(7), GcRules(6), True),
        (GcRules(7, {"main": 30}), GcRules(7, {"main": 29}), True),
        (GcRules(7, {"main": 30}), GcRules(7), True),
        (GcRules(7, {"main": 3}), GcRules(7), False),
        (GcRules(7), GcRules(7, {"main": 3}), True),
        (GcRules(7), GcRules(7, {"main": 30}), False),
        (GcRules(7, {"main": 30}), GcRules(7, {"main": 30}), False),
        (GcRules(7, {"main": 30}), GcRules(9, {"main": 9}), True),
        (GcRules(7, {"main": 7}), GcRules(6, {"main": 7}), True),
    ],
)
def it_knows_when_some_branch_is_kept_for_less(
    before: GcRules | None, after: GcRules, expected: bool
) -> None:
    assert lowered(before, after) is expected


RULES = st.builds(
    GcRules, st.integers(-1, 9), st.dictionaries(st.sampled_from(["main", "dev", "x"]), st.integers(-1, 9))
)


@given(RULES, RULES)
def test_rules_that_were_not_lowered_keep_every_branch_at_least_as_long(
    before: GcRules, after: GcRules
) -> None:
    names = ("main", "dev", "x", "a branch that no rule names")
    kept = all(after.days_for(name) >= before.days_for(name) for name in names)
    assert lowered(before, after) is not kept


def problem(window: Window, now: datetime) -> str:
    return window.problem(earliest=now, latest=now)


class DescribeTheWindow:
    window = Window(opens=NOW + 24 * HOUR, closes=NOW + 72 * HOUR)

    def it_is_shut_until_the_rules_have_settled(self) -> None:
        assert "can be swept from 2026-04-01 12:00 UTC" in problem(self.window, NOW)
        assert problem(self.window, NOW + 24 * HOUR - timedelta(microseconds=1))
        assert problem(self.window, NOW + 24 * HOUR) == ""

    def it_opens_by_the_earliest_clock_and_shuts_by_the_latest(self) -> None:
        opens, closes = self.window.opens, self.window.closes
        assert self.window.problem(earliest=opens - HOUR, latest=opens)
        assert self.window.problem(earliest=opens, latest=closes - HOUR) == ""
        assert self.window.problem(earliest=closes - HOUR, latest=closes)

    def it_shuts_when_the_mark_is_old(self) -> None:
        assert problem(self.window, NOW + 72 * HOUR - timedelta(microseconds=1)) == ""
        assert "older than the limit of 72 hours" in problem(self.window, NOW + 72 * HOUR)

    def it_never_opens_when_settling_takes_longer_than_a_mark_lasts(self) -> None:
        window = Window(opens=NOW + 100 * HOUR, closes=NOW + 72 * HOUR)
        assert all(problem(window, NOW + hours * HOUR) for hours in range(0, 200, 3))


class DescribeTheWindowOfAMark:
    MARK = SimpleNamespace(marked_at=NOW, lowered_at=NOW - 5 * HOUR)
    """Rules were lowered five hours before it was made."""

    @pytest.mark.parametrize(
        ("lowered_at", "opens"),
        [
            (None, NOW - 5 * HOUR + 24 * HOUR),
            (NOW - 9 * HOUR, NOW - 5 * HOUR + 24 * HOUR),
            (NOW + 2 * HOUR, NOW + 26 * HOUR),
        ],
    )
    def it_opens_when_the_last_lowering_that_is_known_has_settled(
        self, lowered_at: datetime | None, opens: datetime
    ) -> None:
        found = window(self.MARK, 24 * 3600, lowered_at=lowered_at)  # type: ignore[arg-type]
        assert found == Window(opens, NOW + 72 * HOUR)

    def it_is_open_at_once_where_nothing_has_to_settle(self) -> None:
        found = window(self.MARK, 0, lowered_at=NOW + 2 * HOUR)  # type: ignore[arg-type]
        assert found == Window(NOW, NOW + 72 * HOUR)


def it_takes_two_looks_far_enough_apart_to_prove_that_nothing_holds_an_object() -> None:
    day = 24 * 3600
    assert not proven_absent(first_seen=NOW, now=NOW, settle_seconds=day)
    assert not proven_absent(first_seen=NOW, now=NOW + 24 * HOUR - timedelta(seconds=1), settle_seconds=day)
    assert proven_absent(first_seen=NOW, now=NOW + 24 * HOUR, settle_seconds=day)
    assert proven_absent(first_seen=NOW, now=NOW, settle_seconds=0)
    assert not proven_absent(first_seen=NOW, now=NOW - HOUR, settle_seconds=0), "a clock that went back"
