"""Reads ``checks``: commands that judge a plan."""

from __future__ import annotations

from lakeplan.tree.checks import text_of
from lakeplan.tree.yaml import ListNode, MapNode, Problems
from lakeplan.values.checks import DEFAULT_SECONDS, LONGEST_SECONDS, Check
from lakeplan.values.units import parse_duration


def read_checks(root: MapNode, problems: Problems) -> tuple[Check, ...]:
    """In their order. What is not well formed has its problem and is left out."""
    node = root.items.get("checks")
    found: dict[str, Check] = {}
    for index, child in enumerate(node.items if isinstance(node, ListNode) else ()):
        if not isinstance(child, MapNode):
            continue
        name, run = text_of(child.items.get("name")), child.items.get("run")
        words = [text_of(item) for item in run.items] if isinstance(run, ListNode) else []
        if name is None or not words or any(not word or "\0" in word for word in words):
            continue
        if name in found:
            problems.add(child.source, ("checks", index, "name"), f"there are two checks {name!r}")
            continue
        found[name] = Check(name, tuple(w for w in words if w), _seconds(child, index, problems))
    return tuple(found.values())


def _seconds(check: MapNode, index: int, problems: Problems) -> int:
    node = check.items.get("time_limit")
    text = text_of(node)
    if node is None or text is None:
        return DEFAULT_SECONDS
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        problems.add_first(node.source, ("checks", index, "time_limit"), str(error))
        return DEFAULT_SECONDS
    if not 1 <= seconds <= LONGEST_SECONDS:
        problems.add(node.source, ("checks", index, "time_limit"), "a time limit is 1s to 10m")
        return DEFAULT_SECONDS
    return seconds
