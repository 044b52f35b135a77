"""Rate of a sweep, beside the plain client's own limit in the same run.

    python bench/sweep.py [--objects 1000000] [--s3-objects 100000] [--workers N] [--folder DIR]
                          [--runner local|spark] [--endpoint-url URL --bucket NAME]

Goal (issue 5): objects a second of a sweep at 70 % or more of one loop of full batches: os.unlink for local
files, DeleteObjects of 1,000 keys for S3. The loop runs in one process, and once more in as many as the sweep
has workers; each before and after the sweep, because other people's load comes and goes (it is printed). The
sweep does all that it always does: reads its parts, notes what it begins, deletes, asks for a sample again,
writes what became of every object. Spark's start is not in it.

Without --endpoint-url S3 is moto's server, which is slow: the client's limit is then the server's. Any S3
store with a bucket will do; credentials come from the environment (AWS_ACCESS_KEY_ID and the like).
"""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import boto3

from lakeplan.formats.marks import MARKED, write_part
from lakeplan.simulation.marking import PART_ROWS
from lakeplan.simulation.requests import DeleteRequest, DeleteSettings, RoundEnd
from lakeplan.stores.open import SweepStore, open_sweep_store
from lakeplan.sweep.rounds import OpenWorkers, PartSweeper, SparkWorkers, ThreadWorkers, Workers
from lakeplan.values.simulation import Part, RunnerChoice, Status
from lakeplan.values.sweep import Versions

BATCH = 1_000
A_FOLDER = 1_000
"""Objects of one folder below data/, roughly as a lakeFS server shards them."""
PUTTERS = 16


@dataclass
class Target:
    """Where objects lie. ``make`` writes an object under each key, ``plain`` deletes keys as a loop of the
    client itself would."""

    name: str
    store: SweepStore
    make: Callable[[Sequence[str]], None]
    plain: Callable[[Sequence[str]], None]


def keys_of(count: int) -> list[str]:
    run = secrets.token_hex(4)
    return [f"data/{run}{n // A_FOLDER:06d}/{n:020d}{run}" for n in range(count)]


def chunks(keys: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))


# ---- plain clients
@dataclass(frozen=True)
class Folder:
    root: str

    def make(self, keys: Sequence[str]) -> None:
        made = set()
        for key in keys:
            path = f"{self.root}/{key}"
            if (folder := os.path.dirname(path)) not in made:
                os.makedirs(folder, exist_ok=True)
                made.add(folder)
            with open(path, "wb") as file:
                file.write(b"x")

    def plain(self, keys: Sequence[str]) -> None:
        for key in keys:
            os.unlink(f"{self.root}/{key}")


@dataclass(frozen=True)
class Bucket:
    endpoint_url: str
    bucket: str

    def client(self) -> Any:
        if self not in _clients:
            _clients[self] = boto3.session.Session().client("s3", endpoint_url=self.endpoint_url)
        return _clients[self]

    def make(self, keys: Sequence[str]) -> None:
        client = self.client()
        with ThreadPoolExecutor(PUTTERS) as pool:
            list(pool.map(lambda key: client.put_object(Bucket=self.bucket, Key=key, Body=b"x"), keys))

    def plain(self, keys: Sequence[str]) -> None:
        for batch in chunks(keys, BATCH):
            objects = [{"Key": key} for key in batch]
            answer = self.client().delete_objects(Bucket=self.bucket, Delete={"Objects": objects})
            assert len(answer["Deleted"]) == len(batch), answer.get("Errors")


_clients: dict[Bucket, Any] = {}


# ---- measuring
def measure(what: str, count: int, work: Callable[[], object], *, least: float | None = None) -> float:
    """Prints objects a second; returns it."""
    load = os.getloadavg()[0]
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    rate = count / seconds
    share = f"  {rate / least:5.0%} of one loop" if least else ""
    print(
        f"  {what:<34} {count:>9,} objects {seconds:7.1f} s {rate:>9,.0f}/s  (load {load:.1f}){share}",
        flush=True,
    )
    return rate


def mark(store: SweepStore, prefix: str, keys: Sequence[str]) -> tuple[Part, ...]:
    """Parts as a mark writes them."""
    parts = []
    for number, rows in enumerate(chunks(keys, PART_ROWS)):
        found = store.find(sorted(rows))
        columns: dict[str, Any] = {
            "address": rows,
            "size_bytes": [1] * len(rows),
            "version": [found[key].version for key in rows],
            "paths": [["some/path"]] * len(rows),
            "last_commit_id": ["c" * 64] * len(rows),
            "reason": ["expired"] * len(rows),
            "class": ["backlog"] * len(rows),
        }
        data, sha256 = write_part(columns, MARKED)
        name = f"going/part-{number:06d}.parquet"
        store.create(prefix + name, data)
        parts.append(Part(name, len(rows), len(rows), sha256))
    return tuple(parts)


