"""Reading a repository's policies and object rules for a plan, and what changing them does.

Under the engine ``server`` a server without policies is an error: an expired licence must not turn lakeplan
into the deleter. Under ``lakeplan`` nothing is read here: ``branches run`` enforces the policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakeplan.branches.fates import (
    EVEREST,
    default_branch_problems,
    deleted_while_held,
    fates_of,
    first_deletion,
    held_deletions,
)
from lakeplan.branches.verdicts import held_branches
from lakeplan.errors import ConfigError, FeatureMissing
from lakeplan.lakefs.protocols import LakeFSReader, SettingsReader
from lakeplan.retention.keep import active_holds
from lakeplan.review.differences import action_of_setting, diff_setting, is_reordering
from lakeplan.values.desired import DesiredRepository, ObjectRulesDesired, PoliciesDesired, ServerConfig
from lakeplan.values.plan import Horizon
from lakeplan.values.plan_parts import BranchFate, ObjectRulesPlan, PoliciesPlan
from lakeplan.values.repository import Branch, Refs, Repository
from lakeplan.values.rules import Action
from lakeplan.values.settings import Policy

ENFORCED_BY_LAKEPLAN = "`lakeplan branches run` enforces its branch lifecycle policies (engine: lakeplan)"
NO_EFFECT = "only the order of the policies changes: no effect on which branches are deleted"


@dataclass(frozen=True)
class Settings:
    """The plans of what the tree manages on the server, and warnings about what it does not."""

    branch_lifecycle: PoliciesPlan | None = None
    object_lifecycle: ObjectRulesPlan | None = None
    warnings: tuple[str, ...] = ()
    held_deletions: tuple[str, ...] = ()
    """Held branches that the server's policies would delete while they are held, in words."""


def server_policies(desired: DesiredRepository, server: ServerConfig) -> bool:
    """Whether the tree manages policies that the server itself is to enforce."""
    return desired.branch_lifecycle is not None and server.branch_lifecycle_engine == "server"


def server_deletes_held(desired: DesiredRepository, server: ServerConfig, as_of: datetime) -> bool:
    """Whether the server's own job may delete branches that holds keep. What a tag names it leads to."""
    held = any(hold.kind != "tag" for hold in active_holds(desired.holds, as_of))
    return held and server.branch_lifecycle_engine == "server"


def gather_settings(
    desired: DesiredRepository,
    reader: LakeFSReader,
    server: ServerConfig,
    repository: Repository,
    branches: Sequence[Branch],
    as_of: datetime,
    *,
    read_refs: Callable[[], Refs],
) -> Settings:
    """What the tree asks of policies and object rules beside what the server stores. ``read_refs`` is called
    where holds need it. Raises ServerError subclasses; ConfigError for policies that a server would not
    take."""
    policies, warnings = None, []
    if server_policies(desired, server):
        policies = _policies(desired, reader, server, repository, branches, as_of)
        warnings = _unheeded(desired)
    elif isinstance(desired.branch_lifecycle, PoliciesDesired):
        _check_default_branch(desired.branch_lifecycle, desired, repository)
        warnings.append(ENFORCED_BY_LAKEPLAN)
    rules = _object_rules(desired, reader, branches)
    held: tuple[str, ...] = ()
    if server_deletes_held(desired, server, as_of):
        stored = policies.after if policies is not None else _stored_policies(desired, reader)
        held = _held_deletions(desired, reader, repository, branches, stored or (), as_of, read_refs)
    return Settings(policies, rules, tuple(warnings), held)


def _stored_policies(desired: DesiredRepository, reader: SettingsReader) -> Sequence[Policy]:
    """Those that the tree does not manage."""
    try:
        return reader.get_policies(desired.name).items or ()
    except FeatureMissing:
        return ()


def _held_deletions(
    desired: DesiredRepository,
    reader: LakeFSReader,
    repository: Repository,
    branches: Sequence[Branch],
    policies: Sequence[Policy],
    as_of: datetime,
    read_refs: Callable[[], Refs],
) -> tuple[str, ...]:
    """By the policies that the plan leaves behind: branches that holds name, and those that alone lead to
    what holds keep."""
    holds = active_holds(desired.holds, as_of)
    default = repository.default_branch
    found = held_deletions(
        holds, branches, policies, as_of, default_branch=default, read_only=repository.read_only
    )
    others = [hold for hold in holds if hold.kind in ("commit", "prefix")]
    if not others or not policies or repository.read_only:
        return found
    leaving = deleted_while_held(others, branches, policies, as_of, default_branch=default)
    if not leaving:
        return found
    needed = held_branches(others, read_refs(), leaving, reader.metadata_reader(desired.name))
    return (
        *found,
        *(f"{name} ({leaving[name].verdict.policy}) leads to what a hold keeps" for name in sorted(needed)),
    )


def _unheeded(desired: DesiredRepository) -> list[str]:
    """What the tree's ``branch_lifecycle`` asks for that only lakeplan's own runs heed."""
    block = desired.resolved.get("branch_lifecycle")
    keys = [key for key in block if key != "policies"] if isinstance(block, Mapping) else []
    if not keys:
        return []
    paths = tuple(f"/branch_lifecycle/{key}" for key in keys)
    place = next((f"{source}: " for path, source in desired.values.items() if path.startswith(paths)), "")
    names = ", ".join(f"branch_lifecycle.{key}" for key in keys)
    return [
        f"{place}{names} {'has' if len(keys) == 1 else 'have'} no effect with engine: server. The server"
        " deletes every branch that the policies let expire"
    ]


