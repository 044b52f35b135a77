"""Reads what a diff of one repository needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import assert_never

from lakeplan.branches.pin_records import StoredRules, read_stored
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.plan.gather_settings import gather_settings, server_deletes_held, server_policies
from lakeplan.plan.pins import PinInspection
from lakeplan.retention.patterns import expand, matches
from lakeplan.review.differences import action_of, diff_rules
from lakeplan.review.selection import RefsReader
from lakeplan.values.desired import Cleared, DesiredRepository, GcDesired, ServerConfig
from lakeplan.values.pins import PinsPlan
from lakeplan.values.plan import Failure, RepositoryPlan
from lakeplan.values.repository import Repository
from lakeplan.values.rules import Action, GcRules


def idle_holds(
    desired: DesiredRepository, reader: LakeFSReader, branches: Iterable[str] | None, today: date
) -> list[str]:
    """A warning for each hold on a branch or tag that matches none; ``branches`` None: not read yet. Asks
    only for what holds name. Raises ServerError."""
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
                f"{place}the hold on {hold.kind} {hold.name!r} keeps nothing: the repository has none of that"
                " name; correct it, or nothing is deleted here"
            )
    return warnings


@dataclass(frozen=True)
class Gathered:
    """A repository's live state beside what the tree requires, before any impact is known. ``stored`` has the
    rules with the entries of pins."""

    desired: DesiredRepository
    repository: Repository
    plan: RepositoryPlan
    stored: StoredRules
    pins: PinInspection | None = None

    def as_it_is(self) -> Gathered:
        """With nothing to write."""
        plan = self.plan
        plan = replace(
            plan,
            action=Action.NONE,
            after=plan.before,
            changes=(),
            adopted=False,
            unexpanded={},
            branch_lifecycle=None,
            object_lifecycle=None,
            failure=None,
        )
        return replace(self, plan=plan)

    def with_pins(self, pins: PinInspection | None, *, known: bool) -> Gathered:
        """With pins that have to be written or shown."""
        if pins is None:
            return self
        plan = replace(self.plan, pins=pins.plan, warnings=(*self.plan.warnings, *_pin_warnings(pins.plan)))
        adopted = self.desired.by_glob and not known and plan.writes
        return replace(self, plan=_writable(replace(plan, adopted=adopted), self.repository), pins=pins)

    def refreshed(self, *, known: bool) -> Gathered:
        """With nothing to write but days that patterns add or raise. Repositories that are not ``known``, or
        that have no rules, are left alone."""
        plan, gc = self.plan, self.desired.gc
        after = plan.before
        if known and after is not None and plan.after is not None and isinstance(gc, GcDesired):
            exact = {rule.name for rule in gc.branches if not rule.is_pattern}
            by_pattern = {b: d for b, d in plan.after.branches.items() if b not in exact}
            after = raised(after, by_pattern)
        plan = replace(
            plan,
            after=after,
            action=action_of(plan.before, after),
            changes=diff_rules(plan.before, after),
            warnings=(),
            branch_lifecycle=None,
            object_lifecycle=None,
            adopted=False,
            failure=None,
        )
        return replace(self, plan=_writable(plan, self.repository))


def raised(rules: GcRules, days: Mapping[str, int]) -> GcRules:
    """The rules with these days for branches that have fewer; nothing of them is lowered or removed."""
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
    """Reads what a diff needs. ``known``: an earlier apply recorded the repository. ``read_refs`` is called
    where holds need the history. ``expand_over`` limits pattern expansion to those branches (an apply expands
    over the branches of the plan file). Raises ServerError subclasses; ConfigError for policies that a server
    would not take."""
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
    settings = gather_settings(
        desired, reader, server, repository, listed, as_of, read_refs=lambda: read_refs()[0]
    )
    warnings += (*settings.warnings, *unheld)
    action = action_of(before, after)
    plan = RepositoryPlan(
        server=desired.server,
        name=desired.name,
        entry=desired.entry,
        endpoint_url=server.endpoint_url,
        config_hash=desired.config_hash,
        action=action,
        before=before,
        after=after,
        managed=desired.gc is not None,
        owner=desired.owner,
        source=str(desired.source) if desired.source else "",
        changes=diff_rules(before, after),
        branches=dict(sorted(branches.items())),
        warnings=tuple(warnings),
        unexpanded=later,
        branch_lifecycle=settings.branch_lifecycle,
        object_lifecycle=settings.object_lifecycle,
        creation_date=repository.creation_date,
        storage_namespace=repository.storage_namespace,
        cost_per_gb_month=server.cost_per_gb_month,
        held_deletions=settings.held_deletions,
    )
    plan = replace(plan, adopted=desired.by_glob and not known and plan.writes)
    return Gathered(desired, repository, _writable(plan, repository), stored)


def _writable(plan: RepositoryPlan, repository: Repository) -> RepositoryPlan:
    if not (repository.read_only and plan.writes):
        return plan
    why = "the repository is read-only: its rules cannot be changed"
    hint = "Remove it from the tree, or make it writable on the server."
    return replace(plan, failure=Failure(why, where=plan.key, hint=hint))


def _pin_warnings(pins: PinsPlan) -> list[str]:
    blocked = [f"pins: {pins.blocked}"] if pins.blocked else []
    return [*blocked, *(f"not a pin of this tree, and never deleted: {why}" for why in pins.foreign)]


def _needs_branches(desired: DesiredRepository, server: ServerConfig, as_of: datetime) -> bool:
    return (
        desired.gc is not None
        or desired.object_lifecycle is not None
        or server_policies(desired, server)
        or server_deletes_held(desired, server, as_of)
    )


def failed(desired: DesiredRepository, endpoint_url: str, failure: Failure) -> RepositoryPlan:
    """A repository that could not be read at all."""
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
        failure=failure,
    )


def _proposed(
    desired: DesiredRepository,
    before: GcRules | None,
    over: Iterable[str],
    live: Iterable[str],
    *,
    known: bool,
) -> tuple[GcRules | None, list[str]]:
    """The rules the tree requires, and what a reviewer should know of them."""
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
    """Branches outside ``planned`` that a pattern would give a rule: reported, not written."""
    if not isinstance(desired.gc, GcDesired):
        return {}
    known, every = set(planned), set(live)
    rules = expand(desired.gc, every).rules
    return {b: rules.branches[b] for b in sorted(every - known) if b in rules.branches}


def _not_yet_expanded(before: GcRules | None, after: GcRules, gc: GcDesired) -> list[str]:
    """Branches that a pattern matches and the stored rules do not name: they appeared since an apply."""
    exact = {rule.name for rule in gc.branches if not rule.is_pattern}
    if before is None or not before.branches:
        return []
    found = [b for b in after.branches if b not in before.branches and b not in exact]
    if not found:
        return []
    names = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    return [f"unexpanded since the last apply, and written by this one: {names}"]


def _stored_oddities(stored: GcRules | None, branches: Iterable[str]) -> list[str]:
    """Values the server stored but should not have (lakefs/api.md: nothing is validated)."""
    if stored is None:
        return []
    existing = set(branches)
    found = []
    if stored.default_retention_days < 1:
        found.append(f"the server stores {stored.default_retention_days} default days")
    for branch, days in stored.branches.items():
        if days < 1:
            found.append(f"the server stores {days} days for branch {branch!r}")
        if branch not in existing:
            found.append(f"the server stores a rule for branch {branch!r}, which does not exist")
    return found
