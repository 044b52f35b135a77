"""A branch plan: every branch with its verdict, what follows, and the gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from lakeplan.branches.consequences import Consequences, consequences
from lakeplan.branches.recall import Readers, recall
from lakeplan.branches.survey import Survey, When, survey
from lakeplan.branches.verdicts import StaleBranches, stale_branches, with_other_names
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.review import gates
from lakeplan.review.selection import Selection, failure_of
from lakeplan.simulation.requests import ImpactRequest, Simulator
from lakeplan.state.clocks import clock_warning
from lakeplan.stores.protocols import StateReader
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.branches import SETTLED, BranchOutlook, MomentTotal
from lakeplan.values.desired import DesiredRepository, PoliciesDesired
from lakeplan.values.gates import WHOLE_PLAN
from lakeplan.values.plan import Failure, GateOutcome, GateResult
from lakeplan.values.plan_parts import row_of
from lakeplan.values.progress import Progress
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import ImpactResult


@dataclass(frozen=True)
class Followed:
    """``survey`` with what follows beside each branch that is deleted; ``objects_unknown`` says why objects
    are not told."""

    survey: Survey
    totals: Mapping[str, MomentTotal] = field(default_factory=dict)
    objects_unknown: str = ""


def what_follows(
    found: Survey, rules: GcRules | None, as_of: datetime, zone: ZoneInfo
) -> Consequences | None:
    """The commits' part, of branches that are deleted at once or after a notice. None when there is none, or
    without rules: nothing is collected then."""
    if not found.expired or found.graph is None or rules is None:
        return None
    tags = found.refs.tags if found.refs is not None else ()
    return consequences(found.graph, [o.id for o in found.expired], rules, as_of, zone, tags)


def request_of(key: str, found: Survey, what: Consequences, reader: LakeFSReader) -> ImpactRequest:
    """The objects' part, for the simulation to answer under ``key``."""
    return ImpactRequest(
        key=key,
        storage_namespace=found.repository.storage_namespace,
        metadata=reader.metadata_reader(found.desired.name),
        metaranges=what.metaranges(),
        transitions=what.transitions(),
        detail=SETTLED,
    )


def follow(
    found: Survey, what: Consequences | None, result: ImpactResult | LakeplanError | None, *, simulated: bool
) -> Followed:
    """Both parts together. ``simulated``: whether the simulation was asked at all."""
    if what is None:
        return Followed(found)
    unknown = ""
    if isinstance(result, LakeplanError):
        unknown, result = str(result), None
    elif result is None and what.any_follow:
        unknown = "the simulation gave no answer" if simulated else "not simulated (--no-simulate)"
    elif result is None:
        result = ImpactResult({})
    follows = what.by_branch(result)
    outlooks = {n: replace(o, follows=follows.get(n)) for n, o in found.outlooks.items()}
    return Followed(replace(found, outlooks=outlooks), what.totals(result), unknown)


def find_stale(found: Survey, rules: GcRules | None, as_of: datetime, zone: ZoneInfo) -> StaleBranches | None:
    """Under ``rules``. None when there is none, or nothing read the history."""
    if found.graph is None:
        return None
    going = [outlook.id for outlook in found.expired]
    return stale_branches(found.graph, found.repository.default_branch, going, rules, as_of, zone)


def stale_request(
    key: str, found: Survey, stale: StaleBranches, reader: LakeFSReader
) -> ImpactRequest | None:
    """For the simulation to answer under ``key``; None where no object needs to be read."""
    if not stale.any_alone:
        return None
    return ImpactRequest(
        key=key,
        storage_namespace=found.repository.storage_namespace,
        metadata=reader.metadata_reader(found.desired.name),
        metaranges=stale.metaranges(),
        transitions=stale.transitions(),
        detail=stale.names[0],
    )


def with_stale(
    found: Survey, stale: StaleBranches | None, answer: ImpactResult | LakeplanError | None
) -> Survey:
    """With ``only_here`` beside each stale branch; its objects are unknown without an answer."""
    if stale is None:
        return found
    only = stale.only_here(None if isinstance(answer, LakeplanError) else answer)
    outlooks = {name: replace(o, only_here=only.get(name)) for name, o in found.outlooks.items()}
    return replace(found, outlooks=outlooks)


EVEREST = "writes through an Everest mount count only once they are synced"


