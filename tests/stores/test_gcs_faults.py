"""Google Cloud Storage: conditions, versions, locks, failures, and where a token is sent."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from lakeplan.errors import StorageDenied, StorageError, StorageNotFound, StoreBusy, WriteConflict
from lakeplan.stores import gcs_client
from lakeplan.stores.gcs import GcsStore
from lakeplan.stores.gcs_client import GcsClient, Page
from lakeplan.stores.open import (
    Access,
    GcsLocation,
    RemnantReader,
    Remnants,
    SweepStore,
    open_state,
    open_sweep_store,
)
from lakeplan.stores.shared import CHANGED
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Amount
from lakeplan.values.sweep import Deletion, Versions
from tests.conforming_gcs import ConformingGcs, refusal
from tests.faulty_store import Answer, Cut, Delay, FaultyStore, Rule
from tests.stores.sweep_store_contract import keys_of

KEYS = [f"data/{n:02}" for n in range(10)]
BUSY = Answer(503, refusal(503, "backendError", "We encountered an internal error"))
LISTING = {"method": "GET", "path": "/o$"}
HELD = "Object 'b/data/03' is under active Temporary hold and cannot be deleted, overwritten or archived."
RETAINED = "Object 'b/data/03' is subject to bucket's retention policy and cannot be deleted until 2030."


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcs_client, "FIRST_WAIT", 0.01)


@pytest.fixture
def faulty(gcs: ConformingGcs) -> Iterator[FaultyStore]:
    with FaultyStore(gcs.url) as proxy:
        yield proxy


@pytest.fixture
def store(gcs_bucket: str, faulty: FaultyStore) -> SweepStore:
    return open_sweep_store(f"gs://{gcs_bucket}/repo", endpoint_url=faulty.url)


@pytest.fixture
def full(store: SweepStore, faulty: FaultyStore) -> SweepStore:
    for key in KEYS:
        store.put(key, b"1")
    faulty.seen.clear()
    return store


def versions_in(bucket: str, endpoint: str) -> list[str]:
    url, params = f"{endpoint}/storage/v1/b/{bucket}/o", {"versions": "true"}
    return sorted(item["name"] for item in requests.get(url, params=params, timeout=10).json()["items"])


class DescribeConditions:
    @pytest.mark.parametrize("versions", Versions)
    def it_deletes_nothing_that_changed_since_it_was_listed(
        self, full: SweepStore, versions: Versions
    ) -> None:
        expected = full.find(KEYS)
        full.put(KEYS[3], b"another")
        answers = full.delete(KEYS, versions=versions, expected=expected)
        assert [answer for answer in answers if not answer.deleted] == [
            Deletion(KEYS[3], CHANGED, changed=True)
        ]
        assert full.read(KEYS[3]) == b"another"
        assert keys_of(full) == {KEYS[3]}

    @pytest.mark.parametrize("status", [404, 412])
    def it_counts_as_deleted_what_somebody_else_deleted(
        self, full: SweepStore, faulty: FaultyStore, status: int
    ) -> None:
        """Whichever of its two answers the store gives to a condition on nothing."""
        expected = full.find(KEYS[:1])
        full.delete(KEYS[:1], versions=Versions.MARKER)
        faulty.arm(Rule(Answer(status, refusal(status, "x", "x")), method="DELETE"))
        assert full.delete(KEYS[:1], versions=Versions.MARKER, expected=expected) == [Deletion(KEYS[0])]

    @pytest.mark.parametrize("page", ["<html>Sign in</html>", ""])
    def it_takes_no_page_of_a_proxy_for_an_object(
        self, full: SweepStore, faulty: FaultyStore, page: str
    ) -> None:
        faulty.arm(Rule(Answer(200, page), method="GET", path="/o/"))
        for request in (
            lambda: full.read(KEYS[0]),
            lambda: full.read_span(KEYS[0], 0, 1),
            lambda: full.is_gone(KEYS[0]),
        ):
            with pytest.raises(StoreBusy, match="damaged"):
                request()

    def it_does_not_believe_a_proxy_that_an_object_was_deleted(
        self, full: SweepStore, faulty: FaultyStore
    ) -> None:
        faulty.arm(Rule(Answer(404, "<html>not here</html>"), path="/o/"))
        with pytest.raises(StorageError, match="does not say whether the object exists"):
            full.delete(KEYS[:1], versions=Versions.MARKER)
        with pytest.raises(StorageError, match="does not say whether the object exists"):
            full.is_gone(KEYS[0])
        with pytest.raises(StorageError, match="does not say whether the object exists"):
            full.stat(KEYS[0])
        with pytest.raises(StorageError, match="does not say whether the object exists"):
            full.read(KEYS[0])

    @pytest.mark.parametrize("status", [404, 412])
    @pytest.mark.parametrize("versions", Versions)
    def it_does_not_believe_a_proxy_that_an_object_changed(
        self, full: SweepStore, faulty: FaultyStore, versions: Versions, status: int
    ) -> None:
        faulty.arm(Rule(Answer(status, "<html>not here</html>"), method="DELETE", times=1))
        (answer,) = full.delete(KEYS[:1], versions=versions, expected=full.find(KEYS[:1]))
        assert (answer.deleted, answer.changed, answer.transient) == (False, False, True)
        (answer,) = full.delete(KEYS[:1], versions=versions, expected=full.find(KEYS[:1]))
        assert answer.deleted

    def it_takes_no_empty_page_for_the_end_of_a_listing(self, full: SweepStore, faulty: FaultyStore) -> None:
        empty = Answer(200, json.dumps({"kind": "storage#objects", "nextPageToken": "next"}))
        item = {"name": "repo/data/00", "size": "1", "updated": "2026-01-01T00:00:00Z", "generation": "7"}
        full_page = Answer(200, json.dumps({"kind": "storage#objects", "items": [item]}))
        faulty.arm(Rule(empty, **LISTING, times=2), Rule(full_page, **LISTING))
        assert list(full.find([KEYS[0]])) == [KEYS[0]]
        faulty.clear()
        faulty.arm(Rule(empty, **LISTING, times=1), Rule(full_page, **LISTING))
        faulty.arm(Rule(Answer(404, ""), path="/o/"))
        with pytest.raises(StorageError, match="does not say whether the object exists"):
            full.is_gone(KEYS[0])

    def it_copies_no_object_that_changed_since_it_was_described(
        self, full: SweepStore, faulty: FaultyStore, gcs_bucket: str, gcs_endpoint: str
    ) -> None:
        url = f"{gcs_endpoint}/storage/v1/b/{gcs_bucket}/o/repo%2Fdata%2F00"
        before = requests.get(url, timeout=10).text
        full.put(KEYS[0], b"another")
        faulty.arm(Rule(Answer(200, before), method="GET", path="data%2F00$"))
        with pytest.raises(WriteConflict):
            full.copy(KEYS[0], "q/00")
        assert keys_of(full, "q/") == set()

    def it_leaves_what_somebody_wrote_over_a_copy(self, full: SweepStore, faulty: FaultyStore) -> None:
        full.put("q/00", b"of another")
        answer = {"done": True, "resource": {"generation": "5"}}
        faulty.arm(Rule(Answer(200, json.dumps(answer)), method="POST", path="rewriteTo"))
        with pytest.raises(WriteConflict):
            full.copy(KEYS[0], "q/00")
        assert full.read("q/00") == b"of another"

    def it_removes_a_copy_that_does_not_equal_its_source(
        self, full: SweepStore, faulty: FaultyStore, gcs_bucket: str, gcs_endpoint: str
    ) -> None:
        url = f"{gcs_endpoint}/storage/v1/b/{gcs_bucket}/o/repo%2Fdata%2F00"
        other = requests.get(url, timeout=10).json() | {"crc32c": "AAAAAA=="}
        faulty.arm(Rule(Answer(200, json.dumps(other)), method="GET", path="data%2F00$"))
        with pytest.raises(StorageError, match="differed from the original, so the copy was deleted"):
            full.copy(KEYS[0], "q/00")
        assert keys_of(full, "q/") == set()

    def it_copies_in_as_many_requests_as_the_store_wants(
        self, full: SweepStore, gcs: ConformingGcs, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(gcs, "steps", 3)
        full.copy(KEYS[0], "q/00", create=True)
        assert full.read("q/00") == b"1"
        copies = [target for method, target, _ in faulty.seen if method == "POST"]
        assert len(copies) == 3
        assert all("ifGenerationMatch=0" in target for target in copies)

    def it_keeps_the_key_that_an_object_is_encrypted_with(
        self, full: SweepStore, faulty: FaultyStore, gcs_bucket: str, gcs_endpoint: str
    ) -> None:
        """The emulator encrypts nothing, so its copy is found to lack the key."""
        key_name = "projects/p/locations/eu/keyRings/r/cryptoKeys/k"
        url = f"{gcs_endpoint}/storage/v1/b/{gcs_bucket}/o/repo%2Fdata%2F00"
        item = requests.get(url, timeout=10).json() | {"kmsKeyName": f"{key_name}/cryptoKeyVersions/3"}
        faulty.arm(Rule(Answer(200, json.dumps(item)), method="GET", path="data%2F00$"))
        with pytest.raises(StorageError, match="not encrypted in the same way"):
            full.copy(KEYS[0], "q/00")
        (sent,) = (target for method, target, _ in faulty.seen if method == "POST")
        assert f"destinationKmsKeyName={key_name.replace('/', '%2F')}" in sent
        assert keys_of(full, "q/") == set()


class DescribeVersions:
    @pytest.fixture
    def versioned(self, gcs_endpoint: str, gcs_bucket: str) -> SweepStore:
        body = {"name": f"{gcs_bucket}-v", "versioning": {"enabled": True}}
        requests.post(f"{gcs_endpoint}/storage/v1/b", json=body, timeout=10).raise_for_status()
        store = open_sweep_store(f"gs://{gcs_bucket}-v/repo")
        for data in (b"1", b"2", b"3"):
            store.put("data/a", data)
        store.put("data/ab", b"1")
        return store

    def it_knows_that_the_bucket_keeps_versions(self, versioned: SweepStore) -> None:
        assert versioned.facts().versioned

    def it_deletes_the_live_object_alone(
        self, versioned: SweepStore, gcs_bucket: str, gcs_endpoint: str
    ) -> None:
        assert versioned.delete(["data/a"], versions=Versions.MARKER) == [Deletion("data/a")]
        assert keys_of(versioned) == {"data/ab"}
        assert versions_in(f"{gcs_bucket}-v", gcs_endpoint) == ["repo/data/a"] * 3 + ["repo/data/ab"]

    def it_deletes_every_version_of_exactly_this_object(
        self, versioned: SweepStore, gcs_bucket: str, gcs_endpoint: str
    ) -> None:
        expected = versioned.find(["data/a"])
        answers = versioned.delete(["data/a"], versions=Versions.ALL, expected=expected)
        assert answers == [Deletion("data/a")]
        assert versions_in(f"{gcs_bucket}-v", gcs_endpoint) == ["repo/data/ab"]

    def it_deletes_no_version_of_an_object_that_changed(
        self, versioned: SweepStore, gcs_bucket: str, gcs_endpoint: str
    ) -> None:
        expected = versioned.find(["data/a"])
        versioned.put("data/a", b"4")
        (answer,) = versioned.delete(["data/a"], versions=Versions.ALL, expected=expected)
        assert answer.changed
        assert versions_in(f"{gcs_bucket}-v", gcs_endpoint) == ["repo/data/a"] * 4 + ["repo/data/ab"]

    def it_reports_no_object_as_deleted_that_the_listing_of_versions_omits(
        self, versioned: SweepStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(versioned), "_pages", lambda *_, **__: iter(()))
        answers = versioned.delete(["data/a", "data/nothing"], versions=Versions.ALL)
        assert [(one.key, one.deleted) for one in answers] == [("data/a", False), ("data/nothing", True)]

    def it_does_not_delete_only_older_versions_where_the_listing_omits_the_expected_one(
        self, versioned: SweepStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = versioned.find(["data/a"])
        real = type(versioned)._pages

        def without_newest(*args: object, **options: str) -> Iterator[Page]:
            for page in real(*args, **options):
                kept = [one for one in page.objects if one.e_tag != expected["data/a"].e_tag]
                yield replace(page, objects=kept)

        with monkeypatch.context() as patch:  # undone as a whole, it would forget the emulator
            patch.setattr(type(versioned), "_pages", without_newest)
            (answer,) = versioned.delete(["data/a"], versions=Versions.ALL, expected=expected)
        assert "missing from the listing of its versions" in answer.reason
        assert versioned.stat("data/a") == expected["data/a"]

    def it_keeps_the_live_object_while_an_older_generation_stays(
        self, versioned: SweepStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The object was no longer listed, so nothing tried again to delete the older generation."""
        expected = versioned.find(["data/a"])
        real, calls = type(versioned)._delete_once, []

        def refuse_second(self: SweepStore, key: str, params: Mapping[str, str]) -> object:
            calls.append(params)
            return Deletion(key, "locked") if len(calls) == 2 else real(self, key, params)

        with monkeypatch.context() as patch:  # undone as a whole, it would forget the emulator
            patch.setattr(type(versioned), "_delete_once", refuse_second)
            (answer,) = versioned.delete(["data/a"], versions=Versions.ALL, expected=expected)
        assert answer == Deletion("data/a", "2 of 3 versions were not deleted: locked")
        assert versioned.find(["data/a"]) == expected

    def it_lists_so_many_versions_and_no_more(
        self, versioned: SweepStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakeplan.limits.STORE_VERSIONS", 2)
        (answer,) = versioned.delete(["data/a"], versions=Versions.ALL)
        assert "more versions than lakeplan lists" in answer.reason
        assert keys_of(versioned) == {"data/a", "data/ab"}

    def it_counts_older_versions(self, versioned: SweepStore, monkeypatch: pytest.MonkeyPatch) -> None:
        assert isinstance(versioned, RemnantReader)
        assert versioned.remnants() == Remnants(Amount(2, 2), 0, None, None, True)
        versioned.delete(["data/ab"], versions=Versions.MARKER)
        assert versioned.remnants().noncurrent == Amount(3, 3)
        monkeypatch.setattr(gcs_client, "REMNANT_PAGES", 0)
        assert not versioned.remnants().complete

    def it_says_that_the_bucket_keeps_what_is_deleted(self, full: SweepStore, faulty: FaultyStore) -> None:
        for seconds, kept in (("604800", True), ("0", False)):
            body = {"kind": "storage#bucket", "softDeletePolicy": {"retentionDurationSeconds": seconds}}
            faulty.arm(Rule(Answer(200, json.dumps(body)), method="GET", path="/b/[^/]+$", times=1))
            assert full.facts().soft_delete is kept
        faulty.arm(Rule(Answer(403, "{}"), method="GET", path="/b/[^/]+$"))
        assert (full.facts().versioned, full.facts().soft_delete) == (None, None)


class DescribeLocks:
    @pytest.mark.parametrize(
        ("reason", "message", "shown"),
        [
            ("forbidden", HELD, "objectUnderActiveHold: the object is locked"),
            ("objectUnderActiveHold", "", "objectUnderActiveHold: the object is locked"),
            ("retentionPolicyNotMet", RETAINED, "retentionPolicyNotMet: the object is locked"),
        ],
    )
    @pytest.mark.parametrize("versions", Versions)
    def it_says_which_object_is_locked_and_deletes_the_others(
        self, full: SweepStore, faulty: FaultyStore, versions: Versions, reason: str, message: str, shown: str
    ) -> None:
        faulty.arm(Rule(Answer(403, refusal(403, reason, message)), method="DELETE", path="03$"))
        answers = full.delete(KEYS, versions=versions)
        assert [answer for answer in answers if not answer.deleted] == [Deletion(KEYS[3], shown)]
        assert keys_of(full) == {KEYS[3]}

    def it_answers_for_a_batch_in_which_every_object_is_locked(
        self, full: SweepStore, faulty: FaultyStore
    ) -> None:
        faulty.arm(Rule(Answer(403, refusal(403, "forbidden", HELD)), method="DELETE"))
        answers = full.delete(KEYS, versions=Versions.MARKER)
        assert [answer.deleted for answer in answers] == [False] * len(KEYS)
        assert not any(answer.transient for answer in answers)

    def it_stops_where_it_may_not_delete(self, full: SweepStore, faulty: FaultyStore) -> None:
        denied = "x@example.com does not have storage.objects.delete access to the object."
        for status in (401, 403):
            faulty.clear()
            faulty.arm(Rule(Answer(status, refusal(status, "forbidden", denied)), method="DELETE"))
            with pytest.raises(StorageDenied) as caught:
                full.delete(KEYS, versions=Versions.MARKER)
            assert "example.com" not in f"{caught.value}{caught.value.detail}"
        assert keys_of(full) == set(KEYS)


class DescribeBadDays:
    @pytest.mark.parametrize(
        "answer",
        [
            BUSY,
            Answer(429, refusal(429, "rateLimitExceeded", "too many")),
            Answer(403, refusal(403, "rateLimitExceeded", "too many")),
            Answer(408, ""),
            Cut(asked=False),
            Delay(2.5),
        ],
    )
    def it_hears_at_once_that_the_store_is_busy(
        self, full: SweepStore, faulty: FaultyStore, answer: Answer | Cut | Delay
    ) -> None:
        """What a batch was told is the caller's to wait for; reading is tried again here."""
        faulty.arm(Rule(answer, method="DELETE", times=3))
        hasty = open_sweep_store(full.url, endpoint_url=faulty.url, read_seconds=1)
        with pytest.raises(StoreBusy):
            (hasty if isinstance(answer, Delay) else full).delete(KEYS[:3], versions=Versions.MARKER)
        if not isinstance(answer, Delay):  # the proxy notes those when they are over
            assert [method for method, _, _ in faulty.seen] == ["DELETE"] * 3
        assert full.delete(KEYS, versions=Versions.MARKER) == [Deletion(key) for key in KEYS]
        assert keys_of(full) == set()

    def it_reads_again_after_busy_answers(self, full: SweepStore, faulty: FaultyStore) -> None:
        faulty.arm(Rule(BUSY, times=3))
        assert full.read(KEYS[0]) == b"1"
        faulty.clear()
        faulty.arm(Rule(BUSY))
        for use in (lambda: full.read(KEYS[0]), lambda: list(full.list_objects()), lambda: full.find(KEYS)):
            with pytest.raises(StoreBusy):
                use()

    def it_answers_each_object_of_a_batch_for_itself(self, full: SweepStore, faulty: FaultyStore) -> None:
        faulty.arm(Rule(BUSY, method="DELETE", path="02$"))
        faulty.arm(Rule(Answer(403, refusal(403, "forbidden", HELD)), method="DELETE", path="03$"))
        faulty.arm(Rule(Answer(400, "{}"), method="DELETE", path="04$"))
        faulty.arm(Rule(Cut(asked=False), method="DELETE", path="05$"))
        faulty.arm(Rule(Answer(302, "", {"Location": "http://127.0.0.1:9/"}), method="DELETE", path="06$"))
        answers = {answer.key: answer for answer in full.delete(KEYS, versions=Versions.MARKER)}
        assert list(answers) == KEYS
        assert {key: (one.reason, one.transient) for key, one in answers.items() if not one.deleted} == {
            KEYS[2]: ("the storage is overloaded or temporarily unavailable", True),
            KEYS[3]: ("objectUnderActiveHold: the object is locked", False),
            KEYS[4]: ("status 400", False),
            KEYS[5]: ("the storage cannot be reached", True),
            KEYS[6]: ("status 302", False),
        }
        assert keys_of(full) == set(KEYS[2:7])

    @pytest.mark.parametrize("sent", [0, 1, 40])
    def it_never_takes_a_broken_listing_for_a_whole_one(
        self, full: SweepStore, faulty: FaultyStore, sent: int
    ) -> None:
        faulty.arm(Rule(Cut(sent=sent), method="GET"))
        for use in (
            lambda: list(full.list_objects()),
            full.list_prefixes,
            full.facts,
            lambda: full.find(KEYS),
            lambda: full.stat(KEYS[0]),
            lambda: full.delete(KEYS, versions=Versions.ALL),
        ):
            with pytest.raises(StorageError):
                use()

    def it_never_takes_a_broken_object_for_a_whole_one(self, full: SweepStore, faulty: FaultyStore) -> None:
        faulty.arm(Rule(Cut(sent=0), method="GET"))
        with pytest.raises(StoreBusy):
            full.read(KEYS[0])
        faulty.clear()
        faulty.arm(Rule(Cut(sent=0), method="GET", times=1))
        assert full.read(KEYS[0]) == b"1"

    @pytest.mark.parametrize(
        "page",
        [
            "",
            "[]",
            "<html></html>",
            "{}",
            '{"kind": "storage#buckets", "items": []}',
            '{"kind": "storage#objects", "items": 5}',
            '{"kind": "storage#objects", "items": ["x"]}',
            '{"kind": "storage#objects", "prefixes": [5]}',
            '{"kind": "storage#objects", "nextPageToken": 5}',
            "[" * 100_000,
        ],
    )
    def it_takes_no_other_answer_for_a_listing(
        self, full: SweepStore, faulty: FaultyStore, page: str
    ) -> None:
        faulty.arm(Rule(Answer(200, page), **LISTING))
        for use in (lambda: list(full.list_objects()), full.list_prefixes, lambda: full.find(KEYS)):
            with pytest.raises(StorageError):
                use()

    @pytest.mark.parametrize(
        "change",
        [
            {"name": "\ud800"},
            {"name": None},
            {"name": "elsewhere/data/00"},
            {"name": "repo"},
            {"size": "9" * 5_000},
            {"size": "-1"},
            {"size": 1.5},
            {"updated": "yesterday"},
            {"updated": "2026-01-01T00:00:00"},
            {"updated": None},
            {"generation": "0"},
            {"generation": "9" * 30},
            {"generation": None},
        ],
    )
    def it_takes_no_listing_with_an_entry_that_makes_no_sense(
        self, full: SweepStore, faulty: FaultyStore, change: dict[str, Any]
    ) -> None:
        item = {"name": "repo/data/00", "size": "1", "updated": "2026-01-01T00:00:00Z", "generation": "7"}
        good = {"kind": "storage#objects", "items": [item]}
        faulty.arm(Rule(Answer(200, json.dumps(good)), **LISTING, times=1))
        assert list(full.list_objects()) == [StoredObject("data/00", 1, 1_767_225_600_000_000, "7")]
        faulty.arm(Rule(Answer(200, json.dumps(good | {"items": [item | change]})), **LISTING))
        for use in (lambda: list(full.list_objects()), lambda: full.find(KEYS)):
            with pytest.raises(StorageError):
                use()

    def it_takes_no_listing_that_is_out_of_order(self, full: SweepStore, faulty: FaultyStore) -> None:
        """What it would call gone may be on a later page."""
        item = {"size": "1", "updated": "2026-01-01T00:00:00Z", "generation": "7"}
        items = [item | {"name": f"repo/data/{n}"} for n in ("09", "00")]
        page = json.dumps({"kind": "storage#objects", "items": items})
        faulty.arm(Rule(Answer(200, page), **LISTING))
        with pytest.raises(StorageError, match="ascending order"):
            full.find(KEYS)

    @pytest.mark.parametrize(
        "body", ["[]", "{}", '{"name": "repo/data/01", "size": "1"}', '{"name": 5, "generation": []}']
    )
    def it_takes_no_other_answer_for_a_description(
        self, full: SweepStore, faulty: FaultyStore, body: str
    ) -> None:
        faulty.arm(Rule(Answer(200, body), method="GET", path="data%2F00$"))
        with pytest.raises(StoreBusy, match="incomplete or damaged"):
            full.stat(KEYS[0])
        with pytest.raises(StoreBusy):
            full.copy(KEYS[0], "q/00")
        with pytest.raises(StoreBusy):
            full.delete([KEYS[0]], versions=Versions.MARKER, expected=other_than(full.find(KEYS[:1])))

    @pytest.mark.parametrize(
        "body",
        [
            '{"kind": "storage#bucket", "versioning": 5}',
            '{"kind": "storage#bucket", "softDeletePolicy": [1]}',
            '{"kind": "storage#object", "name": "repo/data/00"}',
            "{}",
            "[]",
            "x",
        ],
    )
    def it_takes_no_other_answer_for_a_bucket(self, full: SweepStore, faulty: FaultyStore, body: str) -> None:
        faulty.arm(Rule(Answer(200, body), method="GET", path="/b/[^/]+$"))
        with pytest.raises(StorageError):
            full.facts()

    def it_ends_a_copy_that_never_ends(
        self, full: SweepStore, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakeplan.limits.STORE_PAGES", 3)
        body = json.dumps({"done": False, "rewriteToken": "x"})
        faulty.arm(Rule(Answer(200, body), method="POST", path="rewriteTo"))
        with pytest.raises(StorageError, match="did not finish the copy within 3 requests"):
            full.copy(KEYS[0], "q/00")

    def it_fails_a_copy_that_cannot_be_finished_and_keeps_the_source(
        self, full: SweepStore, faulty: FaultyStore
    ) -> None:
        faulty.arm(Rule(BUSY, method="POST"))
        with pytest.raises(StoreBusy):
            full.copy(KEYS[0], "q/00")
        assert keys_of(full) == set(KEYS)

    def it_knows_its_own_record_when_the_answer_was_lost(
        self, store: SweepStore, faulty: FaultyStore
    ) -> None:
        faulty.arm(Rule(Cut(sent=0), method="POST", times=1))
        store.create("_lakeplan/a", b"mine")
        assert store.read("_lakeplan/a") == b"mine"
        with pytest.raises(WriteConflict):
            store.create("_lakeplan/a", b"mine")

    def it_says_that_an_upload_s_answer_names_no_generation(
        self, store: SweepStore, faulty: FaultyStore
    ) -> None:
        faulty.arm(Rule(Answer(200, "{}"), method="POST", times=1))
        with pytest.raises(StoreBusy, match="damaged"):
            store.create("_lakeplan/a", b"mine")

    def it_follows_no_redirect(self, full: SweepStore, faulty: FaultyStore, gcs_endpoint: str) -> None:
        faulty.arm(Rule(Answer(307, "", {"Location": gcs_endpoint}), method="GET"))
        with pytest.raises(StorageError, match="status 307"):
            full.read(KEYS[0])


def other_than(found: dict[str, StoredObject]) -> dict[str, StoredObject]:
    return {key: StoredObject(key, one.size, one.modified_us, "1") for key, one in found.items()}


class DescribeState:
    def it_leaves_no_probe_behind(self, gcs_bucket: str, gcs_endpoint: str) -> None:
        open_state(f"gs://{gcs_bucket}/ops").write("a", b"1", if_version=None)
        assert versions_in(gcs_bucket, gcs_endpoint) == ["ops/a"]

    def it_refuses_a_store_that_ignores_conditions(self, gcs_bucket: str, gcs_emulator: str) -> None:
        """As the emulator itself does with deletions."""
        state = open_state(f"gs://{gcs_bucket}/ops", endpoint_url=gcs_emulator)
        with pytest.raises(StorageError, match="ignores ifGenerationMatch"):
            state.write("a", b"1", if_version=None)
        assert state.read("a") is None
        with pytest.raises(StorageError, match="ignores ifGenerationMatch"):
            state.delete("a", if_version="1")

    def it_says_that_the_bucket_is_missing(self, gcs_bucket: str) -> None:
        state = open_state(f"gs://{gcs_bucket}-is-not-there/x")
        for attempt in (lambda: state.read("a"), lambda: state.write("a", b"1", if_version=None)):
            with pytest.raises(StorageNotFound, match="bucket or container does not exist"):
                attempt()

    def it_knows_its_own_write_when_the_answer_was_lost(self, gcs_bucket: str, faulty: FaultyStore) -> None:
        state = open_state(f"gs://{gcs_bucket}/ops", endpoint_url=faulty.url)
        first = state.write("a", b"1", if_version=None)
        faulty.arm(Rule(Cut(sent=0), method="POST", times=1))
        second = state.write("a", b"2", if_version=first)
        found = state.read("a")
        assert found is not None
        assert (found.data, found.version) == (b"2", second)
        faulty.arm(Rule(Cut(sent=None), method="DELETE", times=1))
        state.delete("a", if_version=second)
        assert state.read("a") is None

    def it_does_not_take_another_s_record_for_its_own_after_a_lost_answer(
        self, gcs_bucket: str, faulty: FaultyStore
    ) -> None:
        state = open_state(f"gs://{gcs_bucket}/ops", endpoint_url=faulty.url)
        first = state.write("a", b"1", if_version=None)
        state.write("a", b"of another", if_version=first)
        faulty.arm(Rule(BUSY, method="POST", times=1))
        with pytest.raises(WriteConflict):
            state.write("a", b"2", if_version=first)

    def it_takes_no_answer_without_a_generation(self, gcs_bucket: str, faulty: FaultyStore) -> None:
        state = open_state(f"gs://{gcs_bucket}/ops", endpoint_url=faulty.url)
        faulty.arm(Rule(Answer(200, "1"), method="GET"))
        with pytest.raises(StorageError, match="incomplete or damaged"):
            state.read("a")


TOKEN = '{"access_token": "ya29.REAL", "expires_in": 3600, "token_type": "Bearer"}'


class Credentials:
    """Credentials like google-auth's."""

    valid = False
    token = None

    def refresh(self, request: object) -> None:
        self.valid, self.token = True, "ya29.SECRET"


class DescribeTheToken:
    @pytest.fixture
    def sent(self, monkeypatch: pytest.MonkeyPatch) -> list[requests.PreparedRequest]:
        """What would go out; every answer is an empty listing."""
        sent: list[requests.PreparedRequest] = []

        def send(_: object, request: requests.PreparedRequest, **__: object) -> requests.Response:
            sent.append(request)
            response = requests.Response()
            response.status_code = 200
            response._content = b'{"kind": "storage#objects"}'
            return response

        monkeypatch.setattr("requests.sessions.Session.send", send)
        monkeypatch.setattr("lakeplan.stores.bounded.BoundedRaw", lambda raw, *_, **__: raw)
        monkeypatch.setattr("google.auth.default", lambda **_: (Credentials(), "project"))
        return sent

    @pytest.mark.parametrize(
        ("endpoint", "trusted"),
        [
            (None, True),
            ("https://storage.googleapis.com", True),
            ("https://storage.europe-west3.rep.googleapis.com", True),
            ("http://storage.googleapis.com", False),
            ("https://storage.googleapis.com:8443", False),
            ("https://storage.googleapis.com.example.com", False),
            ("https://storagegoogleapis.com", False),
            ("https://example.com/storage.googleapis.com", False),
            ("https://example.com", False),
            ("http://127.0.0.1:4443", False),
        ],
    )
    def it_goes_to_google_alone(
        self, sent: list[requests.PreparedRequest], endpoint: str | None, trusted: bool
    ) -> None:
        store = GcsStore(GcsLocation("bucket", "repo"), Access(endpoint))
        assert list(store.list_objects()) == []
        (request,) = sent
        assert request.headers.get("Authorization") == ("Bearer ya29.SECRET" if trusted else None)
        assert "SECRET" not in str(request.url)

    @pytest.mark.parametrize("host", ["http://127.0.0.1:4443", "127.0.0.1:4443", "https://example.com"])
    def it_does_not_go_to_an_emulator(
        self, sent: list[requests.PreparedRequest], monkeypatch: pytest.MonkeyPatch, host: str
    ) -> None:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", host)
        list(open_sweep_store("gs://bucket/repo").list_objects())
        (request,) = sent
        assert "Authorization" not in request.headers
        assert str(request.url).startswith(host if "://" in host else f"http://{host}")

    def it_is_in_no_pickle_no_text_and_no_log(
        self, sent: list[requests.PreparedRequest], caplog: pytest.LogCaptureFixture
    ) -> None:
        store = GcsStore(GcsLocation("bucket", "repo"))
        with caplog.at_level(logging.DEBUG):
            list(store.list_objects())
        assert sent[0].headers["Authorization"] == "Bearer ya29.SECRET"
        for text in (repr(store), str(vars(store)), caplog.text, repr(pickle.dumps(store))):
            assert "SECRET" not in text

    def it_is_refreshed_when_it_is_no_longer_valid(
        self, sent: list[requests.PreparedRequest], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        credentials = Credentials()
        tokens = iter(["first", "second"])

        def refresh(request: object) -> None:
            credentials.valid, credentials.token = True, next(tokens)

        monkeypatch.setattr(credentials, "refresh", refresh)
        monkeypatch.setattr("google.auth.default", lambda **_: (credentials, None))
        store = GcsStore(GcsLocation("bucket", "repo"))
        list(store.list_objects())
        list(store.list_objects())
        credentials.valid = False
        list(store.list_objects())
        sent_tokens = [request.headers["Authorization"] for request in sent]
        assert sent_tokens == ["Bearer first", "Bearer first", "Bearer second"]

    def it_comes_from_application_default_credentials(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        recwarn: pytest.WarningsRecorder,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """With google-auth itself: the key of a service account, exchanged at a token server."""
        key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        file = tmp_path / "adc.json"
        with FaultyStore("http://127.0.0.1:9") as server:
            server.arm(Rule(Answer(200, TOKEN)))
            keys = {"client_email": "a@example.com", "private_key": key.decode(), "token_uri": server.url}
            file.write_text(json.dumps({"type": "service_account", **keys}))
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
            client = GcsClient()
            assert client._token("https://storage.googleapis.com", "gs://x") == "ya29.REAL"
        assert not recwarn.list
        assert not caplog.records
        assert "REAL" not in repr(pickle.dumps(client))

    @pytest.mark.parametrize("text", ["", "{}", "[", '{"type": "service_account", "private_key": "SECRET"}'])
    def it_says_that_the_credentials_cannot_be_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
    ) -> None:
        file = tmp_path / "adc.json"
        file.write_text(text)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        with pytest.raises(StorageDenied, match="no usable credentials") as caught:
            list(open_sweep_store("gs://bucket/repo").list_objects())
        assert "SECRET" not in f"{caught.value}{caught.value.detail}{caught.value.hint}"

    @pytest.mark.parametrize("kind", ["DefaultCredentialsError", "RefreshError", "TransportError"])
    def it_is_in_no_error(self, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        import google.auth.exceptions

        def default(**_: object) -> object:
            raise getattr(google.auth.exceptions, kind)("refresh_token=SECRET")

        monkeypatch.setattr("google.auth.default", default)
        error = StoreBusy if kind == "TransportError" else StorageDenied
        with pytest.raises(error) as caught:
            GcsClient().request("GET", "/storage/v1/b/x", "gs://x", tries=1)
        assert caught.value.__suppress_context__
        assert "SECRET" not in f"{caught.value}{caught.value.detail}{caught.value.hint}"
