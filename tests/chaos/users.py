"""Simulates other users and pipelines of a repository: random histories, and data that is needed again."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from tests.chaos.truth import stands
from tests.chaos.world import REPOSITORY, ChaosWorld
from tests.sweeping.lake import LakeRepository, Refused

OTHER = "repo2"
PATHS = ("a", "b", "c/d", "audit/e")
BRANCHES = ("main", "dev", "fix", "feature-1", "feature-2", "feature-3")
AGES = (0, 0, 1, 5, 9, 12, 20, 40)
"""Days before now that a commit is dated."""
DAYS = (1, 3, 7, 30)


class Users:
    """``act`` does one thing at random; ``revive`` makes something that a mark names be needed again."""

    def __init__(self, world: ChaosWorld, random: Random) -> None:
        self.world, self._random = world, random
        self.repo: LakeRepository = world.repository()
        self.other: LakeRepository = world.repository(OTHER)
        self.done: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._acts: tuple[tuple[int, Callable[[], Any]], ...] = (
            (8, self.write),
            (8, self.churn),
            (4, self.upload),
            (3, self.delete),
            (3, self.commit),
            (1, self.reset),
            (6, self.branch),
            (2, self.drop_branch),
            (2, self.tag),
            (1, self.drop_tag),
            (1, self.hard_reset),
            (1, self.revert),
            (2, self.merge),
            (2, self.stray),
            (1, self.pull_request),
            (1, self.protect),
            (2, self.set_rules),
        )

    def begin(self) -> None:
        """A few versions of each path, most of them long expired."""
        for age in (40, 30, 20, 12, 9):
            for path in self._random.sample(PATHS, 3):
                self.attempt(lambda path=path: self._put(path, "main"))
            self.attempt(lambda age=age: self.repo.commit(age))
        self.repo.set_rules(self._random.choice(DAYS))
        for name in BRANCHES[1:]:
            if self._random.random() < 0.6:
                self.attempt(lambda name=name: self.repo.branch(name, self.any_commit()))
        self.world.lake.clock.advance(hours=30)

    def act(self) -> None:
        weights, acts = zip(*self._acts, strict=True)
        (chosen,) = self._random.choices(acts, weights)
        self.done[chosen.__name__] += 1
        self.attempt(chosen)

    def attempt(self, act: Callable[[], Any]) -> None:
        """Ignores what a server refuses: a conflict, nothing to commit, no such branch."""
        try:
            act()
        except Refused as refused:
            if refused.status not in (400, 403, 404, 409, 410, 412):
                raise

    # ---- everyday
    def write(self) -> None:
        """A new version of some paths, committed; the versions before expire some time."""
        branch = self._branch()
        for path in self._random.sample(PATHS, self._random.randint(1, 3)):
            self._put(path, branch)
        self.repo.commit(self._random.choice(AGES), branch)

    def churn(self, branch: str = "") -> None:
        """Commits that were dated long ago, one over the other: all but the last have expired."""
        branch = branch or self._branch()
        for age in (50, 49, 48):
            for path in self._random.sample(PATHS, 2):
                address = self._put(path, branch)
                self.repo.touch(address, age_hours=24 * 11)
            self.repo.commit(age, branch)

    def upload(self) -> None:
        self._put(self._random.choice(PATHS), self._branch())

    def _put(self, path: str, branch: str) -> str:
        address = self.repo.upload(path, f"data {next(self._numbers)}".encode(), branch)
        # a multipart upload is dated at its start
        self.repo.touch(address, age_hours=self._random.choice((0, 0, 72)))
        return address

    def delete(self) -> None:
        self.repo.delete(self._random.choice(PATHS), self._branch())

    def commit(self) -> None:
        self.repo.commit(self._random.choice(AGES), self._branch())

    def reset(self) -> None:
        self.repo.reset(self._branch())

    def branch(self) -> None:
        self.repo.branch(self._random.choice(BRANCHES), self.any_commit())

    def branch_at_pin(self) -> None:
        """A branch that policies may delete, at a commit that a pin keeps."""
        pins = [head for name, head in sorted(self._history().branches.items()) if stands(name, head)]
        if pins:
            name = self._random.choice(BRANCHES[3:])
            self.attempt(lambda: self.repo.drop_branch(name))
            self.repo.branch(name, self._random.choice(pins))

    def leave_tagged(self) -> None:
        """A tagged commit that no branch leads to, with ancestors that the default days alone keep."""
        name = "left"

        def act() -> None:
            self.repo.branch(name, self.any_commit())
            for age in (self._random.choice((2, 6, 20)), self._random.choice((1, 5, 19))):
                self.repo.upload(name, str(self._random.random()).encode(), name)
                self.repo.commit(age, name)
            self.repo.tag(f"v-left-{next(self._numbers)}", name)

        self.attempt(act)
        self.repo.drop_branch(name)

    def drop_branch(self) -> None:
        self.repo.drop_branch(self._random.choice(BRANCHES[1:]))

    def make_again(self, name: str) -> None:
        """A branch that was deleted is there again, as young as it is."""
        if name and name not in self._history().branches:
            self.repo.branch(name, self.any_commit())

    def replace(self, name: str) -> None:
        """A branch leads elsewhere: what it led to may have no branch any more."""
        if name == "main":
            self.repo.hard_reset(self.any_commit(), name)
        elif (head := self._history().branches.get(name)) is not None:
            self.repo.drop_branch(name)
            self.repo.branch(name, self._random.choice((head, self.any_commit())))

    def tag(self) -> None:
        name = f"{self._random.choice('vn')}{next(self._numbers)}"
        self.repo.tag(name, self.any_commit())

    def drop_tag(self) -> None:
        tags = sorted(self._history().tags)
        if tags:
            self.repo.call("DELETE", f"/tags/{self._random.choice(tags)}")

    def hard_reset(self) -> None:
        self.repo.hard_reset(self.any_commit(), self._branch())

    def revert(self) -> None:
        branch = self._branch()
        self.repo.revert(f"{branch}~{self._random.randint(0, 2)}", branch)

    def merge(self) -> None:
        self.repo.merge(self._branch(), self._branch())

    def stray(self) -> None:
        """An aborted client: an object that nobody staged."""
        address = f"data/stray/{next(self._numbers)}"
        path = self.repo.folder / address
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"stray")
        self.repo.touch(address, age_hours=self._random.choice((1, 72)))

    def pull_request(self) -> None:
        pulls, branch = self.world.wire.pulls, self._random.choice(BRANCHES[1:])
        pulls.symmetric_difference_update({branch})

    def protect(self) -> None:
        """Only feature branches: a protected branch refuses writes."""
        patterns = self._random.choice(([], [], ["feature-1"], ["feature-*"]))
        rules = [{"pattern": pattern} for pattern in patterns]
        self.repo.call("PUT", "/settings/branch_protection", json=rules)

    def set_rules(self) -> None:
        branches = {self._random.choice(BRANCHES): self._random.choice((0, *DAYS))}
        self.repo.set_rules(self._random.choice(DAYS), **branches)

    # ---- what a mark names is needed again
    def revive(self, addresses: set[str]) -> None:
        if not addresses:
            return
        address = self._random.choice(sorted(addresses))
        holder = self._holder(address)
        ways: list[Callable[[], Any]] = [
            lambda: self.repo.stage(self._random.choice(PATHS), address, checksum=str(next(self._numbers))),
            lambda: self._stage_and_commit(address),
            lambda: self._commit_elsewhere(address),
            lambda: self.repo.set_rules(90),
            lambda: self._rewrite(address),
        ]
        if holder is not None:
            name = self._random.choice(BRANCHES[1:])
            ways += [
                lambda: self.repo.branch(name, holder),
                lambda: self.repo.hard_reset(holder, self._branch()),
                lambda: self.repo.tag(f"v{next(self._numbers)}", holder),
            ]
        self.done["revive"] += 1
        self.attempt(self._random.choice(ways))

    def _stage_and_commit(self, address: str) -> None:
        self.repo.stage(self._random.choice(PATHS), address, checksum=str(next(self._numbers)))
        self.repo.commit()

    def _commit_elsewhere(self, address: str) -> None:
        """An import: another repository's commit names the object by its full address."""
        spellings = (f"/{address}", f"//{address}", f"/{address}?x=1", f"/%64{address[1:]}")
        url = f"local://{REPOSITORY}{self._random.choice(spellings)}"
        self.other.stage(f"import/{next(self._numbers)}", url)
        self.other.commit()

    def _rewrite(self, address: str) -> None:
        """A client overwrites an object at its key."""
        path = self.repo.folder / address
        if path.is_file():
            path.write_bytes(f"anew {next(self._numbers)}".encode())
            self.repo.touch(address)

    # ---- what there is
    def any_commit(self) -> str:
        return self._random.choice(sorted(self._history().commits))

    def _branch(self) -> str:
        return self._random.choice(sorted(self._history().branches))

    def _holder(self, address: str) -> str | None:
        history = self._history()
        for commit in history.commits.values():
            if address in self.world.truth.contents(REPOSITORY, commit).values():
                return commit.id
        return None

    def _history(self) -> Any:
        return self.world.truth.history(REPOSITORY)
