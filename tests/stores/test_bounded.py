"""Stores whose answers are too large, too slow or without an end."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakeplan import limits
from lakeplan.errors import StorageError
from lakeplan.simulation.cache import FolderCache
from lakeplan.stores.azure import AzureStore
from lakeplan.stores.azure_client import AzureClient
from lakeplan.stores.bounded import bounded_pages, bounded_session
from lakeplan.stores.open import (
    Access,
    AzureLocation,
    NamespaceReader,
    S3Location,
    open_namespace,
    open_state,
    open_sweep_store,
    parse_location,
)
from lakeplan.stores.s3 import S3Store
from lakeplan.stores.s3_client import S3Client
from lakeplan.stores.shared import THREADS
from lakeplan.values.sweep import Deletion, Versions
from tests.cpu import PATIENCE
from tests.dripping import serving

MIB = limits.MIB
HEAD = b'HTTP/1.1 200 OK\r\nLast-Modified: Tue, 01 Jan 2030 00:00:00 GMT\r\nETag: "1"\r\n'
AZURE = HEAD + b"x-ms-blob-type: BlockBlob\r\nContent-Range: bytes 0-99/1125899906842624\r\n"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OBJECT_BYTES", MIB)
    monkeypatch.setattr(limits, "STORE_ANSWER_BYTES", MIB)
    monkeypatch.setattr(limits, "RATE_GRACE_SECONDS", 0.3)
    monkeypatch.setattr(limits, "ANSWER_SECONDS", 2.0)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    monkeypatch.setattr("lakeplan.stores.azure_client.RETRIES", {"retry_total": 0})
    monkeypatch.setattr("lakeplan.stores.gcs_client.FIRST_WAIT", 0.01)


def s3(url: str) -> NamespaceReader:
    return open_namespace("s3://bucket/x", endpoint_url=url, region="eu-west-1")


def azure(url: str) -> NamespaceReader:
    return open_namespace(f"{url}/account/container/x")


def gcs(url: str) -> NamespaceReader:
    return open_namespace("gs://bucket/x", endpoint_url=url)


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
@pytest.mark.parametrize("store", [s3, azure, gcs])
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
    assert time.monotonic() - started < PATIENCE


def it_asks_for_the_size_of_an_object_of_any_size() -> None:
    head = AZURE + b"Content-Length: 5000000000000\r\nConnection: close\r\n\r\n"
    with serving(lambda: iter([head])) as url:
        found = S3Client(Access(url, "eu-west-1")).get().head_object(Bucket="bucket", Key="k")
        assert found["ContentLength"] == 5_000_000_000_000
        location = parse_location(f"{url}/account/container")
        assert isinstance(location, AzureLocation)
        blob = AzureClient(location).get().get_blob_client("k")
        assert blob.get_blob_properties().size == 5_000_000_000_000


def first(page: list[int]) -> int | None:
    return page[0] if page else None


def it_ends_a_listing_of_empty_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EMPTY_PAGES", 5)
    with pytest.raises(StorageError, match="kept returning more pages"):
        list(bounded_pages(itertools.repeat([]), first, "s3://b"))
    pages = [[1], [], [], [2], *[[]] * 5]
    assert list(bounded_pages(iter(pages), first, "s3://b")) == pages


@pytest.mark.parametrize(("lead", "circle"), [(0, 1), (0, 2), (3, 7), (100, 1), (5, 100)])
def it_ends_a_listing_that_goes_round_in_a_circle(lead: int, circle: int) -> None:
    start = [[-n] for n in range(1, lead + 1)]
    pages = itertools.chain(start, itertools.cycle([[n] for n in range(circle)]))
    read = itertools.count()
    counted = (page for page, _ in zip(pages, read, strict=False))
    with pytest.raises(StorageError, match="returned the same page twice"):
        list(bounded_pages(counted, first, "s3://b"))
    assert next(read) <= 3 * (lead + circle) + 3


@pytest.mark.parametrize("gap", [[], [[]]])
def it_refuses_a_page_that_comes_twice_in_a_row(gap: list[list[int]]) -> None:
    pages = [[1], [2], [3], *gap, [3], [4]]
    with pytest.raises(StorageError, match="returned the same page twice"):
        list(bounded_pages(iter(pages), first, "s3://b"))


def it_counts_no_empty_pages_of_a_circle() -> None:
    pages = itertools.chain([[-1], [-2], [-3]], itertools.cycle([[], [1]]))
    with pytest.raises(StorageError, match="returned the same page twice"):
        list(bounded_pages(pages, first, "s3://b"))


def it_ends_a_listing_that_always_shows_something_new(monkeypatch: pytest.MonkeyPatch) -> None:
    new = ([n] for n in itertools.count())
    monkeypatch.setattr(limits, "STORE_PAGES", 50)
    with pytest.raises(StorageError, match="kept returning more pages"):
        list(bounded_pages(new, first, "s3://b"))
    monkeypatch.setattr(limits, "STORE_PAGES", 10**9)
    monkeypatch.setattr(limits, "STORE_LISTING_SECONDS", 0.05)
    with pytest.raises(StorageError, match="kept returning more pages"):
        list(bounded_pages(new, first, "s3://b"))


def page_of_s3(token: int) -> str:
    return f"""<ListBucketResult><IsTruncated>true</IsTruncated>
