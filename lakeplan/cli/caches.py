"""The options ``--cache``, ``--cache-size`` and ``--inventory``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from lakeplan.cli.namespaces import parse_age
from lakeplan.errors import UsageError
from lakeplan.retention.rules import to_us
from lakeplan.simulation.cache import DEFAULT_LIMIT, RangeCache, open_cache
from lakeplan.stores.open import open_namespace
from lakeplan.tree.checks import parse_bytes

if TYPE_CHECKING:
    from lakeplan.cli.wiring import Session
    from lakeplan.simulation.listings import Inventory
    from lakeplan.simulation.requests import ImpactRequest


Where = Annotated[
    str | None,
    typer.Option(
        "--cache",
        help="Keep what was read of ranges here; off for nowhere. Default: the user's cache directory.",
        metavar="DIR|URL|off",
    ),
]
Size = Annotated[
    str, typer.Option("--cache-size", help="Bytes a cache folder may hold after a run.", metavar="SIZE")
]
DEFAULT_SIZE = f"{DEFAULT_LIMIT // 10**9}GB"


@dataclass(frozen=True)
class CacheChoice:
    where: str | None = None
    limit_bytes: int = DEFAULT_LIMIT

    def open(self, *, local: bool) -> RangeCache | None:
        """``local``: Spark's workers are on this machine. Workers elsewhere get no folder that nobody chose:
        nobody would keep it small there."""
        if self.where is None and not local:
            return None
        return open_cache(self.where, limit_bytes=self.limit_bytes, environ=os.environ)


def cache_choice(where: str | None, size: str) -> CacheChoice:
    """Raises UsageError."""
    try:
        limit = parse_bytes(size)
    except ValueError as error:
        raise UsageError(f"--cache-size: {error}", hint="--cache-size 20GB") from None
    if where is not None and not where.strip():
        raise UsageError("--cache names nothing", hint="--cache off, or a folder")
    return CacheChoice(where, limit)


@dataclass(frozen=True)
class InventoryPlace:
    """Where an inventory is, how old it may be, and how the store that has it is reached."""

    url: str
    max_age_seconds: int
    endpoint_url: str | None = None
    region: str | None = None

    def open(self, namespace_url: str, as_of: datetime) -> Inventory:
        """Raises LakeplanError for one that cannot stand for a listing of the namespace."""
        from lakeplan.simulation.listings import open_inventory, parse_inventory_url

        bucket, _ = parse_inventory_url(self.url)
        reader = open_namespace(f"s3://{bucket}", endpoint_url=self.endpoint_url, region=self.region)
        return open_inventory(
            self.url,
            reader,
            namespace_url,
            as_of_us=to_us(as_of),
            max_age_seconds=self.max_age_seconds,
        )


def inventory_place(
    url: str | None, max_age: str, *, no_listing: bool, endpoint_url: str | None, region: str | None
) -> InventoryPlace | None:
    """Raises UsageError for an inventory that would not be used."""
    if url is None:
        return None
    if no_listing:
        raise UsageError("--inventory and --no-listing exclude each other", hint="Leave one of them out.")
    return InventoryPlace(url, parse_age("--max-inventory-age", max_age), endpoint_url, region)


def inventory_for(session: Session, request: ImpactRequest) -> Inventory | None:
    """For a plan."""
    server = request.key.partition("/")[0]
    return inventory_of(session, server, request.storage_id or "", request.storage_namespace)


def inventory_of(session: Session, server: str, storage_id: str, namespace: str) -> Inventory | None:
    """What the tree says in ``servers.<name>.storages`` of a repository's storage."""
    config = session.tree.servers[server]
    storage = config.storages.get(storage_id)
    if storage is None or storage.inventory is None:
        return None
    from lakeplan.cli.sweeping import bind_storage

    bind_storage(config, storage, session.environ, session.approve)
    place = InventoryPlace(
        storage.inventory, storage.inventory_max_age_seconds, storage.endpoint_url, storage.region
    )
    return place.open(namespace, session.as_of)
