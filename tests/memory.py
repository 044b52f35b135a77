"""Small in-memory ports: the real adapters have their own suites."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone

import pytest

from lakeplan.errors import LakeplanError, RepositoryNotFound, WriteConflict
from lakeplan.stores.open import Versioned
from lakeplan.values.rules import GcRules


class MemoryState:
    """A ``StateWriter`` in a dict that can be copied, lost and put back. Versions are never used twice."""

    def __init__(self) -> None:
        self.records: dict[str, Versioned] = {}
        self.writes = 0

    def read(self, key: str) -> Versioned | None:
        return self.records.get(key)

    def list_keys(self, prefix: str = "") -> list[str]:
        return sorted(k for k in self.records if k.startswith(prefix))

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        self._check(key, if_version)
        self.writes += 1
        version = f"{self.writes}-{hashlib.sha256(data).hexdigest()[:8]}"
        self.records[key] = Versioned(data, version)
        return version

    def delete(self, key: str, *, if_version: str) -> None:
        self._check(key, if_version)
        del self.records[key]

    def _check(self, key: str, if_version: str | None) -> None:
        current = self.records.get(key)
        if (current.version if current else None) != if_version:
            raise WriteConflict("another writer was first", where=key)


class MemoryServer:
    """Rules of a few repositories: reader and writer of GC rules, with a log of requests."""

    def __init__(self, rules: dict[str, GcRules | None]) -> None:
        self.rules = dict(rules)
        self.log: list[str] = []
        self.denied: set[str] = set()
        self.time = datetime(2026, 1, 1, tzinfo=timezone.utc)
        self.fails: dict[str, LakeplanError] = {}
        self.stores: dict[str, GcRules] = {}

    @property
    def reader(self) -> MemoryServer:
        return self

    @property
    def writer(self) -> MemoryServer:
        return self

    def server_time(self, repository: str) -> datetime:
        return self.time

    def metadata(self, repository: str) -> dict[str, str]:
        """No tree claims a repository here."""
        return {}

    def get_gc_rules(self, repository: str) -> GcRules | None:
        self.log.append(f"get {repository}")
        if repository not in self.rules:
            raise RepositoryNotFound("repository not found", where=repository)
        return self.rules[repository]

    def can_set_gc_rules(self, repository: str) -> bool:
        return repository not in self.denied

    def set_gc_rules(self, repository: str, rules: GcRules) -> None:
        self.log.append(f"set {repository}")
        if repository in self.fails:
            raise self.fails[repository]
        self.rules[repository] = self.stores.get(repository, rules)

    def delete_gc_rules(self, repository: str) -> None:
        self.log.append(f"delete {repository}")
        self.rules[repository] = None


@pytest.fixture
def state() -> MemoryState:
    return MemoryState()


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer({"a": GcRules(30), "b": GcRules(5), "c": None})
