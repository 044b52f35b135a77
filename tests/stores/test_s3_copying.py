"""What S3 is asked to copy, and when a copy equals its source, by a client in memory; test_s3_copy asks
moto."""

from __future__ import annotations

import io
from datetime import datetime, timezone
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from lakeplan.errors import StorageDenied, StorageError, StoreBusy, WriteConflict
from lakeplan.stores import s3
from lakeplan.stores.open import open_sweep_store
from tests.stores.test_s3_deleting import error

T0 = datetime(2026, 3, 1, tzinfo=timezone.utc)
MD5, OTHER_MD5 = f'"{"a" * 32}"', f'"{"b" * 32}"'
SOURCE, TARGET = {"Bucket": "bucket", "Key": "repo/data/a"}, {"Bucket": "bucket", "Key": "repo/q/a"}
FROM = {"CopySource": SOURCE, "CopySourceIfMatch": MD5}


class Bucket:
    """A client of a bucket with objects, each with its HEAD and its bytes. ``made`` changes what HEAD says of
    a copy, ``bytes_made`` are its bytes if they differ, ``fails`` are errors by operation."""

    def __init__(self) -> None:
        self.heads: dict[str, dict[str, Any]] = {}
        self.bytes: dict[str, bytes] = {}
        self.tags: list[dict[str, str]] = []
        self.made: dict[str, Any] = {}
        self.bytes_made: bytes | None = None
        self.fails: dict[str, list[Exception | None]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.written = MD5

    def put(self, data: bytes = b"12", **head: Any) -> None:
        self.bytes["repo/data/a"] = data
        self.heads["repo/data/a"] = {"ContentLength": len(data), "ETag": MD5, "LastModified": T0, **head}

    def asked(self, operation: str) -> list[dict[str, Any]]:
        return [options for name, options in self.calls if name == operation]

    def get(self) -> Bucket:
        return self

    def note(self, operation: str, options: dict[str, Any]) -> None:
        self.calls.append((operation, options))
        if self.fails.get(operation) and (failure := self.fails[operation].pop(0)) is not None:
            raise failure

    def make(self) -> None:
        self.heads["repo/q/a"] = {**self.heads["repo/data/a"], **self.made}
        data = self.bytes["repo/data/a"]
        self.bytes["repo/q/a"] = data if self.bytes_made is None else self.bytes_made

    def head_object(self, **options: Any) -> dict[str, Any]:
        self.note("head", options)
        if options["Key"] not in self.heads:
            raise error("404", 404, operation="HeadObject")
        return self.heads[options["Key"]]

    def copy_object(self, **options: Any) -> dict[str, Any]:
        self.note("copy", options)
        self.make()
        return {"CopyObjectResult": {"ETag": self.written}}

    def create_multipart_upload(self, **options: Any) -> dict[str, Any]:
        self.note("begin", options)
        return {"UploadId": "u1"}

    def upload_part_copy(self, **options: Any) -> dict[str, Any]:
        self.note("part", options)
        number = options["PartNumber"]
        return {"CopyPartResult": {"ETag": f"e{number}", "ChecksumCRC32": f"c{number}", "LastModified": T0}}

    def complete_multipart_upload(self, **options: Any) -> dict[str, Any]:
        self.note("complete", options)
        self.make()
        return {"ETag": self.written}

    def abort_multipart_upload(self, **options: Any) -> None:
        self.note("abort", options)

    def get_object_tagging(self, **options: Any) -> dict[str, Any]:
        self.note("tags", options)
        return {"TagSet": self.tags}

    def get_object(self, **options: Any) -> dict[str, Any]:
        self.note("read", options)
        if options["Key"] not in self.bytes:
            raise error("NoSuchKey", 404)
        data = self.bytes[options["Key"]]
        first, last = map(int, options["Range"].removeprefix("bytes=").split("-"))
        data = data[first : last + 1]
        return {"Body": io.BytesIO(data), "ContentLength": len(data)}

    def delete_object(self, **options: Any) -> None:
        self.note("delete", options)
        self.heads.pop(options["Key"])


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def store(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Objects of more than 4 bytes are copied in parts of 3."""
    for name, value in (("ONE_REQUEST", 4), ("PART", 3), ("READ", 3), ("COPIERS", 1)):
        monkeypatch.setattr(s3, name, value)
    made: Any = open_sweep_store("s3://bucket/repo")
    made._client = made._once = bucket
    return made


class DescribeTheRequest:
    def it_has_the_condition_that_it_is_still_the_same_object(self, bucket: Bucket, store: Any) -> None:
        bucket.put(b"1234", StorageClass="STANDARD_IA", BucketKeyEnabled=False, ContentType="text/csv")
        copied = store.copy("data/a", "q/a")
        assert (copied.key, copied.size, copied.e_tag) == ("q/a", 4, MD5)
        whole = {"MetadataDirective": "COPY", "TaggingDirective": "COPY", "StorageClass": "STANDARD_IA"}
        assert bucket.asked("copy") == [{**TARGET, **FROM, **whole}]
        assert bucket.asked("head") == [{**key, "ChecksumMode": "ENABLED"} for key in (SOURCE, TARGET)]

    def it_has_the_condition_that_nothing_is_at_the_target(self, bucket: Bucket, store: Any) -> None:
        bucket.put()
        store.copy("data/a", "q/a", create=True)
        (asked,) = bucket.asked("copy")
        assert asked["IfNoneMatch"] == "*"
        with pytest.raises(WriteConflict) as caught:
            store.copy("data/a", "q/a", create=True)
        assert caught.value.where == "s3://bucket/repo/q/a"
        assert len(bucket.asked("copy")) == 1, "something is at the target"

    def it_is_repeated_without_the_condition_only_where_the_store_knows_none(
        self, bucket: Bucket, store: Any
    ) -> None:
        bucket.put()
        bucket.fails = {"copy": [error("NotImplemented", 501)]}
        store.copy("data/a", "q/a", create=True)
        assert ["IfNoneMatch" in options for options in bucket.asked("copy")] == [True, False]
        bucket.bytes.pop("repo/q/a")
        bucket.fails = {"copy": [error("PreconditionFailed", 412)]}
        with pytest.raises(WriteConflict):
            store.copy("data/a", "q/a", create=True)
        assert len(bucket.asked("copy")) == 3

    @pytest.mark.parametrize("target", ["data/a", ""])
    def it_is_never_to_the_source(self, bucket: Bucket, store: Any, target: str) -> None:
        bucket.put()
        with pytest.raises(StorageError, match="onto itself") as caught:
            store.copy("data/a", target)
        assert caught.value.where == f"s3://bucket/repo/{target}"
        assert bucket.calls == []

    def it_is_not_made_of_an_archived_object(self, bucket: Bucket, store: Any) -> None:
        bucket.put(StorageClass="GLACIER")
        with pytest.raises(StorageError, match="archived") as caught:
            store.copy("data/a", "q/a")
        assert caught.value.where == "s3://bucket/repo/data/a"
        assert bucket.asked("copy") == []

    def it_fails_with_the_place_of_the_target(self, bucket: Bucket, store: Any) -> None:
        bucket.put()
        bucket.fails = {"copy": [error("AccessDenied", 403)]}
        with pytest.raises(StorageDenied) as caught:
            store.copy("data/a", "q/a")
        assert caught.value.where == "s3://bucket/repo/q/a"

    @pytest.mark.parametrize(
        ("failure", "head", "message"),
        [
            (error("400", 400), {}, "did not return this object's metadata"),
            (error("AccessDenied", 403), {}, "refused access"),
            (None, {"ETag": ""}, "incomplete or damaged"),
        ],
    )
    def it_needs_a_description_of_the_source(
        self, bucket: Bucket, store: Any, failure: Any, head: dict[str, str], message: str
    ) -> None:
        bucket.put(**head)
        bucket.fails = {"head": [failure]}
        with pytest.raises(StorageError, match=message) as caught:
            store.copy("data/a", "q/a")
        assert caught.value.where == "s3://bucket/repo/data/a"
        assert bucket.asked("copy") == []


class DescribeParts:
    @pytest.fixture(autouse=True)
    def large(self, bucket: Bucket) -> None:
        bucket.put(b"12345678", StorageClass="STANDARD_IA", ContentType="text/csv", Metadata={})
        bucket.tags = [{"Key": "a b", "Value": "1&2"}, {"Key": "c", "Value": ""}]

    PLACE = {**TARGET, "UploadId": "u1"}  # noqa: RUF012

    def it_copies_every_byte_once(self, bucket: Bucket, store: Any) -> None:
        assert store.copy("data/a", "q/a").size == 8
        described = {"StorageClass": "STANDARD_IA", "ContentType": "text/csv", "Tagging": "a+b=1%262&c="}
        assert bucket.asked("tags") == [SOURCE]
        assert bucket.asked("begin") == [{**TARGET, **described}]
        assert bucket.asked("part") == [
            {**self.PLACE, **FROM, "PartNumber": n, "CopySourceRange": f"bytes={some}"}
            for n, some in ((1, "0-2"), (2, "3-5"), (3, "6-7"))
        ]
        parts = [{"PartNumber": n, "ETag": f"e{n}", "ChecksumCRC32": f"c{n}"} for n in (1, 2, 3)]
        assert bucket.asked("complete") == [{**self.PLACE, "MultipartUpload": {"Parts": parts}}]
        assert bucket.asked("abort") == []

    @pytest.mark.parametrize(("most", "ranges"), [(2, ["0-3", "4-7"]), (4, ["0-2", "3-5", "6-7"])])
    def it_takes_larger_parts_of_huge_objects(
        self, bucket: Bucket, store: Any, monkeypatch: pytest.MonkeyPatch, most: int, ranges: list[str]
    ) -> None:
        monkeypatch.setattr(s3, "MOST_PARTS", most)
        store.copy("data/a", "q/a")
        assert [one["CopySourceRange"] for one in bucket.asked("part")] == [
            f"bytes={some}" for some in ranges
        ]

    def it_has_the_condition_at_its_end(self, bucket: Bucket, store: Any) -> None:
        bucket.tags = []
        bucket.heads["repo/data/a"] |= {"ChecksumCRC32": "c", "ChecksumType": "FULL_OBJECT"}
        store.copy("data/a", "q/a", create=True)
        (begin,), (complete,) = bucket.asked("begin"), bucket.asked("complete")
        assert (begin["ChecksumAlgorithm"], "Tagging" in begin) == ("CRC32", False)
        assert complete["IfNoneMatch"] == "*"

    @pytest.mark.parametrize("operation", ["part", "complete"])
    @pytest.mark.parametrize(
        "left", [None, error("AccessDenied", 403), EndpointConnectionError(endpoint_url="http://x")]
    )
    def it_leaves_no_upload_behind(
        self, bucket: Bucket, store: Any, operation: str, left: Exception | None
    ) -> None:
        bucket.fails = {operation: [error("SlowDown", 503)], "abort": [left]}
        with pytest.raises(StoreBusy) as caught:
            store.copy("data/a", "q/a")
        assert caught.value.where == "s3://bucket/repo/q/a"
        assert bucket.asked("abort") == [self.PLACE]
        assert bucket.asked("complete") == [] or operation == "complete"

    @pytest.mark.parametrize(("operation", "key"), [("begin", "q/a"), ("tags", "data/a")])
    def it_begins_none_without_what_describes_the_object(
        self, bucket: Bucket, store: Any, operation: str, key: str
    ) -> None:
        bucket.fails = {operation: [error("AccessDenied", 403)]}
        with pytest.raises(StorageDenied) as caught:
            store.copy("data/a", "q/a")
        assert caught.value.where == f"s3://bucket/repo/{key}"
        assert bucket.asked("part") == bucket.asked("abort") == []


class DescribeWhetherACopyEqualsItsSource:
    @pytest.mark.parametrize(
        ("head", "made", "reads"),
        [
            ({}, {}, 0),
            ({"ETag": '"x-2"'}, {}, 2),
            ({}, {"ETag": '"x-2"'}, 2),
            ({}, {"ETag": OTHER_MD5}, 2),
            ({"ServerSideEncryption": "aws:kms"}, {}, 2),
            ({"ETag": '"x-2"', "ChecksumCRC32": "c"}, {}, 0),
            ({"ETag": '"x-2"', "ChecksumCRC32": "c-2"}, {}, 2),
            ({"ETag": '"x-2"', "ChecksumCRC32": "c", "ChecksumType": "COMPOSITE"}, {}, 2),
            ({"ETag": '"x-2"', "ChecksumCRC32": "c"}, {"ChecksumCRC32": "", "ChecksumSHA1": "d"}, 2),
        ],
    )
    def it_is_read_where_no_checksum_proves_it(
        self, bucket: Bucket, store: Any, head: dict[str, str], made: dict[str, str], reads: int
    ) -> None:
        bucket.put(b"1234", **head)
        bucket.made = made
        assert store.copy("data/a", "q/a").size == 4
        assert len(bucket.asked("read")) == 2 * reads
        if reads:
            tag = head.get("ETag", MD5)
            assert bucket.asked("read")[:2] == [
                {**SOURCE, "Range": f"bytes={some}", "IfMatch": tag} for some in ("0-2", "3-3")
            ]

    @pytest.mark.parametrize(
        ("head", "made", "data"),
        [
            ({}, {"ContentLength": 3}, b"1234"),
            ({"ETag": '"x-2"', "ChecksumSHA256": "c"}, {"ChecksumSHA256": "d"}, b"1234"),
            ({}, {"ETag": OTHER_MD5}, b"1235"),
            ({"ETag": '"x-2"'}, {}, b"1235"),
            ({"ETag": '"x-2"'}, {}, b"2234"),
        ],
    )
    @pytest.mark.parametrize("version", [None, "v1"])
    def it_is_removed_if_it_does_not(
        self,
        bucket: Bucket,
        store: Any,
        head: dict[str, str],
        made: dict[str, Any],
        data: bytes,
        version: Any,
    ) -> None:
        bucket.put(b"1234", **head)
        bucket.made = made | ({"VersionId": version} if version else {})
        bucket.bytes_made = data
        with pytest.raises(StorageError, match="the copy of data/a differed from the original") as caught:
            store.copy("data/a", "q/a")
        assert caught.value.where == "s3://bucket/repo/q/a"
        assert bucket.asked("delete") == [{**TARGET, **({"VersionId": version} if version else {})}]

    @pytest.mark.parametrize("data", [b"12", b"12345678"])
    def it_is_kept_if_it_is_the_object_of_another_writer(
        self, bucket: Bucket, store: Any, data: bytes
    ) -> None:
        bucket.put(data)
        bucket.made = {"ETag": OTHER_MD5}
        bucket.bytes_made = data[::-1]
        with pytest.raises(WriteConflict) as caught:
            store.copy("data/a", "q/a", create=True)
        assert caught.value.where == "s3://bucket/repo/q/a"
        assert bucket.asked("delete") == []
        bucket.bytes.pop("repo/q/a")
        bucket.written = OTHER_MD5
        with pytest.raises(StorageError, match="differed"):
            store.copy("data/a", "q/a", create=True)
        assert len(bucket.asked("delete")) == 1

    def it_may_be_left_if_it_cannot_be_removed(self, bucket: Bucket, store: Any) -> None:
        bucket.put()
        bucket.made = {"ContentLength": 3}
        bucket.fails = {"delete": [error("AccessDenied", 403)]}
        with pytest.raises(StorageDenied) as caught:
            store.copy("data/a", "q/a")
        assert caught.value.where == "s3://bucket/repo/q/a"

    def it_is_not_known_if_a_part_of_it_is_missing(self, bucket: Bucket, store: Any) -> None:
        bucket.put(b"1234", ETag='"x-2"')
        bucket.bytes_made = b"12"
        with pytest.raises(StoreBusy, match="incomplete") as caught:
            store.copy("data/a", "q/a")
        assert caught.value.where == "s3://bucket/repo/q/a"

    @pytest.mark.parametrize(
        ("head", "made", "alike"),
        [
            ({"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"}, {}, True),
            ({"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"}, {"SSEKMSKeyId": "other"}, False),
            ({"ServerSideEncryption": "aws:kms"}, {"ServerSideEncryption": None}, False),
            ({"ServerSideEncryption": "AES256"}, {"ServerSideEncryption": "aws:kms"}, True),
            ({}, {"ServerSideEncryption": "aws:kms"}, False),
        ],
    )
    def it_must_be_encrypted_like_its_source(
        self, bucket: Bucket, store: Any, head: dict[str, str], made: dict[str, Any], alike: bool
    ) -> None:
        """Which may be encrypted by what is the default of every bucket."""
        bucket.put(**head)
        bucket.made = {**made, "VersionId": "v1"}
        if alike:
            store.copy("data/a", "q/a")
            return
        with pytest.raises(StorageError, match="not encrypted in the same way") as caught:
            store.copy("data/a", "q/a")
        assert caught.value.where == "s3://bucket/repo/q/a"
        assert bucket.asked("delete") == [{**TARGET, "VersionId": "v1"}]
