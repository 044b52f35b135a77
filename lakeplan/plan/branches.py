"""Branches in a plan: which ``branches run`` would delete, and what is lost when a server deletes one.

Writes nothing. A repository is surveyed if its server's engine is ``lakeplan`` and the tree has policies for
it. An apply deletes no branch, so it does not inspect them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from lakeplan.branches.keepers import is_exempt
from lakeplan.branches.plan import Inspection, InspectionOptions, inspect, weigh
from lakeplan.branches.recall import Readers
from lakeplan.branches.survey import WORKERS, pulls_by_branch, under
from lakeplan.branches.verdicts import EVEREST
from lakeplan.errors import LakeplanError, NotFound, RepositoryNotFound
from lakeplan.retention.keep import active_holds, names_branch, tags_on
from lakeplan.stores.protocols import StateReader
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.branches import BranchRow, Keep, PullRequest, StagedData, branch_row
from lakeplan.values.desired import DesiredRepository, PoliciesDesired, ServerConfig
from lakeplan.values.plan import BranchesPlan, BranchFate, Horizon, PoliciesPlan
from lakeplan.values.progress import in_parallel
from lakeplan.values.repository import Refs
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import ImpactResult


@dataclass(frozen=True)
class BranchPorts:
    """A server's readers by name, and the state with what earlier runs observed."""

    readers: Callable[[str], Readers]
    state: StateReader


def is_ours(desired: DesiredRepository, server: ServerConfig) -> bool:
    """Whether ``branches run`` enforces the policies of a repository."""
    return server.branch_lifecycle_engine == "lakeplan" and isinstance(
        desired.branch_lifecycle, PoliciesDesired
    )


def inspect_branches(
    tree: DesiredTree,
    desired: DesiredRepository,
    ports: BranchPorts,
    rules: GcRules | None,
    options: InspectionOptions,
) -> Inspection | LakeplanError:
    """Every branch of one repository, judged under ``rules``, which are those after the plan. A returned
    error does not fail the plan of the rules."""
    try:
        inspected, warnings = inspect(tree, desired, ports.readers, ports.state, options)
    except LakeplanError as error:
        return error
    refs, zone = ports.readers(desired.server).refs, tree.servers[desired.server].zone
    # The request about the repository's change of rules has its plain key.
    return weigh(under(inspected, rules, zone), warnings, refs, zone, options, key=f"{desired.key}#branches")


def branches_plan(
    inspection: Inspection | LakeplanError,
    results: Mapping[str, ImpactResult | LakeplanError],
    as_of: datetime,
) -> BranchesPlan:
    """The inspection and what follows from its deletions, as listed in a plan."""
    if isinstance(inspection, LakeplanError):
        return BranchesPlan(as_of, unknown=str(inspection))
    done = inspection.with_answers(results)
    desired = done.desired
    rows = tuple(branch_row(outlook) for _, outlook in sorted(done.outlooks.items()))
    moments = {horizon.value: as_of + timedelta(days=horizon.days) for horizon in Horizon}
    deletions = {
        name: sum(1 for r in rows if _is_deleted(r, desired, moment)) for name, moment in moments.items()
    }
    asks_for_idleness = any(policy.max_idle_seconds is not None for policy in desired.policies)
    idle = any(deletions.values()) and asks_for_idleness
    return BranchesPlan(
        as_of,
        rows,
        observed_since=datetime.fromtimestamp(done.ledger.began, timezone.utc),
        deletions=deletions,
        totals=done.totals,
        objects_unknown=done.objects_unknown,
        notes=(*inspection.warnings, EVEREST) if idle else inspection.warnings,
    )


def _is_deleted(row: BranchRow, desired: DesiredRepository, moment: datetime) -> bool:
    """Whether a run deletes the branch by this time, assuming no new commits. A hold may end before that."""
    if is_exempt(row.branch_id, desired.branch_settings):
        return False
    if row.reason == Keep.HELD.value:
        holds = [hold for hold in desired.holds if names_branch([hold], row.branch_id)]
        return bool(holds) and not active_holds(holds, moment)
    return row.is_deleted_by(moment) and not names_branch(active_holds(desired.holds, moment), row.branch_id)


# ---- a server's own job
def with_losses(
    policies: PoliciesPlan,
    desired: DesiredRepository,
    readers: Readers,
    refs: Refs | None,
    default_branch: str,
) -> PoliciesPlan:
    """The plan of policies with what is lost with each branch that they delete: uncommitted changes, open
    pull requests and tags. A note says what could not be read."""
    names = [fate.branch_id for fate in policies.fates if fate.goes_at is not None]
    if not names:
        return policies
    tags = tags_on(refs, default_branch) if refs is not None else {}
    staged: dict[str, StagedData] = {}
    pulls: dict[str, tuple[PullRequest, ...]] = {}
    notes = list(policies.notes)
    try:
        pulls = pulls_by_branch(readers.branches, desired.name)
        staged = dict(in_parallel(lambda name: (name, _staged(readers, desired.name, name)), names, WORKERS))
    except LakeplanError as error:
        notes.append(f"uncommitted changes and pull requests could not be read: {error.message}")

    def full(fate: BranchFate) -> BranchFate:
        if fate.goes_at is None:
            return fate
        data = staged.get(fate.branch_id)
        return replace(
            fate,
            uncommitted=None if data is None else len(data.changes),
            uncommitted_more=data.more if data is not None else False,
            pulls=tuple(pull.id for pull in pulls.get(fate.branch_id, ())),
            tags=tags.get(fate.branch_id, ()),
        )

    return replace(policies, fates=tuple(full(fate) for fate in policies.fates), notes=tuple(notes))


def _staged(readers: Readers, repository: str, branch_id: str) -> StagedData:
    try:
        return readers.branches.staged(repository, branch_id)
    except RepositoryNotFound:
        raise
    except NotFound:
        return StagedData()  # the branch was deleted since it was listed