@dataclass(frozen=True)
class LifecycleOptions:
    """``now`` is the moment of the look and ``as_of`` the one to judge at. ``simulate``: whether objects are
    read."""

    now: datetime
    as_of: datetime
    selection: Selection = field(default_factory=Selection)
    simulate: bool = True
    read_only: bool = False
    allowed: frozenset[str] = frozenset()
    workers: int = 4


@dataclass(frozen=True)
class LifecyclePorts:
    """``readers`` gives a server's readers by name."""

    readers: Callable[[str], Readers]
    simulator: Simulator
    progress: Progress
    state: StateReader


@dataclass(frozen=True)
class RepositoryOutlook:
    """One repository of a branch plan; ``failure`` when it could not be inspected."""

    desired: DesiredRepository
    survey: Survey | None = None
    totals: Mapping[str, MomentTotal] = field(default_factory=dict)
    objects_unknown: str = ""
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
class LifecyclePlan:
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
        every = (*self.gates, *(g for r in self.repositories for g in r.gates))
        return tuple(g for g in every if g.outcome is GateOutcome.REFUSED)

    @property
    def deletions(self) -> int:
        return sum(1 for r in self.repositories for o in r.outlooks if o.verdict.goes)


def select(
    tree: DesiredTree, options: LifecycleOptions, readers: Callable[[str], Readers]
) -> tuple[list[DesiredRepository], list[RepositoryOutlook], list[str]]:
    """Repositories with policies for lakeplan to enforce; those of servers that do not answer; and those
    whose server has its own job. Raises UsageError when there is no policy at all."""
    wanted: list[DesiredRepository] = []
    broken: list[RepositoryOutlook] = []
    others: list[str] = []
    lost: list[LakeplanError] = []
    if options.selection.server is not None and options.selection.server not in tree.servers:
        raise UsageError(
            f"the tree has no server {options.selection.server!r}",
            hint=f"Use one of {', '.join(tree.servers)}.",
        )
    for name, server in tree.servers.items():
        if options.selection.server not in (None, name) or server.branch_lifecycle_engine == "none":
            continue
        named = tree.resolve(name, ())
        try:
            live = [r.id for r in readers(name).refs.list_repositories()]
            found = tree.resolve(name, live)
        except LakeplanError as error:
            lost.append(error)
            found = [d for d in named if _has_policies(d) and options.selection.takes(d)]
            if server.branch_lifecycle_engine == "lakeplan":
                broken += [RepositoryOutlook(d, failure=failure_of(error)) for d in found]
            continue
        ours = [d for d in found if _has_policies(d) and options.selection.takes(d)]
        if server.branch_lifecycle_engine == "server":
            others += [d.key for d in ours]
        else:
            wanted += ours
    if not wanted and not broken and not others:
        if lost:  # what a glob names there is not known
            raise lost[0]
        raise UsageError(
            "no selected repository has branch_lifecycle policies",
            hint="Add policies to the tree, and set servers.<name>.branch_lifecycle.engine.",
        )
    return wanted, broken, others


def _has_policies(desired: DesiredRepository) -> bool:
    return isinstance(desired.branch_lifecycle, PoliciesDesired)


def plan_lifecycle(tree: DesiredTree, options: LifecycleOptions, ports: LifecyclePorts) -> LifecyclePlan:
    """Looks at every selected repository, judges every branch, and simulates what follows. Writes nothing."""
    wanted, broken, others = select(tree, options, ports.readers)

    def look(desired: DesiredRepository) -> RepositoryOutlook:
        zone = ZoneInfo(tree.servers[desired.server].time_zone)
        try:
            desired = with_other_names(desired, tree, ports.readers)
            readers = ports.readers(desired.server)
            warning = clock_warning(readers.refs, desired.name, options.now)
            server = tree.servers[desired.server]
            recalled = recall(ports.state, readers, desired, server.endpoint_url, options.now)
            found = survey(
                desired,
                readers,
                recalled,
                When(options.now, options.as_of, zone),
                whole=True,
                read_only=options.read_only,
            )
        except LakeplanError as error:
            return RepositoryOutlook(desired, failure=failure_of(error))
        finally:
            step()
        warnings = (*((warning,) if warning else ()), *recalled.notes)
        return RepositoryOutlook(desired, found, warnings=warnings)

    with (
        ports.progress.task("looking at branches", len(wanted)) as step,
        ThreadPoolExecutor(max_workers=max(1, options.workers)) as pool,
    ):
        looked = list(pool.map(look, wanted))
    followed = _follow(tree, looked, options, ports)
    overrides = gates.GateOverrides(options.allowed, tuple(tree.overrides), options.now.date())
    judged = {r.key: repository_gates(r.desired, r.outlooks, overrides) for r in followed}
    named = gates.one_by_one(judged)
    gated = [replace(r, gates=named[r.key]) for r in followed]
    repositories = sorted((*gated, *broken), key=lambda r: r.key)
    return LifecyclePlan(
        options.now,
        options.as_of,
        tuple(repositories),
        whole_gates(tree, sum(map(_count, repositories)), overrides, gated),
        tuple(sorted(others)),
    )


