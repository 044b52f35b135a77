from __future__ import annotations

import json

import pytest

from lakeplan.errors import ConfigError
from lakeplan.simulation.inputs import parse_rules
from lakeplan.values.rules import GcRules


@pytest.mark.parametrize("branches", [{}, {"branches": None}, {"branches": []}])
def it_takes_rules_without_branches(branches: dict[str, object]) -> None:
    data = json.dumps({"default_retention_days": 21, **branches}).encode()
    assert parse_rules(data, name="r") == GcRules(21)


def it_takes_what_a_server_may_have_stored() -> None:
    data = (
        b'\xef\xbb\xbf{"branches": [{"branch_id": "__x", "retention_days": -3}], "default_retention_days": 0}'
    )
    assert parse_rules(data, name="r") == GcRules(0, {"__x": -3})


@pytest.mark.parametrize("data", [b"", b" \n", b"null", b"{}"])
def it_refuses_a_file_without_rules(data: bytes) -> None:
    with pytest.raises(ConfigError, match="deletes every committed object"):
        parse_rules(data, name="r")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"branches": []}', "default_retention_days is missing"),
        ('{"default_retention_days": "7"}', "default_retention_days is not a whole number"),
        ('{"default_retention_days": true}', "default_retention_days is not a whole number"),
        ('{"default_retention_days": 7.5}', "default_retention_days is not a whole number"),
        ('{"default_retention_days": 4294967296}', "32 bits"),
        ('{"default_retention_days": 7, "default_retention_days": 8}', "appears twice"),
        ('{"default_retention_days": 7, "branchs": []}', "unknown key 'branchs'"),
        ('{"default_retention_days": 7, "branches": {}}', "`branches` is not a list"),
        ('{"default_retention_days": 7, "branches": [1]}', r"branches\[0\] is not an object"),
        ('{"default_retention_days": 7, "branches": [{"retention_days": 1}]}', r"branches\[0\].branch_id"),
        ('{"default_retention_days": 7, "branches": [{"branch_id": "a"}]}', r"branches\[0\].retention_days"),
        (
            '{"default_retention_days": 7, "branches": [{"branch_id": "a", "days": 1}]}',
            r"unknown key 'branches\[0\].days'",
        ),
        (
            '{"default_retention_days": 7, "branches": [{"branch_id": "a", "retention_days": 1},'
            ' {"branch_id": "a", "retention_days": 2}]}',
            "branch a is listed twice",
        ),
    ],
)
def it_names_what_is_wrong(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as error:
        parse_rules(text.encode(), name="rules.json")
    assert error.value.where == "rules.json"


def it_survives_nesting_without_end() -> None:
    with pytest.raises(ConfigError, match="nested more deeply than the limit of 64 levels"):
        parse_rules(b"[" * 100_000, name="r")
