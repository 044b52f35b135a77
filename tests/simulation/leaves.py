"""The leaves of sets, for comparisons."""

from __future__ import annotations

from lakeplan.simulation.table import Sets


def leaves_in(sets: Sets, of: int) -> list[int]:
    """The leaves of a set, in the order in which they were added."""
    leaves = []
    while of:
        leaves.append(sets.leaf[of])
        of = sets.before[of]
    return leaves[::-1]
