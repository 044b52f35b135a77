"""The blocks of ``lakeplan.yaml`` beside servers, profiles and entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from lakeplan import limits
from lakeplan.config.checks import Bounds, text_of
from lakeplan.config.problems import Problems
from lakeplan.config.units import (
    parse_bytes,
    parse_count,
    parse_duration,
    parse_percent,
)
from lakeplan.config.yaml_nodes import ListNode, MapNode, Node, ScalarNode
from lakeplan.core.globs import pattern_problem, why_no_tag
from lakeplan.model.desired import Safety, Source

T = TypeVar("T")
UNLIMITED = "unlimited"


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
    if len(node.items) > limits.GLOBS:
        text = f"safety has at most {limits.GLOBS:,} patterns"
        problems.add(node.source, ("safety", "protected_tags"), text)
    for index, child in enumerate(node.items[: limits.GLOBS]):
        pattern = text_of(child)
        if not pattern:
            continue
        if problem := pattern_problem(pattern, why_no_tag):
            problems.add(child.source, ("safety", "protected_tags", index), problem)
        yield pattern


def _or_unlimited(parse: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value == UNLIMITED else parse(value)


def _one_of(*words: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in words:
            raise TypeError
        return str(value)

    return parse
