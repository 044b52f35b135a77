"""Apply reports: their schema against what an apply really makes."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.plan.apply import report_document
from lakeplan.review.run import Applied, ApplyReport, Outcome
from lakeplan.tree.schemas import load_schema

TEXT = st.text(max_size=8)
ETAG = st.just("absent") | st.integers(0, 2**256 - 1).map(lambda n: f"{n:064x}")
RESULT = st.builds(
    Applied,
    repository=TEXT,
    action=st.sampled_from(["add", "change", "clear"]),
    outcome=st.sampled_from(Outcome),
    before_etag=ETAG,
    after_etag=ETAG,
    message=TEXT,
    hint=TEXT,
    exit_code=st.integers(0, 130),
    setting=st.sampled_from(["gc", "branch_lifecycle", "object_lifecycle"]),
)
REPORT = st.builds(
    ApplyReport,
    run_id=TEXT,
    results=st.lists(RESULT, max_size=4).map(tuple),
    not_written=st.lists(TEXT, max_size=3).map(tuple),
    elsewhere=st.lists(TEXT, max_size=3).map(tuple),
    unexpanded=st.dictionaries(TEXT, st.lists(TEXT, max_size=3).map(tuple), max_size=3),
)


def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(load_schema("apply"))


def it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema("apply"))


@given(REPORT)
def it_takes_every_report_that_can_be_made(report: ApplyReport) -> None:
    validator().validate(json.loads(json.dumps(report_document(report))))


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.update(extra=1),
        lambda d: d.pop("summary"),
        lambda d: d["results"][0].update(outcome="done"),
        lambda d: d["results"][0].update(action="none"),
        lambda d: d["results"][0].pop("after_etag"),
        lambda d: d["unexpanded"].update(a="main"),
    ],
)
def it_refuses_what_is_no_report(damage: Any) -> None:
    document = report_document(
        ApplyReport("run", (Applied("prod/a", "add", Outcome.APPLIED, "absent", "0" * 64),))
    )
    validator().validate(document)
    damage(document)
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(document)
