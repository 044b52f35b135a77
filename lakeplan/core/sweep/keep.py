"""Who keeps a commit when data is at stake: more than the server's walk or the documented rule alone.

A sweep keeps the union of both verdicts, under the stored and under the freshly expanded rules, now and as if
it were ``margin`` earlier (the server's zone and clock are not ours), and whatever protected tags and holds
name (design.md, "The tree"; issue 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from enum import IntFlag

from lakeplan.core.globs import matches
from lakeplan.core.retention import CommitGraph, DocumentedRule, ServerWalk
from lakeplan.errors import LakeplanError
from lakeplan.model.refs import Commit
from lakeplan.model.rules import GcRules
from lakeplan.model.sweep import Hold


class Keep(IntFlag):
    """Verdict bits of a commit (model/simulation.py)."""

    SERVER = 1
    """The server's walk over the stored rules, now."""
    DOCUMENTED = 2
    """The documented rule over the stored rules, now."""
    EXPANDED = 4
    """Either, over the tree's rules expanded over the branches there are now."""
    MARGIN = 8
    """Any of these, as if it were ``margin`` earlier."""
    PROTECTED = 16
    """The commit of a protected tag, or one that a hold names."""
    BEFORE = 32
    """Either, over the rules that stood before their last change. Keeps nothing: it tells what is new."""


KEEPS = Keep.SERVER | Keep.DOCUMENTED | Keep.EXPANDED | Keep.MARGIN | Keep.PROTECTED


@dataclass(frozen=True)
class KeepRules:
    """What decides. ``stored`` are the server's rules, ``expanded`` the tree's (None: the tree manages
    none), ``before`` those before their last recorded change (None: not known)."""

    stored: GcRules
    as_of: datetime
    zone: tzinfo
    margin_seconds: int
    expanded: GcRules | None = None
    before: GcRules | None = None
    protected_tags: tuple[str, ...] = ()
    holds: tuple[Hold, ...] = field(default=())


def keep_masks(graph: CommitGraph, commits: Sequence[Commit], rules: KeepRules) -> list[int]:
    """Per commit number its ``Keep`` bits. ``commits`` are those of the graph, in any order: holds on a
    branch reach along every parent. Raises LakeplanError for a commit hold that names none or several."""
    if not graph.branches:
        raise LakeplanError(
            "the repository has no branches: nothing would be kept", hint="read its refs again; do not sweep"
        )
    earlier = rules.as_of - timedelta(seconds=rules.margin_seconds)
    masks = [0] * len(graph)
    walk, documented = ServerWalk(graph, rules.stored), DocumentedRule(graph, rules.stored)
    _set(masks, walk.active(rules.as_of, rules.zone), Keep.SERVER)
    _set(masks, documented.active(rules.as_of, rules.zone), Keep.DOCUMENTED)
    _set(masks, walk.active(earlier, rules.zone), Keep.MARGIN)
    _set(masks, documented.active(earlier, rules.zone), Keep.MARGIN)
    for others, now, then in (
        (rules.expanded, Keep.EXPANDED, Keep.MARGIN),
        (rules.before, Keep.BEFORE, None),
    ):
        if others is None or others == rules.stored:
            continue
        walk, documented = ServerWalk(graph, others), DocumentedRule(graph, others)
        _set(masks, walk.active(rules.as_of, rules.zone), now)
        _set(masks, documented.active(rules.as_of, rules.zone), now)
        if then is not None:
            _set(masks, walk.active(earlier, rules.zone), then)
            _set(masks, documented.active(earlier, rules.zone), then)
    for commit in protected_commits(graph, commits, rules):
        masks[commit] |= Keep.PROTECTED
    return masks


def protected_commits(graph: CommitGraph, commits: Sequence[Commit], rules: KeepRules) -> set[int]:
    """Numbers of the commits that protected tags and unexpired holds name (prefix holds name paths, not
    commits). A hold on a branch names all that its HEAD was made from, along every parent."""
    today = rules.as_of.date()
    found = {
        graph.index[tag.commit_id]
        for tag in graph.tags
        if tag.commit_id in graph.index and any(matches(tag.id, glob) for glob in rules.protected_tags)
    }
    held_branches: set[str] = set()
    for hold in rules.holds:
        if not hold.holds_on(today):
            continue
        if hold.kind == "commit":
            found.add(_named_commit(graph, hold.name))
        elif hold.kind == "tag":
            found |= {
                graph.index[tag.commit_id]
                for tag in graph.tags
                if tag.commit_id in graph.index and matches(tag.id, hold.name)
            }
        elif hold.kind == "branch":
            held_branches |= {b.commit_id for b in graph.branches if matches(b.id, hold.name)}
    return found | _ancestry(graph, commits, held_branches)


def held_prefixes(holds: Iterable[Hold], as_of: datetime) -> tuple[str, ...]:
    """Path prefixes that unexpired holds name."""
    today = as_of.date()
    return tuple(sorted({h.name for h in holds if h.kind == "prefix" and h.holds_on(today)}))


def _set(masks: list[int], flags: Iterable[int], bit: int) -> None:
    for commit, flag in enumerate(flags):
        if flag:
            masks[commit] |= bit


def _named_commit(graph: CommitGraph, beginning: str) -> int:
    if beginning in graph.index:
        return graph.index[beginning]
    named = [number for number, id in enumerate(graph.ids) if id.startswith(beginning)]
    if len(named) != 1:
        what = "no commit" if not named else f"{len(named)} commits"
        raise LakeplanError(
            f"a hold names commit {beginning}: the repository has {what} of that name",
            hint="write the commit's whole id, or take the hold out of the tree",
        )
    return named[0]


def _ancestry(graph: CommitGraph, commits: Sequence[Commit], heads: set[str]) -> set[int]:
    if not heads:
        return set()
    parents = {commit.id: commit.parents for commit in commits}
    pending, seen = list(heads), set(heads)
    while pending:
        for parent in parents.get(pending.pop(), ()):
            if parent not in seen:
                seen.add(parent)
                pending.append(parent)
    return {graph.index[id] for id in seen if id in graph.index}
