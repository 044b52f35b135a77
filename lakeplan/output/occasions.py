"""What the documents of commands give cause to notify about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakeplan.errors import LakeplanError
from lakeplan.output.text import count, counted, moment, size
from lakeplan.values.gates import WHOLE_PLAN
from lakeplan.values.notify import Event, Item, Occasion

if TYPE_CHECKING:
    from lakeplan.plan.documents import ApplyDocument, DriftDocument
    from lakeplan.sweep.documents import MarkDocument, MarksDocument, SweepDocument

Owners = Callable[[str], str]
"""The owner of ``server/name``; "" without one."""


def plan_refused(document: Mapping[str, Any], owner_of: Owners) -> Occasion | None:
    """Gates that refuse; None when none does."""
    gates = [*document["gates"], *(gate for r in document["repositories"] for gate in r["gates"])]
    items = [
        Item(
            subject=f"{gate['scope']} {gate['gate']}",
            text=gate["message"],
            owner=_owner(gate["scope"], owner_of),
            facts={"scope": gate["scope"], "gate": gate["gate"], "value": _whole(gate["value"])},
        )
        for gate in gates
        if gate["outcome"] == "refused"
    ]
    hint = "Change the rules, or list the gate under overrides in the tree and have that reviewed."
    return Occasion(Event.PLAN_REFUSED, "Gates refused a plan", items, hint) if items else None


def apply_failed(document: ApplyDocument, owner_of: Owners) -> Occasion | None:
    """Settings that did not end as planned; None when all did."""
    items = [
        Item(
            subject=f"{result['repository']} {result['setting']}",
            text=f"{result['outcome']}: {result['message']}",
            owner=_owner(result["repository"], owner_of),
            facts={
                "repository": result["repository"],
                "setting": result["setting"],
                "outcome": result["outcome"],
                "run_id": document["run_id"],
            },
        )
        for result in document["results"]
        if result["exit_code"]
    ]
    hint = "Run `lakeplan apply` again. What is applied already is skipped."
    return Occasion(Event.APPLY_FAILED, "Writes of an apply failed", items, hint) if items else None


def apply_stopped(error: LakeplanError) -> Occasion:
    """An apply that ended with an error before it wrote anything, or in the middle."""
    item = Item(error.where or "apply", error.message, facts={"exit_code": int(error.exit_code)})
    return Occasion(Event.APPLY_FAILED, "An apply ended with an error", [item], error.hint)


def drift_found(document: DriftDocument, classes: Collection[str]) -> Occasion | None:
    """Repositories that drifted in one of these classes, and those that could not be compared."""
    items = [
        Item(
            subject=drifted["repository"],
            text=f"{', '.join(found)}{'; ' if drifted['note'] else ''}{drifted['note']}",
            owner=drifted["owner"],
            facts={"repository": drifted["repository"], "classes": " ".join(found)},
        )
        for drifted in document["repositories"]
        if (found := [name for name in drifted["classes"] if name in classes])
    ]
    items += [
        Item(
            subject=failure["repository"],
            text=f"could not be compared: {failure['message']}",
            owner=failure["owner"],
            facts={"repository": failure["repository"], "classes": ""},
        )
        for failure in document["failures"]
    ]
    hint = "Run `lakeplan drift` to see the differences."
    return Occasion(Event.DRIFT, "Drift", items, hint) if items else None


def marks_waiting(
    document: MarksDocument, owner_of: Owners, ids: Collection[str] | None = None
) -> Occasion | None:
    """Marks with something to delete, of ``ids`` if given; None when there is none."""
    waiting = [
        mark
        for mark in document["marks"]
        if mark["goes"]["objects"] and (ids is None or mark["mark_id"] in ids)
    ]
    items = [_mark(mark, owner_of) for mark in waiting]
    title = "Marks await approval"
    hint = "Look at the mark first. `lakeplan sweep approve MARK --reason TEXT` approves it."
    return Occasion(Event.MARK_AWAITING_APPROVAL, title, items, hint) if items else None


def _mark(mark: MarkDocument, owner_of: Owners) -> Item:
    key, goes = f"{mark['server']}/{mark['repository']}", mark["goes"]
    return Item(
        subject=f"{key} {mark['mark_id']}",
        text=f"{counted(goes['objects'], 'object')} ({size(goes['size_bytes'])}) would be deleted, not before"
        f" {moment(mark['sweep_from'])} and not after {moment(mark['sweep_until'])}",
        command=f"lakeplan sweep show {mark['mark_id']}",
        owner=_owner(key, owner_of),
        facts={
            "repository": key,
            "mark_id": mark["mark_id"],
            "objects": goes["objects"],
            "size_bytes": goes["size_bytes"],
            "sweep_from": mark["sweep_from"],
            "sweep_until": mark["sweep_until"],
        },
    )


def sweeps_ended(documents: Sequence[SweepDocument], owner_of: Owners) -> Occasion | None:
    """Runs of sweeps that ended, whether they finished or not; None without one."""
    items = [_sweep(document, owner_of) for document in documents]
    return Occasion(Event.SWEEP_FINISHED, "Sweeps ended", items) if items else None


def _sweep(document: SweepDocument, owner_of: Owners) -> Item:
    deleted, failed, pending = document["deleted"], document["failed"], document["pending"]
    texts = [f"{counted(deleted['objects'], 'object')} deleted ({size(deleted['size_bytes'])})"]
    texts += [f"{count(failed['objects'])} failed"] if failed["objects"] else []
    texts += [f"{count(pending['objects'])} left"] if pending["objects"] else []
    texts += [f"stopped: {document['problem']}"] if document["problem"] else []
    return Item(
        subject=f"{document['repository']} {document['mark_id']}",
        text=", ".join(texts),
        command=f"lakeplan sweep show {document['mark_id']}",
        owner=_owner(document["repository"], owner_of),
        facts={
            "repository": document["repository"],
            "mark_id": document["mark_id"],
            "finished": int(document["finished"]),
            "deleted_objects": deleted["objects"],
            "deleted_bytes": deleted["size_bytes"],
            "failed_objects": failed["objects"],
            "pending_objects": pending["objects"],
        },
    )


def _owner(scope: str, owner_of: Owners) -> str | None:
    return None if scope == WHOLE_PLAN else owner_of(scope) or None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
