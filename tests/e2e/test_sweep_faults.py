"""A sweep in a separate process. It or a worker is killed or gets a signal, and the next run continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lakeplan.formats.namespace import sweep_prefix
from lakeplan.sweep.mark_record import Mark
from tests.sweeping.lake import Clock, Lake, LakeRepository
from tests.sweeping.world import SweepWorld

OBJECTS = 60
RATE = 3
"""Objects a second, by two workers: slow enough to be ended on the way, even some seconds late."""
PATIENCE = 120.0


class Process:
    """``lakeplan sweep run MARK`` in a separate process, in a separate session."""

    def __init__(self, world: SweepWorld, mark: Mark, environ: dict[str, str], runner: str) -> None:
        # Clocks may differ by five minutes, and the server's has stood still since the last process.
        world.lake.clock.at = datetime.now(timezone.utc)
        words = [sys.executable, "-m", "lakeplan", "sweep", "run", mark.mark_id, "--no-progress"]
        self.process = subprocess.Popen(
            [*words, "--runner", runner, "--parallelism", "2", "-C", str(world.folder / "tree")],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def end(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out

    def workers(self) -> list[int]:
        """The Python workers of Spark: the leaves below this process that Spark's daemon forked."""
        parents: dict[int, int] = {}
        lines: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                lines[int(entry.name)] = (entry / "cmdline").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(status[1])

        def is_ours(pid: int) -> bool:
            while pid in parents:
                pid = parents[pid]
                if pid == self.process.pid:
                    return True
            return False

        daemons = [p for p, line in lines.items() if "pyspark.daemon" in line and is_ours(p)]
        return [p for p in daemons if parents[p] in daemons]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SweepWorld]:
    clock = Clock()
    clock.at = datetime.now(timezone.utc)
    lake = Lake(tmp_path / "lake", clock)
    world = SweepWorld(tmp_path, lake)
    world.marker.rows = 1
    world.sweep |= {"rate": RATE, "verify": "all"}
    yield world
    lake.close()


@pytest.fixture
def environ(world: SweepWorld) -> dict[str, str]:
    handle = world.lake.handle
    own = {k: v for k, v in os.environ.items() if k not in ("CI", "COLUMNS")}
    return own | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "LAKEPLAN_STATE_URL": f"file://{world.folder}/state",
        "LAKEPLAN_PROD_ENDPOINT_URL": handle.endpoint_url,
        "LAKEPLAN_PROD_ACCESS_KEY_ID": handle.access_key_id,
        "LAKEPLAN_PROD_SECRET_ACCESS_KEY": handle.secret_access_key,
    }


def _history(world: SweepWorld) -> LakeRepository:
    repo = world.lake.repository("repo1")
    for n in range(OBJECTS):
        repo.upload(f"{n}.bin", b"old")
    repo.commit(40)
    for n in range(OBJECTS):
        repo.delete(f"{n}.bin")
    repo.commit(30)
    repo.commit(1, kept=b"kept")
    repo.set_rules(7)
    for key in repo.stored():
        repo.touch(key, age_hours=100)
    return repo


def _wait(happened: Callable[[], bool], process: Process) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert process.process.poll() is None, process.end()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    "runner", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.extended])]
)
def it_goes_on_after_whatever_ended_it(world: SweepWorld, environ: dict[str, str], runner: str) -> None:
    repo = _history(world)
    mark = world.mark()
    assert mark.to_delete.objects == OBJECTS
    world.approve(mark)
    results = repo.folder / sweep_prefix(mark.mark_id) / "results"

    def finished() -> int:
        return len(list(results.glob("*.parquet"))) if results.is_dir() else 0

    def ended_by(end: Callable[[Process], None]) -> tuple[int, str]:
        known = finished()
        process = Process(world, mark, environ, runner)
        _wait(lambda: finished() >= known + 3, process)
        end(process)
        code, out = process.end()
        assert known < finished() < OBJECTS, out
        return code, out

    # the process is gone between two batches; Spark ends with it
    code, _ = ended_by(lambda process: process.process.kill())
    assert code == -signal.SIGKILL
    _wait_until_still(finished)

    code = 3
    if runner == "spark":
        # a worker is gone: the run says so, or Spark ran its task again
        code, out = ended_by_worker(world, mark, environ, finished)
        assert code in (0, 3), out
        assert not code or "the Spark job failed" in out, out
    if code:
        # a signal: it ends in order, with what was done
        code, out = ended_by(lambda process: process.process.send_signal(signal.SIGTERM))
        assert code == 3, out
        assert "stopped by a signal" in out, out
        if runner == "local":
            code, out = ended_by(lambda process: process.process.send_signal(signal.SIGINT))
            assert code == 130, out
        del world.sweep["rate"]
        world.tree()
        code, out = Process(world, mark, environ, runner).end()
    assert code == 0, out
    ends = world.ends(mark)
    assert set(ends) == set(world.going(mark))
    assert {status for status, _ in ends.values()} == {"deleted"}
    assert repo.stored().isdisjoint(ends)
    assert repo.get("main", "kept.bin") == b"kept"
    assert len(world.site().store.list_prefixes("_lakefs/retention/gc/unified/")) == 1


def ended_by_worker(
    world: SweepWorld, mark: Mark, environ: dict[str, str], finished: Callable[[], int]
) -> tuple[int, str]:
    known = finished()
    process = Process(world, mark, environ, "spark")
    _wait(lambda: finished() >= known + 3, process)
    workers = process.workers()
    assert workers
    os.kill(workers[0], signal.SIGKILL)
    return process.end()


def _wait_until_still(finished: Callable[[], int]) -> None:
    """Spark's own processes notice that lakeplan is gone."""
    before = -1
    while before != (before := finished()):
        time.sleep(1.5)
