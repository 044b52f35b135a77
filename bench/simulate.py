"""How long ``lakeplan simulate`` takes on either runner, beside a plain baseline.

    .venv/bin/python bench/simulate.py                                    # a tenth of the reference
    .venv/bin/python bench/simulate.py --objects 2M                       # the reference's size
    .venv/bin/python bench/simulate.py --objects 10M --commits 300 --rewrite 1% --no-baseline

The repository (``repository.py``) is made once and kept in ``--folder``. Each round runs, in this order and
each as a process of its own: a start (the verdicts alone; for Spark a session and its first worker), the
smallest PySpark job, the plain baseline (``plain.py``), and on each runner a simulation without a cache,
with an empty one, with the cache that this left, with other rules, and with one more commit. Medians over
the rounds are shown, and ratios of medians; *work* is the process less the start. On a shared machine look
at the processor seconds and at the load beside the wall-clock seconds.
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
SMALLEST_JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(2).mapInArrow(lambda batches: batches, "id long").count()
spark.stop()
"""
SPARK_START = """
import lakeplan.cli.main, lakeplan.simulation.run
from lakeplan.simulation.runners import Runners
from lakeplan.simulation.spark import open_session
with open_session(Runners()) as spark:
    spark.range(2).mapInArrow(lambda batches: batches, "id long").count()
"""
PLAIN = {**os.environ, "PYSPARK_PYTHON": sys.executable}
RUNS = ("cache off", "cold", "warm", "other rules", "one more")


class Medians(TypedDict):
    """Seconds, and MiB by kind of process."""

    wall: float
    cpu: float
    work: float
    cpu_work: float
    peak_mib: dict[str, int]


class Bench:
    def __init__(self, root: Path, scratch: Path, days: int) -> None:
        self._root, self._scratch, self._days = root, scratch, days
        self._cache = scratch / "cache"
        self.cache_bytes = 0
        self.answers: dict[str, set[str]] = {}

    def smallest_job(self) -> Taken:
        return run([sys.executable, "-c", SMALLEST_JOB], PLAIN)

    def start(self, runner: str) -> Taken:
        if runner == "spark":
            return run([sys.executable, "-c", SPARK_START])
        return run([*self._command(self._days), "--commits-only"])

    def plain(self) -> Taken:
        output = self._fresh("plain")
        command = [sys.executable, str(HERE / "plain.py"), str(self._root), str(self._days), str(output)]
        taken = run(command, PLAIN)
        objects, size = map(int, taken.output.split()[-2:])
        self._answered("these rules", {"objects": objects, "size_bytes": size})
        return taken

    def simulate(self, runner: str, name: str) -> Taken:
        """``name``: one of ``RUNS``."""
        if name == "cold":
            shutil.rmtree(self._cache, ignore_errors=True)
        days = self._days // 2 if name == "other rules" else self._days
        one_more = name == "one more"
        select(self._root, one_more=one_more)
        try:
            cache = "off" if name == "cache off" else str(self._cache)
            output = self._fresh("ours")
            command = [*self._command(days), "--runner", runner, "--cache", cache, "--output", str(output)]
            taken = run([*command, "--overwrite"])
        finally:
            select(self._root, one_more=False)
        document = json.loads((output / "summary.json").read_text())
        self.read = document["read"]
        rules = "one more commit" if one_more else "other rules" if name == "other rules" else "these rules"
        self._answered(rules, document["rule_sets"][0]["objects"]["goes"])
        self.cache_bytes = sum(f.stat().st_size for f in self._cache.rglob("*") if f.is_file())
        return taken

    def _answered(self, rules: str, goes: dict[str, int]) -> None:
        """Whoever computes it, and with whatever is kept: one answer for the same rules."""
        found = self.answers.setdefault(rules, set())
        found.add(json.dumps(goes, sort_keys=True))
        if len(found) > 1:
            raise SystemExit(f"answers differ: {rules}: {found}")

    def _command(self, days: int) -> list[str]:
        rules = self._scratch / f"rules-{days}.json"
        rules.write_text(json.dumps({"default_retention_days": days, "branches": []}))
        command = [sys.executable, "-m", "lakeplan", "simulate", "--namespace", f"file://{self._root}"]
        command += ["--rules", str(rules), "--as-of", NOW.isoformat(), "--no-listing"]
        return [*command, "--format", "json", "--no-progress"]

    def _fresh(self, name: str) -> Path:
        path = self._scratch / name
        shutil.rmtree(path, ignore_errors=True)
        return path


