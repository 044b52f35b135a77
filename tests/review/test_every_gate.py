"""Every declared gate has a judge, and every page and shell reads the one list."""

from __future__ import annotations

import ast
import inspect

import pytest

from lakeplan.review import base, gates
from lakeplan.sweep import neighbours, rules
from lakeplan.tree.schemas import bundled_schema
from lakeplan.values.gates import GATES, PLANS, Gate

OF_THE_WHOLE_PLAN: set[str] = set()
"""Gates with a threshold ``safety.max_…`` that no repository alone can exceed."""


def it_is_judged_somewhere() -> None:
    """An import alone is no judge: the gate is used in the code of a module that judges."""
    found = set()
    for module in (base, gates, rules, neighbours):
        used = {
            node.id for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Name)
        }
        found |= {name.name for key, name in vars(module).items() if isinstance(name, Gate) and key in used}
    assert found == set(GATES)


def it_holds_a_threshold_against_one_repository_and_against_the_whole_plan() -> None:
    thresholds = {
        gate
        for gate in GATES.values()
        if PLANS in gate.refuses and any(setting.startswith("safety.max_") for setting in gate.settings)
    }
    assert thresholds == set(gates.JUDGES_OF_TOTALS)
    assert {gate.name for gate in thresholds - set(gates.JUDGES_OF_WRITES)} == OF_THE_WHOLE_PLAN


@pytest.mark.parametrize("schema", ["tree", "repository"])
def it_is_offered_by_the_schema(schema: str) -> None:
    assert bundled_schema(schema)["$defs"]["gate"]["examples"] == list(GATES)
