"""Reads what the comparison of one repository needs: its GC rules, policies and object rules.

With the engine ``server``, a server that does not support policies is an error, because lakeplan must not
start to delete branches when a license expires. With ``lakeplan``, no policies are read: ``branches run``
enforces those of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import cache, partial
from typing import TypeVar, assert_never

from lakeplan.branches.keepers import held_branches
from lakeplan.branches.pin_records import StoredRules, read_stored
from lakeplan.branches.verdicts import (
    EVEREST,
    check_default_branch,
    deleted_while_held,
    fates_of,
    first_deletion,
    held_deletions,
)
from lakeplan.errors import FeatureMissing
from lakeplan.lakefs.protocols import LakeFSReader, SettingsReader
from lakeplan.plan.pins import PinInspection
from lakeplan.retention.keep import active_holds
from lakeplan.retention.patterns import expand, matches
from lakeplan.review.differences import action_of, action_of_setting, diff_rules, diff_setting, is_reordering
from lakeplan.review.gates import first_names
from lakeplan.review.selection import RefsReader
from lakeplan.values.desired import (
    Cleared,
    DesiredRepository,
    GcDesired,
    ObjectRule,
    ObjectRulesDesired,
    PoliciesDesired,
    Policy,
    ServerConfig,
    SettingKind,
    Stored,
)
from lakeplan.values.pins import NAME_TAKEN, PinsPlan
from lakeplan.values.plan import BranchFate, Failure, Horizon, ObjectRulesPlan, PoliciesPlan, RepositoryPlan
from lakeplan.values.repository import Branch, Refs, Repository
from lakeplan.values.rules import Action, GcRules
from lakeplan.values.units import count_of

T = TypeVar("T")
Deletes = Callable[[datetime, bool], frozenset[str]]
"""Returns the branches that the stored or (True) the proposed policies have deleted by a moment."""

ENFORCED_BY_LAKEPLAN = "`lakeplan branches run` enforces its branch lifecycle policies (engine: lakeplan)"
NO_EFFECT = "only the order of the policies changes, with no effect on which branches are deleted"


def server_policies(desired: DesiredRepository, server: ServerConfig) -> bool:
    """Whether the tree manages policies that the server itself enforces."""
    return desired.branch_lifecycle is not None and server.branch_lifecycle_engine == "server"


def server_deletes_held(desired: DesiredRepository, server: ServerConfig, as_of: datetime) -> bool:
    """Whether the server's own job may delete branches that holds keep. Holds on tags do not matter."""
    held = any(hold.kind != "tag" for hold in active_holds(desired.holds, as_of))
    return held and server.branch_lifecycle_engine == "server"


def _deletes_nothing(moment: datetime, proposed: bool) -> frozenset[str]:
    return frozenset()


def read_setting(
    reader: SettingsReader, kind: SettingKind, repository: str
) -> Stored[Policy] | Stored[ObjectRule]:
    """Return the setting of one kind that a server stores. Raises FeatureMissing if the server does not
    support that kind."""
    if kind is SettingKind.BRANCH_LIFECYCLE:
        return reader.get_policies(repository)
    return reader.get_object_rules(repository)


def _ignored_keys(desired: DesiredRepository) -> list[str]:
    """A warning about keys of ``branch_lifecycle`` that only lakeplan's own runs observe."""
    block = desired.resolved.get("branch_lifecycle")
    keys = [key for key in block if key != "policies"] if isinstance(block, Mapping) else []
    if not keys:
        return []
    paths = tuple(f"/branch_lifecycle/{key}" for key in keys)
    place = next((f"{source}: " for path, source in desired.values.items() if path.startswith(paths)), "")
    names = ", ".join(f"branch_lifecycle.{key}" for key in keys)
    return [
        f"{place}{names} {'has' if len(keys) == 1 else 'have'} no effect with engine: server. The server"
        " deletes every branch that has expired under the policies"
    ]


def _stored(read: Callable[[str], T], repository: str, message: str, hint: str) -> T:
    """Return the stored setting. A server without the feature is an error with ``message`` and ``hint``."""
    try:
        return read(repository)
    except FeatureMissing as error:
        raise FeatureMissing(message, where=error.where, hint=hint) from None


