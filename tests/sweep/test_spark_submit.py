"""Running lakeFS's own job: a small script stands in for spark-submit."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from lakeplan.errors import LakeplanError, LeaseHeld, UsageError
from lakeplan.sweep import spark_submit
from lakeplan.sweep.official import CollectorJob
from lakeplan.sweep.spark_submit import (
    AzureAccess,
    LakefsAccess,
    S3Access,
    SparkSubmit,
    StorageAccess,
    SubmitOptions,
    redact,
)

LAKEFS = LakefsAccess("http://127.0.0.1:8000", "AKIALAKE", "lake/secret+of=lakefs")
S3 = S3Access("us-east-1", None, "AKIAS3", "s3-secret")
JOB = CollectorJob("lake", 90_000)
Make = Callable[..., SparkSubmit]

SCRIPT = """#!{python}
import json, os, subprocess, sys, time
from pathlib import Path
file = Path(sys.argv[sys.argv.index("--properties-file") + 1])
start = dict(argv=sys.argv[1:], text=file.read_text(), environ=dict(os.environ), pid=os.getpid())
Path({out!r}).write_text(json.dumps(start))
{body}
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "start.json"


@pytest.fixture
def make(tmp_path: Path, out: Path) -> Make:
    def made(body: str = "", storage: StorageAccess = S3, **more: Any) -> SparkSubmit:
        home = tmp_path / "home"
        (home / "bin").mkdir(parents=True, exist_ok=True)
        script = home / "bin" / "spark-submit"
        script.write_text(SCRIPT.format(python=sys.executable, out=str(out), body=body))
        script.chmod(0o755)
        environ = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", **more.pop("environ", {})}
        options = SubmitOptions("spark-submit", more.pop("client", "g:a:1"), more.pop("conf", {}))
        return SparkSubmit(options, LAKEFS, storage, environ, more.pop("report_line", lambda text: None))

    return made


def run(submit: SparkSubmit, **more: Any) -> None:
    submit.run(JOB, **{"keep": lambda: None, "stop": lambda: False, **more})


