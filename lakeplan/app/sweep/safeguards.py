"""What makes a repository unsafe to collect at all, each by its name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from lakeplan.app.sweep.neighbours import Probes, check_neighbours
from lakeplan.app.sweep.ports import Site
from lakeplan.errors import LakeplanError, ReadOnlyRepository, StorageNotFound, WriteConflict
from lakeplan.formats.sweep_keys import (
    OFFICIAL_FILE,
    OWNER_KEY,
    SUMMARY_FILE,
    SWEEPS_PREFIX,
    mark_prefix,
    sweep_prefix,
)
from lakeplan.limits import parse_json
from lakeplan.model import records
from lakeplan.model.repository import Repository
from lakeplan.model.sweep import Status
from lakeplan.ports.storage import NamespaceReader


def check_site(
    site: Site,
    today: date,
    *,
    listed: Iterable[Repository] | None = None,
    probes: Probes | None = None,
) -> None:
    """Raises ReadOnlyRepository (a mark skips it), and LakeplanError for shared namespaces, a namespace that
    another server or repository owns, and stores that keep deleted data. ``listed`` and ``probes``: see
    ``check_neighbours``."""
    if site.repository.read_only:
        raise ReadOnlyRepository(
            "the repository is read-only: nothing is collected", where=site.key, hint="make it writable first"
        )
    check_neighbours(site, today, listed=listed, probes=probes)
    _check_soft_delete(site)
    _check_owner(site)


def _check_soft_delete(site: Site) -> None:
    if site.store.facts().soft_delete:
        raise LakeplanError(
            "soft delete is on in this storage account: deleting frees nothing until it lapses",
            where=site.store.url,
            hint="turn blob soft delete off for the account, then mark again",
        )


def _check_owner(site: Site) -> None:
    """The first mark of a namespace writes whose it is; a copy of a server, or a second one over the same
    bucket, finds another name there."""
    owner = {"server": site.server.endpoint_url, "repository": site.desired.name}
    try:
        site.store.create(OWNER_KEY, (json.dumps(owner, sort_keys=True) + "\n").encode())
        return
    except WriteConflict:
        pass
    where = f"{site.store.url}/{OWNER_KEY}"
    try:
        found = parse_json(site.store.read(OWNER_KEY))
        _OWNER(found, "")
        same = found["server"] == owner["server"] and found["repository"] == owner["repository"]
        named = f"repository {found['repository']} of {found['server']}"
    except (ValueError, KeyError, TypeError, StorageNotFound):
        raise LakeplanError(
            "the record of this namespace's owner cannot be read", where=where, hint="look at it by hand"
        ) from None
    if not same:
        raise LakeplanError(
            f"this namespace belongs to {named}, not to {site.key}",
            where=where,
            hint="if the server only moved to another address, correct the record by hand",
        )


def check_no_open_sweep(site: Site) -> None:
    """Raises LakeplanError while a sweep of an earlier mark is not finished: what it has deleted and what was
    brought back meanwhile cannot be told apart by a new mark."""
    for mark_id in begun_sweeps(site):
        summary = read_summary(site, mark_id)
        if summary is None or not is_over(summary):
            raise LakeplanError(
                f"the sweep of mark {mark_id} is not finished",
                where=site.key,
                hint=f"lakeplan sweep run {mark_id} goes on with it; with --close it deletes nothing more",
            )


def begun_sweeps(site: Site) -> list[str]:
    """Marks of this namespace whose sweep began to delete, sorted."""
    found = site.store.list_prefixes(SWEEPS_PREFIX)
    return sorted(
        prefix.removeprefix(SWEEPS_PREFIX).rstrip("/") for prefix in found if is_begun(site, prefix)
    )


def is_begun(site: Site, prefix: str) -> bool:
    """Whether the sweep in this folder (``sweep_prefix``) began to delete."""
    return f"{prefix}begun/" in site.store.list_prefixes(prefix)


def read_summary(site: Site, mark_id: str) -> dict[str, Any] | None:
    """What the last run of a mark left behind; None when there is nothing. Raises FormatError."""
    key = sweep_prefix(mark_id) + SUMMARY_FILE
    try:
        data = site.store.read(key)
    except StorageNotFound:
        return None
    hint = f"restore it, or run `lakeplan sweep run {mark_id}` again, which writes it"
    where = f"{site.store.url}/{key}"
    return records.read_record(data, _SUMMARY, what="the summary of this sweep", where=where, hint=hint)


_OWNER = records.record({"server": records.text, "repository": records.text})
_SUMMARY = records.record(
    {
        "mark_id": records.text,
        "repository": records.text,
        "at": records.moment,
        "finished": records.flag,
        **dict.fromkeys((*(status.value for status in Status), "pending"), records.AMOUNT),
        "reasons": records.map_of(records.count),
        "verified": records.count,
        "came_back": records.or_null(records.count),
        "problem": records.text,
        "settings": records.record({"mode": records.text}),
        "not_yet_reclaimed": records.text,
    }
)


def _run_id(value: Any, name: str) -> None:
    """It becomes part of keys."""
    records.text(value, name)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", value):
        raise records.Misshapen(f"{name} is not the id of a run")


_RUN_ID = records.record({"run_id": _run_id})
_RUNS = records.record({"runs": records.list_of(_run_id)})


def official_run(store: NamespaceReader, mark_id: str) -> str | None:
    """The run id under which a sweep writes the official report; None before it got that far. Raises
    FormatError."""
    found = _official(store, sweep_prefix(mark_id), _RUN_ID)
    return None if found is None else str(found["run_id"])


def noted_runs(store: NamespaceReader, mark_id: str) -> list[str]:
    """Runs in which the official collector marked for this very mark, oldest first. Raises FormatError."""
    found = _official(store, mark_prefix(mark_id), _RUNS)
    return [] if found is None else list(found["runs"])


def _official(store: NamespaceReader, prefix: str, shape: records.Shape) -> dict[str, Any] | None:
    key = prefix + OFFICIAL_FILE
    try:
        data = store.read(key)
    except StorageNotFound:
        return None
    what, where = "the record of the official report", f"{store.url}/{key}"
    return records.read_record(data, shape, what=what, where=where, hint="restore it, or mark again")


def is_over(summary: Mapping[str, Any]) -> bool:
    """Whether nothing more is deleted: every object has an end, and what of that is held again is known, or
    the sweep was closed."""
    return bool(summary["finished"]) and (summary["came_back"] is not None or bool(summary.get("closed")))


def may_delete(summary: Mapping[str, Any] | None) -> bool:
    """Whether ``sweep run`` has something left to delete, or to try again."""
    if summary is None or not is_over(summary):
        return True
    return bool(summary["failed"]["objects"]) and not summary.get("closed")
