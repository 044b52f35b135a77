"""Which branches are stale, and what each of them alone holds."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.branches.consequences import StaleBranches, stale_branches
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import to_us
from lakeplan.values.branches import MAX_STALE, OnlyHere
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import MAX_VERDICT_BITS, Amount, ImpactResult, Transition
from tests.retention.literal import World, literal_documented_walk, literal_server_walk

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
UTC = timezone.utc


def refs_of(commits: dict[str, tuple[float, str]], branches: dict[str, str]) -> Refs:
    """Commits as id → (age in days, parent)."""
    made = [
        Commit(
            name,
            int((NOW - timedelta(days=age)).timestamp() * 1_000_000),
            f"r{name}",
            (parent,) if parent else (),
        )
        for name, (age, parent) in commits.items()
    ]
    return Refs(tuple(made), tuple(Branch(n, c) for n, c in branches.items()), ())


def graph(commits: dict[str, tuple[float, str]], branches: dict[str, str]) -> CommitGraph:
    return CommitGraph.from_refs(refs_of(commits, branches))


def answer(stale: StaleBranches, objects: dict[str, tuple[int, set[str]]]) -> ImpactResult:
    """What a simulation says: each object has a size, and the commits that hold it."""
    by_mask: dict[int, Amount] = {}
    for size_bytes, commits in objects.values():
        mask = 0
        for commit in commits:
            mask |= stale.masks[stale.graph.index[commit]]
        by_mask[mask] = by_mask.get(mask, Amount()) + Amount(1, size_bytes)
    return ImpactResult(by_mask)


HISTORY = {"a": (100, ""), "m": (1, "a"), "old": (60, "a"), "new": (3, "a")}
BRANCHES = {"main": "m", "stale": "old", "fresh": "new"}


def found_in(commits=HISTORY, branches=BRANCHES, going=(), rules=None) -> StaleBranches:
    stale = stale_branches(graph(commits, branches), "main", going, rules, NOW, UTC)
    assert stale is not None
    return stale


def it_counts_what_only_the_stale_branch_holds():
    stale = found_in(rules=GcRules(7))
    objects = {"own": (10, {"old"}), "shared": (5, {"old", "m"}), "base": (3, {"a"}), "fresh": (2, {"new"})}
    (only,) = stale.only_here(answer(stale, objects)).values()
    assert (only.commits, only.objects, only.size_bytes) == (1, 1, 10)
    assert only.idle_since == NOW - timedelta(days=60)


def it_takes_what_two_stale_branches_share_for_neither():
    stale = found_in({**HISTORY, "old2": (50, "a")}, {**BRANCHES, "stale2": "old2"})
    objects = {"both": (10, {"old", "old2"}), "first": (4, {"old"})}
    only = stale.only_here(answer(stale, objects))
    assert [(name, o.size_bytes) for name, o in only.items()] == [("stale", 4), ("stale2", 0)]


def it_knows_branches_of_the_same_head_hold_nothing_alone():
    stale = found_in(branches={**BRANCHES, "copy": "old"})
    assert not stale.any_alone
    assert {o.size_bytes for o in stale.only_here(None).values()} == {0}


def it_says_unknown_without_an_answer():
    (only,) = found_in().only_here(None).values()
    assert (only.commits, only.objects, only.size_bytes) == (1, None, None)


def it_takes_a_young_branch_that_a_policy_lets_go_and_never_the_default_branch():
    assert found_in(going=["fresh"]).names == ("stale", "fresh")
    old = {name: (age + 90, parent) for name, (age, parent) in HISTORY.items()}
    assert found_in(old).names == ("stale", "fresh")
    assert stale_branches(graph(HISTORY, {"main": "m", "fresh": "new"}), "main", (), None, NOW, UTC) is None


def it_takes_no_pin_for_stale():
    commits, pin = {**HISTORY, "ab" * 8: (60, "a")}, {"lakeplan-pin-abababababab": "ab" * 8}
    assert found_in(commits, {**BRANCHES, **pin}).names == ("stale",)


def it_counts_the_longest_idle_of_very_many_within_the_bits_there_are():
    commits = {"a": (500.0, ""), **{f"c{i}": (100.0 + i, "a") for i in range(100)}}
    stale = found_in(commits, {"main": "a", **{f"b{i:03}": f"c{i}" for i in range(100)}})
    assert stale.names[0] == "b099"
    assert len(stale.names) == MAX_STALE < MAX_VERDICT_BITS


def it_does_not_count_what_a_kept_dangling_commit_holds():
    commits = {**HISTORY, "dangling": (2, "a")}
    stale = found_in(commits, rules=GcRules(7))
    (only,) = stale.only_here(answer(stale, {"x": (10, {"old", "dangling"})})).values()
    assert only.size_bytes == 0


def it_gives_each_counted_branch_a_bit_of_its_own_and_all_else_that_is_kept_one():
    commits = {**HISTORY, "past": (70, "first"), "old": (60, "past"), "older": (80, "a"), "first": (75, "a")}
    stale = found_in(commits, {**BRANCHES, "longest": "older"}, rules=GcRules(7))
    assert stale.names == ("longest", "stale")
    masks = dict(zip(stale.graph.ids, stale.masks, strict=True))
    assert masks == {"older": 1, "old": 2, "a": 4, "m": 4, "new": 4, "past": 0, "first": 0}
    assert stale.metaranges() == {f"r{name}": mask for name, mask in masks.items() if mask}
    assert stale.transitions() == {"longest": Transition(1, 0b110), "stale": Transition(2, 0b101)}
    assert stale.only_here(None) == {
        "longest": OnlyHere(NOW - timedelta(days=80), 1),
        "stale": OnlyHere(NOW - timedelta(days=60), 1),
    }


def it_has_nothing_of_a_branch_that_holds_nothing_alone():
    stale = found_in(branches={**BRANCHES, "copy": "old"})
    idle = NOW - timedelta(days=60)
    assert stale.only_here(None) == {name: OnlyHere(idle, 0, 0, 0) for name in ("copy", "stale")}


def it_takes_a_branch_for_stale_after_exactly_thirty_days():
    assert found_in({**HISTORY, "new": (30, "a")}).names == ("stale", "fresh")
    assert found_in({**HISTORY, "new": (29.99, "a")}).names == ("stale",)


def it_counts_days_in_the_time_zone_of_the_server():
    as_of = datetime(2022, 3, 31, 12, tzinfo=UTC)  # in New York clocks went forward on 2022-03-13
    made = [
        Commit("m", to_us(as_of), "rm"),
        Commit("parent", to_us(as_of - timedelta(days=40)), "rp"),
        Commit("head", to_us(as_of - timedelta(days=21) + timedelta(minutes=30)), "rh", ("parent",)),
    ]
    refs = Refs(tuple(made), (Branch("main", "m"), Branch("b", "head")), ())

    def masks(zone: tzinfo) -> dict[str, int]:
        stale = stale_branches(CommitGraph.from_refs(refs), "main", ["b"], GcRules(21), as_of, zone)
        assert stale is not None
        return dict(zip(stale.graph.ids, stale.masks, strict=True))

    assert masks(UTC) == {"m": 2, "parent": 1, "head": 1}
    assert masks(ZoneInfo("America/New_York")) == {"m": 2, "parent": 0, "head": 1}


@st.composite
def worlds(draw):
    count = draw(st.integers(2, 9))
    commits = {"c0": (draw(st.integers(0, 120)), "")}
    for i in range(1, count):
        parent = draw(st.sampled_from(sorted(commits)))
        commits[f"c{i}"] = (draw(st.integers(0, 120)), parent)
    heads = {f"b{i}": draw(st.sampled_from(sorted(commits))) for i in range(draw(st.integers(1, 4)))}
    holds = st.sets(st.sampled_from(sorted(commits)), max_size=4)
    objects = {f"o{i}": (2**i, draw(holds)) for i in range(5)}
    rules = draw(st.none() | st.integers(0, 90).map(GcRules))
    return commits, {"main": "c0", **heads}, objects, rules


@given(worlds())
def it_is_what_goes_out_of_the_kept_commits_without_the_branch(world):
    """Counted with none of the program's walks: rules written down literally say what each branch keeps, and
    what the server keeps besides."""
    commits, branches, objects, rules = world
    stale = stale_branches(graph(commits, branches), "main", (), rules, NOW, UTC)
    if stale is None:
        assert all(commits[head][0] < 30 for name, head in branches.items() if name != "main")
        return
    literal = World(refs_of(commits, branches), rules or GcRules(36_500), NOW, UTC)
    keepers = literal_documented_walk(literal)
    kept = {name: {c for c, found in keepers.items() if name in found} for name in branches}
    active = literal_server_walk(literal)
    for name, only in stale.only_here(answer(stale, objects)).items():
        others = set().union(*(ids for other, ids in kept.items() if other != name))
        others |= active - kept[name]
        mine = [size for size, ids in objects.values() if ids & kept[name] and not ids & others]
        assert (only.objects, only.size_bytes) == (len(mine), sum(mine))
        assert only.commits == len(kept[name] - others)
