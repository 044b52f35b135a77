from __future__ import annotations

import pytest

from lakeplan.adapters.storage.urls import AzureLocation, FolderLocation, S3Location, parse_location
from lakeplan.errors import StorageError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("file:///data/a%20b/", FolderLocation("/data/a b")),
        ("/data//a b/", FolderLocation("/data/a b")),
        ("file:///per%2525cent#x?y", FolderLocation("/per%25cent#x?y")),
        ("s3://bucket", S3Location("bucket", "")),
        ("s3://bucket/a//b/", S3Location("bucket", "a//b")),
        ("S3://bucket/100%/?x#y", S3Location("bucket", "100%/?x#y")),
        (
            "https://Acme.blob.core.windows.net/c/a%20b/",
            AzureLocation("https://acme.blob.core.windows.net", "acme", "c", "a b"),
        ),
        ("http://127.0.0.1:10000/dev/c", AzureLocation("http://127.0.0.1:10000/dev", "dev", "c", "")),
        ("http://localhost:1/dev/c/p/q", AzureLocation("http://localhost:1/dev", "dev", "c", "p/q")),
    ],
)
def it_takes_a_url_apart(url: str, expected: object) -> None:
    assert parse_location(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "file:///a%20b/c%23",
        "s3://bucket/a/b",
        "https://acme.blob.core.windows.net/c/a%20b",
        "http://127.0.0.1:10000/dev/c/p",
    ],
)
def it_gives_the_url_back(url: str) -> None:
    assert parse_location(url).url == url


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("gs://bucket/x", "gs://"),
        ("local://repo", "inside a lakeFS server"),
        ("mem://repo", "inside a lakeFS server"),
        ("ftp://host/x", "ftp://"),
        ("repo", "has a scheme"),
        ("file://host/x", "three slashes"),
        ("s3:///x", "bucket is missing"),
        ("https://example.com/c/x", "not an Azure blob URL"),
        ("https://acme.blob.core.windows.net/", "container is missing"),
        ("http://127.0.0.1:1/dev", "container is missing"),
    ],
)
def it_says_what_is_wrong_with_a_url(url: str, says: str) -> None:
    with pytest.raises(StorageError) as caught:
        parse_location(url)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://KEY:SECRET@bucket/x",
        "https://SECRET@acme.blob.core.windows.net/c",
        "https://acme.blob.core.windows.net/c/p?sv=1&sig=SECRET",
        "https://acme.blob.core.windows.net/c/p#SECRET",
    ],
)
def it_refuses_credentials_and_does_not_repeat_them(url: str) -> None:
    with pytest.raises(StorageError) as caught:
        parse_location(url)
    assert "SECRET" not in f"{caught.value} {caught.value.where} {caught.value.hint} {caught.value.detail}"
