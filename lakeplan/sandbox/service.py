"""What every handler works with: state, storage, clock and the flavour of the server."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone, tzinfo
from pathlib import Path
from typing import Literal

from lakeplan.formats.object_paths import ObjectPaths
from lakeplan.formats.xid import XidSource
from lakeplan.model.refs import Commit
from lakeplan.model.repository import Repository
from lakeplan.sandbox.graph import Resolved, resolve
from lakeplan.sandbox.messages import ApiError, Request
from lakeplan.sandbox.namespaces import Namespace, Namespaces
from lakeplan.sandbox.presigned import Presigner
from lakeplan.sandbox.records import Records
from lakeplan.sandbox.settings import Settings
from lakeplan.sandbox.staging import Staging
from lakeplan.sandbox.store import Store
from lakeplan.sandbox.trees import Trees

Flavor = Literal["oss", "enterprise"]
STATE_FILE = ".sandbox/state.db"


def utc_now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Options:
    """How a sandbox behaves. ``clock`` and ``time_zone`` are the server's own; ``max_uncommitted_per_file``
    is where ``prepare_uncommited`` hands out a continuation token; ``presign`` whether metadata may be read
    by URLs that need no credentials, and ``presigned_seconds`` how long these work."""

    flavor: Flavor = "oss"
    access_key_id: str = "sandbox"
    secret_access_key: str = field(default="sandbox-secret", repr=False)
    clock: Callable[[], datetime] = utc_now
    time_zone: tzinfo = timezone.utc
    max_uncommitted_per_file: int = 10_000
    presign: bool = True
    presigned_seconds: int = 900


class Service:
    """One sandbox server, without its HTTP. Handlers run inside ``store.transaction()``, one at a time."""

    def __init__(self, directory: Path, options: Options) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.options = options
        self.store = Store(directory / STATE_FILE)
        self.records = Records(self.store, self.now)
        self.staging = Staging(self.store)
        self.settings = Settings(self.store)
        self.namespaces = Namespaces(directory)
        self.trees = Trees()
        self.presigner = Presigner(secrets.token_bytes(32), options.presigned_seconds)
        self.xids = XidSource(self._seconds, secrets.token_bytes)
        self.object_paths = ObjectPaths(self._seconds, self.xids)

    @property
    def user(self) -> str:
        """Who commits: the name behind the one access key there is."""
        return self.options.access_key_id

    @property
    def enterprise(self) -> bool:
        return self.options.flavor == "enterprise"

    def now(self) -> int:
        """Epoch seconds."""
        return int(self._seconds())

    def now_us(self) -> int:
        return int(self._seconds() * 1_000_000)

    def _seconds(self) -> float:
        return self.options.clock().timestamp()

    def repository(self, request: Request) -> Repository:
        """The repository that the path names. Raises ApiError 404."""
        return self.records.repository(request.params["repository"])

    def writable(self, request: Request) -> Repository:
        """The same for a write. Raises ApiError 403 when it is read-only."""
        repository = self.repository(request)
        if repository.read_only:
            raise ApiError(403, "read-only repository")
        return repository

    def namespace(self, repository: Repository) -> Namespace:
        return self.namespaces.open(repository.storage_namespace)

    def resolve(self, repository: Repository, ref: str) -> Resolved:
        return resolve(self.records, repository.id, ref)

    def commit_of(self, repository: Repository, ref: str) -> Commit:
        return self.records.commit(repository.id, self.resolve(repository, ref).commit_id)
