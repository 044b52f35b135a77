"""Options about a storage namespace, and how their values are read: shared by what works without a server."""

from __future__ import annotations

from datetime import timezone, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from lakeplan.errors import UsageError
from lakeplan.tree.checks import parse_duration

Age = Annotated[str, typer.Option("--min-age", help="Younger objects stay, such as 24h.", metavar="AGE")]
NoListing = Annotated[
    bool, typer.Option("--no-listing", help="Do not list what is stored: figures are at most.")
]
UncommittedAge = Annotated[
    str,
    typer.Option(
        "--max-uncommitted-age", help="How old a run of uncommitted addresses may be.", metavar="AGE"
    ),
]
StorageNamespace = Annotated[
    str | None,
    typer.Option(
        "--storage-namespace", help="The server's URL of the namespace, when it is another.", metavar="URL"
    ),
]
EndpointUrl = Annotated[
    str | None, typer.Option("--endpoint-url", help="Endpoint of an S3 store.", metavar="URL")
]
Region = Annotated[str | None, typer.Option("--region", help="Region of an S3 store.", metavar="REGION")]
Inventory = Annotated[
    str | None,
    typer.Option(
        "--inventory",
        help="Read an S3 inventory (Parquet) instead of listing what is stored.",
        metavar="s3://…/manifest.json",
    ),
]
InventoryAge = Annotated[
    str, typer.Option("--max-inventory-age", help="Do not use an older inventory.", metavar="AGE")
]
TimeZone = Annotated[str, typer.Option("--time-zone", help="The server's time zone.", metavar="ZONE")]


def parse_age(option: str, text: str) -> int:
    """Seconds of an age such as ``24h``; ``0`` is none. Raises UsageError naming the option."""
    if text.strip() in ("0", "0s"):
        return 0
    try:
        return parse_duration(text.strip())
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint=f"{option} 24h") from None


def parse_zone(name: str) -> tzinfo:
    """A time zone by name. Raises UsageError."""
    if name == "UTC":
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"there is no time zone {name!r}", hint="a name such as Europe/Paris") from None


def check_storage_namespace(url: str | None) -> str | None:
    """The URL as it is. Raises UsageError when it is none."""
    if url is not None and "://" not in url:
        raise UsageError(
            f"--storage-namespace {url!r} is no URL", hint="the server's own, such as s3://bucket/prefix"
        )
    return url
