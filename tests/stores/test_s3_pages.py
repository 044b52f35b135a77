"""A page that is taken apart here has the same entries as when botocore parses it, or is left to botocore."""

from __future__ import annotations

from functools import cache
from typing import Any
from xml.sax.saxutils import escape

import botocore.session
import pytest
from botocore.handlers import decode_list_object_v2
from botocore.parsers import create_parser
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import StorageError
from lakeplan.stores.open import ColumnReader, open_namespace, open_sweep_store
from lakeplan.stores.s3_client import ROWS, Rows, columns_of, rows_of, take_rows
from tests.faulty_store import Answer, FaultyStore, Rule
from tests.storage_servers import s3_client

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult><Name>b</Name>'
TAIL = "<IsTruncated>false</IsTruncated></ListBucketResult>"
TIME = "<LastModified>2026-01-02T03:04:05.678Z</LastModified>"
ENTRY = f"<Contents><Key>r/data/x</Key>{TIME}<ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>"


@cache
def shape() -> Any:
    return botocore.session.Session().get_service_model("s3").operation_model("ListObjectsV2").output_shape


def parsed(body: bytes, *, taking: bool) -> dict[str, Any]:
    response = {"body": body, "headers": {"Content-Length": str(len(body))}, "status_code": 200}
    more: dict[str, Any] = {}
    if taking:
        take_rows(response, more)
    answer: dict[str, Any] = create_parser("rest-xml").parse(response, shape())
    decode_list_object_v2(answer, {"encoding_type_auto_set": True})
    return answer | more


def plain(rows: Rows) -> list[tuple[object, ...]]:
    return list(zip(rows.keys, rows.sizes.tolist(), rows.modified_us.tolist(), rows.e_tags, strict=True))


def page(*entries: str, head: str = HEAD) -> bytes:
    return (head + "".join(entries) + TAIL).encode()


keys = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")), min_size=1)


@given(
    entries=st.lists(
        st.tuples(keys, st.integers(0, 10**15), st.integers(0, 999_999)), min_size=1, max_size=5
    ),
    order=st.permutations(["Key", "LastModified", "Size", "ETag", "StorageClass"]),
    encoded=st.booleans(),
)
def it_reads_what_botocore_reads(
    entries: list[tuple[str, int, int]], order: list[str], encoded: bool
) -> None:
    texts = []
    for key, size, micros in entries:
        fields = {
            "Key": escape(key),
            "LastModified": f"2026-01-02T03:04:05.{micros:06}Z",
            "Size": str(size),
            "ETag": "&quot;abc&quot;",
            "StorageClass": "STANDARD",
        }
        inner = "".join(f"<{name}>{fields[name]}</{name}>" for name in order)
        texts.append(f"<Contents>{inner}</Contents>")
    body = page(*texts, head=HEAD + ("<EncodingType>url</EncodingType>" if encoded else ""))
    assert plain(rows_of(parsed(body, taking=True))) == plain(rows_of(parsed(body, taking=False)))


def it_takes_a_regular_page_apart() -> None:
    more = ENTRY.replace("<Size>", "<ChecksumAlgorithm>CRC32</ChecksumAlgorithm><Size>")
    body = page(ENTRY, more)
    answer = parsed(body, taking=True)
    assert ROWS in answer
    assert "Contents" not in answer
    assert plain(rows_of(answer)) == [("r/data/x", 7, 1767323045678000, '"e"')] * 2


