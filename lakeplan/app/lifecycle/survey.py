"""Looking at one repository's branches: what is known of each, and what becomes of it. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Literal, TypeVar
from zoneinfo import ZoneInfo

from lakeplan.app.gather import read_all_refs
from lakeplan.app.lifecycle.holding import held_branches
from lakeplan.app.lifecycle.recall import Readers, Recalled
from lakeplan.core.holds import active_holds, hold_problem
from lakeplan.core.lifecycle import history, keepers
from lakeplan.core.lifecycle.consequences import safe_until
from lakeplan.core.lifecycle.ledger import (
    Ledger,
    assume_created,
    facts_of,
    note_staged,
    observe,
)
from lakeplan.core.lifecycle.staged import Look, look_at
from lakeplan.core.lifecycle.verdicts import default_branch_problems, judge_branch
from lakeplan.core.retention import CommitGraph
from lakeplan.errors import ConfigError, NotFound, RepositoryNotFound
from lakeplan.model.branches import BranchOutlook, BranchVerdict, Keep, LiveBranch, PullRequest, StagedData
from lakeplan.model.desired import DesiredRepository, PoliciesDesired
from lakeplan.model.lifecycle import BranchFacts, Evidence, Policy
from lakeplan.model.refs import Refs
from lakeplan.model.repository import Repository
from lakeplan.model.rules import GcRules
from lakeplan.ports.branches import BranchReader

T = TypeVar("T")
NOT_SEEN_BEFORE = "first seen now: its age counts from the next lifecycle run on"
RECREATED = "its first HEAD is not on its line any more (made anew, or reset): age counts from the last move"
WORKERS = 8


@dataclass(frozen=True)
class When:
    """``now`` is the moment of the look, ``as_of`` the one that is judged at, ``zone`` places day limits."""

    now: datetime
    as_of: datetime
    zone: ZoneInfo


@dataclass(frozen=True)
class Survey:
    """``ledger`` is the record after this look, to be stored by a run. ``refs`` and ``graph`` are None where
    nothing needed them. ``rules`` are the stored GC rules."""

    desired: DesiredRepository
    repository: Repository
    ledger: Ledger
    outlooks: Mapping[str, BranchOutlook]
    refs: Refs | None = None
    graph: CommitGraph | None = None
    rules: GcRules | None = None
    blind_to: tuple[str, ...] = ()
    hold_problems: tuple[str, ...] = ()
    """Holds that keep nothing for certain; known where something would be deleted."""

    @property
    def deleted(self) -> tuple[BranchOutlook, ...]:
        """What goes, by name."""
        return tuple(o for _, o in sorted(self.outlooks.items()) if o.verdict.goes)


def survey(
    desired: DesiredRepository,
    readers: Readers,
    recalled: Recalled,
    when: When,
    *,
    whole: bool,
    read_only: bool = False,
) -> Survey:
    """Every branch and its verdict. ``whole`` also reads tags and pull requests of branches that stay, for
    people to see; ``read_only`` asks for no refs dump. Raises ServerError, and ConfigError for policies that
    match the default branch."""
    return _Surveyor(desired, readers, recalled, when, whole=whole, read_only=read_only).survey()


class _Surveyor:
    def __init__(
        self,
        desired: DesiredRepository,
        readers: Readers,
        recalled: Recalled,
        when: When,
        *,
        whole: bool,
        read_only: bool,
    ) -> None:
        setting = desired.branch_lifecycle
        self._desired = desired
        self._policies: tuple[Policy, ...] = setting.policies if isinstance(setting, PoliciesDesired) else ()
        self._readers = readers
        self._recalled = recalled
        assume = desired.lifecycle.assume_created
        self._assume: Literal["never", "head_commit"] = assume if recalled.may_assume else "never"
        self._when = when
        self._whole = whole
        self._read_only = read_only
        self._repository = readers.refs.get_repository(desired.name)
        check_default_branch(desired, self._repository.default_branch)
        self._refs: Refs | None = None
        self._graph: CommitGraph | None = None
        self._head_dates: dict[str, int] = {}
        self._blind_to: tuple[str, ...] = ()
        self._hold_problems: tuple[str, ...] = ()

    def survey(self) -> Survey:
        name, settings, before = self._desired.name, self._desired.lifecycle, self._recalled.ledger
        live = {b.id: b for b in self._readers.branches.list_live(name)}
        ledger = observe(
            before, self._desired.key, self._repository.creation_date, live.values(), self._when.now
        )
        if settings.assume_created == "head_commit":
            self._read_refs()
            ledger = assume_created(ledger, self._head_dates)
        known = before.branches if before is not None else {}
        outlooks = {b.id: self._outlook(b, ledger, is_new=b.id not in known) for b in live.values()}
        going = [o.id for o in outlooks.values() if o.verdict.goes]
        if going or self._whole:
            self._read_refs()
        if going:
            outlooks |= {n: self._with_history(live[n], ledger, outlooks[n]) for n in going}
            going = [n for n in going if outlooks[n].verdict.goes]
        looks = self._staged(ledger, going)
        ledger = note_staged(ledger, {n: (look.fingerprint, look.written) for n, look in looks.items()})
        outlooks |= {n: self._with_staged(live[n], ledger, outlooks[n], look) for n, look in looks.items()}
        return self._settled(ledger, self._with_pulls(outlooks))

    def _settled(self, ledger: Ledger, outlooks: dict[str, BranchOutlook]) -> Survey:
        """Settings of the tree last: they keep what the policies let go."""
        settings = self._desired.lifecycle
        outlooks = self._held(outlooks)
        merged = self._merged() if settings.require_merged else None
        protected: tuple[str, ...] = ()
        if settings.keep_protected and any(o.verdict.goes for o in outlooks.values()):
            protected = tuple(self._readers.branches.protected_patterns(self._desired.name))
        for name, outlook in outlooks.items():
            if outlook.verdict.goes:
                is_merged = outlook.facts.commit_id in merged if merged is not None else None
                why = keepers.keeper_of(outlook, settings, merged=is_merged, protected=protected)
                outlooks[name] = keepers.keep(outlook, why) if why else outlook
        outlooks = keepers.spare_newest(outlooks, self._policies, settings.min_keep)
        rules = None
        if self._whole or any(o.verdict.goes for o in outlooks.values()):
            rules = self._readers.refs.get_gc_rules(self._desired.name)
        outlooks = {n: self._with_tags(o, rules) for n, o in outlooks.items()}
        return Survey(
            self._desired,
            self._repository,
            ledger,
            outlooks,
            self._refs,
            self._graph,
            rules,
            self._blind_to,
            self._hold_problems,
        )

    def _held(self, outlooks: dict[str, BranchOutlook]) -> dict[str, BranchOutlook]:
        """Legal holds keep a branch whatever else the tree says."""
        holds = active_holds(self._desired.holds, self._when.as_of)
        leaving = {name: o for name, o in outlooks.items() if o.verdict.goes}
        if not holds or not leaving or self._refs is None:
            return outlooks
        self._hold_problems = tuple(p for hold in holds if (p := hold_problem(hold, self._refs)))
        metadata = self._readers.refs.metadata_reader(self._desired.name)
        held = held_branches(holds, self._refs, leaving, metadata)
        return outlooks | {name: keepers.keep(leaving[name], Keep.HELD) for name in held}

    # ---- one branch
    def _outlook(self, branch: LiveBranch, ledger: Ledger, *, is_new: bool) -> BranchOutlook:
        facts = facts_of(branch, ledger, assume=self._assume)
        ageless = is_new and facts.created_evidence is Evidence.OBSERVED
        outlook = BranchOutlook(facts, self._judge(facts), notes=(NOT_SEEN_BEFORE,) if ageless else ())
        if outlook.verdict.goes and keepers.is_exempt(branch.id, self._desired.lifecycle):
            return keepers.keep(outlook, Keep.EXEMPT)
        return outlook

    def _judge(self, facts: BranchFacts) -> BranchVerdict:
        return judge_branch(
            facts,
            self._policies,
            self._when.as_of,
            default_branch=self._repository.default_branch,
            read_only=self._repository.read_only,
        )

    def _with_history(self, branch: LiveBranch, ledger: Ledger, outlook: BranchOutlook) -> BranchOutlook:
        """A branch that was made anew under its name does not have the age of the old one."""
        first = ledger.branches[branch.id].first_head
        if first == branch.commit_id:
            return outlook
        if self._graph is not None and history.is_continued(self._graph, first, branch.commit_id):
            return outlook
        facts = facts_of(branch, ledger, assume=self._assume, recreated=True)
        return replace(outlook, facts=facts, verdict=self._judge(facts), notes=(*outlook.notes, RECREATED))

    def _with_staged(
        self, branch: LiveBranch, ledger: Ledger, outlook: BranchOutlook, look: Look
    ) -> BranchOutlook:
        facts = facts_of(
            branch,
            ledger,
            assume=self._assume,
            recreated=RECREATED in outlook.notes,
            staged_at=look.staged_at,
            head_date=self._head_dates.get(branch.commit_id),
        )
        return replace(outlook, facts=facts, verdict=self._judge(facts), staged=look.data)

    def _staged(self, ledger: Ledger, names: Iterable[str]) -> dict[str, Look]:
        settings, reader, name = self._desired.lifecycle, self._readers.branches, self._desired.name

        now = int(self._when.now.timestamp())

        def look(branch_id: str) -> tuple[str, Look]:
            try:
                data = reader.staged(name, branch_id)
            except RepositoryNotFound:
                raise
            except NotFound:
                # Gone since it was listed; one of its name that comes back is a new one.
                return branch_id, Look(StagedData(), written=now)
            return branch_id, look_at(
                data,
                ledger.branches[branch_id].staged,
                now,
                # A branch that stays because of what is staged needs no times.
                None
                if settings.keep_with_uncommitted
                else lambda path: reader.written_at(name, branch_id, path),
            )

        return dict(in_parallel(look, names))

    def _with_pulls(self, outlooks: dict[str, BranchOutlook]) -> dict[str, BranchOutlook]:
        if not self._whole and not any(o.verdict.goes for o in outlooks.values()):
            return outlooks
        pulls = pulls_by_source(self._readers.branches, self._desired.name)
        return {n: replace(o, pulls=pulls.get(n, ())) for n, o in outlooks.items()}

    def _with_tags(self, outlook: BranchOutlook, rules: GcRules | None) -> BranchOutlook:
        tagged = replace(outlook, tags=self._tags.get(outlook.id, ()))
        return _safe(tagged, self._graph, rules, self._when.zone)

    # ---- the whole repository
    @cached_property
    def _tags(self) -> Mapping[str, tuple[str, ...]]:
        if self._refs is None:
            return {}
        return history.tags_on(self._refs, self._repository.default_branch)

    def _merged(self) -> set[str] | None:
        if self._refs is None:
            return None
        default = self._repository.default_branch
        heads = [b.commit_id for b in self._refs.branches if b.id == default]
        return history.reachable({c.id: c for c in self._refs.commits}, heads)

    def _read_refs(self) -> None:
        if self._refs is not None:
            return
        self._refs, self._blind_to = read_all_refs(
            self._readers.refs, self._desired.name, read_only=self._read_only
        )
        self._graph = CommitGraph.from_refs(self._refs)
        self._head_dates = {c.id: c.creation_us // 1_000_000 for c in self._refs.commits}


def under(found: Survey, rules: GcRules | None, zone: ZoneInfo) -> Survey:
    """The same look, with ``rules`` stored instead of those that were found."""
    outlooks = {n: _safe(o, found.graph, rules, zone) for n, o in found.outlooks.items()}
    return replace(found, outlooks=outlooks, rules=rules)


def _safe(
    outlook: BranchOutlook, graph: CommitGraph | None, rules: GcRules | None, zone: ZoneInfo
) -> BranchOutlook:
    """With the moment until which its HEAD is kept once it is deleted."""
    head = graph.index.get(outlook.facts.commit_id) if graph is not None and outlook.verdict.goes else None
    if graph is None or head is None:
        return replace(outlook, safe_until=None)
    return replace(outlook, safe_until=safe_until(graph.creation_us[head], rules, zone))


def check_default_branch(desired: DesiredRepository, default_branch: str) -> None:
    """Raises ConfigError that names the pattern, the default branch and the place in the tree."""
    setting = desired.branch_lifecycle
    if not isinstance(setting, PoliciesDesired):
        return
    problems = default_branch_problems(setting.policies, default_branch)
    if problems:
        raise ConfigError(
            "; ".join(problems),
            where=f"{desired.key} ({setting.source})",
            hint="the default branch is never deleted: write patterns that leave it out",
        )


def pulls_by_source(reader: BranchReader, repository: str) -> dict[str, tuple[PullRequest, ...]]:
    """Open pull requests by the branch that they come from."""
    found: dict[str, tuple[PullRequest, ...]] = {}
    for pull in reader.open_pulls(repository):
        found[pull.source_branch] = (*found.get(pull.source_branch, ()), pull)
    return found


def in_parallel(work: Callable[[str], T], items: Iterable[str], workers: int = WORKERS) -> list[T]:
    """In the order of ``items``."""
    with ThreadPoolExecutor(max_workers=workers) as pool:
        return list(pool.map(work, items))
