"""The report page: its schema against the documents it is made of, and the JSON blocks that it embeds."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import jsonschema
import pytest

from lakeplan.output.report import render_report
from lakeplan.plan.page import report_page_document
from lakeplan.tree.schemas import load_schema
from tests.output import report_pages as pages
from tests.schemas.test_plan_schema import objects_of

BLOCK = re.compile(r'<script type="application/json" id="graph-\d+">(.*?)</script>', re.DOTALL)


def check(document: Any, name: str = "report", part: str = "") -> None:
    schema = load_schema(name)
    if part:
        schema = {"$ref": f"#/$defs/{part}", "$defs": schema["$defs"]}
    jsonschema.Draft202012Validator(schema).validate(document)


def documents() -> dict[str, dict[str, Any]]:
    read = pages.history()
    no_rules = pages.repository(read, before=None, after=None)
    return {
        "everything": pages.full(),
        "the plan alone": pages.alone(),
        "no rules": report_page_document(
            pages.plan(no_rules), targets=["prod/shop"], histories={"prod/shop": read}
        ),
        "nothing": report_page_document(pages.plan()),
    }


def it_is_a_schema_that_describes_every_field() -> None:
    schema = load_schema("report")
    jsonschema.Draft202012Validator.check_schema(schema)
    found = list(objects_of(schema))
    assert len(found) > 8
    for part in found:
        assert all(p.get("description") for p in part.get("properties", {}).values() if "$ref" not in p)


@pytest.mark.parametrize("name", ["everything", "the plan alone", "no rules", "nothing"])
def it_takes_the_documents_that_pages_are_made_of(name: str) -> None:
    document = json.loads(json.dumps(documents()[name]))
    check(document)
    check(document["plan"], "plan")
    for placed in document["curves"]:
        check(placed["curve"], "curve")


def it_describes_what_a_page_embeds() -> None:
    document = documents()["everything"]
    blocks = [json.loads(block) for block in BLOCK.findall(render_report(document))]
    assert blocks == json.loads(json.dumps(document["graphs"]))
    for block in blocks:
        check(block, part="graph")


@pytest.mark.parametrize(
    "path",
    [("graphs", 0, "rows"), ("graphs", 0), ("timelines", 0), ("branches", 0, "rows", 0), ()],
)
def it_takes_no_other_keys_and_none_away(path: tuple[Any, ...]) -> None:
    for damage in ("more", "less"):
        document = copy.deepcopy(documents()["everything"])
        place = document
        for key in path:
            place = place[key]
        if damage == "more":
            place["another"] = 1
        else:
            place.popitem()
        with pytest.raises(jsonschema.ValidationError):
            check(document)
