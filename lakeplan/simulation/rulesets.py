"""The rule sets of one run, and the verdict bits that stand for them."""

from __future__ import annotations

from dataclasses import dataclass

from lakeplan.model.rules import GcRules

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
