"""A repository with a random history, drawn through the public API of any lakeFS server, and what it held.

It remembers every commit that it made, so that commits no branch reaches any more are still known.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import requests

T = TypeVar("T")
R = TypeVar("R")
DAY = 86400
STEPS = [*["commit", "again"] * 3, "stage", "branch", *["drop"] * 4, "merge", "reset", "tag"]
"""What ``next_step`` draws from; ``again`` makes a branch at any commit that there ever was."""
MANY = 6
"""With more branches than this, one is deleted before the next is made."""


@dataclass(frozen=True)
class Made:
    """A commit as its own answer described it. ``created`` is in epoch seconds."""

    id: str
    parents: tuple[str, ...]
    created: int


@dataclass(frozen=True)
class Moment:
    """The branches' HEADs, and how many of the commits that are known (in their order) there were."""

    heads: dict[str, str]
    commits: int


@dataclass
class Lake:
    """One repository. ``written`` has the hash of each body by the address that its upload was given: no two
    bodies are equal. ``steps`` counts what ``next_step`` did."""

    url: str
    auth: tuple[str, str] = field(repr=False)
    name: str
    draw: random.Random
    commits: dict[str, Made] = field(default_factory=dict)
    uploads: int = 0
    written: dict[str, str] = field(default_factory=dict)
    steps: Counter[str] = field(default_factory=Counter)
    listings: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)
    """What ``entries`` gave for commits: it never changes."""
    moments: list[Moment] = field(default_factory=list)
    """The repository after each change of a branch that ``step`` made."""
    session: requests.Session = field(default_factory=requests.Session, repr=False)

    def beside(self, draw: random.Random) -> Lake:
        """The same repository for another thread; what it writes is known to both."""
        shared = self.commits, self.uploads, self.written, self.steps
        return Lake(self.url, self.auth, self.name, draw, *shared)

    def call(self, method: str, path: str, *, ok: bool = True, **parts: Any) -> requests.Response:
        url = f"{self.url}/api/v1/repositories/{self.name}{path}"
        answer = self.session.request(method, url, auth=self.auth, timeout=60, **parts)
        if ok and not answer.ok:
            raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        return answer

    def create(self, namespace: str) -> None:
        body = {"name": self.name, "storage_namespace": namespace, "default_branch": "main"}
        answer = requests.post(f"{self.url}/api/v1/repositories", json=body, auth=self.auth, timeout=60)
        assert answer.ok, answer.text
        for made in self.log("main"):
            self.commits[made.id] = made

    def delete(self) -> None:
        """Deletes the repository at the server; its namespace stays."""
        self.call("DELETE", "", ok=False, params={"force": "true"})
        self.session.close()

    def note(self) -> None:
        """Remembers what there is now. Nobody else changes a branch meanwhile."""
        self.moments.append(Moment(self.branches(), len(self.commits)))

    # ---- reading
    def at_once(self, ask: Callable[[T], R], about: Iterable[T]) -> list[R]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(ask, about))

    def pages(self, path: str, **params: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            answer = self.call("GET", path, params={"amount": 1000, "after": after, **params}).json()
            found += answer["results"]
            if not answer["pagination"]["has_more"]:
                return found
            after = answer["pagination"]["next_offset"]

    def branches(self) -> dict[str, str]:
        return {b["id"]: b["commit_id"] for b in self.pages("/branches", show_hidden="true")}

    def tags(self) -> dict[str, str]:
        return {t["id"]: t["commit_id"] for t in self.pages("/tags")}

    def log(self, ref: str) -> list[Made]:
        rows = self.pages(f"/refs/{ref}/commits")
        return [Made(r["id"], tuple(r["parents"]), int(r["creation_date"])) for r in rows]

    def entries(self, ref: str) -> dict[str, str]:
        """Path to physical address."""
        return {r["path"]: r["physical_address"] for r in self.pages(f"/refs/{ref}/objects/ls")}

    def read(self, ref: str, path: str) -> bytes | None:
        """The object's bytes; None when its data is gone."""
        answer = self.call("GET", f"/refs/{ref}/objects", ok=False, params={"path": path})
        if answer.status_code in (404, 410):
            return None
        assert answer.ok, answer.text
        return answer.content

    def uncommitted(self, branch: str) -> list[str]:
        return [r["path"] for r in self.pages(f"/branches/{branch}/diff") if r["type"] != "removed"]

    # ---- writing
    def upload(self, branch: str, path: str) -> None:
        self.uploads += 1
        body = f"{self.name} {path} {self.uploads} {self.draw.random()}".encode()
        headers = {"Content-Type": "application/octet-stream"}
        where = f"/branches/{branch}/objects"
        answer = self.call("POST", where, params={"path": path}, data=body, headers=headers).json()
        self.written[answer["physical_address"]] = hashlib.sha256(body).hexdigest()

    def commit(self, branch: str, age_days: float) -> str:
        body = {"message": "c", "date": int(time.time() - age_days * DAY)}
        answer = self.call("POST", f"/branches/{branch}/commits", json=body).json()
        made = Made(answer["id"], tuple(answer["parents"]), int(answer["creation_date"]))
        self.commits[made.id] = made
        return made.id

    def change(self, branch: str, age_days: float) -> str:
        for _ in range(self.draw.randint(1, 5)):
            self.upload(branch, f"{self.draw.choice('abc')}/{self.draw.randint(0, 9)}.bin")
        return self.commit(branch, age_days)

    def branch(self, name: str, source: str) -> None:
        self.call("POST", "/branches", json={"name": name, "source": source})

    def merge(self, source: str, target: str) -> None:
        self.call("POST", f"/refs/{source}/merge/{target}", ok=False, json={"strategy": "source-wins"})
        for made in self.log(target)[:2]:
            self.commits.setdefault(made.id, made)

    def rules(self, default: int, branches: dict[str, int]) -> None:
        rows = [{"branch_id": name, "retention_days": days} for name, days in branches.items()]
        body = {"default_retention_days": default, "branches": rows}
        self.call("PUT", "/settings/gc_rules", json=body)

    def first_history(self) -> None:
        """Some branches, commits of 60 to 0 days of age, merges, tags, a deleted branch, staged data."""
        names = ["main"]
        for age in sorted((self.draw.uniform(0, 60) for _ in range(14)), reverse=True):
            branch = self.draw.choice(names)
            self.change(branch, age)
            if self.draw.random() < 0.35:
                names.append(f"x{len(names)}")
                self.branch(names[-1], branch)
            if self.draw.random() < 0.2 and len(names) > 1:
                self.merge(*self.draw.sample(names, 2))
        known = list(self.commits)
        for number in range(2):
            tag = {"id": f"v{number}", "ref": self.draw.choice(known)}
            self.call("POST", "/tags", json=tag)
        for name in names[1:]:
            if self.draw.random() < 0.3:
                self.call("DELETE", f"/branches/{name}")
        self.upload("main", "staged/now.bin")

    def next_step(self) -> None:
        """Makes one random change to a repository in use."""
        self.step(self.draw.choice(STEPS))

    def step(self, kind: str) -> None:
        heads = self.branches()
        names = sorted(n for n in heads if n != "main")
        if len(names) > MANY and kind in ("branch", "again"):
            self.call("DELETE", f"/branches/{names.pop(0)}", ok=False)
            self.note()
        target = self.draw.choice(["main", *names])
        self.steps[kind] += 1
        if kind == "commit":
            self.change(target, self.draw.choice([0, 0, 2, 9, 30]))
        elif kind == "stage":
            self.upload(target, f"staged/{self.draw.randint(0, 4)}.bin")
        elif kind == "branch":
            self.branch(f"n{self.draw.getrandbits(48):x}", target)
        elif kind == "again":
            old = self.draw.choice(sorted(self.commits))
            self.branch(f"o{self.draw.getrandbits(48):x}", old)
        elif kind == "drop" and names:
            self.call("DELETE", f"/branches/{self.draw.choice(names)}", ok=False)
        elif kind == "merge" and names:
            self.merge(self.draw.choice(names), "main")
        elif kind == "reset" and names:
            parents = self.commits.get(heads[names[0]])
            if parents is not None and parents.parents:
                where = f"/branches/{names[0]}/hard_reset"
                self.call("PUT", where, ok=False, params={"ref": parents.parents[0], "force": "true"})
        elif kind == "tag":
            self.call("POST", "/tags", ok=False, json={"id": f"t{len(self.commits)}", "ref": target})
        if kind not in ("stage", "tag"):
            self.note()
