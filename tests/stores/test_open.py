from __future__ import annotations

from pathlib import Path

import pytest

from lakeplan.errors import StorageError
from lakeplan.stores.open import AzureLocation, FolderLocation, S3Location, folder_of, parse_location


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("file:///data/a%20b/", FolderLocation("/data/a b")),
        ("/data//a b/", FolderLocation("/data/a b")),
        ("file:///per%2525cent#x?y", FolderLocation("/per%25cent#x?y")),
        ("s3://bucket", S3Location("bucket", "")),
        ("S3://bucket/a/b/", S3Location("bucket", "a/b")),
        ("s3://bucket/team a/b", S3Location("bucket", "team a/b")),
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
        ("oss://bucket/x", "oss://"),
        ("local://repo", "inside a lakeFS server"),
        ("mem://repo", "inside a lakeFS server"),
        ("ftp://host/x", "ftp://"),
        ("repo", "must be a URL with a scheme"),
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


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example\\.blob.core.windows.net/c",
        "https://evil.example/.blob.core.windows.net/c",
        "https://evil.example#.blob.core.windows.net/c",
        "https://evil.example?.blob.core.windows.net/c",
        "https://evil.example%2f.blob.core.windows.net/c",
        "https://evil.example%00.blob.core.windows.net/c",
        "https://evil.example:443@acme.blob.core.windows.net/c",
        "https://acme.blob.core.windows.net@evil.example/c",
        "https://acme.blob.core.windows.net.evil.example/c",
        "https://evilblob.core.windows.net/c",
        "https://.blob.core.windows.net/c",
        "https://a.b.blob.core.windows.net/c",
        "https://acme.blob.core.windows.net:8443/c",
        "http://acme.blob.core.windows.net/c",
        "https://acme.blob.core.windows.net\t.evil.example/c",
        "https://acme.blob.core.windows\uff0enet/c",
        "https://acm\u00e9.blob.core.windows.net/c",
        "https://acme.blob.core.windows.net/c/../d",
        "https://acme.blob.core.windows.net/c/%2e%2e/d",
        "https://acme.blob.core.windows.net/c//d",
        "http://2130706433/dev/c",
        "http://0x7f.1/dev/c",
        "http://127.1/dev/c",
        "http://169.254.169.254/dev/c",
        "http://[fe80::1]/dev/c",
        "http://127.0.0.1:99999/dev/c",
        "http://127.0.0.1:/dev/c",
        "s3://bucket//x",
        "s3://bucket/a//b",
        "s3://bucket/../other",
        "s3://bucket/a%2fb",
        "s3://bucket/a?versionId=1",
        "s3://bucket\\evil/x",
        "s3://bucket /x",
        "s3://bucket/a\u00a0b",
        "s3://bucket/a\tb",
        "s3://bu/../cket",
        "file:///a/../b",
        "file:///a/%2e%2e/b",
        "file:///a/%00",
        "file:///a%2f..%2fb",
        "/a/../b",
        "/a\x00b",
        "file://evil.example/x",
    ],
)
def it_refuses_what_programs_read_differently(url: str) -> None:
    with pytest.raises(StorageError) as caught:
        parse_location(url)
    assert "\t" not in str(caught.value)
    assert "\\" not in caught.value.where


class DescribeFolders:
    def it_finds_a_namespace_below_the_server_s_folder(self, tmp_path: Path) -> None:
        assert folder_of("local://lake/team", str(tmp_path)) == f"{tmp_path}/lake/team"

    @pytest.mark.parametrize(
        "namespace",
        ["local://..", "local://../..", "local://a/../../b", "local://", "local:///etc", "local://a//b",
         "local://a/./b", "local://a%2f..%2f..", "local://a\\..\\..", "local://a\x00", "file:///etc", "a"],
    )  # fmt: skip
    def it_cannot_lead_out_of_it(self, namespace: str, tmp_path: Path) -> None:
        with pytest.raises(StorageError):
            folder_of(namespace, str(tmp_path / "lakes"))

    def it_cannot_lead_out_of_it_through_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "lakes").mkdir()
        (tmp_path / "lakes" / "out").symlink_to(tmp_path)
        (tmp_path / "lakes" / "in").symlink_to(tmp_path / "lakes")
        for name in ("out", "out/other"):
            with pytest.raises(StorageError, match="symbolic link"):
                folder_of(f"local://{name}", str(tmp_path / "lakes"))
        assert folder_of("local://in/x", str(tmp_path / "lakes")).endswith("/lakes/in/x")
