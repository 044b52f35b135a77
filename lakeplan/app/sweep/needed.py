"""What of a mark anything needs now, whatever the mark or a sweep of it knew: for copies in quarantine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from lakeplan.app.sweep.look import read_rules, take_look
from lakeplan.app.sweep.others import foreign_ranges
from lakeplan.app.sweep.ports import Site, SweepPorts
from lakeplan.errors import GateRefused, LakeplanError
from lakeplan.formats.sweep_keys import mark_prefix
from lakeplan.model.mark import Mark
from lakeplan.model.sweep import Part
from lakeplan.ports.sweep import RecheckRequest

MOST_NEEDED = 1_000_000


@dataclass(frozen=True)
class Needed:
    """Addresses of a mark that something needs. ``inspected_at``: when this machine began to inspect the
    repository itself."""

    addresses: frozenset[str]
    inspected_at: datetime


def needed_now(
    site: Site,
    mark: Mark,
    ports: SweepPorts,
    *,
    now: datetime,
    keep: Callable[[], None],
    parts: tuple[Part, ...] | None = None,
) -> Needed:
    """Inspects as a mark does: other repositories (those of the tree's other servers too), uncommitted data,
    then a refs dump; with protected tags and holds. ``now`` is the safest of all clocks; ``keep`` is called
    now and then. ``parts``: only what these name; None for the whole mark. Raises GateRefused for a
    repository that cannot be read, and LakeplanError for whatever makes an inspection unsafe."""
    foreign, unreadable = foreign_ranges(site, keep=keep)
    if unreadable:
        name, why = next(iter(unreadable.items()))
        raise GateRefused(
            f"repository {name} cannot be read, and may need objects of this one: {why}",
            where=site.key,
            hint="grant the user of this tree read access (retention and List permissions)",
        )
    inspected_at = ports.now()
    look = take_look(site, read_rules(site), now=now, before=None)
    keep()
    kept, prefixes = look.kept_metaranges(), look.held_prefixes
    addresses = ports.marker.held_again(
        RecheckRequest(
            store=site.store,
            parts=mark.marked.going if parts is None else parts,
            prefix=mark_prefix(mark.mark_id),
            storage_namespace=site.repository.storage_namespace,
            metadata=site.reader.metadata_reader(site.desired.name),
            uncommitted=look.uncommitted,
            metaranges=tuple(sorted(kept)),
            other_metaranges=tuple(sorted(look.metaranges().keys() - kept)) if prefixes else (),
            held_prefixes=prefixes,
            foreign=foreign,
        ),
        limit=MOST_NEEDED,
    )
    if len(addresses) > MOST_NEEDED:
        raise LakeplanError(
            f"more than {MOST_NEEDED:,} objects of the mark are needed again",
            where=f"{site.key}: mark {mark.mark_id}",
            hint=f"run `lakeplan sweep restore {mark.mark_id} --path PATH`, part by part",
        )
    return Needed(addresses, inspected_at)
