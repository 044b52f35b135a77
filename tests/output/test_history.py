from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import jsonschema
import pytest

from lakeplan.output.operations import render_history, render_run
from lakeplan.review.history import RunRecord, RunStep, SettingStep, history_document
from lakeplan.tree.schemas import load_schema
from lakeplan.values.desired import Policy, SettingKind
from lakeplan.values.rules import GcRules

AT = datetime(2026, 3, 31, 12, 0, tzinfo=timezone.utc)


def run(number: int, *steps: RunStep, finished: bool = True, **fields: Any) -> RunRecord:
    at = AT - timedelta(days=number)
    values: dict[str, Any] = {
        "run_id": f"{at:%Y%m%dT%H%M%SZ}-0a1b2c3d",
        "command": "apply",
        "by": {"user": "ci", "host": "runner-7", "pid": 4242},
        "started_at": at,
        "finished_at": at + timedelta(seconds=9) if finished else None,
        "tree_commit": "0123456789abcdef0123456789abcdef01234567",
        "plan_digest": "5f" * 32,
        "plan_as_of": at - timedelta(hours=2),
        "allowed": (),
        "overridden": (),
        "force": False,
        "steps": steps,
    }
    return RunRecord(**{**values, **fields})


def record() -> RunRecord:
    return run(
        0,
        RunStep(
            "prod/analytics", "applied", replaced=True, before=GcRules(21, {"main": 28}), after=GcRules(7)
        ),
        RunStep("prod/events", "already"),
        RunStep(
            "prod/features",
            "failed",
            settings=(
                SettingStep(
                    SettingKind.BRANCH_LIFECYCLE,
                    "applied",
                    "",
                    True,
                    (Policy("pol-1", ("wip-*",), 86_400), Policy("old", ("old-*",), None, 86_400)),
                    (Policy("pol-1", ("wip-*",), 604_800), Policy("tmp", ("tmp-*",), 3600)),
                ),
                SettingStep(SettingKind.OBJECT_LIFECYCLE, "failed", "prod/features: no permission"),
            ),
        ),
        RunStep("prod/logs", "failed", "prod/logs: the rules have changed since the plan"),
        RunStep("prod/raw", "pending", replaced=True, before=None, after=GcRules(30)),
        RunStep("prod/scratch", "applied", replaced=True, before=GcRules(3), after=None),
        allowed=("clear",),
        overridden=("prod/analytics: gate tag-loss: 1 tag would lose data: v1",),
        force=True,
        finished=False,
    )


def documents() -> dict[str, Any]:
    runs = [record(), run(1, RunStep("prod/analytics", "applied")), run(2, tree_commit=None, by={})]
    return history_document(runs, ["history/x.json"])


@pytest.mark.parametrize("width", [80, 160])
def it_lists_as_reviewed(show: Any, golden_output: Any, width: int) -> None:
    golden_output(f"history-{width}", show(render_history, documents(), width))


@pytest.mark.parametrize("width", [80, 160])
def it_shows_a_run_as_reviewed(show: Any, golden_output: Any, width: int) -> None:
    golden_output("history-run", show(render_run, documents(), width))


def it_is_the_document_of_its_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema("history"))
    jsonschema.Draft202012Validator(load_schema("history")).validate(documents())
