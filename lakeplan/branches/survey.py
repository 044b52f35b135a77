"""Surveys the branches of one repository: the facts about each, and the verdict on it. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Literal
from zoneinfo import ZoneInfo

from lakeplan.branches import keepers
from lakeplan.branches.consequences import safe_until
from lakeplan.branches.keepers import UncommittedWrites, held_branches, uncommitted_writes
from lakeplan.branches.ledger import Ledger, assume_created, facts_of, note_staged, observe
from lakeplan.branches.notices import Exemption, Spared, after_notice
from lakeplan.branches.pins import without_pin_branches
from lakeplan.branches.recall import Readers, Recalled
from lakeplan.branches.verdicts import check_default_branch, judge_branch, takes
from lakeplan.errors import LakeplanError, NotFound, RepositoryNotFound
from lakeplan.lakefs.protocols import BranchReader
from lakeplan.retention import keep
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import active_holds, hold_problem
from lakeplan.review.claims import check_claims
from lakeplan.review.selection import read_all_refs
from lakeplan.state.clocks import is_recent
from lakeplan.values.branches import (
    AWAITS_NOTICE,
    NEVER_OBSERVED,
    BranchOutlook,
    BranchVerdict,
    Keep,
    LiveBranch,
    MomentTotal,
    PullRequest,
    StagedData,
)
from lakeplan.values.desired import BranchFacts, DesiredRepository, Evidence
from lakeplan.values.pins import is_pin_name
from lakeplan.values.progress import in_parallel
from lakeplan.values.repository import Refs, Repository
from lakeplan.values.rules import GcRules

RECREATED = (
    "its history no longer contains its first recorded HEAD (it was recreated or reset), so its age is"
    " counted from the last recorded move of its HEAD"
)
WORKERS = 8


@dataclass(frozen=True)
class Moments:
    """The moments of a survey. ``now`` is the moment of the inspection, ``as_of`` the moment to judge at.
    Days end in ``zone``."""

    now: datetime
    as_of: datetime
    zone: ZoneInfo


@dataclass(frozen=True)
class Survey:
    """Every branch of a repository. ``ledger`` is the one after this inspection, for a run to store. ``refs``
    and ``graph`` are None if they were not needed. ``rules`` are the stored GC rules."""

    desired: DesiredRepository
    repository: Repository
    ledger: Ledger
    outlooks: Mapping[str, BranchOutlook]
    refs: Refs | None = None
    graph: CommitGraph | None = None
    rules: GcRules | None = None
    blind_to: tuple[str, ...] = ()
    hold_problems: tuple[str, ...] = ()
    """Holds that certainly keep nothing; only determined if something would be deleted."""
    spared: Spared = field(default_factory=Spared)
    totals: Mapping[str, MomentTotal] = field(default_factory=dict)
    """What follows from all deletions together, by moment. Empty if it was not determined."""
    objects_unknown: str = ""
    """Why the objects of ``totals`` are not known."""

    @property
    def to_announce(self) -> tuple[BranchOutlook, ...]:
        """The branches that would be deleted if their notice had been given, by name."""
        return tuple(o for _, o in sorted(self.outlooks.items()) if o.verdict.kept_by is Keep.NOTICE_DUE)

    @property
    def expired(self) -> tuple[BranchOutlook, ...]:
        """The branches that are deleted, at once or after their notice, by name."""
        outlooks = (o for _, o in sorted(self.outlooks.items()))
        return tuple(o for o in outlooks if o.verdict.deletes or o.verdict.kept_by in AWAITS_NOTICE)

    @property
    def deleted(self) -> tuple[BranchOutlook, ...]:
        """The branches that are deleted at once, by name."""
        return tuple(o for _, o in sorted(self.outlooks.items()) if o.verdict.deletes)


def survey(
    desired: DesiredRepository,
    readers: Readers,
    recalled: Recalled,
    when: Moments,
    *,
    whole: bool,
    read_only: bool = False,
) -> Survey:
    """Every branch and the verdict on it. ``whole`` also reads tags and pull requests of branches that are
    kept, for people. ``read_only`` requests no refs dump. Raises ServerError, and ConfigError for policies
    that match the default branch."""
    return _Surveyor(desired, readers, recalled, when, whole, read_only).survey()


@dataclass
class _Surveyor:
    _desired: DesiredRepository
    _readers: Readers
    _recalled: Recalled
    _when: Moments
    _whole: bool
    _read_only: bool

    def __post_init__(self) -> None:
        assume = self._desired.branch_settings.assume_created
        self._assume: Literal["never", "head_commit"] = assume if self._recalled.may_assume else "never"
        self._repository = self._readers.refs.get_repository(self._desired.name)
        check_default_branch(self._desired, self._repository.default_branch)
        self._refs: Refs | None = None
        self._graph: CommitGraph | None = None
        self._head_dates: dict[str, int] = {}
        self._blind_to: tuple[str, ...] = ()
        self._hold_problems: tuple[str, ...] = ()

    def survey(self) -> Survey:
        name, settings, before = self._desired.name, self._desired.branch_settings, self._recalled.ledger
        # Policies do not apply to pins, even to one that was moved or that a server's restore made visible.
        live = {b.id: b for b in self._readers.branches.list_live(name) if not is_pin_name(b.id)}
        ledger = observe(
            before, self._desired.key, self._repository.creation_date, live.values(), self._when.now
        )
        if settings.assume_created == "head_commit":
            self._read_refs()
            ledger = assume_created(ledger, self._head_dates)
        known = before.branches if before is not None else {}
        outlooks = {b.id: self._outlook(b, ledger, is_new=b.id not in known) for b in live.values()}
        going = [o.id for o in outlooks.values() if o.verdict.deletes]
        if going or self._whole:
            self._read_refs()
        if going:
            outlooks |= {n: self._with_history(live[n], ledger, outlooks[n]) for n in going}
            going = [n for n in going if outlooks[n].verdict.deletes]
        writes = self._staged(ledger, going)
        ledger = note_staged(ledger, {n: (each.data.fingerprint, each.written) for n, each in writes.items()})
        outlooks |= {n: self._with_staged(live[n], ledger, outlooks[n], each) for n, each in writes.items()}
        return self._settled(ledger, self._with_pulls(outlooks))

    def _settled(self, ledger: Ledger, outlooks: dict[str, BranchOutlook]) -> Survey:
        """The survey after all that can keep a branch: holds, settings of the tree, and notices."""
        settings = self._desired.branch_settings
        outlooks = self._held(outlooks)
        merged = self._merged() if settings.require_merged else None
        protected: tuple[str, ...] = ()
        if settings.keep_protected and any(o.verdict.deletes for o in outlooks.values()):
            protected = tuple(self._readers.branches.protected_patterns(self._desired.name))
        for name, outlook in outlooks.items():
            if outlook.verdict.deletes:
                is_merged = outlook.facts.commit_id in merged if merged is not None else None
                why = keepers.keeper_of(outlook, settings, merged=is_merged, protected=protected)
                outlooks[name] = keepers.keep(outlook, why) if why else outlook
        outlooks = keepers.spare_newest(outlooks, self._desired.policies, settings.min_keep)
        # Last, because a notice is given only for branches that nothing else keeps.
        outlooks = {n: self._after_notice(o) for n, o in outlooks.items()}
        rules = None
        if self._whole or any(o.verdict.deletes for o in outlooks.values()):
            rules = self._readers.refs.get_gc_rules(self._desired.name)
        outlooks = {n: replace(o, tags=self._tags.get(n, ())) for n, o in outlooks.items()}
        outlooks = _with_safety(outlooks, self._graph, rules, self._when.zone)
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
            self._recalled.spared,
        )

    def _after_notice(self, outlook: BranchOutlook) -> BranchOutlook:
        if not outlook.verdict.deletes:
            return outlook
        spared, name = self._recalled.spared, outlook.id
        period = timedelta(seconds=self._desired.branch_settings.notice_period_seconds)
        notice, exemption = spared.notices.get(name), spared.exemptions.get(name)
        channel, as_of = self._desired.notice_channel, self._when.as_of
        return replace(outlook, verdict=after_notice(outlook, notice, exemption, period, as_of, channel))

    def _held(self, outlooks: dict[str, BranchOutlook]) -> dict[str, BranchOutlook]:
        """The outlooks with holds applied: they keep a branch whatever else the tree says."""
        holds = active_holds(self._desired.holds, self._when.as_of)
        leaving = {name: o for name, o in outlooks.items() if o.verdict.deletes}
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
        outlook = BranchOutlook(facts, self._judge(facts), notes=(NEVER_OBSERVED,) if ageless else ())
        if outlook.verdict.deletes and keepers.is_exempt(branch.id, self._desired.branch_settings):
            return keepers.keep(outlook, Keep.EXEMPT)
        exemption = self._recalled.spared.exemptions.get(branch.id)
        if exemption is not None and exemption.holds(self._when.as_of):
            return _exempted(outlook, exemption)
        return outlook

    def _judge(self, facts: BranchFacts) -> BranchVerdict:
        return judge_branch(
            facts,
            self._desired.policies,
            self._when.as_of,
            default_branch=self._repository.default_branch,
            read_only=self._repository.read_only,
        )

    def _with_history(self, branch: LiveBranch, ledger: Ledger, outlook: BranchOutlook) -> BranchOutlook:
        """The outlook after a check of the branch's history. A branch that was created again under the same
        name does not have the age of the old one."""
        first = ledger.branches[branch.id].first_head
        if first == branch.commit_id:
            return outlook
        if self._graph is not None and keep.is_continued(self._graph, first, branch.commit_id):
            return outlook
        facts = facts_of(branch, ledger, assume=self._assume, recreated=True)
        return replace(outlook, facts=facts, verdict=self._judge(facts), notes=(*outlook.notes, RECREATED))

    def _with_staged(
        self, branch: LiveBranch, ledger: Ledger, outlook: BranchOutlook, writes: UncommittedWrites
    ) -> BranchOutlook:
        facts = facts_of(
            branch,
            ledger,
            assume=self._assume,
            recreated=RECREATED in outlook.notes,
            staged_at=writes.staged_at,
            head_date=self._head_dates.get(branch.commit_id),
        )
        return replace(outlook, facts=facts, verdict=self._judge(facts), staged=writes.data)

    def _staged(self, ledger: Ledger, names: Iterable[str]) -> dict[str, UncommittedWrites]:
        settings, reader, name = self._desired.branch_settings, self._readers.branches, self._desired.name

        now = int(self._when.now.timestamp())

        def read(branch_id: str) -> tuple[str, UncommittedWrites]:
            try:
                data = reader.staged(name, branch_id)
            except RepositoryNotFound:
                raise
            except NotFound:
                # It was deleted since it was listed. If a branch of its name appears, it is new.
                return branch_id, UncommittedWrites(StagedData(), written=now)
            return branch_id, uncommitted_writes(
                data,
                ledger.branches[branch_id].staged,
                now,
                # No times are needed if any uncommitted change keeps the branch.
                None
                if settings.keep_with_uncommitted
                else lambda path: reader.written_at(name, branch_id, path),
            )

        return dict(in_parallel(read, names, WORKERS))

    def _with_pulls(self, outlooks: dict[str, BranchOutlook]) -> dict[str, BranchOutlook]:
        if not self._whole and not any(o.verdict.deletes for o in outlooks.values()):
            return outlooks
        pulls = pulls_by_branch(self._readers.branches, self._desired.name)
        # Most pull requests lead into branches that no policy deletes: nobody needs these there.
        return {
            n: replace(
                o, pulls=tuple(p for p in pulls.get(n, ()) if o.verdict.deletes or p.source_branch == n)
            )
            for n, o in outlooks.items()
        }

    # ---- the whole repository
    @cached_property
    def _tags(self) -> Mapping[str, tuple[str, ...]]:
        if self._refs is None:
            return {}
        return keep.tags_on(self._refs, self._repository.default_branch)

    def _merged(self) -> set[str] | None:
        if self._refs is None:
            return None
        default = self._repository.default_branch
        heads = [b.commit_id for b in self._refs.branches if b.id == default]
        return keep.reachable({c.id: c for c in self._refs.commits}, heads)

    def _read_refs(self) -> None:
        if self._refs is not None:
            return
        self._refs, self._blind_to = read_all_refs(
            self._readers.refs, self._desired.name, read_only=self._read_only
        )
        self._graph = CommitGraph.from_refs(self._refs)
        # A branch must not be deleted only because a pin leads to its commits too.
        self._refs = without_pin_branches(self._refs)
        self._head_dates = {c.id: c.creation_us // 1_000_000 for c in self._refs.commits}


def _exempted(outlook: BranchOutlook, exemption: Exemption) -> BranchOutlook:
    """The outlook with a recorded exemption, which is noted even if no policy would delete the branch yet."""
    notes = (*outlook.notes, exemption.text)
    if not outlook.verdict.deletes:
        return replace(outlook, notes=notes)
    verdict = replace(outlook.verdict, kept_by=Keep.EXEMPTED, due=exemption.end)
    return replace(outlook, verdict=verdict, notes=notes)


def under(inspected: Survey, rules: GcRules | None, zone: ZoneInfo) -> Survey:
    """The survey as if the server stored ``rules``."""
    outlooks = _with_safety(inspected.outlooks, inspected.graph, rules, zone)
    return replace(inspected, outlooks=outlooks, rules=rules)


def _with_safety(
    outlooks: Mapping[str, BranchOutlook], graph: CommitGraph | None, rules: GcRules | None, zone: ZoneInfo
) -> dict[str, BranchOutlook]:
    """The outlooks with the moments until which HEADs are kept after the deletions."""
    going = {name for name, outlook in outlooks.items() if outlook.verdict.deletes}
    ends = safe_until(graph, going, rules, zone) if graph is not None else {}
    return {name: replace(outlook, safe_until=ends.get(name)) for name, outlook in outlooks.items()}


def pulls_by_branch(reader: BranchReader, repository: str) -> dict[str, tuple[PullRequest, ...]]:
    """Open pull requests by the branches that they come from and lead into."""
    pulls: dict[str, tuple[PullRequest, ...]] = {}
    for pull in reader.open_pulls(repository):
        for name in {pull.source_branch, pull.destination_branch}:
            pulls[name] = (*pulls.get(name, ()), pull)
    return pulls


FRESH_SECONDS = 15.0
_NEW_COMMITS_READ = 1000
"""If the default branch moved, up to this many of its commits are read, to find those of the survey."""


@dataclass(frozen=True)
class _Snapshot:
    """Everything that can keep a branch, as read at one time. ``began``: when reading began. ``live`` is None
    if not needed."""

    began: datetime
    repository: Repository
    pulls: Mapping[str, tuple[PullRequest, ...]]
    protected: tuple[str, ...]
    live: frozenset[str] | None
    merged_still: bool
    held: Collection[str]


@dataclass
class Keeping:
    """Reports before every deletion what keeps the branch, according to what was just read."""

    _survey: Survey
    _readers: Readers
    _now: Callable[[], datetime]
    _exemptions: Callable[[], Mapping[str, Exemption]] = dict
    _check: Callable[[], object] = dict
    """Raises LakeplanError if a newer tree may keep more than the survey's."""

    def __post_init__(self) -> None:
        self._not_staying = {outlook.id for outlook in self._survey.deleted}
        self._snapshot: _Snapshot | None = None
        self._refs = self._survey.refs
        self._held: Collection[str] = ()
        self._named = self._commits_named(self._survey.refs)

    def is_fresh(self) -> bool:
        """Whether the last answer of ``keeper`` is recent enough for a deletion."""
        return self._snapshot is not None and is_recent(self._snapshot.began, self._now(), FRESH_SECONDS)

    def keeper(self, outlook: BranchOutlook) -> Keep | None:
        """Return the reason to keep a branch that the survey would delete, if there is one now. Raises
        LakeplanError if that cannot be read, or if the repository was created again."""
        if self._snapshot is None or not self.is_fresh():
            self._snapshot = self._read()
        now, settings = self._snapshot, self._survey.desired.branch_settings
        if outlook.id == now.repository.default_branch:
            return Keep.DEFAULT_BRANCH
        if now.repository.read_only:
            return Keep.READ_ONLY
        if outlook.id in now.held:
            return Keep.HELD
        # An exemption was recorded or removed since the survey, so a person has just dealt with this branch.
        # This is read for each branch, because a snapshot may be ``FRESH_SECONDS`` old.
        if self._exemptions().get(outlook.id) != self._survey.spared.exemptions.get(outlook.id):
            return Keep.EXEMPTED
        fresh = replace(outlook, pulls=now.pulls.get(outlook.id, ()))
        why = keepers.keeper_of(fresh, settings, merged=now.merged_still, protected=now.protected)
        return why or self._min_keep(outlook.id, now.live)

    def forget(self) -> None:
        """Makes the next call of ``keeper`` read everything again."""
        self._snapshot = None

    def stays(self, branch_id: str) -> None:
        """Notes that a branch was not deleted."""
        self._not_staying.discard(branch_id)

    def _min_keep(self, branch_id: str, live: frozenset[str] | None) -> Keep | None:
        """``MIN_KEEP`` if too few other branches of a policy would remain, because somebody deleted some."""
        if live is None:
            return None
        for policy in self._survey.desired.policies:
            if takes(policy, branch_id):
                staying = sum(1 for name in live - self._not_staying if takes(policy, name))
                if staying < self._survey.desired.branch_settings.min_keep:
                    return Keep.MIN_KEEP
        return None

    def _read(self) -> _Snapshot:
        began = self._hold()
        name, settings = self._survey.desired.name, self._survey.desired.branch_settings
        refs, branches = self._readers.refs, self._readers.branches
        repository, then = refs.get_repository(name), self._survey.repository
        if (repository.creation_date, repository.storage_namespace) != (
            then.creation_date,
            then.storage_namespace,
        ):
            raise LakeplanError(
                "the repository was deleted and created again during this run",
                where=self._survey.desired.key,
                hint="Run the command again. That run starts counting the ages of the new repository's"
                " branches.",
            )
        self._check()
        # Another tree may have exemptions and holds for this repository.
        check_claims(branches.metadata(name), self._survey.desired.tree, self._survey.desired.key)
        return _Snapshot(
            began,
            repository,
            pulls_by_branch(branches, name) if settings.keep_with_open_pull_request else {},
            tuple(branches.protected_patterns(name)) if settings.keep_protected else (),
            frozenset(b.id for b in refs.list_branches(name) if not is_pin_name(b.id))
            if settings.min_keep
            else None,
            self._merged_still(repository) if settings.require_merged else True,
            self._held,
        )

    def _hold(self) -> datetime:
        """Updates which branches holds keep, if another branch or tag was moved or deleted: a branch may now
        be needed to reach what is held. Returns when it last began to list branches and tags."""
        desired, refs, began = self._survey.desired, self._readers.refs, self._now()
        holds = active_holds(desired.holds, began)
        if not holds or self._refs is None or self._unmoved(self._refs) == self._refs:
            return began
        current = without_pin_branches(read_all_refs(refs, desired.name, read_only=False)[0])
        self._named |= self._commits_named(current)
        # A dump may take minutes. A ref that moved meanwhile must not count as leading to anything.
        began = self._now()
        self._refs = self._unmoved(current)
        leaving = {o.id: o for o in self._survey.deleted if o.id in self._not_staying}
        metadata = refs.metadata_reader(desired.name)
        self._held = held_branches(holds, self._refs, leaving, metadata, named=self._named)
        return began

    def _unmoved(self, refs: Refs) -> Refs:
        """The refs without tags and kept branches that have moved or are gone."""
        reader, name = self._readers.refs, self._survey.desired.name
        heads = {(b.id, b.commit_id) for b in reader.list_branches(name)}
        tags = set(reader.list_tags(name))
        there = (b for b in refs.branches if b.id in self._not_staying or (b.id, b.commit_id) in heads)
        return replace(refs, branches=tuple(there), tags=tuple(t for t in refs.tags if t in tags))

    def _commits_named(self, refs: Refs | None) -> frozenset[str]:
        """The commits that holds name. They stay held even if the tag or branch moves or is deleted during
        the run."""
        holds = active_holds(self._survey.desired.holds, self._now())
        return frozenset(id for hold in holds for id in (keep.commits_named(hold, refs) if refs else ()))

    def _merged_still(self, repository: Repository) -> bool:
        """Whether the default branch still has all commits that it had at the survey."""
        refs = self._survey.refs
        if refs is None or repository.default_branch != self._survey.repository.default_branch:
            return False
        then = next((b.commit_id for b in refs.branches if b.id == repository.default_branch), None)
        commits = self._readers.refs.log_commits(repository.id, repository.default_branch)
        return any(commit.id == then for commit in islice(commits, _NEW_COMMITS_READ))
