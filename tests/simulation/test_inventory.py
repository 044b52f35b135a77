from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeplan.errors import FormatError, LakeplanError, UsageError
from lakeplan.simulation.listings import Inventory, open_inventory, parse_inventory_url, read_inventory_file
from lakeplan.values.repository import StoredObject
from tests.simulation.inventories import FakeStore, Row, inventory, inventory_file

DAY = 86_400
NOW_MS = 1_700_000_000_000
URL = "s3://inv/x/manifest.json"
KEYS = ("ns/_lakefs/dummy", "ns/data/p/1")


def delivered(*files: Sequence[Row | str], versions: bool = False, **changed: Any) -> FakeStore:
    rows = [[{"key": row} if isinstance(row, str) else row for row in file] for file in files or [KEYS]]
    data = [inventory_file(file, bucket="b", versions=versions) for file in rows]
    return FakeStore(inventory(data, bucket="b", to="inv", created_ms=NOW_MS, folder="x", **changed))


def opened(
    files: FakeStore, namespace: str = "s3://b/ns", *, days: float = 0, max_days: int = 8
) -> Inventory:
    as_of = NOW_MS * 1000 + int(days * DAY * 1_000_000)
    return open_inventory(URL, files, namespace, as_of_us=as_of, max_age_seconds=max_days * DAY)


def stored(found: Inventory) -> list[StoredObject]:
    every = (found.read(item.name, item.sort_key.hex()) for item in found.items())
    return [one for columns in every for one in columns.objects()]


def it_has_what_is_in_the_namespace() -> None:
    files = delivered(
        ["ns/_lakefs/dummy", {"key": "ns/data/p/1", "size": 7, "last_modified_date": 5, "e_tag": "q"}],
        ["nsx/data/p/2", "ns", "ns/", {"key": "ns/data/", "size": 0}, "ns/data/é", "data/ns/data/p"],
    )
    assert stored(opened(files)) == [
        StoredObject("_lakefs/dummy", 1, 0, "e"),
        StoredObject("data/p/1", 7, 5000, "q"),
        StoredObject("data/é", 1, 0, "e"),
    ]


def it_has_current_versions_only() -> None:
    rows = [
        {"key": "ns/_lakefs/dummy"},
        {"key": "ns/data/p/1", "version_id": "2", "size": 2},
        {"key": "ns/data/p/1", "version_id": "1", "is_latest": False, "size": 1},
        {"key": "ns/data/p/deleted", "is_delete_marker": True, "size": None},
        {"key": "ns/data/p/deleted", "is_latest": False},
    ]
    found = stored(opened(delivered(rows, versions=True)))
    assert [(one.key, one.size) for one in found] == [("_lakefs/dummy", 1), ("data/p/1", 2)]


@pytest.mark.parametrize(
    ("row", "versions"),
    [
        ({"bucket": "other"}, False),
        ({"bucket": None}, False),
        ({"size": None}, False),
        ({"size": -1}, False),
        ({"last_modified_date": None}, False),
        ({"is_latest": None}, True),
    ],
)
def it_takes_no_row_that_does_not_say_enough(row: Row, versions: bool) -> None:
    files = delivered([*KEYS, {"key": "ns/data/x", **row}][::-1], versions=versions)
    with pytest.raises(FormatError, match="not a complete Parquet file of an inventory"):
        stored(opened(files))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("last_modified_date", pa.array(["2023-01-01T00:00:00Z"] * 2)),
        ("last_modified_date", pa.array([True, True])),
        ("last_modified_date", pa.array([1 << 62] * 2, pa.timestamp("ms", "UTC"))),
        ("key", pa.array(["ns/data/p/1"] * 2)),
    ],
)
def it_takes_no_file_with_other_columns(column: str, values: pa.Array) -> None:
    """A column that is there already comes to be there twice."""
    table = pq.read_table(io.BytesIO(inventory_file([{"key": key} for key in KEYS], bucket="b")))
    if column != "key":
        table = table.drop_columns([column])
    out = io.BytesIO()
    pq.write_table(table.append_column(column, values), out)
    files = FakeStore(inventory([out.getvalue()], bucket="b", to="inv", created_ms=NOW_MS, folder="x"))
    with pytest.raises(FormatError, match="not a complete Parquet file of an inventory"):
        stored(opened(files))


def it_takes_no_file_with_an_e_tag_that_is_not_utf_8() -> None:
    data = inventory_file([{"key": "a", "e_tag": "damaged"}], bucket="b").replace(b"damaged", b"damage\xff")
    with pytest.raises(FormatError, match="not a complete Parquet file"):
        read_inventory_file(data, bucket="b", md5=hashlib.md5(data).hexdigest(), name="x")


def it_takes_no_file_but_the_one_that_the_manifest_names() -> None:
    files = delivered()
    name = next(name for name in files.files if name.endswith(".parquet"))
    found = opened(files)
    files.files[name] = inventory_file([{"key": "ns/data/p/other"}], bucket="b")
    with pytest.raises(FormatError, match="does not match its checksum in the manifest"):
        stored(found)


