"""A file of GC rules as lakectl takes and the API answers them."""

from __future__ import annotations

from typing import Any

from lakeplan.errors import ConfigError
from lakeplan.limits import parse_json
from lakeplan.model.rules import GcRules

_KEYS = {"default_retention_days", "branches"}
_BRANCH_KEYS = {"branch_id", "retention_days"}
_EXAMPLE = 'such as {"default_retention_days": 21, "branches": [{"branch_id": "main", "retention_days": 28}]}'


def read_rules(data: bytes, *, name: str) -> GcRules:
    """Rules out of JSON. Any whole number of days is taken, as the server takes it (api.md).

    Raises ConfigError that names the file: no JSON, an unknown or doubled key, a wrong type, a doubled
    branch, no default. A file without rules is refused: with no rules a collector marks every committed
    object (shared/lakefs/retention.md), and that is never meant.
    """
    rules = _parse(data, name)
    if rules is None or rules == {}:
        raise ConfigError(
            "the file holds no rules: without rules a collector marks every committed object",
            where=name,
            hint=_EXAMPLE,
        )
    if not isinstance(rules, dict):
        raise _bad("is not a JSON object of GC rules", name)
    _only(rules, _KEYS, "", name)
    if "default_retention_days" not in rules:
        raise _bad("default_retention_days is missing", name)
    branches: dict[str, int] = {}
    listed = rules.get("branches")
    if listed is not None and not isinstance(listed, list):
        raise _bad("branches is no list", name)
    for n, item in enumerate(listed or ()):
        at = f"branches[{n}]"
        if not isinstance(item, dict):
            raise _bad(f"{at} is no object", name)
        _only(item, _BRANCH_KEYS, at, name)
        branch = item.get("branch_id")
        if not isinstance(branch, str) or not branch:
            raise _bad(f"{at}.branch_id is missing or no text", name)
        if branch in branches:
            raise _bad(f"{at}: branch {branch} is listed twice", name)
        branches[branch] = _days(item.get("retention_days"), f"{at}.retention_days", name)
    return GcRules(_days(rules["default_retention_days"], "default_retention_days", name), branches)


def _parse(data: bytes, name: str) -> Any:
    if not data.strip():
        return None
    try:
        return parse_json(data.decode("utf-8-sig"), pairs=_no_doubles)
    except ValueError as error:
        raise _bad(f"is not JSON: {error}", name) from error


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice in one object")
        found[key] = value
    return found


def _only(found: dict[str, Any], known: set[str], at: str, name: str) -> None:
    unknown = sorted(set(found) - known)
    if unknown:
        raise _bad(f"unknown key {(at + '.' if at else '') + unknown[0]!r}", name)


def _days(value: Any, at: str, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad(f"{at} is not a whole number", name)
    if not -(2**31) <= value < 2**31:
        raise _bad(f"{at} does not fit the server's 32 bits", name)
    return value


def _bad(message: str, name: str) -> ConfigError:
    return ConfigError(message, where=name, hint=_EXAMPLE)
