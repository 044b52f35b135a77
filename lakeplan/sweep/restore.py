"""``sweep restore``: copies objects from quarantine back to their addresses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from lakeplan.errors import (
    FormatError,
    LakeplanError,
    StorageError,
    StorageNotFound,
    UsageError,
    WriteConflict,
)
from lakeplan.formats.namespace import (
    CLOCK_FILE,
    SWEEPS_PREFIX,
    is_candidate_key,
    mark_prefix,
    quarantine_prefix,
    sweep_prefix,
)
from lakeplan.review.run import Run, note_step, open_journal, read_back
from lakeplan.simulation.requests import RecheckRequest
from lakeplan.state.sweeps import read_sweeps, record_restore
from lakeplan.sweep.deleting import KEYS_A_LEASE, still_stored
from lakeplan.sweep.documents import RestoreDocument
from lakeplan.sweep.inspection import MOST_NEEDED, needed_now
from lakeplan.sweep.mark import by_text
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.observed_rules import site_clocks, site_lease
from lakeplan.sweep.ports import KEEP, NAMED, STOPPED, Site, SweepPorts
from lakeplan.sweep.records import StoredMark, deleted, mark_ids, read_marked, read_stored
from lakeplan.values.records import json_line, utc_text
from lakeplan.values.repository import batches
from lakeplan.values.simulation import Part
from lakeplan.values.units import count_of

RESTORE_FORMAT: Final = "lakeplan.restore/v1"
THREADS = 16
PATHS_NAMED = 10
"""The most paths of an object in a mark."""
FEW = 1_000
"""Up to this many copies are requested one by one instead of listed."""
CONFLICT = "another object was written to the address during the restore"
GONE = "its copy is no longer in quarantine"
RESIZED = "its copy in quarantine was changed: the size differs from that of the object"
NOT_SHOWN = "its copy is in quarantine, but the store does not show the restored object"
UNKNOWN = "the store did not confirm the restore"


@dataclass(frozen=True)
class RestoreOptions:
    """Which objects to restore. ``path``: those at this path, or below it if it ends in ``/``. ``commit``:
    those in this commit."""

    path: str | None = None
    commit: str | None = None


def restore(
    site: Site, stored: StoredMark, ports: SweepPorts, run: Run, options: RestoreOptions
) -> RestoreDocument:
    """Copies the objects in the quarantine of a mark back, whatever the records of its sweep say, and returns
    the document (``schemas/restore.v1.json``). Replaces no object. The copies stay in quarantine until they
    are purged.

    Raises UsageError when nothing is in quarantine, or no copy matches the options.
    """
    mark = stored.mark
    lease = site_lease(site, ports.state, run)
    with lease:
        wanted = None if options == RestoreOptions() else _wanted(site, mark, ports, options)
        copies, sizes = _copies(site, mark, wanted)
        lost, lost_note = _without_copy(site, mark, ports, wanted, copies)
        if not (copies or lost):
            raise _nothing_to_restore(mark)
        chosen_paths: Mapping[str, bool | None] = (
            dict.fromkeys(copies, True) if wanted is None else wanted.among(copies)
        )
        chosen = sorted(address for address, takes in chosen_paths.items() if takes)
        if not (chosen or lost):
            raise UsageError(
                "no object in quarantine matches the selection",
                where=mark.where,
                hint="Check --path and --commit.",
            )
        parts = mark.marked.going if wanted is None else wanted.parts
        needed, note = _needed_or_why(site, mark, parts, ports, lease.renew, by_text(run))
        journal = open_journal(ports.state, run, "sweep restore")
        with suppress(LakeplanError):  # a restore must work without the state too
            journal.step(site.key, status="pending", mark_id=mark.mark_id)
        copied, existing, failed = _copy_back(
            site, mark, {a: sizes[a] for a in chosen}, ports, lease.renew, run.sleep, copies
        )
        failed |= lost
        others = sum(size != sizes[address] for address, size in existing.items())
        why = "not replaced, because an object of a different size is now at the same address"
        other_note = f"{count_of(others, 'object was', 'objects were')} {why}" if others else ""
        counts = {"restored": len(copied), "already_there": len(existing), "failed": len(failed)}
        journal.record["finished_at"] = run.now().isoformat()
        notes = [note, _cut_note(chosen_paths, options), other_note, lost_note]
        notes.append(note_step(journal, site.key, status="failed" if failed else "applied", counts=counts))
        back = {address for address, size in existing.items() if size == sizes[address]}
        notes.append(_record(site, mark, ports, {*copied}, back))
        document: RestoreDocument = {
            "format": RESTORE_FORMAT,
            "mark_id": mark.mark_id,
            "repository": site.key,
            "at": utc_text(ports.now()),
            "by": dict(run.holder),
            "restored": len(copied),
            "already_there": len(existing),
            "failed": len(failed),
            "failures": dict(list(failed.items())[:NAMED]),
            "collectable_again": None if needed is None else len(set(copied) - needed),
            "note": "; ".join(filter(None, notes)),
        }
        key = f"{sweep_prefix(mark.mark_id)}restored/{run.run_id}.json"
        try:
            site.store.put(key, json_line(document))
        except StorageError as error:  # the restored objects must still be reported
            notes.append(f"the namespace has no record of this restore ({error.message})")
            document["note"] = "; ".join(filter(None, notes))
        return document


def _nothing_to_restore(mark: Mark) -> UsageError:
    if mark.settings.mode != "quarantine":
        return UsageError(
            "this mark deletes objects without quarantine, so nothing can be restored",
            where=mark.where,
            hint="To be able to restore objects of later sweeps, set sweep.mode: quarantine.",
        )
    return UsageError(
        "no objects of this mark are in quarantine",
        where=mark.where,
        hint=f"Run `lakeplan sweep show {mark.mark_id}` to see what happened to its objects.",
    )


def _record(site: Site, mark: Mark, ports: SweepPorts, copied: set[str], back: set[str]) -> str:
    """Records the figures in the state. Returns why it could not, or "". ``back``: the objects that were back
    already."""
    before, again = 0, set[str]()
    with suppress(LakeplanError):  # damaged records of sweeps
        again = _deleted_again(site, mark, ports, copied)
    back = back | again
    with suppress(LakeplanError):
        before = sum(address in back for address, _ in deleted(site, mark)) if back else 0
    try:
        record_restore(ports.state, site.key, mark.mark_id, len(copied - again), before=before)
    except LakeplanError as error:
        why = error.message
        return f"the state does not count these objects as restored until you run the command again ({why})"
    return ""


def _deleted_again(site: Site, mark: Mark, ports: SweepPorts, copied: set[str]) -> set[str]:
    """Those of the restored objects that the sweep of a later mark had deleted: they were back before. Empty
    if no earlier restore is recorded."""
    sweep = read_sweeps(ports.state, site.key).get(mark.mark_id)
    if sweep is None or not sweep.restored:
        return set()
    later = (id for id in mark_ids(site.store, SWEEPS_PREFIX) if id > mark.mark_id)
    records = (deleted(site, read_stored(site.store, mark_id).mark) for mark_id in later)
    return {address for record in records for address, _ in record if address in copied}


@dataclass(frozen=True)
class _Wanted:
    """Addresses of the mark, with whether the options match. None: none of the ten paths in the mark matches,
    and the object may have more. ``parts`` contain these addresses. ``sizes`` are those of the objects."""

    addresses: dict[str, bool | None]
    parts: tuple[Part, ...]
    sizes: dict[str, int]

    def among(self, copies: Collection[str]) -> dict[str, bool | None]:
        return {address: takes for address, takes in self.addresses.items() if address in copies}


def _copies(site: Site, mark: Mark, wanted: _Wanted | None) -> tuple[dict[str, int], dict[str, int]]:
    """The sizes of the copies in quarantine, and those of their objects, by address. A few wanted ones are
    requested instead of listed. Keys that the mark does not name, such as incomplete copies, are left out if
    the mark's parts can be read. Otherwise the objects count as unchanged."""
    prefix = quarantine_prefix(mark.mark_id)
    if wanted is not None and len(wanted.addresses) <= FEW:
        requested = site.store.find(sorted(prefix + key for key in wanted.addresses if is_candidate_key(key)))
        if requested:
            copies = {key.removeprefix(prefix): stored.size for key, stored in requested.items()}
            return copies, wanted.sizes
    objects = ((copy.key.removeprefix(prefix), copy.size) for copy in site.store.list_objects(prefix))
    copies = {address: size for address, size in objects if is_candidate_key(address)}
    try:
        sizes = _sizes(site, mark)
    except (StorageNotFound, FormatError):
        return copies, copies
    return {address: size for address, size in copies.items() if address in sizes}, sizes


