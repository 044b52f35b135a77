"""What keeps a commit that the server would let expire, by name: branches, tags and holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import KEEPS, Keep, KeepRules, active_holds, commits_named, reachable
from lakeplan.retention.keepers import branch_sets
from lakeplan.retention.patterns import matches
from lakeplan.values.repository import Refs
from lakeplan.values.rules import GcRules

FIRST_BIT = 8
"""Lower ones are ``Keep``'s."""
MOST_NAMES = 32
"""A mask has 62 bits: the rest is for other repositories."""
BRANCHES_A_COMMIT = 10
OTHERS = "(others)"


@dataclass(frozen=True)
class Protectors:
    """``names``: each a kind, a blank and a name, as ``tag v1.0``; the bit of ``names[i]`` is ``FIRST_BIT +
    i``. ``masks``: per commit number, the bits of those that keep it; 0 where the server does, or nothing."""

    names: tuple[str, ...]
    masks: list[int]


def protectors(graph: CommitGraph, refs: Refs, rules: KeepRules, masks: list[int]) -> Protectors:
    """``masks`` are those of ``keep_masks``. Of a commit, at most ``BRANCHES_A_COMMIT`` branches are named.
    Of all names, those that keep most commits have a bit of their own; the others of a kind share one."""
    wanted = [mask & KEEPS if not mask & Keep.SERVER else 0 for mask in masks]
    by_name: dict[str, set[int]] = {}
    for name, commits in _named(graph, refs, rules):
        if kept := {commit for commit in commits if wanted[commit] & Keep.PROTECTED}:
            by_name.setdefault(name, set()).update(kept)
    for name, commit in _branches(graph, rules, wanted):
        by_name.setdefault(f"branch {name}", set()).add(commit)
    largest = sorted(by_name, key=lambda name: (-len(by_name[name]), name))
    names = [name if at < MOST_NAMES else _others(name) for at, name in enumerate(largest)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    found = [0] * len(graph)
    for name, shown in zip(largest, names, strict=True):
        for commit in by_name[name]:
            found[commit] |= 1 << FIRST_BIT + numbers[shown]
    return Protectors(tuple(numbers), found)


def _others(name: str) -> str:
    return f"{name.partition(' ')[0]} {OTHERS}"


def _named(graph: CommitGraph, refs: Refs, rules: KeepRules) -> Iterator[tuple[str, set[int]]]:
    """Tags and holds, with the numbers of the commits that they keep."""
    for tag in refs.tags:
        if any(matches(tag.id, glob) for glob in rules.protected_tags):
            yield f"tag {tag.id}", _numbers(graph, {tag.commit_id})
    commits = {commit.id: commit for commit in refs.commits}
    held: dict[tuple[str, str], set[str]] = {}
    for hold in active_holds(rules.holds, rules.as_of):
        held.setdefault((hold.kind, hold.name), set()).update(commits_named(hold, refs))
    for record in rules.recorded:
        if record.kind != "prefix":
            held.setdefault((record.kind, record.name), set()).add(record.commit_id)
    for (kind, name), ids in held.items():
        yield f"hold {kind} {name}", _numbers(graph, reachable(commits, ids) if kind == "branch" else ids)


def _numbers(graph: CommitGraph, ids: set[str]) -> set[int]:
    return {graph.index[id] for id in ids if id in graph.index}


def _branches(graph: CommitGraph, rules: KeepRules, wanted: list[int]) -> Iterator[tuple[str, int]]:
    """Branches that keep commits by a rule that is not the server's walk of now, with the commits."""
    earlier = rules.as_of - timedelta(seconds=rules.margin_seconds)
    by: list[tuple[Keep, GcRules | None, bool]] = [
        (Keep.DOCUMENTED, rules.stored, False),
        (Keep.EXPANDED, rules.expanded, False),
        (Keep.MARGIN, rules.stored, True),
        (Keep.MARGIN, rules.expanded, True),
    ]
    for bit, of, before in by:
        if of is None or not any(mask & bit for mask in wanted):
            continue
        sets = branch_sets(graph, of, earlier if before else rules.as_of, rules.zone)
        names: Mapping[int, tuple[str, ...]] = {
            at: sets.names_in(mask, BRANCHES_A_COMMIT) for at, mask in enumerate(sets.masks)
        }
        for commit, mask in enumerate(wanted):
            if mask & bit:
                for name in names[sets.of_commit[commit]]:
                    yield name, commit
