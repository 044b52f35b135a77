"""The impact of a plan on objects: the verdicts on commits now and later, figures, and the expiring
objects."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

import numpy as np

from lakeplan import limits
from lakeplan.retention.graph import CommitGraph, all_kept, metarange_masks
from lakeplan.retention.rules import DocumentedRule, ServerWalk
from lakeplan.values.plan import (
    STAGED_DATA,
    Backlog,
    Horizon,
    HorizonImpact,
    Impact,
    ImpactStatus,
    PrefixImpact,
    TagLoss,
)
from lakeplan.values.plan_parts import Bit, Shown
from lakeplan.values.rules import GcRules
from lakeplan.values.shown_records import RECORD, commit_digests, packed
from lakeplan.values.simulation import Amount, ImpactResult, Transition

BACKLOG = "backlog"
EXISTS_BIT = 1 << 60
"""Set on every commit if the backlog is requested."""


@dataclass(frozen=True)
class Side:
    """The bits of one set of rules at one moment."""

    server: int
    documented: int


def side_bits(horizon: Horizon, *, proposed: bool) -> Side:
    """The bits of the stored or the proposed rules. There are four per horizon: stored/proposed ×
    server/documented."""
    first = 4 * list(Horizon).index(horizon) + (2 if proposed else 0)
    return Side(1 << first, 1 << (first + 1))


def expire_name(horizon: Horizon) -> str:
    return f"expire_{horizon.value}"


def transitions(*, backlog: bool) -> dict[str, Transition]:
    """The transitions that the simulation counts, by name."""
    asked = {}
    for horizon in Horizon:
        stored, proposed = side_bits(horizon, proposed=False), side_bits(horizon, proposed=True)
        asked[expire_name(horizon)] = Transition(stored.server, proposed.server)
    if backlog:
        asked[BACKLOG] = Transition(EXISTS_BIT, side_bits(Horizon.NOW, proposed=False).server)
    return asked


_NOW_BITS = sum(
    side.server | side.documented
    for side in (side_bits(Horizon.NOW, proposed=False), side_bits(Horizon.NOW, proposed=True))
)


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on all commits. ``masks`` has one mask per commit, in the order of ``graph.ids``."""

    graph: CommitGraph
    masks: list[int]
    moments: Mapping[Horizon, datetime]

    def commit_impact(self, horizon: Horizon) -> HorizonImpact:
        """The figures of commits at a horizon, without those of objects."""
        stored, proposed = side_bits(horizon, proposed=False), side_bits(horizon, proposed=True)
        before = after = expire = released = risk = 0
        for mask, count in Counter(self.masks).items():
            kept_before, kept_after = bool(mask & stored.server), bool(mask & proposed.server)
            before += count * kept_before
            after += count * kept_after
            released += count * (kept_after and not kept_before)
            if kept_before and not kept_after:
                expire += count
                risk += count * bool(mask & proposed.documented)
        return HorizonImpact(self.moments[horizon], before, after, expire, released, risk)

    def changes_sides(self, *, backlog: bool) -> bool:
        """Whether any commit expires in any transition. If none does, no object can."""
        asked = list(transitions(backlog=backlog).values())
        return any(t.expires(mask) for mask in set(self.masks) for t in asked)

    def metaranges(self) -> dict[str, int]:
        """Metarange id → mask, of commits that are kept by any verdict. A first commit has no data."""
        return metarange_masks(self.graph, self.masks)

    def expiring(self, horizon: Horizon = Horizon.NOW) -> list[int]:
        """The indexes of commits that expire because of the change."""
        stored, proposed = side_bits(horizon, proposed=False), side_bits(horizon, proposed=True)
        return [i for i, m in enumerate(self.masks) if m & stored.server and not m & proposed.server]

    def tags_at_stake(self) -> dict[str, str]:
        """Tag → commit id, of tags whose commit the proposed rules do not keep at some horizon. This includes
        commits that expire anyway, because they may share objects with those that expire by the change."""
        kept = sum(side_bits(horizon, proposed=True).server for horizon in Horizon)
        index = self.graph.index
        return {
            tag.id: tag.commit_id
            for tag in self.graph.tags
            if tag.commit_id in index and self.masks[index[tag.commit_id]] & kept != kept
        }

    def backlog_commits(self) -> int:
        """Commits that the stored rules already let expire."""
        kept = side_bits(Horizon.NOW, proposed=False).server
        return sum(1 for mask in self.masks if not mask & kept)

    def digest(self) -> str:
        """SHA-256 over every commit that any verdict keeps now, with these verdicts, and over the tags that
        may lose data.

        Kept commits count, because one that is no longer kept may have been the only one that kept an object.
        Tags count, because one that is set on an expiring commit changes no verdict, but loses data.
        """
        text = hashlib.sha256()
        for commit_id, mask in zip(self.graph.ids, self.masks, strict=True):
            now = mask & _NOW_BITS
            if now:
                text.update(f"{commit_id} {now}\n".encode())
        for tag, commit_id in sorted(self.tags_at_stake().items()):
            text.update(f"tag {commit_id} {tag}\n".encode("utf-8", "surrogatepass"))
        return text.hexdigest()


