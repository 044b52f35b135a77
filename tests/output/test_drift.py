from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import jsonschema
import pytest

from lakeplan.output.operations import render_drift
from lakeplan.plan.drift import DriftReport, drift_document
from lakeplan.plan.drift_compare import DriftClass, DriftedItem, DriftedValue, LastApplied, RepositoryDrift
from lakeplan.tree.schemas import load_schema
from lakeplan.values.desired import SettingKind
from lakeplan.values.plan import Failure
from lakeplan.values.rules import GcRules

AT = datetime(2026, 3, 31, 12, 0, tzinfo=timezone.utc)
LAST = LastApplied(GcRules(21), "5f" * 32, "20260330T101500Z-0a1b2c3d", AT)


def report(many: int = 1) -> DriftReport:
    edited, stale = DriftClass.SERVER_EDITED, DriftClass.PATTERNS_STALE
    values = [
        DriftedValue(edited, "default_retention_days", 21, 3, 21),
        DriftedValue(edited, "branches/main", 28, None, 28),
    ]
    values += [DriftedValue(stale, f"branches/release-{i:03}", None, None, 90) for i in range(many)]
    analytics = RepositoryDrift(
        "prod/analytics", "data-platform", "a.yaml:3:3", (edited, stale), tuple(values), last=LAST
    )
    failed = RepositoryDrift(
        "prod/ml", failure=Failure("cannot read the GC rules: no permission", "prod/ml", "grant it")
    )
    fresh = RepositoryDrift(
        'prod/pl"ay',
        classes=(DriftClass.UNMANAGED_NEW,),
        note="created 2026-03-30; the tree has no entry for it",
    )
    policies = SettingKind.BRANCH_LIFECYCLE
    values = {"id": "pol-1", "patterns": "feature-*, wip-*", "max_age": "7d"}
    streams = RepositoryDrift(
        "prod/streams",
        classes=(edited,),
        items=(
            DriftedItem(edited, policies, "feature-*, wip-*", values, values | {"max_age": "90d"}, values),
            DriftedItem(edited, policies, "by-hand", {}, {"patterns": "tmp-*", "max_idle_age": "1d"}, {}),
        ),
        last=LAST,
    )
    return DriftReport(AT, None, (analytics, failed, streams, fresh, RepositoryDrift("prod/quiet")))


@pytest.mark.parametrize("width", [80, 160])
def it_looks_as_reviewed(show: Any, golden_output: Any, width: int) -> None:
    golden_output(f"drift-{width}", show(render_drift, drift_document(report()), width))


def it_is_the_document_of_its_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema("drift"))
    jsonschema.Draft202012Validator(load_schema("drift")).validate(drift_document(report(3)))


def it_says_how_many_values_it_leaves_out(show: Any) -> None:
    text = show(render_drift, drift_document(report(100)), 80)
    assert "and 82 more values (--format json)" in text
