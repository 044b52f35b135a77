from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
import requests

from lakeplan.errors import DataGone, UnexpectedAnswer
from lakeplan.lakefs.answers import LakeFSMetadata, _complete
from lakeplan.lakefs.client import LakeFSServer
from lakeplan.lakefs.credentials import Credentials
from lakeplan.lakefs.transport import of_repository
from tests.lakefs.conftest import Answer, FakeClock, Scripted, Seen

REPOSITORY = Answer(
    200, {"id": "repo", "creation_date": 1, "default_branch": "main", "storage_namespace": "s3://b/r"}
)
ID = "a" * 64


def config(*, presign: bool) -> Answer:
    return Answer(
        200, {"storage_config": {"blockstore_id": "", "pre_sign_support": presign}, "storage_config_list": []}
    )


def open_reader(
    scripted: Scripted,
    credentials: Credentials,
    fake_clock: FakeClock,
    *,
    presign: bool,
    storage: Sequence[str] = (),
) -> LakeFSMetadata:
    scripted.script = [REPOSITORY, config(presign=presign)]
    server = LakeFSServer.connect(scripted.config(), credentials, clock=fake_clock.clock(), storage=storage)
    reader = server.metadata_reader("repo")
    scripted.seen.clear()
    return reader


def signed(store: Scripted) -> Answer:
    return Answer(302, b"", {"Location": f"{store.url}/bucket/x?X-Amz-Signature=SIGNATURE"})


def it_streams_when_nothing_is_presigned(
    scripted: Scripted, credentials: Credentials, fake_clock: FakeClock
) -> None:
    reader = open_reader(scripted, credentials, fake_clock, presign=False)
    scripted.script = [Answer(200, b"\0bytes")]
    assert reader.read_metadata("meta_range", ID) == b"\0bytes"
    (seen,) = scripted.seen
    assert seen.path == f"/api/v1/repositories/repo/metadata/object/meta_range/{ID}"
    assert seen.query == {}


def it_follows_a_presigned_url_without_credentials(
    scripted: Scripted,
    elsewhere: Scripted,
    credentials: Credentials,
    fake_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: object,
) -> None:
    netrc = f"{tmp_path}/netrc"
    with open(netrc, "w") as file:  # requests would send what stands here for any host
        file.write("machine 127.0.0.1 login SOMEBODY password SOMETHING\n")
    monkeypatch.setenv("NETRC", netrc)
    reader = open_reader(scripted, credentials, fake_clock, presign=True, storage=[elsewhere.url])
    scripted.script = [signed(elsewhere)]
    elsewhere.script = [Answer(200, b"stored")]
    assert reader.read_metadata("range", ID) == b"stored"
    assert scripted.seen[0].query == {"presign": "true"}
    assert scripted.seen[0].headers["Authorization"].startswith("Basic ")
    (seen,) = elsewhere.seen
    assert seen.query == {"X-Amz-Signature": "SIGNATURE"}
    assert "Authorization" not in seen.headers
    assert "Cookie" not in seen.headers


@pytest.mark.parametrize("status", [301, 302, 403, 404, 500])
def it_streams_when_a_presigned_url_fails(
    scripted: Scripted, elsewhere: Scripted, credentials: Credentials, fake_clock: FakeClock, status: int
) -> None:
    reader = open_reader(scripted, credentials, fake_clock, presign=True, storage=[elsewhere.url])
    elsewhere.script = [Answer(status, b"<Error/>", {"Location": scripted.url})]
    scripted.script = [signed(elsewhere), Answer(200, b"streamed")]
    assert reader.read_metadata("range", ID) == b"streamed"
    assert len(elsewhere.seen) == 1


def it_says_that_data_is_gone(
    scripted: Scripted, elsewhere: Scripted, credentials: Credentials, fake_clock: FakeClock
) -> None:
    reader = open_reader(scripted, credentials, fake_clock, presign=True, storage=[elsewhere.url])
    elsewhere.script = [Answer(404, b"<Error><Code>NoSuchKey</Code></Error>")]
    scripted.script = [signed(elsewhere), Answer(410, {"message": "No data"})]
    with pytest.raises(DataGone, match="No data") as caught:
        reader.read_metadata("range", ID)
    assert "SIGNATURE" not in f"{caught.value} {caught.value.detail}"


def it_stops_asking_for_urls_that_cannot_be_reached(
    scripted: Scripted, elsewhere: Scripted, credentials: Credentials, fake_clock: FakeClock
) -> None:
    reader = open_reader(scripted, credentials, fake_clock, presign=True, storage=[elsewhere.url])
    elsewhere.stop()

    def answer(request: Seen) -> Answer:
        return signed(elsewhere) if request.query else Answer(200, b"streamed")

    scripted.script = [answer]
    assert [reader.read_metadata("range", ID) for _ in range(3)] == [b"streamed"] * 3
    assert [bool(seen.query) for seen in scripted.seen] == [True, False, False, False]


