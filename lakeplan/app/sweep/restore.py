"""``sweep restore``: brings objects back out of quarantine, to the addresses that commits know them by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from lakeplan.app.run import Run
from lakeplan.app.state import Lease
from lakeplan.app.sweep.look import take_look
from lakeplan.app.sweep.ports import Site, SweepPorts
from lakeplan.app.sweep.run import LEASE_SECONDS, MAX_SAVED
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
    lease = Lease(ports.state, site.key, run.holder, run.now, run.is_gone, seconds=LEASE_SECONDS)
    with lease:
        chosen = sorted(_chosen(site, mark, ports, options))
        if not chosen:
            raise UsageError(
                "nothing in quarantine is chosen",
                where=f"{site.key}: mark {mark.mark_id}",
                hint="check --path",
            )
        came, there, failed = _copy_back(site, mark, chosen, ports)
        unheld = sorted(set(came) - _held_now(site, mark, ports)) if came else []
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
            "collectable_again": len(unheld),
        }
        key = f"{sweep_prefix(mark.mark_id)}restored/{run.run_id}.json"
        site.store.put(key, (json.dumps(document, sort_keys=True) + "\n").encode())
        return document


def _chosen(site: Site, mark: Mark, ports: SweepPorts, options: RestoreOptions) -> Iterator[str]:
    of_commit = _of_commit(site, mark, ports, options.commit) if options.commit else None
    wanted = _path_filter(options.path)
    for part in mark.marked.going:
        rows = _rows(site, mark_prefix(mark.mark_id) + part.name, part)
        results = _results(site, mark, part)
        for address, paths in zip(
            rows.column("address").to_pylist(), rows.column("paths").to_pylist(), strict=True
        ):
            if results.get(address) != Status.DELETED.value:
                continue
            if (of_commit is None or address in of_commit) and wanted(paths or []):
                yield address


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


def _held_now(site: Site, mark: Mark, ports: SweepPorts) -> frozenset[str]:
    """Addresses of the mark that a kept commit or staged data holds: a collection leaves these alone."""
    look = take_look(site, now=ports.now(), before=None)
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
    site: Site, mark: Mark, chosen: list[str], ports: SweepPorts
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

        ends = dict(zip(chosen, pool.map(one, chosen), strict=True))
    came = [address for address, end in ends.items() if end == ""]
    there = [address for address, end in ends.items() if end is None]
    return came, there, {address: end for address, end in ends.items() if end}
