"""Credentials are looked for in everything that people or files may get to see, at every log level."""

from __future__ import annotations

import base64
import logging
import os
import pickle
import traceback
from collections.abc import Callable, Iterator

import pytest

from lakeplan.errors import LakeplanError
from lakeplan.lakefs.client import LakeFSServer
from lakeplan.lakefs.credentials import Credentials, Secret
from lakeplan.lakefs.transport import Clock
from lakeplan.lakefs.writers import LakeFSRulesWriter
from lakeplan.stores.open import open_namespace, open_state
from lakeplan.values.desired import ServerConfig
from lakeplan.values.rules import GcRules
from tests.lakefs.conftest import Answer, Scripted, Seen

KEY, SECRET = "AKIAREDACTION", "redaction-secret/+="
SIGNED = "X-Amz-Signature=5161deadbeef"
SECRETS = [
    KEY,
    SECRET,
    base64.b64encode(f"{KEY}:{SECRET}".encode()).decode(),
    "5161deadbeef",
    "session-token-of-redaction",
]


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def everything_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("urllib3", "urllib3.connectionpool", "botocore", "boto3", "azure"):
        logging.getLogger(name).setLevel(logging.DEBUG)


def assert_nothing_shows(caplog: pytest.LogCaptureFixture, *seen: object) -> None:
    texts = [caplog.text, *(repr(item) for item in seen), *(str(item) for item in seen)]
    for error in (item for item in seen if isinstance(item, LakeplanError)):
        copy = pickle.loads(pickle.dumps(error))
        assert str(copy) == str(error)
        texts += [error.message, error.where, error.hint, error.detail, repr(vars(copy))]
        texts += traceback.format_exception(error)
    for secret in SECRETS:
        for text in texts:
            assert secret not in text


def caught(call: Callable[[], object]) -> LakeplanError:
    with pytest.raises(LakeplanError) as found:
        call()
    return found.value


@pytest.mark.parametrize("status", [401, 403, 404, 410, 412, 418, 500])
def it_shows_nothing_of_a_server_that_refuses(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    credentials = Credentials(Secret(KEY), Secret(SECRET), "test")
    clock = Clock(sleep=lambda _: None)
    server = LakeFSServer.connect(scripted.config(), credentials, clock=clock)
    writer = LakeFSRulesWriter.connect(scripted.config(), credentials, clock=clock)
    scripted.script = [Answer(status, {"message": "no"})]
    errors = [
        caught(server.identify),
        caught(lambda: list(server.list_branches("repo"))),
        caught(lambda: writer.set_gc_rules("repo", GcRules(1))),
        caught(lambda: server.dump_refs("repo")),
    ]
    assert_nothing_shows(
        caplog, credentials, server, writer, server._transport, server._transport.connection, *errors
    )


def it_shows_nothing_of_presigned_urls(scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    repository = {"id": "r", "creation_date": 1, "default_branch": "m", "storage_namespace": "s3://b"}

    def answer(request: Seen) -> Answer:
        if request.path.endswith("/config"):
            return Answer(200, {"storage_config": {"pre_sign_support": True}})
        if "presign" in request.query:
            return Answer(302, b"", {"Location": f"{scripted.url}/bucket/key?{SIGNED}"})
        if "metadata" in request.path:
            return Answer(410, {"message": "No data"})
        return Answer(200, repository) if "repositories" in request.path else Answer(403, b"")

    scripted.script = [answer]
    credentials = Credentials(Secret(KEY), Secret(SECRET), "test")
    reader = LakeFSServer.connect(scripted.config(), credentials).metadata_reader("r")
    error = caught(lambda: reader.read_metadata("range", "a" * 64))
    assert any(SIGNED in f"{seen.query}".replace("': '", "=") for seen in scripted.seen)
    assert_nothing_shows(caplog, reader, error)


def it_shows_nothing_of_an_unreachable_server(caplog: pytest.LogCaptureFixture) -> None:
    nobody = ServerConfig("prod", "http://127.0.0.1:1")
    credentials = Credentials(Secret(KEY), Secret(SECRET))
    server = LakeFSServer.connect(nobody, credentials, clock=Clock(sleep=lambda _: None))
    assert_nothing_shows(caplog, caught(server.identify))


def it_shows_nothing_of_a_sas(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", f"sv=1&{SIGNED}")
    monkeypatch.setattr("lakeplan.stores.azure_client.RETRIES", {"retry_total": 0})
    reader = open_namespace("http://127.0.0.1:1/account/container")
    state = open_state("http://127.0.0.1:1/account/container")
    errors = [
        caught(lambda: reader.read("a")),
        caught(lambda: list(reader.list_objects())),
        caught(lambda: state.read("a")),
        caught(lambda: state.write("a", b"1", if_version=None)),
        caught(lambda: state.delete("a", if_version="1")),
    ]
    assert_nothing_shows(caplog, reader, state, *errors)


def it_shows_nothing_of_s3(
    s3_bucket: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-token-of-redaction")
    reader = open_namespace(f"s3://{s3_bucket}/x")
    state = open_state(f"s3://{s3_bucket}/y")
    caplog.clear()
    version = state.write("a", b"1", if_version=None)
    errors = [
        caught(lambda: reader.read("missing")),
        caught(lambda: state.write("a", b"2", if_version=None)),
        caught(lambda: open_namespace(f"s3://{s3_bucket}-no/x").read("a")),
    ]
    assert list(reader.list_objects()) == []
    assert_nothing_shows(caplog, reader, state, version, *errors)


def it_shows_nothing_of_azure(azure_container: str, caplog: pytest.LogCaptureFixture) -> None:
    key = os.environ["AZURE_STORAGE_KEY"]
    reader = open_namespace(f"{azure_container}/x")
    state = open_state(f"{azure_container}/y")
    state.write("a", b"1", if_version=None)
    errors = [
        caught(lambda: reader.read("missing")),
        caught(lambda: state.write("a", b"2", if_version=None)),
    ]
    assert_nothing_shows(caplog, reader, state, *errors)
    assert key not in caplog.text
    assert "SharedKey" not in caplog.text
