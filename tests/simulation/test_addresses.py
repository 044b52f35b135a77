from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.formats.namespace import Addresses, known_as
from lakeplan.values.repository import AddressType

OLD, RELATIVE, FULL = AddressType.BY_PREFIX, AddressType.RELATIVE, AddressType.FULL


class DescribeAKnownNamespace:
    known = known_as("file:///copy/ns/", "s3://bucket/ns")

    @pytest.mark.parametrize("url", ["s3://bucket/ns/data/p/1", "file:///copy/ns/data/p/1"])
    @pytest.mark.parametrize("kind", [FULL, OLD])
    def it_takes_both_urls_for_inside(self, url: str, kind: AddressType) -> None:
        assert self.known.meaning(url, kind) == ("data/p/1", [])

    @pytest.mark.parametrize("kind", [RELATIVE, FULL, OLD])
    def it_keeps_relative_addresses_as_they_are(self, kind: AddressType) -> None:
        assert self.known.meaning("data/p/1,sig?x=%20", kind) == ("data/p/1,sig?x=%20", [])

    @pytest.mark.parametrize(
        "address",
        [
            "s3://bucket/ns/data/p/1?x=1",
            "s3://bucket/ns/data/p/1?",
            "s3://bucket/ns/data/p/1#top",
            "s3://bucket/ns/data/p/%31",
            "s3://bucket/ns/data%2Fp/1",
            "s3://bucket/ns/data/p/%2531",
            "s3://bucket/%6Es/data/p/1",
            "s3://bucket//ns/data/p/1",
            "s3://bucket/ns//data/p/1",
            "s3://bucket/ns/data//p/1",
            "s3://bucket/ns/data/./p/1",
            "s3://bucket/ns/data/q/../p/1",
            "s3://bucket/ns/../ns/data/p/1",
            "s3://bucket/ns/data/p/1/",
            "s3://bucket/ns/data\\p\\1",
            "S3://bucket/ns/data/p/1",
            "s3a://bucket/ns/data/p/1",
            "s3n://bucket/ns/data/p/1?x#y",
            "s3://key:secret@bucket/ns/data/p/1",
            "s3://bucket:443/ns/data/p/1",
            "s3:///bucket/ns/data/p/1",
            "https://minio.example.com/bucket/ns/data/p/1",
            "https://bucket.s3.eu-central-1.amazonaws.com/ns/data/p/1?X-Amz-Signature=1",
            "s3://any/data/x/data/p/1",
        ],
    )
    def it_protects_what_another_spelling_may_mean(self, address: str) -> None:
        key, others = self.known.meaning(address, FULL)
        assert key is None
        assert "data/p/1" in others

    @pytest.mark.parametrize(
        "address", ["data//p/1", "/data/p/1", "data/./p/1", "data/q/../p/1", "data/p/1/"]
    )
    def it_protects_what_a_store_may_make_of_a_relative_address(self, address: str) -> None:
        key, others = self.known.meaning(address, RELATIVE)
        assert key == address
        assert "data/p/1" in others
        assert self.known.protected(address, RELATIVE) == [address, *others]

    @pytest.mark.parametrize(
        "address",
        ["data/p/1?x=1", "data/p/1#f", "data%2Fp/1", "/data/p/1", "S3://bucket/ns/data/p/1", "data/p/1"],
    )
    def it_protects_what_a_staged_address_may_mean(self, address: str) -> None:
        """The server writes what is staged without the namespace, whatever its type is."""
        assert "data/p/1" in self.known.staged(address)

    @pytest.mark.parametrize(
        "address", ["s3://lake/raw/data.parquet", "s3://bucket/ns-2/in", "s3://bucket/ns"]
    )
    def it_leaves_what_is_elsewhere_outside(self, address: str) -> None:
        assert self.known.meaning(address, FULL) == (None, [])

    def it_never_takes_longer_than_the_address_deserves(self) -> None:
        assert len(self.known.protected("s3://x/" + "data/" * 100_000 + "1", FULL)) < 5_000


