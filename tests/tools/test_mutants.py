"""What tools/mutants.py names is there: it runs for an hour, and seldom."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tools" / "mutants.py"
EQUIVALENT = ROOT / "tools" / "equivalent_mutants.yaml"


def constant(name: str) -> Any:
    for node in ast.parse(SOURCE.read_text()).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == name
        ):
            return ast.literal_eval(node.value)
    raise AssertionError(name)


MODULES: dict[str, list[str]] = constant("MODULES")


@pytest.mark.parametrize("module", MODULES)
def it_has_the_modules_and_their_tests(module: str) -> None:
    assert (ROOT / "lakeplan" / f"{module}.py").is_file()
    assert [path for path in MODULES[module] if not (ROOT / path).is_file()] == []


def functions_of(module: str) -> set[str]:
    """The functions as mutmut names them."""
    names = set()
    for node in ast.parse((ROOT / "lakeplan" / f"{module}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(f"x_{node.name}")
        elif isinstance(node, ast.ClassDef):
            names |= {f"xǁ{node.name}ǁ{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return {f"lakeplan.{module.replace('/', '.')}.{name}" for name in names}


def it_lists_equivalent_mutants_of_functions_that_are_there() -> None:
    listed = {each["function"] for each in yaml.safe_load(EQUIVALENT.read_text())}
    assert listed - set().union(*map(functions_of, MODULES)) == set()
