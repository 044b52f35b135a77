"""Checks that no other repository shares the storage of the one that is swept."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from urllib.parse import unquote

from lakeplan.errors import GateRefused, LakeplanError, ReadOnlyRepository, StorageNotFound, WriteConflict
from lakeplan.formats.namespace import METADATA_PREFIX, OWNER_KEY, PROBE_KEY, SWEEPS_PREFIX
from lakeplan.limits import parse_json
from lakeplan.review.gates import GateOverrides, Verdict
from lakeplan.stores.open import SweepStore
from lakeplan.sweep.ports import Neighbour, Site
from lakeplan.sweep.records import continue_or_abort, is_over, mark_ids, read_summary
from lakeplan.sweep.rules import overlapping, place_of
from lakeplan.values import records
from lakeplan.values.gates import MISSING_METADATA, UNREAD_NEIGHBOURS
from lakeplan.values.plan import GateOutcome, GateResult
from lakeplan.values.progress import in_parallel
from lakeplan.values.repository import Repository

AT_ONCE = 8
FILE = "file://"
MOVE = "Move one of the two repositories to its own namespace. Until then, neither can be swept."


class Probes:
    """Small files, one in every namespace that a command marks or sweeps. One that shows up in a neighbour's
    namespace proves that both are the same storage. Each neighbour is read once for all repositories. All
    files are written before the first is searched for; after a later write, all are read again."""

    def __init__(self) -> None:
        self._tokens: dict[str, bytes] = {}
        self._stores: dict[Neighbour, SweepStore] = {}
        self._read: dict[tuple[Neighbour, str], bytes | LakeplanError | None] = {}

    def write(self, site: Site) -> bytes:
        """Writes the file of a site once, and returns its content."""
        if site.key not in self._tokens:
            token = json.dumps({"probe": secrets.token_hex(16)}).encode()
            site.store.put(PROBE_KEY, token)
            self._tokens[site.key] = token
            self._read.clear()  # it may have replaced a file that was read before
        return self._tokens[site.key]

    def store(self, site: Site, neighbour: Neighbour) -> SweepStore:
        if neighbour not in self._stores:
            self._stores[neighbour] = site.open_store(neighbour.server, neighbour.repository)
        return self._stores[neighbour]

    def read(self, site: Site, neighbour: Neighbour, key: str) -> bytes | None:
        """The file at ``key`` of a neighbour, or None. Raises LakeplanError."""
        one = (neighbour, key)
        if one not in self._read:
            try:
                self._read[one] = self.store(site, neighbour).read(key)
            except StorageNotFound:
                self._read[one] = None
            except LakeplanError as error:
                self._read[one] = error
        answer = self._read[one]
        if isinstance(answer, LakeplanError):
            raise answer
        return answer

    def check(self, site: Site) -> None:
        """Writes the site's file and reads it back. Raises LakeplanError when another run replaced the file,
        or when another site's file did, because both namespaces are then the same storage."""
        self.write(site)
        token = site.store.read(PROBE_KEY)
        other = next((key for key, theirs in self._tokens.items() if theirs == token), None)
        if other is None:
            raise LakeplanError(
                "another run is inspecting this namespace",
                where=f"{site.key}: {site.store.url}",
                hint="Wait for that run to end, then run the command again.",
            )
        if other != site.key:
            raise _shared(site, f"repository {other} shares this storage under another name")

    def is_shared(self, site: Site, neighbour: Neighbour, key: str) -> bool:
        """Whether the neighbour's storage has the file of the site."""
        return self.read(site, neighbour, key) == self._tokens[site.key]


def check_neighbours(
    site: Site, today: date, *, listed: Iterable[Repository] | None = None, probes: Probes | None = None
) -> None:
    """Raises LakeplanError when another repository shares the storage, and GateRefused while that is not
    known. ``listed``: the server's repositories, which are listed now if missing."""
    same_server = _same_server(site, site.reader.list_repositories() if listed is None else listed)
    _check_names(site, same_server)
    _check_ancestors(site)
    related = _related(site)
    unread = dict(site.unread_servers)
    for neighbour, how in _probed(site, same_server, related, probes or Probes()):
        if isinstance(how, LakeplanError):
            # On the same server only overlapping names can share storage, and those were refused above.
            if neighbour in related:
                unread[neighbour.name] = how.message
        elif how:
            raise _shared(site, f"repository {neighbour.name} {how}")
    _check_unread(site, unread, today)


def check_new(site: Site) -> None:
    """Raises LakeplanError when a repository that was perhaps created during the run shares the storage,
    such as one that is restored from a refs dump."""
    others = tuple(
        Neighbour(server, f"{server.name}/{each.id}", each, reader)
        for server, reader in site.other_servers
        for each in reader.list_repositories()
    )
    _check_names(replace(site, neighbours=others), _same_server(site, site.reader.list_repositories()))


