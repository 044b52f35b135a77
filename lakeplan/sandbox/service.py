"""What every handler works with: state, storage, clock and the flavour of the server."""

from __future__ import annotations

import binascii
import json
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone, tzinfo
from fnmatch import translate
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from lakeplan.formats.namespace import REFS_MANIFEST_KEY, ObjectPaths, XidSource, metadata_key, normalize
from lakeplan.formats.refs import write_manifest, write_refs_dump
from lakeplan.sandbox.graph import Resolved, resolve
from lakeplan.sandbox.messages import ApiError, Request, Response, bad_request
from lakeplan.sandbox.records import Records, Store
from lakeplan.sandbox.storage import (
    BRANCH_PROTECTION,
    SCHEME,
    Namespace,
    Namespaces,
    Presigner,
    Settings,
    Staging,
    Trees,
)
from lakeplan.values.objects import AddressType, Entry
from lakeplan.values.repository import Commit, RefsDumpIds, Repository

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


def dump_refs(service: Service, repository: Repository, *, manifest: bool) -> RefsDumpIds:
    """Writes all commits, branches (hidden too) and tags; the manifest only when asked to."""
    namespace = service.namespace(repository)
    ids, files = write_refs_dump(service.records.refs(repository.id))
    for id, data in files.items():
        namespace.write_once(metadata_key(id), data)
    if manifest:
        namespace.write(REFS_MANIFEST_KEY, write_manifest(ids))
    return ids


@dataclass(frozen=True)
class Mark:
    """Where a run goes on: at a path of a branch; "" is the beginning."""

    run_id: str
    branch: str
    path: str


@dataclass(frozen=True)
class Collected:
    """Addresses relative to the namespace and epoch seconds; ``next`` when there is more."""

    addresses: list[str]
    creation_dates: list[int]
    next: Mark | None