def judge(
    graph: CommitGraph,
    before: GcRules | None,
    after: GcRules | None,
    as_of: datetime,
    zone: tzinfo,
    *,
    backlog: bool = False,
    deleted: Callable[[datetime, bool], frozenset[str]] | None = None,
) -> Verdicts:
    """All verdicts of a change. Without rules no collector runs (lakefs/retention.md), so everything is kept:
    removing rules expires nothing, and setting the first ones may expire a lot.

    ``deleted(moment, proposed)`` returns the branches that the stored or the proposed policies have deleted
    by then. Commits that only these led to get the default days."""
    moments = {h: as_of + timedelta(days=h.days) for h in Horizon}
    masks = [EXISTS_BIT if backlog else 0] * len(graph.ids)
    for proposed, rules in ((False, before), (True, after)):
        sides = {h: side_bits(h, proposed=proposed) for h in Horizon}
        if rules is None:
            all_bits = sum(side.server | side.documented for side in sides.values())
            masks = _with_bit(masks, all_kept(graph), all_bits)
            continue
        walk, documented, without = ServerWalk(graph, rules), DocumentedRule(graph, rules), frozenset[str]()
        for horizon, moment in moments.items():
            gone = deleted(moment, proposed) if deleted is not None else without
            if gone != without:
                left, without = graph.without_branches(gone), gone
                walk, documented = ServerWalk(left, rules), DocumentedRule(left, rules)
            masks = _with_bit(masks, walk.active(moment, zone), sides[horizon].server)
            masks = _with_bit(masks, documented.active(moment, zone), sides[horizon].documented)
    return Verdicts(graph, masks, moments)


def either(some: Verdicts, others: Verdicts) -> Verdicts:
    """The verdicts of two courses of events on one history: a commit expires by the change if it does in
    either."""
    pairs = list(zip(some.masks, others.masks, strict=True))
    joined = {pair: _joined(pair) for pair in set(pairs)}
    return replace(some, masks=[joined[pair] for pair in pairs])


def _joined(pair: tuple[int, int]) -> int:
    mask = pair[0] | pair[1]
    for horizon in Horizon:
        stored, proposed = (side_bits(horizon, proposed=p).server for p in (False, True))
        if any(m & stored and not m & proposed for m in pair):
            mask &= ~proposed
    return mask


def _with_bit(masks: list[int], flags: Iterable[int], bit: int) -> list[int]:
    return [m | bit if flag else m for m, flag in zip(masks, flags, strict=True)]


def unaffected(verdicts: Verdicts, blind_to: tuple[str, ...] = ()) -> Impact:
    """The impact if no commit expires: every figure is zero, and no range is read."""
    found = _of_commits(ImpactStatus.UNAFFECTED, "no commit changes sides", verdicts, blind_to)
    zero = {
        name: replace(h, objects_expire=0, bytes_expire=0, objects_at_risk=0, bytes_at_risk=0)
        for name, h in found.horizons.items()
    }
    return replace(found, horizons=zero)


def unknown(verdicts: Verdicts | None, reason: str, blind_to: tuple[str, ...] = ()) -> Impact:
    """The impact if objects are unknown, with figures of commits if the graph was read."""
    if verdicts is None:
        return Impact(ImpactStatus.UNKNOWN, reason=reason, blind_to=blind_to)
    tags = (TagLoss(tag, commit, None, None) for tag, commit in sorted(_expiring_tags(verdicts).items()))
    return replace(_of_commits(ImpactStatus.UNKNOWN, reason, verdicts, blind_to), tags=tuple(tags))


def _of_commits(status: ImpactStatus, reason: str, verdicts: Verdicts, blind_to: tuple[str, ...]) -> Impact:
    """The impact on commits alone."""
    return Impact(
        status,
        reason=reason,
        horizons={h.value: verdicts.commit_impact(h) for h in Horizon},
        backlog=Backlog(verdicts.backlog_commits()),
        commits_digest=verdicts.digest(),
        blind_to=blind_to,
    )


def simulated(
    verdicts: Verdicts, result: ImpactResult, *, backlog: bool, blind_to: tuple[str, ...] = ()
) -> Impact:
    """The impact with the simulation's figures per horizon."""
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
    """Tag → commit id, of tags whose commit expires because of the change, now or at a later horizon."""
    expiring = {verdicts.graph.ids[i] for horizon in Horizon for i in verdicts.expiring(horizon)}
    return {tag.id: tag.commit_id for tag in verdicts.graph.tags if tag.commit_id in expiring}


def tag_metaranges(verdicts: Verdicts) -> dict[str, str]:
    """Tag → metarange of its commit, of tags that may lose data. The simulation counts the lost objects."""
    graph = verdicts.graph
    metaranges = {
        tag: graph.meta_range_ids[graph.index[commit_id]]
        for tag, commit_id in verdicts.tags_at_stake().items()
    }
    return {tag: meta_range for tag, meta_range in metaranges.items() if meta_range}


def named_transitions(*, backlog: bool) -> dict[str, Bit]:
    """The transitions for which a plan names every object."""
    named = {expire_name(Horizon.NOW): Bit.NOW, expire_name(Horizon.WEEK): Bit.WEEK}
    return {**named, BACKLOG: Bit.BACKLOG} if backlog else named


def shown_of(key: str, verdicts: Verdicts, objects: bytes | None) -> Shown | None:
    """Records of expiring commits together with those of ``objects`` (None: too many). None above the
    limit."""
    if objects is None:
        return None
    known = np.frombuffer(objects, RECORD)
    parts = [(np.ascontiguousarray(known["digest"]), known["bits"])]
    for horizon, bit in ((Horizon.NOW, Bit.COMMIT_NOW), (Horizon.WEEK, Bit.COMMIT_WEEK)):
        ids = [verdicts.graph.ids[commit] for commit in verdicts.expiring(horizon)]
        parts.append((commit_digests(key, ids), np.full(len(ids), int(bit), np.uint8)))
    if sum(len(digests) for digests, _ in parts) > limits.SHOWN_RECORDS:
        return None
    return Shown.of(packed(parts))
