"""What S3 is asked to delete, and what its answers mean, by a client in memory; test_s3_store asks moto."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from lakeplan import limits
from lakeplan.errors import StorageDenied, StorageError, StorageNotFound, StoreBusy, WriteConflict
from lakeplan.stores import s3
from lakeplan.stores.open import Access, S3Location, open_sweep_store
from lakeplan.stores.shared import CHANGED, NOT_NAMED, TOO_MANY_VERSIONS, UNLISTED
from lakeplan.values.repository import StoredObject
from lakeplan.values.sweep import Deletion, Versions

T0 = datetime(2026, 3, 1, tzinfo=timezone.utc)
LOCKED = "Access Denied because object protected by object lock."
BUSY = "InternalError: the storage is overloaded or temporarily unavailable"


def error(code: str, status: int = 400, message: str = "", operation: str = "AnOperation") -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, operation)


class Bucket:
    """A client of a bucket that has the versions of some keys, newest first. ``status`` is that of its
    versioning, or the error of asking for it. ``answers`` are those to the next batches, ``alone`` the errors
    of deletions of one key, and the listing omits ``hidden`` keys."""

    def __init__(self) -> None:
        self.status: str | ClientError = "Enabled"
        self.listed: ClientError | None = None
        self.entries: list[dict[str, Any]] = []
        self.page = 100
        self.answers: list[dict[str, Any] | Exception] = []
        self.alone: dict[str, list[Exception]] = {}
        self.batches: list[list[dict[str, str]]] = []
        self.singles: list[dict[str, str]] = []
        self.hidden: set[str] = set()
        self.bodies: dict[str, Any] = {}

    def put(
        self, key: str, id: str, age: float = 0, *, size: int = 1, tag: str = "", marker: bool = False
    ) -> None:
        """A version that is so many minutes older than ``T0``."""
        latest = all(one["Key"] != f"repo/{key}" for one in self.entries)
        entry = {
            "Key": f"repo/{key}",
            "VersionId": id,
            "IsLatest": latest,
            "LastModified": T0 - timedelta(minutes=age),
        }
        if not marker:
            entry |= {"Size": size, "ETag": tag or f'"{id}"'}
        self.entries.append(entry)
        self.entries.sort(key=lambda one: str(one["Key"]))

    def expected(self, key: str) -> StoredObject:
        return next(self.stored(one) for one in self.entries if one["Key"] == f"repo/{key}" and "Size" in one)

    def stored(self, one: dict[str, Any]) -> StoredObject:
        us = int(one["LastModified"].timestamp() * 1_000_000)
        return StoredObject(one["Key"].removeprefix("repo/"), one["Size"], us, one["ETag"])

    def left(self) -> list[tuple[str, str]]:
        return [(one["Key"].removeprefix("repo/"), one["VersionId"]) for one in self.entries]

    # ---- what the store calls
    def get(self) -> Bucket:
        return self

    def get_bucket_versioning(self, *, Bucket: str) -> dict[str, Any]:
        assert Bucket == "bucket"
        if isinstance(self.status, ClientError):
            raise self.status
        return {"Status": self.status} if self.status else {}

    def list_object_versions(self, *, Bucket: str, MaxKeys: int) -> dict[str, Any]:
        assert (Bucket, MaxKeys) == ("bucket", 1)
        if self.listed is not None:
            raise self.listed
        return {}

    def get_paginator(self, operation: str) -> Bucket:
        assert operation == "list_object_versions"
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> Iterator[dict[str, Any]]:
        assert Bucket == "bucket"
        found = [
            one for one in self.entries if one["Key"].startswith(Prefix) and one["Key"] not in self.hidden
        ]
        for at in range(0, len(found) or 1, self.page):
            some = found[at : at + self.page]
            page = {"IsTruncated": at + self.page < len(found)}
            for name, is_marker in (("Versions", False), ("DeleteMarkers", True)):
                if of_kind := [one for one in some if ("Size" not in one) is is_marker]:
                    page[name] = of_kind
            yield page

    def remove(self, one: Mapping[str, str]) -> None:
        id = one.get("VersionId")
        of_key = [entry for entry in self.entries if entry["Key"] == one["Key"]]
        gone = [entry for entry in of_key if entry["VersionId"] == id or (id is None and entry["IsLatest"])]
        self.entries = [entry for entry in self.entries if entry not in gone]

    def delete_objects(self, *, Bucket: str, Delete: dict[str, Any]) -> dict[str, Any]:
        assert (Bucket, Delete["Quiet"]) == ("bucket", False)
        self.batches.append(Delete["Objects"])
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        for one in Delete["Objects"]:
            self.remove(one)
        named = [
            {name: one[name] for name in ("Key", "VersionId") if name in one} for one in Delete["Objects"]
        ]
        return {"Deleted": named}

    def delete_object(self, *, Bucket: str, **one: str) -> dict[str, Any]:
        assert Bucket == "bucket"
        self.singles.append(one)
        if self.alone.get(one["Key"]):
            raise self.alone[one["Key"]].pop(0)
        self.remove(one)
        return {}

    def head_object(self, *, Bucket: str, Key: str, **more: str) -> dict[str, Any]:
        for one in self.entries:
            if one["Key"] == Key and one["IsLatest"] and "Size" in one:
                return {**one, "ContentLength": one["Size"]}
        raise error("404", 404, operation="HeadObject")

    def get_object(self, *, Bucket: str, Key: str, Range: str) -> dict[str, Any]:
        assert (Bucket, Range) == ("bucket", "bytes=0-0")
        answer = self.bodies.get(Key, error("NoSuchKey", 404))
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


Delete = Callable[..., list[Deletion]]


@pytest.fixture
def store(bucket: Bucket) -> Any:
    made: Any = open_sweep_store("s3://bucket/repo")
    made._client = made._once = bucket
    return made


@pytest.fixture
def delete(store: Any) -> Delete:
    def delete(*keys: str, versions: Versions = Versions.ALL, **expected: StoredObject) -> list[Deletion]:
        given = {f"data/{name}": stored for name, stored in expected.items()}
        answers: list[Deletion] = store.delete([f"data/{k}" for k in keys], versions=versions, expected=given)
        return answers

    return delete


def failed(name: str, reason: str, **more: bool) -> Deletion:
    return Deletion(f"data/{name}", reason, **more)


def deleted(*names: str) -> list[Deletion]:
    return [Deletion(f"data/{name}") for name in names]


A, B = {"Key": "repo/data/a"}, {"Key": "repo/data/b"}


class DescribeVersions:
    @pytest.fixture(autouse=True)
    def stored(self, bucket: Bucket) -> None:
        """``a`` has three versions and a marker between them; another key begins with it."""
        bucket.put("data/a", "3", 1)
        bucket.put("data/a", "m", 2, marker=True)
        bucket.put("data/a", "2", 3)
        bucket.put("data/a", "1", 4)
        bucket.put("data/ab", "9", 0)
        bucket.put("data/b", "8", 0)

    OTHERS = (("data/ab", "9"), ("data/b", "8"))

    @pytest.mark.parametrize("page", [1, 2, 3, 100])
    def it_deletes_all_of_exactly_that_key_the_current_one_last(
        self, bucket: Bucket, delete: Delete, page: int
    ) -> None:
        bucket.page = page
        assert delete("a", a=bucket.expected("data/a")) == deleted("a")
        assert bucket.left() == [*self.OTHERS]
        older, current = bucket.batches
        assert sorted(one["VersionId"] for one in older) == ["1", "2", "m"]
        assert current == [{"Key": "repo/data/a", "VersionId": "3"}]

    def it_deletes_the_current_one_only_where_it_is_told_so(self, bucket: Bucket, delete: Delete) -> None:
        assert delete("a", "b", versions=Versions.MARKER) == deleted("a", "b")
        assert bucket.batches == [[{"Key": "repo/data/a"}, {"Key": "repo/data/b"}]]

    def it_asks_for_so_many_in_one_request(
        self, bucket: Bucket, delete: Delete, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(s3, "BATCH", 2)
        assert delete("a") == deleted("a")
        assert [len(batch) for batch in bucket.batches] == [2, 1, 1]

    def it_reads_no_listing_to_its_end(
        self, bucket: Bucket, delete: Delete, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of the many keys that begin with this one."""
        bucket.page = 5
        pages: list[Any] = []
        paginate = bucket.paginate

        def count(**where: str) -> Iterator[Any]:
            for page in paginate(**where):
                pages.append(page)
                yield page

        for n in range(9):
            bucket.put(f"data/a{n}", "1")
        monkeypatch.setattr(bucket, "paginate", count)
        assert delete("a") == deleted("a")
        assert len(pages) == 1

    @pytest.mark.parametrize(
        "change",
        [
            {"modified_us": -1},
            {"modified_us": -60_000_000},
            {"size": 1},
            {"e_tag": "other"},
            {"modified_us": 60_000_000, "size": 1},
        ],
    )
    def it_deletes_none_of_a_key_that_has_another_object(
        self, bucket: Bucket, delete: Delete, change: dict[str, Any]
    ) -> None:
        now = bucket.expected("data/a")
        fields = {"size": now.size, "modified_us": now.modified_us, "e_tag": now.e_tag}
        old = {name: fields[name] + value for name, value in change.items()}
        before = StoredObject("data/a", **{**fields, **old})
        assert delete("a", "b", a=before) == [failed("a", CHANGED, changed=True), *deleted("b")]
        assert ("data/a", "1") in bucket.left()

    def it_deletes_a_key_whose_current_version_is_a_marker(self, bucket: Bucket, delete: Delete) -> None:
        bucket.put("data/d", "m", 0, marker=True)
        bucket.put("data/d", "1", 1)
        assert delete("d", d=bucket.expected("data/d")) == deleted("d")
        assert [one["VersionId"] for one in bucket.batches[-1]] == ["m"]

    def it_deletes_older_objects_of_the_same_content(self, bucket: Bucket, delete: Delete) -> None:
        for id in ("3", "2"):
            bucket.put("data/d", id, 9 - int(id), tag="same")
        assert delete("d", d=bucket.expected("data/d")) == deleted("d")

    def it_deletes_an_object_of_the_same_moment_only_if_it_is_the_same(
        self, bucket: Bucket, delete: Delete
    ) -> None:
        bucket.put("data/d", "2", 1)
        bucket.put("data/d", "1", 1, tag='"2"')
        assert delete("d", d=bucket.expected("data/d")) == deleted("d")
        bucket.put("data/e", "2", 1)
        bucket.put("data/e", "1", 1)
        assert delete("e", e=bucket.expected("data/e")) == [failed("e", CHANGED, changed=True)]

    def it_reports_an_object_that_the_listing_omits(self, bucket: Bucket, delete: Delete) -> None:
        now = bucket.expected("data/a")
        bucket.hidden = {"repo/data/a"}
        assert delete("a") == delete("a", a=now) == [failed("a", UNLISTED)]
        assert bucket.batches == []
        bucket.entries.clear()
        assert delete("a", a=now) == deleted("a")

    def it_reports_an_object_of_which_the_listing_has_only_older_versions(
        self, bucket: Bucket, delete: Delete, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = bucket.expected("data/a")
        older = [one for one in bucket.entries if one["VersionId"] in "12"]
        monkeypatch.setattr(
            bucket, "paginate", lambda **_: iter([{"Versions": older[:1]}, {"Versions": older[1:]}])
        )
        assert delete("a", a=now) == [failed("a", UNLISTED)]
        monkeypatch.setattr(bucket, "paginate", lambda **_: iter([{"Versions": older}]))
        assert delete("a") == deleted("a"), "nothing is expected there"

    @pytest.mark.parametrize(
        ("why", "reason", "transient"),
        [
            (error("SlowDown", 503), "the storage is overloaded or temporarily unavailable", True),
            (error("AccessDenied", 403), "the storage refused access", False),
        ],
    )
    def it_fails_a_key_of_which_the_store_does_not_say_whether_it_exists(
        self,
        bucket: Bucket,
        delete: Delete,
        monkeypatch: pytest.MonkeyPatch,
        why: ClientError,
        reason: str,
        transient: bool,
    ) -> None:
        def fail(**_: str) -> None:
            raise why

        monkeypatch.setattr(bucket, "head_object", fail)
        assert delete("none", "b") == [failed("none", reason, transient=transient), *deleted("b")]

    def it_fails_a_key_with_too_many(
        self, bucket: Bucket, delete: Delete, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bucket.page = 1
        monkeypatch.setattr(limits, "STORE_VERSIONS", 3)
        assert delete("a") == deleted("a")
        for n in range(5):
            bucket.put("data/d", str(n), n)
        assert delete("d") == [failed("d", TOO_MANY_VERSIONS)]
        assert len([key for key, _ in bucket.left() if key == "data/d"]) == 5

    def it_keeps_the_current_one_while_an_older_one_cannot_be_deleted(
        self, bucket: Bucket, delete: Delete
    ) -> None:
        ids = [{"Key": "repo/data/a", "VersionId": id} for id in ("m", "1")]
        bad = {"Key": "repo/data/a", "VersionId": "2", "Code": "AccessDenied", "Message": LOCKED}
        bucket.answers = [{"Deleted": ids, "Errors": [bad]}]
        reason = "2 of 4 versions were not deleted: AccessDenied: the object is locked"
        assert delete("a", "b") == [failed("a", reason), *deleted("b")]
        assert bucket.batches[1] == [{"Key": "repo/data/b", "VersionId": "8"}]

    def it_says_how_many_failed_and_whether_to_try_again(self, bucket: Bucket, delete: Delete) -> None:
        names = [{"Key": "repo/data/a", "VersionId": id} for id in "2m1"]
        bad = [
            {**one, "Code": code}
            for one, code in zip(names, ("InternalError", "SlowDown", "Odd"), strict=True)
        ]
        bucket.answers = [{"Errors": bad[:2], "Deleted": names[2:]}]
        assert delete("a") == [failed("a", f"3 of 4 versions were not deleted: {BUSY}", transient=True)]
        bucket.answers = [{"Errors": bad}]
        assert delete("a") == [failed("a", f"4 of 4 versions were not deleted: {BUSY}")]
        bucket.answers = [
            {"Deleted": names},
            {"Errors": [{"Key": "repo/data/a", "VersionId": "3", "Code": "Odd"}]},
        ]
        assert delete("a") == [failed("a", "1 of 4 versions were not deleted: Odd")]
        bucket.answers = [{"Errors": [{"Key": "repo/data/b", "VersionId": "8", "Code": "Odd"}]}]
        assert delete("b") == [failed("b", "Odd")]

    def it_counts_failures_of_every_request(
        self, bucket: Bucket, delete: Delete, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(s3, "BATCH", 1)
        bucket.put("data/c", "7", 0)
        bucket.answers = [
            {"Errors": [{"Key": f"repo/data/{n}", "VersionId": id, "Code": "Odd"}]} for n, id in ("b8", "c7")
        ]
        assert delete("b", "c", "ab") == [failed("b", "Odd"), failed("c", "Odd"), *deleted("ab")]

    def it_takes_no_damaged_entry_of_the_listing(self, bucket: Bucket, delete: Delete) -> None:
        del bucket.entries[0]["LastModified"]
        with pytest.raises(StoreBusy, match="incomplete or damaged") as caught:
            delete("a", "b")
        assert caught.value.where == "s3://bucket/repo"
        assert bucket.batches == []


class DescribeWhetherVersionsAreKept:
    @pytest.fixture(autouse=True)
    def stored(self, bucket: Bucket) -> None:
        bucket.put("data/a", "2")
        bucket.put("data/a", "1", 1)

    @pytest.mark.parametrize(
        ("status", "listed", "kept"),
        [
            ("Enabled", None, True),
            ("Suspended", None, True),
            ("", None, False),
            (error("AccessDenied", 403), None, True),
            (error("NotImplemented", 501), None, True),
            (error("NotImplemented", 501), error("NotImplemented", 501), False),
        ],
    )
    def it_is_asked_before_each_batch(
        self, bucket: Bucket, delete: Delete, status: Any, listed: Any, kept: bool
    ) -> None:
        bucket.status, bucket.listed = status, listed
        assert delete("a") == deleted("a")
        assert len(bucket.left()) == (0 if kept else 1)

    @pytest.mark.parametrize(
        ("status", "listed"),
        [(error("SlowDown", 503), None), (error("NotImplemented", 501), error("SlowDown", 503))],
    )
    def it_is_not_guessed(self, bucket: Bucket, delete: Delete, status: Any, listed: Any) -> None:
        bucket.status, bucket.listed = status, listed
        with pytest.raises(StoreBusy) as caught:
            delete("a")
        assert caught.value.where == "s3://bucket/repo"
        assert bucket.batches == []


class DescribeConditions:
    @pytest.fixture(autouse=True)
    def stored(self, bucket: Bucket) -> None:
        bucket.put("data/a", "null", tag='"t"')
        bucket.status = ""

    KEY = "repo/data/a"

    def it_is_that_the_object_is_the_expected_one(self, bucket: Bucket, delete: Delete) -> None:
        bucket.put("data/b", "null")
        assert delete("a", "b", "c", a=bucket.expected("data/a")) == deleted("a", "b", "c")
        (batch,) = bucket.batches
        assert batch == [{"Key": self.KEY, "ETag": '"t"'}, {"Key": "repo/data/b"}, {"Key": "repo/data/c"}]

    def it_is_also_for_a_version_that_a_put_replaces(self, bucket: Bucket, delete: Delete) -> None:
        bucket.status = "Suspended"
        bucket.put("data/a", "1", 1)
        assert delete("a", a=bucket.expected("data/a")) == deleted("a")
        assert bucket.batches == [
            [{"Key": self.KEY, "VersionId": "1"}],
            [{"Key": self.KEY, "VersionId": "null", "ETag": '"t"'}],
        ]

    def it_is_not_for_older_versions(self, bucket: Bucket, delete: Delete) -> None:
        """Nor for the one that a put would replace, if another is the current one."""
        bucket.status = "Enabled"
        bucket.entries.clear()
        bucket.put("data/a", "2")
        bucket.put("data/a", "null", 1)
        assert delete("a", a=bucket.expected("data/a")) == deleted("a")
        assert bucket.batches == [
            [{"Key": self.KEY, "VersionId": "null"}],
            [{"Key": self.KEY, "VersionId": "2"}],
        ]

    def it_is_not_met_if_another_object_is_there(self, bucket: Bucket, delete: Delete) -> None:
        bucket.answers = [{"Errors": [{"Key": self.KEY, "Code": "PreconditionFailed"}]}]
        assert delete("a", a=bucket.expected("data/a")) == [failed("a", CHANGED, changed=True)]

    @pytest.mark.parametrize("code", ["MalformedXML", "NotImplemented"])
    @pytest.mark.parametrize("whole", [True, False])
    def it_is_left_out_where_the_store_knows_none(
        self, bucket: Bucket, delete: Delete, code: str, whole: bool
    ) -> None:
        now = bucket.expected("data/a")
        bucket.answers = [error(code) if whole else {"Errors": [{"Key": self.KEY, "Code": code}]}]
        assert delete("a", a=now) == deleted("a")
        assert bucket.left() == []
        assert delete("a", a=now) == deleted("a")
        assert [["ETag" in one for one in batch] for batch in bucket.batches] == [[True], [False], [False]]

    def it_is_left_out_only_of_what_may_still_fail(self, bucket: Bucket, delete: Delete) -> None:
        bucket.put("data/b", "null")
        bucket.answers = [error("NotImplemented"), {"Errors": [{**A, "Code": "Odd"}], "Deleted": [B]}]
        assert delete("a", "b", a=bucket.expected("data/a")) == [failed("a", "Odd"), *deleted("b")]

    def it_is_no_reason_where_there_was_none(self, bucket: Bucket, delete: Delete) -> None:
        bucket.answers = [error("MalformedXML")]
        with pytest.raises(StorageError, match="settings"):
            delete("a")
        bucket.answers = [{"Errors": [{"Key": self.KEY, "Code": "NotImplemented"}]}]
        assert not delete("a")[0].deleted
        bucket.answers = [error("Odd", 418)]
        with pytest.raises(StorageError, match="Odd"):
            delete("a", a=bucket.expected("data/a"))

    def it_is_given_also_for_a_key_that_no_batch_can_name(self, bucket: Bucket, delete: Delete) -> None:
        key = "\x01"
        bucket.put(f"data/{key}", "null", tag='"u"')
        now = bucket.expected(f"data/{key}")
        assert delete(key, "a", **{key: now}) == deleted(key, "a")
        assert bucket.singles == [{"Key": f"repo/data/{key}", "IfMatch": '"u"'}]
        assert bucket.batches == [[{"Key": self.KEY}]]
        bucket.alone = {f"repo/data/{key}": [error("NotImplemented", 501)]}
        assert delete(key, **{key: now}) == deleted(key)
        assert bucket.singles[1:] == [
            {"Key": f"repo/data/{key}", "IfMatch": '"u"'},
            {"Key": f"repo/data/{key}"},
        ]


class DescribeKeysThatNoBatchCanName:
    @pytest.fixture(autouse=True)
    def stored(self, bucket: Bucket) -> None:
        bucket.status = ""
        for name in ("a\x01", "a ", "b"):
            bucket.put(f"data/{name}", "null")

    @pytest.mark.parametrize("name", ["a\x01", "a "])
    def it_deletes_each_alone(self, bucket: Bucket, delete: Delete, name: str) -> None:
        assert delete(name, "b") == deleted(name, "b")
        assert bucket.singles == [{"Key": f"repo/data/{name}"}]

    def it_deletes_a_version_alone(self, bucket: Bucket, delete: Delete) -> None:
        bucket.status = "Enabled"
        bucket.put("data/v\x01", "2")
        bucket.put("data/v\x01", "1", 1)
        assert delete("v\x01") == deleted("v\x01")
        assert bucket.singles == [{"Key": "repo/data/v\x01", "VersionId": id} for id in ("1", "2")]

    @pytest.mark.parametrize(
        ("why", "expected"),
        [
            (error("PreconditionFailed", 412), failed("a ", CHANGED, changed=True)),
            (
                error("SlowDown", 503),
                failed("a ", "the storage is overloaded or temporarily unavailable", transient=True),
            ),
            (error("AccessDenied", 403, LOCKED), failed("a ", "AccessDenied: the object is locked")),
            (error("AccessDenied", 403), failed("a ", "AccessDenied: the storage refused access")),
        ],
    )
    def it_fails_one_alone(
        self, bucket: Bucket, delete: Delete, why: ClientError, expected: Deletion
    ) -> None:
        bucket.alone = {"repo/data/a ": [why]}
        assert delete("a ", "a\x01", "b") == [expected, *deleted("a\x01", "b")]

    @pytest.mark.parametrize("code", ["ExpiredToken", "NotImplemented", "NoSuchBucket"])
    def it_fails_the_batch_by_what_is_wrong_for_all(self, bucket: Bucket, delete: Delete, code: str) -> None:
        bucket.alone = {"repo/data/a ": [error(code)]}
        with pytest.raises(StorageError) as caught:
            delete("a ")
        assert caught.value.where == "s3://bucket/repo"


class DescribeAnswers:
    @pytest.fixture(autouse=True)
    def stored(self, bucket: Bucket) -> None:
        bucket.status = ""
        for name in "ab":
            bucket.put(f"data/{name}", "null")

    def it_takes_silence_for_a_failure(self, bucket: Bucket, delete: Delete) -> None:
        bucket.answers = [{"Deleted": [A]}]
        assert delete("a", "b") == [*deleted("a"), failed("b", NOT_NAMED, transient=True)]

    @pytest.mark.parametrize("answer", [{}, {"Deleted": [], "Errors": []}])
    def it_takes_no_answer_that_lists_nothing(
        self, bucket: Bucket, delete: Delete, answer: dict[str, Any]
    ) -> None:
        bucket.answers = [answer]
        with pytest.raises(StoreBusy, match="incomplete or damaged"):
            delete("a")

    def it_takes_no_other_key_for_a_deleted_one(self, bucket: Bucket, delete: Delete) -> None:
        bucket.answers = [{"Deleted": [{"Key": "repo/data/x"}, {"Key": "data/a"}, B]}]
        assert [one.deleted for one in delete("a", "b")] == [False, True]

    @pytest.mark.parametrize("id", ["VersionId", "DeleteMarkerVersionId"])
    def it_takes_a_named_version_for_the_current_one_that_it_asked_for(
        self, bucket: Bucket, delete: Delete, id: str
    ) -> None:
        bucket.answers = [{"Deleted": [{**A, id: "new"}]}]
        assert delete("a") == deleted("a")

    def it_counts_a_key_that_is_named_twice_as_failed(self, bucket: Bucket, delete: Delete) -> None:
        bucket.answers = [{"Deleted": [A, A, B], "Errors": [{**A, "Code": "InternalError"}]}]
        assert delete("a", "b") == [failed("a", BUSY, transient=True), *deleted("b")]

    @pytest.mark.parametrize("code", ["NoSuchKey", "NoSuchVersion"])
    def it_counts_what_is_gone_as_deleted(self, bucket: Bucket, delete: Delete, code: str) -> None:
        bucket.answers = [{"Deleted": [B], "Errors": [{**A, "Code": code}, {**B, "Code": code}]}]
        assert delete("a", "b") == deleted("a", "b")

    @pytest.mark.parametrize(
        ("entry", "expected"),
        [
            ({"Code": "AccessDenied"}, failed("a", "AccessDenied: the storage refused access")),
            ({"Code": "AccessDenied", "Message": "WORM"}, failed("a", "AccessDenied: the object is locked")),
            (
                {"Code": "ConditionalRequestConflict"},
                failed(
                    "a",
                    "ConditionalRequestConflict: another process changed the object first",
                    transient=True,
                ),
            ),
            ({"Code": "token=secret", "Message": "secret"}, failed("a", "no reason given")),
            ({"Code": "Odd", "Message": "a secret"}, failed("a", "Odd")),
        ],
    )
    def it_says_why_without_the_text_of_the_store(
        self, bucket: Bucket, delete: Delete, entry: dict[str, str], expected: Deletion
    ) -> None:
        bucket.answers = [{"Errors": [{**A, **entry}]}]
        assert delete("a") == [expected]

    def it_deletes_one_by_one_where_a_locked_one_makes_the_store_refuse_all(
        self, bucket: Bucket, delete: Delete
    ) -> None:
        bucket.answers = [error("AccessDenied", 403, LOCKED)]
        bucket.alone = {"repo/data/a": [error("AccessDenied", 403, LOCKED)]}
        assert delete("a", "b", b=bucket.expected("data/b")) == [
            failed("a", "AccessDenied: the object is locked"),
            *deleted("b"),
        ]
        assert bucket.singles == [A, {**B, "IfMatch": '"null"'}]
        bucket.answers = [error("AccessDenied", 403)]
        with pytest.raises(StorageDenied):
            delete("a")

    def it_knows_nothing_of_a_batch_without_an_answer(self, bucket: Bucket, delete: Delete) -> None:
        bucket.answers = [EndpointConnectionError(endpoint_url="http://x")]
        with pytest.raises(StoreBusy) as caught:
            delete("a")
        assert caught.value.where == "s3://bucket/repo"


class DescribeNamesInAnswers:
    """Of several versions of one key, an answer without an id may mean any."""

    @pytest.fixture(autouse=True)
    def stored(self, bucket: Bucket) -> None:
        for id in "321":
            bucket.put("data/a", id, 9 - int(id))
        bucket.put("data/b", "8", 1)
        bucket.put("data/b", "7", 2)

    def it_counts_none_of_several_as_deleted(self, bucket: Bucket, delete: Delete) -> None:
        bucket.answers = [{"Deleted": [A, A]}]
        (answer,) = delete("a")
        assert answer == failed("a", f"3 of 3 versions were not deleted: {NOT_NAMED}", transient=True)

    def it_counts_each_of_several_as_failed(self, bucket: Bucket, delete: Delete) -> None:
        ids = [{**A, "VersionId": id} for id in "12"]
        bucket.answers = [{"Deleted": ids, "Errors": [{**A, "Code": "Odd"}]}]
        assert delete("a") == [failed("a", "3 of 3 versions were not deleted: Odd")]
        bucket.answers = [{"Deleted": ids, "Errors": [{**A, "Code": "NoSuchKey"}]}]
        assert not delete("a")[0].deleted

    def it_takes_a_key_for_its_only_version(self, bucket: Bucket, delete: Delete) -> None:
        b = {"Key": "repo/data/b"}
        bucket.answers = [{"Deleted": [b]}, {"Deleted": [b]}]
        assert delete("b") == deleted("b")

    def it_takes_the_id_of_a_marker_for_its_version(self, bucket: Bucket, delete: Delete) -> None:
        for n, id in enumerate("zyx"):
            bucket.put("data/m", id, n, marker=True)
        m = {"Key": "repo/data/m"}
        both = {**m, "VersionId": "y", "DeleteMarkerVersionId": "y"}
        bucket.answers = [{"Deleted": [{**m, "DeleteMarkerVersionId": "x"}, both]}]
        assert delete("m") == deleted("m")

    def it_takes_no_other_version_for_the_one_it_asked_for(self, bucket: Bucket, delete: Delete) -> None:
        b = {"Key": "repo/data/b", "VersionId": "6"}
        bucket.answers = [{"Deleted": [b]}]
        assert delete("b") == [failed("b", f"2 of 2 versions were not deleted: {NOT_NAMED}", transient=True)]


class DescribeWhatIsThere:
    @pytest.mark.parametrize(
        ("answer", "gone"),
        [
            ({"Body": io.BytesIO(b"x")}, False),
            (error("NoSuchKey", 404), True),
            (error("InvalidRange", 416), False),
            (error("InvalidObjectState", 403), False),
        ],
    )
    def it_is_gone_only_if_the_store_says_so(
        self, bucket: Bucket, store: Any, answer: Any, gone: bool
    ) -> None:
        bucket.bodies = {"repo/data/a": answer}
        assert store.is_gone("data/a") is gone
        if not gone:
            with pytest.raises(WriteConflict):
                store.create("data/a", b"")

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            (error("404", 404), StorageError),
            (error("AccessDenied", 403), StorageDenied),
            (ClientError({}, "GetObject"), StorageError),
            (EndpointConnectionError(endpoint_url="http://x"), StoreBusy),
            ({}, StoreBusy),
        ],
    )
    def it_is_not_known_otherwise(
        self, bucket: Bucket, store: Any, answer: Any, expected: type[StorageError]
    ) -> None:
        bucket.bodies = {"repo/data/a": answer}
        with pytest.raises(expected) as caught:
            store.is_gone("data/a")
        assert caught.value.where == "s3://bucket/repo/data/a"

    def it_has_a_description(self, bucket: Bucket, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        bucket.put("data/a", "1")
        assert store.stat("data/a") == bucket.expected("data/a")
        assert store.stat("data/b") is None
        bucket.bodies = {"repo/data/b": {"Body": io.BytesIO(b"x")}}
        with pytest.raises(StorageNotFound) as caught:
            store.stat("data/b")
        assert caught.value.where == "s3://bucket/repo/data/b"


def it_sends_requests_to_delete_only_once_with_the_access_that_was_given() -> None:
    access = Access("http://store", "eu-west-1")
    store = s3.S3Deleter(S3Location("bucket", "repo"), access)
    assert store._client._made_with == (access, None)
    assert store._once._made_with == (access, 1)
