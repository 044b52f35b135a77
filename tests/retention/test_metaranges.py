"""From commits to the metaranges that they list."""

from __future__ import annotations

from dataclasses import replace

from lakeplan.retention.graph import CommitGraph, metarange_masks
from tests.retention.conftest import draw_refs


def graph(**metaranges: str) -> CommitGraph:
    """Commits a to d, a the newest, with other metaranges than their own."""
    refs = draw_refs("main -> a 1 b\n b 2 c\n c 3 d\n d 4")
    commits = (replace(c, meta_range_id=metaranges.get(c.id, c.meta_range_id)) for c in refs.commits)
    return CommitGraph.from_refs(replace(refs, commits=tuple(commits)))


def masks_of(drawn: CommitGraph, **masks: int) -> dict[str, int]:
    return metarange_masks(drawn, [masks.get(id, 0) for id in drawn.ids])


def it_keeps_a_metarange_for_every_commit_that_lists_it() -> None:
    """A revert lists the metarange of the commit before: what keeps either keeps the metarange."""
    reverted = graph(a="mr-c")
    assert masks_of(reverted, a=1, b=2, c=4, d=1) == {"mr-d": 1, "mr-c": 5, "mr-b": 2}
    assert masks_of(reverted, a=1) == {"mr-c": 1}
    assert masks_of(reverted, c=4) == {"mr-c": 4}


def it_names_the_oldest_first_and_leaves_out_what_nothing_keeps() -> None:
    assert list(masks_of(graph(), a=1, b=0, c=2, d=3).items()) == [("mr-d", 3), ("mr-c", 2), ("mr-a", 1)]
    assert masks_of(graph()) == {}


def it_takes_a_commit_without_a_metarange_for_empty() -> None:
    assert masks_of(graph(d=""), d=7, a=1) == {"mr-a": 1}
