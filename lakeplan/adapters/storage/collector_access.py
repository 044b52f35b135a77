"""Credentials that lakeFS's own collector gets for a namespace: those that lakeplan itself would use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from lakeplan.adapters.storage.urls import AzureLocation, S3Location, parse_location
from lakeplan.errors import CredentialsError, LakeplanError
from lakeplan.formats.collector_command import AzureAccess, S3Access, StorageAccess

OF_THE_MACHINE = ("iam-role", "container-role")
"""boto3's names for credentials that the job finds on its machines itself, where they renew themselves."""
DEFAULT_REGION = "us-east-1"


def storage_access(
    namespace: str,
    *,
    endpoint_url: str | None,
    region: str | None,
    environ: Mapping[str, str],
    own_provider: bool = False,
) -> StorageAccess:
    """``own_provider``: a person's settings say where the job finds S3 credentials; it gets none from here.
    Raises LakeplanError for storage that the collector does not know, CredentialsError for credentials
    that it cannot use, StorageError when none can be found out."""
    if namespace.startswith("local://"):
        raise LakeplanError(
            "the official collector reads S3 and Azure only",
            where=namespace,
            hint="use sweep.engine: builtin",
        )
    location = parse_location(namespace)
    if isinstance(location, S3Location):
        return _s3_access(location, endpoint_url, region, own_provider=own_provider)
    if isinstance(location, AzureLocation):
        return _azure_access(location, environ)
    raise LakeplanError("the official collector reads S3 and Azure only", where=namespace)


def _s3_access(
    location: S3Location, endpoint_url: str | None, region: str | None, *, own_provider: bool
) -> S3Access:
    from botocore.exceptions import BotoCoreError

    from lakeplan.adapters.storage.s3_client import AWS_HOSTS, S3Client
    from lakeplan.adapters.storage.translate import translate_boto_error

    client: Any = S3Client(endpoint_url, region).get()
    effective = str(client.meta.endpoint_url)
    custom = not (urlsplit(effective).hostname or "").endswith(AWS_HOSTS)
    try:
        found, token, method = (None, None, "") if own_provider else _s3_keys(region)
    except BotoCoreError as error:
        raise translate_boto_error(error, location.url) from None
    if found and token and method not in OF_THE_MACHINE:
        raise CredentialsError(
            "the S3 credentials here are temporary (a session token), and the official collector deletes"
            " without the token",
            where=location.url,
            hint="give it a key without a token, or run where a role of the machine gives access",
        )
    keys = (None, None) if found is None or method in OF_THE_MACHINE else found
    known = region or client.meta.region_name
    return S3Access(
        region=known if known and known != "aws-global" else DEFAULT_REGION,
        endpoint_url=effective if custom else None,
        access_key=keys[0],
        secret_key=keys[1],
    )


def _s3_keys(region: str | None) -> tuple[tuple[str, str] | None, str | None, str]:
    """Key and secret, the session token, and how boto3 found them."""
    import boto3

    credentials = boto3.session.Session(region_name=region).get_credentials()
    if credentials is None:
        return None, None, ""
    frozen = credentials.get_frozen_credentials()
    return (frozen.access_key, frozen.secret_key), frozen.token, str(credentials.method)


def _azure_access(location: AzureLocation, environ: Mapping[str, str]) -> AzureAccess:
    """The account key of the environment, or the service principal in azure-identity's own variables."""
    if location.account_url != f"https://{location.account}.blob.core.windows.net":
        raise LakeplanError(
            "the official collector knows <account>.blob.core.windows.net only",
            where=location.url,
            hint="use sweep.engine: builtin",
        )
    if key := _account_key(location, environ):
        return AzureAccess(location.account, key)
    names = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
    tenant, client, secret = (environ.get(name, "").strip() for name in names)
    if tenant and client and secret:
        return AzureAccess(location.account, None, tenant, client, secret)
    raise CredentialsError(
        "the official collector needs an account key or a service principal; a SAS or a managed identity does"
        " not do",
        where=location.url,
        hint=f"set AZURE_STORAGE_KEY, or {', '.join(names)}",
    )


def _account_key(location: AzureLocation, environ: Mapping[str, str]) -> str:
    text = environ.get("AZURE_STORAGE_CONNECTION_STRING", "").strip()
    fields = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    named = fields.get("AccountName") or environ.get("AZURE_STORAGE_ACCOUNT", "").strip()
    if named and named != location.account:
        raise CredentialsError(
            "the Azure credentials here are another account's", where=location.url, hint="nothing was sent"
        )
    return fields.get("AccountKey", "") or environ.get("AZURE_STORAGE_KEY", "").strip()
