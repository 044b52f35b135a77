"""The documented command line of lakeFS's garbage collection job."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import UsageError
from lakeplan.sweep.official import CollectorJob
from lakeplan.sweep.spark_submit import (
    REDACTED,
    AzureAccess,
    LakefsAccess,
    S3Access,
    StorageAccess,
    arguments,
    check_no_delete,
    packages_of,
    properties,
    properties_text,
)

LAKEFS = LakefsAccess("https://lakefs.example.com/", "AKIALAKE", "lake-secret")
AWS = S3Access("eu-central-1", None, "AKIAS3", "s3-secret")
MINIO = S3Access("us-east-1", "http://minio:9000", "AKIAS3", "s3-secret")
KEY = AzureAccess("lakeacc", "azure-key==")
OAUTH = AzureAccess("lakeacc", None, "tenant-1", "client-1", "client-secret")
MARKING = CollectorJob("lake", 90_000)
SWEEPING = CollectorJob("lake", 90_000, "gmark1")
PACKAGE = "io.lakefs:lakefs-spark-client_2.12:0.22.0"
ACCESSES = pytest.mark.parametrize("access", [AWS, MINIO, KEY, OAUTH], ids=["aws", "minio", "key", "oauth"])


def hadoop(access: StorageAccess, job: CollectorJob = MARKING, **conf: str) -> dict[str, str]:
    found = properties(job, LAKEFS, access, conf)
    prefix = "spark.hadoop."
    return {key[len(prefix) :]: value for key, value in found.items() if key.startswith(prefix)}


def command(access: StorageAccess, client: str = PACKAGE, packages: str = "") -> list[str]:
    return arguments(
        "spark-submit",
        client,
        properties_file="/tmp/p",
        repository="lake",
        storage=access,
        packages=packages,
    )


@ACCESSES
def it_tells_the_job_where_lakefs_is_and_that_it_marks_only(access: StorageAccess) -> None:
    found = hadoop(access)
    assert found["lakefs.api.url"] == "https://lakefs.example.com/api/v1"
    assert (found["lakefs.api.access_key"], found["lakefs.api.secret_key"]) == ("AKIALAKE", "lake-secret")
    assert (found["lakefs.gc.do_mark"], found["lakefs.gc.do_sweep"]) == ("true", "false")
    assert found["lakefs.gc.mark_id"] == ""
    assert found["lakefs.debug.gc.uncommitted_min_age_seconds"] == "90000"


@ACCESSES
def it_sweeps_one_mark_without_marking(access: StorageAccess) -> None:
    found = hadoop(access, SWEEPING)
    assert (found["lakefs.gc.do_mark"], found["lakefs.gc.do_sweep"]) == ("false", "true")
    assert found["lakefs.gc.mark_id"] == "gmark1"


def it_never_asks_for_an_age_of_zero_which_the_job_takes_for_a_day() -> None:
    found = hadoop(AWS, CollectorJob("lake", 0))
    assert found["lakefs.debug.gc.uncommitted_min_age_seconds"] == "1"


def it_speaks_to_aws_by_region_and_to_other_stores_by_path() -> None:
    aws = {key: value for key, value in hadoop(AWS).items() if key.startswith("fs.")}
    assert aws == {
        "fs.s3a.access.key": "AKIAS3",
        "fs.s3a.secret.key": "s3-secret",
        "fs.s3a.endpoint.region": "eu-central-1",
    }
    minio = hadoop(MINIO)
    assert minio["fs.s3a.endpoint"] == "http://minio:9000"
    assert minio["fs.s3a.path.style.access"] == "true"
    assert minio["fs.s3a.connection.ssl.enabled"] == "false"
    secure = hadoop(S3Access("r", "https://minio"))
    assert secure["fs.s3a.connection.ssl.enabled"] == "true"


def it_leaves_a_role_of_the_machine_to_the_job() -> None:
    assert [key for key in hadoop(S3Access("eu-central-1")) if key.startswith("fs.")] == [
        "fs.s3a.endpoint.region"
    ]


def it_opens_azure_with_the_account_key_or_a_service_principal() -> None:
    host = "lakeacc.dfs.core.windows.net"
    key = {name: value for name, value in hadoop(KEY).items() if name.startswith("fs.")}
    assert key == {f"fs.azure.account.key.{host}": "azure-key=="}
    oauth = {name: value for name, value in hadoop(OAUTH).items() if name.startswith("fs.")}
    assert oauth == {
        f"fs.azure.account.auth.type.{host}": "OAuth",
        f"fs.azure.account.oauth.provider.type.{host}": (
            "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"
        ),
        f"fs.azure.account.oauth2.client.id.{host}": "client-1",
        f"fs.azure.account.oauth2.client.secret.{host}": "client-secret",
        f"fs.azure.account.oauth2.client.endpoint.{host}": (
            "https://login.microsoftonline.com/tenant-1/oauth2/token"
        ),
    }


def it_is_the_documented_command_line() -> None:
    assert command(AWS, "/jars/client.jar") == [
        "spark-submit",
        "--class",
        "io.treeverse.gc.GarbageCollection",
        "--properties-file",
        "/tmp/p",
        "/jars/client.jar",
        "lake",
        "eu-central-1",
    ]
    assert command(KEY)[-4:] == ["--packages", PACKAGE, "spark-internal", "lake"]
    more = command(AWS, packages="org.apache.hadoop:hadoop-aws:3.3.4")
    assert more[5:8] == ["--packages", f"{PACKAGE},org.apache.hadoop:hadoop-aws:3.3.4", "spark-internal"]
    assert "http://h/c.jar" in command(AWS, "http://h/c.jar", "a:b:1")


@ACCESSES
def it_shows_no_secret_on_the_command_line_or_in_a_repr(access: StorageAccess) -> None:
    shown = " ".join(command(access)) + repr(access) + repr(LAKEFS)
    for secret in ("AKIALAKE", "lake-secret", "AKIAS3", "s3-secret", "azure-key", "client-secret"):
        assert secret not in shown


@ACCESSES
def it_has_spark_hide_every_setting_that_holds_a_secret(access: StorageAccess) -> None:
    found = properties(MARKING, LAKEFS, access, {})
    hidden = re.compile(found["spark.redaction.regex"])
    assert found["spark.redaction.regex"] == REDACTED
    secrets = {"AKIALAKE", "lake-secret", "AKIAS3", "s3-secret", "azure-key==", "client-secret"}
    held = [key for key, value in found.items() if value in secrets]
    assert len(held) >= 3
    assert all(hidden.search(key) for key in held)


def it_keeps_a_person_s_settings_and_runs_on_this_machine() -> None:
    conf = {"spark.master": "yarn", "spark.hadoop.lakefs.api.read.timeout_seconds": "60"}
    found = properties(MARKING, LAKEFS, AWS, conf)
    assert conf.items() <= found.items()
    assert found["spark.submit.deployMode"] == "client"


@pytest.mark.parametrize(
    "key",
    [
        "spark.hadoop.lakefs.gc.do_sweep",
        "spark.hadoop.lakefs.gc.do_mark",
        "lakefs.gc.mark_id",
        "spark.hadoop.lakefs.api.url",
        "spark.hadoop.lakefs.debug.gc.max_commit_iso_datetime",
        "spark.submit.deployMode",
        "spark.redaction.regex",
    ],
)
def it_refuses_settings_that_it_decides_itself(key: str) -> None:
    with pytest.raises(UsageError, match="only lakeplan may set this property"):
        properties(MARKING, LAKEFS, AWS, {key: "x"})


@pytest.mark.parametrize("prefix", ["", "spark.hadoop."])
@pytest.mark.parametrize("value", ["true", "false"])
def it_refuses_the_old_dry_run_because_today_s_job_deletes(prefix: str, value: str) -> None:
    with pytest.raises(UsageError, match="would delete"):
        properties(MARKING, LAKEFS, AWS, {f"{prefix}lakefs.debug.gc.no_delete": value})
    with pytest.raises(UsageError, match="would delete"):
        properties(
            MARKING, LAKEFS, AWS, {"spark.driver.extraJavaOptions": "-Dlakefs.debug.gc.no_delete=true"}
        )
    with pytest.raises(UsageError, match=r"core-site\.xml"):
        check_no_delete({"/conf/core-site.xml": f"<name>{prefix}lakefs.debug.gc.no_delete</name>"})


def it_reads_packages_that_spark_defaults_name() -> None:
    text = "# spark.jars.packages old:one:1\nspark.master yarn\nspark.jars.packages   a:b:1,c:d:2\n"
    assert packages_of(text) == "a:b:1,c:d:2"
    assert packages_of("spark.jars.packages=x:y:1") == "x:y:1"
    assert packages_of("spark.jars.packagesX a:b:1") == ""


def load(text: str) -> dict[str, str]:
    """Reads the text of ``properties_text`` like java.util.Properties: no continuations, ``=`` between."""
    found = {}
    for line in text.splitlines():
        parts = re.match(r"((?:\\.|[^=:\s\\])+)[=:\s]\s*(.*)", line)
        assert parts is not None, line
        found[_unescaped(parts[1])] = _unescaped(parts[2])
    return found


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else match[2]

    raw = re.sub(r"\\(?:u([0-9a-f]{4})|(.))", one, text)
    return raw.encode("utf-16", "surrogatepass").decode("utf-16")


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8")), max_size=4
    )
)
def it_writes_properties_that_java_reads_back_as_they_were(settings: dict[str, str]) -> None:
    text = properties_text(settings)
    assert text.isascii()
    assert load(text) == settings


def it_lets_its_own_settings_win_over_spark_defaults() -> None:
    text = properties_text({"a": "ours"}, defaults="a theirs\nb theirs\\")
    assert load(text) == {"a": "ours", "b": "theirs"}
