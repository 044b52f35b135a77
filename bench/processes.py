"""Measures a process and all its children: elapsed and processor seconds, and peak memory by kind."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.1


@dataclass
class Taken:
    """``peak_mib`` has ``driver`` (the Python process), ``jvm``, and ``worker`` (the largest of Spark's
    Python workers). ``cpu``: what other people do on the machine changes it less than ``wall``."""

    wall: float = 0.0
    cpu: float = 0.0
    output: str = ""
    peak_mib: dict[str, int] = field(default_factory=dict)


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Taken:
    """Raises CalledProcessError with what it said."""
    taken = Taken()
    seconds: dict[str, float] = {}
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        stop = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, stop, taken, seconds))
        watcher.start()
        try:
            output, errors = process.communicate()
        finally:
            stop.set()
            watcher.join()
    taken.wall, taken.cpu, taken.output = time.perf_counter() - begin, sum(seconds.values()), output
    if process.returncode:
        raise subprocess.CalledProcessError(
            process.returncode, command, output, errors[:1500] + "\n…\n" + errors[-1500:]
        )
    return taken


def _watch(root: int, stop: threading.Event, taken: Taken, seconds: dict[int, float]) -> None:
    while not stop.wait(SAMPLE_SECONDS):
        for pid in _family(root):
            try:
                text = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                status = Path(f"/proc/{pid}/status").read_text()
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            seconds[pid] = (int(text[11]) + int(text[12])) / _TICKS
            kind = "jvm" if b"java" in words[:200] else "driver" if pid == root else "worker"
            for line in status.splitlines():
                if line.startswith("VmHWM:"):
                    peak = int(line.split()[1]) >> 10
                    taken.peak_mib[kind] = max(taken.peak_mib.get(kind, 0), peak)


def _family(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found
