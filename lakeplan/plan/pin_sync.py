"""``lakeplan pins sync``: brings the pins of repositories up to date, but writes no rule of the tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from lakeplan.branches.pin_records import KIND, PinRecords, read_pin_record, read_stored, write_pin_record
from lakeplan.errors import ExitCode, LakeplanError
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.plan.baselines import read_last_applied
from lakeplan.plan.gather import failed as unreadable
from lakeplan.plan.planning import PlanOptions, Ports, make_plan, names_on
from lakeplan.plan.writing import gate_text, pins_unchanged, write
from lakeplan.review.gates import contributes
from lakeplan.review.run import Applied, ApplyPorts, ApplyReport, PinSync, Run
from lakeplan.review.selection import Selection, failure_of, lost_globs
from lakeplan.state.store import known_repositories, repositories_of
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.pins import Pin, PinsPlan
from lakeplan.values.plan import APPLY, Failure, GateOutcome, GateResult, RepositoryPlan

COMMAND = "apply pins"
"""The name of such a run in the history."""


@dataclass(frozen=True)
class SyncOptions:
    """Options of a sync. ``adopt``: unrecorded hidden branches of lakeplan's form are recorded first."""

    selection: Selection
    allowed: frozenset[str] = frozenset()
    adopt: bool = False


def sync_pins(
    tree: DesiredTree, options: SyncOptions, plan_ports: Ports, ports: ApplyPorts, run: Run
) -> ApplyReport:
    """Creates missing pins and writes their rules. Retired pins are deleted only if the tree's settings for
    the repository are those of the last apply. Otherwise, a plan must first show which data their deletion
    would expire."""
    run = replace(run, command=COMMAND)
    known = known_repositories(ports.state)
    on_record = known | repositories_of(ports.state, KIND)
    lost: dict[str, LakeplanError] = {}
    selected = list(_chosen(tree, options.selection, plan_ports, on_record, lost))
    chosen = {d.key: d for d in selected if d.server not in lost}
    if lost and not chosen:
        raise next(iter(lost.values()))
    if options.adopt:
        for desired in chosen.values():
            _adopt(desired, ports, run)
        plan_ports = replace(plan_ports, pins=PinRecords(ports.state))
    syncs = {key: _sync(desired, tree, ports) for key, desired in chosen.items()}
    plan = make_plan(
        tree,
        PlanOptions(
            as_of=run.now(),
            selection=options.selection,
            allowed=options.allowed,
            tree_commit=run.tree_commit,
            known=known,
            judge=frozenset(chosen),
            retire={key: sync.retire for key, sync in syncs.items()},
            only_pins=True,
        ),
        replace(plan_ports, connect=partial(_connect, plan_ports.connect, lost)),
    )
    refused = [end for r in plan.writes if (end := _refused(r, plan.gates)) is not None]
    planned = [r for r in plan.repositories if r.key in chosen]
    for desired in (d for d in selected if d.server in lost):
        # Other servers answered, even if they needed nothing: the run is partly done.
        failure = replace(failure_of(lost[desired.server]), exit_code=int(ExitCode.PARTLY_DONE))
        planned.append(unreadable(desired, tree.servers[desired.server].endpoint_url, failure))
    failed = [_failed(r, r.failure) for r in planned if r.failure is not None]
    failed += [_incomplete(r, r.pins) for r in plan.repositories if r.pins is not None and r.pins.incomplete]
    shut = {end.repository for end in refused}
    steps = [r for r in plan.writes if r.key in syncs and r.key not in shut]
    # Gates have judged only the deletions of this plan.
    syncs |= {r.key: replace(syncs[r.key], retire=r.pins.retired) for r in steps if r.pins is not None}
    live = replace(plan, repositories=tuple(steps))
    report = write(live, steps, live, run, replace(ports, pins=syncs), plan_digest="", force=False)
    return replace(report, results=(*report.results, *refused, *failed))


def _chosen(
    tree: DesiredTree,
    selection: Selection,
    ports: Ports,
    on_record: Iterable[str],
    lost: dict[str, LakeplanError],
) -> Iterable[DesiredRepository]:
    """The selected repositories that have or require pins. For a server that does not answer, ``lost`` gets
    the error. Its repositories are those on record, and globs, which may name some that require pins."""
    for server in tree.servers:
        if selection.server not in (None, server):
            continue
        try:
            names = [repository.id for repository in ports.connect(server).list_repositories()]
        except LakeplanError as error:
            lost[server] = error
            names = names_on(server, on_record)
            yield from lost_globs(tree, server, selection)
        for desired in tree.resolve(server, names):
            recorded = ports.pins.of(desired.key).pins if ports.pins is not None else ()
            if selection.takes(desired) and (desired.requires_pins or recorded):
                yield desired


def _connect(
    connect: Callable[[str], LakeFSReader], lost: Mapping[str, LakeplanError], server: str
) -> LakeFSReader:
    """Connects to a server. If that failed before, raises the same error: nothing may be planned from a
    server that was not read."""
    if server in lost:
        raise lost[server]
    return connect(server)


def _adopt(desired: DesiredRepository, ports: ApplyPorts, run: Run) -> None:
    record = read_pin_record(ports.state, desired.key)
    stored = read_stored(ports.connect(desired.server).reader, desired.name, list_pins=True)
    known = record.commit_ids
    new = [
        Pin(branch.commit_id, stored.entries.get(branch.id))
        for branch in stored.pins
        if branch.commit_id not in known
    ]
    if new:
        # With an empty hash, no sync deletes one before a plan has shown it and an apply has run.
        adopted = replace(record, pins=(*record.pins, *new), config_hash="")
        write_pin_record(ports.state, desired.key, adopted, run_id=run.run_id, at=run.now())


def _sync(desired: DesiredRepository, tree: DesiredTree, ports: ApplyPorts) -> PinSync:
    record = read_pin_record(ports.state, desired.key)
    # An apply that found nothing to write does not change the record of pins.
    last = None
    with suppress(LakeplanError):  # a damaged record fails before the first write
        last = read_last_applied(ports.state, desired.key)
    reviewed = last is not None and record.config_hash == last.config_hash == desired.config_hash
    zone = tree.servers[desired.server].zone
    return PinSync(desired, zone, None if reviewed else frozenset(), config_hash=record.config_hash)


def _refused(repository: RepositoryPlan, of_plan: Iterable[GateResult]) -> Applied | None:
    """The result of a repository that a gate refused: its own gate, or one of the plan that it contributes
    to."""
    gates = (*repository.gates, *(gate for gate in of_plan if contributes(repository, gate)))
    shut = [g for g in gates if g.outcome is GateOutcome.REFUSED and g.stops == APPLY]
    if not shut:
        return None
    text, hint = "; ".join(gate_text(gate) for gate in shut), f"Override it with {shut[0].opens_with}."
    return pins_unchanged(repository, text, hint, int(ExitCode.REFUSED))


def _incomplete(repository: RepositoryPlan, pins: PinsPlan) -> Applied:
    hint = (
        "Run `lakeplan plan` to see which rule or branch is the cause, and remove that rule or branch. If the"
        " state was lost, adopt its pins with `lakeplan pins sync --adopt`."
    )
    text = f"some pins are missing or may be missing: {pins.incomplete}"
    return pins_unchanged(repository, text, hint, int(ExitCode.REFUSED))


def _failed(repository: RepositoryPlan, failure: Failure) -> Applied:
    return pins_unchanged(repository, failure.message, failure.hint, failure.exit_code)
