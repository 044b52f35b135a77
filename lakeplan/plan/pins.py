"""Pins in a plan: which are missing, stale or retired, what each alone protects, and whether that is safe."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

from lakeplan.branches.pin_records import PinRecord, StoredRules, with_rules_of
from lakeplan.branches.pins import (
    Change,
    History,
    blocking_rules,
    losses,
    pin_rules,
    required_pins,
    safe_change,
    with_needed_days,
    with_pins,
    without_pins,
)
from lakeplan.errors import GateRefused, LakeplanError
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.retention.graph import CommitGraph, metarange_masks
from lakeplan.retention.rules import ServerWalk
from lakeplan.simulation.requests import ImpactRequest
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.pins import NAME_TAKEN, Pin, PinRow, PinsPlan, PinState
from lakeplan.values.plan import Horizon
from lakeplan.values.repository import Refs, Repository
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Amount, ImpactResult, Transition


@dataclass(frozen=True, eq=False)
class PinInspection:
    """The pins of one repository, and the change that brings them up to date. ``history`` is without
    lakeplan's pins."""

    stored: StoredRules
    record: PinRecord
    history: History
    change: Change
    plan: PinsPlan

    @property
    def rules_after(self) -> GcRules | None:
        """The rules that the server stores in the end."""
        steps = self.change.steps()
        return steps[-1].after.rules if steps else self.change.stored

    @property
    def graph(self) -> CommitGraph:
        """The history with the existing pins and the new ones."""
        return CommitGraph.from_refs(with_pins(self.history.refs, (*self.change.have, *self.change.new)))

    def without(self, proposed: bool) -> frozenset[str]:
        """The names of pins in ``graph`` that do not exist now, or (``proposed``) after the change."""
        absent = self.change.retired if proposed else self.change.new
        return frozenset(pin.name for pin in absent)


@dataclass(frozen=True)
class PinOptions:
    """The moment to judge at, the server's time zone, and the commits whose pins may be deleted (full commit
    ids; None: any)."""

    as_of: datetime
    zone: tzinfo
    retire: Collection[str] | None = None


def inspect_pins(
    desired: DesiredRepository,
    stored: StoredRules,
    record: PinRecord,
    after: GcRules | None,
    refs: Refs,
    options: PinOptions,
) -> PinInspection:
    """Compares the required pins with the existing ones. ``after`` are the rules that the plan writes,
    without the entries of pins. Raises GateRefused if there is no safe change, LakeplanError for a broken
    history."""
    pins = stored.own(record)
    names = {pin.name for pin in pins}
    # Hidden branches that are not on record are ordinary branches and keep their rules.
    rules = None if after is None else with_rules_of(after, _unrecorded_entries(stored, names))
    refs = without_pins(refs, pins)
    graph = CommitGraph.from_refs(refs)
    moments = [options.as_of + timedelta(days=horizon.days) for horizon in Horizon]
    history = History(refs, graph, rules or GcRules(0), moments, options.zone)
    blocked = _why_blocked(stored, names)
    pins = with_needed_days(graph, pins)
    change = Change(stored.raw, rules, pins, stored.as_stored(pins) if blocked else ())
    foreign = stored.foreign(record)
    if blocked:
        loss = next(losses(history, change), None)
    else:
        want = required_pins(history, pin_rules(desired), desired.holds, pins) if rules is not None else []
        free, taken = _free(want, stored)
        foreign = [*foreign, *taken]
        change = replace(change, want=(*free, *_not_reviewed(pins, free, options.retire)))
        change, loss = safe_change(history, change)
    if loss is not None:
        raise GateRefused(
            f"pins cannot be changed safely: {loss}",
            where=desired.key,
            hint="Change the rules first, without the pins, or report this problem together with the output"
            " of `lakeplan explain` for the commit. Nothing was written.",
        )
    plan = PinsPlan(options.as_of, tuple(_rows(change, record)), tuple(foreign), blocked, desired.pins.max)
    return PinInspection(stored, record, history, change, plan)


def _unrecorded_entries(stored: StoredRules, pins: Collection[str]) -> dict[str, int]:
    """The entries of hidden branches that are named like pins but are not on record."""
    existing = {branch.id for branch in stored.pins}
    return {name: days for name, days in stored.entries.items() if name in existing and name not in pins}


def _why_blocked(stored: StoredRules, pins: Collection[str]) -> str:
    """Return why no pin can be changed, or "". Rules of pins that no longer exist are ignored."""
    if stored.bare is None:
        return ""
    names = blocking_rules(with_rules_of(stored.bare, _unrecorded_entries(stored, pins)))
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"the server stores a rule of 0 days or less for {', '.join(names[:3])}{more}, so no pins can be"
        " changed"
    )


