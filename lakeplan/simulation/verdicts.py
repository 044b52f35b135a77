"""Rule sets of one run and the bits that stand for their verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from lakeplan.errors import ConfigError
from lakeplan.limits import parse_json
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keepers import BranchSets, branch_sets
from lakeplan.retention.rules import DocumentedVerdict, documented_verdict, limit_us, server_verdict
from lakeplan.values.rules import GcRules

RULES, COMPARE = "rules", "compare"


@dataclass(frozen=True)
class RuleSet:
    """``name`` is what the ``rule_set`` column says."""

    name: str
    rules: GcRules


@dataclass(frozen=True)
class RuleSetBits:
    """``server``: the server's walk keeps it; ``documented``: the documented rule does."""

    name: str
    server: int
    documented: int


def bits_of(rule_sets: tuple[RuleSet, ...]) -> tuple[RuleSetBits, ...]:
    return tuple(RuleSetBits(r.name, 1 << 2 * n, 2 << 2 * n) for n, r in enumerate(rule_sets))


@dataclass(frozen=True)
class Judged:
    """One rule set over a history. Flags are per commit number; ``dangling`` is 1 where a walk from a
    dangling commit keeps a commit under the documented rule."""

    rule_set: RuleSet
    server: bytearray
    documented: DocumentedVerdict
    branches: BranchSets
    dangling: bytearray

    @property
    def dangling_bit(self) -> int:
        """Bit of the holder that stands for all dangling starts, after the branches' bits."""
        return 1 << len(self.branches.names)

    def holders(self, commit: int) -> int:
        """Who keeps a commit under the documented rule, as bits."""
        mask = self.branches.masks[self.branches.of_commit[commit]]
        return mask | self.dangling_bit if self.dangling[commit] else mask

    def mask(self, commit: int, bits: RuleSetBits) -> int:
        return (bits.server if self.server[commit] else 0) | (
            bits.documented if self.documented.active[commit] else 0
        )

    @property
    def commits_at_risk(self) -> int:
        """Commits that the server lets go and the documented rule keeps."""
        return sum(
            kept and not active for kept, active in zip(self.documented.active, self.server, strict=True)
        )

    def commits_of_branches(self) -> list[int]:
        """How many commits each branch keeps, in the order of ``branches.names``."""
        shared: dict[int, int] = {}
        for position in self.branches.of_commit:
            shared[position] = shared.get(position, 0) + 1
        counts = [0] * len(self.branches.names)
        for position, commits in shared.items():
            mask = self.branches.masks[position]
            while mask:
                lowest = mask & -mask
                counts[lowest.bit_length() - 1] += commits
                mask ^= lowest
        return counts


def judge(graph: CommitGraph, rule_set: RuleSet, as_of: datetime, zone: tzinfo) -> Judged:
    """All verdicts of a rule set at a moment (aware), with the server in ``zone``."""
    rules = rule_set.rules
    return Judged(
        rule_set,
        server_verdict(graph, rules, as_of, zone),
        documented_verdict(graph, rules, as_of, zone),
        branch_sets(graph, rules, as_of, zone),
        kept_by_dangling(graph, rules, as_of, zone),
    )


def kept_by_dangling(graph: CommitGraph, rules: GcRules, as_of: datetime, zone: tzinfo) -> bytearray:
    """Per commit number, 1 when a dangling commit's documented walk keeps it (lakefs/retention.md: default
    days; a dangling start is treated as having a child of its own date)."""
    limit = limit_us(as_of, rules.default_retention_days, zone)
    below, kept = bytearray(len(graph)), bytearray(len(graph))
    for start in graph.dangling:
        below[start] = 1
        kept[start] = graph.creation_us[start] > limit
    for commit in graph.order:
        parent = graph.main_parent[commit]
        if below[commit] and parent >= 0:
            below[parent] = 1
            if graph.creation_us[commit] > limit:
                kept[parent] = 1
    return kept


_KEYS = {"default_retention_days", "branches"}
_BRANCH_KEYS = {"branch_id", "retention_days"}
_EXAMPLE = 'such as {"default_retention_days": 21, "branches": [{"branch_id": "main", "retention_days": 28}]}'


def read_rules(data: bytes, *, name: str) -> GcRules:
    """Rules out of JSON. Any whole number of days is taken, as the server takes it (lakefs/api.md).

    Raises ConfigError that names the file: no JSON, an unknown or doubled key, a wrong type, a doubled
    branch, no default. A file without rules is refused: with no rules a collector marks every committed
    object (lakefs/retention.md), and that is never meant.
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