@pytest.mark.parametrize(
    "odd",
    [
        ENTRY.replace("data/x", "data/x&amp;y"),
        ENTRY.replace("data/x", "data/<![CDATA[x]]>"),
        ENTRY.replace("data/x", "data/<!-- x -->y"),
        ENTRY.replace("data/x", "data/&#10;x"),
        ENTRY.replace("data/x", "data/\tx"),
        ENTRY.replace("<Key>", "<Key><Key>z</Key></Key><Key>"),
        ENTRY.replace("</Contents>", "<Key>other</Key></Contents>"),
        ENTRY.replace("</Contents>", "<Owner><ID>i</ID><Key>k</Key></Owner></Contents>"),
        ENTRY.replace("</Contents>", "<StorageClass>STANDARD</ChecksumType></Contents>"),
        ENTRY.replace("</Contents>", "<StorageClass>&nothing;</StorageClass></Contents>"),
        ENTRY.replace("</Contents>", "<Unknown>x</Unknown></Contents>"),
        ENTRY.replace("<Size>7", "<Size> 7"),
        ENTRY.replace("<Size>7", "<Size>-7"),
        ENTRY.replace(TIME, ""),
        ENTRY.replace(".678Z", ".678+02:00"),
        ENTRY.replace("2026-01-02", "2026-13-02"),
        ENTRY.replace("2026-01-02", "0000-01-02"),
        "<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes>",
        "\n",
        "<Contents></Contents>",
        "<Contents/>",
    ],
)
def it_leaves_an_irregular_page_to_botocore(odd: str) -> None:
    body = page(ENTRY, odd, ENTRY)
    response = {"body": body, "headers": {}, "status_code": 200}
    more: dict[str, Any] = {}
    take_rows(response, more)
    assert (response["body"], more) == (body, {})


@pytest.mark.parametrize(
    ("status", "length", "head"),
    [
        (500, None, HEAD),
        (200, 10**6, HEAD),
        (200, None, HEAD.replace("UTF-8", "ISO-8859-1")),
        (200, None, f"{HEAD}<!-- --><Name><![CDATA["),
    ],
)
def it_leaves_an_answer_that_may_not_be_what_it_seems(status: int, length: int | None, head: str) -> None:
    body = page(ENTRY, head=head)
    headers = {} if length is None else {"Content-Length": str(length)}
    more: dict[str, Any] = {}
    take_rows({"body": body, "headers": headers, "status_code": status}, more)
    assert more == {}


def it_keeps_bytes_that_are_not_utf_8() -> None:
    body = page(ENTRY.replace("data/x", "data/%FF+%2B"), head=HEAD + "<EncodingType>url</EncodingType>")
    columns = columns_of(parsed(body, taking=True), "r/", "r/data/", "s3://b")
    assert columns.keys.to_pylist() == [b"data/\xff +"]


def it_lists_keys_exactly_as_boto3_does(s3_bucket: str) -> None:
    """Object stores take a key as it is. A tool that reads it as a path would name another object."""
    odd = [
        "a//b",
        "a/",
        "/a",
        "a/./b",
        "a/../b",
        "..",
        "a%2eb",
        "a%2Fb",
        "a+b",
        " a ",
        "a\\b",
        "~*",
        "é",
        "日/x",
    ]
    client = s3_client()
    for key in odd:
        client.put_object(Bucket=s3_bucket, Key=f"r/data/{key}", Body=b"12")
    listed = client.list_objects_v2(Bucket=s3_bucket, Prefix="r/data/")["Contents"]
    reader = open_namespace(f"s3://{s3_bucket}/r")
    assert isinstance(reader, ColumnReader)
    ours = [stored for columns in reader.list_columns("data/") for stored in columns.objects()]
    assert [f"r/{one.key}" for one in ours] == [item["Key"] for item in listed]
    assert {one.key for one in ours} == {f"data/{key}" for key in odd}
    assert [one.modified_us / 1e6 for one in ours] == [item["LastModified"].timestamp() for item in listed]
    assert [one.e_tag for one in ours] == [item["ETag"] for item in listed]


def it_takes_no_key_outside_of_the_prefix_it_asked_for(s3_endpoint: str, s3_bucket: str) -> None:
    """Cut at the place where the namespace should end, it would be the key of another object."""
    with FaultyStore(s3_endpoint) as faulty:
        faulty.arm(Rule(Answer(200, page(ENTRY.replace("r/data", "s/data")).decode()), method="GET"))
        store = open_sweep_store(f"s3://{s3_bucket}/r", endpoint_url=faulty.url)
        with pytest.raises(StorageError, match="damaged"):
            list(store.list_objects("data/"))
        with pytest.raises(StorageError, match="damaged"):
            store.find(["data/x"])
