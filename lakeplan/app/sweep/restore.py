"""``sweep restore``: brings objects back out of quarantine, to the addresses that commits know them by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from lakeplan.app.run import Run
from lakeplan.app.sweep.clock import site_lease
from lakeplan.app.sweep.look import read_rules, take_look
from lakeplan.app.sweep.ports import Site, SweepPorts
from lakeplan.app.sweep.run import MAX_SAVED
from lakeplan.app.sweep.store_marks import StoredMark
from lakeplan.errors import LakeplanError, StorageError, StorageNotFound, UsageError
from lakeplan.formats.mark_parts import read_part
from lakeplan.formats.sweep_keys import mark_prefix, quarantine_prefix, result_key, sweep_prefix
from lakeplan.model.mark import Mark
from lakeplan.model.moments import utc_text
from lakeplan.model.sweep import Part, Status
from lakeplan.ports.sweep import RecheckRequest

RESTORE_FORMAT = "lakeplan.restore/v1"
THREADS = 16
KEYS_A_LEASE = 5_000
"""Copies between two renewals of the lease."""
PATHS_NAMED = 10
"""Paths of an object that a mark names."""
NAMED = 100
"""Failures that the document names; all are counted."""


@dataclass(frozen=True)
class RestoreOptions:
    """``path``: an exact path, or everything below one that ends in ``/``. ``commit``: what it holds."""

    path: str | None = None
    commit: str | None = None


def restore(
    site: Site, stored: StoredMark, ports: SweepPorts, run: Run, options: RestoreOptions
) -> dict[str, Any]:
    """Copies back what the sweep of a mark quarantined. What is at an address already stays as it is; the
    copies stay in quarantine until they are purged. Returns the document (``schemas/restore.v1.json``).

    Raises UsageError when the mark's objects were not quarantined, or none is chosen.
    """
    mark = stored.mark
    if mark.settings.mode != "quarantine":
        raise UsageError(
            "this mark's objects were deleted, not quarantined: they cannot come back",
            where=f"{site.key}: mark {mark.mark_id}",
            hint="sweep.mode: quarantine keeps them until sweep purge",
        )
    lease = site_lease(site, ports.state, run)
    with lease:
        chosen_paths = dict(_chosen(site, mark, ports, options))
        chosen = sorted(address for address, takes in chosen_paths.items() if takes)
        if not chosen:
            raise UsageError(
                "nothing in quarantine is chosen",
                where=f"{site.key}: mark {mark.mark_id}",
                hint="check --path and --commit"
                if options.path or options.commit
                else f"lakeplan sweep report {mark.mark_id} says what became of the mark",
            )
        held, note = _held_or_why(site, mark, ports)
        came, there, failed = _copy_back(site, mark, chosen, ports, lease.renew)
        document = {
            "format": RESTORE_FORMAT,
            "mark_id": mark.mark_id,
            "repository": site.key,
            "at": utc_text(ports.now()),
            "by": dict(run.holder),
            "restored": len(came),
            "already_there": len(there),
            "failed": len(failed),
            "failures": dict(list(failed.items())[:NAMED]),
            "collectable_again": None if held is None else len(set(came) - held),
            "note": "; ".join(text for text in (note, _cut_note(chosen_paths, options)) if text),
        }
        key = f"{sweep_prefix(mark.mark_id)}restored/{run.run_id}.json"
        site.store.put(key, (json.dumps(document, sort_keys=True) + "\n").encode())
        return document


def _chosen(
    site: Site, mark: Mark, ports: SweepPorts, options: RestoreOptions
) -> Iterator[tuple[str, bool | None]]:
    """Addresses in quarantine, and whether they are wanted; None: not by the ten paths that a mark names,
    and there may be more."""
    of_commit = _of_commit(site, mark, ports, options.commit) if options.commit else None
    wanted = _path_filter(options.path)
    for part in mark.marked.going:
        rows = _rows(site, mark_prefix(mark.mark_id) + part.name, part)
        in_quarantine = _in_quarantine(site, mark, part)
        for address, paths in zip(
            rows.column("address").to_pylist(), rows.column("paths").to_pylist(), strict=True
        ):
            if (of_commit is not None and address not in of_commit) or not in_quarantine(address):
                continue
            if wanted(paths or []):
                yield address, True
            elif len(paths or []) >= PATHS_NAMED:
                yield address, None


def _cut_note(chosen: dict[str, bool | None], options: RestoreOptions) -> str:
    unsure = sum(takes is None for takes in chosen.values())
    if not unsure:
        return ""
    return (
        f"{unsure:,} objects have more paths than a mark names, and may be at {options.path} too:"
        " they were not restored"
    )


def _in_quarantine(site: Site, mark: Mark, part: Part) -> Callable[[str], bool]:
    """Whether the sweep took an object of a part. What an interrupted run had no time to write down is asked
    of the store: a copy, and no original."""
    results = _results(site, mark, part)
    if results:
        return lambda address: results.get(address) == Status.DELETED.value
    prefix = quarantine_prefix(mark.mark_id)
    return lambda address: site.store.stat(prefix + address) is not None and site.store.stat(address) is None


def _path_filter(path: str | None) -> Callable[[list[str]], bool]:
    if path is None:
        return lambda paths: True
    if path.endswith("/"):
        return lambda paths: any(p.startswith(path) for p in paths)
    return lambda paths: path in paths


def _rows(site: Site, key: str, part: Part) -> Any:
    return read_part(site.store.read(key), name=f"{site.store.url}/{key}", sha256=part.sha256)


def _results(site: Site, mark: Mark, part: Part) -> dict[str, str]:
    """Status by address; nothing for a part that nobody finished."""
    key = result_key(sweep_prefix(mark.mark_id), part.name)
    try:
        rows = read_part(site.store.read(key), name=f"{site.store.url}/{key}", sha256=None)
    except StorageNotFound:
        return {}
    return dict(zip(rows.column("address").to_pylist(), rows.column("status").to_pylist(), strict=True))


def _of_commit(site: Site, mark: Mark, ports: SweepPorts, commit: str) -> frozenset[str]:
    """Addresses of the mark that a commit holds. Raises ServerError for a commit that is not there."""
    metarange = site.reader.get_commit(site.desired.name, commit).meta_range_id
    return _held(site, mark, ports, (metarange,) if metarange else (), ())


def _held_or_why(site: Site, mark: Mark, ports: SweepPorts) -> tuple[frozenset[str] | None, str]:
    """Before anything is copied back: what is held now; or None, and why that is not known."""
    try:
        return _held_now(site, mark, ports), ""
    except LakeplanError as error:
        return None, f"what kept commits hold could not be looked at ({error.message})"


def _held_now(site: Site, mark: Mark, ports: SweepPorts) -> frozenset[str]:
    """Addresses of the mark that a kept commit or staged data holds: a collection leaves these alone."""
    look = take_look(site, read_rules(site), now=ports.now(), before=None)
    return _held(site, mark, ports, tuple(sorted(look.kept_metaranges())), look.uncommitted)


def _held(
    site: Site, mark: Mark, ports: SweepPorts, metaranges: tuple[str, ...], uncommitted: tuple[str, ...]
) -> frozenset[str]:
    request = RecheckRequest(
        store=site.store,
        parts=mark.marked.going,
        prefix=mark_prefix(mark.mark_id),
        storage_namespace=site.repository.storage_namespace,
        metadata=site.reader.metadata_reader(site.desired.name),
        uncommitted=uncommitted,
        metaranges=metaranges,
    )
    held = ports.marker.held_again(request, limit=MAX_SAVED)
    if len(held) > MAX_SAVED:
        raise LakeplanError(
            f"more than {MAX_SAVED:,} objects at once", where=site.key, hint="restore by --path, part by part"
        )
    return held


def _copy_back(
    site: Site, mark: Mark, chosen: list[str], ports: SweepPorts, keep: Callable[[], None]
) -> tuple[list[str], list[str], dict[str, str]]:
    """What came back, what was there already, and what failed, with why."""
    prefix = quarantine_prefix(mark.mark_id)

    def bring(address: str) -> str | None:
        """None: it was there already; "": it came back; else why it did not."""
        try:
            if site.store.stat(address) is not None:
                return None
            site.store.copy(prefix + address, address)
        except StorageNotFound:
            return "its copy is not in quarantine any more"
        except StorageError as error:
            return error.message
        return ""

    with ports.progress.task("restoring", len(chosen)) as step, ThreadPoolExecutor(THREADS) as pool:

        def one(address: str) -> str | None:
            try:
                return bring(address)
            finally:
                step()

        ends: dict[str, str | None] = {}
        for start in range(0, len(chosen), KEYS_A_LEASE):
            keep()
            some = chosen[start : start + KEYS_A_LEASE]
            ends.update(zip(some, pool.map(one, some), strict=True))
    came = [address for address, end in ends.items() if end == ""]
    there = [address for address, end in ends.items() if end is None]
    return came, there, {address: end for address, end in ends.items() if end}