@dataclass
class _Settings:
    """Policies and object rules of a repository in the tree and on its server. ``read_refs`` is called if
    holds need it. Methods raise ServerError, and ConfigError for policies that a server would refuse."""

    desired: DesiredRepository
    reader: LakeFSReader
    server: ServerConfig
    repository: Repository
    branches: Sequence[Branch]
    as_of: datetime
    read_refs: Callable[[], Refs]

    def __post_init__(self) -> None:
        self._unmanaged = cache(self._read_unmanaged)

    def policies(self) -> PoliciesPlan | None:
        """The plan of policies that the tree manages on the server."""
        if server_policies(self.desired, self.server):
            return self._compared_policies()
        if isinstance(self.desired.branch_lifecycle, PoliciesDesired):
            check_default_branch(self.desired, self.repository.default_branch)
        return None

    def _read_unmanaged(self) -> Sequence[Policy]:
        """The server's policies, which the tree does not manage, or none if it does not support policies."""
        try:
            return self.reader.get_policies(self.desired.name).items or ()
        except FeatureMissing:
            return ()

    def warnings(self) -> list[str]:
        if server_policies(self.desired, self.server):
            return _ignored_keys(self.desired)
        return [ENFORCED_BY_LAKEPLAN] if isinstance(self.desired.branch_lifecycle, PoliciesDesired) else []

    def deletes(self, policies: PoliciesPlan | None) -> Deletes:
        """Return the branches that the server's job deletes under its policies. ``policies`` None: the tree
        does not manage them."""
        if policies is not None and policies.action.writes:
            return policies.deleted
        if self.server.branch_lifecycle_engine != "server":
            return _deletes_nothing
        same = policies.before if policies is not None else self._unmanaged()
        return PoliciesPlan(Action.NONE, fates=self._fates(same, same)).deleted

    def held_deletions(self, plan: PoliciesPlan | None) -> tuple[str, ...]:
        """Sentences about branches that the server's policies, as the plan leaves them, would delete although
        a hold names them or needs them to reach what it keeps."""
        if not server_deletes_held(self.desired, self.server, self.as_of):
            return ()
        policies = (plan.after if plan is not None else self._unmanaged()) or ()
        branches, as_of = self.branches, self.as_of
        holds = active_holds(self.desired.holds, as_of)
        default, read_only = self.repository.default_branch, self.repository.read_only
        sentences = held_deletions(
            holds, branches, policies, as_of, default_branch=default, read_only=read_only
        )
        others = [hold for hold in holds if hold.kind in ("commit", "prefix")]
        if not others or not policies or read_only:
            return sentences
        needed: dict[str, str] = {}
        metadata_of = cache(self.reader.metadata_reader)
        for until in {hold.until for hold in others}:  # a hold needs no branch that goes after its end
            until_then = [hold for hold in others if hold.until == until]
            going = deleted_while_held(until_then[:1], branches, policies, as_of, default_branch=default)
            if going:
                kept = held_branches(until_then, self.read_refs(), going, metadata_of(self.desired.name))
                needed |= {name: going[name].verdict.policy or "" for name in kept}
        return (
            *sentences,
            *(
                f"{name} ({needed[name]}) is needed to reach data that a hold protects"
                for name in sorted(needed)
            ),
        )

    def _fates(
        self, stored: Sequence[Policy] | None, wanted: Sequence[Policy] | None
    ) -> tuple[BranchFate, ...]:
        default = self.repository.default_branch
        return fates_of(self.branches, stored, wanted, self.as_of, default_branch=default)

    def _compared_policies(self) -> PoliciesPlan:
        stored = _stored(
            self.reader.get_policies,
            self.desired.name,
            "the tree has branch_lifecycle.engine: server, but this server does not support branch policies",
            "Check the server's edition and license. To let lakeplan delete the branches, set"
            f" servers.{self.server.name}.branch_lifecycle.engine to lakeplan.",
        )
        default = self.repository.default_branch
        wanted: tuple[Policy, ...] | None = None
        if isinstance(self.desired.branch_lifecycle, PoliciesDesired):
            check_default_branch(self.desired, default)
            wanted = self.desired.branch_lifecycle.policies
        action = action_of_setting(stored.items, wanted)
        fates = self._fates(stored.items, wanted) if action.writes else ()
        reordered = is_reordering(stored.items, wanted)
        exempt = sum(1 for b in self.branches if b.creation_date is None and b.id != default)
        moments = {h.value: self.as_of + timedelta(days=h.days) for h in Horizon}
        return PoliciesPlan(
            action,
            server_etag=stored.etag,
            changes=diff_setting(stored.items, wanted),
            notes=self._notes(wanted, fates, reordered=reordered, exempt=exempt) if action.writes else (),
            before=stored.items,
            after=wanted,
            reordered=reordered,
            fates=fates,
            deletions={n: sum(1 for fate in fates if fate.newly(at)) for n, at in moments.items()},
            exempt_branches=exempt,
        )

    def _notes(
        self, wanted: Sequence[Policy] | None, fates: Sequence[BranchFate], *, reordered: bool, exempt: int
    ) -> tuple[str, ...]:
        """Notes for the reviewer of policies that are written."""
        if not wanted:
            return ()
        notes = [NO_EFFECT if reordered else self._first_deletion(fates)]
        if any(policy.max_idle_seconds is not None for policy in wanted):
            notes.append(EVEREST)
        if exempt:
            named = count_of(exempt, "branch has", "branches have")
            notes.append(f"{named} no recorded creation time, so the server never deletes such branches")
        return tuple(notes)

    def _first_deletion(self, fates: Sequence[BranchFate]) -> str:
        """A note on when the first deletion can happen, which needs the schedule of the server's job in the
        tree."""
        going = [fate for fate in fates if fate.goes_at is not None]
        if not going:
            return "no branch is deleted within 30 days, assuming no new writes"
        line = self.server.branch_lifecycle_schedule
        if line is None:
            return (
                "the server's job deletes these branches at its next run (hourly unless configured"
                " otherwise). To see the exact time, set"
                f" servers.{self.server.name}.branch_lifecycle.schedule to the job's cron expression"
            )
        first = first_deletion(going, self.as_of, line, self.server.zone)
        if first is None:
            return f"the server's job (schedule {line!r}) never runs"
        return (
            f"the server's job (schedule {line!r}, {self.server.time_zone}) can delete the first branch at"
            f" {first:%Y-%m-%dT%H:%MZ}"
        )

    def object_rules(self) -> ObjectRulesPlan | None:
        desired = self.desired.object_lifecycle
        if desired is None:
            return None
        stored = _stored(
            self.reader.get_object_rules,
            self.desired.name,
            "the tree has object_lifecycle rules, but this server does not support object rules",
            "Use lakeFS Enterprise 1.101 or later with a license, or remove object_lifecycle from the tree.",
        )
        wanted = desired.rules if isinstance(desired, ObjectRulesDesired) else None
        action = action_of_setting(stored.items, wanted)
        existing = {branch.id for branch in self.branches}
        unknown = sorted({b for rule in wanted or () for b in rule.branches} - existing)
        notes = []
        if action.writes and wanted:
            notes.append(
                "the server expires these objects in its own commits, which lakeplan does not simulate"
            )
        if unknown:
            notes.append(
                f"the tree has object rules for branches that do not exist: {', '.join(unknown[:5])}"
            )
        return ObjectRulesPlan(
            action,
            server_etag=stored.etag,
            changes=diff_setting(stored.items, wanted),
            notes=tuple(notes),
            before=stored.items,
            after=wanted,
        )


