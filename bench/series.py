"""How time and memory grow: with objects, with churn, with commits; tables, and pictures of them.

    .venv/bin/python bench/series.py                      # around 500,000 objects
    .venv/bin/python bench/series.py --objects 2M --repeat 3
    .venv/bin/python bench/series.py --draw               # the pictures again, of the results that are there

One thing grows at a time, the others stay at the middle: ``--objects`` objects, 100 commits that rewrite 5 %
of the ranges each. Every point is what ``simulate.py`` runs, baseline included. Commit graphs (``graph.py``)
grow up to a million commits. Results go to ``--results`` as JSON and as a table in Markdown, pictures to
``--figures``.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from figures import draw
from graph import SHAPES
from repository import Shape, make
from simulate import Bench, medians, number, rounds, steps_of

HERE = Path(__file__).parent
GRAPHS = (62_500, 125_000, 250_000, 500_000, 1_000_000)
Json = dict[str, Any]
STEPS = ("plain", "spark cold", "local cold", "local other rules", "local one more")


def points(middle: Shape) -> Iterator[tuple[str, Shape]]:
    for factor in (0.5, 1, 2, 4):
        yield "objects", replace(middle, objects=int(middle.objects * factor))
    for rewrite in (0.01, 0.05, 0.2):
        yield "rewrite", replace(middle, rewrite=rewrite)
    for commits in (25, 100, 400):
        yield "commits", replace(middle, commits=commits)


def measured(shape: Shape, folder: Path, repeat: int) -> Json:
    root = make(folder, shape)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        bench = Bench(root, Path(scratch), 67)
        taken = rounds(steps_of(bench, ["local", "spark"], baseline=True), repeat)
    return {"shape": asdict(shape), "read": bench.read, "medians": medians(taken)}


def measure(objects: int, repeat: int, folder: Path, file: Path) -> None:
    """Writes all that was measured so far after every point: a series takes its time."""
    results: Json = {"python": platform.python_version(), "grows": [], "points": [], "graphs": []}
    known: dict[Shape, Json] = {}
    for of_one in graphs():
        results["graphs"].append(of_one)
        file.write_text(json.dumps(results, indent=1) + "\n")
    for name, shape in points(Shape(objects=objects)):
        print(f"{name}: {shape}", flush=True)
        if shape not in known:
            known[shape] = measured(shape, folder, repeat)
        results["grows"].append(name)
        results["points"].append(known[shape])
        file.write_text(json.dumps(results, indent=1) + "\n")


def graphs() -> Iterator[Json]:
    for shape in SHAPES:
        for commits in GRAPHS:
            branches = commits // 100
            command = [sys.executable, str(HERE / "graph.py"), "--json", f"--shape={shape}"]
            command += [f"--commits={commits}", f"--branches={branches}"]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found: Json = json.loads(answer.splitlines()[-1])
            print(f"  graph {found}", flush=True)
            yield found


def table(results: Json) -> str:
    """All points as Markdown. What a process needs to start is taken off all seconds."""
    head = "grows objects commits rewritten entries plain spark local other-rules one-more peak"
    rows = ["| " + " | ".join(head.split()) + " |"]
    rows.append("| --- " + "| ---: " * 10 + "|")
    for name, point in zip(results["grows"], results["points"], strict=True):
        shape, of = point["shape"], point["medians"]
        work = [f"{of[step]['work']:.1f} s" for step in STEPS]
        memory = [f"{of['local cold']['peak_mib']['driver']:,} MiB"]
        cells = [name, f"{shape['objects']:,}", f"{shape['commits']:,}", f"{shape['rewrite']:.0%}"]
        rows.append("| " + " | ".join([*cells, f"{point['read']['entries']:,}", *work, *memory]) + " |")
    rows += ["", "| graph | commits | branches | both verdicts | peak |", "| --- " + "| ---: " * 4 + "|"]
    for of in results["graphs"]:
        cells = [of["shape"], f"{of['commits']:,}", f"{of['branches']:,}"]
        rows.append("| " + " | ".join([*cells, f"{of['seconds']:.2f} s", f"{of['peak_mib']:,} MiB"]) + " |")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--objects", type=number, default=500_000, help="objects of the middle size, such as 2M"
    )
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "lakeplan-bench")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--figures", type=Path, default=HERE / "results")
    parser.add_argument("--draw", action="store_true", help="draw the pictures again without measuring")
    asked = parser.parse_args()
    for folder in (asked.folder, asked.results, asked.figures):
        folder.mkdir(parents=True, exist_ok=True)
    file = asked.results / "series.json"
    if not asked.draw:
        measure(asked.objects, asked.repeat, asked.folder, file)
    results = json.loads(file.read_text())
    (asked.results / "series.md").write_text(table(results))
    print(table(results))
    for path in draw(results, asked.figures):
        print(f"  {path}")


if __name__ == "__main__":
    main()