def _sizes(site: Site, mark: Mark) -> dict[str, int]:
    tables = (read_marked(site.store, mark.mark_id, part) for part in mark.marked.going)
    columns = ((table.column(name).to_pylist() for name in ("address", "size_bytes")) for table in tables)
    return {address: size for pair in columns for address, size in zip(*pair, strict=True)}


def _without_copy(
    site: Site, mark: Mark, ports: SweepPorts, wanted: _Wanted | None, copies: Collection[str]
) -> tuple[dict[str, str], str]:
    """Why selected objects that the sweep moved, and that do not exist, have no copy; or, if a purge may have
    deleted their copies, a note about them."""
    if mark.settings.mode != "quarantine":
        return {}, ""
    try:
        recorded = {address for address, _ in deleted(site, mark, or_gone=False)}
        missing = sorted(a for a in recorded.difference(copies) if wanted is None or wanted.addresses.get(a))
        there = {address for some in batches(missing, FEW) for address in site.store.find(some)}
        lost = [address for address in missing if address not in there]
        sweep = read_sweeps(ports.state, site.key).get(mark.mark_id) if lost else None
    except LakeplanError as error:
        return {}, f"lakeplan could not check whether other objects lack a copy in quarantine ({error})"
    if not lost or sweep is None or not (sweep.purged.objects or sweep.purging):
        return dict.fromkeys(lost, GONE), ""
    objects = count_of(len(lost), "other object was", "other objects were")
    return {}, f"{objects} not restored, because a purge may have deleted the copies"


