from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from lakeplan.doctor.doctor import Check, Result, doctor_document
from lakeplan.output.operations import render_doctor
from lakeplan.tree.schemas import load_schema


def document() -> dict[str, Any]:
    checks = [
        Check("tree", "valid", Result.OK, "3 files, 1 server, 2 entries"),
        Check("server prod", "credentials", Result.OK, "found; their values were not shown anywhere"),
        Check(
            "server prod",
            "binding",
            Result.WARN,
            "not bound to an address, so a changed endpoint_url in the tree would receive them",
            "set LAKEPLAN_PROD_ENDPOINT_URL; without a terminal it is required",
        ),
        Check("server prod", "clock", Result.WARN, "75 s behind this machine's", "let both take NTP time"),
        Check(
            "server prod",
            "retention:SetGarbageCollectionRules",
            Result.FAIL,
            "the server says that these credentials lack the permission (on analytics, events)",
            "grant retention:SetGarbageCollectionRules; docs/permissions.md has the whole policy",
        ),
        Check("state", "readable", Result.OK, "applies of 12 repositories are recorded"),
    ]
    return doctor_document(checks, "apply")


@pytest.mark.parametrize("width", [80, 160])
def it_looks_as_reviewed(show: Any, golden_output: Any, width: int) -> None:
    golden_output(f"doctor-{width}", show(render_doctor, document(), width))


def it_is_the_document_of_its_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema("doctor"))
    jsonschema.Draft202012Validator(load_schema("doctor")).validate(document())
