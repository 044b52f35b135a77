"""Pictures of what ``series.py`` measured, as SVG. Needs matplotlib (``pip install '.[bench]'``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt  # after the backend was chosen

Json = dict[str, Any]
# colours that people with any colour vision tell apart, readable on white (Okabe and Ito)
STYLES = {
    "plain": ("#555555", "plain PySpark"),
    "spark cold": ("#CC79A7", "lakeplan on Spark, empty cache"),
    "local cold": ("#D55E00", "lakeplan in threads, empty cache"),
    "local other rules": ("#0072B2", "lakeplan, other rules"),
    "local one more": ("#009E73", "lakeplan, one commit more"),
}
SERIES = {
    "objects": ("objects", lambda shape: shape["objects"]),
    "rewrite": ("ranges that a commit rewrites, %", lambda shape: shape["rewrite"] * 100),
    "commits": ("commits", lambda shape: shape["commits"]),
}
MEMORY = {
    ("local cold", "driver"): ("#D55E00", "in threads"),
    ("spark cold", "driver"): ("#CC79A7", "on Spark: driver"),
    ("spark cold", "jvm"): ("#555555", "on Spark: Java"),
    ("spark cold", "worker"): ("#0072B2", "on Spark: a worker"),
}
GRAPHS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7")


def draw(results: Json, folder: Path) -> Iterator[Path]:
    """Of whatever was measured."""
    mpl.rcParams.update({"svg.hashsalt": "lakeplan", "font.size": 10, "svg.fonttype": "none"})
    for name, (label, value) in SERIES.items():
        points = [p for n, p in zip(results["grows"], results["points"], strict=True) if n == name]
        if points:
            yield _figure(folder / f"bench-{name}.svg", label, "seconds of work", _times(points, value))
        if points and name == "objects":
            yield _figure(folder / "bench-memory.svg", label, "peak MiB, empty cache", _memory(points))
    if results["graphs"]:
        lines = _graphs(results["graphs"])
        yield _figure(folder / "bench-graph.svg", "commits", "seconds, both verdicts", lines)


def _times(points: list[Json], value: Callable[[Json], float]) -> Callable[[Any], None]:
    def lines(axes: Any) -> None:
        for step, (colour, label) in STYLES.items():
            seconds = [max(point["medians"][step]["work"], 0.1) for point in points]
            axes.plot([value(point["shape"]) for point in points], seconds, "o-", color=colour, label=label)

    return lines


def _memory(points: list[Json]) -> Callable[[Any], None]:
    def lines(axes: Any) -> None:
        for (step, kind), (colour, label) in MEMORY.items():
            sizes = [point["shape"]["objects"] for point in points]
            peaks = [point["medians"][step]["peak_mib"].get(kind, 0) for point in points]
            axes.plot(sizes, peaks, "o-", color=colour, label=label)

    return lines


def _graphs(graphs: list[Json]) -> Callable[[Any], None]:
    def lines(axes: Any) -> None:
        for shape, colour in zip(dict.fromkeys(g["shape"] for g in graphs), GRAPHS, strict=False):
            of = [g for g in graphs if g["shape"] == shape]
            axes.plot([g["commits"] for g in of], [g["seconds"] for g in of], "o-", color=colour, label=shape)
        sizes = sorted({g["commits"] for g in graphs})
        least = min(g["seconds"] / g["commits"] for g in graphs)
        axes.plot(sizes, [n * least for n in sizes], ":", color="#999999", label="as commits grow")

    return lines


def _figure(path: Path, across: str, up: str, lines: Callable[[Any], None]) -> Path:
    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    lines(axes)
    axes.set(xscale="log", yscale="log", xlabel=across, ylabel=up)
    axes.grid(visible=True, which="both", color="#e5e5e5")
    axes.legend(frameon=False)
    # no date: the same results give the same file
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path
