"""How long ``lakeplan simulate`` takes: cold, warm, after one more commit, and beside a plain baseline.

    .venv/bin/python bench/simulate.py                                    # a tenth of the reference
    .venv/bin/python bench/simulate.py --objects 2M                       # the reference's size
    .venv/bin/python bench/simulate.py --objects 10M --commits 300 --rewrite 1% --no-baseline

The repository (``repository.py``) is made once and kept in ``--folder``. Each round runs, in this order and
each as a process of its own: a start (JVM, session, first worker; once for each side), the plain baseline
(``plain.py``), lakeplan with an empty cache, with the cache that this left, and with one more commit. Medians
over the rounds are shown, and ratios of medians; *work* is the process less the start. On a shared machine
look at the processor seconds and at the load beside the wall-clock seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from processes import Taken, run
from repository import DAYS, NOW, Shape, make, select

HERE = Path(__file__).parent
START_PLAIN = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(2).mapInArrow(lambda batches: batches, "id long").count()
spark.stop()
"""
START_OURS = """
import lakeplan.cli.main, lakeplan.simulation.run
from lakeplan.simulation.session import SparkOptions, open_session
with open_session(SparkOptions("local[2]"), estimated_bytes=1 << 30, light=True) as spark:
    spark.range(2).mapInArrow(lambda batches: batches, "id long").count()
"""


class Medians(TypedDict):
    """Seconds, and MiB by kind of process."""

    wall: float
    cpu: float
    work: float
    cpu_work: float
    peak_mib: dict[str, int]


PLAIN = {**os.environ, "PYSPARK_PYTHON": sys.executable}


class Bench:
    def __init__(self, root: Path, scratch: Path, days: int) -> None:
        self._root, self._scratch, self._days = root, scratch, days
        self._rules = scratch / "rules.json"
        self._rules.write_text(json.dumps({"default_retention_days": days, "branches": []}))
        self._cache = scratch / "cache"
        self.cache_bytes = 0

    def start_plain(self) -> Taken:
        return run([sys.executable, "-c", START_PLAIN], PLAIN)

    def start_ours(self) -> Taken:
        return run([sys.executable, "-c", START_OURS])

    def plain(self) -> Taken:
        output = self._fresh("plain")
        taken = run(
            [sys.executable, str(HERE / "plain.py"), str(self._root), str(self._days), str(output)], PLAIN
        )
        objects, size = map(int, taken.output.split()[-2:])
        taken.output = json.dumps({"objects": objects, "size_bytes": size})
        return taken

    def cold(self) -> Taken:
        shutil.rmtree(self._cache, ignore_errors=True)
        taken = self._simulate(str(self._cache))
        self.cache_bytes = sum(f.stat().st_size for f in self._cache.rglob("*") if f.is_file())
        return taken

    def warm(self) -> Taken:
        return self._simulate(str(self._cache))

    def off(self) -> Taken:
        return self._simulate("off")

    def one_more(self) -> Taken:
        select(self._root, one_more=True)
        try:
            return self._simulate(str(self._cache))
        finally:
            select(self._root, one_more=False)

    def _simulate(self, cache: str) -> Taken:
        output = self._fresh("ours")
        command = [sys.executable, "-m", "lakeplan", "simulate", "--namespace", f"file://{self._root}"]
        command += ["--rules", str(self._rules), "--as-of", NOW.isoformat(), "--no-listing"]
        command += ["--master", "local[2]", "--cache", cache, "--output", str(output), "--format", "json"]
        taken = run([*command, "--no-progress"])
        document = json.loads((output / "summary.json").read_text())
        taken.output = json.dumps(document["rule_sets"][0]["objects"]["goes"])
        self.read, self.kept = document["read"], document["rule_sets"][0]["objects"]["kept"]
        return taken

    def _fresh(self, name: str) -> Path:
        path = self._scratch / name
        shutil.rmtree(path, ignore_errors=True)
        return path


def rounds(steps: dict[str, Callable[[], Taken]], repeat: int) -> dict[str, list[Taken]]:
    taken: dict[str, list[Taken]] = {name: [] for name in steps}
    for number in range(repeat):
        for name, step in steps.items():
            one = step()
            taken[name].append(one)
            load = os.getloadavg()[0]
            peaks = ", ".join(f"{kind} {mib:,} MiB" for kind, mib in sorted(one.peak_mib.items()))
            times = f"{one.wall:7.2f} s  {one.cpu:7.2f} cpu s   load {load:.1f}"
            print(f"  {number + 1} {name:12} {times}   {peaks}", flush=True)
    return taken


