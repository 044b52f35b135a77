"""Small namespaces on disk, written with lakeplan's own writers: commits with contents, what is stored, what
is staged, and foreign files that a reader must not trip over."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from lakeplan.formats.collector import write_uncommitted
from lakeplan.formats.namespace import REFS_MANIFEST_KEY, XidSource, uncommitted_prefix
from lakeplan.formats.ranges import write_metarange, write_range
from lakeplan.formats.refs import write_manifest, write_refs_dump
from lakeplan.values.repository import AddressType, Branch, Commit, Entry, Refs, Tag

NOW = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)
NOW_US = int(NOW.timestamp()) * 1_000_000
DAY_US = 86_400_000_000
SERVER_URL = "s3://bucket/ns"


def range_with(namespace: Path, address: bytes) -> Path:
    files = (path for path in sorted((namespace / "_lakefs").iterdir()) if path.is_file())
    return next(path for path in files if address in path.read_bytes())


def entry(path: str, address: str, size: int = 1, kind: AddressType = AddressType.RELATIVE) -> Entry:
    return Entry(path, address, kind, size)


def full(path: str, address: str, size: int = 1) -> Entry:
    return entry(path, address, size, AddressType.FULL)


@dataclass
class Snapshot:
    """A commit: ``age`` in days before NOW, its parents (first is main) by name, and what it holds."""

    name: str
    age: float
    parents: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()


@dataclass
class Stored:
    size: int = 1
    age: float = 10.0


@dataclass
class History:
    """``branches`` and ``tags`` map names to commits; without ``staged`` there is no run of
    uncommitted addresses."""

    commits: Sequence[Snapshot]
    branches: Mapping[str, str]
    stored: Mapping[str, Stored] = field(default_factory=dict)
    staged: Sequence[str] | None = None
    staged_age: float = 0.01
    tags: Mapping[str, str] = field(default_factory=dict)


def commit_id(name: str) -> str:
    """Names are short; ids are what servers have, and sort as names do."""
    return name.encode().hex().ljust(64, "0")


def created_us(age: float) -> int:
    return NOW_US - int(age * DAY_US)


def write_namespace(root: Path, history: History) -> str:
    """Writes a namespace; returns its ``file://`` URL. Entries are split into ranges by their first letter,
    so that commits share the ranges they did not change."""
    meta = root / "_lakefs"
    meta.mkdir(parents=True)
    commits = tuple(_write_commit(meta, snapshot) for snapshot in history.commits)
    refs = Refs(
        commits,
        tuple(Branch(name, commit_id(at)) for name, at in sorted(history.branches.items())),
        tuple(Tag(name, commit_id(at)) for name, at in sorted(history.tags.items())),
    )
    ids, files = write_refs_dump(refs)
    for name, data in files.items():
        (meta / name).write_bytes(data)
    (root / REFS_MANIFEST_KEY).write_bytes(write_manifest(ids))
    for key, stored in history.stored.items():
        _store(root / key, stored)
    if history.staged is not None:
        _stage(root, history.staged, history.staged_age)
    _foreign_files(root)
    return f"file://{root}"


def _write_commit(meta: Path, snapshot: Snapshot) -> Commit:
    groups: dict[str, list[Entry]] = {}
    for each in sorted(snapshot.entries, key=lambda e: e.path.encode()):
        groups.setdefault(each.path[:1], []).append(each)
    infos = []
    for group in groups.values():
        info, data = write_range(group)
        (meta / info.id).write_bytes(data)
        infos.append(info)
    metarange, data = write_metarange(infos)
    (meta / metarange).write_bytes(data)
    parents = tuple(commit_id(name) for name in snapshot.parents)
    return Commit(commit_id(snapshot.name), created_us(snapshot.age), metarange, parents)


def _store(path: Path, stored: Stored) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * stored.size)
    modified = created_us(stored.age) * 1000
    os.utime(path, ns=(modified, modified))


def _stage(root: Path, addresses: Sequence[str], age: float) -> None:
    made = created_us(age) / 1_000_000
    run = XidSource(lambda: made, lambda n: b"\x01" * n).descending()
    folder = root / uncommitted_prefix(run)
    folder.mkdir(parents=True)
    data = write_uncommitted(addresses, [int(made)] * len(addresses))
    (folder / "dc0fkmhksdu8jkn5vaj0").write_bytes(data)


def _foreign_files(root: Path) -> None:
    for key in ("_lakefs/dummy", "_lakefs/actions/log/run/1", "_lakefs/notes.txt", "_lakefs/.hidden"):
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not ours")
    _store(root / "dummy", Stored(age=900))
