"""Makes branch plans: every branch with its verdict, what follows from its deletion, and the gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from lakeplan.branches.consequences import Consequences, StaleBranches, consequences, stale_branches
from lakeplan.branches.keepers import with_other_names
from lakeplan.branches.recall import Readers, recall
from lakeplan.branches.survey import Moments, Survey, survey
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.review import gates
from lakeplan.review.selection import Selection, check_server, failure_of, lost_globs
from lakeplan.simulation.requests import ImpactRequest, Simulator, simulate
from lakeplan.state.clocks import clock_warning
from lakeplan.state.store import ListedOnce
from lakeplan.stores.open import StateReader
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.branches import SETTLED, BranchOutlook, branch_row
from lakeplan.values.desired import DesiredRepository, PoliciesDesired
from lakeplan.values.gates import WHOLE_PLAN
from lakeplan.values.plan import Failure, GateOutcome, GateResult
from lakeplan.values.progress import Progress, in_parallel
from lakeplan.values.simulation import ImpactResult


@dataclass(frozen=True)
class InspectionOptions:
    """Options of an inspection. ``now`` is the moment of the inspection, ``as_of`` the moment to judge at.
    ``simulate``: objects are read. ``read_only``: no refs dump is requested."""

    now: datetime
    as_of: datetime
    simulate: bool = True
    read_only: bool = False


@dataclass(frozen=True)
class Inspection:
    """A survey with what follows for commits from its deletions, and the requests to the simulation about
    objects. ``warnings`` are for people."""

    survey: Survey
    consequences: Consequences | None
    stale: StaleBranches | None
    options: InspectionOptions
    request: ImpactRequest | None
    stale_request: ImpactRequest | None
    warnings: tuple[str, ...]

    @property
    def requests(self) -> list[ImpactRequest]:
        return [request for request in (self.request, self.stale_request) if request is not None]

    def with_answers(self, results: Mapping[str, ImpactResult | LakeplanError]) -> Survey:
        """The survey with what follows from each deletion, and with what only stale branches keep.
        ``results``: the simulation's answers to the requests, by key. Without one, objects are unknown."""
        answer = results.get(self.request.key) if self.request is not None else None
        done = follow(self.survey, self.consequences, answer, simulated=self.options.simulate)
        if self.stale is None:
            return done
        asked = self.stale_request
        answer = results.get(asked.key) if asked is not None else None
        only = self.stale.only_here(None if isinstance(answer, LakeplanError) else answer)
        return replace(
            done, outlooks={n: replace(o, only_here=only.get(n)) for n, o in done.outlooks.items()}
        )


def inspect(
    tree: DesiredTree,
    desired: DesiredRepository,
    readers: Callable[[str], Readers],
    state: StateReader,
    options: InspectionOptions,
) -> tuple[Survey, tuple[str, ...]]:
    """A survey of every branch of one repository, and warnings for people. Raises LakeplanError."""
    server = tree.servers[desired.server]
    desired = with_other_names(desired, tree, readers)
    reader = readers(desired.server)
    clock = clock_warning(reader.refs, desired.name, options.now)
    recalled = recall(state, reader, desired, server.endpoint_url, options.now)
    when = Moments(options.now, options.as_of, server.zone)
    result = survey(desired, reader, recalled, when, whole=True, read_only=options.read_only)
    return result, (*((clock,) if clock else ()), *recalled.notes)


def weigh(
    judged: Survey,
    warnings: tuple[str, ...],
    reader: LakeFSReader,
    zone: ZoneInfo,
    options: InspectionOptions,
    *,
    key: str,
) -> Inspection:
    """The survey with what follows from its deletions. The request to the simulation has ``key``; the one
    about stale branches has a separate key."""
    repository, name = judged.repository, judged.desired.name

    def request(key: str, what: Consequences | StaleBranches, detail: str) -> ImpactRequest:
        return ImpactRequest(
            key=key,
            storage_namespace=repository.storage_namespace,
            metadata=reader.metadata_reader(name),
            metaranges=what.metaranges(),
            transitions=what.transitions(),
            detail=detail,
        )

    what = what_follows(judged, options.as_of, zone)
    stale = asked = asked_stale = None
    if judged.graph is not None:
        going = [outlook.id for outlook in judged.expired]
        default = repository.default_branch
        stale = stale_branches(judged.graph, default, going, judged.rules, options.as_of, zone)
    if what is not None and what.any_follow and options.simulate:
        asked = request(key, what, SETTLED)
    if stale is not None and stale.any_alone and options.simulate:
        asked_stale = request(f"{judged.desired.key}#stale", stale, stale.names[0])
    return Inspection(judged, what, stale, options, asked, asked_stale, warnings)


