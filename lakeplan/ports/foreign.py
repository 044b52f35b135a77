"""What is known of other repositories' ranges, so that none of them is read twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class ForeignFacts:
    """Facts that never change, because an id is a hash of what it names. ``ranges``: by range id, the entries
    that may mean an object of another repository, packed (``formats.odd_entries``); empty for none.
    ``metaranges``: by metarange id, those of its ranges that have any. A metarange is in it only when all its
    ranges are known."""

    ranges: dict[str, bytes] = field(default_factory=dict)
    metaranges: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def update(self, other: ForeignFacts) -> None:
        self.ranges.update(other.ranges)
        self.metaranges.update(other.metaranges)

    def only(self, metaranges: Iterable[str]) -> ForeignFacts:
        """What is known of these metaranges, without ranges that hold nothing."""
        some = {id: self.metaranges[id] for id in metaranges if id in self.metaranges}
        return ForeignFacts({id: self.ranges[id] for ids in some.values() for id in ids}, some)


class ForeignCache(Protocol):
    """Facts by repository. They license deletions: an implementation gives back only what it stored itself,
    for this user, where nobody else can write. One that cannot be read or written is as good as an empty
    one, so neither method raises for that."""

    @property
    def where(self) -> str:
        """As messages name it."""

    def load(self, repository: str) -> ForeignFacts: ...
    def save(self, repository: str, facts: ForeignFacts, *, needed: Iterable[str]) -> None:
        """Adds facts to those that are stored. ``needed``: metaranges of today, which stay when there is too
        much."""
