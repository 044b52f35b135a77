"""What a change does to one repository: commit verdicts and simulated objects, folded into an Impact."""

from __future__ import annotations

from dataclasses import replace

from lakeplan.core.planning.verdicts import BACKLOG, Verdicts, side_bits, transitions
from lakeplan.model.plan import (
    Backlog,
    Horizon,
    HorizonImpact,
    Impact,
    ImpactStatus,
    PrefixImpact,
    TagLoss,
)
from lakeplan.model.simulation import Amount, ImpactResult

STAGED_DATA = "staged data is not read by a plan; it only protects more, so the figures are upper bounds"


def unaffected(verdicts: Verdicts, blind_to: tuple[str, ...] = ()) -> Impact:
    """No commit changes sides: every figure is zero without reading a range."""
    zero = {
        h.value: replace(
            verdicts.commit_impact(h), objects_expire=0, bytes_expire=0, objects_at_risk=0, bytes_at_risk=0
        )
        for h in Horizon
    }
    return Impact(
        ImpactStatus.UNAFFECTED,
        reason="no commit changes sides",
        horizons=zero,
        backlog=Backlog(verdicts.backlog_commits()),
        commits_digest=verdicts.digest(),
        blind_to=blind_to,
    )


def unknown(verdicts: Verdicts | None, reason: str, blind_to: tuple[str, ...] = ()) -> Impact:
    """The objects could not be told; commit figures stand where the graph was read."""
    if verdicts is None:
        return Impact(ImpactStatus.UNKNOWN, reason=reason, blind_to=blind_to)
    return Impact(
        ImpactStatus.UNKNOWN,
        reason=reason,
        horizons={h.value: verdicts.commit_impact(h) for h in Horizon},
        tags=tuple(
            TagLoss(tag, commit_id, None, None) for tag, commit_id in sorted(_expiring_tags(verdicts).items())
        ),
        backlog=Backlog(verdicts.backlog_commits()),
        commits_digest=verdicts.digest(),
        blind_to=blind_to,
    )


def simulated(
    verdicts: Verdicts, result: ImpactResult, *, backlog: bool, blind_to: tuple[str, ...] = ()
) -> Impact:
    """Folds the objects' masks into figures per horizon."""
    commits = verdicts.tags_at_stake()
    asked = transitions(backlog=backlog)
    left = result.amount(asked[BACKLOG]) if backlog else None
    return Impact(
        ImpactStatus.SIMULATED,
        horizons={h.value: _with_objects(verdicts.commit_impact(h), h, result) for h in Horizon},
        tags=tuple(
            TagLoss(tag, commits[tag], amount.objects, amount.size_bytes)
            for tag, amount in sorted(result.tags.items())
            if amount.objects
        ),
        prefixes=tuple(
            PrefixImpact(p.prefix, p.depth, p.amount.objects, p.amount.size_bytes) for p in result.prefixes
        ),
        backlog=Backlog(
            verdicts.backlog_commits(),
            objects=left.objects if left else None,
            size_bytes=left.size_bytes if left else None,
        ),
        ranges_read=result.ranges_read,
        entries_read=result.entries_read,
        commits_digest=verdicts.digest(),
        blind_to=(*blind_to, STAGED_DATA),
    )


def _with_objects(impact: HorizonImpact, horizon: Horizon, result: ImpactResult) -> HorizonImpact:
    stored, proposed = side_bits(horizon, proposed=False), side_bits(horizon, proposed=True)
    expire = risk = Amount()
    for mask, amount in result.by_mask.items():
        if mask & stored.server and not mask & proposed.server:
            expire = expire + amount
            if mask & proposed.documented:
                risk = risk + amount
    kept = result.kept(stored.server)
    read = result.ranges_read > 0
    return replace(
        impact,
        objects_expire=expire.objects,
        bytes_expire=expire.size_bytes,
        objects_kept=kept.objects if read else None,
        bytes_kept=kept.size_bytes if read else None,
        objects_at_risk=risk.objects,
        bytes_at_risk=risk.size_bytes,
    )


def _expiring_tags(verdicts: Verdicts) -> dict[str, str]:
    """Tag → commit id, of tags whose commit expires through the change, now or at a later horizon."""
    expiring = {verdicts.graph.ids[i] for horizon in Horizon for i in verdicts.expiring(horizon)}
    return {tag.id: tag.commit_id for tag in verdicts.graph.tags if tag.commit_id in expiring}


def tag_metaranges(verdicts: Verdicts) -> dict[str, str]:
    """Tag → metarange of its commit, of tags that may lose data: which objects of it go is for the
    simulation to say."""
    graph = verdicts.graph
    metaranges = {
        tag: graph.meta_range_ids[graph.index[commit_id]]
        for tag, commit_id in verdicts.tags_at_stake().items()
    }
    return {tag: meta_range for tag, meta_range in metaranges.items() if meta_range}