def what_follows(judged: Survey, as_of: datetime, zone: ZoneInfo) -> Consequences | None:
    """Return how the deletions that are due now, or after a notice, affect commits. Returns None without such
    deletions, and without rules, because then nothing is collected."""
    if not judged.expired or judged.graph is None or judged.rules is None:
        return None
    tags = judged.refs.tags if judged.refs is not None else ()
    return consequences(judged.graph, [o.id for o in judged.expired], judged.rules, as_of, zone, tags)


def follow(
    state: Survey, what: Consequences | None, result: ImpactResult | LakeplanError | None, *, simulated: bool
) -> Survey:
    """The survey with what follows for commits (``what``) and for objects (``result``). ``simulated``: a
    simulation was run."""
    if what is None:
        return state
    unknown = ""
    if isinstance(result, LakeplanError):
        unknown, result = str(result), None
    elif result is None and what.any_follow:
        unknown = "the simulation returned no result" if simulated else "not simulated (--no-simulate)"
    elif result is None:
        result = ImpactResult({})
    follows = what.by_branch(result)
    outlooks = {n: replace(o, follows=follows.get(n)) for n, o in state.outlooks.items()}
    return replace(state, outlooks=outlooks, totals=what.totals(result), objects_unknown=unknown)


WORKERS = 4
"""Repositories that are inspected at the same time."""
EVEREST = "writes through an Everest mount are not visible until they are synced"


@dataclass(frozen=True)
class BranchesOptions(InspectionOptions):
    selection: Selection = field(default_factory=Selection)
    allowed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class BranchesPorts:
    """Access to servers and the state. ``readers`` gives a server's readers by name."""

    readers: Callable[[str], Readers]
    simulator: Simulator
    progress: Progress
    state: StateReader


@dataclass(frozen=True)
class RepositoryOutlook:
    """One repository of a branch plan. ``failure``: why it could not be inspected."""

    desired: DesiredRepository
    survey: Survey | None = None
    gates: tuple[GateResult, ...] = ()
    warnings: tuple[str, ...] = ()
    failure: Failure | None = None

    @property
    def key(self) -> str:
        return self.desired.key

    @property
    def outlooks(self) -> tuple[BranchOutlook, ...]:
        return () if self.survey is None else tuple(o for _, o in sorted(self.survey.outlooks.items()))


@dataclass(frozen=True)
class BranchPolicyPlan:
    now: datetime
    as_of: datetime
    repositories: tuple[RepositoryOutlook, ...]
    gates: tuple[GateResult, ...] = ()
    not_ours: tuple[str, ...] = ()
    """Repositories with policies that their server enforces itself."""

    @property
    def failed(self) -> tuple[RepositoryOutlook, ...]:
        return tuple(r for r in self.repositories if r.failure is not None)

    @property
    def refused(self) -> tuple[GateResult, ...]:
        gates = (*self.gates, *(g for r in self.repositories for g in r.gates))
        return tuple(g for g in gates if g.outcome is GateOutcome.REFUSED)

    @property
    def deletions(self) -> int:
        return sum(1 for r in self.repositories for o in r.outlooks if o.verdict.deletes)


