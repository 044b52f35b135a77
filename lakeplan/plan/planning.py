"""Makes plans: reads and compares every repository, judges its commits, simulates all in one job, and judges
the gates and the branches that ``branches run`` would delete. Writes nothing.

Branches of a repository are surveyed if its server's engine is ``lakeplan`` and the tree has policies for it.
An apply deletes no branch, so it does not inspect them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import cache, partial
from typing import Literal

from lakeplan import __version__
from lakeplan.branches.keepers import is_exempt
from lakeplan.branches.pin_records import PinRecord, PinRecords, read_stored
from lakeplan.branches.plan import Inspection, InspectionOptions, inspect, weigh
from lakeplan.branches.recall import Readers
from lakeplan.branches.survey import pulls_by_branch, under
from lakeplan.branches.verdicts import EVEREST
from lakeplan.errors import LakeplanError, NotFound, RepositoryNotFound, UsageError
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.plan import impact
from lakeplan.plan.gather import Gathered, failed, gather
from lakeplan.plan.impact import (
    Missing,
    Verdicts,
    expire_name,
    judge,
    named_transitions,
    shown_of,
    transitions,
)
from lakeplan.plan.pins import PinInspection, PinOptions, inspect_pins, pins_request, with_figures
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import active_holds, names_branch, tags_on
from lakeplan.retention.patterns import matches
from lakeplan.review import gates
from lakeplan.review.claims import check_claims
from lakeplan.review.selection import RefsReader, Selection, failure_of, lost_globs, read_all_refs
from lakeplan.review.strictness import guard_of
from lakeplan.simulation.requests import ImpactRequest, Simulator, simulate
from lakeplan.stores.open import StateReader
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.branches import BranchRow, Keep, PullRequest, StagedData, branch_row
from lakeplan.values.desired import DesiredRepository, PoliciesDesired, ServerConfig
from lakeplan.values.plan import (
    BranchesPlan,
    BranchFate,
    Horizon,
    Impact,
    ImpactStatus,
    Plan,
    PoliciesPlan,
    RepositoryPlan,
)
from lakeplan.values.progress import Progress, in_parallel
from lakeplan.values.repository import Refs
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import ImpactResult, RunnerChoice
from lakeplan.values.units import count_of


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


SimulateMode = Literal["changed", "all", "none"]
WORKERS = 8
"""Repositories that are read at the same time."""


@dataclass(frozen=True)
class PlanOptions:
    """Options of a plan. ``expand_over`` maps ``server/name`` to the branches that patterns may expand over
    (an apply's ceiling). ``known`` are the repositories that an earlier apply recorded; others that a glob
    names are adopted. ``judge`` limits the impact to these repositories; the others are only compared."""

    as_of: datetime
    selection: Selection = field(default_factory=Selection)
    simulate: SimulateMode = "changed"
    read_only: bool = False
    backlog: bool = False
    allowed: frozenset[str] = frozenset()
    tree_commit: str | None = None
    known: frozenset[str] = frozenset()
    expand_over: Mapping[str, frozenset[str]] = field(default_factory=dict)
    judge: frozenset[str] | None = None
    refresh: bool = False
    """Write only the days of patterns for branches that have fewer, in ``known`` repositories."""
    now: datetime | None = None
    """The moment at which branches are inspected; None: ``as_of``."""
    retire: Mapping[str, frozenset[str] | None] | None = None
    """By ``server/name`` the commits whose pins may be deleted (an apply's ceiling); None: any."""
    only_pins: bool = False
    """Change only pins, and keep rules and settings as they are on the server."""


@dataclass(frozen=True)
class Ports:
    """The dependencies of planning. ``connect`` returns a server's reader by name. Without ``branches``, no
    branches are inspected, as in an apply, which deletes none."""

    connect: Callable[[str], LakeFSReader]
    simulator: Simulator
    progress: Progress
    branches: BranchPorts | None = None
    pins: PinRecords | None = None
    """The state's records of pins; None: there are none."""


@dataclass(frozen=True)
class _Asked:
    """The request to the simulation about a change of rules. Its key is the repository's."""

    request: ImpactRequest
    verdicts: Verdicts
    blind_to: tuple[str, ...]

    def impact(self, result: ImpactResult | LakeplanError | None, *, backlog: bool) -> Impact:
        """The impact with the objects that expire, or of commits alone if no object was read."""
        if isinstance(result, ImpactResult):
            figures = impact.simulated(self.verdicts, result, backlog=backlog, blind_to=self.blind_to)
            return replace(figures, shown=shown_of(self.request.key, self.verdicts, result.shown))
        why = "the simulation returned no result" if result is None else str(result)
        return _unread(self.request.key, self.verdicts, why, self.blind_to)

    def inventory_warnings(self, result: ImpactResult | LakeplanError | None) -> tuple[str, ...]:
        """Warnings from an S3 inventory. Gates judge by the metadata, whose figures are never lower."""
        if not isinstance(result, ImpactResult) or result.stored is None:
            return ()
        stored, expires = result.stored, self.request.transitions[self.request.detail]
        if stored.problem:
            return (f"the S3 inventory was not used: {stored.problem}",)
        amount = stored.amount(expires)
        expired = count_of(result.amount(expires).objects, "object that expires", "objects that expire")
        return (
            f"of {expired}, {amount.objects:,} ({count_of(amount.size_bytes, 'byte')})"
            f" {'was' if amount.objects == 1 else 'were'} in storage when the S3 inventory of"
            f" {stored.created} was created",
        )


def _unread(key: str, verdicts: Verdicts, why: str, blind_to: tuple[str, ...]) -> Impact:
    return replace(impact.unknown(verdicts, why, blind_to), shown=shown_of(key, verdicts, b""))


@dataclass(frozen=True)
class _Judged:
    """A compared repository, with its impact or with the request for it."""

    gathered: Gathered
    impact: Impact | _Asked
    branches: Inspection | LakeplanError | None = None
    """None if they are not inspected; an error if they cannot be read."""
    pins_request: ImpactRequest | None = None

    @property
    def requests(self) -> list[ImpactRequest]:
        """The requests to the simulation."""
        asked = [self.impact.request] if isinstance(self.impact, _Asked) else []
        asked += [self.pins_request] if self.pins_request is not None else []
        return asked + (self.branches.requests if isinstance(self.branches, Inspection) else [])


def make_plan(tree: DesiredTree, options: PlanOptions, ports: Ports) -> Plan:
    """A plan of the selected repositories. A repository that fails has its failure and does not stop the
    others. Raises UsageError for a selection that matches nothing."""
    return _Planner(tree, options, ports).plan()


@dataclass(frozen=True)
class _Planner:
    tree: DesiredTree
    options: PlanOptions
    ports: Ports

    @property
    def overrides(self) -> gates.GateOverrides:
        options = self.options
        return gates.GateOverrides(options.allowed, tuple(self.tree.overrides), options.as_of.date())

    def plan(self) -> Plan:
        tree, options = self.tree, self.options
        names: list[str] = []
        lost: dict[str, LakeplanError] = {}
        wanted: list[tuple[DesiredRepository, LakeFSReader]] = []
        plans: list[RepositoryPlan] = []
        for server in tree.servers:
            if options.selection.server not in (None, server):
                continue
            selected, broken, unnamed = self._select(server, lost)
            wanted += selected
            plans += broken
            names += unnamed
        if not wanted and not plans:
            if lost:  # the repositories that a glob matches there are unknown: "no changes" would be a guess
                raise next(iter(lost.values()))
            _refuse_empty(tree, options.selection)
        servers = {p.server for p in plans}
        plans += [
            failed(glob, tree.servers[server].endpoint_url, failure_of(error))
            for server, error in lost.items()
            if server not in servers
            for glob in lost_globs(tree, server, options.selection)
        ]
        if not lost:  # the repositories that a glob matches on a lost server are unknown
            self.overrides.check_named([desired.key for desired, _ in wanted] + [p.key for p in plans])
        planned, runner = self._plan_all(wanted)
        plans += planned
        named = gates.one_by_one({p.key: p.gates for p in plans})
        plans = [replace(p, gates=named[p.key]) for p in plans]
        plans.sort(key=lambda p: p.key)
        unmanaged = tuple(sorted(names)) if options.selection.everything else ()
        return Plan(
            as_of=options.as_of,
            lakeplan_version=__version__,
            tree_digest=tree.digest,
            tree_name=tree.name,
            tree_commit=options.tree_commit,
            repositories=tuple(plans),
            gates=gates.plan_gates(
                plans, tree.safety, self.overrides, unmanaged=unmanaged, on_unmanaged=tree.unmanaged_policy
            ),
            allowed=tuple(sorted(options.allowed)),
            warnings=tuple(
                f"server {server} could not be reached, so repositories matched only by a glob are missing"
                " from this plan"
                for server in lost
            ),
            targets=options.selection.targets,
            sweep_guards={d.key: guard for d, _ in wanted if (guard := guard_of(d, d)) is not None},
            unmanaged=unmanaged,
            simulate=options.simulate,
            read_only=options.read_only,
            runner=runner,
        )

    def _select(
        self, server: str, lost: dict[str, LakeplanError]
    ) -> tuple[list[tuple[DesiredRepository, LakeFSReader]], list[RepositoryPlan], list[str]]:
        """The selected repositories of one server, those that failed, and unmanaged ones. If the server does
        not answer, its repositories have failed, and ``lost`` gets the error."""
        tree, options = self.tree, self.options
        try:
            reader = self.ports.connect(server)
            with self.ports.progress.task(f"listing the repositories of {server}", None):
                live = [r.id for r in reader.list_repositories()]
        except LakeplanError as error:
            lost[server] = error
            endpoint = tree.servers[server].endpoint_url
            known = names_on(server, options.known | (options.judge or frozenset()))
            named = [d for d in tree.resolve(server, known) if options.selection.takes(d)]
            return [], [failed(d, endpoint, failure_of(error)) for d in named], []
        # A repository in a plan file that no longer exists on the server must fail under its name.
        expected = {*live, *names_on(server, options.judge or frozenset())}
        desired = [d for d in tree.resolve(server, expected) if options.selection.takes(d)]
        unnamed = [f"{server}/{name}" for name in tree.unmanaged(server, live)]
        return [(d, reader) for d in desired], [], unnamed

    def _plan_all(
        self, work: Sequence[tuple[DesiredRepository, LakeFSReader]]
    ) -> tuple[list[RepositoryPlan], RunnerChoice | None]:
        """The plans, and the runner that read ranges, or None if no range was read."""
        with self.ports.progress.task("reading repositories", len(work)) as step:
            judged = in_parallel(lambda item: self._judge_one(*item), work, WORKERS, step)
        requests = [request for j in judged if isinstance(j, _Judged) for request in j.requests]
        results = simulate(requests, self.ports.simulator, self.ports.progress)
        plans = [
            each if isinstance(each, RepositoryPlan) else self._with_answers(each, results) for each in judged
        ]
        read = (result.runner for result in results.values() if isinstance(result, ImpactResult))
        return plans, next((runner for runner in read if runner is not None), None)

    def _with_answers(
        self, judged: _Judged, results: Mapping[str, ImpactResult | LakeplanError]
    ) -> RepositoryPlan:
        plan, desired, asked = judged.gathered.plan, judged.gathered.desired, judged.impact
        warnings: list[str] = []
        if isinstance(asked, _Asked):
            answer = results.get(asked.request.key)
            warnings += asked.inventory_warnings(answer)
            asked = asked.impact(answer, backlog=self.options.backlog)
        plan = replace(plan, impact=asked)
        if plan.pins is not None and judged.pins_request is not None:
            plan = replace(plan, pins=with_figures(plan.pins, results.get(judged.pins_request.key)))
        if judged.branches is not None:
            plan = replace(plan, lifecycle=branches_plan(judged.branches, results, self.options.as_of))
        warnings += _collector_warnings(plan, desired, self.options.as_of)
        plan = replace(plan, warnings=(*plan.warnings, *warnings))
        return replace(plan, gates=gates.repository_gates(plan, desired.safety, self.overrides))

    def _judge_one(self, desired: DesiredRepository, reader: LakeFSReader) -> _Judged | RepositoryPlan:
        options, ports, server = self.options, self.ports, self.tree.servers[desired.server]
        read_refs = cache(partial(read_all_refs, reader, desired.name, read_only=options.read_only))
        try:
            gathered = gather(
                desired,
                reader,
                server,
                as_of=options.as_of,
                known=desired.key in options.known,
                read_refs=read_refs,
                expand_over=options.expand_over.get(desired.key),
            )
            if options.only_pins:
                gathered = gathered.as_it_is()
            pins = None
            if options.refresh:
                gathered = gathered.refreshed(known=desired.key in options.known)
            else:
                pins = self._inspect_pins(gathered, reader, read_refs)
                gathered = gathered.with_pins(pins, known=desired.key in options.known)
            if gathered.plan.writes or desired.tree:
                check_claims(reader.metadata(desired.name), desired.tree, desired.key)
        except LakeplanError as error:
            return failed(desired, server.endpoint_url, failure_of(error))
        if gathered.plan.failure is not None:
            return _Judged(gathered, Impact(ImpactStatus.NOT_ASKED))
        branches = None
        if ports.branches is not None and is_ours(desired, server):
            after, now = pins.rules_after if pins is not None else gathered.plan.after, options.now
            inspection = InspectionOptions(
                now or options.as_of, options.as_of, options.simulate != "none", options.read_only
            )
            branches = inspect_branches(self.tree, desired, ports.branches, after, inspection)
        read_history = partial(_history, branches, read_refs)
        judged = self._judge_rules(gathered, reader, read_history)
        asked = None
        if pins is not None and pins.plan.pins and options.simulate != "none":
            metadata = reader.metadata_reader(desired.name)
            asked = pins_request(pins, desired.key, gathered.repository, metadata)
        return replace(judged, branches=branches, pins_request=asked)

    def _inspect_pins(
        self, gathered: Gathered, reader: LakeFSReader, read_refs: RefsReader
    ) -> PinInspection | None:
        """The plan of pins, or None if none exist and the tree requires none."""
        desired, plan, options = gathered.desired, gathered.plan, self.options
        if options.only_pins and plan.after is None:
            return None  # without rules nothing is collected
        record = self.ports.pins.of(desired.key) if self.ports.pins is not None else PinRecord()
        stored = read_stored(reader, desired.name, list_pins=desired.requires_pins or bool(record.pins))
        if not (desired.requires_pins or record.pins or stored.pins or stored.others):
            return None
        retire = None if options.retire is None else options.retire.get(desired.key, frozenset())
        pin_options = PinOptions(options.as_of, self.tree.servers[desired.server].zone, retire)
        return inspect_pins(desired, stored, record, plan.after, read_refs()[0], pin_options)

    def _judge_rules(
        self,
        gathered: Gathered,
        reader: LakeFSReader,
        read_history: Callable[[], tuple[Refs, CommitGraph, tuple[str, ...]]],
    ) -> _Judged:
        """Judges what a change of settings does to every commit, and makes the request about objects."""
        desired, plan, options = gathered.desired, gathered.plan, self.options
        zone = self.tree.servers[desired.server].zone
        asked = plan.writes or (options.simulate == "all" and plan.managed)
        left_out = options.judge is not None and desired.key not in options.judge
        if left_out or not asked:
            return _Judged(gathered, Impact(ImpactStatus.NOT_ASKED))
        try:
            refs, graph, blind_to = read_history()
        except LakeplanError as error:
            gathered = self._with_losses(gathered, None)
            return _Judged(gathered, impact.unknown(None, str(error)))
        gathered = self._with_losses(gathered, refs)
        # Pins take part in the server's walk, even if this plan does not change them.
        stored, pins = gathered.stored, gathered.pins
        before, after = stored.with_entries(plan.before), stored.with_entries(plan.after)
        if pins is not None:
            graph, before, after = pins.graph, pins.stored.raw, pins.rules_after
        missing = Missing()
        try:
            missing = Missing(gathered.deletes())
        except LakeplanError as error:
            blind_to = (*blind_to, f"branches that the server's policies delete ({error.message})")
        verdicts = judge(
            graph,
            before,
            after,
            options.as_of,
            zone,
            backlog=options.backlog,
            missing=missing if pins is None else replace(missing, absent=pins.without),
        )
        if not verdicts.changes_sides(backlog=options.backlog):
            later = impact.expires_later(graph, before, after, options.as_of, zone)
            if later and options.refresh:  # no person would read this
                return _Judged(gathered, impact.unknown(verdicts, later[0], blind_to))
            return _Judged(gathered, impact.unaffected(verdicts, (*blind_to, *later)))
        blind_to = (
            *blind_to,
            *impact.expires_later(graph, before, after, options.as_of, zone, beyond=True),
        )
        if options.simulate == "none":
            why = "not simulated (--no-simulate)"
            return _Judged(gathered, _unread(desired.key, verdicts, why, blind_to))
        request = ImpactRequest(
            key=desired.key,
            storage_namespace=gathered.repository.storage_namespace,
            metadata=reader.metadata_reader(desired.name),
            metaranges=verdicts.metaranges(),
            transitions=transitions(backlog=options.backlog),
            detail=expire_name(Horizon.NOW),
            tags=impact.tag_metaranges(verdicts),
            tag_transitions=tuple(expire_name(horizon) for horizon in Horizon),
            shown=named_transitions(backlog=options.backlog),
            storage_id=gathered.repository.storage_id,
        )
        return _Judged(gathered, _Asked(request, verdicts, blind_to))

    def _with_losses(self, gathered: Gathered, refs: Refs | None) -> Gathered:
        """The repository with what is lost when the server's own job deletes branches."""
        policies, ports = gathered.plan.branch_lifecycle, self.ports.branches
        if ports is None or policies is None or not policies.fates:
            return gathered
        default = gathered.repository.default_branch
        readers = ports.readers(gathered.desired.server)
        known = with_losses(policies, gathered.desired, readers, refs, default)
        return replace(gathered, plan=replace(gathered.plan, branch_lifecycle=known))


def _refuse_empty(tree: DesiredTree, selection: Selection) -> None:
    """Raises UsageError for a selection that matches nothing: a misspelt one must not look like "no
    changes"."""
    if selection.server is not None and selection.server not in tree.servers:
        names = ", ".join(sorted(tree.servers))
        raise UsageError(f"the tree has no server {selection.server!r}", hint=f"Use one of {names}.")
    if not selection.everything:
        raise UsageError(
            "the selection matches no repository in the tree",
            hint="Check --target (a name, server/name or a glob), --owner and --server.",
        )


def names_on(server: str, keys: Iterable[str]) -> list[str]:
    """Names of the repositories among ``server/name`` keys that are on a server."""
    return [key.removeprefix(f"{server}/") for key in keys if key.startswith(f"{server}/")]


def _collector_warnings(plan: RepositoryPlan, desired: DesiredRepository, as_of: datetime) -> list[str]:
    """Warnings about holds and tags, which only ``lakeplan sweep`` keeps, not the official collector."""
    warnings = []
    if holds := active_holds(desired.holds, as_of):
        named = f"{len(holds)} hold{'s' * (len(holds) != 1)}"
        warnings.append(f"{named}: `lakeplan sweep` respects holds, but the official collector ignores them")
    protected = [
        t.tag for t in plan.impact.tags if any(matches(t.tag, glob) for glob in desired.safety.protected_tags)
    ]
    if protected:
        warnings.append(
            "`lakeplan sweep` keeps the data of protected tags, but the official collector does not:"
            f" {gates.first_names(protected)}"
        )
    return warnings


def _history(
    branches: Inspection | LakeplanError | None, read_refs: RefsReader
) -> tuple[Refs, CommitGraph, tuple[str, ...]]:
    """The refs, their graph, and what could not be read. Those of an inspection are reused."""
    survey = branches.survey if isinstance(branches, Inspection) else None
    if survey is not None and survey.refs is not None and survey.graph is not None:
        return survey.refs, survey.graph, survey.blind_to
    refs, blind_to = read_refs()
    return refs, CommitGraph.from_refs(refs), blind_to