@pytest.mark.parametrize(
    "location",
    [
        "{elsewhere}/bucket/x",
        "//127.0.0.1:1/x",
        "http://169.254.169.254/latest/meta-data/iam/security-credentials/",
        "http://metadata.google.internal/computeMetadata/v1/",
        "{server}@{host}/x",
        "{elsewhere}\\.s3.amazonaws.com/b/x",
    ],
)
def it_sends_nothing_to_a_host_that_is_not_the_storage(
    scripted: Scripted,
    elsewhere: Scripted,
    credentials: Credentials,
    fake_clock: FakeClock,
    location: str,
) -> None:
    reader = open_reader(scripted, credentials, fake_clock, presign=True)
    target = location.format(server=scripted.url, elsewhere=elsewhere.url, host=elsewhere.url[7:])
    scripted.script = [Answer(302, b"", {"Location": target}), Answer(200, b"streamed")]
    elsewhere.script = [Answer(200, b"stolen")]
    assert reader.read_metadata("range", ID) == b"streamed"
    assert elsewhere.seen == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "//[", "http://[::1", "https://a]b/"])
def it_streams_when_the_redirect_leads_to_no_url(
    scripted: Scripted, credentials: Credentials, fake_clock: FakeClock, location: str
) -> None:
    reader = open_reader(scripted, credentials, fake_clock, presign=True)
    scripted.script = [Answer(302, b"", {"Location": location}), Answer(200, b"streamed")]
    assert reader.read_metadata("range", ID) == b"streamed"


def it_tries_again_when_a_file_breaks_off(
    scripted: Scripted, elsewhere: Scripted, credentials: Credentials, fake_clock: FakeClock
) -> None:
    reader = open_reader(scripted, credentials, fake_clock, presign=True, storage=[elsewhere.url])
    elsewhere.script = [Answer(200, b"half", cut_short_by=4)]
    scripted.script = [signed(elsewhere), Answer(200, b"who", cut_short_by=2), Answer(200, b"whole")]
    assert reader.read_metadata("range", ID) == b"whole"


@pytest.mark.parametrize(
    ("announced", "whole"), [("5", True), ("05", True), ("6", False), ("9" * 5_000, False), ("", True)]
)
def it_compares_a_file_with_the_length_that_was_announced(announced: str, whole: bool) -> None:
    response = requests.Response()
    response._content = b"12345"
    response.headers["Content-Length"] = announced
    assert _complete(response) is whole


def it_takes_only_200_for_a_file(scripted: Scripted, credentials: Credentials, fake_clock: FakeClock) -> None:
    reader = open_reader(scripted, credentials, fake_clock, presign=False)
    scripted.script = [Answer(206, b"part")]
    with pytest.raises(UnexpectedAnswer, match="status 206"):
        reader.read_metadata("range", ID)


def it_goes_by_the_storage_of_the_repository(
    scripted: Scripted, credentials: Credentials, fake_clock: FakeClock
) -> None:
    stores = [
        {"blockstore_id": "eu", "pre_sign_support": True},
        {"blockstore_id": "us", "pre_sign_support": False},
    ]
    server = LakeFSServer.connect(scripted.config(), credentials, clock=fake_clock.clock())
    answers = {
        "/api/v1/config": Answer(200, {"storage_config": stores[1], "storage_config_list": stores}),
        "/api/v1/repositories/eu": Answer(200, {**REPOSITORY.body, "id": "eu", "storage_id": "eu"}),  # type: ignore[dict-item]
        "/api/v1/repositories/us": Answer(200, {**REPOSITORY.body, "id": "us", "storage_id": "us"}),  # type: ignore[dict-item]
    }
    scripted.script = [lambda request: answers.get(request.path, Answer(200, b"x"))]
    for name in ("eu", "us"):
        server.metadata_reader(name).read_metadata("range", ID)
    asked = [seen for seen in scripted.seen if "metadata" in seen.path]
    assert [seen.query.get("presign") for seen in asked] == ["true", None]
    assert [seen.path for seen in scripted.seen].count("/api/v1/config") == 1


def it_works_after_pickling_and_shows_nothing(scripted: Scripted, credentials: Credentials) -> None:
    scripted.script = [REPOSITORY, config(presign=False), Answer(200, b"1")]
    reader = LakeFSServer.connect(scripted.config(), credentials).metadata_reader("repo")
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.read_metadata("range", ID) == b"1"
    assert "the-secret-itself" not in f"{reader!r} {reader} {copy!r}"


def it_cannot_write(scripted: Scripted, credentials: Credentials, fake_clock: FakeClock) -> None:
    reader = open_reader(scripted, credentials, fake_clock, presign=False)
    for method in ("PUT", "POST", "DELETE"):
        with pytest.raises(AssertionError, match="may not"):
            reader._transport.request(of_repository(method, "repo", "refs", "dump", operation="x"))
