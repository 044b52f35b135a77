"""``lakeplan simulate`` as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import boto3
import jsonschema
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from lakeplan.cli.main import run
from lakeplan.errors import ExitCode
from tests.simulation.namespaces import NOW, History, Snapshot, Stored, entry, write_namespace

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "simulate.v1.json").read_text())


@pytest.fixture
def namespace(tmp_path: Path) -> str:
    history = History(
        (
            Snapshot("a", 60, (), (entry("x/1", "data/p/1", 1500),)),
            Snapshot("b", 50, ("a",), ()),
            Snapshot("c", 1, ("b",), (entry("x/2", "data/p/2"),)),
        ),
        {"main": "c"},
        {"data/p/1": Stored(1500), "data/p/2": Stored(), "data/p/3": Stored(20)},
        staged=["data/p/9"],
    )
    return write_namespace(tmp_path / "ns", history)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.json"
    path.write_text('{"default_retention_days": 7, "branches": null}')
    return path


def arguments(namespace: str, rules: Path, *more: str) -> list[str]:
    return ["simulate", "--namespace", namespace, "--rules", str(rules), "--as-of", NOW.isoformat(), *more]


class DescribeCommitsOnly:
    def it_prints_the_verdicts(self, namespace: str, rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(arguments(namespace, rules, "--commits-only")) == ExitCode.OK
        assert "2 of 3 commits are kept, 1 expire" in capsys.readouterr().out

    def it_writes_commits_and_the_summary(
        self, namespace: str, rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = tmp_path / "out"
        code = run(arguments(namespace, rules, "--commits-only", "--output", str(output), "--format", "json"))
        assert code == ExitCode.OK
        summary = json.loads(capsys.readouterr().out)
        jsonschema.validate(summary, SCHEMA)
        assert sorted(p.name for p in output.iterdir()) == ["commits", "summary.json"]
        assert json.loads((output / "summary.json").read_text()) == summary
        active = [row["active"] for row in pq.read_table(output / "commits").to_pylist()]
        assert active == [False, True, True]

    def it_loads_nothing_that_takes_long(self, namespace: str, rules: Path) -> None:
        code = (
            "import sys; from lakeplan.cli.main import run\n"
            f"assert run({arguments(namespace, rules, '--commits-only')!r}) == 0\n"
            "print([m for m in ('pyspark', 'pandas', 'boto3', 'azure') if m in sys.modules])"
        )
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert answer.stdout.splitlines()[-1] == "[]"


class DescribeWholeRuns:
    def it_shows_what_goes_and_why(
        self, namespace: str, rules: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(arguments(namespace, rules)) == ExitCode.OK
        shown = capsys.readouterr()
        lines = [" ".join(line.split()) for line in shown.out.splitlines()]
        assert "deleted 2 1.5 kB" in lines
        assert "expired 1 1.5 kB" in lines
        assert "never committed 1 20 B" in lines
        assert "x/ 1 1.5 kB" in lines
        assert shown.err == ""

    def it_compares_two_rule_sets(
        self,
        namespace: str,
        rules: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        other = tmp_path / "other.json"
        other.write_text('{"default_retention_days": 90}')
        output = tmp_path / "out"
        more = ("--compare-rules", str(other), "--output", str(output), "--format", "json")
        assert run(arguments(namespace, rules, *more)) == ExitCode.OK
        summary = json.loads(capsys.readouterr().out)
        jsonschema.validate(summary, SCHEMA)
        assert summary["runner"] == {
            "name": "local",
            "reason": "2 entries do not exceed the threshold of 20,000,000",
        }
        went = {r["name"]: r["objects"]["goes"]["objects"] for r in summary["rule_sets"]}
        assert went == {"rules": 2, "compare": 1}
        again = run(arguments(namespace, rules, *more))
        assert again == ExitCode.USAGE
        assert "not empty" in capsys.readouterr().err
        assert run(arguments(namespace, rules, *more, "--overwrite")) == ExitCode.OK


WRONG = [
    (("--min-age", "tomorrow"), "--min-age", ExitCode.USAGE),
    (("--max-uncommitted-age", "1"), "--max-uncommitted-age", ExitCode.USAGE),
    (("--time-zone", "Mars/Olympus"), "Mars/Olympus", ExitCode.USAGE),
    (("--as-of", "soon"), "soon", ExitCode.USAGE),
    (("--storage-namespace", "bucket"), "--storage-namespace", ExitCode.USAGE),
    (("--format", "yaml"), "yaml", ExitCode.USAGE),
    (("--spark-conf", "spark.ui.enabled"), "--spark-conf", ExitCode.USAGE),
    (("--log-level", "loud"), "loud", ExitCode.USAGE),
    (("--rules", "nowhere.json"), "nowhere.json", ExitCode.USAGE),
    (("--compare-rules", "nowhere.json"), "nowhere.json", ExitCode.USAGE),
    (("--namespace", "ftp://host/x"), "ftp", ExitCode.ERROR),
    (("--namespace", "file:///no/such/place"), "/no/such/place", ExitCode.ERROR),
    (("--output", "{rules}"), "not a folder", ExitCode.USAGE),
    (("--no-such-option",), "--no-such-option", ExitCode.USAGE),
]


@pytest.mark.parametrize(("more", "named", "code"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_argument_is_named(
    namespace: str,
    rules: Path,
    more: tuple[str, ...],
    named: str,
    code: ExitCode,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [text.format(rules=rules) for text in more]
    assert run(arguments(namespace, rules, *given)) == code
    shown = capsys.readouterr()
    assert named in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("missing", ["--namespace", "--rules"])
def test_required_options_are_required(
    namespace: str, rules: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = arguments(namespace, rules)
    at = given.index(missing)
    assert run(given[:at] + given[at + 2 :]) == ExitCode.USAGE
    assert missing in capsys.readouterr().err


def test_a_file_without_rules_is_refused(
    namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    assert run(arguments(namespace, empty, "--commits-only")) == ExitCode.ERROR
    assert "deletes every committed object" in " ".join(capsys.readouterr().err.split())


def test_a_damaged_range_is_named_and_nothing_is_written(
    namespace: str, rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = next(
        p for p in (tmp_path / "ns" / "_lakefs").iterdir() if p.is_file() and b"data/p/1" in p.read_bytes()
    )
    broken.write_bytes(broken.read_bytes()[:-1])
    output = tmp_path / "out"
    assert run(arguments(namespace, rules, "--output", str(output))) == ExitCode.ERROR
    assert broken.name in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    "runner", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.extended])]
)
def test_workers_read_s3_with_the_credentials_of_the_environment(
    namespace: str, rules: Path, tmp_path: Path, runner: str
) -> None:
    """In a separate process: the runner is quiet, and nothing of the secret is seen anywhere."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"AWS_ACCESS_KEY_ID": "key-of-a-test", "AWS_SECRET_ACCESS_KEY": "secret-of-a-test"}
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
        )
        client.create_bucket(Bucket="bucket")
        root = tmp_path / "ns"
        for path in root.rglob("*"):
            if path.is_file():
                client.upload_file(str(path), "bucket", f"copy/{path.relative_to(root)}")
        tomorrow = datetime.now(timezone.utc) + timedelta(days=2)
        output = tmp_path / "out"
        given = ["--namespace", "s3://bucket/copy", "--endpoint-url", endpoint, "--region", "us-east-1"]
        given += ["--rules", str(rules), "--as-of", tomorrow.isoformat(), "--output", str(output)]
        given += [
            "--runner",
            runner,
            "--max-uncommitted-age",
            "36500d",
            "--storage-namespace",
            "s3://bucket/ns",
        ]
        answer = subprocess.run(
            [sys.executable, "-m", "lakeplan", "simulate", *given],
            capture_output=True,
            text=True,
            env={**os.environ, **keys, "AWS_EC2_METADATA_DISABLED": "true"},
            check=False,
        )
    finally:
        server.stop()
    assert (answer.returncode, answer.stderr) == (ExitCode.OK, "")
    went = {row["address"] for row in pq.read_table(output / "objects").to_pylist()}
    assert went == {"data/p/1", "data/p/3"}
    summary = (output / "summary.json").read_text()
    assert json.loads(summary)["runner"] == {"name": runner, "reason": "requested"}
    shown = answer.stdout + summary
    assert not [secret for secret in keys.values() if secret in shown]
