"""The columns in the design, in the schema file and in the output are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeplan.simulation.output import RULE_SET, TABLES, schema_of

SCHEMA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "schemas" / "simulate.v1.json").read_text())
DESIGN = {
    "commits": "commit_id creation_date branches branch_count active active_documented kept_until",
    "objects": "address size_bytes paths last_commit_id reason at_risk",
    "branches": "branch_id commits objects size_bytes exclusive_objects exclusive_bytes",
    "prefixes": "prefix depth objects size_bytes",
}


TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<string>": pa.list_(pa.field("element", pa.string(), nullable=False)),
}
"""The schema file names types as Spark SQL does."""


def column(described: dict[str, Any]) -> pa.Field:
    return pa.field(described["name"], TYPES[described["type"]], nullable=described["nullable"])


@pytest.mark.parametrize("table", TABLES)
def test_the_columns_are_those_of_the_design_and_of_the_schema_file(table: str) -> None:
    assert TABLES[table].names == DESIGN[table].split()
    assert [*map(column, SCHEMA["x-tables"][table]["columns"])] == [*TABLES[table]]
    assert column(SCHEMA["x-compare-column"]) == RULE_SET


@pytest.mark.parametrize("table", TABLES)
def test_tables_that_are_empty_have_the_same_columns(table: str) -> None:
    names = schema_of(TABLES[table], with_rule_set=True).names
    assert names == [*DESIGN[table].split(), "rule_set"]
