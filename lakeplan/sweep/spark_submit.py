"""Runs lakeFS's garbage collection job with ``spark-submit``: its settings and credentials.

Credentials are passed in a properties file of mode 0600, in a folder of mode 0700 that is removed when the
job ends. No secrets are on the command line or added to the job's environment. Secrets in the job's output
are replaced before it is shown or logged.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, urlsplit

from lakeplan.errors import CredentialsError, LakeplanError, UsageError
from lakeplan.stores.open import Access, AzureLocation, S3Location, parse_location
from lakeplan.values.desired import duration_text
from lakeplan.values.local import find_program, safe_environment
from lakeplan.values.urls import scheme_of

if TYPE_CHECKING:  # its module imports pyarrow
    from lakeplan.sweep.official import CollectorJob

MAIN_CLASS = "io.treeverse.gc.GarbageCollection"
NO_DELETE = "lakefs.debug.gc.no_delete"
NO_RESOURCE = "spark-internal"
"""Tells spark-submit that the class is in the packages."""
HADOOP = "spark.hadoop."
REDACTED = r"(?i)secret|password|token|access[._]?key|account[.]key|credential"
"""The settings that Spark hides on its page and in its event log. Spark's default shows ``access_key`` and
the keys of Azure."""
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
    """``endpoint_url`` is the tree's, without ``/api/v1``."""

    endpoint_url: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)


@dataclass(frozen=True)
class S3Access:
    """Access to S3. ``endpoint_url``: only for stores other than AWS, which are addressed path-style. Without
    keys the job finds credentials itself (a role)."""

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
    """All settings of one run. lakeplan's settings override ``conf``, the person's own. Raises UsageError for
    settings that ``check_conf`` refuses."""
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
    settings = {"fs.s3a.endpoint.region": access.region}
    if access.access_key and access.secret_key:
        settings |= {"fs.s3a.access.key": access.access_key, "fs.s3a.secret.key": access.secret_key}
    if access.endpoint_url:
        settings |= {
            "fs.s3a.endpoint": access.endpoint_url,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": str(scheme_of(access.endpoint_url) != "http").lower(),
        }
    return settings


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
    """The command line. ``client``: Maven coordinates, or the path or URL of a jar. ``packages``: more
    coordinates, separated by commas. Only S3 needs the region."""
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
    """Whether ``client`` is Maven coordinates (``group:artifact:version``) and not a jar."""
    return _PACKAGE.fullmatch(client) is not None and not client.endswith(".jar")


def properties_text(settings: Mapping[str, str], *, defaults: str = "") -> str:
    """The text of a Java properties file. It begins with ``defaults``, the text of ``spark-defaults.conf``,
    which spark-submit does not read when it gets a properties file. Later lines override earlier ones."""
    lines = [f"{_escaped(key, of_key=True)}={_escaped(value)}\n" for key, value in settings.items()]
    return (defaults.rstrip("\\\n") + "\n" if defaults.strip() else "") + "".join(lines)


def _escaped(text: str, *, of_key: bool = False) -> str:
    parts = []
    for at, char in enumerate(text):
        special = char in "\\#!" or (of_key and char in "=: ") or (at == 0 and char == " ")
        if special:
            parts.append("\\" + char)
        elif " " <= char <= "~":
            parts.append(char)
        else:
            units = char.encode("utf-16-be")
            parts += [f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2)]
    return "".join(parts)


def packages_of(defaults: str) -> str:
    """``spark.jars.packages`` in the text of ``spark-defaults.conf``, which ``--packages`` would override."""
    values = re.findall(r"(?m)^\s*spark\.jars\.packages[ \t]*[=: \t][ \t]*(\S+)", defaults)
    return str(values[-1]) if values else ""


def check_conf(conf: Mapping[str, str], *, option: str = "--collector-conf") -> None:
    """Raises UsageError for settings that only lakeplan may set, and for ``lakefs.debug.gc.no_delete``."""
    check_no_delete({f"{option} {key}": f"{key}={value}" for key, value in conf.items()})
    for key in conf:
        bare = key.removeprefix(HADOOP)
        if bare.startswith(_OURS) or key in _OURS_OF_SPARK:
            raise UsageError(f"{option} {key}: only lakeplan may set this property", hint="Remove it.")


def check_no_delete(texts: Mapping[str, str]) -> None:
    """Raises UsageError if a text has the setting of the old dry run. ``texts``: settings by location."""
    for where, text in texts.items():
        if NO_DELETE in text:
            raise UsageError(
                f"{NO_DELETE} is set, but current collectors ignore it and would delete the objects anyway",
                where=where,
                hint="Remove it. For a dry run, use `lakeplan sweep mark`.",
            )


OF_THE_MACHINE = ("iam-role", "container-role")
"""boto3's names for credentials that the job finds on its machines itself, and that renew themselves."""
DEFAULT_REGION = "us-east-1"


