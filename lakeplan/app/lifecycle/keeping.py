"""What keeps a repository's branches apart from the branches themselves, as it is now.

It is read again when it is older than ``FRESH_SECONDS``: a pull request that was opened, a branch that was
protected or a default branch that was changed since the survey keep a branch from being deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from lakeplan.app.gather import read_all_refs
from lakeplan.app.lifecycle.holding import held_branches
from lakeplan.app.lifecycle.recall import Readers
from lakeplan.app.lifecycle.survey import Survey, pulls_by_source
from lakeplan.core.holds import active_holds
from lakeplan.core.lifecycle import keepers
from lakeplan.core.lifecycle.verdicts import takes
from lakeplan.errors import LakeplanError
from lakeplan.model.branches import BranchOutlook, Keep, PullRequest
from lakeplan.model.desired import PoliciesDesired
from lakeplan.model.repository import Repository

FRESH_SECONDS = 15.0
_NEW_COMMITS_READ = 1000
"""Commits of a default branch that moved since the survey, to see whether it still has those it had then."""


@dataclass(frozen=True)
class _Snapshot:
    """``began``: when reading began. ``live`` is None where nothing needs it."""

    began: datetime
    repository: Repository
    pulls: Mapping[str, tuple[PullRequest, ...]]
    protected: tuple[str, ...]
    live: frozenset[str] | None
    merged_still: bool
    held: Collection[str]


class Keeping:
    """Asked before every deletion of one repository."""

    def __init__(self, found: Survey, readers: Readers, now: Callable[[], datetime]) -> None:
        self._found = found
        self._readers = readers
        self._now = now
        self._not_staying = {outlook.id for outlook in found.deleted}
        self._snapshot: _Snapshot | None = None
        self._refs = found.refs
        self._held: Collection[str] = ()

    def is_fresh(self) -> bool:
        """Whether the last answer of ``keeper`` is recent enough to delete by it."""
        if self._snapshot is None:
            return False
        # A clock that was set back makes nothing fresh.
        return 0 <= (self._now() - self._snapshot.began).total_seconds() <= FRESH_SECONDS

    def keeper(self, outlook: BranchOutlook) -> Keep | None:
        """What keeps a branch that was to be deleted when it was surveyed. Raises LakeplanError when that
        cannot be read, or when the repository is another one by now."""
        if self._snapshot is None or not self.is_fresh():
            self._snapshot = self._read()
        now, settings = self._snapshot, self._found.desired.lifecycle
        if outlook.id == now.repository.default_branch:
            return Keep.DEFAULT_BRANCH
        if now.repository.read_only:
            return Keep.READ_ONLY
        if outlook.id in now.held:
            return Keep.HELD
        fresh = replace(outlook, pulls=now.pulls.get(outlook.id, ()))
        why = keepers.keeper_of(fresh, settings, merged=now.merged_still, protected=now.protected)
        return why or self._min_keep(outlook.id, now.live)

    def forget(self) -> None:
        """The next answer of ``keeper`` is read anew."""
        self._snapshot = None

    def stays(self, branch_id: str) -> None:
        """A branch that was to be deleted is not."""
        self._not_staying.discard(branch_id)

    def _min_keep(self, branch_id: str, live: frozenset[str] | None) -> Keep | None:
        """Whether too few other branches of a policy would remain, because somebody deleted some."""
        setting = self._found.desired.branch_lifecycle
        if live is None or not isinstance(setting, PoliciesDesired):
            return None
        for policy in setting.policies:
            if takes(policy, branch_id):
                staying = sum(1 for name in live - self._not_staying if takes(policy, name))
                if staying < self._found.desired.lifecycle.min_keep:
                    return Keep.MIN_KEEP
        return None

    def _read(self) -> _Snapshot:
        self._hold()  # may take a refs dump, which is older than what is read after it
        began, name, settings = self._now(), self._found.desired.name, self._found.desired.lifecycle
        refs, branches = self._readers.refs, self._readers.branches
        repository, then = refs.get_repository(name), self._found.repository
        if (repository.creation_date, repository.storage_namespace) != (
            then.creation_date,
            then.storage_namespace,
        ):
            raise LakeplanError(
                "the repository was deleted and created again during this run",
                where=self._found.desired.key,
                hint="run again: branches of the new one count from the next run",
            )
        return _Snapshot(
            began,
            repository,
            pulls_by_source(branches, name) if settings.keep_with_open_pull_request else {},
            tuple(branches.protected_patterns(name)) if settings.keep_protected else (),
            frozenset(b.id for b in refs.list_branches(name)) if settings.min_keep else None,
            self._merged_still(repository) if settings.require_merged else True,
            self._held,
        )

    def _hold(self) -> None:
        """Which branches holds keep now that some other branch or tag moved or is gone: one that was not
        needed to reach what is held may be."""
        desired, refs = self._found.desired, self._readers.refs
        holds = active_holds(desired.holds, self._now())
        if not holds or self._refs is None:
            return
        branches = {b.id: b.commit_id for b in refs.list_branches(desired.name)}
        tags = {t.id: t.commit_id for t in refs.list_tags(desired.name)}
        others = {b.id: b.commit_id for b in self._refs.branches if b.id not in self._not_staying}
        before = {t.id: t.commit_id for t in self._refs.tags}
        if others.items() <= branches.items() and before.items() <= tags.items():
            return
        self._refs, _ = read_all_refs(refs, desired.name, read_only=False)
        leaving = {o.id: o for o in self._found.deleted if o.id in self._not_staying}
        metadata = refs.metadata_reader(desired.name)
        self._held = held_branches(holds, self._refs, leaving, metadata)

    def _merged_still(self, repository: Repository) -> bool:
        """Whether the default branch still has all commits that it had when merged branches were found."""
        refs = self._found.refs
        if refs is None or repository.default_branch != self._found.repository.default_branch:
            return False
        then = next((b.commit_id for b in refs.branches if b.id == repository.default_branch), None)
        commits = self._readers.refs.log_commits(repository.id, repository.default_branch)
        return any(commit.id == then for commit in islice(commits, _NEW_COMMITS_READ))