def idle_holds(
    desired: DesiredRepository, reader: LakeFSReader, branches: Iterable[str] | None, today: date
) -> list[str]:
    """A warning for each hold on a branch or tag that matches none. ``branches`` None: not read yet. Reads
    only what holds need. Raises ServerError."""
    held = [(n, hold) for n, hold in enumerate(desired.holds) if hold.holds_on(today)]
    kinds = {hold.kind for _, hold in held}
    names: dict[str, list[str]] = {}
    if "branch" in kinds:
        listed = (b.id for b in reader.list_branches(desired.name)) if branches is None else branches
        names["branch"] = list(listed)
    if "tag" in kinds:
        names["tag"] = [tag.id for tag in reader.list_tags(desired.name)]
    warnings = []
    for number, hold in held:
        if hold.kind in names and not any(matches(name, hold.name) for name in names[hold.kind]):
            source = desired.values.get(f"/holds/{number}/{hold.kind}")
            place = f"{source}: " if source else ""
            warnings.append(
                f"{place}the hold on {hold.kind} {hold.name!r} keeps nothing, because the repository has"
                f" no {hold.kind} of that name. Nothing in this repository is deleted until you correct it"
            )
    return warnings


@dataclass(frozen=True)
class Gathered:
    """A repository's live state compared with the tree, before any impact is known. ``stored`` has the rules
    with the entries of pins."""

    desired: DesiredRepository
    repository: Repository
    plan: RepositoryPlan
    stored: StoredRules
    deletes: Callable[[], Deletes]
    pins: PinInspection | None = None

    def as_it_is(self) -> Gathered:
        """The same repository with nothing to write."""
        return replace(self, plan=replace(_writing_only(self.plan, self.plan.before), unexpanded={}))

    def with_pins(self, pins: PinInspection | None, *, known: bool) -> Gathered:
        """The same repository with the plan of its pins."""
        if pins is None:
            return self
        plan = replace(self.plan, pins=pins.plan, warnings=(*self.plan.warnings, *_pin_warnings(pins.plan)))
        adopted = self.desired.by_glob and not known and plan.writes
        return replace(self, plan=_writable(replace(plan, adopted=adopted), self.repository), pins=pins)

    def refreshed(self, *, known: bool) -> Gathered:
        """The same repository with only those writes by which patterns add or raise days. There are none if
        it is not ``known`` or has no rules."""
        plan, gc = self.plan, self.desired.gc
        after = plan.before
        if known and after is not None and plan.after is not None and isinstance(gc, GcDesired):
            exact = {rule.name for rule in gc.branches if not rule.is_pattern}
            by_pattern = {b: d for b, d in plan.after.branches.items() if b not in exact}
            after = raised(after, by_pattern)
        plan = replace(_writing_only(plan, after), warnings=())
        return replace(self, plan=_writable(plan, self.repository))


