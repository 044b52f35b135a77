"""Benchmarks still run after the code that they measure has changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.mark.extended
@pytest.mark.parametrize(
    "words",
    [
        "branches.py --branches 20 --going 10",
        "branches.py --branches 20 --going 10 --undo",
        "graph.py --commits 2000 --branches 20",
        "repositories.py --repositories 4",
        "sweep.py --objects 2000 --sample 500 --s3-objects 200",
    ],
)
def test_a_benchmark_ends_with_figures(words: str) -> None:
    script, *rest = words.split()
    command = [sys.executable, str(BENCH / script), *rest]
    environ = {**os.environ, "PYTHONPATH": str(BENCH.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" s") >= 1, done.stdout
