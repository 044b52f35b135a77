"""What is asked of the objects of a namespace: which go under some rule sets, or when rules change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakeplan.model.simulation import Transition
from lakeplan.simulation.exchange import Of, to_bytes
from lakeplan.simulation.going import goes, prefix_rows
from lakeplan.simulation.rulesets import RuleSetBits
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.sets import Class
from lakeplan.simulation.shown import Naming, records_of

CANDIDATES = Seen.ENTRY | Seen.CANDIDATE


@dataclass(frozen=True)
class Nothing:
    """Only counts are asked for."""

    def wants(self, each: Class) -> bool:
        return False

    def takes(self, each: Class) -> bool:
        return False

    def answers(self, objects: pa.Table) -> Iterator[tuple[int, Of, bytes]]:
        yield from ()


@dataclass(frozen=True)
class GoesUnderRules:
    """What the server's collector would delete under any of some rule sets. ``listing``: what is stored was
    listed. ``rows``: whether the objects are wanted too, beside amounts by prefix."""

    rule_sets: Sequence[RuleSetBits]
    listing: bool
    rows: bool

    def wants(self, each: Class) -> bool:
        return not all(each.any_mask & bits.server for bits in self.rule_sets)

    def takes(self, each: Class) -> bool:
        wanted = Seen.OLD if self.listing else Seen.ENTRY | Seen.CANDIDATE
        if each.seen & wanted != wanted or each.seen & Seen.UNCOMMITTED:
            return False
        return any(not each.any_mask & bits.server for bits in self.rule_sets)

    def answers(self, objects: pa.Table) -> Iterator[tuple[int, Of, bytes]]:
        for bits in self.rule_sets:
            going = goes(objects, bits, listing=self.listing)
            if going.num_rows:
                yield 0, Of.PREFIXES, to_bytes(prefix_rows(bits.name, going))
        if self.rows:
            yield 0, Of.OBJECTS, to_bytes(objects)


@dataclass(frozen=True)
class GoesInTransitions:
    """What changes of rules let go. ``detail``: whose objects count by prefix. ``naming``: whose objects are
    named one by one."""

    detail: Transition
    naming: Naming

    @property
    def _all(self) -> tuple[Transition, ...]:
        named = (Transition(before, after) for _, before, after in self.naming.bits)
        return (self.detail, *named)

    def wants(self, each: Class) -> bool:
        if each.seen & Seen.LISTED and not each.seen & Seen.ENTRY:
            return False  # an entry has the text
        return not all(each.any_mask & transition.after for transition in self._all)

    def takes(self, each: Class) -> bool:
        if each.seen & CANDIDATES != CANDIDATES:
            return False
        return any(transition.goes(each.any_mask) for transition in self._all)

    def answers(self, objects: pa.Table) -> Iterator[tuple[int, Of, bytes]]:
        masks = objects["mask"].to_numpy()
        going = (masks & self.detail.before != 0) & (masks & self.detail.after == 0)
        if going.any():
            yield 0, Of.PREFIXES, to_bytes(prefix_rows("", objects.filter(pa.array(going))))
        if self.naming.bits:
            yield 0, Of.RECORDS, records_of(objects, self.naming)