def _same_server(site: Site, listed: Iterable[Repository]) -> list[Neighbour]:
    others = (each for each in listed if each.id != site.desired.name)
    return [Neighbour(site.server, each.id, each, site.reader) for each in others]


def _check_names(site: Site, same_server: Iterable[Neighbour]) -> None:
    storage = site.server.storages.get(site.repository.storage_id)
    certain = [
        *same_server,
        *(n for n in site.neighbours if n.server.storages.get(n.repository.storage_id) == storage),
    ]
    for neighbour in certain:
        other = replace(neighbour.repository, id=neighbour.name)
        for _, how in overlapping(site.repository, [other]):
            raise _shared(site, f"repository {neighbour.name} {how}")


def _related(site: Site) -> list[Neighbour]:
    """The repositories of other servers that share the storage if their endpoint is the same one."""
    return [
        neighbour
        for neighbour in site.neighbours
        if overlapping(site.repository, [replace(neighbour.repository, id=neighbour.name)], any_store=True)
    ]


def _probed(
    site: Site, same_server: Iterable[Neighbour], related: Iterable[Neighbour], probes: Probes
) -> Iterator[tuple[Neighbour, str | LakeplanError]]:
    """Return each neighbour with how its stored data overlaps this namespace, in words ("" if it does not),
    or why it could not be read."""
    probes.check(site)
    # a folder of this machine may be reached by any path
    is_file = site.store.url.startswith(FILE)
    local = [n for n in site.neighbours if is_file and n.repository.storage_namespace.startswith("local://")]
    chosen = list(dict.fromkeys([*same_server, *related, *local]))

    def inspect(neighbour: Neighbour) -> str | LakeplanError:
        try:
            return _how(site, neighbour, probes)
        except LakeplanError as error:
            return error

    yield from zip(chosen, in_parallel(inspect, chosen, AT_ONCE), strict=True)


def _how(site: Site, neighbour: Neighbour, probes: Probes) -> str:
    store = probes.store(site, neighbour)
    if site.store.url.startswith(FILE) and store.url.startswith(FILE):
        path, theirs = _real(site.store.url), _real(store.url)
        if _same_folder(path, theirs):
            return "has the same folder under another path"
        if f"{theirs}/".startswith(f"{path}/"):
            return "has its folder inside this repository's folder"
        if f"{path}/".startswith(f"{theirs}/"):
            return "has a folder that contains this repository's folder"
    ours = place_of(site.repository.storage_namespace).parts
    other = place_of(neighbour.repository.storage_namespace).parts
    if len(other) > len(ours) and other[: len(ours)] == ours:
        inside = "/".join(other[len(ours) :])
        if next(iter(site.store.list_objects(f"{inside}/{METADATA_PREFIX}")), None) is not None:
            return (
                "has its storage namespace inside this repository's namespace (under another name for the"
                " storage)"
            )
        return ""
    below = "/".join((*ours[len(other) :], PROBE_KEY)) if ours[: len(other)] == other else PROBE_KEY
    for key in dict.fromkeys((PROBE_KEY, below)):
        if probes.is_shared(site, neighbour, key):
            return "shares this storage under another name"
    return ""


def _real(url: str) -> str:
    return os.path.realpath(unquote(url.removeprefix(FILE)))


