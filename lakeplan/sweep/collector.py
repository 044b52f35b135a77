"""What a run of lakeFS's own collector needs: its command, its storage credentials."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from lakeplan.errors import CredentialsError, LakeplanError, UsageError
from lakeplan.stores.open import Access, AzureLocation, S3Location, parse_location
from lakeplan.values.urls import scheme_of


@dataclass(frozen=True)
class CollectorJob:
    """With ``mark_id`` "" it marks and deletes nothing; otherwise it marks nothing and deletes what its own
    mark of that id names. It leaves objects alone that are younger than ``min_age_seconds`` (1 or more: the
    job takes 0 for its default, a day)."""

    repository: str
    min_age_seconds: int
    mark_id: str = ""


class Collector(Protocol):
    def check(self) -> None:
        """Raises LakeplanError, by name, for settings under which it must not be started."""

    def run(self, job: CollectorJob, *, keep: Callable[[], None], stop: Callable[[], bool]) -> None:
        """Runs the job to its end. ``keep`` is called every few minutes (a lease to renew; what it raises
        ends the job), ``stop`` is asked often. Raises LakeplanError when the job failed or was stopped, with
        the last lines it printed, without secrets: what it did until then is not known."""


MAIN_CLASS = "io.treeverse.gc.GarbageCollection"
NO_DELETE = "lakefs.debug.gc.no_delete"
NO_RESOURCE = "spark-internal"
"""spark-submit's word for "the class comes with the packages"."""
HADOOP = "spark.hadoop."
REDACTED = r"(?i)secret|password|token|access[._]?key|account[.]key|credential"
"""What Spark hides in its page and its event log. Its own default shows ``access_key`` and Azure's keys."""
_PACKAGE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
_OURS = (
    "lakefs.api.url",
    "lakefs.api.access_key",
    "lakefs.api.secret_key",
    "lakefs.gc.do_mark",
    "lakefs.gc.do_sweep",
    "lakefs.gc.mark_id",
    "lakefs.debug.",
)
_OURS_OF_SPARK = ("spark.submit.deployMode", "spark.redaction.regex")


@dataclass(frozen=True)
class LakefsAccess:
    """``endpoint_url`` as the tree has it: without ``/api/v1``."""

    endpoint_url: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)


@dataclass(frozen=True)
class S3Access:
    """``endpoint_url``: of a store that is not AWS; it is then spoken to by path. Without keys the job finds
    credentials itself (a role)."""

    region: str
    endpoint_url: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class AzureAccess:
    """An account key, or a service principal (OAuth): ``tenant_id``, ``client_id``, ``client_secret``."""

    account: str
    account_key: str | None = field(default=None, repr=False)
    tenant_id: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)


StorageAccess = S3Access | AzureAccess


def properties(
    job: CollectorJob, lakefs: LakefsAccess, storage: StorageAccess, conf: Mapping[str, str]
) -> dict[str, str]:
    """All settings of one run; ``conf`` is a person's own, which ours override. Raises UsageError for those
    that ``check_conf`` refuses."""
    check_conf(conf)
    marks = not job.mark_id
    ours = {
        "lakefs.api.url": f"{lakefs.endpoint_url.rstrip('/')}/api/v1",
        "lakefs.api.access_key": lakefs.access_key,
        "lakefs.api.secret_key": lakefs.secret_key,
        "lakefs.gc.do_mark": str(marks).lower(),
        "lakefs.gc.do_sweep": str(not marks).lower(),
        "lakefs.gc.mark_id": job.mark_id,
        "lakefs.debug.gc.uncommitted_min_age_seconds": str(max(1, job.min_age_seconds)),
        **(_s3(storage) if isinstance(storage, S3Access) else _azure(storage)),
    }
    return {
        **{key: value for key, value in conf.items() if key != "spark.jars.packages"},
        "spark.submit.deployMode": "client",
        "spark.redaction.regex": REDACTED,
        **{HADOOP + key: value for key, value in ours.items()},
    }


def _s3(access: S3Access) -> dict[str, str]:
    found = {"fs.s3a.endpoint.region": access.region}
    if access.access_key and access.secret_key:
        found |= {"fs.s3a.access.key": access.access_key, "fs.s3a.secret.key": access.secret_key}
    if access.endpoint_url:
        found |= {
            "fs.s3a.endpoint": access.endpoint_url,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": str(scheme_of(access.endpoint_url) != "http").lower(),
        }
    return found


def _azure(access: AzureAccess) -> dict[str, str]:
    host = f"{access.account}.dfs.core.windows.net"
    if access.account_key:
        return {f"fs.azure.account.key.{host}": access.account_key}
    provider = "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"
    return {
        f"fs.azure.account.auth.type.{host}": "OAuth",
        f"fs.azure.account.oauth.provider.type.{host}": provider,
        f"fs.azure.account.oauth2.client.id.{host}": access.client_id,
        f"fs.azure.account.oauth2.client.secret.{host}": access.client_secret,
        f"fs.azure.account.oauth2.client.endpoint.{host}": (
            f"https://login.microsoftonline.com/{access.tenant_id}/oauth2/token"
        ),
    }


