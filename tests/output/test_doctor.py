from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from lakeplan.doctor.doctor import doctor_document
from lakeplan.doctor.repositories import Check
from lakeplan.output.operations import render_doctor
from lakeplan.tree.schemas import load_schema


def document() -> dict[str, Any]:
    checks = [
        Check("valid", "ok", "3 files, 1 server, 2 entries", area="tree"),
        Check("credentials", "ok", "found; their values are not shown", area="server prod"),
        Check(
            "binding",
            "warn",
            "the credentials are not bound to an address, so they would be sent to any new"
            " endpoint_url in the tree",
            "Set LAKEPLAN_PROD_ENDPOINT_URL. It is required if there is no terminal.",
            "server prod",
        ),
        Check(
            "clock",
            "warn",
            "75 s behind this machine's clock",
            "Synchronize both clocks with NTP, because retention is computed from them.",
            "server prod",
        ),
        Check(
            "retention:SetGarbageCollectionRules",
            "fail",
            "the server reports that these credentials lack the permission (on analytics, events)",
            "Grant retention:SetGarbageCollectionRules. See docs/permissions.md for the complete policy.",
            "server prod",
        ),
        Check("readable", "ok", "contains apply records for 12 repositories", area="state"),
    ]
    return doctor_document(checks, "apply")


@pytest.mark.parametrize("width", [80, 160])
def it_looks_as_reviewed(show: Any, golden_output: Any, width: int) -> None:
    golden_output(f"doctor-{width}", show(render_doctor, document(), width))


def it_is_the_document_of_its_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema("doctor"))
    jsonschema.Draft202012Validator(load_schema("doctor")).validate(document())
