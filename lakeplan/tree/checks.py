"""Checks of one profile, entry or file: settings, globs, names and items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from lakeplan import limits
from lakeplan.retention.keep import prefix_problem
from lakeplan.retention.patterns import BRANCH_NAMES, is_glob, pattern_problem, why_no_branch, why_no_tag
from lakeplan.tree.layers import CLEAR, HOLD_TARGETS, RUN_SETTINGS, SERVER_BLOCKS
from lakeplan.tree.yaml import ListNode, MapNode, Node, NodePath, Problems, ScalarNode, text_of
from lakeplan.values.declare import BRANCH_GLOBS, Setting
from lakeplan.values.desired import BRANCH_SETTINGS, Bounds, Source
from lakeplan.values.pins import PINS, PREFIX
from lakeplan.values.sweep import SWEEP, Hold
from lakeplan.values.units import parse_count, parse_date, parse_duration


def holds(document: Mapping[str, Any]) -> tuple[Hold, ...]:
    """Return the holds of a merged document, in its order."""
    parsed = []
    for item in document.get("holds", ()):
        kind: Any = next(key for key in HOLD_TARGETS if key in item)
        until = item.get("until")
        last_day = None if until is None else parse_date(str(until))
        parsed.append(Hold(kind, item[kind], last_day, item.get("reason", "")))
    return tuple(parsed)


class SettingsCheck:
    """Adds a problem for everything that is invalid in one profile, entry or file."""

    def __init__(self, problems: Problems, bounds: Bounds) -> None:
        self._problems = problems
        self._bounds = bounds
        self._globs = self._globs_here = 0

    def settings(self, node: Node, path: NodePath, *, may_clear: bool) -> None:
        if not isinstance(node, MapNode):
            return
        self._globs_here = 0
        for block in SERVER_BLOCKS:
            child = node.items.get(block)
            if text_of(child) == CLEAR and child is not None and not may_clear:
                text = f"`{block}: clear` is allowed only in an entry with the exact name of a repository"
                self._problems.add(child.source, (*path, block), text)
        checks: dict[str, Callable[[Node, NodePath], None]] = {
            "gc": self.gc,
            "branch_lifecycle": self.branch_lifecycle,
            "object_lifecycle": self._object_lifecycle,
            "holds": self._holds,
            "sweep": self._sweep,
            "pins": self._pins,
        }
        for key, check in checks.items():
            if key in node.items:
                check(node.items[key], (*path, key))

    # ---- blocks
    def gc(self, node: Node, path: NodePath) -> None:
        if not isinstance(node, MapNode):
            return
        self._alone(node, path, "file")
        self._days(node, "default_retention_days", path)
        places: dict[tuple[str, str], Source] = {}
        for here, item in _items(node, "branches", path):
            self._days(item, "retention_days", here)
            self._problems.parsed(item, "min_commits", here, parse_count, None)
            keep = item.items.get("keep")
            if isinstance(keep, MapNode):
                for key in ("daily", "weekly", "monthly"):
                    self._problems.parsed(keep, key, (*here, "keep"), parse_count, None)
            branch, pattern = item.items.get("branch_id"), item.items.get("pattern")
            if (branch is None) == (pattern is None):
                self._problems.add(item.source, here, "a rule needs either a branch_id or a pattern")
            elif branch is not None:
                self._branch_name(branch, (*here, "branch_id"))
                if (text_of(branch) or "").startswith(PREFIX):
                    text = (
                        f"branches whose names begin with {PREFIX} are pins; lakeplan sets their rules, so"
                        " remove this rule"
                    )
                    self._problems.add(branch.source, (*here, "branch_id"), text)
            elif pattern is not None:
                self._pattern(pattern, (*here, "pattern"))
            self._removal(item, here, ("branch_id", "pattern"), needs=("retention_days",))
            for by in ("branch_id", "pattern"):
                self._once(places, by, item, here)

    def branch_lifecycle(self, node: Node, path: NodePath) -> None:
        if not isinstance(node, MapNode):
            return
        self._alone(node, path, "file", allowed=RUN_SETTINGS)
        self._settings(node, path, BRANCH_SETTINGS)
        places: dict[tuple[str, str], Source] = {}
        for here, item in _items(node, "policies", path):
            for at, pattern in _texts(item, "patterns", here):
                self._pattern(pattern, at)
            for key in ("max_age", "max_idle_age", "max_inactivity_time"):
                self._problems.parsed(item, key, here, parse_duration, None)
            if "max_idle_age" in item.items and "max_inactivity_time" in item.items:
                text = "max_inactivity_time is another name for max_idle_age; use only one of them"
                self._problems.add(item.where("max_inactivity_time"), here, text)
            self._removal(item, here, ("id",))
            self._once(places, "id", item, here)

    def _object_lifecycle(self, node: Node, path: NodePath) -> None:
        places: dict[tuple[str, str], Source] = {}
        for here, item in _items(node, "rules", path):
            for at, branch in _texts(item, "branches", here):
                self._branch_name(branch, at)
            self._removal(item, here, ("id",))
            self._once(places, "id", item, here)

    def _holds(self, node: Node, path: NodePath) -> None:
        places: dict[tuple[str, str], Source] = {}
        for here, item in _items(node, "", path):
            named = [key for key in HOLD_TARGETS if key in item.items]
            if len(named) != 1:
                text = "a hold needs exactly one of prefix, branch, tag or commit"
                self._problems.add(item.source, here, text)
            if "branch" in named:
                self._pattern(item.items["branch"], (*here, "branch"))
            if "tag" in named:
                self._pattern(item.items["tag"], (*here, "tag"), why_no_tag)
            prefix = text_of(item.items.get("prefix"))
            if prefix is not None and "remove" not in item.items and (problem := prefix_problem(prefix)):
                self._problems.add(item.items["prefix"].source, (*here, "prefix"), problem)
            self._problems.parsed(item, "until", here, parse_date, None)
            self._removal(item, here, HOLD_TARGETS, needs=("reason",))
            for by in named:
                self._once(places, by, item, here)

    def _sweep(self, node: Node, path: NodePath) -> None:
        if isinstance(node, MapNode):
            self._settings(node, path, SWEEP)

    def _pins(self, node: Node, path: NodePath) -> None:
        if not isinstance(node, MapNode):
            return
        self._settings(node, path, PINS)
        for at, pattern in _texts(node, "tags", path):
            self._pattern(pattern, at, why_no_tag)

    # ---- values
    def _settings(self, node: MapNode, path: NodePath, settings: Iterable[Setting]) -> None:
        for setting in settings:
            if setting.kind is BRANCH_GLOBS:
                for at, pattern in _texts(node, setting.key, path):
                    self._pattern(pattern, at)
            else:
                self._problems.parsed(node, setting.key, path, setting.kind.parse, None)

    def _days(self, node: MapNode, key: str, path: NodePath) -> None:
        child = node.items.get(key)
        value = child.value if isinstance(child, ScalarNode) else None
        if child is None or not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 36500:
            return
        low, high = self._bounds.min_retention_days, self._bounds.max_retention_days
        if not low <= value <= high:
            text = f"{value} is outside the tree's bounds of {low} to {high} days"
            self._problems.add(child.source, (*path, key), text)

    def _branch_name(self, node: Node, path: NodePath) -> None:
        name = text_of(node)
        if name is None or BRANCH_NAMES.allows(name):
            return
        if is_glob(name):
            text = f"{name!r} is a glob, not a branch name; write `pattern: {name}` instead"
        else:
            text = f"{name!r} is not a valid branch name: use letters, digits, _ and -, with no leading -"
        self._problems.add(node.source, path, text)

    def _pattern(
        self, node: Node, path: NodePath, why_not: Callable[[str], str | None] = why_no_branch
    ) -> None:
        pattern = text_of(node)
        if not pattern:
            return
        self._globs += 1
        self._globs_here += 1
        for count, most, what in (
            (self._globs_here, limits.GLOBS, "an entry or profile"),
            (self._globs, limits.TREE_GLOBS, "a tree"),
        ):
            if count == most + 1:
                self._problems.add(node.source, path, f"{what} may have at most {most:,} patterns")
        if self._globs <= limits.TREE_GLOBS and (text := pattern_problem(pattern, why_not)):
            self._problems.add(node.source, path, text)

    # ---- shape
    def _alone(
        self, node: MapNode, path: NodePath, key: str, *, allowed: AbstractSet[str] = frozenset()
    ) -> None:
        if key in node.items and node.items.keys() - allowed - {key}:
            text = (
                f"`{key}` must be the only key here; move the other keys into that file, or copy its"
                " contents here"
            )
            self._problems.add(node.where(key), (*path, key), text)

    def _removal(
        self, item: MapNode, path: NodePath, identities: tuple[str, ...], needs: tuple[str, ...] = ()
    ) -> None:
        if "remove" in item.items:
            extra = [key for key in item.items if key != "remove" and key not in identities]
            if extra:
                text = f"an item with `remove: true` cannot also have {', '.join(extra)}"
                self._problems.add(item.where("remove"), path, text)
            if not any(key in item.items for key in identities):
                self._problems.add(item.source, path, f"`remove: true` needs {' or '.join(identities)}")
            return
        for key in needs:
            if key not in item.items:
                self._problems.add(item.source, path, f"the key {key} is missing")

    def _once(self, places: dict[tuple[str, str], Source], by: str, item: MapNode, path: NodePath) -> None:
        node = item.items.get(by)
        if node is None or (name := text_of(node)) is None:
            return
        first = places.setdefault((by, name), node.source)
        if first is not node.source:
            text = f"{by} {name!r} appears twice; the first is at {first}"
            self._problems.add(node.source, (*path, by), text)


def _items(node: Node, key: str, path: NodePath) -> Iterator[tuple[NodePath, MapNode]]:
    """Yield the maps in a list, which is ``node[key]``, or ``node`` without a key."""
    if key:
        node, path = (node.items.get(key, node) if isinstance(node, MapNode) else node), (*path, key)
    if isinstance(node, ListNode):
        for index, item in enumerate(node.items):
            if isinstance(item, MapNode):
                yield (*path, index), item


def _texts(node: MapNode, key: str, path: NodePath) -> Iterator[tuple[NodePath, ScalarNode]]:
    child = node.items.get(key)
    if isinstance(child, ListNode):
        for index, item in enumerate(child.items):
            if isinstance(item, ScalarNode):
                yield (*path, key, index), item
