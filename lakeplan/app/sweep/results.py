"""What the records of a sweep say became of its objects. A part that was tried again has several: the newest
stands for all of them."""

from __future__ import annotations

from collections.abc import Iterator

from lakeplan.app.sweep.ports import Site
from lakeplan.formats.mark_parts import read_results
from lakeplan.formats.sweep_keys import attempt_of, part_id, result_key, sweep_prefix
from lakeplan.model.mark import Mark
from lakeplan.model.sweep import Part, Status


def newest_attempts(site: Site, mark_id: str) -> dict[str, int]:
    """The number of the newest record by ``part_id``; parts that nobody finished are missing."""
    found: dict[str, int] = {}
    for stored in site.store.list_objects(f"{sweep_prefix(mark_id)}results/"):
        name, attempt = part_id(stored.key), attempt_of(stored.key)
        found[name] = max(attempt, found.get(name, 0))
    return found


def read_record(site: Site, mark_id: str, part: Part, attempt: int) -> bytes:
    return site.store.read(result_key(sweep_prefix(mark_id), part.name, attempt))


def deleted(site: Site, mark: Mark) -> Iterator[str]:
    """Addresses of all objects that are recorded as deleted."""
    attempts = newest_attempts(site, mark.mark_id)
    for part in mark.marked.going:
        if (attempt := attempts.get(part_id(part.name))) is not None:
            rows = read_results(read_record(site, mark.mark_id, part, attempt), name=part.name)
            yield from (address for address, (status, _) in rows.items() if status is Status.DELETED)