def _writing_only(plan: RepositoryPlan, after: GcRules | None) -> RepositoryPlan:
    """The plan with these rules as its only write."""
    return replace(
        plan,
        after=after,
        action=action_of(plan.before, after),
        changes=diff_rules(plan.before, after),
        branch_lifecycle=None,
        object_lifecycle=None,
        adopted=False,
        failure=None,
    )


def raised(rules: GcRules, days: Mapping[str, int]) -> GcRules:
    """The rules with these days for branches that have fewer. No rule is lowered or removed."""
    more = {branch: number for branch, number in days.items() if number > rules.days_for(branch)}
    return GcRules(rules.default_retention_days, {**rules.branches, **more})


def gather(
    desired: DesiredRepository,
    reader: LakeFSReader,
    server: ServerConfig,
    *,
    as_of: datetime,
    known: bool,
    read_refs: RefsReader,
    expand_over: frozenset[str] | None = None,
) -> Gathered:
    """Reads and compares a repository. ``known``: an earlier apply recorded it. ``read_refs`` is called if
    holds need the history. ``expand_over`` limits pattern expansion to these branches, as an apply does with
    those of the plan file. Raises ServerError, and ConfigError for policies that a server would refuse."""
    repository = reader.get_repository(desired.name)
    stored = read_stored(reader, desired.name)
    before = stored.bare
    listed = list(reader.list_branches(desired.name)) if _needs_branches(desired, server, as_of) else None
    unheld = idle_holds(desired, reader, None if listed is None else [b.id for b in listed], as_of.date())
    listed = listed or []
    branches = {b.id: b.commit_id for b in listed}
    over = branches.keys() if expand_over is None else expand_over
    after, warnings = _proposed(desired, before, over, branches.keys(), known=known)
    later = _unexpanded(desired, over, branches.keys())
    warnings += _stored_oddities(before, branches.keys()) if desired.gc is not None else []
    settings = _Settings(desired, reader, server, repository, listed, as_of, lambda: read_refs()[0])
    policies, object_rules = settings.policies(), settings.object_rules()
    held = settings.held_deletions(policies)
    warnings += (*settings.warnings(), *unheld)
    plan = replace(
        _unread(desired, server.endpoint_url),
        action=action_of(before, after),
        before=before,
        after=after,
        changes=diff_rules(before, after),
        branches=dict(sorted(branches.items())),
        warnings=tuple(warnings),
        unexpanded=later,
        branch_lifecycle=policies,
        object_lifecycle=object_rules,
        creation_date=repository.creation_date,
        storage_namespace=repository.storage_namespace,
        cost_per_gb_month=server.cost_per_gb_month,
        held_deletions=held,
    )
    plan = replace(plan, adopted=desired.by_glob and not known and plan.writes)
    return Gathered(
        desired, repository, _writable(plan, repository), stored, partial(settings.deletes, policies)
    )


