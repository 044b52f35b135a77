"""How the official collector's options, the tree and the environment become one spark-submit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.cli.sweeping import CollectorChoice, open_collector
from lakeplan.errors import CredentialsError, UsageError
from lakeplan.lakefs.credentials import Credentials, Secret
from lakeplan.sweep.official import CollectorJob
from lakeplan.values.desired import ServerConfig, StorageConfig
from lakeplan.values.progress import Silent
from lakeplan.values.repository import Repository

SCRIPT = """#!{python}
import json, sys
from pathlib import Path
text = Path(sys.argv[sys.argv.index("--properties-file") + 1]).read_text()
Path({out!r}).write_text(json.dumps([sys.argv[1:], text.splitlines()]))
"""


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAS3")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3-secret")


def started(tmp_path: Path, namespace: str, environ: dict[str, str], **options: Any) -> tuple[list[str], str]:
    """Arguments and settings of the job that the options start."""
    out, script = tmp_path / "start.json", tmp_path / "spark-submit"
    script.write_text(SCRIPT.format(python=sys.executable, out=str(out)))
    script.chmod(0o755)
    storages = {"": StorageConfig("s3", "http://127.0.0.1:9000", "eu-west-1")}
    server = ServerConfig("prod", "http://127.0.0.1:8000", storages=storages)
    session: Any = SimpleNamespace(
        approve=None,
        progress=Silent(),
        environ={"LAKEPLAN_PROD_STORAGE_URL": "http://127.0.0.1:9000", **environ},
        credentials=lambda name: Credentials(Secret(f"AKIA-{name}"), Secret("lake-secret")),
    )
    site: Any = SimpleNamespace(
        key="prod/lake", server=server, repository=Repository("lake", namespace, "main")
    )
    chosen = {"collector": "g:a:1", "collector_conf": None, "spark_conf": None, **options}
    submit = open_collector(session, site, CollectorChoice(str(script), **chosen))
    submit.run(CollectorJob("lake", 60), keep=lambda: None, stop=lambda: False)
    argv, lines = json.loads(out.read_text())
    return argv, "\n".join(lines)


def it_gives_the_job_the_server_the_tree_s_storage_and_their_credentials(tmp_path: Path) -> None:
    argv, text = started(tmp_path, "s3://bucket/lake", {}, collector_conf=["spark.master=local[2]"])
    assert argv[-3:] == ["spark-internal", "lake", "eu-west-1"]
    for setting in (
        "spark.hadoop.lakefs.api.url=http://127.0.0.1:8000/api/v1",
        "spark.hadoop.lakefs.api.access_key=AKIA-prod",
        "spark.hadoop.lakefs.api.secret_key=lake-secret",
        "spark.hadoop.fs.s3a.endpoint=http://127.0.0.1:9000",
        "spark.hadoop.fs.s3a.access.key=AKIAS3",
        "spark.master=local[2]",
    ):
        assert setting in text.splitlines()


def it_starts_no_job_with_s3_keys_for_an_address_that_is_not_bound(tmp_path: Path) -> None:
    for bound in ("", "https://s3.example.com"):
        with pytest.raises(CredentialsError, match="nothing was sent"):
            started(tmp_path, "s3://bucket/lake", {"LAKEPLAN_PROD_STORAGE_URL": bound})
    assert not (tmp_path / "start.json").exists()


def it_sends_no_s3_key_to_a_job_that_a_person_gave_a_role(tmp_path: Path) -> None:
    role = "spark.hadoop.fs.s3a.assumed.role.arn=arn:aws:iam::1:role/gc"
    _, text = started(tmp_path, "s3://bucket/lake", {}, collector_conf=[role])
    assert role in text
    assert "AKIAS3" not in text


def it_opens_azure_with_the_environment_s_key(tmp_path: Path) -> None:
    namespace = "https://acc.blob.core.windows.net/container/lake"
    argv, text = started(tmp_path, namespace, {"AZURE_STORAGE_KEY": "key=="})
    assert argv[-1] == "lake"
    assert "spark.hadoop.fs.azure.account.key.acc.dfs.core.windows.net=key==" in text
    with pytest.raises(CredentialsError):
        started(tmp_path, namespace, {})


@pytest.mark.parametrize(
    "options",
    [
        {"collector": None},
        {"collector_conf": ["spark.hadoop.lakefs.debug.gc.no_delete=true"]},
        {"spark_conf": ["lakefs.debug.gc.no_delete=true"]},
        {"collector_conf": ["spark.hadoop.lakefs.gc.do_sweep=true"]},
    ],
    ids=str,
)
def it_starts_nothing_with_options_that_will_not_do(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        started(tmp_path, "s3://bucket/lake", {}, **options)
    assert not (tmp_path / "start.json").exists()


def it_names_the_option_of_a_collector_setting_without_a_value(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--collector-conf 'sparkmaster' is not in the form") as refused:
        started(tmp_path, "s3://bucket/lake", {}, collector_conf=["sparkmaster"])
    assert "--collector-conf" in refused.value.hint
