"""A lakeFS in memory with a clock: as much of it as branches need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.branches.deleting import RunPorts, UndoOptions, undo_branches
from lakeplan.branches.plan import BranchesOptions, BranchesPorts, plan_branches
from lakeplan.branches.recall import Readers
from lakeplan.branches.run import run_branches
from lakeplan.errors import NotFound, PermissionDenied, RepositoryNotFound
from lakeplan.review.run import Run
from lakeplan.review.selection import Selection
from lakeplan.stores.open import Versioned
from lakeplan.values.branches import LiveBranch, PullRequest, StagedChange, StagedData
from lakeplan.values.desired import (
    BranchSettings,
    DesiredRepository,
    PoliciesDesired,
    Policy,
    Safety,
    ServerConfig,
    Source,
)
from lakeplan.values.progress import Silent
from lakeplan.values.repository import Branch, Commit, Refs, Repository, Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.sweep import Hold
from tests import memory
from tests.branches.drawing import draw  # noqa: F401  # a fixture

START = datetime(2026, 3, 1, tzinfo=timezone.utc)
DAY = 86400


class MemoryState(memory.MemoryState):
    """It keeps a log. ``fail_after`` writes the process is killed."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.fail_after: int | None = None

    def read(self, key: str) -> Versioned | None:
        self.log.append(f"read {key}")
        return super().read(key)

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        version = super().write(key, data, if_version=if_version)
        self.log.append(f"write {key}")
        return version

    def _check(self, key: str, if_version: str | None) -> None:
        Kill.count(self)
        super()._check(key, if_version)


class Killed(BaseException):
    """The process ends here."""


class Kill:
    """Ends the process at the n-th thing that it does outside."""

    @staticmethod
    def count(target: Any) -> None:
        if target.fail_after is not None:
            if target.fail_after == 0:
                raise Killed
            target.fail_after -= 1


