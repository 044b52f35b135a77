"""Caches of what was computed from ranges (``lakeplan.ports.range_cache``)."""

from lakeplan.adapters.cache.open import CACHE_OFF, DEFAULT_LIMIT, open_cache

__all__ = ["CACHE_OFF", "DEFAULT_LIMIT", "open_cache"]
