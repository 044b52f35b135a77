"""Copies in S3 keep an object's metadata, and a copy that differs is removed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from lakeplan.errors import StorageDenied, StorageError, WriteConflict
from lakeplan.stores.open import Access, S3Location
from lakeplan.stores.s3 import S3Store
from tests.faulty_store import Answer, FaultyStore, Rule
from tests.storage_servers import s3_client

MIB = 1 << 20
SOURCE, TARGET = "data/ä b+c", "_lakeplan/quarantine/1/data/ä b+c"
DESCRIPTION = {
    "Metadata": {"owner": "team", "note": "x=1"},
    "CacheControl": "no-store",
    "ContentDisposition": "attachment",
    "ContentEncoding": "identity",
    "ContentLanguage": "de",
    "ContentType": "text/csv",
}


@pytest.fixture
def s3(s3_bucket: str) -> Any:
    return s3_client()


@pytest.fixture
def faulty(s3_endpoint: str) -> Iterator[FaultyStore]:
    with FaultyStore(s3_endpoint) as proxy:
        yield proxy


@pytest.fixture
def store(s3_bucket: str, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """A store that copies objects over 6 MiB in parts."""
    location = S3Location(s3_bucket, "repo")
    monkeypatch.setattr("lakeplan.stores.s3.ONE_REQUEST", 6 * MIB)
    monkeypatch.setattr("lakeplan.stores.s3.PART", 5 * MIB)
    return S3Store(location, Access(faulty.url))


@pytest.mark.parametrize("size", [100, 11 * MIB])
def it_keeps_what_describes_an_object(store: S3Store, s3: Any, s3_bucket: str, size: int) -> None:
    data = bytes(range(250)) * (size // 250) + b"end"
    place = {"Bucket": s3_bucket, "Key": f"repo/{SOURCE}"}
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "arn:aws:kms:us-east-1:1:key/mine"}
    s3.put_object(
        **place,
        Body=data,
        **DESCRIPTION,
        **encryption,
        StorageClass="STANDARD_IA",
        Tagging="kind=raw%2Bx&a=b",
    )
    copied = store.copy(SOURCE, TARGET)
    assert (copied.key, copied.size) == (TARGET, len(data))
    assert store.read(TARGET) == data
    found = s3.head_object(Bucket=s3_bucket, Key=f"repo/{TARGET}")
    assert found["StorageClass"] == "STANDARD_IA"
    assert {name: found.get(name) for name in DESCRIPTION} == DESCRIPTION
    assert {name: found.get(name) for name in encryption} == encryption
    tags = s3.get_object_tagging(Bucket=s3_bucket, Key=f"repo/{TARGET}")["TagSet"]
    assert {tag["Key"]: tag["Value"] for tag in tags} == {"kind": "raw+x", "a": "b"}


def it_copies_what_was_uploaded_in_parts(store: S3Store, s3: Any, s3_bucket: str) -> None:
    place = {"Bucket": s3_bucket, "Key": "repo/data/a"}
    upload = s3.create_multipart_upload(**place)["UploadId"]
    parts = [
        {"PartNumber": n, "ETag": s3.upload_part(**place, UploadId=upload, PartNumber=n, Body=body)["ETag"]}
        for n, body in ((1, b"1" * 5 * MIB), (2, b"2"))
    ]
    s3.complete_multipart_upload(**place, UploadId=upload, MultipartUpload={"Parts": parts})
    assert store.copy("data/a", "q/a").size == 5 * MIB + 1
    assert store.read("q/a") == b"1" * 5 * MIB + b"2"


def it_leaves_nothing_of_a_copy_whose_part_failed(
    store: S3Store, s3: Any, s3_bucket: str, faulty: FaultyStore
) -> None:
    s3.put_object(Bucket=s3_bucket, Key="repo/data/a", Body=b"1" * 11 * MIB)
    denied = Answer(403, "<Error><Code>AccessDenied</Code></Error>")
    faulty.arm(Rule(denied, method="PUT", query="partNumber=2"))
    with pytest.raises(StorageDenied):
        store.copy("data/a", "q/a")
    assert s3.list_multipart_uploads(Bucket=s3_bucket).get("Uploads", []) == []
    assert [found.key for found in store.list_objects()] == ["data/a"]


def it_removes_a_copy_that_does_not_equal_its_source(
    store: S3Store, s3: Any, s3_bucket: str, faulty: FaultyStore
) -> None:
    s3.put_object(Bucket=s3_bucket, Key="repo/data/a", Body=b"12")
    s3.put_object(Bucket=s3_bucket, Key="repo/q/a", Body=b"34")  # what a store made of it that lies
    faulty.arm(Rule(Answer(200, "<CopyObjectResult><ETag>x</ETag></CopyObjectResult>"), method="PUT"))
    with pytest.raises(StorageError, match="differed from the original"):
        store.copy("data/a", "q/a")
    assert [found.key for found in store.list_objects()] == ["data/a"]


@pytest.mark.parametrize("conditions", [True, False])
def it_removes_nothing_that_somebody_else_wrote_over_a_new_copy(
    store: S3Store,
    s3: Any,
    s3_bucket: str,
    faulty: FaultyStore,
    monkeypatch: pytest.MonkeyPatch,
    conditions: bool,
) -> None:
    """Whether or not the store knows ``If-None-Match``."""
    s3.put_object(Bucket=s3_bucket, Key="repo/q/a", Body=b"12")
    if not conditions:
        refusal = Answer(501, "<Error><Code>NotImplemented</Code></Error>")
        faulty.arm(Rule(refusal, method="PUT", times=1))
    copy_at_once = S3Store._copy_at_once

    def overtaken(*args: Any) -> str:
        written = copy_at_once(*args)
        s3.put_object(Bucket=s3_bucket, Key="repo/data/a", Body=b"another")
        return written

    monkeypatch.setattr(S3Store, "_copy_at_once", overtaken)
    with pytest.raises(WriteConflict):
        store.copy("q/a", "data/a", create=True)
    assert store.read("data/a") == b"another"


def it_removes_a_copy_that_lost_its_encryption(
    store: S3Store, s3: Any, s3_bucket: str, faulty: FaultyStore
) -> None:
    s3.put_object(Bucket=s3_bucket, Key="repo/data/a", Body=b"12", ServerSideEncryption="aws:kms")
    s3.put_object(Bucket=s3_bucket, Key="repo/q/a", Body=b"12")
    faulty.arm(Rule(Answer(200, "<CopyObjectResult><ETag>x</ETag></CopyObjectResult>"), method="PUT"))
    with pytest.raises(StorageError, match="not encrypted"):
        store.copy("data/a", "q/a")
    assert [found.key for found in store.list_objects()] == ["data/a"]


@pytest.mark.parametrize("archive", ["GLACIER", "DEEP_ARCHIVE"])
def it_copies_nothing_from_an_archive(store: S3Store, s3: Any, s3_bucket: str, archive: str) -> None:
    s3.put_object(Bucket=s3_bucket, Key="repo/data/a", Body=b"1", StorageClass=archive)
    found = store.stat("data/a")
    assert found is not None
    assert not found.readable
    assert not store.is_gone("data/a")
    with pytest.raises(StorageError, match="archived"):
        store.copy("data/a", "q/a")
    assert [found.key for found in store.list_objects()] == ["data/a"]


def it_says_that_an_object_under_a_customer_s_key_cannot_be_copied(
    store: S3Store, faulty: FaultyStore
) -> None:
    faulty.arm(Rule(Answer(400), method="HEAD"))
    with pytest.raises(StorageError, match="cannot be copied") as caught:
        store.copy("data/a", "q/a")
    assert "SSE-C" in caught.value.hint


def it_copies_after_pickling(store: S3Store, s3: Any, s3_bucket: str) -> None:
    s3.put_object(Bucket=s3_bucket, Key="repo/data/a", Body=b"1")
    assert pickle.loads(pickle.dumps(store)).copy("data/a", "q/a").size == 1
