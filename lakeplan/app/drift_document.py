"""A drift report as plain JSON data (``schemas/drift.v1.json``)."""

from __future__ import annotations

from typing import Any

from lakeplan.app.drift import DriftReport
from lakeplan.app.drift_compare import RepositoryDrift
from lakeplan.app.sweep.record import LastSweep
from lakeplan.core.drift import DriftClass
from lakeplan.model.moments import utc_text
from lakeplan.model.simulation import Amount

DRIFT_FORMAT = "lakeplan.drift/v1"


def drift_document(report: DriftReport) -> dict[str, Any]:
    """The report as plain JSON data (``schemas/drift.v1.json``): only what drifted or failed is listed."""
    return {
        "format": DRIFT_FORMAT,
        "as_of": utc_text(report.as_of),
        "tree_commit": report.tree_commit,
        "repositories": [_repository(r) for r in report.drifted],
        "failures": [
            {
                "repository": r.repository,
                "owner": r.owner,
                "message": r.failure.message,
                "where": r.failure.where,
                "hint": r.failure.hint,
            }
            for r in report.repositories
            if r.failure is not None
        ],
        "recorded": [_recorded(r) for r in report.repositories],
        "notes": list(report.notes),
        "summary": {
            "checked": len(report.repositories),
            "drifted": len(report.drifted),
            "failed": len(report.failed),
            "classes": {c.value: sum(1 for r in report.drifted if c in r.classes) for c in DriftClass},
        },
    }


def _repository(drift: RepositoryDrift) -> dict[str, Any]:
    return {
        "repository": drift.repository,
        "owner": drift.owner,
        "source": drift.source,
        "classes": [c.value for c in drift.classes],
        "values": [
            {
                "class": v.drift.value,
                "path": v.path,
                "applied": v.applied,
                "stored": v.stored,
                "wanted": v.wanted,
            }
            for v in drift.values
        ],
        "items": [
            {
                "class": i.drift.value,
                "setting": i.setting.value,
                "item": i.item,
                "applied": dict(i.applied),
                "stored": dict(i.stored),
                "wanted": dict(i.wanted),
            }
            for i in drift.items
        ],
        "last_applied": None
        if drift.last is None
        else {"run_id": drift.last.run_id, "at": utc_text(drift.last.at)},
        "note": drift.note,
    }


def _recorded(drift: RepositoryDrift) -> dict[str, Any]:
    """What the state has of a repository, drifted or not."""
    applied, sweeps = drift.last, drift.sweeps
    return {
        "repository": drift.repository,
        "owner": drift.owner,
        "failed": drift.failure is not None,
        "last_apply": None if applied is None else {"run_id": applied.run_id, "at": utc_text(applied.at)},
        "last_sweep": None if sweeps is None else _last_sweep(sweeps.last),
        "quarantined": None if sweeps is None else _amount(sweeps.quarantined),
        "reclaimed": None if sweeps is None else _amount(sweeps.reclaimed),
    }


def _last_sweep(last: LastSweep) -> dict[str, Any]:
    return {
        "mark_id": last.mark_id,
        "at": utc_text(last.at),
        "finished": last.finished,
        **{status: _amount(amount) for status, amount in last.amounts.items()},
    }


def _amount(amount: Amount) -> dict[str, int]:
    return {"objects": amount.objects, "size_bytes": amount.size_bytes}