def _same_folder(one: str, other: str) -> bool:
    """Whether two paths are one folder, even if names differ in case or one leads through another mount."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _check_ancestors(site: Site) -> None:
    """Raises LakeplanError when a folder above, as far as it can be read, is a lakeFS namespace."""
    scheme, _, rest = site.repository.storage_namespace.partition("://")
    parts = [part for part in rest.split("/") if part]
    least = 2 if scheme.startswith("http") else 0 if scheme == "local" else 1
    for count in range(least, len(parts)):
        above = f"{scheme}://{'/'.join(parts[:count])}"
        if _is_namespace(site, above):
            raise _contained(site, above)
    if site.store.url.startswith(FILE):  # a link, or the storage's own path, may lead into another namespace
        for folder in Path(_real(site.store.url)).parents:
            if _has_entries(folder / METADATA_PREFIX):
                raise _contained(site, str(folder))


def _contained(site: Site, above: str) -> LakeplanError:
    what = f"another repository has its storage namespace at {above}, which contains this repository's"
    return _shared(site, f"{what} namespace")


def _has_entries(folder: Path) -> bool:
    try:
        return next(folder.iterdir(), None) is not None
    except OSError:
        return False  # it does not exist or cannot be read


def _is_namespace(site: Site, url: str) -> bool:
    try:
        store = site.open_store(site.server, replace(site.repository, storage_namespace=url))
        return next(iter(store.list_objects(METADATA_PREFIX)), None) is not None
    except LakeplanError:
        return False  # it cannot be read


def _shared(site: Site, what: str) -> LakeplanError:
    return LakeplanError(
        f"{what}, so a sweep of one could delete data of the other",
        where=f"{site.key} ({site.repository.storage_namespace})",
        hint=MOVE,
    )


def _check_unread(site: Site, unread: dict[str, str], today: date) -> None:
    if not unread:
        return
    name, why = next(iter(sorted(unread.items())))
    more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
    text = f"lakeplan cannot determine whether {name}{more} has data in this storage: {why}"
    gate = Verdict(GateOutcome.REFUSED, text, len(unread), 0).of(UNREAD_NEIGHBOURS, site.key)
    if not _is_overridden(site, today, gate):
        raise GateRefused(
            f"{gate.gate}: {text}",
            where=f"{site.key} ({site.repository.storage_namespace})",
            hint=f"Make {name} readable. If it has no data in this storage, list the gate under overrides in"
            f" the tree: {{repository: {site.key}, gate: {gate.gate}, reason: …, expires: …}}",
        )


def _is_overridden(site: Site, today: date, gate: GateResult) -> bool:
    overrides = GateOverrides(frozenset(), site.overrides, today)
    return overrides.decide(gate, site.desired).outcome is not GateOutcome.REFUSED


def may_lack_metadata(site: Site, today: date) -> bool:
    """Whether the tree accepts commits of other repositories that lack metadata. Another override does not
    count, because nobody reviewed it for this."""
    return _is_overridden(site, today, Verdict(GateOutcome.REFUSED, "").of(MISSING_METADATA, site.key))


def check_site(
    site: Site, today: date, *, listed: Iterable[Repository] | None = None, probes: Probes | None = None
) -> None:
    """Raises ReadOnlyRepository, which a mark skips, and LakeplanError when the namespace is shared, belongs
    to another server or repository, or is in a store with soft delete. ``listed`` and ``probes``: see
    ``check_neighbours``."""
    if site.repository.read_only:
        raise ReadOnlyRepository(
            "the repository is read-only, so nothing can be deleted",
            where=site.key,
            hint="Make it writable first.",
        )
    check_neighbours(site, today, listed=listed, probes=probes)
    _check_soft_delete(site)
    _check_owner(site)


def _check_soft_delete(site: Site) -> None:
    if site.store.facts().soft_delete:
        raise LakeplanError(
            "soft delete is on in this storage, so deleted objects keep using space",
            where=site.store.url,
            hint="Turn off soft delete for the bucket (Google Cloud Storage) or account (Azure), then run"
            " `lakeplan sweep mark` again.",
        )


_OWNER = records.record({"server": records.text, "repository": records.text})


def _check_owner(site: Site) -> None:
    """Records the owner of the namespace at its first mark. Raises LakeplanError when the namespace belongs
    to another owner, such as a copy of the server or a second server on the same bucket."""
    owner = {"server": site.server.endpoint_url, "repository": site.desired.name}
    try:
        site.store.create(OWNER_KEY, records.json_line(owner))
        return
    except WriteConflict:
        pass
    where = f"{site.store.url}/{OWNER_KEY}"
    try:
        record = parse_json(site.store.read(OWNER_KEY))
        _OWNER(record, "")
        same = record["server"] == owner["server"] and record["repository"] == owner["repository"]
        named = f"repository {record['repository']} on the server {record['server']}"
    except (ValueError, KeyError, TypeError, StorageNotFound):
        raise LakeplanError(
            "the record of this namespace's owner cannot be read",
            where=where,
            hint="Inspect this file. If no other repository uses the namespace, delete the file and run the"
            " command again.",
        ) from None
    if not same:
        raise LakeplanError(
            f"this namespace belongs to {named}, not to {site.key}",
            where=where,
            hint="If only the address of the server has changed, correct the address in this file manually.",
        )


def check_no_open_sweep(site: Site) -> None:
    """Raises LakeplanError while a sweep of an earlier mark is unfinished: a new mark could not tell what
    that sweep deleted from what was written again."""
    for mark_id in begun_sweeps(site):
        summary = read_summary(site.store, mark_id)
        if summary is None or not is_over(summary):
            raise LakeplanError(
                f"the sweep of mark {mark_id} is not finished",
                where=site.key,
                hint=continue_or_abort(mark_id),
            )


def begun_sweeps(site: Site) -> list[str]:
    """The marks of this namespace whose sweep began to delete, sorted."""
    return sorted(id for id in mark_ids(site.store, SWEEPS_PREFIX) if is_begun(site, id))


def is_begun(site: Site, mark_id: str) -> bool:
    """Whether the sweep of a mark began to delete."""
    prefix = f"{SWEEPS_PREFIX}{mark_id}/"
    return f"{prefix}begun/" in site.store.list_prefixes(prefix)
