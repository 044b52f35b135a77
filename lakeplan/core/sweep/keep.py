"""Who keeps a commit when data is at stake: more than the server's walk or the documented rule alone.

A sweep keeps the union of both verdicts, under the stored and under the freshly expanded rules, now and as if
it were ``margin`` earlier (the server's zone and clock are not ours), and whatever protected tags and holds
name (design.md, "The tree"; issue 5).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from enum import IntFlag

from lakeplan.core.globs import matches
from lakeplan.core.holds import active_holds, commits_named, hold_problem
from lakeplan.core.lifecycle.history import reachable
from lakeplan.core.retention import CommitGraph, DocumentedRule, ServerWalk
from lakeplan.errors import LakeplanError
from lakeplan.model.refs import Refs
from lakeplan.model.rules import GcRules
from lakeplan.model.sweep import HeldCommit, Hold


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
    recorded: tuple[HeldCommit, ...] = field(default=())
    """What holds kept at earlier marks, as the namespace records it."""


def keep_masks(graph: CommitGraph, refs: Refs, rules: KeepRules) -> list[int]:
    """Per commit number its ``Keep`` bits. ``graph`` is that of ``refs``. Raises LakeplanError for a hold
    on a branch, a tag or a commit that keeps nothing for certain."""
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
    for commit in protected_commits(graph, refs, rules):
        masks[commit] |= Keep.PROTECTED
    return masks


def protected_commits(graph: CommitGraph, refs: Refs, rules: KeepRules) -> set[int]:
    """Numbers of the commits that protected tags and unexpired holds name (prefix holds name paths, not
    commits), and those that records of holds name. A hold on a branch names all that its HEAD was made from,
    along every parent. Raises LakeplanError for a hold that keeps nothing for certain."""
    found = {
        tag.commit_id for tag in refs.tags if any(matches(tag.id, glob) for glob in rules.protected_tags)
    }
    branches: set[str] = set()
    for hold in active_holds(rules.holds, rules.as_of):
        recorded = {r.commit_id for r in rules.recorded if (r.kind, r.name) == (hold.kind, hold.name)}
        if problem := hold_problem(hold, refs):
            raise LakeplanError(problem, hint=_instead(recorded))
        (branches if hold.kind == "branch" else found).update(commits_named(hold, refs))
    for record in rules.recorded:
        if record.commit_id and record.commit_id not in graph.index:
            raise LakeplanError(
                f"the hold on {record.kind} {record.name!r} kept commit {record.commit_id}, which the"
                " repository lacks now",
                hint="find out where it is; when its data may be deleted, remove the hold from the tree",
            )
        if record.kind != "prefix":
            (branches if record.kind == "branch" else found).add(record.commit_id)
    commits = {commit.id: commit for commit in refs.commits}
    return {graph.index[id] for id in found | reachable(commits, branches) if id in graph.index}


def _instead(recorded: set[str]) -> str:
    if not recorded:
        return "correct the hold in the tree, or remove it"
    ids = ", ".join(sorted(recorded)[:3])
    return f"hold what it kept by its commit instead ({ids}), or remove the hold from the tree"


def _set(masks: list[int], flags: Iterable[int], bit: int) -> None:
    for commit, flag in enumerate(flags):
        if flag:
            masks[commit] |= bit