def started(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def properties_file(out: Path) -> Path:
    argv = started(out)["argv"]
    return Path(argv[argv.index("--properties-file") + 1])


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def it_removes_the_properties_file_after_the_job(make: Make, out: Path) -> None:
    run(make())
    assert not properties_file(out).parent.exists()


def it_removes_the_properties_file_after_a_job_that_failed(make: Make, out: Path) -> None:
    with pytest.raises(LakeplanError, match="exited with code 3"):
        run(make("sys.exit(3)"))
    assert not properties_file(out).parent.exists()


def it_shows_the_last_lines_without_any_secret(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    secret = LAKEFS.secret_key
    body = f"print({secret!r}, {quote(secret, safe='')!r}, 'AKIAS3', 's3-secret'); print('why'); sys.exit(1)"
    with pytest.raises(LakeplanError, match="exited with code 1") as failed:
        run(make(body))
    assert "why" in failed.value.hint
    for text in (failed.value.hint, caplog.text):
        for hidden in (secret, quote(secret, safe=""), "AKIAS3", "s3-secret"):
            assert hidden not in text
    assert "*** *** *** ***" in failed.value.hint


def it_shows_the_fault_and_not_how_spark_stopped_after_it(make: Make) -> None:
    body = """
print('Exception in thread "main" java.lang.NoClassDefFoundError: x')
print("Caused by: java.lang.ClassNotFoundException: x")
for n in range(40): print(f"INFO ShutdownHookManager: {n}")
sys.exit(1)"""
    with pytest.raises(LakeplanError) as failed:
        run(make(body))
    assert "NoClassDefFoundError" in failed.value.hint
    assert "ClassNotFoundException" in failed.value.hint
    assert "Shutdown" not in failed.value.hint


def it_tells_how_far_the_job_is_without_any_secret(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeplan.sweep.spark_submit.REPORT_SECONDS", 0.2)
    printed: list[str] = []
    body = f"print('Stage 3 of 7', {S3.secret_key!r}, flush=True); import time; time.sleep(3)"
    run(make(body, report_line=printed.append))
    assert "is marking objects; this can take hours" in printed[0]
    assert any("Stage 3 of 7 ***" in line for line in printed[1:-1])
    assert printed[-1].endswith("exited with code 0")


def it_runs_spark_submit_with_the_python_beside_it(make: Make, out: Path, tmp_path: Path) -> None:
    run(make())
    assert started(out)["environ"]["PATH"].split(os.pathsep)[0] == str(tmp_path / "home" / "bin")


def it_gives_the_job_none_of_lakeplan_s_own_variables(make: Make, out: Path) -> None:
    environ = {
        "LAKEPLAN_PROD_SECRET_ACCESS_KEY": "x",
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "JAVA_HOME": "/java",
    }
    run(make(environ=environ))
    seen = started(out)["environ"]
    assert seen["JAVA_HOME"] == "/java"
    assert not environ.keys() - {"JAVA_HOME"} & seen.keys()
    run(make(environ=environ, storage=S3Access("us-east-1")))
    assert started(out)["environ"]["AWS_SECRET_ACCESS_KEY"] == "x", "a job without keys finds them itself"


def it_keeps_what_spark_defaults_say_which_spark_would_not_read(
    make: Make, out: Path, tmp_path: Path
) -> None:
    (tmp_path / "home" / "conf").mkdir(parents=True)
    (tmp_path / "home" / "conf" / "spark-defaults.conf").write_text(
        "spark.master yarn\nspark.jars.packages x:y:2\nspark.hadoop.lakefs.gc.do_sweep true\n"
    )
    run(make(conf={"spark.jars.packages": "z:z:3"}))
    start = started(out)
    assert start["text"].startswith("spark.master yarn\n")
    assert start["text"].rindex("do_sweep=false") > start["text"].index("do_sweep true")
    assert start["argv"][start["argv"].index("--packages") + 1] == "g:a:1,z:z:3,x:y:2"


def it_names_a_jar_by_its_whole_path(
    make: Make, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="the jar does not exist"):
        run(make(client="client.jar"))
    (tmp_path / "client.jar").touch()
    run(make(client="client.jar"))
    assert str(tmp_path / "client.jar") in started(out)["argv"]


def it_ends_the_job_and_its_children_when_it_is_asked_to_stop(
    make: Make, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_submit, "POLL_SECONDS", 0.05)
    child = tmp_path / "child"
    body = f"""
p = subprocess.Popen(["sleep", "300"])
Path({str(child)!r}).write_text(str(p.pid))
time.sleep(300)
"""
    with pytest.raises(LakeplanError, match="stopped by a signal"):
        run(make(body), stop=lambda: child.exists() and bool(child.read_text()))
    deadline = time.monotonic() + 60
    while (alive := [p for p in (started(out)["pid"], int(child.read_text())) if is_alive(p)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert not alive


def it_ends_the_job_when_the_lease_is_lost(make: Make, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_submit, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(spark_submit, "KEEP_SECONDS", 0.0)

    def lost() -> None:
        if out.exists() and out.read_text():
            raise LeaseHeld("somebody else took over")

    with pytest.raises(LeaseHeld):
        run(make("time.sleep(300)"), keep=lost)
    assert not is_alive(started(out)["pid"])


def it_says_how_to_name_a_spark_submit_that_is_not_found(make: Make) -> None:
    submit = make(environ={"PATH": "/nowhere"})
    with pytest.raises(UsageError) as refused:
        submit.check()
    assert "--spark-submit" in refused.value.hint


def it_finds_the_old_dry_run_in_variables_and_files_without_quoting_them(make: Make, tmp_path: Path) -> None:
    setting = "spark.hadoop.lakefs.debug.gc.no_delete=true password=hunter2"
    with pytest.raises(UsageError) as refused:
        make(environ={"SPARK_SUBMIT_OPTS": setting}).check()
    assert "SPARK_SUBMIT_OPTS" in refused.value.where
    assert "hunter2" not in str(refused.value)
    (tmp_path / "hadoop").mkdir()
    (tmp_path / "hadoop" / "core-site.xml").write_text(setting)
    with pytest.raises(UsageError, match=r"core-site\.xml"):
        make(environ={"HADOOP_CONF_DIR": str(tmp_path / "hadoop")}).check()


@pytest.mark.parametrize(
    "storage", [S3, AzureAccess("acc", "azure-key"), AzureAccess("a", None, "t", "c", "cs")]
)
def it_has_a_repr_without_credentials(make: Make, storage: StorageAccess) -> None:
    shown = repr(make(storage=storage)) + repr(vars(make(storage=storage)))
    for secret in ("AKIALAKE", "lake/secret", "AKIAS3", "s3-secret", "azure-key", "'cs'"):
        assert secret not in shown


def it_replaces_the_longest_form_first() -> None:
    assert redact("key abc, abcdef", ("abc", "abcdef")) == "key ***, ***"
