"""How settings are declared: kinds, rules and what a block's fields become."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import pytest

from lakeplan.values.declare import (
    COUNT,
    DURATION,
    FLAG,
    LESS,
    MORE,
    TEXT,
    Kind,
    Order,
    Setting,
    SinceMark,
    lower_limit,
    neutral,
    or_unlimited,
    parse_settings,
    setting,
    settings_of,
    strictest_first,
    unordered,
    words,
)


class Color(Enum):
    RED = "red"


class DescribeKinds:
    def it_takes_one_of_some_words(self) -> None:
        kind = words("green", Color.RED)
        assert kind.words == ("green", "red")
        assert (kind.parse("green"), kind.parse("red")) == ("green", Color.RED)
        with pytest.raises(ValueError, match="'blue' is not one of green, red"):
            kind.parse("blue")

    def it_records_a_word_as_a_word(self) -> None:
        kind = words("green", "red")
        assert kind.recorded == "string"
        assert not kind.is_free_text

    def it_knows_free_text(self) -> None:
        assert TEXT.is_free_text
        assert not COUNT.is_free_text

    def it_takes_no_limit_where_one_may_be_unlimited(self) -> None:
        kind = or_unlimited(COUNT)
        assert (kind.parse("unlimited"), kind.parse(7)) == (None, 7)
        assert (kind.definition, kind.or_null, kind.recorded) == ("count_or_unlimited", True, "integer")


class DescribeRules:
    def it_combines_two_values_to_the_stricter(self) -> None:
        fail = strictest_first("fail", "warn", "ignore")
        assert fail.combine("ignore", "warn") == fail.combine("warn", "ignore") == "warn"
        assert MORE.combine(2, 3) == MORE.combine(3, 2) == 3
        assert LESS.combine(2, 3) == LESS.combine(3, 2) == LESS.combine(None, 2) == LESS.combine(2, None) == 2
        assert lower_limit(None, None) is None

    def it_lists_a_weaker_value_and_no_stricter_one(self) -> None:
        fail = strictest_first("fail", "warn")
        assert fail.order is Order.STRICTER
        assert fail.weakens("fail", "warn")
        assert not fail.weakens("warn", "fail")
        assert not fail.weakens("warn", "warn")

    def it_lists_no_change_of_what_is_neutral(self) -> None:
        rule = neutral("changes speed")
        assert (rule.order, rule.why) == (Order.NEUTRAL, "changes speed")
        assert rule.combine("then", "now") == "now"
        assert not rule.weakens(1, 2)

    def it_lists_every_change_of_what_has_no_order(self) -> None:
        rule = unordered("another place")
        assert (rule.order, rule.why) == (Order.UNORDERED, "another place")
        assert rule.combine("then", "now") == "now"
        assert rule.weakens(1, 2)
        assert rule.weakens(2, 1)
        assert not rule.weakens(1, 1)


@dataclass(frozen=True)
class Block:
    age_seconds: int = setting(DURATION, "2h", stricter=MORE, help="Wait.")
    limit: int | None = setting(
        or_unlimited(COUNT), "unlimited", stricter=LESS, help="At most.", since_mark=SinceMark.GATE
    )


AGE, LIMIT = settings_of("sweep", Block)


class DescribeABlock:
    def it_has_the_parsed_defaults(self) -> None:
        assert Block() == Block(7200, None)

    def it_has_settings_with_path_and_field(self) -> None:
        assert (AGE.path, AGE.field, AGE.key, AGE.unit) == ("sweep.age", "age_seconds", "age", "seconds")
        assert (LIMIT.path, LIMIT.field, LIMIT.key) == ("sweep.limit", "limit", "limit")

    def it_has_settings_as_declared(self) -> None:
        assert Setting("sweep.age", "age_seconds", MORE, DURATION, "2h", "Wait.", SinceMark.COMBINED) == AGE
        assert (LIMIT.rule, LIMIT.default, LIMIT.help) == (LESS, "unlimited", "At most.")
        assert LIMIT.since_mark is SinceMark.GATE

    def it_reads_what_a_tree_sets_and_nothing_else(self) -> None:
        assert parse_settings((AGE, LIMIT), {"age": "1d", "other": 1}) == {"age_seconds": 86400}
        assert parse_settings((AGE, LIMIT), {"limit": "unlimited"}) == {"limit": None}

    @pytest.mark.parametrize(
        ("kind", "default", "recorded"),
        [
            (COUNT, 1, int),
            (FLAG, True, bool),
            (COUNT, None, int | None),
            (or_unlimited(COUNT), 1, int | None),
            (words("a", "b"), "a", Literal["a", "b"]),
            (TEXT, "", str),
        ],
    )
    def it_is_recorded_as_a_type(self, kind: Kind, default: Any, recorded: Any) -> None:
        assert Setting("", "", MORE, kind, default).recorded_type == recorded
