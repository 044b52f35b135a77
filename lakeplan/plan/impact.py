"""The impact of a plan on objects: the verdicts on commits now and later, figures, and the expiring
objects."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from enum import Enum
from functools import lru_cache
from itertools import repeat

import numpy as np

from lakeplan import limits
from lakeplan.retention.graph import CommitGraph, all_kept, metarange_masks
from lakeplan.retention.rules import DAY_US, NEVER_EXPIRES, DocumentedRule, ServerWalk, to_us
from lakeplan.values.plan import (
    STAGED_DATA,
    Backlog,
    Bit,
    Horizon,
    HorizonImpact,
    Impact,
    ImpactStatus,
    PrefixImpact,
    Shown,
    TagLoss,
)
from lakeplan.values.rules import GcRules
from lakeplan.values.shown_records import RECORD, commit_digests, packed
from lakeplan.values.simulation import Amount, ImpactResult, Transition
from lakeplan.values.units import count_of, first_of

BACKLOG = "backlog"
EXISTS_BIT = 1 << 60
"""Set on every commit if the backlog is requested."""


class Course(Enum):
    """A course of events: branches remain, or policies delete them. Writes, holds and hooks may keep a branch
    from its policies, so what expires in either course counts."""

    REMAIN = 0
    DELETE = 1


@dataclass(frozen=True)
class Side:
    """The bits of one set of rules at one moment."""

    server: int
    documented: int


def side_bits(horizon: Horizon, *, proposed: bool, course: Course = Course.REMAIN) -> Side:
    """The bits of the stored or the proposed rules. There are four per horizon in each course:
    stored/proposed × server/documented."""
    horizons = list(Horizon)
    first = 4 * (len(horizons) * course.value + horizons.index(horizon)) + (2 if proposed else 0)
    return Side(1 << first, 1 << (first + 1))


@lru_cache
def _sides(horizon: Horizon) -> tuple[tuple[Side, Side], ...]:
    """The sides of the stored and of the proposed rules, in each course."""
    return tuple(
        (
            side_bits(horizon, proposed=False, course=course),
            side_bits(horizon, proposed=True, course=course),
        )
        for course in Course
    )


@dataclass(frozen=True)
class Outcome:
    """The effect of a change on a commit or an object at a horizon. ``at_risk``: the documented meaning of
    the proposed rules keeps it, although the server does not."""

    kept_before: bool
    kept_after: bool
    expires: bool
    at_risk: bool


@lru_cache(1 << 12)  # a history has many commits and few masks
def outcome_of(mask: int, horizon: Horizon) -> Outcome:
    """The outcome for a commit or object with this mask. It expires by the change if it does in either
    course."""
    courses = _sides(horizon)
    losing = [(old, new) for old, new in courses if mask & old.server and not mask & new.server]
    kept_after = not losing and any(mask & new.server for _, new in courses)
    return Outcome(
        kept_before=any(mask & old.server for old, _ in courses),
        kept_after=kept_after,
        expires=bool(losing),
        at_risk=not kept_after and any(mask & new.documented for _, new in losing or courses),
    )


def expire_name(horizon: Horizon) -> str:
    return f"expire_{horizon.value}"


def transitions(*, backlog: bool) -> dict[str, Transition]:
    """The transitions that the simulation counts, by name."""
    asked = {}
    for horizon in Horizon:
        first, *others = (Transition(old.server, new.server) for old, new in _sides(horizon))
        asked[expire_name(horizon)] = replace(first, others=tuple(others))
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
        before = after = expire = released = risk = 0
        for mask, count in Counter(self.masks).items():
            one = outcome_of(mask, horizon)
            before += count * one.kept_before
            after += count * one.kept_after
            released += count * (one.kept_after and not one.kept_before)
            expire += count * one.expires
            risk += count * (one.expires and one.at_risk)
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
        return [i for i, mask in enumerate(self.masks) if outcome_of(mask, horizon).expires]

    def tags_at_stake(self) -> dict[str, str]:
        """Tag → commit id, of tags whose commit the proposed rules do not keep at some horizon. This includes
        commits that expire anyway, because they may share objects with those that expire by the change."""
        kept = sum(new.server for horizon in Horizon for _, new in _sides(horizon))
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


@dataclass(frozen=True)
class Missing:
    """Branches of the graph that do not exist. ``deleted(moment, proposed)`` returns those that the stored or
    the proposed policies may have deleted by then, ``absent(proposed)`` those that certainly do not exist
    before or after the change."""

    deleted: Callable[[datetime, bool], frozenset[str]] = lambda moment, proposed: frozenset()
    absent: Callable[[bool], frozenset[str]] = lambda proposed: frozenset()


_NONE = Missing()


def judge(
    graph: CommitGraph,
    before: GcRules | None,
    after: GcRules | None,
    as_of: datetime,
    zone: tzinfo,
    *,
    backlog: bool = False,
    missing: Missing = _NONE,
) -> Verdicts:
    """All verdicts of a change. Without rules no collector runs (lakefs/retention.md), so everything is kept:
    removing rules expires nothing, and setting the first ones may expire a lot.

    Commits that only deleted branches led to get the default days."""
    moments = {h: as_of + timedelta(days=h.days) for h in Horizon}
    masks = [EXISTS_BIT if backlog else 0] * len(graph.ids)
    for proposed, rules in ((False, before), (True, after)):
        absent = missing.absent(proposed)
        bits: defaultdict[frozenset[str], dict[Horizon, Side]] = defaultdict(dict)
        for horizon, moment in moments.items():
            deleted = absent | missing.deleted(moment, proposed)
            for course, without in ((Course.REMAIN, absent), (Course.DELETE, deleted)):
                side = side_bits(horizon, proposed=proposed, course=course)
                known = bits[without].get(horizon, Side(0, 0))
                bits[without][horizon] = Side(known.server | side.server, known.documented | side.documented)
        if rules is None:
            flags = sum(side.server | side.documented for sides in bits.values() for side in sides.values())
            masks = _with_bit(masks, all_kept(graph), flags)
            continue
        for without, sides in bits.items():
            left = graph.without_branches(without) if without else graph
            walk, documented = ServerWalk(left, rules), DocumentedRule(left, rules)
            for horizon, side in sides.items():
                masks = _with_bit(masks, walk.active(moments[horizon], zone), side.server)
                masks = _with_bit(masks, documented.active(moments[horizon], zone), side.documented)
    return Verdicts(graph, masks, moments)


_TAGS = 5


def expires_later(
    graph: CommitGraph,
    before: GcRules | None,
    after: GcRules | None,
    as_of: datetime,
    zone: tzinfo,
    *,
    beyond: bool = False,
) -> tuple[str, ...]:
    """Return text about commits that an impact does not show, because the change lets them expire sooner, by
    the documented rule or on the server, but at none of the horizons. ``beyond`` counts only those that
    expire after the last one. This assumes that no branch is deleted."""
    if after is None or before == after:
        return ()
    now, moments = to_us(as_of), dict[int, int]()
    since = now + (max(horizon.days for horizon in Horizon) * DAY_US if beyond else 0)
    for walk in (DocumentedRule, ServerWalk):
        sooner = walk(graph, after).kept_until_us(zone)
        later = walk(graph, before).kept_until_us(zone) if before is not None else repeat(NEVER_EXPIRES)
        for commit, (new, old) in enumerate(zip(sooner, later, strict=False)):
            if since < new < old:
                moments[commit] = min(new, moments.get(commit, new))
    if not moments:
        return ()
    days = (min(moments.values()) - now) // DAY_US
    tags = [tag.id for tag in graph.tags if graph.index.get(tag.commit_id) in moments]
    tagged = f". The tag-loss gate does not include their tags: {first_of(tags, _TAGS)}"
    return (
        f"{count_of(len(moments), 'commit')} that would expire sooner, but not by any of the times that a"
        f" plan evaluates (now, in 7 days, and in 30 days). The first would expire in {days:,} days"
        + (tagged if tags else ""),
    )


def _with_bit(masks: list[int], flags: Iterable[int], bit: int) -> list[int]:
    return [m | bit if flag else m for m, flag in zip(masks, flags, strict=True)]


def unaffected(verdicts: Verdicts, blind_to: tuple[str, ...] = ()) -> Impact:
    """The impact if no commit expires: every figure is zero, and no range is read."""
    impact = _of_commits(ImpactStatus.UNAFFECTED, "no commit's verdict changes", verdicts, blind_to)
    zero = {
        name: replace(h, objects_expire=0, bytes_expire=0, objects_at_risk=0, bytes_at_risk=0)
        for name, h in impact.horizons.items()
    }
    return replace(impact, horizons=zero)


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
    expire = risk = kept = Amount()
    for mask, amount in result.by_mask.items():
        one = outcome_of(mask, horizon)
        if one.kept_before:
            kept += amount
        if one.expires:
            expire += amount
            if one.at_risk:
                risk += amount
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
