"""Marks that the state does not know any more: found again by their record in a namespace.

Only what deletes nothing may use one: to end its sweep, and to restore. Whoever can write to a namespace
could have put the record there, so nothing in it counts that the repository itself does not confirm.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from lakeplan.app.sweep.ports import Site, SweepPorts, open_site
from lakeplan.app.sweep.service import open_mark
from lakeplan.app.sweep.store_marks import StoredMark, read_approval, read_mark_index, read_stored
from lakeplan.errors import LakeplanError, StorageNotFound, UsageError
from lakeplan.formats.sweep_keys import MARK_FILE, checked_mark_id, mark_prefix
from lakeplan.model.desired import DesiredRepository, ServerConfig
from lakeplan.model.mark import Mark
from lakeplan.model.repository import Repository
from lakeplan.ports.tree import DesiredTree

_log = logging.getLogger(__name__)
NAMED = 5
"""Repositories that a message names."""


@dataclass
class _Search:
    """``found``: repositories that confirm the record in their namespace. ``others``: why one does not;
    ``unread``: why one could not be read. Both by ``server/name``."""

    found: list[tuple[DesiredRepository, StoredMark]] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


def find_mark(tree: DesiredTree, mark_id: str, ports: SweepPorts) -> tuple[Site, StoredMark]:
    """As ``open_mark``; a mark that the state does not know is searched for in the namespaces of the tree's
    repositories. Raises LakeplanError unless exactly one of them has it."""
    if read_mark_index(ports.state, mark_id) is not None:
        return open_mark(tree, mark_id, ports)
    search = _search(tree, checked_mark_id(mark_id), ports)
    if len(search.found) != 1:
        raise _not_one(mark_id, search)
    desired, stored = search.found[0]
    approval = read_approval(ports.state, stored)
    _log.warning(
        "the state does not know mark %s: going by its record in the namespace of %s", mark_id, desired.key
    )
    if search.unread:
        _log.warning("not searched for the mark: %s", _named(search.unread))
    return open_site(desired, tree, ports), StoredMark(stored.mark, stored.digest, approval is not None)


def _search(tree: DesiredTree, mark_id: str, ports: SweepPorts) -> _Search:
    search = _Search()
    for name, server in tree.servers.items():
        try:
            listed = {repository.id: repository for repository in ports.reader(name).list_repositories()}
        except LakeplanError as error:
            search.unread[f"server {name}"] = error.message
            continue
        wanted = [desired for desired in tree.resolve(name, listed) if desired.name in listed]
        with ports.progress.task(f"searching for mark {mark_id} on {name}", len(wanted)) as step:
            for desired in wanted:
                _search_one(desired, server, listed[desired.name], mark_id, ports, search)
                step()
    return search


def _search_one(
    desired: DesiredRepository,
    server: ServerConfig,
    repository: Repository,
    mark_id: str,
    ports: SweepPorts,
    search: _Search,
) -> None:
    try:
        stored = read_stored(ports.store(server, repository), mark_id)
    except StorageNotFound:
        return
    except LakeplanError as error:
        search.unread[desired.key] = error.message
        return
    if why := _not_of(stored.mark, mark_id, desired, server, repository):
        search.others[desired.key] = why
    else:
        search.found.append((desired, stored))


def _not_of(
    mark: Mark, mark_id: str, desired: DesiredRepository, server: ServerConfig, repository: Repository
) -> str:
    """Why a record is not that of a mark of this repository; "" when it is."""
    if mark.mark_id != mark_id or mark.key != desired.key:
        return f"it is mark {mark.mark_id} of {mark.key}"
    if mark.endpoint_url != server.endpoint_url:
        return f"the mark was made at {mark.endpoint_url}"
    if mark.storage_namespace != repository.storage_namespace:
        return f"the mark was made in the namespace {mark.storage_namespace}"
    if mark.repository_created is None:
        return "an earlier release made the mark: it does not say which repository it saw"
    if mark.repository_created != repository.creation_date:
        return "the repository was deleted and made again since the mark was made"
    return ""


def _not_one(mark_id: str, search: _Search) -> LakeplanError:
    folder = mark_prefix(mark_id)
    if search.found:
        keys = ", ".join(desired.key for desired, _ in search.found)
        return LakeplanError(
            f"the state does not know mark {mark_id}, and several repositories have a record of it: {keys}",
            hint=f"find out which of them lakeplan did not write, and remove {folder} there",
        )
    if search.others:
        return LakeplanError(
            f"the state does not know mark {mark_id}, and no repository confirms the record in its namespace:"
            f" {_named(search.others)}",
            where=f"{folder}{MARK_FILE}",
            hint="restore the state from a backup, or use the tree that the mark was made with",
        )
    if search.unread:
        return LakeplanError(
            f"the state does not know mark {mark_id}, and no namespace that can be read has a record of it;"
            f" not read: {_named(search.unread)}",
            hint="run the command again when they can be read",
        )
    return UsageError(
        f"neither the state nor a namespace of the tree's repositories knows mark {mark_id}",
        hint="check the id; use the tree that the mark was made with",
    )


def _named(why: dict[str, str]) -> str:
    named = "; ".join(f"{key}: {text}" for key, text in list(why.items())[:NAMED])
    return named + (f"; and {len(why) - NAMED:,} more" if len(why) > NAMED else "")
