"""The ``branch_lifecycle`` and ``lifecycle`` blocks as typed values, and which engine they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeplan.config.layers import CLEAR
from lakeplan.config.units import parse_count, parse_duration
from lakeplan.core.globs import safe_spellings, unsafe_class
from lakeplan.model.desired import Cleared, PoliciesDesired, PoliciesSetting, Source
from lakeplan.model.lifecycle import LifecycleSettings, Policy

BLOCK = "branch_lifecycle"


def policies_setting(document: Mapping[str, Any], sources: Mapping[str, Source]) -> PoliciesSetting:
    """The policies of a merged document that ``check_complete`` found nothing wrong with."""
    block = document.get(BLOCK)
    if block is None:
        return None
    if block == CLEAR:
        return Cleared.CLEAR
    items = block["policies"]
    places = tuple(sources[f"/{BLOCK}/policies/{n}/patterns"] for n in range(len(items)))
    return PoliciesDesired(tuple(_policy(item) for item in items), places, min(places))


def _policy(item: Mapping[str, Any]) -> Policy:
    return Policy(
        id=item.get("id"),
        patterns=tuple(item["patterns"]),
        max_age_seconds=_seconds(item.get("max_age")),
        max_idle_seconds=_seconds(item.get("max_idle_age")),
        description=item.get("description", ""),
    )


def _seconds(text: str | None) -> int | None:
    return None if text is None else parse_duration(text)


def lifecycle_settings(document: Mapping[str, Any]) -> LifecycleSettings:
    """The settings, with the defaults of the design where nothing is said."""
    block = dict(document.get("lifecycle", {}))
    if "exempt" in block:
        block["exempt"] = tuple(block["exempt"])
    if "min_keep" in block:
        block["min_keep"] = parse_count(block["min_keep"])
    return LifecycleSettings(**block)


def why_no_engine(server: str, engine: str) -> str | None:
    """Why policies cannot stand under a server's engine; None when they can."""
    if engine != "none":
        return None
    return (
        f"nobody would enforce this: servers.{server}.branch_lifecycle.engine is none; set it to server "
        "(lakeFS Enterprise deletes the branches) or lakeplan (`lakeplan lifecycle run` does)"
    )


def why_ambiguous(pattern: str) -> str | None:
    """Why a pattern cannot stand under ``engine: server``; None when every lakeFS server reads it alike."""
    part = unsafe_class(pattern)
    if part is None:
        return None
    safe = ", ".join(f'"{spelling}"' for spelling in safe_spellings(pattern))
    write = f"write {safe}" if safe else "write several simpler patterns"
    return f"lakeFS servers do not agree what {part} in the pattern {pattern!r} means: {write}"
