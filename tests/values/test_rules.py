"""GC rules as a server stores them."""

from __future__ import annotations

from lakeplan.values.rules import MAX_DAYS, GcRules


def it_names_what_makes_no_sense_and_leaves_sense_alone() -> None:
    assert GcRules(1, {"main": MAX_DAYS}).oddities({"main"}) == []
    assert GcRules(-2147483648, {"a": 0, "b": MAX_DAYS + 1}).oddities({"a"}) == [
        "-2147483648 retention days by default: only HEADs are kept (the number may be a larger one that was"
        " truncated to 32 bits)",
        "0 retention days on branch 'a': only HEADs are kept",
        "36,501 retention days on branch 'b': more than a century, so nothing expires",
        "there is a rule for branch 'b', which does not exist",
    ]
    assert GcRules(1, {"gone": 1}).oddities(None) == []
