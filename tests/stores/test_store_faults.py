"""Failures of a store: nothing is reported as deleted unless that is known."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest
from azure.storage.blob import ContainerClient

from lakeplan.errors import StorageDenied, StorageError, StoreBusy, WriteConflict
from lakeplan.stores.azure_client import _check_request_id
from lakeplan.stores.open import RemnantReader, SweepStore, open_state, open_sweep_store
from lakeplan.values.sweep import Deletion, Versions
from tests.faulty_store import EXPIRED, SLOW_DOWN, Answer, Cut, Delay, FailKeys, FaultyStore, Rule
from tests.storage_servers import put_at_once, s3_client
from tests.stores.sweep_store_contract import Put, keys_of

KEYS = [f"data/{n:02}" for n in range(10)]
BATCH = {"method": "POST", "query": "^delete"}


class DescribeS3OnABadDay:
    @pytest.fixture
    def faulty(self, s3_endpoint: str) -> Iterator[FaultyStore]:
        with FaultyStore(s3_endpoint) as proxy:
            yield proxy

    @pytest.fixture
    def store(self, s3_bucket: str, faulty: FaultyStore) -> SweepStore:
        return open_sweep_store(f"s3://{s3_bucket}/repo", endpoint_url=faulty.url)

    @pytest.fixture
    def put(self, s3_bucket: str) -> Put:
        def put(key: str, data: bytes) -> None:
            put_at_once(s3_bucket, [(f"repo/{key}", data, "STANDARD")])

        return put

    @pytest.fixture(autouse=True)
    def full(self, put: Put, s3_bucket: str) -> None:
        for key in KEYS:
            put(key, b"1")

    def it_deletes_under_the_condition_that_each_object_is_the_expected_one(
        self, store: SweepStore, faulty: FaultyStore, s3_bucket: str
    ) -> None:
        """moto knows no conditions: the proxy answers as a store does that knows them."""
        expected = store.find(KEYS)
        faulty.arm(Rule(FailKeys(lambda key: key.endswith("3"), "PreconditionFailed"), **BATCH))
        answers = store.delete(KEYS, versions=Versions.MARKER, expected=expected)
        assert [answer.key for answer in answers if answer.changed] == [KEYS[3]]
        assert sum(answer.deleted for answer in answers) == 9
        (body,) = faulty.bodies("POST")
        assert body.count(b"<ETag>") == len(KEYS)

    def it_deletes_the_version_that_a_put_replaces_under_the_same_condition(
        self, store: SweepStore, faulty: FaultyStore, s3_bucket: str
    ) -> None:
        """In a bucket that suspended versions, or one whose setting may not be read."""
        client = s3_client()
        for status in ("Enabled", "Suspended"):
            client.put_bucket_versioning(Bucket=s3_bucket, VersioningConfiguration={"Status": status})
        expected = store.find(KEYS)
        faulty.arm(Rule(FailKeys(lambda key: key.endswith("3"), "PreconditionFailed"), **BATCH))
        answers = store.delete(KEYS, versions=Versions.ALL, expected=expected)
        assert [answer.key for answer in answers if answer.changed] == [KEYS[3]]
        (body,) = faulty.bodies("POST")
        assert body.count(b"<VersionId>null</VersionId>") == body.count(b"<ETag>") == len(KEYS)

    @pytest.mark.parametrize("code", ["MalformedXML", "NotImplemented"])
    def it_does_without_conditions_where_the_store_knows_none(
        self, store: SweepStore, faulty: FaultyStore, code: str
    ) -> None:
        expected = store.find(KEYS)
        refusal = f"<Error><Code>{code}</Code><Message>no ETag, please</Message></Error>"
        faulty.arm(Rule(Answer(400 if code == "MalformedXML" else 501, refusal), times=1, **BATCH))
        assert store.delete(KEYS, versions=Versions.MARKER, expected=expected) == [Deletion(k) for k in KEYS]
        assert keys_of(store) == set()
        assert b"<ETag>" not in faulty.bodies("POST")[-1]

    def it_finds_a_thousand_neighbours_with_few_requests(
        self, store: SweepStore, faulty: FaultyStore, put: Put
    ) -> None:
        for n in range(300):
            put(f"data/n/{n:03}", b"1")
        keys = [f"data/n/{n:03}" for n in range(0, 300, 2)]
        assert len(store.find(keys)) == 150
        assert len(faulty.seen) == 1

    def it_takes_no_listing_that_is_out_of_order(self, store: SweepStore, faulty: FaultyStore) -> None:
        """What it would call gone may be on a later page."""
        entry = "<Contents><Key>repo/data/{}</Key><Size>1</Size>{}</Contents>"
        at = "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag>"
        page = "".join(entry.format(name, at) for name in ("09", "00"))
        page += "<IsTruncated>false</IsTruncated>"
        faulty.arm(Rule(Answer(200, f"<ListBucketResult>{page}</ListBucketResult>"), method="GET"))
        with pytest.raises(StorageError, match="ascending order"):
            store.find(KEYS)

    def it_hears_at_once_that_the_store_asks_to_slow_down(
        self, store: SweepStore, faulty: FaultyStore
    ) -> None:
        faulty.arm(Rule(Answer(503, SLOW_DOWN), **BATCH, times=2))
        for tries in (1, 2):
            with pytest.raises(StoreBusy):
                store.delete(KEYS, versions=Versions.MARKER)
            assert len(faulty.seen) == tries
        assert store.delete(KEYS, versions=Versions.MARKER) == [Deletion(key) for key in KEYS]
        assert keys_of(store) == set()

    def it_tells_the_half_of_a_batch_that_failed(self, store: SweepStore, faulty: FaultyStore) -> None:
        faulty.arm(Rule(FailKeys(lambda key: int(key[-1]) % 2 == 1), **BATCH, times=1))
        answers = store.delete(KEYS, versions=Versions.MARKER)
        reason = "InternalError: the storage is overloaded or temporarily unavailable"
        assert answers[1::2] == [Deletion(key, reason, transient=True) for key in KEYS[1::2]]
        assert answers[::2] == [Deletion(key) for key in KEYS[::2]]
        assert keys_of(store) == set(KEYS[1::2])

    def it_says_why_for_good(self, store: SweepStore, faulty: FaultyStore) -> None:
        locked = "Access Denied because object protected by object lock."
        faulty.arm(Rule(FailKeys(lambda key: key.endswith("3"), "AccessDenied", locked), **BATCH))
        faulty.arm(Rule(FailKeys(lambda key: key.endswith("3"), "NeverSeen"), **BATCH))
        answers = store.delete(KEYS[3:5], versions=Versions.MARKER)
        assert answers == [Deletion("data/03", "AccessDenied: the object is locked"), Deletion("data/04")]

    def it_never_takes_silence_for_a_deletion(self, store: SweepStore, faulty: FaultyStore) -> None:
        faulty.arm(Rule(FailKeys(lambda key: key.endswith(("2", "7")), ""), **BATCH))
        answers = store.delete(KEYS, versions=Versions.MARKER)
        assert [a.key for a in answers if not a.deleted] == ["data/02", "data/07"]
        assert all(a.transient and "not list" in a.reason for a in answers if not a.deleted)

    @pytest.mark.parametrize("version", ["", "<VersionId>null</VersionId>"])
    def it_counts_a_key_that_is_both_deleted_and_failed_as_failed(
        self, store: SweepStore, faulty: FaultyStore, version: str
    ) -> None:
        names = (f"<Key>repo/{KEYS[0]}</Key>{version}", f"<Key>repo/{KEYS[1]}</Key>")
        deleted = "".join(f"<Deleted>{name}</Deleted>" for name in names)
        failed = f"<Error>{names[0]}<Code>InternalError</Code></Error>"
        failed += f"<Error>{names[1]}<Code>NoSuchKey</Code></Error>"
        faulty.arm(Rule(Answer(200, f"<DeleteResult>{deleted}{failed}</DeleteResult>"), **BATCH))
        answers = store.delete(KEYS[:2], versions=Versions.MARKER)
        assert [answer.deleted for answer in answers] == [False, True]

    @pytest.mark.parametrize("action", [Cut(asked=False), Cut(sent=0), Cut(sent=60), Delay(2.5)])
    def it_knows_nothing_of_a_batch_whose_answer_is_lost(
        self, store: SweepStore, faulty: FaultyStore, action: Cut | Delay
    ) -> None:
        faulty.arm(Rule(action, **BATCH, times=1))
        # only a late answer is given up early: a machine with much to do answers everything late
        hasty = open_sweep_store(store.url, endpoint_url=faulty.url, read_seconds=1)
        with pytest.raises(StoreBusy):
            (hasty if isinstance(action, Delay) else store).delete(KEYS, versions=Versions.MARKER)
        assert store.delete(KEYS, versions=Versions.MARKER) == [Deletion(key) for key in KEYS]
        assert keys_of(store) == set()

    @pytest.mark.parametrize("sent", [0, 1, 60])
    def it_never_takes_a_broken_listing_for_a_whole_one(
        self, store: SweepStore, faulty: FaultyStore, sent: int
    ) -> None:
        faulty.arm(Rule(Cut(sent=sent), method="GET"))
        with pytest.raises(StorageError):
            list(store.list_objects())
        with pytest.raises(StorageError):
            store.list_prefixes()
        with pytest.raises(StorageError):
            store.facts()
        with pytest.raises(StorageError):
            store.delete(KEYS, versions=Versions.ALL)

    def it_never_takes_a_broken_object_for_a_whole_one(self, store: SweepStore, faulty: FaultyStore) -> None:
        faulty.arm(Rule(Cut(sent=0), method="GET"))
        with pytest.raises(StorageError):
            store.read(KEYS[0])
        faulty.clear()
        faulty.arm(Rule(Cut(sent=0), method="GET", times=1))
        assert store.read(KEYS[0]) == b"1"

    def it_stops_when_the_credentials_have_expired(self, store: SweepStore, faulty: FaultyStore) -> None:
        faulty.arm(Rule(Answer(400, EXPIRED)))
        with pytest.raises(StorageDenied):
            store.delete(KEYS, versions=Versions.MARKER)
        with pytest.raises(StorageDenied):
            store.delete(["data/odd\x01"], versions=Versions.MARKER)
        with pytest.raises(StorageDenied):
            store.is_gone("data/00")
        faulty.clear()
        assert keys_of(store) == set(KEYS)

    def it_does_not_believe_a_proxy_that_an_object_is_gone(
        self, store: SweepStore, faulty: FaultyStore
    ) -> None:
        for body in ("<html>not here</html>", ""):
            faulty.arm(Rule(Answer(404, body), method="GET"))
            for request in (store.is_gone, store.read):
                with pytest.raises(StorageError, match="does not say whether"):
                    request("data/00")
            faulty.clear()
        faulty.arm(Rule(Answer(403, "<Error><Code>AccessDenied</Code></Error>"), method="GET"))
        with pytest.raises(StorageDenied):
            store.is_gone("data/00")

    def it_does_not_believe_a_proxy_that_there_is_no_record(
        self, s3_bucket: str, faulty: FaultyStore
    ) -> None:
        state = open_state(f"s3://{s3_bucket}/state", endpoint_url=faulty.url)
        state.write("exemptions/lake.json", b"1", if_version=None)
        faulty.arm(Rule(Answer(404, "<html>not here</html>"), path="exemptions"))
        with pytest.raises(StorageError, match="does not say whether"):
            state.read("exemptions/lake.json")
        faulty.clear()
        faulty.arm(Rule(Answer(200, "", {"ETag": '"e"'}), method="GET", path="exemptions"))
        with pytest.raises(StoreBusy):
            state.read("exemptions/lake.json")

    def it_says_that_a_record_cannot_be_written_without_a_connection(
        self, s3_bucket: str, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakeplan.stores.s3_client.TRIES", 2)
        state = open_state(f"s3://{s3_bucket}/state", endpoint_url=faulty.url)
        version = state.write("a", b"1", if_version=None)
        faulty.arm(Rule(Cut(asked=False), method="PUT", path="/a$"))
        for if_version in (None, version):
            with pytest.raises(StoreBusy, match="cannot be reached"):
                state.write("a", b"2", if_version=if_version)
        with pytest.raises(StoreBusy, match="cannot be reached"):
            state.delete("a", if_version=version)

    @pytest.mark.parametrize(
        "body",
        [
            "<KeyCount>1</KeyCount><IsTruncated>false</IsTruncated>",
            "<KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><contents><Key>repo/data/x</Key></contents>",
            "<KeyCount>0</KeyCount><NextContinuationToken>t</NextContinuationToken>",
            "<IsTruncated>maybe</IsTruncated><NextContinuationToken>t</NextContinuationToken>",
        ],
        ids=["no-entry", "other-element", "no-end", "no-flag"],
    )
    def it_refuses_a_page_that_lacks_something(
        self, store: SweepStore, faulty: FaultyStore, body: str
    ) -> None:
        faulty.arm(Rule(Answer(200, f"<ListBucketResult>{body}</ListBucketResult>"), query="list-type"))
        for request in (
            lambda: list(store.list_objects()),
            lambda: store.list_prefixes(),
            lambda: store.find(KEYS),
        ):
            with pytest.raises(StoreBusy):
                request()

    def it_refuses_an_upload_without_a_time(self, store: SweepStore, faulty: FaultyStore) -> None:
        upload = "<Upload><Key>repo/x</Key><UploadId>u</UploadId></Upload>"
        body = f"<ListMultipartUploadsResult>{upload}</ListMultipartUploadsResult>"
        faulty.arm(Rule(Answer(200, body), query="uploads"))
        assert isinstance(store, RemnantReader)
        with pytest.raises(StoreBusy):
            store.remnants()

    @pytest.mark.parametrize("body", ["", "<html><body>Sign in</body></html>"], ids=["empty", "html"])
    def it_never_takes_another_document_for_an_answer_with_nothing_in_it(
        self, store: SweepStore, faulty: FaultyStore, body: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakeplan.stores.s3_client.TRIES", 1)
        faulty.arm(Rule(Answer(200, body), query="list-type|versioning|versions"))
        for request in (
            lambda: list(store.list_objects()),
            lambda: store.list_prefixes(),
            lambda: store.find(KEYS),
            lambda: store.facts(),
            lambda: store.delete(KEYS, versions=Versions.ALL),
        ):
            with pytest.raises(StoreBusy):
                request()

    @pytest.mark.parametrize("fields", ["<Key>repo/data/00</Key>", "<Key>repo/a</Key><Size>x</Size>"])
    def it_says_that_an_entry_is_damaged(self, store: SweepStore, faulty: FaultyStore, fields: str) -> None:
        page = f"<ListBucketResult><Contents>{fields}</Contents></ListBucketResult>"
        faulty.arm(Rule(Answer(200, page), method="GET"))
        with pytest.raises(StoreBusy, match="damaged"):
            list(store.list_objects())
        with pytest.raises(StoreBusy, match="damaged"):
            store.find(KEYS)

    def it_says_that_answers_lack_their_headers(self, store: SweepStore, faulty: FaultyStore) -> None:
        faulty.arm(Rule(Answer(200)))
        with pytest.raises(StoreBusy, match="damaged"):
            store.stat(KEYS[0])
        with pytest.raises(StoreBusy, match="damaged"):
            store.put("_lakeplan/a", b"1")
        with pytest.raises(StoreBusy, match="damaged"):
            store.copy(KEYS[0], "q/00")

    def it_sends_both_checksums_that_stores_want(
        self, store: SweepStore, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent: list[dict[str, str]] = []
        ask = faulty.ask
        monkeypatch.setattr(faulty, "ask", lambda *args: (sent.append(args[2]), ask(*args))[1])
        store.delete(KEYS, versions=Versions.MARKER)
        names = {name.lower() for name in sent[0]}
        assert {"content-md5", "x-amz-checksum-crc32"} <= names

    def it_knows_its_own_record_when_the_answer_was_lost(
        self, store: SweepStore, faulty: FaultyStore
    ) -> None:
        faulty.arm(Rule(Cut(sent=0), method="PUT", times=1))
        store.create("_lakeplan/a", b"mine")
        assert store.read("_lakeplan/a") == b"mine"
        with pytest.raises(WriteConflict):
            store.create("_lakeplan/a", b"mine")

    def it_fails_a_copy_that_cannot_be_finished_and_keeps_the_source(
        self, store: SweepStore, faulty: FaultyStore
    ) -> None:
        faulty.arm(Rule(Answer(503, SLOW_DOWN), method="PUT"))
        with pytest.raises(StoreBusy):
            store.copy("data/00", "q/00")
        faulty.clear()
        assert keys_of(store) == set(KEYS)


class DescribeAzureOnABadDay:
    @pytest.fixture
    def faulty(self, azurite: str) -> Iterator[FaultyStore]:
        with FaultyStore(azurite) as proxy:
            yield proxy

    @pytest.fixture
    def store(self, azure_container: str, faulty: FaultyStore) -> SweepStore:
        name = azure_container.rpartition("/")[2]
        account, _, _ = azure_container.rpartition("/")
        with ContainerClient(account, name, credential=os.environ["AZURE_STORAGE_KEY"]) as client:
            for key in KEYS:
                client.upload_blob(f"repo/{key}", b"1")
        return open_sweep_store(f"{faulty.url}/{name}/repo")

    def it_hears_at_once_that_the_store_is_busy(self, store: SweepStore, faulty: FaultyStore) -> None:
        faulty.arm(Rule(Answer(503, "", {"x-ms-error-code": "ServerBusy"}), method="POST", times=1))
        with pytest.raises(StoreBusy):
            store.delete(KEYS, versions=Versions.ALL)
        assert len(faulty.seen) == 1
        assert store.delete(KEYS, versions=Versions.ALL) == [Deletion(key) for key in KEYS]

    @pytest.mark.parametrize("action", [Cut(asked=False), Cut(sent=0), Cut(sent=900), Delay(2.5)])
    def it_knows_nothing_of_a_batch_whose_answer_is_lost(
        self, store: SweepStore, faulty: FaultyStore, action: Cut | Delay
    ) -> None:
        faulty.arm(Rule(action, method="POST", times=1))
        # only a late answer is given up early: a machine with much to do answers everything late
        hasty = open_sweep_store(store.url, read_seconds=1)
        with pytest.raises(StoreBusy):
            (hasty if isinstance(action, Delay) else store).delete(KEYS, versions=Versions.MARKER)
        assert store.delete(KEYS, versions=Versions.MARKER) == [Deletion(key) for key in KEYS]
        assert keys_of(store) == set()

    @pytest.mark.parametrize("sent", [0, 1, 300])
    def it_never_takes_a_broken_listing_for_a_whole_one(
        self, store: SweepStore, faulty: FaultyStore, sent: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakeplan.stores.azure_client.RETRIES", {"retry_total": 0})
        faulty.arm(Rule(Cut(sent=sent), method="GET"))
        with pytest.raises(StorageError):
            list(store.list_objects())
        with pytest.raises(StorageError):
            store.facts()
        faulty.clear()
        faulty.arm(Rule(Cut(sent=0), method="GET"))
        with pytest.raises(StorageError):
            store.read(KEYS[0])

    @pytest.mark.parametrize(
        "name", ["elsewhere/data/00", "repo/data/00"], ids=["outside the prefix", "without its size"]
    )
    def it_says_that_a_listing_is_damaged(self, store: SweepStore, faulty: FaultyStore, name: str) -> None:
        blob = f"<Blob><Name>{name}</Name><Properties><BlobType>BlockBlob</BlobType></Properties></Blob>"
        page = f"<EnumerationResults><Blobs>{blob}</Blobs></EnumerationResults>"
        faulty.arm(Rule(Answer(200, page, {"Content-Type": "application/xml"}), method="GET"))
        with pytest.raises(StoreBusy, match="damaged"):
            list(store.list_objects("data/"))
        faulty.clear()
        faulty.arm(Rule(Answer(200, "<html>Sign in</html>", {"Content-Type": "text/html"}), method="GET"))
        for request in (lambda: list(store.list_objects()), lambda: store.read(KEYS[0])):
            with pytest.raises(StoreBusy, match="damaged"):
                request()

    def it_takes_no_answer_to_another_request(
        self, store: SweepStore, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A proxy may swap answers, or send one again that it kept."""
        monkeypatch.setattr("lakeplan.stores.azure_client.RETRIES", {"retry_total": 0})
        other = {"x-ms-client-request-id": "cbf5bd1e-0000-11f1-864a-02fc00000001", "ETag": '"0x1"'}
        gone = other | {"x-ms-error-code": "BlobNotFound"}
        faulty.arm(Rule(Answer(201, "", other), method="PUT"))
        faulty.arm(Rule(Answer(404, "", gone), method="GET"), Rule(Answer(404, "", gone), method="HEAD"))
        for request in (
            lambda: store.create("_lakeplan/a", b"mine"),
            lambda: store.put("_lakeplan/a", b"mine"),
            lambda: store.is_gone(KEYS[0]),
            lambda: store.stat(KEYS[0]),
        ):
            with pytest.raises(StoreBusy, match="damaged"):
                request()

    @pytest.mark.parametrize("change", ["{}", "{}, {}", ""])
    def it_takes_an_answer_whose_request_id_a_proxy_wrote_otherwise(self, change: str) -> None:
        sent = "cbf5bd1e-0000-11f1-864a-02fc00000001"
        request = SimpleNamespace(headers={"x-ms-client-request-id": sent})
        headers = {"x-ms-client-request-id": change.format(sent.upper(), sent)}
        _check_request_id(SimpleNamespace(headers=headers, request=request))

    def it_knows_its_own_deletion_of_a_record_when_the_answer_was_lost(
        self, store: SweepStore, faulty: FaultyStore
    ) -> None:
        state = open_state(store.url)
        version = state.write("a", b"1", if_version=None)
        faulty.arm(Rule(Cut(sent=None), method="DELETE", times=1))
        state.delete("a", if_version=version)
        assert state.read("a") is None
        with pytest.raises(WriteConflict):
            state.delete("a", if_version=version)
        version = state.write("a", b"of another", if_version=None)
        faulty.arm(Rule(Answer(503, "", {"x-ms-error-code": "ServerBusy"}), method="DELETE", times=1))
        with pytest.raises(WriteConflict):
            state.delete("a", if_version='"0x1"')
        assert state.read("a") is not None

    def it_matches_answers_by_their_numbers(self, store: SweepStore, faulty: FaultyStore) -> None:
        faulty.arm(Rule(Answer(202, parts([(1, 409, "LeaseIdMissing"), (2, 202, ""), (0, 503, "ServerBusy")]),
                               {"Content-Type": "multipart/mixed; boundary=b"}), method="POST"))  # fmt: skip
        assert store.delete(KEYS[:4], versions=Versions.MARKER) == [
            Deletion(
                KEYS[0], "ServerBusy: the storage is overloaded or temporarily unavailable", transient=True
            ),
            Deletion(KEYS[1], "LeaseIdMissing: the blob is leased"),
            Deletion(KEYS[2]),
            Deletion(
                KEYS[3], "the response does not list this key, so the object may still exist", transient=True
            ),
        ]

    @pytest.mark.parametrize("number", ["4", "-1", "x", "9" * 5_000])
    def it_takes_an_answer_of_another_number_for_none(
        self, store: SweepStore, faulty: FaultyStore, number: str
    ) -> None:
        faulty.arm(Rule(Answer(202, parts([(number, 202, "")]),
                               {"Content-Type": "multipart/mixed; boundary=b"}), method="POST"))  # fmt: skip
        (answer,) = store.delete(KEYS[:1], versions=Versions.MARKER)
        assert not answer.deleted
        assert KEYS[0] in keys_of(store)

    def it_takes_one_answer_for_all_as_a_refusal(self, store: SweepStore, faulty: FaultyStore) -> None:
        faulty.arm(Rule(Answer(202, parts([(None, 503, "ServerBusy")]),
                               {"Content-Type": "multipart/mixed; boundary=b"}), method="POST"))  # fmt: skip
        with pytest.raises(StoreBusy):
            store.delete(KEYS, versions=Versions.MARKER)
        assert keys_of(store) == set(KEYS)

    def it_does_not_believe_a_proxy_that_a_blob_is_gone(self, store: SweepStore, faulty: FaultyStore) -> None:
        faulty.arm(Rule(Answer(404, "<html>not here</html>"), method="GET"))
        for request in (store.is_gone, store.read):
            with pytest.raises(StorageError, match="does not say whether"):
                request(KEYS[0])


def parts(answers: Sequence[tuple[int | str | None, int, str]]) -> str:
    text = ""
    for number, status, code in answers:
        text += "--b\r\nContent-Type: application/http\r\n"
        text += "" if number is None else f"Content-ID: {number}\r\n"
        text += f"\r\nHTTP/1.1 {status} words\r\nx-ms-error-code: {code}\r\n\r\n"
    return text + "--b--\r\n"
