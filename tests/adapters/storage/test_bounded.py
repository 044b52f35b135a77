"""Stores whose answers are too large, too slow or without an end."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakeplan import limits
from lakeplan.adapters.cache.folder import FolderCache
from lakeplan.adapters.state import open_state
from lakeplan.adapters.storage import open_namespace
from lakeplan.adapters.storage.azure_client import AzureClient
from lakeplan.adapters.storage.bounded import bounded_pages
from lakeplan.adapters.storage.s3_client import S3Client
from lakeplan.adapters.storage.urls import AzureLocation, parse_location
from lakeplan.errors import StorageError
from lakeplan.ports.storage import NamespaceReader
from tests.adapters.dripping import serving

MIB = limits.MIB
HEAD = b'HTTP/1.1 200 OK\r\nLast-Modified: Tue, 01 Jan 2030 00:00:00 GMT\r\nETag: "1"\r\n'
AZURE = HEAD + b"x-ms-blob-type: BlockBlob\r\nContent-Range: bytes 0-99/1125899906842624\r\n"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OBJECT_BYTES", MIB)
    monkeypatch.setattr(limits, "LISTING_BYTES", MIB)
    monkeypatch.setattr(limits, "RATE_GRACE_SECONDS", 0.3)
    monkeypatch.setattr(limits, "ANSWER_SECONDS", 2.0)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    monkeypatch.setattr("lakeplan.adapters.storage.azure_client.RETRIES", {"retry_total": 0})


def s3(url: str) -> NamespaceReader:
    return open_namespace("s3://bucket/x", endpoint_url=url, region="eu-west-1")


def azure(url: str) -> NamespaceReader:
    return open_namespace(f"{url}/account/container/x")


def endless(head: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: itertools.chain([head], itertools.repeat(bytes(65_536)))


def dripping(head: bytes) -> Callable[[], Iterator[bytes]]:
    def answer() -> Iterator[bytes]:
        yield head
        while True:
            time.sleep(0.02)
            yield b" "

    return answer


# A request that was given up leaves its socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("store", [s3, azure])
@pytest.mark.parametrize("use", [lambda r: r.read("k"), lambda r: list(r.list_objects())])
@pytest.mark.parametrize(
    "answer",
    [
        endless(AZURE + b"Content-Length: 1125899906842624\r\n\r\n"),
        endless(AZURE + b"Connection: close\r\n\r\n"),
        dripping(AZURE + b"Content-Length: 1000000\r\n\r\n"),
        dripping(b"HTTP/1.1 200 OK\r\nX-A: "),
    ],
    ids=["a pebibyte", "no length", "slow body", "slow head"],
)
def it_takes_no_more_and_waits_no_longer_than_the_limit(
    store: Callable[[str], NamespaceReader],
    use: Callable[[NamespaceReader], object],
    answer: Callable[[], Iterator[bytes]],
) -> None:
    started = time.monotonic()
    with serving(answer) as url, pytest.raises(StorageError):
        use(store(url))
    assert time.monotonic() - started < 15


def it_asks_for_the_size_of_an_object_of_any_size() -> None:
    head = AZURE + b"Content-Length: 5000000000000\r\nConnection: close\r\n\r\n"
    with serving(lambda: iter([head])) as url:
        found = S3Client(url, "eu-west-1").get().head_object(Bucket="bucket", Key="k")
        assert found["ContentLength"] == 5_000_000_000_000
        location = parse_location(f"{url}/account/container")
        assert isinstance(location, AzureLocation)
        blob = AzureClient(location).get().get_blob_client("k")
        assert blob.get_blob_properties().size == 5_000_000_000_000


def it_ends_a_listing_of_empty_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EMPTY_PAGES", 5)
    with pytest.raises(StorageError, match="does not end"):
        list(bounded_pages(itertools.repeat([]), bool, "s3://b"))
    pages = [[1], [], [], [2], *[[]] * 5]
    assert list(bounded_pages(iter(pages), bool, "s3://b")) == pages


class DescribeFolders:
    def it_reads_no_huge_object(self, tmp_path: Path) -> None:
        with open(tmp_path / "huge", "wb") as sparse:
            sparse.truncate(1 << 40)
        with pytest.raises(StorageError, match="larger than"):
            open_namespace(str(tmp_path)).read("huge")
        with pytest.raises(StorageError, match="larger than"):
            open_state(f"file://{tmp_path}").read("huge")
        assert FolderCache(str(tmp_path), 10).get("huge") is None

    def it_waits_for_no_pipe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(StorageError):
            open_state(f"file://{tmp_path}").read("pipe")
        assert FolderCache(str(tmp_path), 10).get("pipe") is None
