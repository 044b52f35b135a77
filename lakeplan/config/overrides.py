"""``overrides`` of a tree: reviewed permissions for one gate of one repository, each with a last day."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any, TypeVar

from lakeplan.config.checks import text_of
from lakeplan.config.problems import Path, Problems
from lakeplan.config.units import parse_amount, parse_date
from lakeplan.config.yaml_nodes import ListNode, MapNode, Node, ScalarNode
from lakeplan.core.planning.gates import (
    AT_RISK,
    DELETED_BRANCHES,
    EXPIRED_BYTES,
    EXPIRED_OBJECTS,
    GATES,
    TAG_LOSS,
    UNMANAGED,
)
from lakeplan.core.tree_text import quoted
from lakeplan.model.desired import Override

T = TypeVar("T")
KEYS = ("repository", "gate", "max", "reason", "expires")
LAST_DAY = "YYYY-MM-DD"
RETIRED = "acknowledge"
"""What the key was called before ``expires`` was required."""
_GATE_UNITS = {
    EXPIRED_OBJECTS: ("percent", "%"),
    EXPIRED_BYTES: ("bytes", "B"),
    TAG_LOSS: ("tags", ""),
    AT_RISK: ("objects", ""),
    UNMANAGED: ("repositories", ""),
    DELETED_BRANCHES: ("branches", ""),
}


def read_overrides(root: MapNode, problems: Problems) -> Iterator[tuple[Path, Override]]:
    """Well-formed items with their paths. Whether their repositories exist is for the caller to check."""
    node = root.items.get("overrides")
    for index, item in enumerate(node.items if isinstance(node, ListNode) else ()):
        path: Path = ("overrides", index)
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
        if expires is None:
            continue  # missing or unreadable: a problem says so
        reason = text_of(item.items.get("reason")) or ""
        yield path, Override(repository, gate, ceiling, reason, expires, item.source)


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


def rewritten(node: Node | None) -> str:
    """The items of the retired ``acknowledge`` as one line of YAML, under the key that replaced it."""
    items = node.items if isinstance(node, ListNode) else ()
    maps = [_rewritten_item(item.items) for item in items if isinstance(item, MapNode)]
    return f"overrides: [{', '.join(maps)}]"


def _rewritten_item(items: Mapping[str, Node]) -> str:
    given = {k: v.text for k, v in items.items() if isinstance(v, ScalarNode)}
    texts = {key: _as_written(key, given[key]) for key in KEYS if key in given}
    return (
        "{"
        + ", ".join(f"{k}: {v}" for k, v in {**texts, "expires": given.get("expires", LAST_DAY)}.items())
        + "}"
    )


def _as_written(key: str, text: str) -> str:
    return text if key in ("max", "expires") else quoted(text)
