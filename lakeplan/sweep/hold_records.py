"""Records in the namespace what holds keep: one small file per hold and commit. A prefix that no path begins
with yet is recorded without a commit.

A hold on a branch or a tag names no commit once somebody deletes it, and the state can be lost. So every
inspection of a mark or a sweep records the commits that holds name, and keeps earlier records.

A record ends with its hold: when the hold expires, or when it has been out of the tree, or shortened to a
past day, for ``sweep.settle``, at least a day, since an inspection first missed it. Only inspections remove
records.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from lakeplan.errors import FormatError, StorageError
from lakeplan.formats.namespace import HOLDS_PREFIX
from lakeplan.formats.ranges import read_metarange, read_range_columns
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.retention.keep import active_holds, commits_named, reachable
from lakeplan.stores.open import NamespaceReader
from lakeplan.sweep.ports import Site
from lakeplan.values import records
from lakeplan.values.records import json_line
from lakeplan.values.repository import Refs, StoredObject, batches
from lakeplan.values.sweep import HeldCommit, Hold, Versions

_log = logging.getLogger(__name__)
RELEASED_FILE = "released.json"
NO_COMMIT = "none"
"""The file of a prefix that no path of recent commits begins with."""
LEAST_GRACE = timedelta(days=1)
MAX_METARANGES = 30
"""The newest different metaranges that are searched for a path below a prefix."""
MAX_RANGES = 30

HoldName = tuple[str, str]
"""Kind and name, which identify a hold."""


@dataclass
class _Record:
    """The record of one hold. ``released_at``: when an inspection first missed it in the tree."""

    commits: dict[str, HeldCommit] = field(default_factory=dict)
    released_at: datetime | None = None
    files: dict[str, StoredObject] = field(default_factory=dict)
    """The files of the commits as they were listed, by key. A file that another machine has written since
    then, because the hold is back in its tree, is not removed."""


def keep_held(site: Site, refs: Refs, now: datetime) -> tuple[HeldCommit, ...]:
    """Records the commits that the tree's unexpired holds name in ``refs``, and returns all recorded commits
    of holds that have not ended. ``now`` is the earliest clock. Raises StorageError, and FormatError for a
    damaged record."""
    active: dict[HoldName, Hold] = {
        (hold.kind, hold.name): hold for hold in active_holds(site.desired.holds, now)
    }
    recorded = _read(site.store, active)
    for name, hold in active.items():
        _record(site, hold, recorded.setdefault(name, _Record()), refs, now)
    for name, record in list(recorded.items()):
        if name not in active and _is_over(site, name, record, now):
            _drop(site, name, map(_file, record.commits), record.files)
            # Last: a machine with a newer tree that finds it writes the commits again.
            _drop(site, name, [RELEASED_FILE])
            del recorded[name]
    return tuple(commit for record in recorded.values() for commit in record.commits.values())


def recorded_holds(store: NamespaceReader, holds: Iterable[Hold], now: datetime) -> tuple[HeldCommit, ...]:
    """The recorded commits of holds that have not expired. ``holds`` are those of the tree. Writes nothing.
    Raises as ``keep_held``."""
    active = [(hold.kind, hold.name) for hold in active_holds(holds, now)]
    return tuple(
        commit
        for record in _read(store, active).values()
        for commit in record.commits.values()
        if commit.until is None or commit.until >= now.date()
    )


def _is_over(site: Site, name: HoldName, record: _Record, now: datetime) -> bool:
    """Whether a hold that was removed from the tree, or shortened there, no longer keeps anything."""
    if all(c.until is not None and c.until < now.date() for c in record.commits.values()):
        return True
    if record.released_at is None:
        site.store.put(_folder(name) + RELEASED_FILE, json_line({"at": now.isoformat()}))
        record.released_at = now
    grace = max(LEAST_GRACE, timedelta(seconds=site.desired.sweep.settle_seconds))
    if now - record.released_at >= grace:
        return True
    kind, text = name
    _log.warning(
        "%s: the hold on %s %r was removed from the tree or shortened; its data is kept until %s",
        site.key,
        kind,
        text,
        f"{record.released_at + grace:%Y-%m-%d %H:%M} UTC",
    )
    return False


def _record(site: Site, hold: Hold, record: _Record, refs: Refs, now: datetime) -> None:
    folder = _folder((hold.kind, hold.name))
    if is_back := record.released_at is not None:
        _drop(site, (hold.kind, hold.name), [RELEASED_FILE])
    named, replaced = commits_named(hold, refs), False
    if hold.kind == "prefix" and not any(record.commits):
        named = _first_with_path(site.reader.metadata_reader(site.desired.name), refs, hold.name)
        if not named:
            _log.warning("%s: the hold on prefix %r matches no path in recent commits", site.key, hold.name)
            named = {""}
        else:
            replaced = record.commits.pop("", None) is not None
    for id in named | record.commits.keys():
        if not is_back and id in record.commits and record.commits[id].until == hold.until:
            continue
        record.commits[id] = HeldCommit(hold.kind, hold.name, id, hold.until)
        content = {
            "kind": hold.kind,
            "name": hold.name,
            "commit": id,
            "until": None if hold.until is None else hold.until.isoformat(),
            "reason": hold.reason,
            "at": now.isoformat(),
        }
        site.store.put(folder + _file(id), json_line(content))
    if replaced:  # only now: without a record, a hold that is removed would end immediately
        _drop(site, (hold.kind, hold.name), [_file("")])
    if hold.kind == "branch":  # a recorded commit keeps its ancestors, so they need no record
        commits = {commit.id: commit for commit in refs.commits}
        parents = {p for id in named if id in commits for p in commits[id].parents}
        older = (record.commits.keys() - named) & reachable(commits, parents)
        _drop(site, (hold.kind, hold.name), map(_file, older))
        for id in older:
            del record.commits[id]


def _first_with_path(metadata: MetadataReader, refs: Refs, prefix: str) -> set[str]:
    """The newest commit with a path below the prefix, searched in the newest metaranges only."""
    key = prefix.encode(errors="surrogateescape")
    visited: set[str] = set()
    ranges: set[str] = set()
    for commit in sorted(refs.commits, key=lambda commit: (-commit.creation_us, commit.id)):
        id = commit.meta_range_id
        if not id or id in visited:
            continue
        if len(visited) == MAX_METARANGES:
            break
        visited.add(id)
        for info in read_metarange(metadata.read_metadata("meta_range", id), name=id):
            if info.min_key.startswith(key) or info.max_key.startswith(key):
                return {commit.id}
            if info.min_key < key < info.max_key and info.id not in ranges and len(ranges) < MAX_RANGES:
                ranges.add(info.id)
                data = metadata.read_metadata("range", info.id)
                columns = read_range_columns(data, name=info.id, verify_id=info.id)
                if any(path.startswith(prefix) for path in columns.paths):
                    return {commit.id}
    return set()


# ---- files
def _day(value: Any, name: str) -> None:
    records.text(value, name)
    try:
        date.fromisoformat(value)
    except ValueError:
        raise records.WrongShape(f"{name} is not a valid date") from None


_HELD = records.record(
    {
        "kind": records.exactly("prefix", "branch", "tag", "commit"),
        "name": records.text,
        "commit": records.text,
        "until": records.or_null(_day),
    }
)
_RELEASED = records.record({"at": records.moment})
_WHAT = "the record of held commits"
_HINT = "Restore the record from a backup. Delete it only if the data that the hold kept may be deleted."


def _read(store: NamespaceReader, active: Iterable[HoldName]) -> dict[HoldName, _Record]:
    """All records by hold. A release without commits counts only for holds of the tree (``active``)."""
    by_folder: dict[str, _Record] = {}
    names = {_folder(name): name for name in active}
    # All are listed before the first is read. If another machine removes a record meanwhile, reading the
    # rest of it fails, and its release is not missed.
    for stored in list(store.list_objects(HOLDS_PREFIX)):
        where = f"{store.url}/{stored.key}"
        file = stored.key.rpartition("/")[2]
        folder = stored.key.removesuffix(file)
        record = by_folder.setdefault(folder, _Record())
        data, shape = store.read(stored.key), _RELEASED if file == RELEASED_FILE else _HELD
        content = records.read_record(data, shape, what=_WHAT, where=where, hint=_HINT)
        if file == RELEASED_FILE:
            record.released_at = records.moment_in(content["at"])
            continue
        until = None if content["until"] is None else date.fromisoformat(content["until"])
        held = HeldCommit(content["kind"], content["name"], content["commit"], until)
        if _folder((held.kind, held.name)) + _file(held.commit_id) != stored.key:
            raise FormatError(
                f"{_WHAT} is damaged: its path does not match its content", where=where, hint=_HINT
            )
        record.commits[held.commit_id] = held
        record.files[stored.key] = stored
        names[folder] = (held.kind, held.name)
    return {names[folder]: record for folder, record in by_folder.items() if folder in names}


def _folder(name: HoldName) -> str:
    kind, text = name
    return f"{HOLDS_PREFIX}{kind}-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:32]}/"


def _file(commit_id: str) -> str:
    return f"{commit_id or NO_COMMIT}.json"


def _drop(
    site: Site, name: HoldName, files: Iterable[str], expected: Mapping[str, StoredObject] | None = None
) -> None:
    """Raises StorageError for a file that the store does not delete, such as one that is not as expected."""
    for keys in batches([_folder(name) + file for file in files], site.store.batch_size):
        for answer in site.store.delete(keys, versions=Versions.MARKER, expected=expected):
            if not answer.deleted:
                raise StorageError(
                    f"the record of held commits cannot be deleted: {answer.reason}",
                    where=f"{site.store.url}/{answer.key}",
                    hint=(
                        "Run the command again."
                        if answer.changed
                        else "Check that the credentials may delete objects in _lakeplan/, then run the"
                        " command again."
                    ),
                )