def storage_access(
    namespace: str,
    *,
    endpoint_url: str | None,
    region: str | None,
    environ: Mapping[str, str],
    own_provider: bool = False,
) -> StorageAccess:
    """The job's access to a namespace. With ``own_provider``, a person's settings say where the job finds S3
    credentials, so it gets none from lakeplan. Raises LakeplanError for storage that the collector does not
    support, CredentialsError for credentials that it cannot use, and StorageError when reading them fails."""
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
        keys_found, token, method = (None, None, "") if own_provider else _s3_keys(region)
    except BotoCoreError as error:
        raise translate_boto_error(error, location.url) from None
    if keys_found and token and method not in OF_THE_MACHINE:
        raise CredentialsError(
            "the S3 credentials are temporary, and the official collector does not use their session token",
            where=location.url,
            hint="Use a key without a token, or run on a machine whose role has access.",
        )
    keys = (None, None) if keys_found is None or method in OF_THE_MACHINE else keys_found
    known = region or client.meta.region_name
    return S3Access(
        region=known if known and known != "aws-global" else DEFAULT_REGION,
        endpoint_url=effective if custom else None,
        access_key=keys[0],
        secret_key=keys[1],
    )


def _s3_keys(region: str | None) -> tuple[tuple[str, str] | None, str | None, str]:
    """The key and secret, the session token, and the method by which boto3 found them."""
    import boto3

    credentials = boto3.session.Session(region_name=region).get_credentials()
    if credentials is None:
        return None, None, ""
    frozen = credentials.get_frozen_credentials()
    return (frozen.access_key, frozen.secret_key), frozen.token, str(credentials.method)


def _azure_access(location: AzureLocation, environ: Mapping[str, str]) -> AzureAccess:
    """The account key in the environment, or the service principal in azure-identity's variables."""
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
            f"the Azure credentials belong to account {named}",
            where=location.url,
            hint=f"Set credentials for account {location.account}. Nothing was sent.",
        )
    return fields.get("AccountKey", "") or environ.get("AZURE_STORAGE_KEY", "").strip()


# ---- running it
POLL_SECONDS = 0.5
KEEP_SECONDS = 300.0
"""The time between two calls of ``keep``. A sweep's lease lasts half an hour."""
REPORT_SECONDS = 30.0
GRACE_SECONDS = 30.0
LINES = 500
SHOWN = 12
OWN_VARIABLES = ("LAKEPLAN_", "LAKECTL_")
AWS_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Spark lets each of these override the job's S3 settings."""
DEFAULTS = "spark-defaults.conf"
PACKAGES = "spark.jars.packages"
FAULT = re.compile(r"\bERROR\b|\w(Exception|Error)\b|No such file|not found")
SECRET_KEYS = re.compile(REDACTED)
_log = logging.getLogger("lakeplan.collector")


