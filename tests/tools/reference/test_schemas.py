"""What documents record of a setting, by the kind that declares it: schema and reader agree."""

from __future__ import annotations

import jsonschema
import pytest

from lakeplan.sweep.mark_record import _shape
from lakeplan.values.declare import (
    COUNT,
    FLAG,
    LESS,
    TAG_GLOBS,
    TEXT,
    Kind,
    Setting,
    neutral,
    or_unlimited,
    words,
)
from lakeplan.values.records import WrongShape
from tools.reference.schemas import _recorded

CASES = [
    (TEXT, "", ["", "why"], [3, None, ["a"]]),
    (FLAG, False, [True, False], [0, "yes", None]),
    (COUNT, 3, [0, 3], [-1, "3", None, True]),
    (or_unlimited(COUNT), 3, [0, None], [-1, "unlimited"]),
    (words("keep", "delete"), "keep", ["keep", "delete"], ["", "other", None]),
    (TAG_GLOBS, [], [[], ["v*"]], ["v*", [1], None]),
]


@pytest.mark.parametrize(("kind", "default", "right", "wrong"), CASES)
def it_is_recorded_as_the_schema_says(
    kind: Kind, default: object, right: list[object], wrong: list[object]
) -> None:
    rule = LESS if kind is COUNT else neutral("a test")
    setting = Setting("sweep.x", "x", rule, kind, default, "A test.")
    schema, shape = _recorded(setting), _shape(setting)
    for value in right:
        jsonschema.validate(value, schema)
        shape(value, "x")
    for value in wrong:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, schema)
        with pytest.raises(WrongShape):
            shape(value, "x")


def it_knows_what_anybody_may_have_written() -> None:
    assert [kind.is_free_text for kind, *_ in CASES] == [True, False, False, False, False, False]
