"""The objects that handlers use: the server with its clock and flavour, and an open repository."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone, tzinfo
from fnmatch import translate
from pathlib import Path
from typing import Literal

from lakeplan.formats.namespace import REFS_MANIFEST_KEY, ObjectPaths, XidSource, metadata_key, normalize
from lakeplan.formats.refs import write_manifest, write_refs_dump
from lakeplan.sandbox.graph import Resolved, Tree, apply_changes, resolve, same
from lakeplan.sandbox.messages import ApiError, not_found
from lakeplan.sandbox.state import (
    SCHEME,
    Namespace,
    Presigner,
    Records,
    Repositories,
    Store,
    Trees,
    open_namespace,
)
from lakeplan.values.repository import AddressType, Commit, Entry, RefsDumpIds, Repository

Flavor = Literal["oss", "enterprise"]
STATE_FILE = ".sandbox/state.db"


def utc_now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Options:
    """The options of a sandbox. ``clock`` and ``time_zone`` are the server's own.
    ``max_uncommitted_per_file`` is where ``prepare_uncommited`` hands out a continuation token; ``presign``
    whether metadata may be read by URLs that need no credentials, and ``presigned_seconds`` how long these
    work."""

    flavor: Flavor = "oss"
    access_key_id: str = "sandbox"
    secret_access_key: str = field(default="sandbox-secret", repr=False)
    clock: Callable[[], datetime] = utc_now
    time_zone: tzinfo = timezone.utc
    max_uncommitted_per_file: int = 10_000
    presign: bool = True
    presigned_seconds: int = 900

    def admits(self, header: str) -> bool:
        """Whether an ``Authorization`` header has the credentials."""
        scheme, _, credentials = header.partition(" ")
        expected = f"{self.access_key_id}:{self.secret_access_key}".encode()
        try:
            given = base64.b64decode(credentials, validate=True)
        except binascii.Error:
            given = b""
        return scheme.lower() == "basic" and hmac.compare_digest(given, expected)


class Service:
    """One sandbox server, without its HTTP. Handlers run inside ``store.transaction()``, one at a time."""

    def __init__(self, directory: Path, options: Options) -> None:
        self.options = options
        self.store = Store(directory / STATE_FILE)
        self.repositories = Repositories(self.store)
        self.directory = directory.resolve()
        self.trees = Trees()
        self.presigner = Presigner(secrets.token_bytes(32), options.presigned_seconds)
        self.xids = XidSource(self._seconds, secrets.token_bytes)
        self.object_paths = ObjectPaths(self._seconds, self.xids)

    @property
    def user(self) -> str:
        """The user who commits: the owner of the only access key."""
        return self.options.access_key_id

    @property
    def enterprise(self) -> bool:
        return self.options.flavor == "enterprise"

    def now(self) -> int:
        """The time in epoch seconds."""
        return int(self._seconds())

    def now_us(self) -> int:
        return int(self._seconds() * 1_000_000)

    def timestamp(self) -> str:
        """The time as RFC 3339 in UTC, as tasks and pull requests have it."""
        moment = self.options.clock().astimezone(timezone.utc)
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def _seconds(self) -> float:
        return self.options.clock().timestamp()

    def open(self, name: str) -> OpenRepository:
        """An open repository. Raises ApiError 404."""
        return OpenRepository(self, self.repositories.get(name))

    def open_to_write(self, name: str) -> OpenRepository:
        """An open repository. Raises ApiError 404, and 403 for a read-only one."""
        repository = self.open(name)
        if repository.info.read_only:
            raise ApiError(403, "read-only repository")
        return repository


class OpenRepository(Records):
    """One repository of a server: its records, and its namespace."""

    def __init__(self, service: Service, info: Repository) -> None:
        super().__init__(service.store, info.id, service.now)
        self.service = service
        self.info = info

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def namespace(self) -> Namespace:
        return open_namespace(self.service.directory, self.info.storage_namespace)

    # commits and their trees

    def resolve(self, ref: str) -> Resolved:
        return resolve(self, ref)

    def commit_of(self, ref: str) -> Commit:
        return self.commit(self.resolve(ref).commit_id)

    def head(self, branch: str) -> Commit:
        return self.commit(self.branch(branch).commit_id)

    def tree_of(self, commit: Commit) -> Tree:
        return self.service.trees.load(self.namespace, commit.meta_range_id)

    def save_tree(self, tree: Tree) -> str:
        """Saves a tree and returns the id of its metarange."""
        return self.service.trees.save(self.namespace, tree)

    def visible_tree(self, ref: str) -> Tree:
        """The tree of a reference, with staged changes on top of the HEAD if it is a branch."""
        resolved = self.resolve(ref)
        tree = self.tree_of(self.commit(resolved.commit_id))
        changes = self.staged(resolved.branch.id) if resolved.branch is not None else {}
        return apply_changes(tree, changes) if changes else tree

    def find_entry(self, ref: str, path: str) -> Entry:
        """The object of a reference at a path. Raises ApiError 404."""
        resolved = self.resolve(ref)
        if resolved.branch is not None:
            is_staged, entry = self.find_staged(resolved.branch.id, path)
            if is_staged and entry is None:
                raise not_found()
            if entry is not None:
                return entry
        stored = self.tree_of(self.commit(resolved.commit_id)).get(path)
        if stored is None:
            raise not_found()
        return stored

    def effective_changes(self, branch: str) -> dict[str, Entry | None]:
        """Staged changes with an effect: neither the same object again nor a deletion of nothing."""
        tree = self.tree_of(self.head(branch))
        return {p: entry for p, entry in self.staged(branch).items() if not same(tree.get(p), entry)}

    # objects

    def stage_entry(self, branch: str, entry: Entry) -> None:
        self.stage(branch, entry.path, entry)
        self.touch_branch(branch)

    def full_address(self, entry: Entry) -> str:
        """The entry's URL."""
        if entry.address_type is AddressType.FULL:
            return entry.address
        return self.namespace.full_address(entry.address)

    def relative_address(self, entry: Entry) -> str | None:
        """The relative address, or None for an object outside the namespace."""
        return normalize(entry.address, entry.address_type, self.info.storage_namespace)

    def read_object(self, entry: Entry) -> bytes | None:
        """The bytes of an entry, or None if they are gone."""
        relative = self.relative_address(entry)
        if relative is not None:
            return self.namespace.read(relative)
        folder, _, name = entry.address.rpartition("/")
        return open_namespace(self.service.directory, folder).read(name)

    def stored_form(self, physical_address: str) -> tuple[str, AddressType]:
        """An address as a server stores it when a client stages it: relative if in its own namespace.

        Raises ApiError 400 for an address on storage that this server does not have.
        """
        relative = normalize(physical_address, AddressType.FULL, self.info.storage_namespace)
        if not physical_address.startswith(SCHEME):
            raise ApiError(400, "physical address is not valid for block adapter: local")
        if relative is not None:
            return relative, AddressType.RELATIVE
        return physical_address, AddressType.FULL

    def dump_refs(self, *, manifest: bool) -> RefsDumpIds:
        """Writes all commits, branches (including hidden ones) and tags, and on request the manifest."""
        ids, files = write_refs_dump(self.refs())
        for id, data in files.items():
            self.namespace.write_once(metadata_key(id), data)
        if manifest:
            self.namespace.write(REFS_MANIFEST_KEY, write_manifest(ids))
        return ids

    def check_not_protected(self, branch: str, message: str) -> None:
        """Raises ApiError 403 with ``message`` when a rule's pattern matches the branch."""
        for rule in self.setting(BRANCH_PROTECTION) or []:
            if re.fullmatch(translate(rule["pattern"]), branch):
                raise ApiError(403, message)


BRANCH_PROTECTION = "branch_protection"
CANNOT_WRITE = "cannot write to protected branch"
CANNOT_COMMIT = "cannot commit to protected branch"
PROTECTED = "protected branch"
