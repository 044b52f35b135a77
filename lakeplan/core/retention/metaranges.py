"""From verdicts of commits to those of what the commits list."""

from __future__ import annotations

from collections.abc import Sequence

from lakeplan.core.retention.dates import oldest_first
from lakeplan.core.retention.graph import CommitGraph


def metarange_masks(graph: CommitGraph, masks: Sequence[int]) -> dict[str, int]:
    """Metarange id → OR of its commits' masks, over commits with any, oldest first. A repository's first
    commit has no metarange."""
    found: dict[str, int] = {}
    for commit in oldest_first(graph):
        meta_range_id, mask = graph.meta_range_ids[commit], masks[commit]
        if mask and meta_range_id:
            found[meta_range_id] = found.get(meta_range_id, 0) | mask
    return found
