"""Documents as OpenMetrics, read back by another's parser."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from lakeplan.output.metrics import (
    Exposition,
    apply_metrics,
    branches_run_metrics,
    drift_metrics,
    families,
    history_metrics,
    mark_list_metrics,
    mark_metrics,
    plan_metrics,
    sweep_metrics,
)
from lakeplan.plan.apply import report_document
from lakeplan.plan.drift import DriftReport, drift_document
from lakeplan.plan.drift_compare import DriftClass, LastApplied, RepositoryDrift
from lakeplan.review.history import RunRecord, RunStep, history_document
from lakeplan.review.run import Applied, ApplyReport, Outcome
from lakeplan.state.sweeps import RecordedSweep
from lakeplan.values.pins import PinRow, PinsPlan, PinState
from lakeplan.values.plan import Backlog, Failure
from lakeplan.values.plan_document import to_document
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Amount
from tests.openmetrics import samples

AT = datetime(2026, 3, 31, 12, 0, tzinfo=timezone.utc)
OWNERS = {"prod/lake": "data-platform"}


def owner_of(key: str) -> str:
    return OWNERS.get(key, "")


def amount(objects: int, size_bytes: int) -> dict[str, int]:
    return {"objects": objects, "size_bytes": size_bytes}


class DescribeText:
    @pytest.mark.parametrize("name", ['a"b', "back\\slash", "two\nlines", "naïve", "\udcff", ""])
    def it_escapes_any_label(self, name: str) -> None:
        made = Exposition()
        made.add("drift_repositories", 1, name)
        shown = name.encode("utf-8", "backslashreplace").decode()
        assert samples(made.text()) == {"lakeplan_drift_repositories": {(shown,): 1.0}}

    def it_keeps_large_figures_whole(self) -> None:
        made = Exposition()
        made.add("reclaimed_bytes", 3_099_947_994_001, "prod", "lake", "")
        assert "} 3099947994001\n" in made.text()
        assert "# UNIT lakeplan_reclaimed_bytes bytes\n" in made.text()

    def it_is_a_whole_document_without_samples(self) -> None:
        assert Exposition().text() == "# EOF\n"
        assert samples(Exposition().text()) == {}

    def it_refuses_labels_that_a_family_does_not_have(self) -> None:
        with pytest.raises(ValueError, match="has the labels class"):
            Exposition().add("drift_repositories", 1)


def it_names_every_family_once_by_the_rules() -> None:
    names = [family.name for family in families()]
    assert len(names) == len(set(names))
    for family in families():
        assert family.help.endswith(".")
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket", "_info", "_created"))
        if "timestamp" in family.name:
            assert family.unit == "seconds"


class DescribeDrift:
    def report(self) -> DriftReport:
        def sweep(mark_id: str, hours: int, **amounts: Amount) -> RecordedSweep:
            known = {**dict.fromkeys(("deleted", "saved", "failed", "pending"), Amount()), **amounts}
            at, mode = AT - timedelta(hours=hours), "delete" if mark_id != "m2" else "quarantine"
            return RecordedSweep(mark_id, at, mark_id != "m1", mode, mark_id == "m1", known, Amount())

        sweeps = (
            sweep("m3", 3, deleted=Amount(9, 900)),
            sweep("m1", 1, deleted=Amount(2, 20), saved=Amount(1, 5), pending=Amount(3, 7)),
            sweep("m2", 2, deleted=Amount(4, 400)),
        )
        lake = RepositoryDrift(
            "prod/lake",
            "data-platform",
            classes=(DriftClass.SERVER_EDITED, DriftClass.TREE_AHEAD),
            last=LastApplied(None, "", "r1", AT - timedelta(days=2)),
            sweeps=sweeps,
        )
        broken = RepositoryDrift("prod/ml", "science", failure=Failure("no permission"))
        return DriftReport(AT, None, (lake, broken, RepositoryDrift("prod/quiet")))

    def it_says_when_each_repository_was_applied_and_swept_last(self) -> None:
        found = samples(drift_metrics(drift_document(self.report())))
        lake = ("prod", "lake", "data-platform")
        day = 86400.0
        assert found["lakeplan_drift_timestamp_seconds"] == {(): AT.timestamp()}
        assert found["lakeplan_last_apply_timestamp_seconds"] == {lake: AT.timestamp() - 2 * day}
        assert found["lakeplan_last_sweep_timestamp_seconds"] == {lake: AT.timestamp() - 3600}
        assert found["lakeplan_last_sweep_finished"] == {lake: 0.0}
        assert found["lakeplan_last_sweep_bytes"] == {
            (*lake, "deleted"): 20.0,
            (*lake, "saved"): 5.0,
            (*lake, "failed"): 0.0,
            (*lake, "pending"): 7.0,
        }
        assert found["lakeplan_reclaimed_bytes"] == {lake: 900.0}
        assert found["lakeplan_quarantined_bytes"] == {lake: 400.0}

    def it_counts_classes_and_tells_failures_one_by_one(self) -> None:
        found = samples(drift_metrics(drift_document(self.report())))
        assert found["lakeplan_drift_checked"] == {(): 3.0}
        assert found["lakeplan_drift_failed"] == {(): 1.0}
        assert found["lakeplan_drift_repositories"][("server-edited",)] == 1.0
        assert found["lakeplan_drift"] == {
            ("prod", "lake", "data-platform", "server-edited"): 1.0,
            ("prod", "lake", "data-platform", "tree-ahead"): 1.0,
        }
        assert found["lakeplan_drift_failure"] == {
            ("prod", "lake", "data-platform"): 0.0,
            ("prod", "ml", "science"): 1.0,
            ("prod", "quiet", ""): 0.0,
        }


class DescribePlan:
    def it_is_pending_when_an_apply_would_only_make_pins(self, plans: Any) -> None:
        rules = GcRules(21, {"main": 28})
        pins = PinsPlan(AT, (PinRow("a1" * 32, "lakeplan-pin-a1a1a1a1a1a1", PinState.MISSING),))
        document = to_document(plans.make(plans.repository("lake", rules, rules, pins=pins)))
        assert samples(plan_metrics(document))["lakeplan_plan_pending"] == {("prod", "lake", ""): 1.0}

    def it_tells_what_expires_when_and_what_refuses(self, plans: Any) -> None:
        found = samples(plan_metrics(to_document(plans.full())))
        key = ("prod", "analytics", "")
        assert found["lakeplan_plan_expiring_objects"][(*key, "plus_30_days")] == 1_420_000
        assert found["lakeplan_plan_expiring_bytes"][(*key, "now")] == 1_204_331 * 2_574_000
        assert found["lakeplan_plan_at_risk_objects"][(*key, "now")] == 1_210
        assert found["lakeplan_plan_backlog_commits"][key] == 812
        assert found["lakeplan_plan_gates_refused"] == {
            (*key, "tag-loss"): 1.0,
            ("prod", "raw-landing-zone-eu-central", "", "unknown-impact"): 1.0,
        }
        assert found["lakeplan_plan_pending"][("prod", "team-0", "")] == 0.0
        assert found["lakeplan_plan_pending"][key] == 1.0
        assert found["lakeplan_plan_failure"][("prod", "ml-models", "")] == 1.0

    def it_leaves_out_what_is_not_known_rather_than_say_none(self, plans: Any) -> None:
        found = samples(plan_metrics(to_document(plans.full())))
        unknown = ("prod", "raw-landing-zone-eu-central", "")
        assert found["lakeplan_plan_impact_known"][unknown] == 0.0
        assert (*unknown, "now") in found["lakeplan_plan_expiring_commits"]
        assert (*unknown, "now") not in found["lakeplan_plan_expiring_objects"]
        assert "lakeplan_plan_backlog_bytes" not in found  # --backlog was not asked for

    def it_has_the_backlog_where_it_was_read(self, plans: Any) -> None:
        plan = plans.full()
        first = plan.repositories[0]
        impact = replace(first.impact, backlog=Backlog(812, 4_000, 5_000_000))
        plan = replace(plan, repositories=(replace(first, owner="it's ours", impact=impact),))
        found = samples(plan_metrics(to_document(plan)))
        assert found["lakeplan_plan_backlog_bytes"] == {("prod", "analytics", "it's ours"): 5_000_000}


def it_tells_what_became_of_every_setting_of_an_apply() -> None:
    report = ApplyReport(
        "r1",
        (
            Applied("prod/lake", "add", Outcome.APPLIED, "absent", "1a"),
            Applied("prod/ml", "change", Outcome.FAILED, "1a", "2b", "the rules changed", "", 5),
        ),
    )
    found = samples(apply_metrics(report_document(report), owner_of))
    assert found["lakeplan_apply_results"] == {
        ("applied",): 1.0,
        ("already",): 0.0,
        ("failed",): 1.0,
        ("uncertain",): 0.0,
    }
    assert found["lakeplan_apply_result"] == {
        ("prod", "lake", "data-platform", "gc", "applied"): 1.0,
        ("prod", "ml", "", "gc", "failed"): 1.0,
    }


def it_tells_when_each_command_last_ended_so() -> None:
    def run(days: int, command: str, status: str) -> RunRecord:
        at = AT - timedelta(days=days)
        step = RunStep("prod/lake", status)
        return RunRecord(f"r{days}", command, {}, at, at, None, "", at, (), (), False, (step,))

    runs = [run(1, "apply", "failed"), run(2, "apply", "applied"), run(3, "apply", "applied")]
    found = samples(history_metrics(history_document(runs, ["history/x.json"]), owner_of))
    labels = ("prod", "lake", "data-platform", "apply")
    assert found == {
        "lakeplan_history_damaged": {(): 1.0},
        "lakeplan_history_last_timestamp_seconds": {
            (*labels, "applied"): (AT - timedelta(days=2)).timestamp(),
            (*labels, "failed"): (AT - timedelta(days=1)).timestamp(),
        },
    }


def it_says_what_a_branches_run_did() -> None:
    branches = [{"outcome": "deleted"}, {"outcome": "deleted"}, {"outcome": "moved"}]
    lake = {"repository": "prod/lake", "branches": branches, "kept": 5, "gates": [], "failure": None}
    refused = {
        "repository": "prod/ml",
        "branches": [],
        "kept": 1,
        "gates": [{"gate": "deleted-branches", "outcome": "refused"}],
        "failure": {"message": "x"},
    }
    document = {"at": "2026-03-31T12:00:00Z", "gates": [], "repositories": [lake, refused]}
    found = samples(branches_run_metrics(document, owner_of))
    key = ("prod", "lake", "data-platform")
    assert found["lakeplan_lifecycle_run_branches"] == {
        (*key, "deleted"): 2.0,
        (*key, "moved"): 1.0,
        (*key, "kept"): 5.0,
        ("prod", "ml", "", "kept"): 1.0,
    }
    assert found["lakeplan_lifecycle_run_failure"][("prod", "ml", "")] == 1.0
    assert found["lakeplan_lifecycle_run_gates_refused"] == {("prod", "ml", "", "deleted-branches"): 1.0}


def it_tells_what_a_mark_would_take_and_what_a_sweep_took() -> None:
    mark = {
        "server": "prod",
        "repository": "lake",
        "marked_at": "2026-03-31T12:00:00Z",
        "goes": amount(2, 20),
        "classes": {"backlog": amount(2, 20), "at_risk": amount(1, 7)},
        "gates": [],
    }
    key = ("prod", "lake", "data-platform")
    found = samples(mark_metrics({"marks": [mark], "failed": {"prod/ml": {}}}, owner_of))
    assert found["lakeplan_sweep_mark_going_bytes"] == {key: 20.0}
    assert found["lakeplan_sweep_mark_bytes"] == {(*key, "backlog"): 20.0, (*key, "at_risk"): 7.0}
    assert found["lakeplan_sweep_mark_failure"] == {key: 0.0, ("prod", "ml", ""): 1.0}
    listed = [{"repository": "prod/lake", "approved": yes} for yes in (True, False, True)]
    assert samples(mark_list_metrics({"marks": listed}, owner_of)) == {
        "lakeplan_sweep_marks": {(*key, "false"): 1.0, (*key, "true"): 2.0}
    }
    summary = {
        "repository": "prod/lake",
        "at": "2026-03-31T12:00:00Z",
        "finished": True,
        **dict.fromkeys(("saved", "failed", "pending"), amount(0, 0)),
        "deleted": amount(2, 20),
        "came_back": None,
    }
    found = samples(sweep_metrics(summary, owner_of))
    assert found["lakeplan_sweep_run_bytes"][(*key, "deleted")] == 20.0
    assert found["lakeplan_sweep_run_finished"] == {key: 1.0}
    assert "lakeplan_sweep_run_came_back_objects" not in found  # not known is not none
