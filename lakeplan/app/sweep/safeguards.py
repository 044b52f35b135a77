"""What makes a repository unsafe to collect at all, each by its name."""

from __future__ import annotations

import json

from lakeplan.app.sweep.ports import Site
from lakeplan.core.sweep.overlap import overlapping
from lakeplan.errors import LakeplanError, ReadOnlyRepository, StorageNotFound, WriteConflict
from lakeplan.formats.sweep_keys import OWNER_KEY


def check_site(site: Site) -> None:
    """Raises ReadOnlyRepository (a mark skips it), and LakeplanError for shared namespaces, a namespace that
    another server or repository owns, and stores that keep deleted data."""
    if site.repository.read_only:
        raise ReadOnlyRepository(
            "the repository is read-only: nothing is collected", where=site.key, hint="make it writable first"
        )
    _check_overlap(site)
    _check_soft_delete(site)
    _check_owner(site)


def _check_overlap(site: Site) -> None:
    shared = overlapping(site.repository, site.reader.list_repositories())
    if shared:
        other, how = shared[0]
        more = f" (and {len(shared) - 1} more repositories)" if len(shared) > 1 else ""
        raise LakeplanError(
            f"repository {other.id} {how}{more}: a sweep by one would delete the other's data",
            where=f"{site.key} ({site.repository.storage_namespace})",
            hint="neither can be swept; move one of them to a namespace of its own",
        )


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
        found = json.loads(site.store.read(OWNER_KEY))
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
