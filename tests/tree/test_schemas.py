from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lakeplan.errors import UsageError
from lakeplan.tree.schemas import VALIDATOR, bundled_schema, load_schema, schema_folder, schema_names
from lakeplan.tree.structure import check_structure
from lakeplan.tree.yaml import parse_yaml, to_plain
from lakeplan.values.desired import Safety

SMALL = Path(__file__).parent / "trees" / "small"


def it_finds_the_schemas_of_a_checkout() -> None:
    assert schema_folder().name == "schemas"
    assert {"tree", "repository"} <= set(schema_names())


def it_prefers_the_folder_inside_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakeplan.tree.schemas._PACKAGE", tmp_path / "lakeplan")
    assert schema_folder() == tmp_path / "schemas"
    (tmp_path / "lakeplan" / "schemas").mkdir(parents=True)
    assert schema_folder() == tmp_path / "lakeplan" / "schemas"


def it_refuses_a_schema_that_does_not_ship() -> None:
    with pytest.raises(UsageError, match=r"unknown schema '../pyproject'"):
        load_schema("../pyproject")


@pytest.mark.parametrize("name", ["tree", "repository"])
def it_is_a_sound_schema_that_needs_no_other_file(name: str) -> None:
    bundled = bundled_schema(name)
    Draft202012Validator.check_schema(bundled)
    for reference in references(bundled):
        assert reference.startswith("#/$defs/")
        assert reference.removeprefix("#/$defs/") in bundled["$defs"]


@pytest.mark.parametrize(
    ("name", "file"), [("tree", "lakeplan.yaml"), ("repository", "repositories/analytics.yaml")]
)
def it_takes_the_example_of_the_design_as_editors_do(name: str, file: str) -> None:
    node = parse_yaml((SMALL / file).read_text(), file, problems=_none())
    assert node is not None
    Draft202012Validator(bundled_schema(name)).validate(to_plain(node))


@pytest.mark.parametrize("file", ["lakeplan.yaml", "repositories/analytics.yaml"])
def it_is_named_for_editors_in_the_first_line_of_a_file(file: str) -> None:
    first = (SMALL / file).read_text().splitlines()[0]
    prefix, _, path = first.partition("=")
    assert prefix == "# yaml-language-server: $schema"
    assert (SMALL / file).parent.joinpath(path).resolve().parent == schema_folder().resolve()


def it_names_every_limit_of_the_model() -> None:
    keys = set(load_schema("tree")["$defs"]["safety"]["properties"])
    fields = {name.removesuffix("_seconds") for name in Safety.__dataclass_fields__}
    assert keys == fields


def it_says_what_is_expected_wherever_a_value_can_be_wrong() -> None:
    for name in ("tree", "repository"):
        for schema in subschemas(load_schema(name)):
            if {"type", "const", "pattern"} & schema.keys() and isinstance(schema.get("type"), str | list):
                assert "x-expected" in schema, json.dumps(schema)[:200]


@pytest.mark.parametrize("block", ["gc", "branch_lifecycle", "object_lifecycle"])
def it_takes_no_line_break_at_the_end_of_a_text(block: str) -> None:
    """`gc: clear` in a block of text would be read as no rules at all."""
    problems = _none()
    node = parse_yaml(
        f'apiVersion: lakeplan/v1\nrepositories: {{lake: {{{block}: "clear\\n"}}}}\n', "f", problems
    )
    assert node is not None
    check_structure(node, "repository", problems)
    assert "or the word clear" in str(next(iter(problems)))
    assert not VALIDATOR({"pattern": "^a$|^b$"}).is_valid("a\n")


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [r for child in value.values() for r in references(child)]
    return [r for child in value for r in references(child)] if isinstance(value, list) else []


def subschemas(value: Any) -> list[dict[str, Any]]:
    found = [value]
    for key in ("properties", "$defs"):
        found += [s for child in value.get(key, {}).values() for s in subschemas(child)]
    for key in ("items", "additionalProperties"):
        if isinstance(value.get(key), dict):
            found += subschemas(value[key])
    return found


def _none() -> Any:
    from lakeplan.tree.yaml import Problems

    return Problems()
