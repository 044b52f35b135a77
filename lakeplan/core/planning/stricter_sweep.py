"""The stricter of two trees for a sweep: what either holds stays held, of settings the one taking less."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date

from lakeplan.core.planning.loosening import least, stricter_safety
from lakeplan.model.desired import DesiredRepository
from lakeplan.model.plan import SweepGuard
from lakeplan.model.stored import Versions
from lakeplan.model.sweep import Hold, SweepSettings


def stricter_sweep(one: SweepSettings, other: SweepSettings) -> SweepSettings:
    """Of every setting the one that deletes less, later, slower or with more looking."""
    both = (one, other)
    return SweepSettings(
        engine="builtin" if "builtin" in (one.engine, other.engine) else one.engine,
        automatic=one.automatic and other.automatic,
        mode="quarantine" if "quarantine" in (one.mode, other.mode) else "delete",
        min_age_seconds=max(s.min_age_seconds for s in both),
        settle_seconds=max(s.settle_seconds for s in both),
        margin_seconds=max(s.margin_seconds for s in both),
        never_committed="keep" if "keep" in (one.never_committed, other.never_committed) else "collect",
        versions=Versions.MARKER if Versions.MARKER in (one.versions, other.versions) else Versions.ALL,
        verify="all" if "all" in (one.verify, other.verify) else "sample",
        max_objects=min(s.max_objects for s in both),
        max_bytes=min(s.max_bytes for s in both),
        rate=least(one.rate, other.rate),
    )


def all_holds(*several: Iterable[Hold]) -> tuple[Hold, ...]:
    """Every hold of any of them; of two on the same thing the one that ends later."""
    found: dict[tuple[str, str], Hold] = {}
    for hold in (hold for holds in several for hold in holds):
        known = found.get((hold.kind, hold.name))
        if known is None or _end(hold) > _end(known):
            found[hold.kind, hold.name] = hold
    return tuple(found.values())


def guard_of(base: DesiredRepository, head: DesiredRepository) -> SweepGuard | None:
    """What a sweep of ``head`` keeps to until its tree is the base itself; None where it is as strict."""
    guard = SweepGuard(
        stricter_safety(head.safety, base.safety),
        all_holds(head.holds, base.holds),
        stricter_sweep(head.sweep, base.sweep),
    )
    alone = SweepGuard(head.safety, all_holds(head.holds), head.sweep)
    return None if guard == alone else guard


def held_to_guard(desired: DesiredRepository, guard: SweepGuard) -> DesiredRepository:
    """The repository, with the stricter of it and the guard where a sweep is concerned."""
    return replace(
        desired,
        safety=stricter_safety(desired.safety, guard.safety),
        holds=all_holds(desired.holds, guard.holds),
        sweep=stricter_sweep(desired.sweep, guard.settings),
    )


def _end(hold: Hold) -> date:
    return hold.until if hold.until is not None else date.max