def sweep(target: Target, keys: Sequence[str], workers: int, open_workers: Any) -> float:
    name = f"bench-{secrets.token_hex(4)}"
    prefix = f"_lakeplan/marks/{name}/"
    parts = mark(target.store, prefix, keys)
    settings = DeleteSettings("delete", Versions.MARKER, verify_all=False, cutoff_us=int(time.time() * 1e6))
    request = DeleteRequest(
        target.store,
        parts,
        prefix,
        f"_lakeplan/sweeps/{name}/",
        f"_lakeplan/quarantine/{name}/",
        settings,
        saved={},
    )
    ends: list[RoundEnd] = []
    sweeper = PartSweeper(open_workers, parallelism=workers)
    rate = measure(f"sweep, {workers} workers", len(keys), lambda: ends.append(sweeper.delete(request)))
    assert not ends[0].problem, ends[0].problem
    deleted = sum(end.amounts[Status.DELETED].objects for end in ends[0].results)
    assert deleted == len(keys), f"{deleted} of {len(keys)} deleted"
    return rate


def run(target: Target, count: int, sample: int, workers: int, open_workers: Any) -> None:
    print(f"{target.name}: {count:,} objects; loops over {sample:,} each", flush=True)
    start = time.perf_counter()
    before, swept, after = keys_of(2 * sample), keys_of(count), keys_of(2 * sample)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(target.make, list(chunks([*before, *swept, *after], 5_000))))
        print(f"  made in {time.perf_counter() - start:.0f} s", flush=True)
        ones, manys = [], []

        def loops(keys: Sequence[str]) -> None:
            one, many = keys[:sample], keys[sample:]
            ones.append(measure("loop, 1 process", sample, lambda: list(pool.map(target.plain, [one]))))
            shares = [many[n::workers] for n in range(workers)]
            manys.append(
                measure(f"loop, {workers} processes", sample, lambda: list(pool.map(target.plain, shares)))
            )

        loops(before)
        rate = sweep(target, swept, workers, open_workers)
        loops(after)
    one, many = sum(ones) / len(ones), sum(manys) / len(manys)
    print(
        f"  a sweep is {rate / one:.0%} of one loop, {rate / many:.0%} of {workers} loops at once\n",
        flush=True,
    )


@contextmanager
def moto() -> Iterator[str]:
    """A server in a separate process; its bucket is ``bench``."""
    port = 18_497
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
            url = f"http://127.0.0.1:{port}"
            wait_for(port)
            client = boto3.session.Session().client("s3", endpoint_url=url, region_name="us-east-1")
            client.create_bucket(Bucket="bench")
            yield url
        finally:
            process.terminate()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:  # each try is a connection
            time.sleep(0.2)
    raise SystemExit("moto's server did not start within a minute")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=int, default=1_000_000, help="local objects; 0 skips these")
    parser.add_argument("--s3-objects", type=int, default=100_000, help="objects in S3; 0 skips these")
    parser.add_argument(
        "--sample", type=int, default=100_000, help="objects in each loop; a fifth of it on S3"
    )
    parser.add_argument("--runner", choices=("local", "spark"), default="local")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", help="folder for local objects")
    parser.add_argument("--endpoint-url", help="S3 server; default: a moto server")
    parser.add_argument("--bucket", default="bench", help="an existing bucket")
    chosen = parser.parse_args()
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")

    @contextmanager
    def server() -> Iterator[str]:
        if chosen.endpoint_url or not chosen.s3_objects:
            yield chosen.endpoint_url or ""
        else:
            with moto() as url:
                yield url

    # The server before Spark: its workers take the environment that it starts with.
    with server() as url, runner(chosen.runner, chosen.workers) as open_workers:
        if chosen.objects:
            with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
                local = Folder(folder)
                store = open_sweep_store(f"file://{folder}")
                target = Target("local files", store, local.make, local.plain)
                run(target, chosen.objects, min(chosen.sample, chosen.objects), chosen.workers, open_workers)
        if chosen.s3_objects:
            bucket = Bucket(url, chosen.bucket)
            store = open_sweep_store(f"s3://{chosen.bucket}", endpoint_url=url)
            target = Target(f"S3 at {url}", store, bucket.make, bucket.plain)
            run(target, chosen.s3_objects, max(BATCH, chosen.sample // 5), chosen.workers, open_workers)


@contextmanager
def runner(name: str, workers: int) -> Iterator[OpenWorkers]:
    @contextmanager
    def threads(parallelism: int | None) -> Iterator[tuple[Workers, RunnerChoice]]:
        yield ThreadWorkers(workers), RunnerChoice("local", "a benchmark")

    if name == "local":
        yield threads
        return
    from lakeplan.simulation.runners import Runners
    from lakeplan.simulation.spark import open_session

    with open_session(Runners(master=f"local[{workers}]")) as session:

        @contextmanager
        def spark(parallelism: int | None) -> Iterator[tuple[Workers, RunnerChoice]]:
            yield SparkWorkers(session), RunnerChoice("spark", "a benchmark")

        start = time.perf_counter()
        session.range(0, 100, 1, workers).mapInArrow(lambda rows: rows, "id long").count()
        print(f"Spark's first job: {time.perf_counter() - start:.1f} s; it is not counted\n")
        yield spark


if __name__ == "__main__":
    main()
