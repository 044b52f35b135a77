"""Approvals. The gates of a mark are judged for its approval, and again before every round of its sweep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date

from lakeplan.errors import GateRefused, UsageError
from lakeplan.review.gates import GateOverrides
from lakeplan.review.run import Run
from lakeplan.review.strictness import since_mark, stricter_safety, stricter_sweep
from lakeplan.stores.open import StateWriter
from lakeplan.sweep.mark import by_text
from lakeplan.sweep.mark_record import Allowance, Approval, Judged, Mark
from lakeplan.sweep.ports import Site, approval_key
from lakeplan.sweep.records import StoredMark
from lakeplan.sweep.rules import GRACE_SECONDS, mark_gates
from lakeplan.values.documents import encode
from lakeplan.values.plan import GateOutcome, GateResult
from lakeplan.values.records import json_text, utc_text
from lakeplan.values.sweep import SweepSettings
from lakeplan.values.units import count_of


def settings_today(site: Site, mark: Mark) -> SweepSettings:
    """The settings of a sweep of the mark by today's tree. Raises StalePlan when the mark was made with
    weaker settings and has to be made again."""
    settings, refused = since_mark(mark.settings, mark.tree_settings, site.desired.sweep)
    if refused:
        raise mark.stale(f"the value of {refused[0].path} in the tree differs from the value in the mark")
    return settings


def judge_for_approval(
    site: Site, mark: Mark, overrides: GateOverrides, *, automatic: bool
) -> tuple[Judged, tuple[GateResult, ...]]:
    """The gates by today's tree, and what they were judged by, which the approval records."""
    judged = Judged(
        site.desired.safety, settings_today(site, mark), site.preparer.grace_period_seconds(), (), automatic
    )
    gates = _gates(site, mark, judged, overrides)
    allowed = tuple(
        Allowance(g.gate, g.unit, g.value, g.limit) for g in gates if g.outcome is GateOutcome.ALLOWED
    )
    return replace(judged, allowed=allowed), gates


def held_to_approval(site: Site, mark: Mark, approval: Approval) -> Site:
    """The site with the stricter of the approval's and today's settings. Raises StalePlan, and GateRefused
    when a mark that was approved automatically now needs a person's approval."""
    judged = approval.judged
    if judged.automatic and not site.desired.sweep.automatic:
        raise GateRefused(
            "the mark was approved automatically, but sweep.automatic is now false in the tree",
            where=mark.where,
            hint=f"Inspect the mark, then run `lakeplan sweep approve {mark.mark_id} --reason …`.",
        )
    desired = replace(
        site.desired,
        safety=stricter_safety(judged.safety, site.desired.safety),
        sweep=stricter_sweep(judged.sweep, settings_today(site, mark)),
    )
    return replace(site, desired=desired)


def judge_again(held: Site, mark: Mark, approval: Approval, today: date) -> None:
    """Raises GateRefused when the mark no longer passes its gates. ``held`` comes from ``held_to_approval``.
    An override by ``--allow`` counts until the limit becomes stricter, one in the tree until it is removed or
    expires."""
    graces = [
        GRACE_SECONDS if grace is None else grace
        for grace in (approval.judged.grace_period_seconds, held.preparer.grace_period_seconds())
    ]
    judged = replace(
        approval.judged,
        safety=held.desired.safety,
        sweep=held.desired.sweep,
        grace_period_seconds=max(graces),
    )
    gates = _gates(held, mark, judged, GateOverrides(frozenset(), held.overrides, today))
    given = {(a.gate, a.unit, a.value, a.limit) for a in approval.judged.allowed}
    refuse_shut((g for g in gates if (g.gate, g.unit, g.value, g.limit) not in given), mark, again=True)


def refuse_shut(gates: Iterable[GateResult], mark: Mark, *, again: bool = False) -> None:
    """Raises GateRefused, naming every gate that refuses."""
    shut = [gate for gate in gates if gate.outcome is GateOutcome.REFUSED]
    if not shut:
        return
    opens = " ".join(dict.fromkeys(f"--allow {gate.gate}" for gate in shut))
    raise GateRefused(
        f"a gate refused the mark: {'; '.join(f'{gate.gate}: {gate.message}' for gate in shut)}",
        where=mark.where,
        hint=f"Approve the mark again with {opens} at a terminal, or list the gate under overrides in the"
        " tree."
        if again
        else f"Use {opens} at a terminal, or list the gate under overrides in the tree.",
    )


def _gates(site: Site, mark: Mark, judged: Judged, overrides: GateOverrides) -> tuple[GateResult, ...]:
    return mark_gates(
        site.desired,
        mark.to_delete,
        mark.candidates,
        judged.sweep,
        judged.safety,
        grace_period_seconds=judged.grace_period_seconds,
        overrides=overrides,
    )


def approve(
    site: Site,
    stored: StoredMark,
    state: StateWriter,
    run: Run,
    *,
    reason: str,
    overrides: GateOverrides,
    automatic: bool = False,
) -> Approval:
    """Records who approves a mark, the digest of its bytes, what its gates were judged by, and the digest of
    the contents that were shown. Raises GateRefused while a gate refuses or a repository of the server could
    not be read, StalePlan for a mark with weaker settings than the tree's, and UsageError without a reason or
    for an empty mark."""
    mark = stored.mark
    overrides.check_named([mark.key])
    if not reason.strip():
        raise UsageError(
            "an approval needs a reason", hint=('Add one, such as --reason "quarterly cleanup, ticket 42".')
        )
    if not mark.to_delete.objects:
        raise UsageError("the mark deletes nothing, so there is nothing to approve", where=mark.key)
    check_readable(mark)
    judged, gates = judge_for_approval(site, mark, overrides, automatic=automatic)
    refuse_shut(gates, mark)
    key = approval_key(mark.mark_id)
    current = state.read(key)
    approval = Approval(
        mark.mark_id,
        stored.digest,
        mark.to_delete.objects,
        mark.to_delete.size_bytes,
        by_text(run) if automatic else run.approver.get("by", by_text(run)),
        utc_text(run.now()),
        reason.strip(),
        judged,
        stored.shown,
    )
    data = json_text(encode(approval))
    state.write(key, data, if_version=current.version if current else None)
    return approval


def check_readable(mark: Mark) -> None:
    """Raises GateRefused when a repository of the server could not be read: it may need objects here."""
    if mark.unreadable:
        named = ", ".join(sorted(mark.unreadable)[:5])
        raise GateRefused(
            f"lakeplan could not read {count_of(len(mark.unreadable), 'other repository')} on the server"
            f" ({named}), whose data may include full addresses of objects in this namespace",
            where=mark.where,
            hint="Grant this tree's lakeFS user the plan permissions on these repositories (see"
            " docs/permissions.md), then run `lakeplan sweep mark` again.",
        )