def _count(outlook: RepositoryOutlook) -> int:
    return len(outlook.survey.expired) if outlook.survey is not None else 0


# ---- what follows
def _follow(
    tree: DesiredTree, looked: list[RepositoryOutlook], options: LifecycleOptions, ports: LifecyclePorts
) -> list[RepositoryOutlook]:
    judged: dict[str, Consequences] = {}
    stale: dict[str, StaleBranches] = {}
    requests: list[ImpactRequest] = []
    for repository in looked:
        found = repository.survey
        if found is None:
            continue
        zone = ZoneInfo(tree.servers[repository.desired.server].time_zone)
        reader = ports.readers(repository.desired.server).refs
        idle = find_stale(found, found.rules, options.as_of, zone)
        if idle is not None:
            stale[repository.key] = idle
            asked = stale_request(_stale_key(repository.key), found, idle, reader)
            requests += [asked] if asked is not None and options.simulate else []
        what = what_follows(found, found.rules, options.as_of, zone)
        if what is None:
            continue
        judged[repository.key] = what
        if what.any_follow and options.simulate:
            requests.append(request_of(repository.key, found, what, reader))
    results: Mapping[str, ImpactResult | LakeplanError] = {}
    if requests:
        repositories = len({request.key.partition("#")[0] for request in requests})
        with ports.progress.task(f"simulating {repositories} repositories", None):
            results = ports.simulator.impact(requests)
    folded = [_fold(r, judged.get(r.key), results.get(r.key), options) for r in looked]
    return [_with_stale(r, stale.get(r.key), results.get(_stale_key(r.key))) for r in folded]


def _stale_key(key: str) -> str:
    """A key of its own: what follows is asked under the repository's."""
    return f"{key}#stale"


def _with_stale(
    repository: RepositoryOutlook, stale: StaleBranches | None, answer: ImpactResult | LakeplanError | None
) -> RepositoryOutlook:
    if repository.survey is None:
        return repository
    return replace(repository, survey=with_stale(repository.survey, stale, answer))


def _fold(
    repository: RepositoryOutlook,
    what: Consequences | None,
    result: ImpactResult | LakeplanError | None,
    options: LifecycleOptions,
) -> RepositoryOutlook:
    if repository.survey is None:
        return repository
    done = follow(repository.survey, what, result, simulated=options.simulate)
    return replace(repository, survey=done.survey, totals=done.totals, objects_unknown=done.objects_unknown)


# ---- gates
def repository_gates(
    desired: DesiredRepository, outlooks: Sequence[BranchOutlook], overrides: gates.GateOverrides
) -> tuple[GateResult, ...]:
    """How many branches one run may delete in a repository (``safety.max_deleted_branches``), and tags that
    may lose data by it (``safety.on_tag_loss``). ``outlooks`` have what follows beside them."""
    rows = [row_of(outlook) for outlook in outlooks]
    return overrides.decide_each(gates.gates_of_branch_run(desired.key, rows, desired.safety), desired)


def whole_gates(
    tree: DesiredTree, count: int, overrides: gates.GateOverrides, repositories: list[RepositoryOutlook]
) -> tuple[GateResult, ...]:
    """The same over all repositories; overridden when it is in every repository that deletes."""
    deleting = [r.gates for r in repositories if _count(r)]
    return tuple(
        overrides.decide_whole(gate, deleting)
        for gate in gates.limit_of_branch_run(WHOLE_PLAN, count, tree.safety)
    )
