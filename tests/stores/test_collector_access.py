"""The credentials that lakeFS's own collector gets for a namespace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest

from lakeplan.errors import CredentialsError, LakeplanError
from lakeplan.sweep import spark_submit
from lakeplan.sweep.spark_submit import AzureAccess, S3Access, StorageAccess, storage_access

AZURE = "https://lakeacc.blob.core.windows.net/container/lake"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    return monkeypatch


def s3(endpoint_url: str | None = None, region: str | None = None, **more: Any) -> StorageAccess:
    return storage_access("s3://bucket/lake", endpoint_url=endpoint_url, region=region, environ={}, **more)


def azure(environ: Mapping[str, str], url: str = AZURE) -> StorageAccess:
    return storage_access(url, endpoint_url=None, region=None, environ=environ)


def it_gives_boto3_s_key_and_the_region(aws: pytest.MonkeyPatch) -> None:
    assert s3(region="eu-west-1") == S3Access("eu-west-1", None, "AKIA", "secret")
    assert s3() == S3Access("us-east-1", None, "AKIA", "secret")


def it_names_another_store_s_endpoint_wherever_that_is_said(aws: pytest.MonkeyPatch) -> None:
    assert s3("http://127.0.0.1:9000") == S3Access("us-east-1", "http://127.0.0.1:9000", "AKIA", "secret")
    aws.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9001")
    assert s3().endpoint_url == "http://127.0.0.1:9001"  # type: ignore[union-attr]


def it_refuses_temporary_keys_because_the_collector_drops_their_token(aws: pytest.MonkeyPatch) -> None:
    aws.setenv("AWS_SESSION_TOKEN", "token")
    with pytest.raises(CredentialsError, match="session token"):
        s3()
    assert s3(own_provider=True) == S3Access("us-east-1")


@pytest.mark.parametrize("method", ["iam-role", "container-role"])
def it_leaves_a_role_of_the_machine_to_the_job(aws: pytest.MonkeyPatch, method: str) -> None:
    aws.setattr(spark_submit, "_s3_keys", lambda region: (("ASIA", "x"), "token", method))
    assert s3() == S3Access("us-east-1")


def it_gives_no_key_when_there_is_none(aws: pytest.MonkeyPatch) -> None:
    aws.delenv("AWS_ACCESS_KEY_ID")
    aws.delenv("AWS_SECRET_ACCESS_KEY")
    aws.setattr(boto3.session.Session, "get_credentials", lambda self: None)
    assert s3() == S3Access("us-east-1")


@pytest.mark.parametrize(
    "environ",
    [
        {"AZURE_STORAGE_KEY": "key=="},
        {"AZURE_STORAGE_ACCOUNT": "lakeacc", "AZURE_STORAGE_KEY": "key=="},
        {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=lakeacc;AccountKey=key==;X=y"},
    ],
)
def it_gives_an_azure_account_key(environ: dict[str, str]) -> None:
    assert azure(environ) == AzureAccess("lakeacc", "key==")


def it_gives_an_azure_service_principal() -> None:
    environ = {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}
    assert azure(environ) == AzureAccess("lakeacc", None, "t", "c", "s")


@pytest.mark.parametrize("environ", [{}, {"AZURE_STORAGE_SAS_TOKEN": "sv=1"}, {"AZURE_TENANT_ID": "t"}])
def it_refuses_what_the_collector_cannot_open_azure_with(environ: dict[str, str]) -> None:
    with pytest.raises(CredentialsError, match="account key or a service principal"):
        azure(environ)


@pytest.mark.parametrize(
    "environ",
    [
        {"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_KEY": "key=="},
        {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=other;AccountKey=key=="},
    ],
)
def it_sends_no_key_of_another_azure_account(environ: dict[str, str]) -> None:
    with pytest.raises(CredentialsError, match="account other") as refused:
        azure(environ)
    assert "key==" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "local://lake",
        "file:///data/lake",
        "http://127.0.0.1:10000/lakeacc/container/lake",
        "https://lakeacc.blob.core.chinacloudapi.cn/container/lake",
    ],
)
def it_refuses_storage_that_the_collector_does_not_know(url: str) -> None:
    with pytest.raises(LakeplanError, match=r"the official collector supports only"):
        azure({"AZURE_STORAGE_KEY": "k"}, url)
