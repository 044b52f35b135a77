"""Both verdicts over large histories: seconds and peak memory, from Commit records to flags.

    python bench/graph.py [--commits 1000000] [--branches 10000] [--shape mixed|trunk|adverse|dangling]

Goal (issue 3): a million commits and 10,000 branches, both verdicts, under 30 s and 2 GiB. Each shape runs in
a process of its own, so that its peak is its own; without --shape all of them run, one after the other.

- mixed: a trunk with merges, branches of all lengths off it, branches off branches, deep old histories
- trunk: one chain; every branch is a commit off it, with days of its own
- adverse: the literal walk at its worst: all branches leave the tip of one chain, and each walk comes with an
  older limit than all before it, so that every walk would go down the whole chain
- dangling: half of all commits are heads of deleted branches
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import branch_sets
from lakeplan.retention.rules import DocumentedRule, ServerWalk
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import GcRules

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOW_US = int(NOW.timestamp()) * 1_000_000
YEAR_US = 365 * 86_400_000_000
SHAPES = ("mixed", "trunk", "adverse", "dangling")


@contextmanager
def timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[what] = time.perf_counter() - start
    print(f"  {what:<44} {seconds[what]:7.2f} s   peak {peak_mib():6.0f} MiB", flush=True)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def commit_id(n: int) -> str:
    return hashlib.sha256(b"%d" % n).hexdigest()


def history(shape: str, commits: int, branches: int) -> tuple[Refs, GcRules]:
    """Commit records as a refs dump gives them, oldest first, four years long."""
    rng = random.Random(1)
    parents, heads = {
        "mixed": mixed,
        "trunk": trunk,
        "adverse": adverse,
        "dangling": dangling,
    }[shape](rng, commits, branches)
    ids = [commit_id(n) for n in range(commits)]
    if shape == "adverse":
        heads.sort(key=lambda head: ids[head])
    step = 4 * YEAR_US // commits
    records = tuple(
        Commit(
            ids[n],
            NOW_US - (commits - n) * step + rng.randrange(-10, 10) * step,
            commit_id(-n - 1),
            tuple(ids[p] for p in parents[n]),
        )
        for n in range(commits)
    )
    named = tuple(Branch(f"branch-{n:06d}", ids[head]) for n, head in enumerate(heads))
    days = (
        range(1, branches + 1)
        if shape in ("trunk", "adverse")
        else rng.choices((3, 7, 21, 28, 90, 365), k=branches)
    )
    rules = GcRules(21, {b.id: d for b, d in zip(named, days, strict=True) if d != 21})
    return Refs(records, named, ()), rules


Shape = tuple[list[tuple[int, ...]], list[int]]


def mixed(rng: random.Random, commits: int, branches: int) -> Shape:
    parents: list[tuple[int, ...]] = [()]
    tips = [0]
    for n in range(1, commits):
        lane = 0 if rng.random() < 0.3 else rng.randrange(len(tips))
        if len(tips) < branches and rng.random() < 1.5 * branches / commits:
            parents.append((tips[lane],))
            tips.append(n)
            continue
        merged = (tips[rng.randrange(len(tips))],) if rng.random() < 0.1 else ()
        parents.append((tips[lane], *merged))
        if rng.random() < 0.01:
            continue  # a commit that a reset left behind
        tips[lane] = n
    return parents, [rng.choice(tips) if n >= len(tips) else tips[n] for n in range(branches)]


def trunk(rng: random.Random, commits: int, branches: int) -> Shape:
    chain = commits - branches
    parents: list[tuple[int, ...]] = [(), *((n,) for n in range(chain - 1))]
    parents += [(rng.randrange(chain),) for _ in range(branches)]
    return parents, list(range(chain, commits))


def adverse(rng: random.Random, commits: int, branches: int) -> Shape:
    chain = commits - branches
    parents: list[tuple[int, ...]] = [(), *((n,) for n in range(chain - 1))]
    return parents + [(chain - 1,)] * branches, list(range(chain, commits))


def dangling(rng: random.Random, commits: int, branches: int) -> Shape:
    chain = commits // 2
    parents: list[tuple[int, ...]] = [(), *((n,) for n in range(chain - 1))]
    parents += [(rng.randrange(chain),) for _ in range(commits - chain)]
    return parents, [rng.randrange(commits) for _ in range(branches)]


def measure(shape: str, commits: int, branches: int) -> dict[str, object]:
    """Prints as it goes; gives the verdicts' seconds and the peak memory until then."""
    refs, rules = history(shape, commits, branches)
    different = len(set(rules.branches.values()))
    print(f"{shape}: {commits:,} commits, {branches:,} branches, {different:,} different days")
    print(f"  {'records in memory':<44} {'':>9}   peak {peak_mib():6.0f} MiB")
    seconds: dict[str, float] = {}
    with timed("graph from records", seconds):
        graph = CommitGraph.from_refs(refs)
    with timed("documented rule, prepared", seconds):
        documented = DocumentedRule(graph, rules)
    with timed("documented verdict, with kept_until", seconds):
        by_rule = documented.verdict(NOW).active
    with timed("server's walk, prepared and now", seconds):
        server = ServerWalk(graph, rules)
        by_server = server.active(NOW)
    result = {"shape": shape, "commits": commits, "branches": branches}
    result |= {"seconds": round(sum(seconds.values()), 3), "peak_mib": round(peak_mib())}
    print(
        f"  both verdicts: {sum(seconds.values()):.2f} s, peak {peak_mib():.0f} MiB "
        f"({sum(by_server):,} kept by the server, {sum(by_rule):,} by the documented rule)"
    )
    with timed("both again, 7 and 30 days later", seconds):
        for days in (7, 30):
            documented.active(NOW + timedelta(days=days))
            server.active(NOW + timedelta(days=days))
    with timed("branches that keep each commit", seconds):
        sets = branch_sets(graph, rules, NOW)
        shown = sum(1 for _ in sets.rows())
    print(f"  ({len(sets.masks):,} different sets over {shown:,} commits)")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Both retention verdicts over large histories.")
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--branches", type=int, default=10_000)
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument(
        "--json", action="store_true", help="print the result of one shape as JSON in the last line"
    )
    options = parser.parse_args()
    if options.shape:
        result = measure(options.shape, options.commits, options.branches)
        if options.json:
            print(json.dumps(result))
        return
    size = [f"--commits={options.commits}", f"--branches={options.branches}"]
    for shape in SHAPES:
        subprocess.run([sys.executable, __file__, f"--shape={shape}", *size], check=True)


if __name__ == "__main__":
    main()
