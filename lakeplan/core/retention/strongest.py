"""For every commit at once: who keeps it the longest under the documented rule, and until when.

``why`` answers that for one commit and looks at everything below it. A picture of a whole history asks for
all of them: one pass, children first. Of the starts below a child only one with the most days can keep the
child's parent the longest, so each commit hands up that one.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from datetime import timezone, tzinfo

from lakeplan.core.retention.documented import NEVER_EXPIRES, NEVER_KEPT
from lakeplan.core.retention.graph import CommitGraph
from lakeplan.core.retention.limits import zone_clock
from lakeplan.model.rules import GcRules

NOBODY = -1
DANGLING = -2
_WEAKEST = -(2**31)


@dataclass(frozen=True, eq=False)
class Strongest:
    """Per commit number.

    - ``branch``: position in ``graph.branches`` of the branch that keeps it the longest (or did);
      ``DANGLING`` for a walk from a dangling commit, ``NOBODY`` where no walk comes
    - ``via``: the commit that followed it on that walk, from whose date the days count; itself where the
      walk starts there
    - ``until_us``: the last instant it is kept if nobody writes: ``NEVER_EXPIRES`` for a HEAD, ``NEVER_KEPT``
      where no walk comes
    """

    branch: array[int]
    via: array[int]
    until_us: array[int]


def strongest_keepers(graph: CommitGraph, rules: GcRules, zone: tzinfo = timezone.utc) -> Strongest:
    """The strongest keeper of every commit; of several that keep it equally long a branch rather than a
    dangling commit, and the one that sorts first of those that were compared."""
    clock = zone_clock(zone)
    count = len(graph)
    found = Strongest(
        array("i", [NOBODY]) * count, array("i", range(count)), array("q", [NEVER_KEPT]) * count
    )
    # What is handed up: days, and minus the branch's position, so that the greatest is the one to take.
    below: list[tuple[int, int] | None] = [None] * count
    dangling = (rules.default_retention_days, -len(graph.branches))
    for position, (branch, head) in enumerate(zip(graph.branches, graph.heads, strict=True)):
        start = (rules.days_for(branch.id), -position)
        below[head] = max(below[head] or start, start)
        if found.until_us[head] != NEVER_EXPIRES:
            found.branch[head], found.until_us[head] = position, NEVER_EXPIRES
    for commit in graph.dangling:
        until = clock.expiry(graph.creation_us[commit], rules.default_retention_days)
        found.branch[commit], found.until_us[commit] = DANGLING, until
        below[commit] = max(below[commit] or dangling, dangling)
    for commit in graph.order:
        start_below, parent = below[commit], graph.main_parent[commit]
        below[commit] = None
        if start_below is None or parent < 0:
            continue
        below[parent] = max(below[parent] or start_below, start_below)
        days, minus = start_below
        until = clock.expiry(graph.creation_us[commit], days)
        keeper = DANGLING if -minus == len(graph.branches) else -minus
        if (until, _rank(keeper)) > (found.until_us[parent], _rank(found.branch[parent])):
            found.branch[parent], found.via[parent], found.until_us[parent] = keeper, commit, until
    return found


def _rank(branch: int) -> int:
    """Greater is stronger, at the same moment: branches by name, then dangling commits."""
    return -branch if branch >= 0 else _WEAKEST
