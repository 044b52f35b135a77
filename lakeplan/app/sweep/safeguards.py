"""What makes a repository unsafe to collect at all, each by its name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import Any

from lakeplan.app.sweep.neighbours import check_neighbours
from lakeplan.app.sweep.ports import Site
from lakeplan.errors import FormatError, LakeplanError, ReadOnlyRepository, StorageNotFound, WriteConflict
from lakeplan.formats.sweep_keys import OWNER_KEY, SUMMARY_FILE, SWEEPS_PREFIX, sweep_prefix
from lakeplan.limits import parse_json


def check_site(site: Site, today: date) -> None:
    """Raises ReadOnlyRepository (a mark skips it), and LakeplanError for shared namespaces, a namespace that
    another server or repository owns, and stores that keep deleted data."""
    if site.repository.read_only:
        raise ReadOnlyRepository(
            "the repository is read-only: nothing is collected", where=site.key, hint="make it writable first"
        )
    check_neighbours(site, today)
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
        prefix.removeprefix(SWEEPS_PREFIX).rstrip("/")
        for prefix in found
        if f"{prefix}begun/" in site.store.list_prefixes(prefix)
    )


def read_summary(site: Site, mark_id: str) -> dict[str, Any] | None:
    """What the last run of a mark left behind; None when there is nothing. Raises FormatError."""
    key = sweep_prefix(mark_id) + SUMMARY_FILE
    try:
        data = site.store.read(key)
    except StorageNotFound:
        return None
    try:
        summary: dict[str, Any] = parse_json(data)
        is_over(summary)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FormatError("is no summary of a sweep", where=f"{site.store.url}/{key}") from None
    return summary


def is_over(summary: Mapping[str, Any]) -> bool:
    """Whether nothing more is deleted: every object has an end, and what of that is held again is known, or
    the sweep was closed."""
    return bool(summary["finished"]) and (summary["came_back"] is not None or bool(summary.get("closed")))


def needs_run(summary: Mapping[str, Any] | None, *, close: bool) -> bool:
    """Whether ``sweep run`` (or ``--close``) may find something to do, or something else than is recorded."""
    if summary is None or not is_over(summary):
        return True
    if close or not summary.get("closed"):
        return bool(summary["came_back"] != 0 or (summary["failed"]["objects"] and not close))
    return False
