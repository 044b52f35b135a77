"""Every declared gate has a judge, and every page and shell reads the one list."""

from __future__ import annotations

import pytest

from lakeplan.review import gates
from lakeplan.sweep import neighbours, rules
from lakeplan.tree.schemas import bundled_schema
from lakeplan.values.gates import GATES, Gate


def it_is_judged_somewhere() -> None:
    judging = (gates, rules, neighbours)
    named = {value.name for module in judging for value in vars(module).values() if isinstance(value, Gate)}
    assert named == set(GATES)


@pytest.mark.parametrize("schema", ["tree", "repository"])
def it_is_offered_by_the_schema(schema: str) -> None:
    assert bundled_schema(schema)["$defs"]["gate"]["examples"] == list(GATES)
