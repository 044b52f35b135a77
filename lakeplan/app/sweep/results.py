"""What the records of a sweep say became of its objects. A part that was tried again has several: the newest
stands for all of them."""

from __future__ import annotations

from collections.abc import Iterator

from lakeplan.app.sweep.ports import Site
from lakeplan.formats.mark_parts import end_of, read_deleted
from lakeplan.formats.sweep_keys import attempt_of, part_id, result_key, sweep_prefix
from lakeplan.model.mark import Mark
from lakeplan.model.sweep import Part, PartEnd


def newest_attempts(site: Site, mark_id: str) -> dict[str, int]:
    """The number of the newest record by ``part_id``; parts that nobody finished are missing, and files that
    are no records."""
    found: dict[str, int] = {}
    prefix = sweep_prefix(mark_id)
    for stored in site.store.list_objects(f"{prefix}results/"):
        if (attempt := attempt_of(stored.key, prefix)) is not None:
            name = part_id(stored.key)
            found[name] = max(attempt, found.get(name, 0))
    return found


def read_end(site: Site, mark_id: str, part: Part, attempt: int) -> PartEnd:
    """The end of a part by one of its records. Raises StorageError, and FormatError for a damaged record."""
    key = result_key(sweep_prefix(mark_id), part.name, attempt)
    return end_of(part.name, site.store.read(key), where=f"{site.store.url}/{key}")


def deleted(site: Site, mark: Mark) -> Iterator[tuple[str, int]]:
    """Addresses and sizes of all objects that are recorded as deleted."""
    attempts = newest_attempts(site, mark.mark_id)
    for part in mark.marked.going:
        if (attempt := attempts.get(part_id(part.name))) is not None:
            key = result_key(sweep_prefix(mark.mark_id), part.name, attempt)
            yield from read_deleted(site.store.read(key), name=f"{site.store.url}/{key}").items()
