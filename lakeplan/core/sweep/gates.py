"""The safety gates of a mark: judged when it is made, and they must be open when it is approved."""

from __future__ import annotations

from lakeplan.core.planning.gates import EXPIRED_BYTES, EXPIRED_OBJECTS, MIN_AGE, SWEEP_LIMIT, Named, Openers
from lakeplan.model.desired import Safety
from lakeplan.model.plan import GateOutcome, GateResult
from lakeplan.model.simulation import Amount
from lakeplan.model.sweep import SweepSettings

GRACE_SECONDS = 86_400
"""A server's default (api.md), where it does not say."""


def mark_gates(
    repository: Named,
    goes: Amount,
    candidates: Amount,
    settings: SweepSettings,
    safety: Safety,
    *,
    grace_period_seconds: int | None,
    openers: Openers,
) -> tuple[GateResult, ...]:
    """``candidates``: what is stored and old enough to go at all, of which ``goes`` would."""
    found = [
        _limit(
            repository,
            EXPIRED_OBJECTS,
            _percent(goes, candidates),
            safety.max_expired_objects_percent,
            "percent",
        ),
        _limit(repository, EXPIRED_BYTES, goes.size_bytes, safety.max_expired_bytes, "bytes"),
        _limit(repository, SWEEP_LIMIT, goes.objects, settings.max_objects, "objects"),
        _limit(repository, SWEEP_LIMIT, goes.size_bytes, settings.max_bytes, "bytes"),
        _min_age(repository, settings, grace_period_seconds),
    ]
    return tuple(
        openers.decide(gate, repository) if gate.outcome is GateOutcome.REFUSED else gate
        for gate in found
        if gate is not None
    )


def _percent(goes: Amount, candidates: Amount) -> float:
    return 100.0 * goes.objects / candidates.objects if candidates.objects else 0.0


def _limit(repository: Named, gate: str, value: float, limit: float | None, unit: str) -> GateResult | None:
    if limit is None:
        return None
    shown = f"{value:,.1f} percent of the old objects" if unit == "percent" else f"{value:,} {unit}"
    outcome = GateOutcome.REFUSED if value > limit else GateOutcome.PASSED
    text = f"{shown} would be deleted; the limit is {limit:,}"
    return GateResult(gate, repository.key, outcome, text, value, limit, unit)


def _min_age(repository: Named, settings: SweepSettings, grace: int | None) -> GateResult | None:
    if grace is None:
        grace = GRACE_SECONDS
    if settings.min_age_seconds >= grace:
        return None
    text = (
        f"objects may go after {settings.min_age_seconds:,} seconds, and the server asks collectors to wait"
        f" for {grace:,}"
    )
    return GateResult(
        MIN_AGE, repository.key, GateOutcome.REFUSED, text, settings.min_age_seconds, grace, "seconds"
    )