def _free(want: Sequence[Pin], stored: StoredRules) -> tuple[list[Pin], list[str]]:
    """The pins whose names are free, and why others cannot be created."""
    used, free, taken = {branch.id for branch in stored.others}, [], []
    for pin in want:
        if pin.name in used:
            taken.append(f"{pin.name}: commit {pin.commit_id} cannot be pinned, because {NAME_TAKEN}")
        else:
            used.add(pin.name)
            free.append(pin)
    return free, taken


def _not_reviewed(pins: Collection[Pin], want: Collection[Pin], retire: Collection[str] | None) -> list[Pin]:
    """Pins that nothing requires any more, but whose deletion was not reviewed. They are kept."""
    if retire is None:
        return []
    wanted = {pin.commit_id for pin in want}
    return [pin for pin in pins if pin.commit_id not in wanted and pin.commit_id not in retire]


def _rows(change: Change, record: PinRecord) -> list[PinRow]:
    """The pins of a plan. A pin on record that no longer exists and is not required counts as retired,
    because its rule still exists."""
    there = {pin.name for pin in change.have}
    stored = change.stored.branches if change.stored is not None else None
    holds = {pin.name: set(pin.holds) for pin in change.have}
    rows = []
    for pin in change.want:
        state = PinState.KEPT if pin.name in there else PinState.MISSING
        if state is PinState.KEPT:
            other_rule = stored is not None and stored.get(pin.name) != pin.days
            state = PinState.STALE if other_rule or holds[pin.name] != set(pin.holds) else state
        has = stored.get(pin.name) if stored is not None else None
        rows.append(PinRow(pin.commit_id, pin.name, state, pin.days, pin.reasons, stored_days=has))
    known = {*there, *(row.branch_id for row in rows)}
    for pin in (*change.retired, *(pin for pin in record.pins if pin.name not in known)):
        days = stored.get(pin.name) if stored is not None else None
        rows.append(PinRow(pin.commit_id, pin.name, PinState.RETIRED, days, stored_days=days))
    return sorted(rows, key=lambda row: row.commit_id)


_KEPT, _PINNED = 1, 2
_FIRST_BIT = 2
ONLY_PINNED = "only_pinned"


def pins_request(
    inspection: PinInspection, key: str, repository: Repository, metadata: MetadataReader
) -> ImpactRequest:
    """The request for what each pin alone protects, now or within 30 days. A pin has two bits for each binary
    digit of its number, and sets one of them. So an object of a single pin has one bit of each pair, and an
    object of several pins has both bits of some pair."""
    graph, rows = inspection.history.graph, inspection.plan.pins
    there = {pin.name for pin in (*inspection.change.have, *inspection.change.want)}
    masks = [_KEPT] * len(graph)
    if inspection.change.desired is not None:
        walk = ServerWalk(graph, inspection.change.desired)
        for moment in inspection.history.moments:
            flags = walk.active(moment, inspection.history.zone)
            masks = [mask if flag else 0 for mask, flag in zip(masks, flags, strict=True)]
    for number, row in enumerate(rows):
        if row.branch_id in there:
            masks[graph.index[row.commit_id]] |= _PINNED | _code(number, len(rows))
    return ImpactRequest(
        key=f"{key}#pins",
        storage_namespace=repository.storage_namespace,
        metadata=metadata,
        metaranges=metarange_masks(graph, masks),
        transitions={ONLY_PINNED: Transition(_PINNED, _KEPT)},
        detail=ONLY_PINNED,
    )


def _code(number: int, count: int) -> int:
    return sum(1 << (_FIRST_BIT + 2 * digit + (number >> digit & 1)) for digit in range(count.bit_length()))


def with_figures(plan: PinsPlan, answer: ImpactResult | LakeplanError | None) -> PinsPlan:
    """The plan with what each pin alone protects, as counted by the simulation."""
    if not isinstance(answer, ImpactResult):
        return plan
    numbers = {_PINNED | _code(number, len(plan.pins)): number for number in range(len(plan.pins))}
    amounts: dict[int, Amount] = {}
    for mask, amount in answer.by_mask.items():
        number = numbers.get(mask)
        if number is not None:
            amounts[number] = amounts.get(number, Amount()) + amount
    rows = []
    for number, row in enumerate(plan.pins):
        figures = amounts.get(number, Amount())
        rows.append(replace(row, objects=figures.objects, size_bytes=figures.size_bytes))
    return replace(plan, pins=tuple(rows))
