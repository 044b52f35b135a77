"""Everything that is known before Spark starts: verdicts, the ranges to read, what to list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakeplan.core.retention import oldest_first, to_us
from lakeplan.ports.progress import Progress
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.commits import judge_all
from lakeplan.simulation.inputs import History, NamespaceMetadata, listing_items, read_history
from lakeplan.simulation.ranges import Collected, Facts, collect_ranges
from lakeplan.simulation.request import SimulateRequest
from lakeplan.simulation.rulesets import bits_of
from lakeplan.simulation.staged import StagedRun, find_run
from lakeplan.simulation.verdicts import Judged
from lakeplan.simulation.work import WorkItem


@dataclass(frozen=True)
class Prepared:
    """What the driver knows before Spark starts. ``listing``: what workers list; None for nothing."""

    history: History
    judged: list[Judged]
    staged: StagedRun
    collected: Collected
    listing: list[WorkItem] | None

    @property
    def items(self) -> list[WorkItem]:
        return [*(self.listing or ()), *self.staged.items(), *self.collected.items]


def prepare(request: SimulateRequest, namespace: NamespaceReader, progress: Progress) -> Prepared:
    history = read_history(namespace)
    judged = judge_all(request, history)
    staged = find_run(
        namespace, as_of_us=to_us(request.as_of), max_age_seconds=request.max_uncommitted_age_seconds
    )
    listing = listing_items(namespace) if request.listing and request.inventory is None else None
    if request.inventory is not None:
        listing = request.inventory.items()
    facts = metarange_facts(history, judged)
    with progress.task("reading metaranges", len(facts)) as step:
        collected = collect_ranges(NamespaceMetadata(namespace), facts, name=namespace.url, step=step)
    return Prepared(history, judged, staged, collected, listing)


def metarange_facts(history: History, judged: Sequence[Judged]) -> dict[str, Facts]:
    """Per metarange of all commits, dangling ones too, what its ranges inherit."""
    graph, bits = history.graph, bits_of(tuple(one.rule_set for one in judged))
    facts: dict[str, Facts] = {}
    for at, commit in enumerate(oldest_first(graph)):
        meta_range_id = graph.meta_range_ids[commit]
        if not meta_range_id:
            continue
        fact = facts.setdefault(meta_range_id, Facts(holders=(0,) * len(judged)))
        for one, its in zip(judged, bits, strict=True):
            fact.mask |= one.mask(commit, its)
        fact.last = at
        holders = tuple(one.holders(commit) for one in judged)
        if any(holders):
            fact.holders = tuple(a | b for a, b in zip(fact.holders, holders, strict=True))
    return facts