class MemoryLakeFS:
    """Reader of refs, reader and writer of branches."""

    name = "prod"

    def __init__(self, clock: Clock, state: MemoryState) -> None:
        self.clock = clock
        self.state = state
        self.branches: dict[str, LiveBranch] = {}
        self.commits: dict[str, Commit] = {}
        self.tags: list[Tag] = []
        self.staged_on: dict[str, StagedData] = {}
        self.times: dict[str, datetime] = {}
        self.pulls: list[PullRequest] = []
        self.protected: list[str] = []
        self.marks: dict[str, str] = {}
        self.default_branch = "main"
        self.created = 7
        self.namespace = "mem://a"
        self.rules: GcRules | None = None
        self.read_only = False
        self.gone_objects = 0
        self.refuse: dict[str, Exception] = {}
        self.before_delete: Callable[[str], None] = lambda branch: None
        self.after_look: Callable[[], None] = lambda: None
        self.skew = timedelta()
        self.requests: list[str] = []
        self.commit("main")

    # ---- drawing
    def commit(self, branch: str, parent: str | None = None) -> str:
        at = self.branches.get(branch)
        parent = parent or (at.commit_id if at else None)
        id = hashlib.sha256(f"{len(self.commits)}".encode()).hexdigest()
        us = int(self.clock.now.timestamp() * 1_000_000)
        self.commits[id] = Commit(id, us, "", (parent,) if parent else ())
        self.branches[branch] = LiveBranch(branch, id, at.hidden if at else False)
        return id

    def branch(self, name: str, source: str = "main", hidden: bool = False) -> None:
        self.branches[name] = LiveBranch(name, self.branches[source].commit_id, hidden)

    def stage(self, branch: str, path: str = "a", kind: str = "added", *, more: bool = False) -> None:
        before = self.staged_on.get(branch, StagedData())
        self.staged_on[branch] = StagedData((*before.changes, StagedChange(path, kind, 1)), more)
        self.times[f"{branch}/{path}"] = self.clock.now

    # ---- LakeFSReader
    def list_repositories(self, prefix: str = "") -> Iterator[Repository]:
        yield self.get_repository("analytics")

    def get_repository(self, repository: str) -> Repository:
        if repository != "analytics":
            raise RepositoryNotFound("the repository does not exist", where=repository)
        return Repository(
            repository, self.namespace, self.default_branch, self.created, read_only=self.read_only
        )

    def get_gc_rules(self, repository: str) -> GcRules | None:
        return self.rules

    def list_branches(self, repository: str, prefix: str = "") -> Iterator[Branch]:
        return iter([Branch(b.id, b.commit_id) for b in self.branches.values()])

    def list_tags(self, repository: str) -> Iterator[Tag]:
        return iter(self.tags)

    def metadata_reader(self, repository: str) -> Any:
        return SimpleNamespace()

    def refs(self) -> Refs:
        branches = tuple(Branch(b.id, b.commit_id) for b in self.branches.values())
        return Refs(tuple(self.commits.values()), branches, tuple(self.tags))

    # ---- BranchReader
    def list_live(self, repository: str) -> list[LiveBranch]:
        self.requests.append("list")
        found = sorted(self.branches.values(), key=lambda b: b.id)
        self.after_look()
        return found

    def find_branch(self, repository: str, branch_id: str) -> str | None:
        found = self.branches.get(branch_id)
        return found.commit_id if found else None

    def staged(self, repository: str, branch_id: str) -> StagedData:
        self.requests.append(f"diff {branch_id}")
        if branch_id not in self.branches:
            raise NotFound("branch not found")
        return self.staged_on.get(branch_id, StagedData())

    def written_at(self, repository: str, branch_id: str, path: str) -> datetime | None:
        self.requests.append(f"stat {branch_id} {path}")
        return self.times.get(f"{branch_id}/{path}")

    def open_pulls(self, repository: str) -> Iterator[PullRequest]:
        self.requests.append("pulls")
        return iter(self.pulls)

    def protected_patterns(self, repository: str) -> Iterator[str]:
        self.requests.append("protection")
        return iter(self.protected)

    def log_commits(self, repository: str, ref: str) -> Iterator[Commit]:
        left = [self.branches[ref].commit_id]
        while left:
            commit = self.commits[left.pop()]
            left += commit.parents
            yield commit

    def metadata(self, repository: str) -> Mapping[str, str]:
        return dict(self.marks)

    def server_time(self, repository: str) -> datetime | None:
        return self.clock.now + self.skew

    def readable_sample(self, repository: str, commit_id: str, count: int) -> tuple[int, int]:
        return 4, self.gone_objects

    # ---- BranchWriter
    def delete_branch(self, repository: str, branch_id: str) -> None:
        self.before_delete(branch_id)
        Kill.count(self.state)
        self.requests.append(f"delete {branch_id}")
        if branch_id in self.refuse:
            raise self.refuse[branch_id]
        if branch_id == "main":
            raise PermissionDenied("cannot delete repository default branch")
        if branch_id not in self.branches:
            raise NotFound("branch not found")
        del self.branches[branch_id]
        self.staged_on.pop(branch_id, None)

    def set_metadata(self, repository: str, values: Mapping[str, str]) -> None:
        Kill.count(self.state)
        if "metadata" in self.refuse:
            raise self.refuse["metadata"]
        self.marks.update(values)

    def create_branch(self, repository: str, branch: LiveBranch) -> None:
        Kill.count(self.state)
        self.requests.append(f"create {branch.id}")
        self.branches[branch.id] = branch


