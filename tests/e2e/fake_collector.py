"""Stands in for spark-submit: writes the report of lakeFS's own job, and deletes what it names.

Its folder (``FAKE_COLLECTOR``) tells what to do (``orders.json``), has the report's file (``report.parquet``)
and keeps what it was started with (``starts.jsonl``).
"""

import json
import os
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["FAKE_COLLECTOR"])
REPORT = FOLDER / "report.parquet"
HADOOP = "spark.hadoop."


def main() -> int:
    orders = json.loads((FOLDER / "orders.json").read_text())
    file = Path(sys.argv[sys.argv.index("--properties-file") + 1])
    settings = dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
    start = {
        "command": Path("/proc/self/cmdline").read_bytes().decode().split("\0"),
        "environ": dict(os.environ),
        "file": str(file),
        "modes": [oct(path.stat().st_mode & 0o777) for path in (file, file.parent)],
        "settings": settings,
    }
    with (FOLDER / "starts.jsonl").open("a") as starts:
        starts.write(json.dumps(start) + "\n")
    print("Spark says everything it knows:", settings, flush=True)
    namespace = Path(orders["namespace"])
    marks = settings[HADOOP + "lakefs.gc.do_mark"] == "true"
    if orders.get("hang") == ("mark" if marks else "sweep"):
        (FOLDER / "hangs").touch()
        time.sleep(300)
    if not marks and not orders.get("lie"):
        sweep(namespace, settings[HADOOP + "lakefs.gc.mark_id"], orders)
    if orders.get("fail") == ("mark" if marks else "sweep"):
        print("Exception in thread main: the cluster went away", file=sys.stderr)
        return 1
    if marks:
        for run_id in [orders["run_id"], *orders.get("more_runs", [])]:
            write_report(namespace, {**orders, "run_id": run_id})
    return 1 if orders.get("fail_late") and marks else 0


def write_report(namespace: Path, orders: dict) -> None:
    run = namespace / "_lakefs/retention/gc/unified" / orders["run_id"]
    (run / "deleted").mkdir(parents=True)
    (run / "deleted" / "part-00000-c000.snappy.parquet").write_bytes(REPORT.read_bytes())
    (run / "deleted" / "_SUCCESS").touch()
    (run / "summary.json").write_text(
        json.dumps(
            {
                "run_id": orders["run_id"],
                "success": orders.get("success", True),
                "first_slice": "",
                "start_time": "2026-11-21T07:00:00Z",
                "cutoff_time": "2026-11-20T07:00:00Z",
                "num_deleted_objects": orders.get("count", len(orders["addresses"])),
            }
        )
    )


def sweep(namespace: Path, mark_id: str, orders: dict) -> None:
    run = namespace / "_lakefs/retention/gc/unified" / mark_id
    assert json.loads((run / "summary.json").read_text())["success"]
    for part in run.glob("deleted/*.parquet"):
        for address in addresses(part, orders):
            if address not in orders.get("kept", []):
                (namespace / address).unlink(missing_ok=True)


def addresses(part: Path, orders: dict) -> list:
    """To import pyarrow takes ten times as long as all else: only a file that somebody changed is read."""
    if part.read_bytes() == REPORT.read_bytes():
        return orders["addresses"]
    import pyarrow.parquet as pq

    return pq.read_table(part).column("address").to_pylist()


if __name__ == "__main__":
    sys.exit(main())
