"""An S3 Inventory in the place of a listing. A mark never uses one: what is deleted is listed."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan import limits
from lakeplan.errors import FormatError, LakeplanError, StorageError, StorageNotFound, UsageError
from lakeplan.formats.inventory import InventoryFile, Manifest, read_inventory_file, read_inventory_manifest
from lakeplan.model.urls import BadUrl, parse_bucket_url, shown_url
from lakeplan.ports.storage import NamespaceReader, StoredColumns
from lakeplan.simulation.inputs import iso
from lakeplan.simulation.stored import chosen
from lakeplan.simulation.work import Kind, WorkItem

MANIFEST = "manifest.json"
CHECKSUM = "manifest.checksum"
SECOND_US = 1_000_000


@dataclass(frozen=True)
class Inventory:
    """What was stored in a bucket at ``created_us``. Can be pickled. ``base``: what keys of the namespace
    begin with in the bucket."""

    url: str
    bucket: str
    base: str
    created_us: int
    age_seconds: int
    files: tuple[InventoryFile, ...]
    reader: NamespaceReader

    def items(self) -> list[WorkItem]:
        return [
            WorkItem(Kind.INVENTORY, 0, file.key, file.size, sort_key=bytes.fromhex(file.md5))
            for file in self.files
        ]

    def read(self, key: str, md5: str) -> StoredColumns:
        """What one file has of the namespace. Raises FormatError and StorageError."""
        table = self._table(key, md5)
        keys = table["key"].combine_chunks()
        longest = pc.max(pc.binary_length(keys)).as_py()
        if longest is not None and longest > limits.KEY_BYTES:
            raise FormatError("has a key that is longer than keys can be", where=f"{self.url}: {key}")
        stored = StoredColumns(
            keys,
            table["size"].to_numpy(),
            table["modified_us"].to_numpy(),
            table["e_tag"].combine_chunks(),
        )
        inside = pc.and_(
            pc.starts_with(keys, self.base.encode()),
            pc.greater(pc.binary_length(keys), len(self.base.encode())),
        )
        markers = pc.and_(pc.ends_with(keys, b"/"), pa.array(stored.sizes == 0))
        found = chosen(stored, np.array(pc.and_not(inside, markers).to_numpy(zero_copy_only=False), np.bool_))
        # Without an end, Arrow counts bytes below zero for more than one key.
        relative = pc.binary_slice(found.keys, len(self.base.encode()), limits.KEY_BYTES)
        return StoredColumns(relative, found.sizes, found.modified_us, found.e_tags)

    def document(self) -> dict[str, object]:
        return {"url": self.url, "created": iso(self.created_us), "age_seconds": self.age_seconds}

    def warning(self) -> str:
        age = timedelta(seconds=self.age_seconds)
        return (
            f"what is stored is as the S3 inventory of {iso(self.created_us)} has it ({age} old): "
            "objects written or deleted since are not considered"
        )

    def check_covers(self) -> None:
        """Raises LakeplanError unless its keys prove that the namespace is in it.

        An inventory does not say which prefix it was made of. All its keys begin with that prefix; so when
        what they have in common is the beginning of the namespace, the prefix is too.
        """
        shared: bytes | None = None
        base = self.base.encode()
        # The first and the last are read first: files may be in the order of keys.
        for file in (*self.files[:1], *self.files[:0:-1]):
            keys = self._table(file.key, file.md5)["key"]
            if len(keys):
                ends = [pc.min(keys).as_py(), pc.max(keys).as_py(), *(() if shared is None else (shared,))]
                shared = os.path.commonprefix(ends)  # noqa: RUF071 - of keys, which are no paths
            if shared is not None and base.startswith(shared):
                return
        raise LakeplanError(
            "the inventory does not cover the namespace: "
            + ("it is empty" if shared is None else "all its keys are elsewhere, or in a part of it"),
            where=self.url,
            hint=f"Use an inventory of the bucket {self.bucket} without a prefix, or with one that the "
            "namespace begins with.",
        )

    def _table(self, key: str, md5: str) -> pa.Table:
        name = f"{self.url.rpartition('/')[0]}: {key}"
        return read_inventory_file(self.reader.read(key), bucket=self.bucket, md5=md5, name=name)


def parse_inventory_url(url: str) -> tuple[str, str]:
    """Bucket and key of a manifest. Raises UsageError for what is no ``s3://…/manifest.json``."""
    try:
        found = parse_bucket_url(url)
    except BadUrl as error:
        raise UsageError(f"{shown_url(url)}: {error}", hint=f"s3://bucket/…/{MANIFEST}") from None
    if found.prefix.rpartition("/")[2] != MANIFEST:
        raise UsageError(f"{shown_url(url)} does not name a {MANIFEST}", hint=f"s3://bucket/…/{MANIFEST}")
    return found.bucket, found.prefix


