"""What keeps data from lakeplan's sweeps beside the rules: holds, tags, pins, other repositories."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypedDict

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import active_holds, commits_named, reachable
from lakeplan.retention.patterns import matches
from lakeplan.sweep.documents import TraceRow
from lakeplan.values.pins import has_pin_commit
from lakeplan.values.repository import Refs
from lakeplan.values.sweep import Hold

NAMED = 10


class ProtectionRow(TypedDict):
    """``kind`` ``pin`` is a branch, which the rules of every collector keep; the others count for lakeplan's
    sweeps alone. ``prefix``: of a hold on one, or of no object's path. ``until``: the last day of a hold."""

    kind: Literal["hold", "tag", "pin", "repository"]
    name: str
    prefix: str | None
    until: str | None
    reason: str


@dataclass(frozen=True)
class Known:
    """What a tree and a storage add to the rules. ``marks`` finds the marks that name addresses, with notes;
    ``others`` the repositories whose full addresses mean them."""

    refs: Refs | None = None
    holds: tuple[Hold, ...] = ()
    protected_tags: tuple[str, ...] = ()
    min_age_seconds: int | None = None
    marks: Callable[[Collection[str]], tuple[Mapping[str, Sequence[TraceRow]], Sequence[str]]] | None = None
    others: Callable[[Collection[str]], tuple[Mapping[str, Sequence[str]], Sequence[str]]] | None = None


@dataclass(frozen=True)
class Protections:
    """Of one command: the tree's holds and tags over one history."""

    graph: CommitGraph
    known: Known
    as_of: datetime

    def rows(
        self, numbers: Sequence[int], paths: Collection[str], others: Sequence[str] = ()
    ) -> list[ProtectionRow]:
        """Of an object that these commits hold at these paths, or of a commit."""
        ids = {self.graph.ids[number] for number in numbers}
        found = [*self._holds(ids, paths), *self._tags(ids), *self._pins(ids)]
        return [*found, *(_row("repository", name) for name in others)]

    def _holds(self, ids: Collection[str], paths: Collection[str]) -> Iterator[ProtectionRow]:
        for hold in active_holds(self.known.holds, self.as_of):
            if hold.kind == "prefix":
                held = any(path.startswith(hold.name) for path in paths)
            else:
                held = not self._named(hold).isdisjoint(ids)
            if held:
                prefix = hold.name if hold.kind == "prefix" else None
                name = "prefix" if hold.kind == "prefix" else f"{hold.kind} {hold.name}"
                until = None if hold.until is None else hold.until.isoformat()
                yield {**_row("hold", name), "prefix": prefix, "until": until, "reason": hold.reason}

    def _named(self, hold: Hold) -> set[str]:
        """A hold on a branch names all that its HEAD was made from."""
        if self.known.refs is None:
            return set()
        named = commits_named(hold, self.known.refs)
        if hold.kind != "branch":
            return named
        return reachable({commit.id: commit for commit in self.known.refs.commits}, named)

    def _tags(self, ids: Collection[str]) -> Iterator[ProtectionRow]:
        tags = sorted(
            tag.id
            for tag in self.graph.tags
            if tag.commit_id in ids and any(matches(tag.id, glob) for glob in self.known.protected_tags)
        )
        yield from (_row("tag", name) for name in tags[:NAMED])

    def _pins(self, ids: Collection[str]) -> Iterator[ProtectionRow]:
        pins = sorted(
            b.id for b in self.graph.branches if b.commit_id in ids and has_pin_commit(b.id, b.commit_id)
        )
        yield from (_row("pin", name) for name in pins[:NAMED])


def _row(kind: Literal["hold", "tag", "pin", "repository"], name: str) -> ProtectionRow:
    return {"kind": kind, "name": name, "prefix": None, "until": None, "reason": ""}