def _wanted(site: Site, mark: Mark, ports: SweepPorts, options: RestoreOptions) -> _Wanted:
    of_commit = _of_commit(site, mark, ports, options.commit) if options.commit else None
    is_wanted = _path_filter(options.path)
    matching: dict[str, bool | None] = {}
    sizes: dict[str, int] = {}
    parts = []
    for part in mark.marked.going:
        rows = read_marked(site.store, mark.mark_id, part)
        before = len(matching)
        columns = (rows.column(name).to_pylist() for name in ("address", "paths", "size_bytes"))
        for address, paths, size in zip(*columns, strict=True):
            if of_commit is not None and address not in of_commit:
                continue
            if is_wanted(paths or []):
                matching[address] = True
            elif len(paths or []) >= PATHS_NAMED:
                matching[address] = None
            else:
                continue
            sizes[address] = size
        if len(matching) > before:
            parts.append(part)
    return _Wanted(matching, tuple(parts), sizes)


def _cut_note(chosen: Mapping[str, bool | None], options: RestoreOptions) -> str:
    unsure = sum(takes is None for takes in chosen.values())
    if not unsure:
        return ""
    return (
        f"{count_of(unsure, 'object')} may also be at {options.path}, but cannot be restored by path, because"
        f" a mark lists at most {PATHS_NAMED} paths of each object"
    )


def _path_filter(path: str | None) -> Callable[[list[str]], bool]:
    if path is None:
        return lambda paths: True
    if path.endswith("/"):
        return lambda paths: any(p.startswith(path) for p in paths)
    return lambda paths: path in paths


def _of_commit(site: Site, mark: Mark, ports: SweepPorts, commit: str) -> frozenset[str]:
    """The addresses of the mark in a commit. Raises ServerError when the commit does not exist."""
    metarange = site.reader.get_commit(site.desired.name, commit).meta_range_id
    request = RecheckRequest(
        store=site.store,
        parts=mark.marked.going,
        prefix=mark_prefix(mark.mark_id),
        storage_namespace=site.repository.storage_namespace,
        metadata=site.reader.metadata_reader(site.desired.name),
        uncommitted=(),
        metaranges=(metarange,) if metarange else (),
    )
    held = ports.marker.held_again(request, limit=MOST_NEEDED)
    if len(held) > MOST_NEEDED:
        raise LakeplanError(
            f"the command would restore more objects than the limit of {MOST_NEEDED:,}",
            where=site.key,
            hint="Restore the objects in several runs, each with a different --path.",
        )
    return held


