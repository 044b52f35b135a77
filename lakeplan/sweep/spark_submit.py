"""Running lakeFS's garbage collection job with ``spark-submit``.

Credentials go by a properties file: mode 0600, in a folder of mode 0700 that is removed when the job ends,
however it ends. Nothing secret is on the command line, nothing is added to the job's environment, and what
the job prints is shown and logged only after every secret in it was replaced.
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
from typing import IO
from urllib.parse import quote, quote_plus

from lakeplan.errors import LakeplanError, UsageError
from lakeplan.sweep.collector import (
    REDACTED,
    AzureAccess,
    CollectorJob,
    LakefsAccess,
    StorageAccess,
    arguments,
    check_conf,
    check_no_delete,
    is_package,
    packages_of,
    properties,
    properties_text,
)
from lakeplan.values.local import find_program, safe_environment
from lakeplan.values.settings import duration_text

POLL_SECONDS = 0.5
KEEP_SECONDS = 300.0
"""Between two calls of ``keep``: a sweep's lease lasts half an hour."""
TELL_SECONDS = 30.0
GRACE_SECONDS = 30.0
LINES = 500
SHOWN = 12
OWN_VARIABLES = ("LAKEPLAN_", "LAKECTL_")
AWS_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Spark copies these over the job's own S3 settings, one by one."""
DEFAULTS = "spark-defaults.conf"
PACKAGES = "spark.jars.packages"
FAULT = re.compile(r"\bERROR\b|\w(Exception|Error)\b|No such file|not found")
SECRET_KEYS = re.compile(REDACTED)
_log = logging.getLogger("lakeplan.collector")


@dataclass(frozen=True)
class SubmitOptions:
    """``command``: spark-submit, by name or path. ``client``: Maven coordinates of the job, or the path or
    URL of its jar. ``conf``: a person's own Spark settings."""

    command: str
    client: str
    conf: Mapping[str, str] = field(default_factory=dict)


class SparkSubmit:
    """``lakeplan.sweep.collector.Collector``. Its repr shows no credentials."""

    def __init__(
        self,
        options: SubmitOptions,
        lakefs: LakefsAccess,
        storage: StorageAccess,
        environ: Mapping[str, str],
        tell: Callable[[str], None],
    ) -> None:
        self._options = options
        self._lakefs = lakefs
        self._storage = storage
        self._environ = environ
        self._tell = tell

    def check(self) -> None:
        """Raises UsageError: no spark-submit, a setting that lakeplan decides, or ``no_delete`` in any
        settings: ours, the environment's, ``spark-defaults.conf``, Hadoop's XML files."""
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
            self._run(command, folder, _Watch(job, self._tell, keep, stop))

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
            raise LakeplanError(f"spark-submit does not start: {error.strerror}", where=command[0]) from None
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
                f"the official collector ended with exit code {code}",
                where=command[0],
                hint="it said:\n" + "\n".join(f"  {line}" for line in _telling(list(lines))),
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
        found = find_program(self._options.command, self._environ)
        if found is None:
            raise UsageError(
                f"{self._options.command}, which runs the official collector, was not found",
                hint="Install Spark, or name the program with --spark-submit PATH.",
            )
        return found

    def _client(self) -> str:
        """A jar of this machine by its whole path: the job does not run in this folder."""
        client = self._options.client
        if is_package(client) or "://" in client:
            return client
        if not Path(client).is_file():
            raise UsageError(
                "the jar does not exist",
                where=client,
                hint="Give --collector a jar, or Maven coordinates (group:artifact:version).",
            )
        return os.path.abspath(client)

    def _job_environ(self) -> dict[str, str]:
        dropped = OWN_VARIABLES if self._keeps_aws() else (*OWN_VARIABLES, *AWS_KEYS)
        kept = {name: text for name, text in self._environ.items() if not name.startswith(dropped)}
        # pip's spark-submit finds Spark by the first python3 on PATH: the one beside it knows pyspark
        beside = os.path.dirname(os.path.abspath(self._command()))
        kept["PATH"] = os.pathsep.join(filter(None, (beside, kept.get("PATH"))))
        return safe_environment(kept)

    def _keeps_aws(self) -> bool:
        """Whether the job finds S3 credentials itself."""
        return not isinstance(self._storage, AzureAccess) and self._storage.access_key is None

    def _settings_files(self) -> Iterator[Path]:
        """Files in which Spark and Hadoop find settings, where they are."""
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


def _telling(lines: Sequence[str]) -> Sequence[str]:
    """The lines that name a fault: after it Spark prints how it stops. Without one, the last lines."""
    return [line for line in lines if FAULT.search(line)][:SHOWN] or lines[-SHOWN:]


def redact(line: str, secrets: tuple[str, ...]) -> str:
    """The line with ``***`` for every secret, as it is and as URLs write it."""
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
    """Waits for one run of the job. ``tell`` gets a line when it begins, every ``TELL_SECONDS``, and when it
    ends; the line ends with what the job printed last."""

    job: CollectorJob
    tell: Callable[[str], None]
    keep: Callable[[], None]
    stop: Callable[[], bool]

    def wait(self, process: subprocess.Popen[str], lines: Sequence[str]) -> int | None:
        """The exit code; None when a stop was requested first."""
        what = "deletes" if self.job.mark_id else "marks"
        self.tell(f"{self.job.repository}: the official collector {what}; it can take hours")
        began = kept = told = time.monotonic()
        while True:
            try:
                code = process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                code = None
            now = time.monotonic()
            since = f"{self.job.repository}: the official collector {what}, {duration_text(int(now - began))}"
            if code is not None:
                self.tell(f"{since}: ended with exit code {code}")
                return code
            if self.stop():
                return None
            if now - told >= TELL_SECONDS:
                self.tell(f"{since}: {lines[-1] if lines else 'no output yet'}")
                told = now
            if now - kept >= KEEP_SECONDS:
                self.keep()
                kept = now


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the job with all it started: on this machine nothing of it goes on deleting."""
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
            f"cannot be read: {error.strerror}",
            where=str(path),
            hint="Make it readable. The official collector reads it too.",
        ) from None
