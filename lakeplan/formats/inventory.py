"""Reads manifests and files of an S3 Inventory in Parquet.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/storage-inventory-location.html
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.formats.parquet import blame_parquet, open_parquet, read_parquet
from lakeplan.formats.wire import HINT, LIMIT_HINT
from lakeplan.limits import TooLarge, parse_json

_ARN = re.compile(r"arn:aws[a-z-]{0,20}:s3:::([A-Za-z0-9._-]{3,255})", re.ASCII)
_MD5 = re.compile(r"[0-9a-f]{32}", re.ASCII)
_COLUMNS = ("bucket", "key", "size", "last_modified_date")


@dataclass(frozen=True)
class InventoryFile:
    """A data file of an inventory. ``md5`` is hexadecimal."""

    key: str
    size: int
    md5: str


@dataclass(frozen=True)
class Manifest:
    """A manifest. ``created_us``: when the inventory was begun (UTC microseconds), without later changes."""

    bucket: str
    destination: str
    created_us: int
    files: tuple[InventoryFile, ...]


def read_inventory_manifest(data: bytes, *, name: str) -> Manifest:
    """The manifest in ``manifest.json``. Raises FormatError naming ``name``, also unless it lists Parquet."""
    try:
        document = parse_json(data)
        if not isinstance(document, Mapping):
            raise ValueError("the manifest is not a JSON object")
        if document.get("fileFormat") != "Parquet":
            raise FormatError(
                f"the format of the inventory is {str(document.get('fileFormat'))[:20]}, but only Parquet is"
                " supported",
                where=name,
                hint="Configure the inventory with Apache Parquet as its output format.",
            )
        destination = _ARN.fullmatch(_text(document, "destinationBucket"))
        if destination is None:
            raise ValueError("destinationBucket is not the ARN of a bucket")
        created = _text(document, "creationTimestamp")
        if limits.number_of(created) is None or len(created) > 14:
            raise ValueError("creationTimestamp is not a timestamp")
        files = tuple(_file(item) for item in document.get("files") or ())
        if len({file.key for file in files}) != len(files):
            raise ValueError("the manifest lists a file twice")
        return Manifest(_text(document, "sourceBucket"), destination[1], int(created) * 1000, files)
    except TooLarge as error:
        raise FormatError(f"the manifest exceeds a limit: {error}", where=name, hint=LIMIT_HINT) from None
    except (ValueError, TypeError) as error:
        raise FormatError(
            "the file is not the manifest of an S3 inventory", where=name, hint=HINT, detail=str(error)
        ) from error


def _file(item: Any) -> InventoryFile:
    size = item["size"] if isinstance(item, Mapping) and "size" in item else None
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError("a file of the inventory has no size")
    md5 = _text(item, "MD5checksum").lower()
    if not _MD5.fullmatch(md5):
        raise ValueError("MD5checksum is not a valid MD5 checksum")
    return InventoryFile(_text(item, "key"), size, md5)


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is missing")
    value.encode()  # raises ValueError for a lone surrogate
    return value


def read_inventory_file(data: bytes, *, bucket: str, md5: str, name: str) -> pa.Table:
    """The current objects of one file: ``key`` (binary), ``size``, ``modified_us`` and ``e_tag``. Older
    versions and delete markers are left out.

    Raises FormatError naming ``name`` for a file that is not the one in the manifest (``md5``), or that has
    rows of another bucket.
    """
    if hashlib.md5(data, usedforsecurity=False).hexdigest() != md5:
        raise FormatError(
            "the file does not match its checksum in the manifest",
            where=name,
            hint="Copy the whole inventory again, or use a different inventory.",
        )
    with blame_parquet(name, "the file is not a complete Parquet file of an inventory"):
        table = read_parquet(open_parquet(data))
        if len({*table.column_names}) != table.num_columns:
            raise ValueError("two columns have the same name")
        missing = [column for column in _COLUMNS if column not in table.column_names]
        if missing:
            raise FormatError(
                f"these columns are missing from the inventory: {', '.join(missing)}",
                where=name,
                hint="Configure the inventory to include the fields Size and LastModifiedDate.",
            )
        return _current(table, bucket)


def _in_us(modified: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as microseconds, rounded down. Raises ArrowException for a time that does not fit."""
    kind = modified.type
    return modified.cast(pa.timestamp("us", kind.tz), safe=kind.unit != "ns").cast(pa.int64())


def _current(table: pa.Table, bucket: str) -> pa.Table:
    if not pc.all(pc.equal(table["bucket"].cast(pa.string()), bucket), min_count=0, skip_nulls=False).as_py():
        raise ValueError("a row belongs to a different bucket")
    if "is_latest" in table.column_names:
        latest = table["is_latest"].cast(pa.bool_())
        if latest.null_count:
            raise ValueError("an entry does not state whether it is the latest version")
        table = table.filter(latest)
    elif "version_id" in table.column_names:
        raise ValueError("the file lists versions, but does not state which ones are the latest")
    if "is_delete_marker" in table.column_names:
        table = table.filter(pc.invert(pc.fill_null(table["is_delete_marker"].cast(pa.bool_()), False)))
    modified = table["last_modified_date"]
    if pa.types.is_integer(modified.type):  # a writer without logical types: milliseconds
        modified = modified.cast(pa.int64()).cast(pa.timestamp("ms"))
    if not pa.types.is_timestamp(modified.type):
        raise ValueError(f"last_modified_date has type {modified.type}, not a timestamp")
    e_tags = table["e_tag"].cast(pa.string()) if "e_tag" in table.column_names else None
    columns = {
        "key": table["key"].cast(pa.binary()),
        "size": table["size"].cast(pa.int64()),
        "modified_us": _in_us(modified),
        "e_tag": pa.chunked_array([pa.repeat("", len(table))])
        if e_tags is None
        else pc.fill_null(e_tags, ""),
    }
    columns["e_tag"].validate(full=True)  # pyarrow reads texts that are not UTF-8
    if any(column.null_count for column in columns.values()):
        raise ValueError("an object in the inventory has no key, size or time")
    if len(table) and pc.min(columns["size"]).as_py() < 0:
        raise ValueError("a size is negative")
    return pa.table({name: column.combine_chunks() for name, column in columns.items()})
