"""A sweep by lakeFS's own collector, from the command line. A script stands in for spark-submit."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeplan.sweep.official import CollectorJob, OfficialSweeper
from lakeplan.sweep.spark_submit import S3Access, SparkSubmit
from tests.e2e.test_sweep import SCHEMAS, Site
from tests.sandboxes import start_sandbox

if TYPE_CHECKING:
    from tests.e2e.conftest import Result, World

S3_KEY, S3_SECRET = "AKIAOFFICIAL", "s3-secret/of+official="
SECRETS = (S3_KEY, S3_SECRET, "sandbox-secret")
SETTINGS = "{engine: lakefs-spark-client, settle: 0s, margin: 0s}"
RUN_ID = "gofficial0001"


class Official:
    """A site whose tree uses the official engine, with its stand-in."""

    def __init__(self, site: Site, folder: Path, *, mark: bool) -> None:
        self.site = site
        self.folder = folder
        if mark:
            self.approve_mark()

    def approve_mark(self) -> None:
        site = self.site
        self.mark = site.mark()
        self.mark_id = str(self.mark["mark_id"])
        approved = site.world.lakeplan(("sweep", "approve"), self.mark_id, "--reason", "a test")
        assert approved.code == 0, approved.err
        going = site.folder / "_lakeplan" / "marks" / self.mark_id
        self.approved: list[str] = [
            address
            for part in self.mark["going"]
            for address in pq.read_table(going / part["name"]).column("address").to_pylist()
        ]
        self.orders()

    def orders(self, **changes: Any) -> None:
        orders = {"namespace": str(self.site.folder), "run_id": RUN_ID, "addresses": self.approved, **changes}
        (self.folder / "orders.json").write_text(json.dumps(orders))
        table = pa.table({"address": pa.array(orders["addresses"], pa.string())})
        pq.write_table(table, self.folder / "report.parquet")

    def run(self, *more: str) -> Result:
        result = self.site.world.lakeplan(
            ("sweep", "run"),
            self.mark_id,
            "--spark-submit",
            str(self.folder / "spark-submit"),
            "--collector",
            "io.lakefs:lakefs-spark-client_2.12:0.22.0",
            "--format",
            "json",
            "--log-level",
            "debug",
            *more,
        )
        for secret in SECRETS:
            assert secret not in result.out + result.err
        return result

    @property
    def starts(self) -> list[dict[str, Any]]:
        path = self.folder / "starts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def summary(self) -> Path:
        return self.site.folder / "_lakefs/retention/gc/unified" / RUN_ID / "summary.json"


@pytest.fixture
def make_official(tmp_path: Path, make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> Any:
    folder = tmp_path / "collector"
    folder.mkdir()
    script = folder / "spark-submit"
    fake = Path(__file__).with_name("fake_collector.py").read_text()
    script.write_text(f"#!{sys.executable}\n{fake}")
    script.chmod(0o755)
    monkeypatch.setenv("FAKE_COLLECTOR", str(folder))
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    # The sandbox keeps its namespaces in folders, which the real collector does not read.
    access = S3Access("eu-central-1", "http://127.0.0.1:9000", S3_KEY, S3_SECRET)
    monkeypatch.setattr("lakeplan.cli.sweeping.storage_access", lambda *_, **__: access)
    with start_sandbox(tmp_path / "sandbox") as handle:
        world = make_world(handle)

        def make(
            settings: str = SETTINGS,
            prepare: Callable[[Site], None] = lambda site: None,
            *,
            mark: bool = True,
        ) -> Official:
            site = Site(world, tmp_path / "sandbox", settings)
            prepare(site)
            return Official(site, folder, mark=mark)

        yield make


def it_has_the_collector_mark_then_sweep_and_checks_what_is_gone(make_official: Any) -> None:
    official = make_official()
    before = official.site.data()
    done = official.run()
    assert done.code == 0, done.err
    for does in ("marking", "deleting"):
        assert f"lake: the official collector is {does} objects; this can take hours" in done.err
    document = done.json
    assert document["deleted"] == official.mark["goes"] == {"objects": 2, "size_bytes": 21}
    assert (document["verified"], document["finished"], document["looks"]) == (2, True, 2)
    assert document["official_run_id"] == RUN_ID
    assert before - official.site.data() == set(official.approved)
    marking, sweeping = official.starts
    gc = "spark.hadoop.lakefs.gc."
    assert [marking["settings"][gc + k] for k in ("do_mark", "do_sweep", "mark_id")] == ["true", "false", ""]
    assert [sweeping["settings"][gc + k] for k in ("do_mark", "do_sweep", "mark_id")] == [
        "false",
        "true",
        RUN_ID,
    ]
    # Its own report stays as it was: nothing of ours is mixed into it.
    assert json.loads(official.summary.read_text())["start_time"] == "2026-11-21T07:00:00Z"
    assert len(list(official.summary.parent.glob("deleted/*.parquet"))) == 1
    again = official.run()
    assert (again.code, again.json["deleted"]) == (0, document["deleted"])
    assert len(official.starts) == 2
    jsonschema.validate(document, json.loads((SCHEMAS / "sweep.v1.json").read_text()))


def it_keeps_credentials_off_the_command_line_and_in_a_private_file_that_goes(make_official: Any) -> None:
    official = make_official()
    assert official.run().code == 0
    for start in official.starts:
        shown = json.dumps([start["command"], start["environ"]])
        for secret in SECRETS:
            assert secret not in shown
        assert start["modes"] == ["0o600", "0o700"]
        assert start["settings"]["spark.hadoop.lakefs.api.secret_key"] == "sandbox-secret"
        assert start["settings"]["spark.hadoop.fs.s3a.secret.key"] == S3_SECRET
        assert not Path(start["file"]).parent.exists()
        assert start["command"][2:4] == ["--class", "io.treeverse.gc.GarbageCollection"]


def it_reports_as_failed_what_is_still_there(make_official: Any) -> None:
    official = make_official()
    official.orders(lie=True)
    done = official.run()
    assert done.code == 3
    assert done.json["deleted"]["objects"] == 0
    assert done.json["failed"]["objects"] == 2
    assert done.json["reasons"] == {"failed: still exists after the official collector's run": 2}


def it_says_why_the_collector_failed_while_nothing_was_deleted(make_official: Any) -> None:
    official = make_official()
    before = official.site.data()
    official.orders(fail="mark")
    failed = official.run()
    assert failed.code == 1
    assert "exited with code 1" in failed.err
    assert "the cluster went away" in failed.err
    assert official.site.data() == before


def it_leaves_no_mark_of_a_collector_that_failed_after_it_marked(make_official: Any) -> None:
    official = make_official()
    official.orders(fail_late=True)
    assert official.run().code == 1
    assert official.summary.parent.exists()
    assert not official.summary.exists(), "anybody could sweep the collector's mark"
    official.orders(run_id="gofficial0002")
    again = official.run()
    assert (again.code, again.json["deleted"]) == (0, official.mark["goes"]), again.err


def it_closes_a_sweep_that_failed_without_deleting_more(make_official: Any) -> None:
    official = make_official()
    kept, gone = official.approved
    official.orders(fail="sweep", kept=[kept])
    assert official.run().code == 3
    closed = official.site.world.lakeplan(("sweep", "abort"), official.mark_id, "--format", "json")
    assert closed.code == 0, closed.err
    assert (closed.json["deleted"]["objects"], closed.json["saved"]["objects"]) == (1, 1)
    assert kept in official.site.data()
    assert gone not in official.site.data()
    assert len(official.starts) == 2
    assert not official.summary.exists(), "what is left could be swept without approval"
    assert official.site.mark()["mark_id"] != official.mark_id


def it_lets_a_refused_mark_be_made_again(make_official: Any) -> None:
    official = make_official()
    official.orders(addresses=sorted(official.site.data()))
    assert official.run().code == 4
    official.mark_id = official.site.mark()["mark_id"]
    assert official.site.world.lakeplan(("sweep", "approve"), official.mark_id, "--reason", "x").code == 0
    official.orders(run_id="gofficial0002")
    again = official.run()
    assert (again.code, again.json["deleted"]) == (0, official.mark["goes"]), again.err


def after_the_mark(monkeypatch: pytest.MonkeyPatch, act: Callable[[CollectorJob], object]) -> None:
    """What happens after each run of the collector, before lakeplan goes on."""
    run = SparkSubmit.run

    def marked(self: SparkSubmit, job: CollectorJob, **more: Any) -> None:
        run(self, job, **more)
        act(job)

    monkeypatch.setattr(SparkSubmit, "run", marked)


def it_checks_the_collector_s_mark_again_before_it_is_swept(
    make_official: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    official = make_official()
    before = official.site.data()
    kept = next(iter(before - set(official.approved)))
    taken: list[CollectorJob] = []
    look = OfficialSweeper._check_look

    def tampered(self: OfficialSweeper, request: Any) -> None:
        if taken:  # between the collector's mark and its sweep somebody adds an address
            part = next(official.summary.parent.glob("deleted/*.parquet"))
            pq.write_table(pa.table({"address": [official.approved[0], kept]}), part)
        look(self, request)

    after_the_mark(monkeypatch, taken.append)
    monkeypatch.setattr(OfficialSweeper, "_check_look", tampered)
    refused = official.run()
    assert refused.code == 4
    assert kept in refused.err
    assert official.site.data() == before


@pytest.mark.parametrize("name", ["part-00001", "more/part-00001.snappy"])
def it_refuses_a_mark_with_data_that_only_spark_would_read(
    make_official: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    official = make_official()
    before = official.site.data()
    kept = next(iter(before - set(official.approved)))

    def add(job: CollectorJob) -> None:
        file = official.summary.parent / "deleted" / name
        file.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"address": [kept]}), file)

    after_the_mark(monkeypatch, add)
    refused = official.run()
    assert refused.code == 1
    assert "Spark would still read it" in " ".join(refused.err.split())
    assert official.site.data() == before
    assert len(official.starts) == 1
    assert not official.summary.exists()


def it_goes_on_with_the_same_mark_after_a_sweep_that_failed(make_official: Any) -> None:
    official = make_official()
    official.orders(fail="sweep")
    failed = official.run()
    assert failed.code == 3
    assert failed.json["pending"] == official.mark["goes"]
    assert "the cluster went away" in failed.json["problem"]
    assert not failed.json["finished"]
    official.orders()
    done = official.run()
    assert (done.code, done.json["deleted"]) == (0, official.mark["goes"]), done.err
    assert [s["settings"]["spark.hadoop.lakefs.gc.mark_id"] for s in official.starts] == ["", RUN_ID, RUN_ID]


def it_refuses_when_the_collector_would_delete_more_than_was_approved(make_official: Any) -> None:
    official = make_official()
    before = official.site.data()
    official.orders(addresses=sorted(before))
    refused = official.run()
    assert refused.code == 4
    assert "outside the approved mark" in " ".join(refused.err.split())
    assert official.site.data() == before
    assert not official.summary.exists(), "anybody could sweep the collector's mark"
    assert len(official.starts) == 1


def it_saves_what_the_collector_did_not_mark(make_official: Any) -> None:
    official = make_official()
    official.orders(addresses=official.approved[:1])
    done = official.run()
    assert done.code == 0
    assert (done.json["deleted"]["objects"], done.json["saved"]["objects"]) == (1, 1)
    assert official.approved[1] in official.site.data()


def it_refuses_when_a_marked_object_is_held_again(make_official: Any) -> None:
    official = make_official()
    before = official.site.data()
    official.site.world.api.branch("lake", "back", official.site.old)
    refused = official.run()
    assert refused.code == 4
    assert "must be kept" in refused.err
    assert official.site.data() == before
    assert official.starts == []


def it_refuses_when_a_marked_object_is_held_again_after_the_collector_marked(
    make_official: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    official = make_official()
    before = official.site.data()
    after_the_mark(monkeypatch, lambda _: official.site.world.api.branch("lake", "back", official.site.old))
    refused = official.run()
    assert refused.code == 4
    assert "must be kept" in refused.err
    assert len(official.starts) == 1
    assert official.site.data() == before
    assert not official.summary.exists(), "anybody could sweep the collector's mark"


def write_again(official: Official, address: str) -> None:
    """Another object of the same size and age, at the same address."""
    file = official.site.folder / address
    times = file.stat()
    file.write_bytes(b"!" * times.st_size)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def it_refuses_when_an_object_was_written_again_under_its_key_after_the_collector_marked(
    make_official: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    official = make_official()
    before = official.site.data()
    after_the_mark(monkeypatch, lambda _: write_again(official, official.approved[0]))
    refused = official.run()
    assert refused.code == 4
    assert "written again after the mark was created" in refused.err
    assert len(official.starts) == 1
    assert official.site.data() == before
    assert not official.summary.exists(), "anybody could sweep the collector's mark"


def it_deletes_nothing_more_when_an_object_was_written_again_after_a_sweep_that_failed(
    make_official: Any,
) -> None:
    official = make_official()
    first, second = official.approved
    official.orders(fail="sweep", kept=[first])
    assert official.run().code == 3
    assert second not in official.site.data()
    write_again(official, first)
    done = official.run()
    assert len(official.starts) == 2, "the collector was run again"
    assert (done.json["deleted"]["objects"], done.json["saved"]["objects"]) == (1, 1)
    assert done.json["reasons"] == {"saved: changed since it was marked": 1}
    assert first in official.site.data()
    assert not official.summary.exists()


def it_deletes_nothing_more_when_an_object_is_held_again_after_a_sweep_that_failed(
    make_official: Any,
) -> None:
    official = make_official()
    first, second = official.approved
    official.orders(fail="sweep", kept=[first])
    assert official.run().code == 3
    assert second not in official.site.data()
    api = official.site.world.api
    api.branch("lake", "back", official.site.old)
    api.branch("lake", "back2", official.site.older_head)
    done = official.run()
    assert len(official.starts) == 2, "the collector was run again"
    assert done.code == 3, done.err
    assert done.json["finished"]
    assert (done.json["deleted"]["objects"], done.json["saved"]["objects"]) == (1, 1)
    assert done.json["came_back"] == 1
    assert first in official.site.data()
    assert not official.summary.exists()


@pytest.mark.parametrize(
    ("orders", "code", "said"),
    [
        ({"more_runs": ["gother"]}, 5, "another collector ran in the meantime"),
        ({"success": False}, 1, "a run that failed"),
        ({"count": 7}, 1, "its files list 2"),
    ],
    ids=["two reports", "failed", "incomplete"],
)
def it_trusts_no_report_that_does_not_hold_together(
    make_official: Any, orders: dict[str, Any], code: int, said: str
) -> None:
    official = make_official()
    before = official.site.data()
    official.orders(**orders)
    refused = official.run()
    assert refused.code == code
    assert said in " ".join(refused.err.split())
    assert official.site.data() == before
    assert len(official.starts) == 1


def it_is_blocked_by_name_while_the_mark_keeps_what_the_collector_would_delete(make_official: Any) -> None:
    def orphan(site: Site) -> None:
        path = site.folder / "data" / "orphans" / "upload"
        path.parent.mkdir()
        path.write_bytes(b"never linked")
        site.age()

    official = make_official(prepare=orphan, mark=False)
    refused = official.site.world.lakeplan(("sweep", "mark"))
    assert refused.code == 4
    assert "never_committed: 1 object" in " ".join(refused.out.split())
    listed = official.site.world.lakeplan(("sweep", "list"), "--format", "json")
    assert listed.json["marks"] == []


def it_leaves_to_the_next_mark_what_the_collector_would_find_too_young(make_official: Any) -> None:
    settings = "{engine: lakefs-spark-client, settle: 0s, margin: 0s, min_age: 1h}"
    official = make_official(settings, lambda site: site.age((3600 + 120) / 86_400), mark=False)
    made = official.site.world.lakeplan(("sweep", "mark"), "--format", "json")
    assert made.json["marks"] == []
    assert "older than 1h5m1s" in next(iter(made.json["skipped"].values()))


def it_takes_what_was_never_committed_when_the_tree_says_so(make_official: Any) -> None:
    def orphan(site: Site) -> None:
        path = site.folder / "data" / "orphans" / "upload"
        path.parent.mkdir()
        path.write_bytes(b"never linked")
        site.age()

    settle = "{engine: lakefs-spark-client, settle: 0s, margin: 0s, never_committed: collect}"
    official = make_official(settle, orphan)
    done = official.run()
    assert (done.code, done.json["deleted"]["objects"]) == (0, 3), done.err


def it_is_never_run_without_rules(make_official: Any) -> None:
    official = make_official()
    official.site.world.api.session.delete(
        f"{official.site.world.api.root}/repositories/lake/settings/gc_rules", timeout=30
    )
    refused = official.run()
    assert refused.code == 1
    assert "no GC rules are set" in refused.err
    assert official.starts == []
    other = official.site.world.lakeplan(("sweep", "mark"), "--format", "json")
    assert other.json["failed"]


@pytest.mark.parametrize("where", ["option", "own option", "variable", "spark-defaults", "core-site"])
def it_refuses_the_old_dry_run_wherever_it_stands(
    make_official: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    official = make_official()
    before = official.site.data()
    key = "spark.hadoop.lakefs.debug.gc.no_delete"
    more: tuple[str, ...] = ()
    if where == "option":
        more = ("--collector-conf", f"{key}=true")
    elif where == "own option":
        more = ("--spark-conf", f"{key}=true")
    elif where == "variable":
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", f"-D{key}=true")
    else:
        name = "spark-defaults.conf" if where == "spark-defaults" else "core-site.xml"
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / name).write_text(f"{key} true\n")
        variable = "SPARK_CONF_DIR" if where == "spark-defaults" else "HADOOP_CONF_DIR"
        monkeypatch.setenv(variable, str(tmp_path / "conf"))
    refused = official.run(*more)
    assert refused.code == 64
    assert "would delete" in " ".join(refused.err.split())
    assert official.site.data() == before
    assert official.starts == []


def it_ends_the_collector_with_a_signal_and_leaves_no_mark_of_it(make_official: Any) -> None:
    official = make_official()
    before = official.site.data()
    official.orders(hang="mark")

    def ask() -> None:
        deadline = time.monotonic() + 120
        while not (official.folder / "hangs").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=ask, daemon=True).start()
    began = time.monotonic()
    stopped = official.run()
    assert time.monotonic() - began < 200
    assert stopped.code == 1
    assert "stopped by a signal" in stopped.err
    assert official.site.data() == before
    assert not official.summary.exists()


def it_asks_which_collector(make_official: Any) -> None:
    official = make_official()
    refused = official.site.world.lakeplan(("sweep", "run"), official.mark_id)
    assert refused.code == 64
    assert "--collector" in refused.err


def it_lists_what_collections_of_any_kind_reported(make_official: Any) -> None:
    official = make_official()
    assert official.run().code == 0
    old = official.site.folder / "_lakefs/retention/gc/addresses/run_id=abc"
    old.mkdir(parents=True)
    pq.write_table(pq.read_table(next(official.summary.parent.glob("deleted/*.parquet"))), old / "a.parquet")
    shown = official.site.world.lakeplan(("sweep", "list"), "--collector-runs", "--format", "json")
    assert shown.code == 0, shown.err
    jsonschema.validate(shown.json, json.loads((SCHEMAS / "collector-runs.v1.json").read_text()))
    runs = shown.json["repositories"]["prod/lake"]
    assert [(r["run_id"], r["by"], r["objects"]) for r in runs] == [
        (RUN_ID, "lakefs-spark-client", 2),
        ("abc", "the old collector", 2),
    ]
    people = official.site.world.lakeplan(("sweep", "list"), "--collector-runs")
    assert RUN_ID in people.out
    assert "the old collector" in people.out


def it_redacts_paths_in_what_collections_reported(make_official: Any) -> None:
    official = make_official()
    assert official.run().code == 0
    listing = (("sweep", "list"), "--collector-runs", "--redact-paths", "--format", "json")
    summary = json.loads(official.summary.read_text())
    official.summary.write_text(json.dumps({**summary, "start_time": "see s3://payroll/2020/a.csv"}))
    shown = official.site.world.lakeplan(*listing)
    assert shown.code == 0, shown.err
    [run] = shown.json["repositories"]["prod/lake"]
    assert re.fullmatch(r"see path-[0-9a-f]{8}", run["started"])
    assert (run["run_id"], run["by"]) == (RUN_ID, "lakefs-spark-client")
    official.summary.write_text("{")
    shown = official.site.world.lakeplan(*listing)
    assert shown.code == 3, shown.err
    assert (
        shown.json["failed"]["prod/lake"]["message"]
        == "the file is not the summary of a garbage collection run"
    )
    assert official.site.folder.name not in shown.json["failed"]["prod/lake"]["where"]
    assert "_lakefs" not in shown.out