def arguments(
    spark_submit: str,
    client: str,
    *,
    properties_file: str,
    repository: str,
    storage: StorageAccess,
    packages: str = "",
) -> list[str]:
    """The command line. ``client`` is Maven coordinates, or a jar's path or URL; ``packages`` are more
    coordinates, comma-separated. The region is an argument for S3 only."""
    named = [one for one in packages.split(",") if one.strip()]
    if is_package(client):
        named, resource = [client, *named], NO_RESOURCE
    else:
        resource = client
    region = [storage.region] if isinstance(storage, S3Access) else []
    return [
        spark_submit,
        "--class",
        MAIN_CLASS,
        "--properties-file",
        properties_file,
        *(("--packages", ",".join(named)) if named else ()),
        resource,
        repository,
        *region,
    ]


def is_package(client: str) -> bool:
    """Whether it is Maven coordinates (``group:artifact:version``), not a jar."""
    return _PACKAGE.fullmatch(client) is not None and not client.endswith(".jar")


def properties_text(settings: Mapping[str, str], *, defaults: str = "") -> str:
    """A Java properties file. ``defaults`` is the text of ``spark-defaults.conf``, which spark-submit does
    not read beside a file of ours: it stands first, because what comes later wins."""
    lines = [f"{_escaped(key, of_key=True)}={_escaped(value)}\n" for key, value in settings.items()]
    return (defaults.rstrip("\\\n") + "\n" if defaults.strip() else "") + "".join(lines)


def _escaped(text: str, *, of_key: bool = False) -> str:
    found = []
    for at, char in enumerate(text):
        special = char in "\\#!" or (of_key and char in "=: ") or (at == 0 and char == " ")
        if special:
            found.append("\\" + char)
        elif " " <= char <= "~":
            found.append(char)
        else:
            units = char.encode("utf-16-be")
            found += [f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2)]
    return "".join(found)


def packages_of(defaults: str) -> str:
    """``spark.jars.packages`` of a ``spark-defaults.conf``: ``--packages`` would hide it."""
    found = re.findall(r"(?m)^\s*spark\.jars\.packages[ \t]*[=: \t][ \t]*(\S+)", defaults)
    return str(found[-1]) if found else ""


def check_conf(conf: Mapping[str, str], *, option: str = "--collector-conf") -> None:
    """Raises UsageError for settings that lakeplan decides itself, and for ``lakefs.debug.gc.no_delete``."""
    check_no_delete({f"{option} {key}": f"{key}={value}" for key, value in conf.items()})
    for key in conf:
        bare = key.removeprefix(HADOOP)
        if bare.startswith(_OURS) or key in _OURS_OF_SPARK:
            raise UsageError(f"{option} {key}: only lakeplan may set this", hint="Remove it.")


def check_no_delete(texts: Mapping[str, str]) -> None:
    """``texts`` are settings of any kind by where they stand. Raises UsageError where one names the old
    dry run."""
    for where, text in texts.items():
        if NO_DELETE in text:
            raise UsageError(
                f"{NO_DELETE} is set, but current collectors ignore it and would delete",
                where=where,
                hint="Remove it. For a dry run, use `lakeplan sweep mark`.",
            )


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
            "the official collector supports only S3 and Azure",
            where=namespace,
            hint="Use sweep.engine: builtin.",
        )
    location = parse_location(namespace)
    if isinstance(location, S3Location):
        return _s3_access(location, endpoint_url, region, own_provider=own_provider)
    if isinstance(location, AzureLocation):
        return _azure_access(location, environ)
    raise LakeplanError("the official collector supports only S3 and Azure", where=namespace)


def _s3_access(
    location: S3Location, endpoint_url: str | None, region: str | None, *, own_provider: bool
) -> S3Access:
    from botocore.exceptions import BotoCoreError

    from lakeplan.stores.faults import translate_boto_error
    from lakeplan.stores.s3_client import AWS_HOSTS, S3Client

    client: Any = S3Client(Access(endpoint_url, region)).get()
    effective = str(client.meta.endpoint_url)
    custom = not (urlsplit(effective).hostname or "").endswith(AWS_HOSTS)
    try:
        found, token, method = (None, None, "") if own_provider else _s3_keys(region)
    except BotoCoreError as error:
        raise translate_boto_error(error, location.url) from None
    if found and token and method not in OF_THE_MACHINE:
        raise CredentialsError(
            "the S3 credentials are temporary, and the official collector does not use their session token",
            where=location.url,
            hint="Use a key without a token, or run on a machine whose role has access.",
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
            "the official collector supports only <account>.blob.core.windows.net",
            where=location.url,
            hint="Use sweep.engine: builtin.",
        )
    if key := _account_key(location, environ):
        return AzureAccess(location.account, key)
    names = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
    tenant, client, secret = (environ.get(name, "").strip() for name in names)
    if tenant and client and secret:
        return AzureAccess(location.account, None, tenant, client, secret)
    raise CredentialsError(
        "the official collector needs an account key or a service principal, not a SAS or a managed identity",
        where=location.url,
        hint=f"Set AZURE_STORAGE_KEY, or {', '.join(names)}.",
    )


def _account_key(location: AzureLocation, environ: Mapping[str, str]) -> str:
    text = environ.get("AZURE_STORAGE_CONNECTION_STRING", "").strip()
    fields = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    named = fields.get("AccountName") or environ.get("AZURE_STORAGE_ACCOUNT", "").strip()
    if named and named != location.account:
        raise CredentialsError(
            "the Azure credentials belong to another account", where=location.url, hint="Nothing was sent."
        )
    return fields.get("AccountKey", "") or environ.get("AZURE_STORAGE_KEY", "").strip()