def collect(service: Service, repository: Repository, mark: Mark) -> Collected:
    """The next addresses of a run: of every branch, hidden ones too, as many as a file may hold."""
    addresses: list[str] = []
    dates: list[int] = []
    for branch, entry in _staged(service, repository):
        if (branch, entry.path) < (mark.branch, mark.path):
            continue
        address = normalize(entry.address, entry.address_type, repository.storage_namespace)
        if address is None:
            continue
        if len(addresses) == service.options.max_uncommitted_per_file:
            return Collected(addresses, dates, Mark(mark.run_id, branch, entry.path))
        addresses.append(address)
        dates.append(entry.last_modified_us // 1_000_000)
    return Collected(addresses, dates, None)


def write_token(mark: Mark) -> str:
    return urlsafe_b64encode(json.dumps(asdict(mark)).encode()).decode()


def read_token(token: str) -> Mark:
    """Raises ApiError 400 for what is none of ours."""
    try:
        return Mark(**json.loads(urlsafe_b64decode(token.encode())))
    except (ValueError, TypeError, binascii.Error):
        raise bad_request("invalid continuation token") from None


def _staged(service: Service, repository: Repository) -> Iterator[tuple[str, Entry]]:
    """All that is uncommitted, also what equals the HEAD's object (a diff would not show it): reading the
    branch gives the staged address."""
    for branch in service.records.branches(repository.id, show_hidden=True):
        for _, entry in sorted(service.staging.changes(repository.id, branch.id).items()):
            if entry is not None:
                yield branch.id, entry


def full_address(service: Service, repository: Repository, entry: Entry) -> str:
    """The entry's URL."""
    if entry.address_type is AddressType.FULL:
        return entry.address
    return service.namespace(repository).full_address(entry.address)


def read_object(service: Service, repository: Repository, entry: Entry) -> bytes | None:
    """The bytes of an entry, or None when they are gone."""
    relative = normalize(entry.address, entry.address_type, repository.storage_namespace)
    if relative is not None:
        return service.namespace(repository).read(relative)
    folder, _, name = entry.address.rpartition("/")
    return service.namespaces.open(folder).read(name)


def stored_form(repository: Repository, physical_address: str) -> tuple[str, AddressType]:
    """How a server stores an address that a client stages: its own ones as relative.

    Raises ApiError 400 for an address on storage that this server does not have.
    """
    relative = normalize(physical_address, AddressType.FULL, repository.storage_namespace)
    if not physical_address.startswith(SCHEME):
        raise ApiError(400, "physical address is not valid for block adapter: local")
    if relative is not None:
        return relative, AddressType.RELATIVE
    return physical_address, AddressType.FULL


CANNOT_WRITE = "cannot write to protected branch"
CANNOT_COMMIT = "cannot commit to protected branch"
PROTECTED = "protected branch"


def check_not_protected(service: Service, repository: Repository, branch: str, message: str) -> None:
    """Raises ApiError 403 with ``message`` when a rule's pattern matches the branch."""
    for rule in service.settings.get(repository.id, BRANCH_PROTECTION) or []:
        if re.fullmatch(translate(rule["pattern"]), branch):
            raise ApiError(403, message)


@dataclass(frozen=True)
class PathPage:
    """``names`` in order: paths, and common prefixes, which end in the delimiter."""

    names: tuple[str, ...]
    prefixes: frozenset[str]
    has_more: bool

    @property
    def next_offset(self) -> str:
        return self.names[-1] if self.names else ""


def page_of_paths(request: Request, paths: Iterable[str]) -> PathPage:
    """The page that a request asks for. ``paths`` come in lakeFS's order."""
    prefix, after = request.text("prefix"), request.text("after")
    delimiter, amount = request.text("delimiter"), request.amount
    names: list[str] = []
    prefixes: set[str] = set()
    for path in paths:
        if not path.startswith(prefix):
            continue
        name, is_prefix = _fold(path, prefix, delimiter)
        if (after and name <= after) or name in prefixes:
            continue
        if len(names) == amount:
            return PathPage(tuple(names), frozenset(prefixes), has_more=True)
        names.append(name)
        if is_prefix:
            prefixes.add(name)
    return PathPage(tuple(names), frozenset(prefixes), has_more=False)


def _fold(path: str, prefix: str, delimiter: str) -> tuple[str, bool]:
    if delimiter:
        end = path.find(delimiter, len(prefix))
        if end >= 0:
            return path[: end + len(delimiter)], True
    return path, False


Handler = Callable[[Service, Request], Response]

API = "/api/v1"
_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Route:
    """``pattern`` is as in lakeFS's own API description: ``/repositories/{repository}/branches``."""

    method: str
    pattern: str
    handler: Handler
    public: bool = False
    flavor: Flavor = "oss"

    @property
    def expression(self) -> re.Pattern[str]:
        return re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", self.pattern))


ROUTES: list[Route] = []
"""All that the modules of handlers declare."""


def route(
    method: str, pattern: str, *, public: bool = False, flavor: Flavor = "oss"
) -> Callable[[Handler], Handler]:
    """Declares that a handler answers here: in both flavours, or in Enterprise only."""

    def declare(handler: Handler) -> Handler:
        ROUTES.append(Route(method, pattern, handler, public, flavor))
        return handler

    return declare


class Router:
    """Finds the route of a request. Parts of a path are percent-decoded after they were told apart."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes: dict[str, list[tuple[re.Pattern[str], Route]]] = {}
        for route in routes:
            self._routes.setdefault(route.method, []).append((route.expression, route))

    def find(self, method: str, raw_path: str) -> tuple[Route, dict[str, str]] | None:
        """The route and its parameters, or None when no route answers here."""
        if not raw_path.startswith(API):
            return None
        for expression, route in self._routes.get(method, ()):
            match = expression.fullmatch(raw_path[len(API) :])
            if match:
                return route, {name: unquote(part) for name, part in match.groupdict().items()}
        return None
