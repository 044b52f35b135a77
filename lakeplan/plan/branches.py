"""Branches in a plan: what ``branches run`` would delete, and what a server's own job takes with a branch.

Only looks. A repository is surveyed where its server's engine is ``lakeplan`` and the tree has policies for
it; an apply deletes no branch, so nothing here is asked again when a plan is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from lakeplan.branches.consequences import Consequences
from lakeplan.branches.fates import EVEREST
from lakeplan.branches.plan import find_stale, follow, request_of, stale_request, what_follows, with_stale
from lakeplan.branches.recall import Readers, recall
from lakeplan.branches.survey import Survey, When, in_parallel, survey, under
from lakeplan.branches.verdicts import StaleBranches, is_exempt
from lakeplan.errors import LakeplanError, NotFound, RepositoryNotFound
from lakeplan.retention.keep import active_holds, names_branch, tags_on
from lakeplan.simulation.requests import ImpactRequest
from lakeplan.state.clocks import clock_warning
from lakeplan.stores.protocols import StateReader
from lakeplan.values.branches import Keep, StagedData
from lakeplan.values.desired import DesiredRepository, PoliciesDesired, ServerConfig
from lakeplan.values.plan import Horizon
from lakeplan.values.plan_parts import BranchesPlan, BranchFate, BranchRow, PoliciesPlan, row_of
from lakeplan.values.repository import Refs
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import ImpactResult


@dataclass(frozen=True)
class BranchPorts:
    """What an inspection of branches needs: a server's readers by name, and what runs observed before."""

    readers: Callable[[str], Readers]
    state: StateReader


@dataclass(frozen=True)
class InspectionOptions:
    """``now`` is the moment of the look, ``as_of`` the one to judge at. ``simulate``: whether objects are
    read."""

    now: datetime
    as_of: datetime
    read_only: bool
    simulate: bool


@dataclass(frozen=True)
class BranchInspection:
    """An inspection of the branches, before the simulation answered. ``unknown`` says why there is none."""

    found: Survey | None = None
    what: Consequences | None = None
    request: ImpactRequest | None = None
    stale: StaleBranches | None = None
    stale_request: ImpactRequest | None = None
    notes: tuple[str, ...] = ()
    unknown: str = ""


def is_ours(desired: DesiredRepository, server: ServerConfig) -> bool:
    """Whether ``branches run`` enforces policies here."""
    return server.branch_lifecycle_engine == "lakeplan" and isinstance(
        desired.branch_lifecycle, PoliciesDesired
    )


def inspect_branches(
    desired: DesiredRepository,
    server: ServerConfig,
    ports: BranchPorts,
    rules: GcRules | None,
    look: InspectionOptions,
) -> BranchInspection:
    """Every branch of one repository; ``rules`` are those that the plan leaves behind. What cannot be read is
    told, and does not fail the plan of the rules."""
    zone = ZoneInfo(server.time_zone)
    try:
        readers = ports.readers(desired.server)
        clock = clock_warning(readers.refs, desired.name, look.now)
        recalled = recall(ports.state, readers, desired, server.endpoint_url, look.now)
        found = survey(
            desired, readers, recalled, When(look.now, look.as_of, zone), whole=True, read_only=look.read_only
        )
    except LakeplanError as error:
        return BranchInspection(unknown=str(error))
    found = under(found, rules, zone)
    what = what_follows(found, rules, look.as_of, zone)
    stale = find_stale(found, rules, look.as_of, zone)
    stale_asked = None
    if stale is not None and look.simulate:
        stale_asked = stale_request(f"{desired.key}#stale", found, stale, readers.refs)
    request = None
    if what is not None and what.any_follow and look.simulate:
        # A key of its own: the same repository may also ask what its change of rules does.
        request = request_of(f"{desired.key}#branches", found, what, readers.refs)
    return BranchInspection(
        found, what, request, stale, stale_asked, notes=(*((clock,) if clock else ()), *recalled.notes)
    )


def branches_plan(
    seen: BranchInspection, results: Mapping[str, ImpactResult | LakeplanError], look: InspectionOptions
) -> BranchesPlan:
    """The look with what follows from its deletions, as the plan lists it."""
    if seen.found is None:
        return BranchesPlan(look.as_of, unknown=seen.unknown)
    answer = results.get(seen.request.key) if seen.request is not None else None
    done = follow(seen.found, seen.what, answer, simulated=look.simulate)
    asked = seen.stale_request
    known = with_stale(done.survey, seen.stale, results.get(asked.key) if asked is not None else None)
    desired = seen.found.desired
    rows = tuple(row_of(outlook) for _, outlook in sorted(known.outlooks.items()))
    moments = {horizon.value: look.as_of + timedelta(days=horizon.days) for horizon in Horizon}
    deletions = {
        name: sum(1 for r in rows if _is_deleted(r, desired, moment)) for name, moment in moments.items()
    }
    idle = any(deletions.values()) and _asks_for_idleness(seen.found.desired)
    return BranchesPlan(
        look.as_of,
        rows,
        observed_since=datetime.fromtimestamp(done.survey.ledger.began, timezone.utc),
        deletions=deletions,
        totals=done.totals,
        objects_unknown=done.objects_unknown,
        notes=(*seen.notes, EVEREST) if idle else seen.notes,
    )


def _is_deleted(row: BranchRow, desired: DesiredRepository, moment: datetime) -> bool:
    """Whether a run deletes the branch by a moment, if nobody writes. A hold may end before."""
    if is_exempt(row.branch_id, desired.lifecycle):
        return False
    if row.reason == Keep.HELD.value:
        own = [hold for hold in desired.holds if names_branch([hold], row.branch_id)]
        return bool(own) and not active_holds(own, moment)
    return row.is_deleted_by(moment) and not names_branch(active_holds(desired.holds, moment), row.branch_id)


def _asks_for_idleness(desired: DesiredRepository) -> bool:
    setting = desired.branch_lifecycle
    return isinstance(setting, PoliciesDesired) and any(
        policy.max_idle_seconds is not None for policy in setting.policies
    )


# ---- a server's own job
def with_losses(
    policies: PoliciesPlan,
    desired: DesiredRepository,
    readers: Readers,
    refs: Refs | None,
    default_branch: str,
) -> PoliciesPlan:
    """Beside every branch that goes under the proposed policies: what is uncommitted on it, open pull
    requests from it, tags on it. What cannot be read is a note."""
    names = [fate.branch_id for fate in policies.fates if fate.goes_at is not None]
    if not names:
        return policies
    tags = tags_on(refs, default_branch) if refs is not None else {}
    staged: dict[str, StagedData] = {}
    pulls: dict[str, list[str]] = {}
    notes = list(policies.notes)
    try:
        for pull in readers.branches.open_pulls(desired.name):
            pulls.setdefault(pull.source_branch, []).append(pull.id)
        staged = dict(in_parallel(lambda name: (name, _staged(readers, desired.name, name)), names))
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
            pulls=tuple(pulls.get(fate.branch_id, ())),
            tags=tags.get(fate.branch_id, ()),
        )

    return replace(policies, fates=tuple(full(fate) for fate in policies.fates), notes=tuple(notes))


def _staged(readers: Readers, repository: str, branch_id: str) -> StagedData:
    try:
        return readers.branches.staged(repository, branch_id)
    except RepositoryNotFound:
        raise
    except NotFound:
        return StagedData()  # gone since it was listed: nothing is lost with it any more
