"""Options about a storage namespace, its inventory and the cache, and what reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone, tzinfo
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakeplan.cli.options import Options, option
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.retention.rules import to_us
from lakeplan.simulation.cache import DEFAULT_LIMIT, RangeCache, open_cache
from lakeplan.simulation.runners import Runners
from lakeplan.stores.open import open_namespace
from lakeplan.values.progress import Progress
from lakeplan.values.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from lakeplan.cli.wiring import Session
    from lakeplan.simulation.listings import Inventory
    from lakeplan.simulation.requests import ImpactRequest
    from lakeplan.stores.open import NamespaceReader
    from lakeplan.values.simulation import ImpactResult


Age = Annotated[str, option("Keep objects younger than this, for example 24h.", "AGE")]
NoListing = Annotated[bool, option("Do not list stored objects. Figures are then upper bounds.")]
UncommittedAge = Annotated[
    str, option("Fail if the newest list of uncommitted addresses is older than this.", "AGE")
]
StorageNamespace = Annotated[
    str | None, option("Namespace URL that the server uses, if it differs from --namespace.", "URL")
]
EndpointUrl = Annotated[str | None, option("URL of the S3 endpoint.", "URL")]
Region = Annotated[str | None, option("S3 region.", "REGION")]
TimeZone = Annotated[str, option("Time zone of the server.", "ZONE")]
DEFAULT_CACHE_SIZE = f"{DEFAULT_LIMIT // 10**9}GB"


def parse_age(option: str, text: str) -> int:
    """Seconds of an age such as ``24h`` or ``0``. Raises UsageError naming the option."""
    if text.strip() in ("0", "0s"):
        return 0
    try:
        return parse_duration(text.strip())
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint=f"Use a duration, for example {option} 24h") from None


def parse_zone(name: str) -> tzinfo:
    """A time zone by name. Raises UsageError."""
    if name == "UTC":
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"unknown time zone {name!r}", hint="Use a name such as Europe/Paris.") from None


def check_storage_namespace(url: str | None) -> str | None:
    """The URL, unchanged. Raises UsageError when it is not a URL."""
    if url is not None and "://" not in url:
        raise UsageError(
            f"--storage-namespace {url!r} is not a URL",
            hint="Use the namespace URL that the server uses, for example s3://bucket/prefix",
        )
    return url


@dataclass(frozen=True)
class CacheChoice:
    where: str | None = None
    limit_bytes: int = DEFAULT_LIMIT

    def open(self, *, local: bool) -> RangeCache | None:
        """The cache, or None if there is none. ``local``: the workers run on this machine. On other machines
        the default folder is not used, because nothing limits its size there."""
        if self.where is None and not local:
            return None
        return open_cache(self.where, limit_bytes=self.limit_bytes, environ=os.environ)


def _cache_choice(
    cache: Annotated[
        str | None,
        option(
            "Range cache location; `off` disables the cache. Default: the user's cache directory.",
            "DIR|URL|off",
        ),
    ] = None,
    cache_size: Annotated[
        str, option("Maximum size of the cache folder after a run.", "SIZE")
    ] = DEFAULT_CACHE_SIZE,
) -> CacheChoice:
    try:
        limit = parse_bytes(cache_size)
    except ValueError as error:
        raise UsageError(f"--cache-size: {error}", hint="Use a size, for example --cache-size 20GB") from None
    if cache is not None and not cache.strip():
        raise UsageError("--cache is empty", hint="Specify a folder or a URL, or use --cache off.")
    return CacheChoice(cache, limit)


CacheOptions = Annotated[CacheChoice, Options(_cache_choice)]


@dataclass(frozen=True)
class LazySimulator:
    """A simulator that imports its engine only when there is something to simulate."""

    runners: Runners
    progress: Progress
    cache: CacheChoice = field(default_factory=CacheChoice)
    inventories: Callable[[ImpactRequest], Inventory | None] | None = None

    def impact(self, requests: Sequence[ImpactRequest]) -> Mapping[str, ImpactResult | LakeplanError]:
        from lakeplan.simulation.impact import LocalOrSpark

        cache = self.cache.open(local=self.runners.is_local)
        return LocalOrSpark(self.runners, self.progress, cache, self.inventories).impact(requests)


@dataclass(frozen=True)
class InventoryPlace:
    """The place of an inventory, its maximum age, and the access to its store."""

    url: str
    max_age_seconds: int
    endpoint_url: str | None = None
    region: str | None = None

    def open(self, namespace_url: str, as_of: datetime) -> Inventory:
        """Raises LakeplanError for an inventory that cannot replace a listing of the namespace."""
        from lakeplan.simulation.listings import open_inventory, parse_inventory_url

        bucket, _ = parse_inventory_url(self.url)
        reader = open_namespace(f"s3://{bucket}", endpoint_url=self.endpoint_url, region=self.region)
        return open_inventory(
            self.url, reader, namespace_url, as_of_us=to_us(as_of), max_age_seconds=self.max_age_seconds
        )


@dataclass(frozen=True)
class NamespaceAccess:
    """The options for reading a namespace without its server. They are checked only when they are used."""

    no_listing: NoListing = False
    inventory: Annotated[
        str | None,
        option(
            "Read an S3 Inventory report (Parquet) instead of listing stored objects.", "s3://…/manifest.json"
        ),
    ] = None
    max_inventory_age: Annotated[str, option("Maximum age of the inventory.", "AGE")] = "8d"
    max_uncommitted_age: UncommittedAge = "24h"
    storage_namespace: StorageNamespace = None
    endpoint_url: EndpointUrl = None
    region: Region = None
    time_zone: TimeZone = "UTC"

    def open(self, namespace: str) -> NamespaceReader:
        return open_namespace(namespace, endpoint_url=self.endpoint_url, region=self.region)

    def inventory_place(self) -> InventoryPlace | None:
        """Raises UsageError for an inventory that would not be used."""
        if self.inventory is None:
            return None
        if self.no_listing:
            raise UsageError("--inventory and --no-listing cannot be combined", hint="Remove one of them.")
        age = parse_age("--max-inventory-age", self.max_inventory_age)
        return InventoryPlace(self.inventory, age, self.endpoint_url, self.region)


NamespaceOptions = Annotated[NamespaceAccess, Options(NamespaceAccess)]


def inventory_for(session: Session, request: ImpactRequest) -> Inventory | None:
    """The inventory that a plan uses for a request."""
    server = request.key.partition("/")[0]
    return inventory_of(session, server, request.storage_id or "", request.storage_namespace)


def inventory_of(session: Session, server: str, storage_id: str, namespace: str) -> Inventory | None:
    """The inventory that ``servers.<name>.storages`` names for a repository's storage, or None."""
    config = session.tree.servers[server]
    storage = config.storages.get(storage_id)
    if storage is None or storage.inventory is None:
        return None
    from lakeplan.cli.sweeping import bind_storage

    bind_storage(session, config, storage)
    place = InventoryPlace(
        storage.inventory, storage.inventory_max_age_seconds, storage.endpoint_url, storage.region
    )
    return place.open(namespace, session.as_of)