def _needed_or_why(
    site: Site, mark: Mark, parts: tuple[Part, ...], ports: SweepPorts, keep: Callable[[], None], by: str
) -> tuple[frozenset[str] | None, str]:
    """Before anything is copied back: what is needed now, so that a collection leaves it alone; or None, and
    why that is not known. An inspection ends holds, so it needs clocks that agree."""
    try:
        key = sweep_prefix(mark.mark_id) + CLOCK_FILE
        now = site_clocks(site, key, ports.now, by=by).earliest
        return needed_now(site, mark, ports, now=now, keep=keep, parts=parts).addresses, ""
    except LakeplanError as error:
        return None, f"the objects that are needed now could not be determined ({error.message})"


def _copy_back(
    site: Site,
    mark: Mark,
    chosen: Mapping[str, int],
    ports: SweepPorts,
    keep: Callable[[], None],
    sleep: Callable[[float], None],
    copies: Mapping[str, int],
) -> tuple[list[str], dict[str, int], dict[str, str]]:
    """Copies objects back. Returns the restored addresses, the sizes of objects that existed already, and why
    others failed. ``chosen``: the sizes of objects, by address. ``copies``: those of their copies."""
    prefix = quarantine_prefix(mark.mark_id)
    copied: list[str] = []
    existing: dict[str, int] = {}
    failed: dict[str, str] = {}
    stop_reason = ""
    """Why nothing more is copied."""

    def copy_one(address: str) -> str:
        """Copies one object. Returns why that failed, or ""."""
        if stop_reason or copies[address] != chosen[address]:
            return stop_reason or RESIZED
        try:
            site.store.copy(prefix + address, address, create=True)
        except WriteConflict:
            return CONFLICT
        except StorageNotFound:  # of the copy, or of the object that the store just wrote
            return GONE if _shown(site, [prefix + address], sleep) == {} else NOT_SHOWN
        except StorageError as error:
            return error.message
        return ""

    with ports.progress.task("restoring", len(chosen)) as step, ThreadPoolExecutor(THREADS) as pool:
        for some in batches(chosen, KEYS_A_LEASE):
            try:
                keep()
                present = still_stored(site.store, site.store.find(some))
            except LakeplanError as error:
                if not copied:
                    raise
                stop_reason = str(error)
                break
            kept = ports.now()
            existing |= {address: stored.size for address, stored in present.items()}
            step(len(present))
            left = [address for address in some if address not in present]
            problems: dict[str, str] = {}
            for address, why in zip(left, pool.map(copy_one, left), strict=True):
                step()
                if why:
                    problems[address] = why
                else:
                    copied.append(address)
                if not stop_reason and ports.stop():
                    stop_reason = STOPPED
                if (
                    not stop_reason and not timedelta() <= ports.now() - kept < KEEP
                ):  # copies of large objects
                    stop_reason, kept = _renewed(keep), ports.now()
            _sort_out(chosen, problems, _shown(site, [*problems], sleep), copied, existing, failed)
            if stop_reason:
                break
    done = {*copied, *existing, *failed}
    return copied, existing, failed | {address: stop_reason for address in chosen if address not in done}


def _renewed(keep: Callable[[], None]) -> str:
    """Renews the lease. Returns why that failed, or ""."""
    try:
        keep()
    except LakeplanError as error:
        return str(error)
    return ""


def _sort_out(
    chosen: Mapping[str, int],
    problems: Mapping[str, str],
    shown: Mapping[str, int] | None,
    copied: list[str],
    existing: dict[str, int],
    failed: dict[str, str],
) -> None:
    """Adds addresses whose copying failed to what the store shows became of them."""
    for address, why in problems.items():
        if shown is None:
            failed[address] = f"{why}; {UNKNOWN}"
        elif address not in shown:
            failed[address] = why
        elif shown[address] == chosen[address]:
            copied.append(address)
        else:
            existing[address] = shown[address]


def _shown(site: Site, addresses: list[str], sleep: Callable[[float], None]) -> dict[str, int] | None:
    """The sizes of objects that exist although copying failed, because the store's answer was lost. None when
    the store does not answer."""
    if not addresses:
        return {}
    try:
        present = read_back(lambda: site.store.find(addresses), lambda _: True, sleep)
    except StorageError:
        return None
    return {address: stored.size for address, stored in present.items()}
