"""Observations of branches by ``branches run``, kept safe outside the state.

A branch that was deleted and made again between two runs, at the same HEAD or further up the same line, is
the one before to everybody who looks (examples/branches). Nothing else makes a branch look older than it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tests.chaos.truth import History


@dataclass(frozen=True)
class Seen:
    """Moments are the server's, in microseconds."""

    first: int
    first_head: str
    head: str
    moved: int


@dataclass(frozen=True)
class Sighting:
    """The branches and HEADs that a process was shown."""

    at_us: int
    heads: Mapping[str, str]


class Sightings:
    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def store(self, sighting: Sighting, deleted: Collection[str], history: History) -> None:
        """A run stored what it saw, without the branches that it deleted."""
        seen = self._with(sighting, history)
        self._seen = {name: one for name, one in seen.items() if name not in deleted}

    def forget(self, name: str) -> None:
        """lakeplan deletes it, and records that first."""
        self._seen.pop(name, None)

    def ages(self, name: str, sighting: Sighting, history: History, now_us: int) -> tuple[int, int]:
        """For how long runs observed a branch, and observed it unchanged, up to this sighting."""
        one = self._with(sighting, history).get(name)
        return (0, 0) if one is None else (now_us - one.first, now_us - one.moved)

    def _with(self, sighting: Sighting, history: History) -> dict[str, Seen]:
        found, at = {}, sighting.at_us
        for name, head in sighting.heads.items():
            known = self._seen.get(name)
            if known is None or not _is_on_line(history, known.first_head, head):
                known = Seen(at, head, head, at)
            elif known.head != head:
                known = replace(known, head=head, moved=at)
            found[name] = known
        return found


def _is_on_line(history: History, first: str, head: str | None) -> bool:
    """Whether main parents lead from a HEAD to the first one."""
    while head is not None and head != first and head in history.commits:
        head = history.commits[head].main_parent
    return head == first