@dataclass(frozen=True)
class SubmitOptions:
    """``command``: the name or path of spark-submit. ``client``: the Maven coordinates of the job, or the
    path or URL of its jar. ``conf``: a person's own Spark settings."""

    command: str
    client: str
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SparkSubmit:
    """``lakeplan.sweep.official.Collector``. Its repr shows no credentials."""

    _options: SubmitOptions = field(repr=False)
    _lakefs: LakefsAccess
    _storage: StorageAccess
    _environ: Mapping[str, str] = field(repr=False)
    _report_line: Callable[[str], None]

    def check(self) -> None:
        """Raises UsageError without spark-submit, for a setting that only lakeplan may set, and for
        ``no_delete`` in a setting, an environment variable, ``spark-defaults.conf`` or an XML file of
        Hadoop."""
        self._command()
        check_conf(self._options.conf)
        check_no_delete({f"the variable {name}": text for name, text in self._environ.items()})
        for path in self._settings_files():
            check_no_delete({str(path): _text(path)})

    def run(self, job: CollectorJob, *, keep: Callable[[], None], stop: Callable[[], bool]) -> None:
        self.check()
        defaults = "".join(_text(path) for path in self._settings_files() if path.name == DEFAULTS)
        packages = ",".join(
            text for text in (self._options.conf.get(PACKAGES, ""), packages_of(defaults)) if text
        )
        settings = properties(job, self._lakefs, self._storage, self._options.conf)
        with tempfile.TemporaryDirectory(prefix="lakeplan-collector-") as folder:
            file = Path(folder) / "spark.properties"
            _write_private(file, properties_text(settings, defaults=defaults))
            command = arguments(
                self._command(),
                self._client(),
                properties_file=str(file),
                repository=job.repository,
                storage=self._storage,
                packages=packages,
            )
            self._run(command, folder, _Watch(job, self._report_line, keep, stop))

    def _run(self, command: list[str], folder: str, watch: _Watch) -> None:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=self._job_environ(),
                start_new_session=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise LakeplanError(
                f"the program cannot be started: {error.strerror}", where=command[0]
            ) from None
        lines: deque[str] = deque(maxlen=LINES)
        reader = threading.Thread(target=self._listen, args=(process.stdout, lines), daemon=True)
        reader.start()
        try:
            code = watch.wait(process, lines)
        finally:
            _end(process)
            reader.join(GRACE_SECONDS)
        if code is None:
            raise LakeplanError("the official collector was stopped by a signal", where=command[0])
        if code:
            raise LakeplanError(
                f"the official collector exited with code {code}",
                where=command[0],
                hint="Read its output:\n" + "\n".join(f"  {line}" for line in _fault_lines(list(lines))),
            )

    def _listen(self, output: IO[str] | None, lines: deque[str]) -> None:
        if output is None:
            return
        secrets = self._secrets()
        with output:
            for line in output:
                shown = redact(line.rstrip(), secrets)[:500]
                _log.debug("%s", shown)
                if shown:
                    lines.append(shown)

    # ---- what it is started with
    def _command(self) -> str:
        program = find_program(self._options.command, self._environ)
        if program is None:
            raise UsageError(
                f"{self._options.command}, which runs the official collector, was not found",
                hint="Install Spark, or set the path of the program with --spark-submit PATH.",
            )
        return program

    def _client(self) -> str:
        """The client, with an absolute path for a local jar, because the job runs in another folder."""
        client = self._options.client
        if is_package(client) or "://" in client:
            return client
        if not Path(client).is_file():
            raise UsageError(
                "the jar does not exist",
                where=client,
                hint="Set --collector to a jar or to Maven coordinates (group:artifact:version).",
            )
        return os.path.abspath(client)

    def _job_environ(self) -> dict[str, str]:
        dropped = OWN_VARIABLES if self._keeps_aws() else (*OWN_VARIABLES, *AWS_KEYS)
        kept = {name: text for name, text in self._environ.items() if not name.startswith(dropped)}
        # pip's spark-submit finds Spark with the first python3 on PATH. The one beside it has pyspark.
        python_folder = os.path.dirname(os.path.abspath(self._command()))
        kept["PATH"] = os.pathsep.join(filter(None, (python_folder, kept.get("PATH"))))
        return safe_environment(kept)

    def _keeps_aws(self) -> bool:
        """Whether the job finds its S3 credentials itself, in these variables or elsewhere."""
        return not isinstance(self._storage, AzureAccess) and self._storage.access_key is None

    def _settings_files(self) -> Iterator[Path]:
        """The existing files from which Spark and Hadoop read settings."""
        environ = self._environ
        home = environ.get("SPARK_HOME") or os.path.dirname(
            os.path.dirname(os.path.realpath(self._command()))
        )
        conf = environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf")
        folders = dict.fromkeys(
            folder
            for folder in (conf, environ.get("HADOOP_CONF_DIR"), environ.get("YARN_CONF_DIR"))
            if folder
        )
        for folder in folders:
            candidates = [Path(folder) / DEFAULTS] if folder == conf else []
            candidates += sorted(Path(folder).glob("*.xml"))
            yield from (path for path in candidates if path.is_file())

    def _secrets(self) -> tuple[str, ...]:
        known = [self._lakefs.access_key, self._lakefs.secret_key]
        if isinstance(self._storage, AzureAccess):
            known += [self._storage.account_key or "", self._storage.client_secret]
        else:
            known += [self._storage.access_key or "", self._storage.secret_key or ""]
        known += [value for key, value in self._options.conf.items() if SECRET_KEYS.search(key)]
        return tuple(secret for secret in known if secret)


def _fault_lines(lines: Sequence[str]) -> Sequence[str]:
    """The lines that name a fault, because Spark prints more after it, or else the last lines."""
    return [line for line in lines if FAULT.search(line)][:SHOWN] or lines[-SHOWN:]


def redact(line: str, secrets: tuple[str, ...]) -> str:
    """The line with ``***`` in place of every secret, also in the form that it has in URLs."""
    forms = {form for one in secrets for form in (one, quote(one), quote(one, safe=""), quote_plus(one))}
    for form in sorted(forms, key=len, reverse=True):
        line = line.replace(form, "***")
    return line


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


@dataclass(frozen=True)
class _Watch:
    """Waits for one run of the job. ``report_line`` gets a line when the run begins, every ``REPORT_SECONDS``
    with the job's last output, and when the run ends."""

    job: CollectorJob
    report_line: Callable[[str], None]
    keep: Callable[[], None]
    stop: Callable[[], bool]

    def wait(self, process: subprocess.Popen[str], lines: Sequence[str]) -> int | None:
        """The exit code, or None if a stop was requested first."""
        what = "is deleting objects" if self.job.mark_id else "is marking objects"
        self.report_line(f"{self.job.repository}: the official collector {what}; this can take hours")
        began = kept = reported = time.monotonic()
        while True:
            try:
                code = process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                code = None
            now = time.monotonic()
            since = f"{self.job.repository}: the official collector {what}, {duration_text(int(now - began))}"
            if code is not None:
                self.report_line(f"{since}: exited with code {code}")
                return code
            if self.stop():
                return None
            if now - reported >= REPORT_SECONDS:
                self.report_line(f"{since}: {lines[-1] if lines else 'no output yet'}")
                reported = now
            if now - kept >= KEEP_SECONDS:
                self.keep()
                kept = now


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the job with all processes that it started on this machine, so that nothing continues to
    delete."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, kind)
            process.wait(GRACE_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise LakeplanError(
            f"the file cannot be read: {error.strerror}",
            where=str(path),
            hint="Make it readable, because the official collector reads it too.",
        ) from None