def open_inventory(
    url: str, reader: NamespaceReader, namespace_url: str, *, as_of_us: int, max_age_seconds: int
) -> Inventory:
    """The inventory whose manifest is at ``url``; ``reader`` reads the bucket that it is in.

    Raises LakeplanError for one that is too old at ``as_of_us`` or does not cover the namespace, FormatError
    for one that is damaged, StorageError for what cannot be read.
    """
    bucket, key = parse_inventory_url(url)
    source, base = _place_of(namespace_url)
    manifest = _manifest(reader, key, url)
    if manifest.destination != bucket:
        raise FormatError(
            f"the manifest says that its files are in another bucket, {manifest.destination}",
            where=url,
            hint="Give the address where the inventory was delivered.",
        )
    if manifest.bucket != source:
        raise LakeplanError(
            f"the inventory is of the bucket {manifest.bucket[:100]}, and the namespace is in {source}",
            where=url,
            hint="Use an inventory of the namespace's bucket.",
        )
    # A manifest cannot be younger than its file.
    written = next((o.modified_us for o in reader.list_objects(key) if o.key == key), manifest.created_us)
    created = min(manifest.created_us, written)
    age = max(0, as_of_us - created) // SECOND_US
    if age > max_age_seconds:
        raise LakeplanError(
            f"the inventory is {timedelta(seconds=age)} old, and at most {timedelta(seconds=max_age_seconds)}"
            " is allowed",
            where=url,
            hint="Use a newer inventory, or raise its maximum age (inventory_max_age, --max-inventory-age).",
        )
    found = Inventory(url, source, base, created, age, manifest.files, reader)
    for file in manifest.files:
        if file.size > limits.OBJECT_BYTES:
            raise StorageError(
                f"{file.key} is larger than {limits.size_text(limits.OBJECT_BYTES)}",
                where=url,
                hint="docs/limits.md has the limits",
            )
    found.check_covers()
    return found


def _manifest(reader: NamespaceReader, key: str, url: str) -> Manifest:
    data = reader.read(key)
    try:
        checksum = reader.read(key.removesuffix(MANIFEST) + CHECKSUM).decode("ascii", "replace").strip()
    except StorageNotFound:
        checksum = ""
    if checksum and checksum != hashlib.md5(data, usedforsecurity=False).hexdigest():
        raise FormatError(
            f"does not have the checksum in {CHECKSUM} beside it",
            where=url,
            hint="Copy the whole inventory again, or use another one.",
        )
    return read_inventory_manifest(data, name=url)


def _place_of(namespace_url: str) -> tuple[str, str]:
    """The bucket of a namespace, and what its keys begin with there."""
    try:
        found = parse_bucket_url(namespace_url)
    except BadUrl:
        raise UsageError(
            f"an S3 inventory is of a bucket, and the namespace is {shown_url(namespace_url)}",
            hint="Leave the inventory out: what is stored is listed then.",
        ) from None
    return found.bucket, f"{found.prefix}/" if found.prefix else ""