def _writable(plan: RepositoryPlan, repository: Repository) -> RepositoryPlan:
    if not (repository.read_only and plan.writes):
        return plan
    why = "the repository is read-only, so its rules cannot be changed"
    hint = "Remove it from the tree, or make it writable on the server."
    return replace(plan, failure=Failure(why, where=plan.key, hint=hint))


_NOT_OWN = "this branch is named like a pin but does not belong to this tree, so lakeplan never deletes it: "


def _pin_warnings(pins: PinsPlan) -> list[str]:
    blocked = [f"pins: {pins.blocked}"] if pins.blocked else []
    return [
        *blocked,
        *(("" if why.endswith(NAME_TAKEN) else _NOT_OWN) + why for why in pins.foreign),
    ]


def _needs_branches(desired: DesiredRepository, server: ServerConfig, as_of: datetime) -> bool:
    return (
        desired.gc is not None
        or desired.object_lifecycle is not None
        or server_policies(desired, server)
        or server_deletes_held(desired, server, as_of)
    )


def failed(desired: DesiredRepository, endpoint_url: str, failure: Failure) -> RepositoryPlan:
    """The plan of a repository that could not be read."""
    return replace(_unread(desired, endpoint_url), failure=failure)


def _unread(desired: DesiredRepository, endpoint_url: str) -> RepositoryPlan:
    return RepositoryPlan(
        server=desired.server,
        name=desired.name,
        entry=desired.entry,
        endpoint_url=endpoint_url,
        config_hash=desired.config_hash,
        action=Action.NONE,
        before=None,
        after=None,
        managed=desired.gc is not None,
        owner=desired.owner,
        source=str(desired.source) if desired.source else "",
    )


def _proposed(
    desired: DesiredRepository,
    before: GcRules | None,
    over: Iterable[str],
    live: Iterable[str],
    *,
    known: bool,
) -> tuple[GcRules | None, list[str]]:
    """The rules that the tree requires, and warnings for the reviewer."""
    match desired.gc:
        case None:
            return before, []
        case Cleared.CLEAR:
            return None, []
        case GcDesired() as gc:
            expansion = expand(gc, over)
            existing = set(live)
            warnings = list(expansion.warnings)
            warnings += [
                f"{rule.source}: rule for branch {rule.name!r}, which does not exist"
                for rule in gc.branches
                if not rule.is_pattern and rule.name not in existing
            ]
            if known:
                warnings += _not_yet_expanded(before, expansion.rules, gc)
            return expansion.rules, warnings
        case _:
            assert_never(desired.gc)


def _unexpanded(desired: DesiredRepository, planned: Iterable[str], live: Iterable[str]) -> dict[str, int]:
    """The days that patterns have for branches outside ``planned``. They are reported, not written."""
    if not isinstance(desired.gc, GcDesired):
        return {}
    known, branches = set(planned), set(live)
    rules = expand(desired.gc, branches).rules
    return {b: rules.branches[b] for b in sorted(branches - known) if b in rules.branches}


def _not_yet_expanded(before: GcRules | None, after: GcRules, gc: GcDesired) -> list[str]:
    """A warning about branches that a pattern matches and the stored rules lack, because they are newer than
    the last apply."""
    exact = {rule.name for rule in gc.branches if not rule.is_pattern}
    if before is None or not before.branches:
        return []
    new = [b for b in after.branches if b not in before.branches and b not in exact]
    if not new:
        return []
    return [
        f"this plan writes rules for branches that the stored rules do not include yet: {first_names(new)}"
    ]


def _stored_oddities(stored: GcRules | None, branches: Iterable[str]) -> list[str]:
    """Warnings about invalid values that the server stores, because it validates nothing (lakefs/api.md)."""
    if stored is None:
        return []
    existing = set(branches)
    oddities = []
    if stored.default_retention_days < 1:
        oddities.append(f"the server stores a default retention of {stored.default_retention_days} days")
    for branch, days in stored.branches.items():
        if days < 1:
            oddities.append(f"the server stores a retention of {days} days for branch {branch!r}")
        if branch not in existing:
            oddities.append(f"the server stores a rule for branch {branch!r}, which does not exist")
    return oddities
