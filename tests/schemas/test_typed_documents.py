"""The types of the documents that commands write are those of their JSON Schemas."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from lakeplan.branches.documents import PlanDocument, RunDocument, UndoDocument
from lakeplan.doctor.doctor import DoctorDocument
from lakeplan.explain.documents import ExplainDocument
from lakeplan.explain.policy_test import PolicyTestDocument
from lakeplan.fleet.judging import AuditDocument
from lakeplan.fleet.storage import StorageDocument
from lakeplan.plan.documents import ApplyDocument, DriftDocument
from lakeplan.review.history import HistoryDocument
from lakeplan.simulation.documents import CurveDocument, SimulateDocument
from lakeplan.sweep.documents import (
    CheckDocument,
    CollectorRunsDocument,
    MarksDocument,
    PurgeDocument,
    RestoreDocument,
    SweepDocument,
)
from lakeplan.tree.schemas import load_schema
from tests.schemas.typed import differences

PARTS = {"plan": PlanDocument, "run": RunDocument, "undo": UndoDocument}
"""Of the documents of branches."""
TYPES = {
    "audit": AuditDocument,
    "apply": ApplyDocument,
    "check": CheckDocument,
    "collector-runs": CollectorRunsDocument,
    "curve": CurveDocument,
    "doctor": DoctorDocument,
    "drift": DriftDocument,
    "explain": ExplainDocument,
    "history": HistoryDocument,
    "marks": MarksDocument,
    "purge": PurgeDocument,
    "restore": RestoreDocument,
    "simulate": SimulateDocument,
    "storage": StorageDocument,
    "sweep": SweepDocument,
    "test": PolicyTestDocument,
}


@pytest.mark.parametrize("name", TYPES)
def it_types_a_document_as_its_schema_says(name: str) -> None:
    assert differences(TYPES[name], load_schema(name)) == []


@pytest.mark.parametrize("part", PARTS)
def it_types_a_document_of_branches_as_its_schema_says(part: str) -> None:
    schema = load_schema("lifecycle")
    assert differences(PARTS[part], schema, schema["$defs"][part]) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: schema["required"].remove("checks"),
        lambda schema: schema["properties"].pop("checks"),
        lambda schema: schema["properties"]["for"]["enum"].append("report"),
        lambda schema: schema["properties"]["summary"]["properties"]["ok"].update(type="string"),
        lambda schema: schema["properties"]["checks"]["items"]["properties"]["hint"].update(
            type=["string", "null"]
        ),
    ],
)
def it_notices_a_difference(change: Any) -> None:
    schema = deepcopy(load_schema("doctor"))
    change(schema)
    assert len(differences(DoctorDocument, schema)) == 1