def steps_of(bench: Bench, runners: list[str], *, baseline: bool) -> dict[str, Callable[[], Taken]]:
    steps: dict[str, Callable[[], Taken]] = {}
    if baseline:
        steps |= {"smallest Spark job": bench.smallest_job, "plain": bench.plain}
    for runner in runners:
        steps[f"{runner} start"] = lambda runner=runner: bench.start(runner)  # type: ignore[misc]
        for name in RUNS:
            steps[f"{runner} {name}"] = lambda runner=runner, name=name: bench.simulate(runner, name)  # type: ignore[misc]
    return steps


def rounds(steps: dict[str, Callable[[], Taken]], repeat: int) -> dict[str, list[Taken]]:
    taken: dict[str, list[Taken]] = {name: [] for name in steps}
    for number in range(repeat):
        for name, step in steps.items():
            one = step()
            taken[name].append(one)
            load = os.getloadavg()[0]
            peaks = ", ".join(f"{kind} {mib:,} MiB" for kind, mib in sorted(one.peak_mib.items()))
            times = f"{one.wall:7.2f} s  {one.cpu:7.2f} cpu s   load {load:.1f}"
            print(f"  {number + 1} {name:18} {times}   {peaks}", flush=True)
    return taken


def medians(taken: dict[str, list[Taken]]) -> dict[str, Medians]:
    """Of each step. *Work* is without the start."""
    found: dict[str, Medians] = {}
    for name, of in taken.items():
        wall, cpu = statistics.median(t.wall for t in of), statistics.median(t.cpu for t in of)
        peaks = {kind: max(t.peak_mib.get(kind, 0) for t in of) for kind in of[0].peak_mib}
        found[name] = {"wall": wall, "cpu": cpu, "work": wall, "cpu_work": cpu, "peak_mib": peaks}
    for name, of_one in found.items():
        start = found.get("smallest Spark job" if name == "plain" else f"{name.split()[0]} start")
        if start is not None and start is not of_one:
            of_one["work"] -= start["wall"]
            of_one["cpu_work"] -= start["cpu"]
    return found


def report(found: dict[str, Medians], entries: int) -> None:
    print(f"\n  {'medians':18} {'process':>9} {'work':>9} {'cpu':>9} {'cpu work':>9} {'entries/s':>12}")
    for name, of in found.items():
        rate = f"{entries / max(of['work'], 0.01):12,.0f}"
        print(
            f"  {name:18} {of['wall']:9.2f} {of['work']:9.2f} {of['cpu']:9.2f} {of['cpu_work']:9.2f} {rate}"
        )
    print()
    for above, below in (
        ("plain", "local cold"),
        ("spark cold", "local cold"),
        ("local warm", "local cold"),
        ("local other rules", "local cold"),
        ("local one more", "local cold"),
    ):
        if above in found and below in found:
            one, other = found[above], found[below]
            work, cpu = one["work"] / other["work"], one["cpu_work"] / other["cpu_work"]
            whole = one["wall"] / other["wall"]
            label = f"{above} / {below}"
            print(f"  {label:32} work {work:6.2f}   cpu work {cpu:6.2f}   whole processes {whole:6.2f}")


def number(text: str) -> int:
    factor = {"K": 10**3, "M": 10**6}.get(text[-1:].upper(), 1)
    return int(float(text.rstrip("KMkm")) * factor)


def share(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=number, default=200_000, help="number of objects, such as 2M")
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument(
        "--rewrite", type=share, default=0.05, help="share of ranges that each commit rewrites"
    )
    parser.add_argument(
        "--days", type=int, default=67, help=f"default retention; the history has {DAYS} days"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--runner", choices=("local", "spark"), action="append", help="default: both")
    parser.add_argument("--no-baseline", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "lakeplan-bench")
    asked = parser.parse_args()
    shape = Shape(asked.objects, asked.commits, asked.rewrite, asked.seed)
    asked.folder.mkdir(parents=True, exist_ok=True)
    root = make(asked.folder, shape)
    with tempfile.TemporaryDirectory(dir=asked.folder) as scratch:
        bench = Bench(root, Path(scratch), asked.days)
        runners = asked.runner or ["local", "spark"]
        try:
            taken = rounds(steps_of(bench, runners, baseline=not asked.no_baseline), asked.repeat)
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"{error}\n{error.stderr}") from error
        print(f"\n  {asked.objects:,} objects, {asked.commits} commits: {json.dumps(bench.read)}")
        report(medians(taken), bench.read["entries"])
        print(f"  cache: {bench.cache_bytes / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
