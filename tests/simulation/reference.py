"""A reference simulation, as simple as possible: sets and loops. It shares only the meaning of the rules
file with the product. Quadratic, for small histories."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from lakeplan.values.repository import AddressType, Entry
from lakeplan.values.rules import GcRules
from tests.simulation.namespaces import DAY_US, NOW_US, SERVER_URL, History, commit_id, created_us


@dataclass(frozen=True)
class Answer:
    """Rows as dictionaries with the design's columns, sorted by their first column."""

    commits: list[dict[str, object]]
    objects: list[dict[str, object]]
    branches: list[dict[str, object]]
    prefixes: list[dict[str, object]]


class Reference:
    def __init__(self, history: History, rules: GcRules, *, listing: bool, url_known: bool) -> None:
        self.history, self.rules, self.listing, self.url_known = history, rules, listing, url_known
        self.dates = {c.name: created_us(c.age) for c in history.commits}
        self.parent = {c.name: c.parents[0] if c.parents else None for c in history.commits}
        has_child = {parent for parent in self.parent.values() if parent}
        heads = set(history.branches.values())
        self.dangling = [n for n in self.parent if n not in has_child and n not in heads]
        self.keepers = self._documented()
        self.server = self._server()
        self.holders = self._holders()

    def limit(self, branch: str | None) -> int:
        days = self.rules.default_retention_days if branch is None else self.rules.days_for(branch)
        return NOW_US - days * DAY_US

    def _documented(self) -> dict[str, set[str | None]]:
        """Commit → the branches that keep it; None among them stands for a dangling start."""
        kept: dict[str, set[str | None]] = defaultdict(set)
        starts = [(branch, at) for branch, at in self.history.branches.items()]
        for branch, at in [*starts, *((None, at) for at in self.dangling)]:
            limit = self.limit(branch)
            if branch is not None or self.dates[at] > limit:
                kept[at].add(branch)
            while (parent := self.parent[at]) is not None:
                if self.dates[at] > limit:
                    kept[parent].add(branch)
                at = parent
        return kept

    def _server(self) -> set[str]:
        """The walk with its early stop, from heads and dangling commits by commit id."""
        limits: dict[str, list[int]] = defaultdict(list)
        for branch, at in self.history.branches.items():
            limits[at].append(self.limit(branch))
        for at in self.dangling:
            limits[at].append(self.limit(None))
        active: set[str] = set()
        visited: dict[str, int] = {}
        for start in sorted(limits, key=commit_id):
            limit = min(limits[start])
            if start not in self.dangling or self.dates[start] > limit:
                active.add(start)
            visited[start] = limit
            at = start
            while (parent := self.parent[at]) is not None:
                if parent in visited and visited[parent] <= limit:
                    break
                if self.dates[at] > limit:
                    active.add(parent)
                visited[parent] = limit
                at = parent
        return active

    def _keys_of(self, entry: Entry) -> set[str]:
        if entry.address_type is AddressType.RELATIVE:
            return {entry.address}
        if self._is_inside(entry):
            return {entry.address.removeprefix(SERVER_URL + "/")}
        known = set(self.history.stored) if self.listing else self._certain()
        return {
            key
            for key in known
            if entry.address.endswith("/" + key if key.startswith("data/") else "/ns/" + key)
        }

    def _is_inside(self, entry: Entry) -> bool:
        return self.url_known and entry.address.startswith(SERVER_URL + "/")

    def _certain(self) -> set[str]:
        entries = [e for c in self.history.commits for e in c.entries]
        relative = {e.address for e in entries if e.address_type is AddressType.RELATIVE}
        return relative | {e.address.removeprefix(SERVER_URL + "/") for e in entries if self._is_inside(e)}

    def _holders(self) -> dict[str, list[tuple[str, Entry]]]:
        held: dict[str, list[tuple[str, Entry]]] = defaultdict(list)
        for commit in self.history.commits:
            for entry in commit.entries:
                for key in self._keys_of(entry):
                    held[key].append((commit.name, entry))
        return held

    def _size(self, key: str) -> int:
        if self.listing:
            return self.history.stored[key].size
        return max(entry.size for _, entry in self.holders[key])

    def _counted(self) -> list[str]:
        return sorted(self.history.stored if self.listing else self.holders)

    def _goes(self, key: str, min_age: float) -> bool:
        if self.listing and self.history.stored[key].age <= min_age:
            return False
        if key in (self.history.staged or ()):
            return False
        return not any(name in self.server for name, _ in self.holders.get(key, ()))

    def answer(self, min_age: float = 1.0) -> Answer:
        gone = [key for key in self._counted() if self._goes(key, min_age)]
        return Answer(
            self._commits(), [self._object(key) for key in gone], self._branches(), self._prefixes(gone)
        )

    def _commits(self) -> list[dict[str, object]]:
        rows = []
        for commit in self.history.commits:
            names = sorted(b for b in self.keepers[commit.name] if b is not None)
            rows.append(
                {
                    "commit_id": commit_id(commit.name),
                    "branches": names[:10],
                    "branch_count": len(names),
                    "active": commit.name in self.server,
                    "active_documented": bool(self.keepers[commit.name]),
                }
            )
        return sorted(rows, key=lambda row: str(row["commit_id"]))

    def _object(self, key: str) -> dict[str, object]:
        held = self.holders.get(key, [])
        last = max(((self.dates[name], commit_id(name)) for name, _ in held), default=(0, None))[1]
        return {
            "address": key,
            "size_bytes": self._size(key),
            "paths": sorted({entry.path for _, entry in held})[:10],
            "last_commit_id": last,
            "reason": "expired" if held else "never_committed",
            "at_risk": any(self.keepers[name] for name, _ in held),
        }

    def _branches(self) -> list[dict[str, object]]:
        rows = []
        for branch in sorted(self.history.branches):
            mine, alone = [], []
            for key in self._counted():
                by = set().union(*(self.keepers[name] for name, _ in self.holders.get(key, ())))
                if branch in by:
                    mine.append(self._size(key))
                    if by == {branch}:
                        alone.append(self._size(key))
            rows.append(
                {
                    "branch_id": branch,
                    "commits": sum(branch in by for by in self.keepers.values()),
                    "objects": len(mine),
                    "size_bytes": sum(mine),
                    "exclusive_objects": len(alone),
                    "exclusive_bytes": sum(alone),
                }
            )
        return rows

    def _prefixes(self, gone: list[str]) -> list[dict[str, object]]:
        found: dict[str, list[int]] = defaultdict(list)
        for key in gone:
            prefixes = {""}
            for _, entry in self.holders.get(key, ()):
                parts = entry.path.split("/")[:-1]
                prefixes |= {"/".join(parts[: n + 1]) + "/" for n in range(min(len(parts), 5))}
            for prefix in prefixes:
                found[prefix].append(self._size(key))
        return [
            {"prefix": p, "depth": p.count("/"), "objects": len(sizes), "size_bytes": sum(sizes)}
            for p, sizes in sorted(found.items())
        ]
