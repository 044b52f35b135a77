"""Servers that tests start themselves, once per session: moto (S3), Azurite (Azure blob) and
fake-gcs-server (Google Cloud Storage)."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conforming_gcs import ConformingGcs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# As it is before the test session puts one of its own there: what is installed stays for the next session.
USERS_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
AZURITE = "azurite@3.37.0"
FAKE_GCS_SERVER = "github.com/fsouza/fake-gcs-server@v1.47.4"
FAKE_GCS_VARIABLE = "LAKEPLAN_FAKE_GCS_SERVER"
# The account that Azurite has by default; its key is public, and good for nothing else.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.fixture
def no_credentials_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_", "LAKEPLAN_S", "LAKECTL_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@contextmanager
def s3_server() -> Iterator[str]:
    """moto's endpoint."""
    from moto.server import ThreadedMotoServer  # a second to import: only tests that need it pay

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """moto's endpoint. botocore looks for its descriptions of AWS and reads them once a test session, not
    once a client: that is a third of what a short test of S3 takes. lakeplan has its own loader for that."""
    from botocore.loaders import JSONFileLoader, Loader, create_loader

    loader, known = JSONFileLoader(), functools.cache(lambda path: {})

    def remember(path: str | None) -> Loader:
        made = create_loader(path)
        made._cache = known(path)
        return made

    with s3_server() as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", staticmethod(functools.cache(loader.load_file)))
        patch.setattr("botocore.session.create_loader", remember)
        yield endpoint


@pytest.fixture
def s3_bucket(s3_endpoint: str, no_credentials_of_this_machine: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket, with credentials and endpoint in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_endpoint)
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    s3_client().create_bucket(Bucket=name)
    return name


def s3_client() -> Any:
    """A client for what a test that has ``s3_bucket`` prepares and looks up. It is made once, which takes as
    long as a short test."""
    return _s3_client(os.environ["AWS_ENDPOINT_URL_S3"])


@functools.cache
def _s3_client(endpoint: str) -> Any:
    import boto3

    return boto3.session.Session().client("s3", endpoint_url=endpoint)


def put_at_once(bucket: str, objects: Iterable[tuple[str, bytes, str]]) -> None:
    """Objects with their storage classes, put into moto: a thousand requests would take ten seconds."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for key, content, storage_class in objects:
        backend.put_object(bucket, key, content, storage=storage_class)


@contextmanager
def azurite_server() -> Iterator[str]:
    """The URL of Azurite's account, or a skip with the reason."""
    program = _azurite_program()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent", "--inMemoryPersistence"]
        # The library may be newer than the server knows.
        options += ["--skipApiVersionCheck", "--disableTelemetry"]
        with subprocess.Popen(
            ["node", str(program), *options],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                _wait_for(port, process)
                yield f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}"
            finally:
                process.terminate()


@pytest.fixture(scope="session")
def azurite() -> Iterator[str]:
    """The URL of Azurite's account, or a skip with the reason."""
    with azurite_server() as account:
        yield account


@pytest.fixture
def azure_container(
    azurite: str, no_credentials_of_this_machine: None, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The URL of a new container, with credentials in the environment."""
    from azure.storage.blob import ContainerClient

    monkeypatch.setenv("AZURE_STORAGE_KEY", AZURITE_KEY)
    name = f"container-{uuid.uuid4().hex[:12]}"
    with ContainerClient(azurite, name, credential=AZURITE_KEY) as container:
        container.create_container()
    return f"{azurite}/{name}"


@contextmanager
def gcs_server() -> Iterator[str]:
    """The URL of fake-gcs-server, or a skip with the reason. The program is on PATH, or where
    ``LAKEPLAN_FAKE_GCS_SERVER`` says."""
    program = os.environ.get(FAKE_GCS_VARIABLE) or shutil.which("fake-gcs-server")
    if program is None:
        pytest.skip(f"fake-gcs-server is not installed: go install {FAKE_GCS_SERVER}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    options = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    options += ["-public-host", f"127.0.0.1:{port}", "-external-url", url]
    with subprocess.Popen(
        [program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait_for(port, process)
            yield url
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def gcs_emulator() -> Iterator[str]:
    with gcs_server() as url:
        yield url


@pytest.fixture(scope="session")
def gcs(gcs_emulator: str) -> Iterator[ConformingGcs]:
    with ConformingGcs(gcs_emulator) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def gcs_endpoint(gcs: ConformingGcs) -> str:
    return gcs.url


@pytest.fixture
def gcs_bucket(
    gcs_endpoint: str, no_credentials_of_this_machine: None, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A new bucket, with the endpoint in the environment."""
    import requests

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_endpoint)
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    requests.post(f"{gcs_endpoint}/storage/v1/b", json={"name": name}, timeout=10).raise_for_status()
    return name


def bucket_url(request: pytest.FixtureRequest, kind: str) -> str:
    """The URL of a new bucket or container in that kind of store."""
    if kind == "azure":
        return str(request.getfixturevalue("azure_container"))
    scheme, fixture = {"s3": ("s3", "s3_bucket"), "gcs": ("gs", "gcs_bucket")}[kind]
    return f"{scheme}://{request.getfixturevalue(fixture)}"


def give_workers_the_environment(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers see the credentials of this test's environment. The session is older than it; workers
    of a user inherit theirs, or get them as spark.executorEnv, which ends up in the same place."""
    for name, value in os.environ.items():
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_")):
            monkeypatch.setitem(session.sparkContext.environment, name, value)


def _azurite_program() -> Path:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("Azurite needs node and npm, which are not installed")
    cache = USERS_CACHE / "lakeplan-tests" / AZURITE
    program = cache / "node_modules/azurite/dist/src/blob/main.js"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test processes install it once
        if not (cache / ".installed").exists():
            done = subprocess.run(
                [npm, "install", "--no-audit", "--no-fund", "--prefix", str(cache), AZURITE],
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            if done.returncode != 0:
                reason = done.stderr.strip().splitlines()[0] if done.stderr.strip() else "no reason given"
                pytest.skip(f"npm could not install {AZURITE}: {reason}")
            (cache / ".installed").touch()
    return program


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"the server ended at once, with status {process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail("the server did not answer within a minute")
