"""Computes what must be kept, from the server's own database and listings and from the tree's text.

Nothing here is shared with lakeplan: the documented rule is stated once more, from lakeFS's documentation,
and commits, staged data and days are read as rows, JSON and API answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.chaos.wire import WireLake

DAY_US = 86_400_000_000
PROTECTED_TAGS = "v*"
PIN = re.compile(r"lakeplan-pin-([0-9a-f]{12})")
Days = tuple[int, Mapping[str, int]]
"""Default days, and days by branch."""


@dataclass(frozen=True)
class Commit:
    id: str
    made_us: int
    parents: tuple[str, ...]
    main_parent: str | None
    metarange: str


@dataclass(frozen=True)
class History:
    """Everything a repository refers to, at one moment. ``staged`` maps (branch, path) to an address."""

    commits: Mapping[str, Commit]
    branches: Mapping[str, str]
    tags: Mapping[str, str]
    staged: Mapping[tuple[str, str], str]

    def ancestry(self, heads: Iterable[str]) -> set[str]:
        pending, found = [h for h in heads if h in self.commits], set[str]()
        while pending:
            id = pending.pop()
            if id not in found:
                found.add(id)
                pending += self.commits[id].parents
        return found


class Truth:
    """Reads one server. ``folder`` is where the namespaces are."""

    def __init__(self, lake: WireLake) -> None:
        self._lake = lake
        self._contents: dict[tuple[str, str], dict[str, str]] = {}

    def now_us(self) -> int:
        return round(self._lake.clock().timestamp() * 1_000_000)

    # ---- what is there
    def history(self, repository: str) -> History:
        rows = self._lake.rows
        commits = {}
        for (text,) in rows("SELECT record FROM commits WHERE repository = ?", repository):
            record = json.loads(text)
            parents = tuple(record["parents"])
            main = (parents[0] if record["version"] >= 1 else parents[-1]) if parents else None
            commits[record["id"]] = Commit(
                record["id"], record["creation_us"], parents, main, record["meta_range_id"]
            )
        branches = self.heads(repository)
        tags = dict(rows("SELECT id, commit_id FROM tags WHERE repository = ?", repository))
        sql = "SELECT branch, path, entry FROM staged WHERE repository = ? AND entry IS NOT NULL"
        staged = {(branch, path): json.loads(entry)[0] for branch, path, entry in rows(sql, repository)}
        return History(commits, branches, tags, staged)

    def heads(self, repository: str) -> dict[str, str]:
        """Commits by branch."""
        sql = "SELECT id, commit_id FROM branches WHERE repository = ?"
        return dict(self._lake.rows(sql, repository))

    def contents(self, repository: str, commit: Commit) -> Mapping[str, str]:
        """Path → address of what a commit holds: relative to the namespace, or a full one elsewhere."""
        if not commit.metarange:
            return {}
        key = (repository, commit.metarange)
        if key not in self._contents:
            path = f"/repositories/{repository}/refs/{commit.id}/objects/ls"
            listed = self._lake.call("GET", path, params={"amount": "1000"}).json()["results"]
            prefix = f"local://{repository}/"
            found = {one["path"]: one["physical_address"].removeprefix(prefix) for one in listed}
            self._contents[key] = found
        return self._contents[key]

    def days(self, repository: str) -> Days | None:
        """The stored rules; None when there are none."""
        sql = "SELECT value FROM settings WHERE repository = ? AND name = 'gc_rules'"
        found = self._lake.rows(sql, repository)
        if not found:
            return None
        rules = json.loads(found[0][0])
        return int(rules["default_retention_days"]), {b: int(d) for b, d in rules["branches"].items()}

    def stored(self, repository: str) -> dict[str, int]:
        """Keys of data that is there → when it was written (microseconds)."""
        root = self._lake.handle.namespace_folder(repository)
        return {
            file.relative_to(root).as_posix(): file.stat().st_mtime_ns // 1000
            for file in (root / "data").rglob("*")
            if file.is_file()
        }

    def file(self, repository: str, key: str) -> Path:
        return self._lake.handle.namespace_folder(repository) / key

    # ---- pins
    def without_pins(self, history: History, days: Days | None) -> tuple[History, Days | None]:
        """The rules without pins, and without days for deleted branches."""
        pins = {name for name, head in history.branches.items() if stands(name, head)}
        branches = {name: head for name, head in history.branches.items() if name not in pins}
        if days is not None:
            own = {name: d for name, d in days[1].items() if name in branches or not PIN.fullmatch(name)}
            days = days[0], own
        return replace(history, branches=branches), days

    # ---- what must be kept
    def documented(self, history: History, days: Days, at_us: int) -> set[str]:
        """The commits that the rule keeps at a moment: for every branch its HEAD, the commit that was HEAD
        that many days ago, and every commit since, along first parents. A commit that no branch and no main
        parent leads to is kept while younger than the default."""
        default, own = days
        mains = {c.main_parent for c in history.commits.values()}
        heads = set(history.branches.values())
        starts = [(head, own.get(branch, default), True) for branch, head in history.branches.items()]
        starts += [(id, default, False) for id in history.commits if id not in mains | heads]
        kept = set()
        for start, number, is_head in starts:
            limit = at_us - number * DAY_US
            commit = history.commits[start]
            if is_head or commit.made_us > limit:
                kept.add(start)
            while commit.main_parent is not None:
                if commit.made_us > limit:
                    kept.add(commit.main_parent)
                commit = history.commits[commit.main_parent]
        return kept

    def held(
        self,
        repository: str,
        tree_days: Days | None,
        holds: Iterable[Mapping[str, Any]],
        held_once: Iterable[str] = (),
        margin_us: int = 0,
    ) -> dict[str, str]:
        """Address → why nobody may delete it now. ``margin_us``: the documented rule counts as if it were so
        much earlier. ``held_once``: commits that a hold that is still in force
        was seen to keep, though its branch or tag may be gone."""
        history, at = self.history(repository), self.now_us() - margin_us
        found: dict[str, str] = {}

        def keep(commits: Iterable[str], why: str) -> None:
            for id in commits:
                for address in self.contents(repository, history.commits[id]).values():
                    found.setdefault(address, f"{why} (commit {id[:8]})")

        for address in history.staged.values():
            found[address] = "uncommitted data"
        stored = self.days(repository)
        keep(history.branches.values(), "a HEAD")
        if stored is None:
            keep(history.commits, "no rules are set")
        else:
            keep(self.documented(history, stored, at), "the documented rule")
        unpinned, unpinned_days = self.without_pins(history, stored)
        if unpinned_days is not None:
            keep(self.documented(unpinned, unpinned_days, at), "the documented rule, without pins")
        if tree_days is not None:
            keep(self.documented(unpinned, tree_days, at), "the documented rule, with the tree's days")
        keep((c for t, c in history.tags.items() if fnmatchcase(t, PROTECTED_TAGS)), "a protected tag")
        keep(held_once, "a hold, whose branch or tag is gone")
        today = self._lake.clock().date()
        for hold in holds:
            if in_force(hold, today):
                keep(held_commits(history, hold), f"hold {hold}")
                if "prefix" in hold:
                    for commit in history.commits.values():
                        for path, address in self.contents(repository, commit).items():
                            if path.startswith(hold["prefix"]):
                                found.setdefault(address, f"hold {hold} (commit {commit.id[:8]})")
        return found

    def foreign(self, other: str, repository: str) -> dict[str, str]:
        """Addresses of a repository that commits of another one name by their full URL, as servers resolve
        it: without its query, decoded, and with one slash where there are two."""
        prefix, found = f"local://{repository}/", {}
        for commit in self.history(other).commits.values():
            for address in self.contents(other, commit).values():
                if address.startswith(prefix):
                    key = unquote(address.removeprefix(prefix).partition("?")[0]).lstrip("/")
                    found[key] = f"a commit of {other}"
        return found

    def ever_committed(self, repository: str) -> set[str]:
        history = self.history(repository)
        return {a for c in history.commits.values() for a in self.contents(repository, c).values()}


def held_commits(history: History, hold: Mapping[str, Any]) -> set[str]:
    """The commits that a hold on a branch, tag or commit keeps. A branch keeps all ancestors of its HEAD."""
    if "branch" in hold:
        return history.ancestry(h for b, h in history.branches.items() if fnmatchcase(b, hold["branch"]))
    if "tag" in hold:
        return {c for t, c in history.tags.items() if fnmatchcase(t, hold["tag"]) and c in history.commits}
    if "commit" in hold:
        return {id for id in history.commits if id.startswith(hold["commit"])}
    return set()


def in_force(hold: Mapping[str, Any], today: date) -> bool:
    return "until" not in hold or today <= date.fromisoformat(hold["until"])


def stands(name: str, head: str) -> bool:
    """Whether a branch is where a pin of its name is."""
    found = PIN.fullmatch(name)
    return found is not None and head.startswith(found[1])


def bare(days: Days | None) -> Days | None:
    """Without the entries of pins."""
    if days is None:
        return None
    return days[0], {name: number for name, number in days[1].items() if not PIN.fullmatch(name)}


def days_of(body: Mapping[str, Any]) -> Days:
    return int(body["default_retention_days"]), {
        rule["branch_id"]: int(rule["retention_days"]) for rule in body.get("branches") or ()
    }


def lowers(before: Days | None, after: Days | None) -> bool:
    """Whether some branch is kept for less time."""
    if after is None:
        return False
    if before is None:
        return True
    names = {*before[1], *after[1]}
    return after[0] < before[0] or any(
        after[1].get(name, after[0]) < before[1].get(name, before[0]) for name in names
    )


def moment(us: int) -> datetime:
    return datetime.fromtimestamp(0, tz=timezone.utc) + timedelta(microseconds=us)
