"""Staged (uncommitted) data: it protects what it holds. Asked of branches by GET, or out of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from lakeplan.app.explain_search import AddressBook
from lakeplan.errors import NotFound, PermissionDenied
from lakeplan.model.objects import AddressType
from lakeplan.ports.lakefs import StagingReader

WORKERS = 8
MAX_BRANCHES = 500
MAX_ENTRIES = 1_000
"""Staged objects of all branches that are looked at one by one when no path is known."""


@dataclass(frozen=True)
class Staged:
    """``holders``: per address, what holds it staged (``branch main``, ``run …``). ``paths``: per address,
    the paths it is staged at. ``looked``: what was looked at, in words. ``complete``: nothing was left out,
    so what is not here is not staged."""

    holders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    looked: str = ""
    complete: bool = True


class Staging(Protocol):
    def find(self, addresses: Collection[str], paths: Sequence[str], branch: str | None) -> Staged:
        """What is staged at ``paths`` (on one branch, or all when None; without paths: everywhere), and what
        of ``addresses`` is staged anywhere that can be looked at."""


@dataclass(frozen=True)
class RunStaging:
    """The newest run of uncommitted addresses of a namespace. ``run_id`` None: none is at hand."""

    run_id: str | None
    addresses: frozenset[str]

    def find(self, addresses: Collection[str], paths: Sequence[str], branch: str | None) -> Staged:
        if self.run_id is None:
            return Staged(complete=False)  # the world's own note says so
        named = (f"run {self.run_id}",)
        return Staged(
            {address: named for address in addresses if address in self.addresses},
            looked=f"the run of uncommitted addresses {self.run_id}",
        )


@dataclass(frozen=True)
class BranchStaging:
    """A live server: the uncommitted changes of its branches."""

    reader: StagingReader
    repository: str
    branches: tuple[str, ...]
    book: AddressBook

    def find(self, addresses: Collection[str], paths: Sequence[str], branch: str | None) -> Staged:
        asked = self.branches if branch is None else (branch,)
        left_out = len(asked) > MAX_BRANCHES
        found: dict[str, set[str]] = {}
        at: dict[str, set[str]] = {}
        capped = False
        with ThreadPoolExecutor(WORKERS) as pool:
            for name, (seen, cut) in zip(
                asked, pool.map(lambda b: self._on_branch(b, paths), asked[:MAX_BRANCHES]), strict=False
            ):
                capped = capped or cut
                for path, address in seen:
                    found.setdefault(address, set()).add(f"branch {name}")
                    at.setdefault(address, set()).add(path)
        where = f"{min(len(asked), MAX_BRANCHES)} of {len(asked)} branches"
        what = f"at {', '.join(paths[:3])}" if paths else "everywhere"
        what += ", and not all of it could be seen" if capped else ""
        return Staged(
            {address: tuple(sorted(names)) for address, names in found.items()},
            {address: tuple(sorted(names)) for address, names in at.items()},
            looked=f"staged changes of {where}, {what}",
            # An old address can be staged again at a path that nobody knows of.
            complete=not paths and not capped and not left_out,
        )

    def _on_branch(self, branch: str, paths: Sequence[str]) -> tuple[list[tuple[str, str]], bool]:
        """(path, address) of staged objects, and whether some were left out."""
        found: list[tuple[str, str]] = []
        try:
            return found, self._look(branch, paths, found)
        except (PermissionDenied, NotFound):
            return found, True  # not allowed to look, or the branch is gone: what is there stays unknown

    def _look(self, branch: str, paths: Sequence[str], found: list[tuple[str, str]]) -> bool:
        for wanted in paths or ("",):
            listed = self.reader.list_uncommitted(self.repository, branch, wanted)
            for seen, path in enumerate(listed):
                if paths and path != wanted:
                    break  # in order of paths: what the prefix also matches comes later
                if seen == MAX_ENTRIES:
                    return True
                full = self.reader.physical_address(self.repository, branch, path)
                if full is not None:
                    keys = self.book.protected(full, AddressType.BY_PREFIX)
                    found += [(path, key) for key in keys or [full]]
        return False