def _policies(
    desired: DesiredRepository,
    reader: SettingsReader,
    server: ServerConfig,
    repository: Repository,
    branches: Sequence[Branch],
    as_of: datetime,
) -> PoliciesPlan:
    try:
        stored = reader.get_policies(desired.name)
    except FeatureMissing as error:
        raise FeatureMissing(
            "the tree has branch_lifecycle.engine: server, but this server has no branch lifecycle",
            where=error.where,
            hint="Check the server's edition and licence. To let lakeplan delete the branches, set"
            f" servers.{server.name}.branch_lifecycle.engine to lakeplan.",
        ) from None
    wanted: tuple[Policy, ...] | None = None
    if isinstance(desired.branch_lifecycle, PoliciesDesired):
        _check_default_branch(desired.branch_lifecycle, desired, repository)
        wanted = desired.branch_lifecycle.policies
    action = action_of_setting(stored.items, wanted)
    fates = (
        fates_of(branches, stored.items, wanted, as_of, default_branch=repository.default_branch)
        if action.writes
        else ()
    )
    reordered = is_reordering(stored.items, wanted)
    exempt = sum(1 for b in branches if b.creation_date is None and b.id != repository.default_branch)
    return PoliciesPlan(
        action,
        server_etag=stored.etag,
        changes=diff_setting(stored.items, wanted),
        notes=_notes(action, wanted, fates, server, as_of, reordered=reordered, exempt=exempt),
        before=stored.items,
        after=wanted,
        reordered=reordered,
        fates=fates,
        deletions={
            h.value: sum(1 for fate in fates if fate.newly(as_of + timedelta(days=h.days))) for h in Horizon
        },
        exempt_branches=exempt,
    )


def _check_default_branch(
    policies: PoliciesDesired, desired: DesiredRepository, repository: Repository
) -> None:
    """A pattern that matches the default branch is an error that names both (lakefs/branch-lifecycle.md)."""
    found = default_branch_problems(policies.policies, repository.default_branch)
    if found:
        raise ConfigError(
            "; ".join(found),
            where=f"{desired.key} at {policies.source}",
            hint="Narrow the pattern. The default branch is never deleted, and a server refuses such"
            " policies.",
        )


def _notes(
    action: Action,
    wanted: Sequence[Policy] | None,
    fates: Sequence[BranchFate],
    server: ServerConfig,
    as_of: datetime,
    *,
    reordered: bool,
    exempt: int,
) -> tuple[str, ...]:
    """What a reviewer should know of policies that are pushed."""
    if not action.writes or not wanted:
        return ()
    notes = [NO_EFFECT] if reordered else []
    if not reordered:
        notes += [_first_deletion(fates, server, as_of)]
    if any(policy.max_idle_seconds is not None for policy in wanted):
        notes.append(EVEREST)
    if exempt:
        word = "branch has" if exempt == 1 else "branches have"
        notes.append(f"{exempt:,} {word} no recorded creation time: the server never deletes such branches")
    return tuple(notes)


def _first_deletion(fates: Sequence[BranchFate], server: ServerConfig, as_of: datetime) -> str:
    """When the first deletion can come, as far as the tree tells the schedule of the server's job."""
    going = [fate for fate in fates if fate.goes_at is not None]
    if not going:
        return "no branch is deleted within 30 days, assuming no new writes"
    line = server.branch_lifecycle_schedule
    if line is None:
        return (
            "the server's job deletes at its next run (hourly unless its configuration says otherwise); write"
            f" its cron line to servers.{server.name}.branch_lifecycle.schedule to see when"
        )
    first = first_deletion(going, as_of, line, server.zone)
    if first is None:
        return f"the server's job (schedule {line!r}) never runs"
    return (
        f"the first deletion can come at {first:%Y-%m-%dT%H:%MZ}, by the server's job (schedule {line!r},"
        f" {server.time_zone})"
    )


def _object_rules(
    desired: DesiredRepository, reader: SettingsReader, branches: Sequence[Branch]
) -> ObjectRulesPlan | None:
    if desired.object_lifecycle is None:
        return None
    try:
        stored = reader.get_object_rules(desired.name)
    except FeatureMissing as error:
        raise FeatureMissing(
            "the tree has object_lifecycle rules, but this server has no object lifecycle",
            where=error.where,
            hint="Use lakeFS Enterprise 1.101 or later with a licence, or remove object_lifecycle"
            " from the tree.",
        ) from None
    wanted = (
        desired.object_lifecycle.rules if isinstance(desired.object_lifecycle, ObjectRulesDesired) else None
    )
    action = action_of_setting(stored.items, wanted)
    existing = {branch.id for branch in branches}
    unknown = sorted({b for rule in wanted or () for b in rule.branches} - existing)
    notes = []
    if action.writes and wanted:
        notes.append(
            "the server expires these objects by commits of its own; these deletions are not simulated"
        )
    if unknown:
        notes.append(f"rules name branches that do not exist: {', '.join(unknown[:5])}")
    return ObjectRulesPlan(
        action,
        server_etag=stored.etag,
        changes=diff_setting(stored.items, wanted),
        notes=tuple(notes),
        before=stored.items,
        after=wanted,
    )