def it_takes_no_manifest_but_the_one_that_was_delivered() -> None:
    files = delivered()
    manifest = json.loads(files.files["x/manifest.json"])
    files.files["x/manifest.json"] = json.dumps(manifest | {"files": []}).encode()
    with pytest.raises(FormatError, match=r"manifest\.checksum"):
        opened(files)


def it_does_without_a_checksum_of_the_manifest() -> None:
    files = delivered()
    del files.files["x/manifest.checksum"]
    assert len(stored(opened(files))) == 2


@pytest.mark.parametrize(
    ("namespace", "files"),
    [
        ("s3://b/ns", [["ns/data/p/1", "ns/data/p/2"]]),
        ("s3://b/ns", [["ns/data/1"], ["ns/data/2"]]),
        ("s3://b/ns", [["other/_lakefs/a", "other/data/a"]]),
        ("s3://b/ns", [[]]),
        ("s3://b/ns", [["ns2/_lakefs/a", "ns2/data/a"]]),
        ("s3://b", [["data/a", "data/b"]]),
    ],
)
def it_is_not_used_where_it_may_not_cover_the_namespace(namespace: str, files: list[list[str]]) -> None:
    with pytest.raises(LakeplanError, match="does not cover"):
        opened(delivered(*files), namespace)


@pytest.mark.parametrize(
    ("namespace", "files"),
    [
        ("s3://b/ns", [["ns/_lakefs/a", "ns/data/a"]]),
        ("s3://b/ns", [["ns/_lakefs/a"], [], ["ns/data/a"]]),
        ("s3://b/ns", [["zebra", "ape"]]),
        ("s3://b/ns/deep", [["ns/deep/data/a", "ns/x"]]),
        ("s3://b", [["_lakefs/a", "data/a"]]),
    ],
)
def it_is_used_where_its_keys_prove_that_it_covers_the_namespace(
    namespace: str, files: list[list[str]]
) -> None:
    assert opened(delivered(*files), namespace).files


def it_is_not_used_for_another_bucket() -> None:
    with pytest.raises(LakeplanError, match="lists the bucket b, but the namespace is in the bucket c"):
        opened(delivered(), "s3://c/ns")
    with pytest.raises(UsageError, match="lists an S3 bucket"):
        opened(delivered(), "file:///b/ns")
    with pytest.raises(FormatError, match="files are in a different bucket"):
        opened(delivered(destinationBucket="arn:aws:s3:::elsewhere"))


def it_is_not_used_when_it_is_too_old() -> None:
    assert opened(delivered(), days=8).age_seconds == 8 * DAY
    with pytest.raises(LakeplanError, match="is 8 days, 0:01:00 old") as caught:
        opened(delivered(), days=8 + 60 / DAY)
    assert "--max-inventory-age" in caught.value.hint


def it_is_as_old_as_its_file_whatever_it_says_itself() -> None:
    """A manifest that claims a time to come would never be too old."""
    files = delivered(creationTimestamp=str(NOW_MS * 2))
    files.modified_us = (NOW_MS - 9 * DAY * 1000) * 1000
    with pytest.raises(LakeplanError, match="9 days"):
        opened(files)


def it_says_of_which_date_it_is() -> None:
    found = opened(delivered(), days=2)
    assert found.document() == {"url": URL, "created": "2023-11-14T22:13:20Z", "age_seconds": 2 * DAY}
    assert "2023-11-14T22:13:20Z" in found.warning()


@pytest.mark.parametrize(
    "changed",
    [
        {"files": [{"key": "k", "size": 1}]},
        {"files": [{"key": "k", "size": -1, "MD5checksum": "0" * 32}]},
        {"files": [{"key": "k", "size": True, "MD5checksum": "0" * 32}]},
        {"files": [{"key": "k", "size": 1, "MD5checksum": "z"}]},
        {"files": [{"key": "k", "size": 1, "MD5checksum": "0" * 32}] * 2},
        {"files": ["k"]},
        {"files": 7},
        {"sourceBucket": None},
        {"creationTimestamp": "yesterday"},
        {"creationTimestamp": "9" * 18},
        {"creationTimestamp": "9" * 15},
        {"files": [{"key": "\ud800", "size": 1, "MD5checksum": "0" * 32}]},
        {"destinationBucket": "inv"},
    ],
)
def it_reads_no_manifest_that_is_damaged(changed: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="not the manifest"):
        opened(delivered(**changed))


def it_reads_parquet_only() -> None:
    with pytest.raises(FormatError, match="is CSV, but only Parquet"):
        opened(delivered(fileFormat="CSV"))


@pytest.mark.parametrize("url", ["s3://b/x", "file:///b/manifest.json", "s3://b/xmanifest.json", "s3://"])
def it_takes_the_address_of_a_manifest_only(url: str) -> None:
    with pytest.raises(UsageError):
        parse_inventory_url(url)
