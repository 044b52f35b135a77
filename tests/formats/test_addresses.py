from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.formats.namespace import keeps_its_name, normalize, possible_keys

S3, AZURE = "s3://bucket/ns", "https://account.blob.core.windows.net/container/ns"
OLD, RELATIVE, FULL = 0, 1, 2


@pytest.mark.parametrize(
    ("address", "kind", "namespace", "expected"),
    [
        ("data/p/x", RELATIVE, S3, "data/p/x"),
        ("s3://bucket/ns/data/p/x", FULL, S3, "data/p/x"),
        ("s3://bucket/ns/data/p/x", FULL, S3 + "/", "data/p/x"),
        ("s3://bucket/data/x", FULL, "s3://bucket", "data/x"),
        ("s3://bucket/ns-other/data/p/x", FULL, S3, None),
        ("s3://bucket-2/ns/data/p/x", FULL, S3, None),
        ("s3://bucket/ns", FULL, S3, None),
        ("s3://bucket/ns/", FULL, S3, None),
        ("s3://bucket/other/x", FULL, S3, None),
        ("gs://bucket/ns/data/p/x", FULL, S3, None),
        (AZURE + "/data/p/x", FULL, AZURE, "data/p/x"),
        ("https://other.blob.core.windows.net/container/ns/data/p/x", FULL, AZURE, None),
        ("local://name/data/p/x", FULL, "local://name", "data/p/x"),
        # old entries: full if a URI, else relative
        ("data/p/x", OLD, S3, "data/p/x"),
        ("s3://bucket/ns/data/p/x", OLD, S3, "data/p/x"),
        ("s3://elsewhere/x", OLD, S3, None),
        ("0f3a8c", OLD, S3, "0f3a8c"),
        ("a:b/c", OLD, S3, "a:b/c"),
        # keys are not paths or URLs: nothing is resolved or decoded
        ("../data/x", RELATIVE, S3, "../data/x"),
        ("/data/x", RELATIVE, S3, "/data/x"),
        ("data/a%20b", RELATIVE, S3, "data/a%20b"),
        ("s3://bucket/ns/data/a%20b", FULL, S3, "data/a%20b"),
        ("s3://bucket/ns//data/x", FULL, S3, "/data/x"),
        ("s3://bucket/ns/../other/x", FULL, S3, "../other/x"),
        ("s3://bucket/ns/x", RELATIVE, S3, "s3://bucket/ns/x"),
        # what the official collector takes for relative, too
        ("data/p/x", FULL, S3, "data/p/x"),
    ],
)
def it_makes_addresses_comparable(address: str, kind: int, namespace: str, expected: str | None) -> None:
    assert normalize(address, kind, namespace) == expected


@given(
    st.text(min_size=1, max_size=20),
    st.sampled_from([S3, AZURE, "local://x"]),
    st.sampled_from(["", "/", "//"]),
)
def it_gives_every_key_of_the_namespace_the_same_name(key: str, namespace: str, slashes: str) -> None:
    # a namespace that ends in two slashes has them in front of all its keys
    full = namespace + (slashes or "/") + key
    assert normalize(full, FULL, namespace + slashes) == normalize(key, RELATIVE, namespace) == key


PARTS = ["data", "ns", "x", "bucket", "..", ".", "", "a%2Fb", "a@b", "a:b", "c?d", "e#f", "g\\h", "i.j", "X"]


@given(st.sampled_from(["", "s3://", "https://"]), st.lists(st.sampled_from(PARTS), min_size=1, max_size=6))
def it_knows_which_addresses_keep_their_last_part(scheme: str, parts: list[str]) -> None:
    address = scheme + "/".join(parts)
    if keeps_its_name(address):
        named = {key.rpartition("/")[2] for key in possible_keys(address, ["ns", "bucket", "x"])}
        assert named <= {parts[-1]}


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("s3://elsewhere/ns/data/x", True),
        ("data/p/x", True),
        ("x", False),
        ("s3://x", False),
        ("abfss://container@account/x", False),
        ("s3://elsewhere/x%2Fy", False),
        ("s3://elsewhere/x/..", False),
        ("s3://elsewhere/x/", False),
        ("s3://elsewhere//x", False),
        ("s3://elsewhere/x?y", False),
    ],
)
def it_trusts_usual_addresses_alone(address: str, kept: bool) -> None:
    assert keeps_its_name(address) is kept
