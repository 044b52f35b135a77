"""S3 inventories, as S3 writes them."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeplan.errors import StorageNotFound
from lakeplan.values.repository import StoredObject

FIELDS = {
    "bucket": pa.string(),
    "key": pa.string(),
    "version_id": pa.string(),
    "is_latest": pa.bool_(),
    "is_delete_marker": pa.bool_(),
    "size": pa.int64(),
    "last_modified_date": pa.timestamp("ms", "UTC"),
    "e_tag": pa.string(),
}
VERSIONED = ("version_id", "is_latest", "is_delete_marker")
Row = Mapping[str, Any]


def inventory_file(rows: Sequence[Row], *, bucket: str, versions: bool = False) -> bytes:
    """``rows`` have a key, and what differs from the current version of an object of one byte."""
    default = {
        "bucket": bucket,
        "version_id": "v",
        "is_latest": True,
        "is_delete_marker": False,
        "size": 1,
        "last_modified_date": 0,
        "e_tag": "e",
    }
    schema = pa.schema({n: t for n, t in FIELDS.items() if versions or n not in VERSIONED}.items())
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([default | dict(row) for row in rows], schema), out)
    return out.getvalue()


def inventory(
    files: Sequence[bytes], /, *, bucket: str, to: str, created_ms: int, folder: str, **changed: Any
) -> dict[str, bytes]:
    """All files by key, of which ``<folder>/manifest.json`` is one."""
    data = {f"{folder}/data/{n}.parquet": file for n, file in enumerate(files)}
    manifest = {
        "sourceBucket": bucket,
        "destinationBucket": f"arn:aws:s3:::{to}",
        "version": "2016-11-30",
        "creationTimestamp": str(created_ms),
        "fileFormat": "Parquet",
        "fileSchema": "message s3.inventory { … }",
        "files": [
            {"key": key, "size": len(file), "MD5checksum": hashlib.md5(file).hexdigest()}
            for key, file in data.items()
        ],
    }
    text = json.dumps(manifest | changed).encode()
    checksum = hashlib.md5(text).hexdigest().encode()
    return data | {f"{folder}/manifest.json": text, f"{folder}/manifest.checksum": checksum}


@dataclass
class FakeStore:
    files: dict[str, bytes]
    modified_us: int = 1 << 60
    url: str = "s3://inv"

    def read(self, key: str) -> bytes:
        if key not in self.files:
            raise StorageNotFound("there is no such object", where=key)
        return self.files[key]

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        return iter([StoredObject(k, 1, self.modified_us) for k in self.files if k.startswith(prefix)])

    def list_prefixes(self, prefix: str = "") -> list[str]:
        return []