<NextContinuationToken>{token}</NextContinuationToken>
<Contents><Key>x/a</Key><LastModified>2026-01-01T00:00:00Z</LastModified>
<ETag>"e"</ETag><Size>1</Size></Contents>
</ListBucketResult>"""


def versions_of_s3(token: int) -> str:
    return f"""<ListVersionsResult><IsTruncated>true</IsTruncated>
<NextKeyMarker>x/a</NextKeyMarker><NextVersionIdMarker>{token}</NextVersionIdMarker>
<Version><Key>x/a</Key><VersionId>v{token % 3}</VersionId><IsLatest>false</IsLatest>
<ETag>"e"</ETag><Size>1</Size>
<LastModified>2026-01-01T00:00:00Z</LastModified></Version></ListVersionsResult>"""


def page_of_azure(token: int) -> str:
    return f"""<?xml version="1.0" encoding="utf-8"?>
<EnumerationResults ContainerName="container"><Blobs><Blob>
<Name>x/a</Name><VersionId>v{token % 3}</VersionId><Properties>
<Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified>
<Etag>e</Etag><Content-Length>1</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob></Blobs>
<NextMarker>{token}</NextMarker></EnumerationResults>"""


def page_of_gcs(token: int) -> str:
    return f"""{{"kind": "storage#objects", "nextPageToken": "{token}", "prefixes": ["x/b/"],
"items": [{{"name": "x/a", "size": "1", "updated": "2026-01-01T00:00:00Z", "generation": "7"}}]}}"""


def versions_of_gcs(token: int) -> str:
    return page_of_gcs(token).replace('"7"', f'"{7 + token % 3}"').replace('"prefixes": ["x/b/"],', "")


def deleter_of(url: str) -> S3Store:
    return S3Store(S3Location("bucket", "x"), Access(url, "eu-west-1"))


def cut_page(token: int) -> str:
    return page_of_s3(token).replace(f"<NextContinuationToken>{token}</NextContinuationToken>", "")


def cut_versions(token: int) -> str:
    marks = f"<NextKeyMarker>x/a</NextKeyMarker><NextVersionIdMarker>{token}</NextVersionIdMarker>"
    return versions_of_s3(token).replace(marks, "")


def pages(body: Callable[[int], str]) -> Callable[[], Iterator[bytes]]:
    """Answers that each have a next page with a new marker."""
    numbers = itertools.count(1)

    def answer() -> Iterator[bytes]:
        text = body(next(numbers)).encode()
        yield b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\n"
        yield b"Content-Length: %d\r\n\r\n%s" % (len(text), text)

    return answer


@pytest.mark.parametrize(
    ("body", "use"),
    [
        (cut_page, lambda url: list(s3(url).list_objects())),
        (cut_page, lambda url: s3(url).list_prefixes()),
        (cut_versions, lambda url: deleter_of(url)._versions_of("a", None)),
    ],
)
def it_takes_no_page_for_the_last_that_says_otherwise(
    body: Callable[[int], str], use: Callable[[str], object]
) -> None:
    with (
        serving(pages(body)) as url,
        pytest.raises(StorageError, match="does not contain the token of the next page"),
    ):
        use(url)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
class DescribeListingsWithoutAnEnd:
    @pytest.mark.parametrize(
        ("store", "body"), [(s3, page_of_s3), (azure, page_of_azure), (gcs, page_of_gcs)]
    )
    @pytest.mark.parametrize("use", [lambda r: list(r.list_objects()), lambda r: r.list_prefixes()])
    def it_ends_them(
        self,
        store: Callable[[str], NamespaceReader],
        body: Callable[[int], str],
        use: Callable[[NamespaceReader], object],
    ) -> None:
        with serving(pages(body)) as url, pytest.raises(StorageError, match="returned the same page twice"):
            use(store(url))

    def it_finds_objects_in_a_bounded_number_of_pages(self) -> None:
        """The pages that are read depend on the wanted keys alone. Azure's listing is refused once it repeats
        itself, Google's at the first answer with what was not requested."""
        keys = [f"k{n:03}" for n in range(120)]
        with (
            serving(pages(page_of_azure)) as url,
            pytest.raises(StorageError, match="returned the same page twice"),
        ):
            open_sweep_store(f"{url}/account/container/x").find(keys)
        with serving(pages(page_of_s3)) as url:
            store = open_sweep_store("s3://bucket/x", endpoint_url=url, region="eu-west-1")
            assert store.find(keys) == {}
        with (
            serving(pages(page_of_gcs)) as url,
            pytest.raises(StorageError, match="the storage listed objects outside"),
        ):
            open_sweep_store("gs://bucket/x", endpoint_url=url).find(keys)

    def it_lists_the_versions_of_an_object_within_bounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with serving(pages(versions_of_s3)) as url:
            deleter = deleter_of(url)
            with pytest.raises(StorageError, match="returned the same page twice"):
                deleter._versions_of("a", None)
            monkeypatch.setattr(limits, "STORE_VERSIONS", 2)
            found = deleter._versions_of("a", None)
            assert isinstance(found, Deletion)
            assert "more versions than lakeplan lists" in found.reason
        with serving(pages(page_of_azure)) as url:
            location = parse_location(f"{url}/account/container/x")
            assert isinstance(location, AzureLocation)
            of_azure = AzureStore(location)
            found = of_azure._versions_of("a", None)
            assert isinstance(found, Deletion)
            assert "more versions than lakeplan lists" in found.reason
            monkeypatch.setattr(limits, "STORE_VERSIONS", 1000)
            found = of_azure._versions_of("a", None)
            assert isinstance(found, Deletion)
            assert "returned the same page twice" in found.reason
        with serving(pages(versions_of_gcs)) as url:
            of_gcs = open_sweep_store("gs://bucket/x", endpoint_url=url)
            with pytest.raises(StorageError, match="returned the same page twice"):
                of_gcs.delete(["a"], versions=Versions.ALL)
            monkeypatch.setattr(limits, "STORE_VERSIONS", 2)
            (found,) = of_gcs.delete(["a"], versions=Versions.ALL)
            assert "more versions than lakeplan lists" in found.reason


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("store", [s3, azure, gcs])
def it_gives_up_a_body_that_is_fast_enough_but_takes_too_long(
    store: Callable[[str], NamespaceReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RATE_BYTES", 1)
    monkeypatch.setattr(limits, "FILE_SECONDS", 0.5)
    started = time.monotonic()
    answer = dripping(
        HEAD
        + b"x-ms-blob-type: BlockBlob\r\nContent-Length: 10000\r\nContent-Range: bytes 0-9999/10000\r\n\r\n"
    )
    with (
        serving(answer) as url,
        pytest.raises(StorageError, match=r"took longer than the limit of 0\.5 seconds"),
    ):
        store(url).read("k")
    assert time.monotonic() - started < PATIENCE


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


def it_has_a_connection_for_each_thread() -> None:
    """urllib3 warns of each one that is too many, a line for every few objects of a sweep."""
    for url in ("http://127.0.0.1/", "https://account.blob.core.windows.net/"):
        assert bounded_session().get_adapter(url)._pool_maxsize >= THREADS
