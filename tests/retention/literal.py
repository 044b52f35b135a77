"""Both verdicts written down literally, and generated histories to compare with: tests only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from functools import cache
from random import Random
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from lakeplan.retention.rules import limit_us, to_us
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import GcRules

NOW = datetime(2022, 3, 31, 12, tzinfo=timezone.utc)
DAY = 86_400_000_000
ZONES: list[tzinfo] = [
    timezone.utc,
    timezone(timedelta(hours=-3, minutes=-30)),
    ZoneInfo("America/New_York"),  # clocks went forward on 2022-03-13
    ZoneInfo("Europe/London"),  # on 2022-03-27
]
DAYS = st.sampled_from([-2, 0, 1, 2, 3, 4, 5, 7, 10, 14, 21, 2**31 - 1, 2**40])


@dataclass(frozen=True)
class World:
    """A history, rules and a moment. ``as_of`` and ages are chosen to meet limits exactly now and then."""

    refs: Refs
    rules: GcRules
    as_of: datetime
    zone: tzinfo

    def __post_init__(self) -> None:
        assert len({c.id for c in self.refs.commits}) == len(self.refs.commits)


@st.composite
def worlds(draw: st.DrawFn, zones: list[tzinfo] = ZONES) -> World:
    size = draw(st.integers(1, 24))
    ids = draw(st.permutations([f"{n:02d}" for n in range(size)]))
    commits = []
    for n in range(size):
        near = st.integers(max(0, n - 3), n - 1) | st.integers(0, n - 1)
        parents = draw(st.lists(near, min_size=draw(st.sampled_from([0, 1, 1, 1])), max_size=3)) if n else []
        age = draw(st.integers(-1, 22)) * DAY + draw(st.sampled_from([0, 0, 1, -1, 3_600_000_000, DAY // 2]))
        version = draw(st.sampled_from([0, 1, 1]))
        commits.append(Commit(ids[n], to_us(NOW) - age, f"m{n}", tuple(ids[p] for p in parents), version))
    heads = draw(st.lists(st.sampled_from(ids), max_size=6))
    branches = tuple(Branch(f"b{n}", head) for n, head in enumerate(heads))
    own = draw(st.dictionaries(st.sampled_from([*(b.id for b in branches), "no-such-branch"]), DAYS))
    as_of = NOW + timedelta(days=draw(st.integers(-3, 3)), microseconds=draw(st.sampled_from([0, 0, 1])))
    shuffled = tuple(draw(st.permutations(commits)))
    zone = draw(st.sampled_from(zones))
    return World(Refs(shuffled, branches, ()), GcRules(draw(DAYS), own), as_of, zone)


@cache
def fixed_worlds(count: int = 300) -> list[World]:
    """The same small histories every time, many of them with several walks through one joint."""
    random = Random(13)
    found = []
    for _ in range(count):
        size = random.randint(1, 12)
        ids = random.sample([f"{n:02d}" for n in range(size)], size)
        commits = []
        for n in range(size):
            parents = (
                [ids[random.randint(max(0, n - 4), n - 1)] for _ in range(random.choice((0, 1, 1, 1, 1, 3)))]
                if n
                else []
            )
            age = random.randint(-1, 9) * DAY + random.choice((0, 0, 1, -1))
            version = random.choice((0, 1, 1))
            commits.append(Commit(ids[n], to_us(NOW) - age, f"m{n // 2}", tuple(parents), version))
        branches = tuple(Branch(f"b{n}", random.choice(ids)) for n in range(random.randint(0, 5)))
        own = {b.id: random.randint(0, 9) for b in branches if random.random() < 0.7}
        random.shuffle(commits)
        as_of = NOW + timedelta(days=random.randint(-1, 1))
        rules = GcRules(random.randint(0, 9), own)
        found.append(World(Refs(tuple(commits), branches, ()), rules, as_of, random.choice(ZONES)))
    return found


def starts(world: World, twins_reversed: bool = False) -> Iterator[tuple[str, str | None]]:
    """(commit, branch) by commit id; the order of branches that share a HEAD is anyone's guess."""
    commits, branches = world.refs.commits, world.refs.branches
    # what a server takes for a parent when it looks for dangling commits: of version 0, the second
    parents = {c.parents[0 if c.version >= 1 or len(c.parents) == 1 else 1] for c in commits if c.parents}
    heads = {b.commit_id for b in branches}
    dangling = [(c.id, None) for c in commits if c.id not in parents | heads]
    ordered = branches[::-1] if twins_reversed else branches
    yield from sorted([*((b.commit_id, b.id) for b in ordered), *dangling], key=lambda start: start[0])


def _limit(world: World, branch: str | None) -> int:
    days = world.rules.default_retention_days if branch is None else world.rules.days_for(branch)
    return limit_us(world.as_of, days, world.zone)


def literal_server_walk(world: World, twins_reversed: bool = False) -> set[str]:
    commits = {c.id: c for c in world.refs.commits}
    visited: dict[str, int] = {}
    active = set()
    for start, branch in starts(world, twins_reversed):
        limit = _limit(world, branch)
        child, parent = commits[start], commits[start].main_parent
        if branch is None:
            parent = start
        else:
            active.add(start)
            visited[start] = limit
        while parent is not None:
            if parent in visited and visited[parent] <= limit:
                break
            if child.creation_us > limit:
                active.add(parent)
            visited[parent] = limit
            child = commits[parent]
            parent = child.main_parent
    return active


def literal_documented_walk(world: World) -> dict[str, set[str | None]]:
    """Per kept commit, who keeps it (None: a dangling start). No early stop; no start that either way of
    looking for dangling commits finds is left out."""
    commits = {c.id: c for c in world.refs.commits}
    mains = {c.main_parent for c in commits.values()}
    heads = {b.commit_id for b in world.refs.branches}
    leaves = {(c, None) for c in commits if c not in mains | heads}
    kept: dict[str, set[str | None]] = {}
    for start, branch in {*starts(world), *leaves}:
        limit = _limit(world, branch)
        child = commits[start]
        parent = start if branch is None else child.main_parent
        if branch is not None:
            kept.setdefault(start, set()).add(branch)
        while parent is not None:
            if child.creation_us > limit:
                kept.setdefault(parent, set()).add(branch)
            child = commits[parent]
            parent = child.main_parent
    return kept
