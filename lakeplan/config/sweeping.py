"""The ``holds`` and ``sweep`` blocks as typed values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lakeplan.config.units import parse_bytes, parse_count, parse_date, parse_duration
from lakeplan.model.stored import Versions
from lakeplan.model.sweep import Hold, SweepSettings

TARGETS = ("prefix", "branch", "tag", "commit")


def parse_age(text: str) -> int:
    """Seconds of a duration; unlike elsewhere ``0s`` may be meant. Raises ValueError."""
    return 0 if text == "0s" else parse_duration(text)


_PARSERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "min_age": ("min_age_seconds", parse_age),
    "settle": ("settle_seconds", parse_age),
    "margin": ("margin_seconds", parse_age),
    "quarantine_age": ("quarantine_age_seconds", parse_age),
    "versions": ("versions", Versions),
    "max_objects": ("max_objects", parse_count),
    "max_bytes": ("max_bytes", parse_bytes),
}


def sweep_settings(document: Mapping[str, Any]) -> SweepSettings:
    """The settings of a merged document, with the defaults of the design where nothing is said."""
    found = {}
    for key, value in document.get("sweep", {}).items():
        name, parse = _PARSERS.get(key, (key, lambda it: it))
        found[name] = parse(value)
    return SweepSettings(**found)


def holds(document: Mapping[str, Any]) -> tuple[Hold, ...]:
    """The holds of a merged document, in its order."""
    return tuple(_hold(item) for item in document.get("holds", ()))


def _hold(item: Mapping[str, Any]) -> Hold:
    kind = next(key for key in TARGETS if key in item)
    until = item.get("until")
    return Hold(
        kind,  # type: ignore[arg-type]  # one of TARGETS, as the schema has them
        item[kind],
        None if until is None else parse_date(str(until)),
        item.get("reason", ""),
    )
