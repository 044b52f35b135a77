from __future__ import annotations

import os
import pickle
from collections import Counter

import pytest
from botocore.loaders import JSONFileLoader

from lakeplan.errors import StorageDenied, StorageError, StorageNotFound
from lakeplan.stores.open import ClassReader, NamespaceReader, RemnantReader, open_namespace
from lakeplan.values.simulation import Amount
from tests.storage_servers import put_at_once, s3_client
from tests.stores.storage_contract import Put, StorageContract


class DescribeS3Reader(StorageContract):
    @pytest.fixture
    def reader(self, s3_bucket: str) -> NamespaceReader:
        return open_namespace(f"s3://{s3_bucket}/team a/repo/")

    @pytest.fixture
    def missing(self, s3_bucket: str) -> NamespaceReader:
        return open_namespace(f"s3://{s3_bucket}-is-not-there/repo")

    @pytest.fixture
    def put(self, s3_bucket: str) -> Put:
        def store(key: str, data: bytes) -> None:
            full = f"team a/{key[3:]}" if key.startswith("../") else f"team a/repo/{key}"
            put_at_once(s3_bucket, [(full, data, "STANDARD")])

        return store

    def it_reads_a_whole_bucket_as_a_namespace(self, s3_bucket: str, put: Put) -> None:
        put("data/x", b"1")
        reader = open_namespace(f"s3://{s3_bucket}")
        assert reader.url == f"s3://{s3_bucket}"
        assert [o.key for o in reader.list_objects()] == ["team a/repo/data/x"]
        assert reader.read("team a/repo/data/x") == b"1"
        assert reader.list_prefixes() == ["team a/"]

    def it_lists_page_after_page(self, s3_bucket: str, reader: NamespaceReader) -> None:
        # a page has at most 1,000
        put_at_once(s3_bucket, ((f"team a/repo/data/{n:04}", b"", "STANDARD") for n in range(1005)))
        assert len({o.key for o in reader.list_objects("data/")}) == 1005

    def it_prefers_the_endpoint_it_was_given(
        self, s3_bucket: str, s3_endpoint: str, put: Put, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put("x", b"1")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
        reader = open_namespace(f"s3://{s3_bucket}/team a/repo", endpoint_url=s3_endpoint, region="eu-west-1")
        assert reader.read("x") == b"1"

    def it_reads_the_description_of_s3_once_a_process(
        self, s3_bucket: str, reader: NamespaceReader, put: Put, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A sweep opens the storage of every repository of a server."""
        put("x", b"1")
        reader.read("x")
        opened: list[str] = []
        load = JSONFileLoader.load_file
        monkeypatch.setattr(
            JSONFileLoader, "load_file", lambda self, path: opened.append(path) or load(self, path)
        )
        assert open_namespace(f"s3://{s3_bucket}/team a/repo/").read("x") == b"1"
        assert opened == []

    def it_pickles_no_credentials(self, reader: NamespaceReader, put: Put) -> None:
        put("x", b"1")
        reader.read("x")
        dumped = pickle.dumps(reader)
        assert os.environ["AWS_SECRET_ACCESS_KEY"].encode() not in dumped
        assert os.environ["AWS_ACCESS_KEY_ID"].encode() not in dumped

    def it_says_that_credentials_are_missing(
        self, s3_bucket: str, reader: NamespaceReader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(StorageDenied, match="no usable credentials"):
            reader.read("x")

    def it_says_which_bucket_is_missing(self, missing: NamespaceReader) -> None:
        with pytest.raises(StorageNotFound, match="bucket or container does not exist") as caught:
            missing.read("x")
        assert caught.value.where == f"{missing.url}/x"

    def it_says_that_the_endpoint_cannot_be_reached(
        self, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakeplan.stores.s3_client.TRIES", 1)
        reader = open_namespace(f"s3://{s3_bucket}/x", endpoint_url="http://127.0.0.1:1")
        with pytest.raises(StorageError, match="cannot be reached"):
            reader.read("x")

    def it_says_that_a_profile_is_unknown(self, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_PROFILE", "not-there")
        with pytest.raises(StorageError, match="settings of the storage client are invalid"):
            open_namespace(f"s3://{s3_bucket}/x").read("x")


class DescribeRemnants:
    @pytest.fixture
    def reader(self, s3_bucket: str) -> NamespaceReader:
        return open_namespace(f"s3://{s3_bucket}/repo")

    def it_counts_older_versions_and_unfinished_uploads(self, s3_bucket: str, reader: RemnantReader) -> None:
        client = s3_client()
        nothing = reader.remnants()
        assert (nothing.noncurrent, nothing.delete_markers, nothing.uploads) == (Amount(), 0, 0)
        assert (nothing.oldest_us, nothing.complete) == (None, True)
        client.put_bucket_versioning(Bucket=s3_bucket, VersioningConfiguration={"Status": "Enabled"})
        for body in (b"1", b"22", b"333"):
            client.put_object(Bucket=s3_bucket, Key="repo/data/a", Body=body)
        client.put_object(Bucket=s3_bucket, Key="repo/data/b", Body=b"4444")
        client.delete_object(Bucket=s3_bucket, Key="repo/data/b")
        client.put_object(Bucket=s3_bucket, Key="repository/data/c", Body=b"1")
        client.put_object(Bucket=s3_bucket, Key="repository/data/c", Body=b"1")
        client.create_multipart_upload(Bucket=s3_bucket, Key="repo/data/d")
        found = reader.remnants()
        assert found.noncurrent == Amount(3, 7)
        assert (found.delete_markers, found.uploads, found.complete) == (1, 1, True)
        assert found.oldest_us is not None

    def it_says_that_it_did_not_count_every_upload(
        self, s3_bucket: str, reader: RemnantReader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = s3_client()
        for key in ("repo/data/a", "repo/data/b"):
            client.create_multipart_upload(Bucket=s3_bucket, Key=key)
        monkeypatch.setattr("lakeplan.stores.s3_client.REMNANT_PAGES", 0.001)
        found = reader.remnants()
        assert (found.uploads, found.complete) == (2, False)

    def it_names_storage_classes_page_after_page(self, s3_bucket: str, reader: NamespaceReader) -> None:
        client = s3_client()
        client.put_object(Bucket=s3_bucket, Key="repository/data/no", Body=b"1", StorageClass="GLACIER")
        classes = ["STANDARD", "DEEP_ARCHIVE"]
        put_at_once(s3_bucket, ((f"repo/data/{n}", b"22", classes[n % 2]) for n in range(1_005)))
        assert isinstance(reader, ClassReader)
        found = Counter((name, size) for _, size, name in reader.list_classes())
        assert found == {("STANDARD", 2): 503, ("DEEP_ARCHIVE", 2): 502}
        assert len(list(reader.list_objects())) == 1_005, "other listings go on as they were"

    def it_counts_page_after_page_up_to_a_limit(
        self, s3_bucket: str, reader: RemnantReader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = s3_client()
        client.put_bucket_versioning(Bucket=s3_bucket, VersioningConfiguration={"Status": "Enabled"})
        put_at_once(s3_bucket, ((f"repo/data/{n % 2}", b"1", "STANDARD") for n in range(1_005)))
        found = reader.remnants()
        assert (found.noncurrent, found.complete) == (Amount(1_003, 1_003), True)
        monkeypatch.setattr("lakeplan.stores.s3_client.REMNANT_PAGES", 1)
        found = reader.remnants()
        assert found.noncurrent is not None
        assert 900 < found.noncurrent.objects < 1_003
        assert not found.complete