def steps_of(bench: Bench, *, baseline: bool) -> dict[str, Callable[[], Taken]]:
    steps: dict[str, Callable[[], Taken]] = {"start ours": bench.start_ours}
    if baseline:
        steps |= {"start plain": bench.start_plain, "plain": bench.plain, "off": bench.off}
    return steps | {"cold": bench.cold, "warm": bench.warm, "one more": bench.one_more}


def medians(taken: dict[str, list[Taken]]) -> dict[str, Medians]:
    """Of each step. *Work* is without the start of JVM, session and first worker."""
    found: dict[str, Medians] = {}
    for name, of in taken.items():
        wall, cpu = statistics.median(t.wall for t in of), statistics.median(t.cpu for t in of)
        peaks = {kind: max(t.peak_mib.get(kind, 0) for t in of) for kind in of[0].peak_mib}
        found[name] = {"wall": wall, "cpu": cpu, "work": wall, "cpu_work": cpu, "peak_mib": peaks}
    for name, of_one in found.items():
        start = found["start plain" if name == "plain" else "start ours"]
        if not name.startswith("start"):
            of_one["work"] -= start["wall"]
            of_one["cpu_work"] -= start["cpu"]
    return found


def report(found: dict[str, Medians], entries: int) -> None:
    print(f"\n  {'medians':12} {'process':>9} {'work':>9} {'cpu':>9} {'cpu work':>9} {'entries/s':>12}")
    for name, of in found.items():
        rate = f"{entries / max(of['work'], 0.01):12,.0f}"
        shown = f"{of['work']:9.2f} {of['cpu']:9.2f} {of['cpu_work']:9.2f} {rate}"
        start = f"{'':9} {of['cpu']:9.2f}"
        print(f"  {name:12} {of['wall']:9.2f} " + (start if name.startswith("start") else shown))
    print()
    for label, above, below in (
        ("baseline / cold", "plain", "cold"),
        ("baseline / cache off", "plain", "off"),
        ("cold / warm", "cold", "warm"),
        ("one more commit / cold", "one more", "cold"),
    ):
        if above in found and below in found:
            one, other = found[above], found[below]
            work, cpu = one["work"] / other["work"], one["cpu_work"] / other["cpu_work"]
            whole = one["wall"] / other["wall"]
            print(f"  {label:24} work {work:6.2f}   cpu work {cpu:6.2f}   whole processes {whole:6.2f}")


def number(text: str) -> int:
    factor = {"K": 10**3, "M": 10**6}.get(text[-1:].upper(), 1)
    return int(float(text.rstrip("KMkm")) * factor)


def share(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=number, default=200_000, help="such as 2M")
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--rewrite", type=share, default=0.05, help="ranges that each commit rewrites: 5%%")
    parser.add_argument("--days", type=int, default=67, help=f"default retention; history has {DAYS} days")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-baseline", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "lakeplan-bench")
    asked = parser.parse_args()
    shape = Shape(asked.objects, asked.commits, asked.rewrite, asked.seed)
    asked.folder.mkdir(parents=True, exist_ok=True)
    root = make(asked.folder, shape)
    with tempfile.TemporaryDirectory(dir=asked.folder) as scratch:
        bench = Bench(root, Path(scratch), asked.days)
        try:
            taken = rounds(steps_of(bench, baseline=not asked.no_baseline), asked.repeat)
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"{error}\n{error.stderr}") from error
        print(f"\n  {asked.objects:,} objects, {asked.commits} commits: {json.dumps(bench.read)}")
        print(f"  goes {taken['cold'][0].output}, stays {json.dumps(bench.kept)}")
        report(medians(taken), bench.read["entries"])
        print(f"  cache: {bench.cache_bytes / bench.read['entries']:.1f} bytes an entry")
        answers = {one.output for name in ("plain", "off", "cold", "warm") for one in taken.get(name, ())}
        if len(answers) != 1:
            raise SystemExit(f"answers differ: {answers}")


if __name__ == "__main__":
    main()
