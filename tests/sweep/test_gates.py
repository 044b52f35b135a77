"""The gates of a mark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date

import pytest

from lakeplan.review.gates import GateOverrides
from lakeplan.sweep.rules import mark_gates
from lakeplan.values.desired import Override, Safety, Source
from lakeplan.values.plan import GateOutcome
from lakeplan.values.simulation import Amount
from lakeplan.values.sweep import SweepSettings

TODAY = date(2026, 3, 31)
CLOSED = GateOverrides(frozenset(), (), TODAY)


@dataclass(frozen=True)
class Named:
    name: str = "repo1"
    key: str = "prod/repo1"


def outcomes(
    goes: Amount,
    candidates: Amount,
    *,
    settings: SweepSettings | None = None,
    safety: Safety | None = None,
    grace: int | None = 86400,
    overrides: GateOverrides = CLOSED,
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for gate in mark_gates(
        Named(),
        goes,
        candidates,
        settings or SweepSettings(),
        safety or Safety(),
        grace_period_seconds=grace,
        overrides=overrides,
    ):
        assert gate.scope == "prod/repo1"
        found.setdefault(gate.gate, []).append(gate.outcome.value)
    return found


@pytest.mark.parametrize(("objects", "outcome"), [(30, "passed"), (31, "refused"), (0, "passed")])
def it_measures_what_goes_against_everything_that_is_old(objects: int, outcome: str) -> None:
    assert outcomes(Amount(objects, 1), Amount(100, 100))["expired-objects"] == [outcome]


def it_passes_where_nothing_is_old() -> None:
    assert outcomes(Amount(), Amount()) == {
        "expired-objects": ["passed"],
        "expired-bytes": ["passed"],
        "sweep-limit": ["passed", "passed"],
    }


def it_counts_no_share_of_nothing() -> None:
    gates = mark_gates(
        Named(), Amount(), Amount(), SweepSettings(), Safety(), grace_period_seconds=0, overrides=CLOSED
    )
    assert [gate.value for gate in gates] == [0.0, 0, 0, 0]


def it_has_no_gate_where_the_tree_sets_no_limit() -> None:
    none = Safety(max_expired_objects_percent=None, max_expired_bytes=None)
    assert outcomes(Amount(100, 10**15), Amount(100, 10**15), safety=none).keys() == {"sweep-limit"}


@pytest.mark.parametrize(
    ("goes", "gate", "expected"),
    [
        (Amount(1, 6 * 10**12), "expired-bytes", ["refused"]),
        (Amount(11, 5), "sweep-limit", ["refused", "passed"]),
        (Amount(10, 1000), "sweep-limit", ["passed", "passed"]),
        (Amount(1, 1001), "sweep-limit", ["passed", "refused"]),
    ],
)
def it_refuses_more_than_a_run_may_take(goes: Amount, gate: str, expected: list[str]) -> None:
    settings = SweepSettings(max_objects=10, max_bytes=1000)
    assert outcomes(goes, Amount(10**6, 10**13), settings=settings)[gate] == expected


@pytest.mark.parametrize(
    ("min_age", "grace", "expected"),
    [
        (86400, 86400, None),
        (86399, 86400, ["refused"]),
        (0, None, ["refused"]),
        (86400, None, None),
        (0, 0, None),
    ],
)
def it_does_not_take_what_is_younger_than_the_server_s_grace(
    min_age: int, grace: int | None, expected: list[str] | None
) -> None:
    settings = SweepSettings(min_age_seconds=min_age)
    assert outcomes(Amount(), Amount(), settings=settings, grace=grace).get("min-age") == expected


def it_reports_what_it_measured_against_which_limit() -> None:
    settings = SweepSettings(min_age_seconds=60, max_objects=1000, max_bytes=2000)
    safety = Safety(max_expired_objects_percent=10.0, max_expired_bytes=3000)
    found = mark_gates(
        Named(),
        Amount(1500, 2500),
        Amount(6000, 9999),
        settings,
        safety,
        grace_period_seconds=7200,
        overrides=CLOSED,
    )
    assert [(gate.gate, gate.value, gate.limit, gate.unit, gate.message) for gate in found] == [
        (
            "expired-objects",
            25.0,
            10.0,
            "percent",
            "25.0 percent of the objects older than sweep.min_age would be deleted; the limit is 10.0",
        ),
        ("expired-bytes", 2500, 3000, "bytes", "2,500 bytes would be deleted; the limit is 3,000"),
        ("sweep-limit", 1500, 1000, "objects", "1,500 objects would be deleted; the limit is 1,000"),
        ("sweep-limit", 2500, 2000, "bytes", "2,500 bytes would be deleted; the limit is 2,000"),
        (
            "min-age",
            60,
            7200,
            "seconds",
            "objects may be deleted after 60 seconds, but the server requires collectors to wait"
            " 7,200 seconds",
        ),
    ]


class DescribeOpening:
    goes, candidates = Amount(50, 50), Amount(100, 100)

    def it_opens_by_name_only(self) -> None:
        allowed = GateOverrides(frozenset({"expired-objects"}), (), TODAY)
        settings = SweepSettings(min_age_seconds=0)
        found = outcomes(self.goes, self.candidates, settings=settings, overrides=allowed)
        assert found["expired-objects"] == [GateOutcome.ALLOWED.value]
        assert found["min-age"] == [GateOutcome.REFUSED.value]

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({}, GateOutcome.OVERRIDDEN),
            ({"max": 49.0}, GateOutcome.REFUSED),
            ({"expires": date(2026, 3, 30)}, GateOutcome.REFUSED),
            ({"repository": "other"}, GateOutcome.REFUSED),
            ({"gate": "min-age"}, GateOutcome.REFUSED),
        ],
    )
    def it_opens_by_a_reviewed_note_within_its_bounds(
        self, change: dict[str, object], expected: GateOutcome
    ) -> None:
        source = Source("lakeplan.yaml", 1, 1)
        note = Override("repo*", "expired-objects", 60.0, "clean-up", date(2026, 4, 1), source)
        overrides = GateOverrides(frozenset(), (replace(note, **change),), TODAY)  # type: ignore[arg-type]
        assert outcomes(self.goes, self.candidates, overrides=overrides)["expired-objects"] == [
            expected.value
        ]