def select(
    tree: DesiredTree, options: BranchesOptions, readers: Callable[[str], Readers]
) -> tuple[list[DesiredRepository], list[RepositoryOutlook], list[str]]:
    """The repositories whose policies lakeplan enforces, those of servers that do not answer, and those whose
    server enforces policies itself. Raises UsageError if no selected repository has policies."""
    wanted: list[DesiredRepository] = []
    broken: list[RepositoryOutlook] = []
    others: list[str] = []
    lost: dict[str, LakeplanError] = {}
    check_server(tree, options.selection.server)
    for name, server in tree.servers.items():
        if options.selection.server not in (None, name) or server.branch_lifecycle_engine == "none":
            continue
        named = tree.resolve(name, ())
        try:
            live = [r.id for r in readers(name).refs.list_repositories()]
            desired = tree.resolve(name, live)
        except LakeplanError as error:
            desired = [d for d in named if _has_policies(d) and options.selection.takes(d)]
            if desired and server.branch_lifecycle_engine == "lakeplan":
                broken += [RepositoryOutlook(d, failure=failure_of(error)) for d in desired]
            else:
                lost[name] = error
            continue
        ours = [d for d in desired if _has_policies(d) and options.selection.takes(d)]
        if server.branch_lifecycle_engine == "server":
            others += [d.key for d in ours]
        else:
            wanted += ours
    if not wanted and not broken and not others:
        if lost:  # the repositories that a glob matches there are unknown
            raise next(iter(lost.values()))
        raise UsageError(
            "no selected repository has branch_lifecycle policies",
            hint="Add branch_lifecycle policies to the tree, and set servers.<name>.branch_lifecycle.engine"
            " to lakeplan, or to server on lakeFS Enterprise.",
        )
    broken += [
        RepositoryOutlook(glob, failure=failure_of(error))
        for name, error in lost.items()
        if tree.servers[name].branch_lifecycle_engine == "lakeplan"
        for glob in lost_globs(tree, name, options.selection)
        if "branch_lifecycle" in glob.resolved
    ]
    return wanted, broken, others


def _has_policies(desired: DesiredRepository) -> bool:
    return isinstance(desired.branch_lifecycle, PoliciesDesired)


def plan_branches(tree: DesiredTree, options: BranchesOptions, ports: BranchesPorts) -> BranchPolicyPlan:
    """Inspects every selected repository, judges every branch, and simulates what follows. Writes nothing."""
    wanted, broken, others = select(tree, options, ports.readers)
    state = ListedOnce(ports.state)

    def inspected(desired: DesiredRepository) -> Inspection | RepositoryOutlook:
        try:
            surveyed, warnings = inspect(tree, desired, ports.readers, state, options)
        except LakeplanError as error:
            return RepositoryOutlook(desired, failure=failure_of(error))
        refs, zone = ports.readers(desired.server).refs, tree.servers[desired.server].zone
        return weigh(surveyed, warnings, refs, zone, options, key=desired.key)

    with ports.progress.task("inspecting branches", len(wanted)) as step:
        inspections = in_parallel(inspected, wanted, WORKERS, step)
    requests = [r for each in inspections if isinstance(each, Inspection) for r in each.requests]
    results = simulate(requests, ports.simulator, ports.progress)
    outlooks = [
        RepositoryOutlook(each.survey.desired, each.with_answers(results), warnings=each.warnings)
        if isinstance(each, Inspection)
        else each
        for each in inspections
    ]
    overrides = gates.GateOverrides(options.allowed, tuple(tree.overrides), options.now.date())
    judged = {r.key: repository_gates(r.desired, r.outlooks, overrides) for r in outlooks}
    named = gates.one_by_one(judged)
    gated = [replace(r, gates=named[r.key]) for r in outlooks]
    repositories = sorted((*gated, *broken), key=lambda r: r.key)
    return BranchPolicyPlan(
        options.now,
        options.as_of,
        tuple(repositories),
        whole_gates(tree, sum(map(_count, repositories)), overrides, [r.gates for r in gated if _count(r)]),
        tuple(sorted(others)),
    )


def _count(outlook: RepositoryOutlook) -> int:
    return len(outlook.survey.expired) if outlook.survey is not None else 0


# ---- gates
def repository_gates(
    desired: DesiredRepository, outlooks: Sequence[BranchOutlook], overrides: gates.GateOverrides
) -> tuple[GateResult, ...]:
    """The gates of one run on a repository: the number of deleted branches (``safety.max_deleted_branches``)
    and tags that may lose data (``safety.on_tag_loss``). ``outlooks`` include what follows."""
    rows = [branch_row(outlook) for outlook in outlooks]
    return overrides.decide_each(gates.gates_of_branch_run(desired.key, rows, desired.safety), desired)


def whole_gates(
    tree: DesiredTree,
    count: int,
    overrides: gates.GateOverrides,
    deleting: Sequence[Sequence[GateResult]],
) -> tuple[GateResult, ...]:
    """The gates of one run over all repositories. A gate counts as overridden if it is overridden in every
    repository with deletions. ``deleting`` are the gates of these repositories."""
    return tuple(
        overrides.decide_whole(gate, deleting)
        for gate in gates.limit_of_branch_run(WHOLE_PLAN, count, tree.safety)
    )
