"""Namespaces that share storage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.sweep.rules import Place, overlapping, place_of
from lakeplan.values.repository import Repository


def repository(name: str, namespace: str) -> Repository:
    return Repository(name, namespace, "main", 0)


def how(own: str, other: str) -> str:
    found = overlapping(repository("own", own), [repository("own", own), repository("other", other)])
    return found[0][1] if found else ""


EQUAL = "has the same storage namespace"
INSIDE = "has its storage namespace inside this repository's namespace"
CONTAINS = "has a storage namespace that contains this repository's namespace"


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ("s3://b/ns", "s3://b/ns", EQUAL),
        ("s3://b/ns", "s3://b/ns/", EQUAL),
        ("s3://b/ns", "s3a://B/ns//", EQUAL),
        ("s3://b/ns", "S3N://b/ns", EQUAL),
        ("s3://b/ns", "s3://b/ns/data", INSIDE),
        ("s3://b/ns", "s3://b/ns/_lakeplan/x", INSIDE),
        ("s3://b/ns/deep/er", "s3://b/ns", CONTAINS),
        ("s3://b/ns", "s3://b", CONTAINS),
        ("s3://b", "s3://b/", EQUAL),
        ("local://repo1", "local://repo1/data", INSIDE),
        ("https://a.blob.core.windows.net/c/ns", "https://A.blob.core.windows.net/c/ns/x", INSIDE),
        ("s3://b/ns", "s3://b/x/../ns", EQUAL),
        ("s3://b/ns", "s3://b/./n%73?x=1", EQUAL),
        ("local://repo1", "local://x/../repo1/data", INSIDE),
        ("https://a.blob.core.windows.net/c/ns", "https://a.dfs.core.windows.net//c/ns", EQUAL),
        ("https://a.blob.core.windows.net/c/ns", "abfss://c@a.dfs.core.windows.net/ns/x", INSIDE),
        ("https://a.blob.core.windows.net/c/ns", "http://127.0.0.1:10000/a/c/ns", EQUAL),
        ("s3://b/ns", "s3://b/ns2", ""),
        ("s3://b/ns", "s3://b/n", ""),
        ("s3://b/ns", "s3://other/ns", ""),
        ("s3://b/ns", "local://b/ns", ""),
        ("s3://b/ns", "s3://b/NS", ""),
        ("https://a.blob.core.windows.net/c/ns", "https://b.blob.core.windows.net/c/ns", ""),
    ],
)
def it_tells_how_two_namespaces_lie(own: str, other: str, expected: str) -> None:
    assert how(own, other) == expected


def it_also_tells_what_another_name_of_the_storage_would_make_equal() -> None:
    own = repository("own", "https://a.blob.core.windows.net/c/ns")
    other = repository("other", "https://files.example.com/c/ns")
    assert overlapping(own, [other]) == []
    assert overlapping(own, [other], any_store=True) == [(other, EQUAL)]


def it_names_every_repository_that_shares_and_never_itself() -> None:
    own = repository("own", "s3://b/ns")
    others = [own, repository("x", "s3://b/ns/x"), repository("y", "s3://c"), repository("z", "s3://b")]
    assert [other.id for other, _ in overlapping(own, others)] == ["x", "z"]


PARTS = st.lists(st.sampled_from(["a", "b", "data"]), max_size=4)
OPPOSITE = {EQUAL: EQUAL, INSIDE: CONTAINS, CONTAINS: INSIDE, "": ""}


@given(PARTS, PARTS)
def test_both_sides_see_the_same(one: list[str], other: list[str]) -> None:
    first, second = ("/".join(["s3://bucket", *parts]) for parts in (one, other))
    assert how(first, second) == OPPOSITE[how(second, first)]
    shared = f"{first}/".startswith(f"{second}/") or f"{second}/".startswith(f"{first}/")
    assert bool(how(first, second)) is shared


@pytest.mark.parametrize(
    ("namespace", "place"),
    [
        ("s3a://B/x//./y", Place("s3", "", ("b", "x", "y"))),
        ("s3://b/x://y", Place("s3", "", ("b", "x:", "y"))),
        ("s3://", Place("s3", "", ())),
        ("gs://b/x", Place("gcs", "", ("b", "x"))),
        ("Odd://Host/x", Place("odd", "", ("host", "x"))),
        ("no/scheme", Place("", "", ("no", "scheme"))),
        ("abfss://c@a.dfs.core.windows.net/ns", Place("azure", "a", ("c", "ns"))),
        ("https://a.blob.core.windows.net/c/ns", Place("azure", "a", ("c", "ns"))),
        ("http://localhost:10000/a/c/ns", Place("azure", "a", ("c", "ns"))),
        ("http://[::1]:10000/a/c", Place("azure", "a", ("c",))),
        ("http://127.0.0.1:10000/a", Place("azure", "a", ())),
        ("http://127.0.0.1:10000/", Place("azure", "", ())),
    ],
)
def it_takes_a_namespace_apart(namespace: str, place: Place) -> None:
    assert place_of(namespace) == place
