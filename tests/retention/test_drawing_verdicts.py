"""Fates of drawn commits against every order of ids that a server could meet."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from hypothesis import given, settings

from lakeplan.retention.drawing import fate_of, fates
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import documented_verdict, server_verdict
from lakeplan.values.repository import Refs
from tests.retention.literal import World, worlds


def renamed(refs: Refs, names: dict[str, str]) -> Refs:
    return Refs(
        tuple(
            replace(c, id=names[c.id], parents=tuple(names[p] for p in c.parents), version=1)
            for c in refs.commits
        ),
        tuple(replace(b, commit_id=names[b.commit_id]) for b in refs.branches),
        (),
    )


@given(worlds())
@settings(deadline=None, max_examples=150)
def it_is_right_for_every_order_of_ids(world: World) -> None:
    ids = [c.id for c in world.refs.commits][:5]
    kept = [replace(c, parents=tuple(p for p in c.parents if p in ids)) for c in world.refs.commits[:5]]
    # Only version 1 is drawn.
    branches = tuple(b for b in world.refs.branches if b.commit_id in ids)
    refs = Refs(tuple(replace(c, version=1) for c in kept), branches, ())
    graph = CommitGraph.from_refs(refs)
    said = dict(zip(graph.ids, fates(graph, world.rules, world.as_of, world.zone), strict=True))
    documented = documented_verdict(graph, world.rules, world.as_of, world.zone).active
    lost: set[str] = set()
    for order in permutations(sorted(ids)):
        names = dict(zip(ids, order, strict=True))
        other = CommitGraph.from_refs(renamed(refs, names))
        active = server_verdict(other, world.rules, world.as_of, world.zone)
        lost |= {name for name in ids if not active[other.index[names[name]]]}
    for number, name in enumerate(graph.ids):
        expected = "goes" if not documented[number] else "at_risk" if name in lost else "survives"
        assert said[name] == expected


def it_lets_an_object_survive_by_one_commit_or_staged() -> None:
    assert fate_of(["goes", "survives"], staged=False) == "survives"
    assert fate_of(["goes", "at_risk"], staged=False) == "at_risk"
    assert fate_of(["goes"], staged=False) == "goes"
    assert fate_of([], staged=True) == "survives"