class Clock:
    def __init__(self) -> None:
        self.now = START

    def wait(self, days: float) -> None:
        self.now += timedelta(days=days)

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class MemoryTree:
    """One repository with policies."""

    def __init__(self) -> None:
        self.engine: Any = "lakeplan"
        self.endpoint = "http://x"
        self.policies = (Policy("old", ("feature-*",), max_idle_seconds=3 * DAY),)
        self.settings = BranchSettings()
        self.safety = Safety()
        self.overrides: tuple[Any, ...] = ()
        self.holds: tuple[Hold, ...] = ()

    @property
    def servers(self) -> Mapping[str, ServerConfig]:
        return {"prod": ServerConfig("prod", self.endpoint, branch_lifecycle_engine=self.engine)}

    def find(self, server: str, name: str) -> DesiredRepository | None:
        return next((d for d in self.resolve(server, [name]) if d.name == name), None)

    def resolve(self, server: str, live: Any) -> list[DesiredRepository]:
        source = Source("repositories/a.yaml", 3, 5)
        return [
            DesiredRepository(
                server="prod",
                name="analytics",
                entry="analytics",
                gc=None,
                config_hash="",
                resolved={},
                values={},
                safety=self.safety,
                branch_lifecycle=PoliciesDesired(self.policies, (source,) * len(self.policies), source),
                branch_settings=self.settings,
                holds=self.holds,
            )
        ]


class NoSimulator:
    def impact(self, requests: Any) -> Any:
        raise AssertionError("nothing is to be simulated")


class World:
    """A repository, a tree, a state, a clock; and the three commands."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.state = MemoryState()
        self.lakefs = MemoryLakeFS(self.clock, self.state)
        self.tree: Any = MemoryTree()
        self.runs = 0
        self.stop = False
        self.gone = True
        """Whether a killed process is seen to be gone, as on the same host."""

    def plan(self, *, in_days: float = 0) -> Any:
        options = BranchesOptions(self.clock.now, self.clock.now + timedelta(days=in_days), simulate=False)
        ports = BranchesPorts(lambda _: self.readers(), NoSimulator(), Silent(), self.state)
        made = plan_branches(self.tree, options, ports)
        (repository,) = made.repositories
        assert repository.failure is None, repository.failure
        return made

    def outlooks(self, *, in_days: float = 0) -> Any:
        made = self.plan(in_days=in_days)
        return SimpleNamespace(**{o.id.replace("-", "_"): o for o in made.repositories[0].outlooks})

    def run(self, **more: Any) -> Any:
        options = BranchesOptions(self.clock.now, self.clock.now, **more.pop("options", {}))
        return run_branches(self.tree, options, self.ports(), self.this_run(), **more)

    def ends(self, **more: Any) -> dict[str, str]:
        """Branch → outcome of one run that does not fail."""
        (repository,) = self.run(**more).repositories
        assert repository.failure is None, repository.failure
        return {e.outlook.id: e.outcome.value for e in repository.branches}

    def undo(self, run_id: str | None = None, *branches: str) -> Any:
        options = UndoOptions(Selection(), run_id, frozenset(branches))
        return undo_branches(self.tree, options, self.ports(), self.this_run())

    def kill_after(self, steps: int | None) -> None:
        """The process ends at this step of the next run (state writes and requests that write)."""
        self.state.fail_after = steps

    def readers(self) -> Any:
        return Readers(self.lakefs, self.lakefs)  # type: ignore[arg-type]

    def ports(self) -> RunPorts:
        return RunPorts(
            lambda _: self.readers(), lambda _: self.lakefs, self.state, Silent(), lambda: self.stop
        )

    def this_run(self) -> Run:
        self.runs += 1
        return Run(
            f"run-{self.runs:03d}",
            {"user": "me", "pid": self.runs},
            lambda: self.clock.now,
            lambda _: self.gone,
            sleep=self.clock.sleep,
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(
        "lakeplan.branches.survey.read_all_refs",
        lambda reader, repository, *, read_only: (reader.refs(), ()),
    )
    return made


@pytest.fixture
def killed() -> type[BaseException]:
    return Killed


@pytest.fixture
def idle(world):
    """Two feature branches that the policy lets go now."""
    world.lakefs.branch("feature-1")
    world.lakefs.branch("feature-2", hidden=True)
    world.run()
    world.clock.wait(4)
    return world
