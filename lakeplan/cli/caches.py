"""The options ``--cache`` and ``--cache-size``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from lakeplan.adapters.cache import DEFAULT_LIMIT, open_cache
from lakeplan.config.units import parse_bytes
from lakeplan.errors import UsageError
from lakeplan.ports.range_cache import RangeCache

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