class DescribeAnEntryOfAnotherRepository:
    known = known_as("file:///copy/ns", "s3://bucket/ns")

    @pytest.mark.parametrize(
        "address",
        ["../ns/data/p/1", "x/../../ns/data/p/1", "s3://bucket/ns/data/p/1", "https://h/b/ns/data/p/1?x"],
    )
    def it_protects_what_a_relative_address_leads_out_to(self, address: str) -> None:
        key, others = self.known.foreign(address, RELATIVE)
        assert key is None
        assert "data/p/1" in others

    @pytest.mark.parametrize("kind", [RELATIVE, OLD, FULL])
    def it_leaves_what_is_in_its_own_namespace(self, kind: AddressType) -> None:
        assert self.known.foreign("data/p/1", kind) == (None, [])

    def it_knows_full_addresses(self) -> None:
        assert self.known.foreign("s3://bucket/ns/data/p/1", FULL) == ("data/p/1", [])


class DescribeOldKeysAtTheRoot:
    @pytest.mark.parametrize(
        ("namespace", "address"),
        [
            ("s3://bucket/ns", "s3://BUCKET/ns/oldkey?x"),
            ("s3://bucket", "s3a://bucket/oldkey"),
            ("s3://bucket", "s3://user@bucket/oldkey"),
            ("s3://bucket", "https://bucket.s3.amazonaws.com/oldkey"),
            ("https://account.blob.core.windows.net/box", "https://ACCOUNT.blob.core.windows.net/box/oldkey"),
            ("https://account.blob.core.windows.net/box", "abfss://box@account.dfs.core.windows.net/oldkey"),
            (
                "https://account.blob.core.windows.net/box",
                "https://account.blob.core.windows.net/box/%6Fldkey/",
            ),
            ("s3://bucket/n%73/", "s3://bucket/ns/oldkey"),
            ("s3://bucket/ns?x=1", "s3://bucket/ns/oldkey"),
        ],
    )
    def it_protects_them_too(self, namespace: str, address: str) -> None:
        assert "oldkey" in Addresses((namespace,)).meaning(address, FULL)[1]


class DescribeANamespaceWhoseServersUrlIsNotKnown:
    known = known_as("file:///copy/ns", None)

    @pytest.mark.parametrize(
        ("address", "keys"),
        [
            ("s3://any/where/data/p/1", ["data/p/1"]),
            ("s3://any/ns/rootkey", ["rootkey"]),
            ("s3://any/ns/data/p/1", ["data/p/1"]),
            ("s3://any/ns/deeper/key", []),
            ("s3://any/ns/dummy", []),
            ("s3://any/where/else", []),
        ],
    )
    def it_lists_the_keys_an_address_elsewhere_may_mean(self, address: str, keys: list[str]) -> None:
        assert self.known.meaning(address, FULL) == (None, keys)

    def it_guesses_nothing_by_an_empty_name(self) -> None:
        assert Addresses(("file://",)).meaning("s3://x//rootkey", FULL)[1] == []


SEGMENTS = ["/", ".", "..", "data", "p", "%31", "?x", "#y", "%2F", "\\", "1"]
FRONTS = ["s3://bucket/ns/", "S3://bucket//ns/", "https://h/bucket/ns/", "s3://u@bucket/./ns/", ""]


@given(st.sampled_from(FRONTS), st.lists(st.sampled_from(SEGMENTS), max_size=8))
def it_protects_a_key_behind_segments_that_vanish(front: str, segments: list[str]) -> None:
    book, kind = known_as("s3://bucket/ns", None), FULL if front else RELATIVE
    vanishing = "/".join(part for part in segments if part in (".", "/"))
    assert "data/p/1" in book.protected(f"{front}{vanishing}/data/p/1", kind)
    book.protected(front + "/".join(segments), kind)  # whatever it is, it has an answer
