"""The blocks of ``lakeplan.yaml`` beside servers, profiles and entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any, TypeVar

from lakeplan.config.checks import Bounds, text_of
from lakeplan.config.problems import Path, Problems
from lakeplan.config.units import (
    parse_amount,
    parse_bytes,
    parse_count,
    parse_date,
    parse_duration,
    parse_percent,
)
from lakeplan.config.yaml_nodes import ListNode, MapNode, Node, ScalarNode
from lakeplan.core.globs import why_no_tag
from lakeplan.core.planning.gates import (
    AT_RISK,
    DELETED_BRANCHES,
    EXPIRED_BYTES,
    EXPIRED_OBJECTS,
    GATES,
    TAG_LOSS,
    UNMANAGED,
)
from lakeplan.model.desired import Acknowledgement, Safety, Source

T = TypeVar("T")
UNLIMITED = "unlimited"
_GATE_UNITS = {
    EXPIRED_OBJECTS: ("percent", "%"),
    EXPIRED_BYTES: ("bytes", "B"),
    TAG_LOSS: ("tags", ""),
    AT_RISK: ("objects", ""),
    UNMANAGED: ("repositories", ""),
    DELETED_BRANCHES: ("branches", ""),
}


def read_bounds(root: MapNode, problems: Problems) -> Bounds:
    """Bounds as written; the widest where a value cannot be read."""
    node = root.items.get("bounds")
    low, high = _days(node, "min_retention_days", 1), _days(node, "max_retention_days", 36500)
    if low > high:
        text = f"min_retention_days ({low}) is more than max_retention_days ({high})"
        problems.add(root.where("bounds"), ("bounds",), text)
        return Bounds()
    return Bounds(low, high)


def _days(node: Node | None, key: str, default: int) -> int:
    child = node.items.get(key) if isinstance(node, MapNode) else None
    value = child.value if isinstance(child, ScalarNode) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def read_safety(root: MapNode, problems: Problems) -> Safety:
    """Limits as written over the defaults, which hold when the block is absent."""
    node = root.items.get("safety")
    if not isinstance(node, MapNode):
        return Safety()
    parsers: dict[str, tuple[str, Callable[[Any], object]]] = {
        "max_expired_objects_percent": ("max_expired_objects_percent", _or_unlimited(parse_percent)),
        "max_expired_bytes": ("max_expired_bytes", _or_unlimited(parse_bytes)),
        "max_deleted_branches": ("max_deleted_branches", _or_unlimited(parse_count)),
        "on_tag_loss": ("on_tag_loss", _one_of("ignore", "warn", "fail")),
        "on_server_divergence": ("on_server_divergence", _one_of("ignore", "warn", "fail")),
        "impact_tolerance_percent": ("impact_tolerance_percent", parse_percent),
        "max_plan_age": ("max_plan_age_seconds", parse_duration),
    }
    given: dict[str, Any] = {}
    for key, (field, parse) in parsers.items():
        child = node.items.get(key)
        if not isinstance(child, ScalarNode) or child.value is None or isinstance(child.value, bool):
            continue
        try:
            given[field] = parse(child.value)
        except ValueError as error:
            problems.add_first(child.source, ("safety", key), str(error))
        except TypeError:
            # A value of another type: the schema's problem says so.
            continue
    tags = node.items.get("protected_tags")
    if isinstance(tags, ListNode):
        given["protected_tags"] = tuple(_tag_patterns(tags, problems))
    return Safety(**given)


def read_places(root: MapNode) -> dict[str, Source]:
    """Where the keys stand that gates are judged by, as ``safety.max_expired_bytes``; blocks too."""
    found = {}
    for block in ("safety", "bounds", "state", "unmanaged"):
        if block not in root.items:
            continue
        found[block] = root.where(block)
        child = root.items[block]
        if isinstance(child, MapNode):
            found |= {f"{block}.{key}": child.where(key) for key in child.items}
    return found


def _tag_patterns(node: ListNode, problems: Problems) -> Iterator[str]:
    for index, child in enumerate(node.items):
        pattern = text_of(child)
        if not pattern:
            continue
        if why := why_no_tag(pattern):
            text = f"the pattern {pattern!r} can match nothing: {why}"
            problems.add(child.source, ("safety", "protected_tags", index), text)
        yield pattern


def _or_unlimited(parse: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value == UNLIMITED else parse(value)


def _one_of(*words: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in words:
            raise TypeError
        return str(value)

    return parse


def read_acknowledgements(root: MapNode, problems: Problems) -> Iterator[tuple[Path, Acknowledgement]]:
    """Well-formed items with their paths. Whether their repositories exist is for the caller to check."""
    node = root.items.get("acknowledge")
    for index, item in enumerate(node.items if isinstance(node, ListNode) else ()):
        path: Path = ("acknowledge", index)
        if not isinstance(item, MapNode):
            continue
        repository, gate = text_of(item.items.get("repository")), text_of(item.items.get("gate"))
        if repository is None or gate is None:
            continue
        if gate not in GATES:
            text = f"there is no gate {gate!r}: one of {', '.join(GATES)}"
            problems.add(item.items["gate"].source, (*path, "gate"), text)
            continue
        ceiling = _scalar(item, "max", path, problems, parse_amount)
        if ceiling is not None and (why := _why_no_ceiling(gate, item.items["max"])):
            problems.add(item.items["max"].source, (*path, "max"), why)
        expires: date | None = _scalar(item, "expires", path, problems, parse_date)
        reason = text_of(item.items.get("reason")) or ""
        yield path, Acknowledgement(repository, gate, ceiling, reason, expires, item.source)


def _why_no_ceiling(gate: str, node: Node) -> str | None:
    """``max`` has the unit of its gate: 5TB of a percentage would open the gate for anything."""
    if gate not in _GATE_UNITS:
        return f"the gate {gate} has no figure, so it takes no max"
    unit, ending = _GATE_UNITS[gate]
    text = text_of(node)
    if text is None or text[-1].isdigit() or (ending and text.endswith(ending)):
        return None
    return f"the gate {gate} counts {unit}: write max in {unit}"


def _scalar(item: MapNode, key: str, path: Path, problems: Problems, parse: Callable[[Any], T]) -> T | None:
    child = item.items.get(key)
    if not isinstance(child, ScalarNode) or child.value is None or isinstance(child.value, bool):
        return None
    try:
        return parse(child.value)
    except ValueError as error:
        problems.add_first(child.source, (*path, key), str(error))
    except TypeError:
        # A value of another type: the schema's problem says so.
        pass
    return None
