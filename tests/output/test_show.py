from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakeplan.output.explain import render_repository
from lakeplan.values.pins import PinRow, PinsPlan, PinState
from lakeplan.values.plan import Impact, ImpactStatus, TagLoss
from lakeplan.values.plan_document import to_document
from lakeplan.values.rules import GcRules


def documents(plans: Any) -> dict[str, Any]:
    return {r["name"]: r for r in to_document(plans.full())["repositories"]}


@pytest.mark.parametrize("width", [80, 160])
def it_looks_as_reviewed(plans: Any, show: Any, golden_output: Any, width: int) -> None:
    golden_output(f"show-{width}", show(render_repository, documents(plans)["analytics"], width))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scratch", "all rules are removed"),
        ("raw-landing-zone-eu-central", "adopted"),
        ("ml-models", "permission"),
        ("team-1", "no changes"),
    ],
)
def it_shows_every_kind_of_repository(plans: Any, show: Any, name: str, text: str) -> None:
    assert text in show(render_repository, documents(plans)[name], 80)


def it_folds_and_leaves_out_nothing(plans: Any, show: Any) -> None:
    branches = {f"feature-{i:04}": 7 for i in range(300)}
    tags = tuple(TagLoss(f"v{i}", "ab" * 32, 1, 1) for i in range(50))
    repository = replace(
        plans.repository("a", GcRules(28, {"same": 3}), GcRules(28, {"same": 3, **branches})),
        impact=Impact(ImpactStatus.UNKNOWN, reason="x", tags=tags),
        unexpanded={"feature-late": 7},
    )
    text = show(render_repository, to_document(plans.make(repository))["repositories"][0], 80)
    assert all(name in text for name in branches)
    assert all(f"v{i} " in text for i in range(50))
    assert "branch same" in text
    assert "feature-late (7 days)" in text


def it_shows_gates_that_passed_too(plans: Any, show: Any) -> None:
    text = show(render_repository, documents(plans)["analytics"], 80)
    assert "passed" in text
    assert "expired-objects" in text


def it_shows_pins_that_an_apply_would_make(plans: Any, show: Any) -> None:
    rules = GcRules(21, {"main": 28})
    missing = PinRow("a1" * 32, "lakeplan-pin-a1a1a1a1a1a1", PinState.MISSING, reasons=("tag v1",))
    repository = plans.repository("lake", rules, rules, pins=PinsPlan(plans.as_of, (missing,)))
    text = show(render_repository, to_document(plans.make(repository))["repositories"][0], 80)
    assert "~  prod/lake\n   no changes; pins: 1 missing\n" in text.replace(" \n", "\n")
    assert "lakeplan-pin-a1a1a1a1a1a1: missing, rule default" in text
