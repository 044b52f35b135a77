"""Stored objects as columns, from a listing or an S3 Inventory in Parquet, and runs of uncommitted addresses.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/storage-inventory-location.html
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan import limits
from lakeplan.errors import (
    FormatError,
    LakeplanError,
    StorageDenied,
    StorageError,
    StorageNotFound,
    UsageError,
)
from lakeplan.formats.collector import files_of_run, newest_run, run_time
from lakeplan.formats.namespace import (
    DATA_PREFIX,
    GC_UNCOMMITTED_PREFIX,
    METADATA_PREFIX,
    check_not_nested,
    is_candidate_key,
)
from lakeplan.formats.parquet import blame_parquet, open_parquet, read_parquet
from lakeplan.formats.range_arrays import WORD, Hashes, Ints, hash_spans
from lakeplan.formats.wire import HINT, LIMIT_HINT
from lakeplan.limits import TooLarge, parse_json
from lakeplan.simulation.inputs import iso
from lakeplan.simulation.runners import Kind, WorkItem
from lakeplan.stores.open import ColumnReader, NamespaceReader, StoredColumns
from lakeplan.values.repository import StoredObject, batches
from lakeplan.values.units import number_of
from lakeplan.values.urls import BadUrl, parse_bucket_url, shown_url

if TYPE_CHECKING:
    from lakeplan.simulation.documents import InventoryRow
    from lakeplan.simulation.observing import Source


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
        if number_of(created) is None or len(created) > 14:
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


AT_ONCE = 1 << 16
"""The least number of listed objects that become rows together, if there are as many."""


def list_stored(reader: NamespaceReader, prefix: str, *, recursive: bool = True) -> Iterator[StoredColumns]:
    """The columns of ``list_objects``, in batches of at least ``AT_ONCE`` rows except the last."""
    if isinstance(reader, ColumnReader):
        return in_batches(reader.list_columns(prefix, recursive=recursive), AT_ONCE)
    return map(columns_of, batches(reader.list_objects(prefix, recursive=recursive), AT_ONCE))


def in_batches(listing: Iterable[StoredColumns], rows: int) -> Iterator[StoredColumns]:
    """The same rows in batches of at least this size except the last."""
    waiting: list[StoredColumns] = []
    for columns in listing:
        waiting += [columns] if len(columns) else []
        if sum(map(len, waiting)) >= rows:
            yield joined(waiting)
            waiting = []
    if waiting:
        yield joined(waiting)


def columns_of(some: Sequence[StoredObject]) -> StoredColumns:
    return StoredColumns(
        pa.array([stored.key.encode(errors="surrogateescape") for stored in some], pa.binary()),
        np.array([stored.size for stored in some], np.int64),
        np.array([stored.modified_us for stored in some], np.int64),
        pa.array([stored.e_tag for stored in some], pa.string()),
    )


def joined(columns: list[StoredColumns]) -> StoredColumns:
    return StoredColumns(
        pa.concat_arrays([one.keys for one in columns]),
        np.concatenate([one.sizes for one in columns]),
        np.concatenate([one.modified_us for one in columns]),
        pa.concat_arrays([one.e_tags for one in columns]),
    )


def chosen(columns: StoredColumns, mask: npt.NDArray[np.bool_]) -> StoredColumns:
    """The rows that a mask chooses."""
    if mask.all():
        return columns
    rows = pa.array(mask)
    return StoredColumns(
        columns.keys.filter(rows), columns.sizes[mask], columns.modified_us[mask], columns.e_tags.filter(rows)
    )


def candidates(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """The result of ``namespace.is_candidate_key`` for each key."""
    below = pc.and_(
        pc.starts_with(keys, DATA_PREFIX.encode()), pc.greater(pc.binary_length(keys), len(DATA_PREFIX))
    )
    # A key with a folder named `.` or `..` is no candidate.
    plain = pc.and_not(below, pc.match_substring(keys, b"/."))
    flags: npt.NDArray[np.bool_] = np.array(plain.to_numpy(zero_copy_only=False))
    others = np.flatnonzero(~flags)
    flags[others] = [is_candidate_key(key) for key in _texts(keys.take(others))]
    return flags


def check_none_nested(keys: pa.Array) -> None:
    """Calls ``namespace.check_not_nested`` for each key."""
    for key in _texts(keys.filter(pc.match_substring(keys, f"/{METADATA_PREFIX}".encode()))):
        check_not_nested(key)


def is_text(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each key is UTF-8."""
    try:
        keys.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([_is_utf8(key) for key in keys.to_pylist()])
    return np.ones(len(keys), np.bool_)


def strings_of(keys: pa.Array) -> pa.Array:
    """Keys as Arrow strings. Bytes that are not UTF-8 become ``\\xNN``."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="backslashreplace") for key in keys.to_pylist()])


def hash_strings(strings: pa.Array) -> Hashes:
    """The hashes of strings, as in ``range_arrays.hash_texts``."""
    if not len(strings):
        return np.zeros(0, np.uint64)
    _, offsets, data = strings.buffers()
    offsets_of: Ints = np.frombuffer(offsets, np.int32)[strings.offset :][: len(strings) + 1].astype(np.int64)
    buffer = np.zeros(offsets_of[-1] + WORD, np.uint8)
    buffer[: offsets_of[-1]] = np.frombuffer(data or b"", np.uint8)[: offsets_of[-1]]
    return hash_spans(buffer, offsets_of[:-1], offsets_of[1:])[0]


def _is_utf8(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _texts(keys: pa.Array) -> list[str]:
    return [key.decode(errors="surrogateescape") for key in keys.to_pylist()]


SECOND_US = 1_000_000


@dataclass(frozen=True)
class StagedRun:
    """The newest run of uncommitted addresses. ``run_id`` is None if there is none. (A run that finds nothing
    leaves no file.)"""

    run_id: str | None = None
    created_us: int | None = None
    files: tuple[str, ...] = ()

    def items(self) -> list[WorkItem]:
        return [WorkItem(Kind.UNCOMMITTED, 0, key) for key in self.files]

    def warnings(self, young_from_us: int) -> list[str]:
        """What a run lacks that was created before ``young_from_us``."""
        if self.created_us is None or self.created_us >= young_from_us:
            return []
        return [
            f"the list of uncommitted objects of {iso(self.created_us)} is older than the minimum age, so"
            " objects that became uncommitted after the list was created may be shown as garbage"
        ]


def find_run(namespace: NamespaceReader, *, as_of_us: int, max_age_seconds: int) -> StagedRun:
    """The newest run in the namespace. Only the newest counts (golden/README.md, risk-2).

    Raises LakeplanError for a run that is older than ``max_age_seconds`` at ``as_of_us``, because data staged
    since then would be shown as garbage.
    """
    try:
        keys = [o.key for o in namespace.list_objects(GC_UNCOMMITTED_PREFIX)]
    except StorageDenied:
        return StagedRun()
    run_id = newest_run(keys)
    if run_id is None:
        return StagedRun()
    created_us = run_time(run_id) * SECOND_US
    age = as_of_us - created_us
    if age > max_age_seconds * SECOND_US:
        raise LakeplanError(
            f"the newest list of uncommitted addresses, from run {run_id}, is {timedelta(microseconds=age)}"
            f" old, but the maximum age is {timedelta(seconds=max_age_seconds)}",
            where=f"{namespace.url}/{GC_UNCOMMITTED_PREFIX}{run_id}",
            hint=(
                "Create a new list, which also contains later uncommitted changes, or increase"
                " --max-uncommitted-age."
            ),
        )
    return StagedRun(run_id, created_us, tuple(files_of_run(keys, run_id)))


MANIFEST = "manifest.json"
CHECKSUM = "manifest.checksum"


@dataclass(frozen=True)
class Inventory:
    """The objects stored in a bucket at ``created_us``. Can be pickled. ``base``: the prefix of the
    namespace's keys in the bucket."""

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
        """The objects of the namespace in one file. Raises FormatError and StorageError."""
        table = self._table(key, md5)
        keys = table["key"].combine_chunks()
        longest = pc.max(pc.binary_length(keys)).as_py()
        if longest is not None and longest > limits.KEY_BYTES:
            raise FormatError(
                f"the inventory contains a key that is longer than the limit of {limits.KEY_BYTES:,} bytes",
                where=f"{self.url}: {key}",
            )
        stored = StoredColumns(
            keys, table["size"].to_numpy(), table["modified_us"].to_numpy(), table["e_tag"].combine_chunks()
        )
        inside = pc.and_(
            pc.starts_with(keys, self.base.encode()),
            pc.greater(pc.binary_length(keys), len(self.base.encode())),
        )
        markers = pc.and_(pc.ends_with(keys, b"/"), pa.array(stored.sizes == 0))
        rows = chosen(stored, np.array(pc.and_not(inside, markers).to_numpy(zero_copy_only=False), np.bool_))
        # Arrow miscounts the bytes of several keys if no end is given.
        relative = pc.binary_slice(rows.keys, len(self.base.encode()), limits.KEY_BYTES)
        return StoredColumns(relative, rows.sizes, rows.modified_us, rows.e_tags)

    def document(self) -> InventoryRow:
        return {"url": self.url, "created": iso(self.created_us), "age_seconds": self.age_seconds}

    def warning(self) -> str:
        age = timedelta(seconds=self.age_seconds)
        return (
            f"the list of stored objects comes from the S3 inventory of {iso(self.created_us)} ({age}"
            " old); objects that were written or deleted after the inventory was created are not"
            " considered"
        )

    def check_covers(self) -> None:
        """Raises LakeplanError unless its keys prove that it covers the namespace.

        An inventory does not say for which prefix it was made, but all its keys begin with that prefix. So if
        the namespace begins with what all keys have in common, it begins with that prefix too.
        """
        shared: bytes | None = None
        base = self.base.encode()
        # The first and the last file are read first, because files may be in the order of keys.
        for file in (*self.files[:1], *self.files[:0:-1]):
            keys = self._table(file.key, file.md5)["key"]
            if len(keys):
                samples = [pc.min(keys).as_py(), pc.max(keys).as_py(), *(() if shared is None else (shared,))]
                shared = os.path.commonprefix(samples)  # noqa: RUF071 - of keys, which are no paths
            if shared is not None and base.startswith(shared):
                return
        raise LakeplanError(
            "the inventory does not cover the namespace, because "
            + (
                "it is empty"
                if shared is None
                else "all its keys are outside the namespace or in only a part of it"
            ),
            where=self.url,
            hint=f"Use an inventory of the whole bucket {self.bucket}, or of a prefix that contains the"
            " namespace.",
        )

    def _table(self, key: str, md5: str) -> pa.Table:
        name = f"{self.url.rpartition('/')[0]}: {key}"
        return read_inventory_file(self.reader.read(key), bucket=self.bucket, md5=md5, name=name)


def parse_inventory_url(url: str) -> tuple[str, str]:
    """Bucket and key of a manifest. Raises UsageError for anything but ``s3://…/manifest.json``."""
    try:
        parsed = parse_bucket_url(url)
    except BadUrl as error:
        raise UsageError(f"{shown_url(url)}: {error}", hint=f"Use s3://bucket/…/{MANIFEST}.") from None
    if parsed.prefix.rpartition("/")[2] != MANIFEST:
        raise UsageError(
            f"{shown_url(url)} is not the URL of a {MANIFEST}", hint=(f"Use s3://bucket/…/{MANIFEST}.")
        )
    return parsed.bucket, parsed.prefix


def open_inventory(
    url: str, reader: NamespaceReader, namespace_url: str, *, as_of_us: int, max_age_seconds: int
) -> Inventory:
    """The inventory whose manifest is at ``url``, in the bucket that ``reader`` reads.

    Raises LakeplanError for one that is too old at ``as_of_us`` or does not cover the namespace, FormatError
    for one that is damaged, StorageError for what cannot be read.
    """
    bucket, key = parse_inventory_url(url)
    source, base = _place_of(namespace_url)
    manifest = _manifest(reader, key, url)
    if manifest.destination != bucket:
        raise FormatError(
            f"according to the manifest, its files are in a different bucket, {manifest.destination}",
            where=url,
            hint="Use the URL that the inventory was delivered to.",
        )
    if manifest.bucket != source:
        raise LakeplanError(
            f"the inventory lists the bucket {manifest.bucket[:100]}, but the namespace is in the bucket"
            f" {source}",
            where=url,
            hint="Use an inventory of the namespace's bucket.",
        )
    # A manifest cannot be younger than its file, whatever it says.
    written = next((o.modified_us for o in reader.list_objects(key) if o.key == key), manifest.created_us)
    created = min(manifest.created_us, written)
    age = max(0, as_of_us - created) // SECOND_US
    if age > max_age_seconds:
        raise LakeplanError(
            f"the inventory is {timedelta(seconds=age)} old, but the maximum age is"
            f" {timedelta(seconds=max_age_seconds)}",
            where=url,
            hint=(
                "Use a newer inventory, or increase the maximum age (inventory_max_age, --max-inventory-age)."
            ),
        )
    inventory = Inventory(url, source, base, created, age, manifest.files, reader)
    for file in manifest.files:
        if file.size > limits.OBJECT_BYTES:
            raise StorageError(
                f"{file.key} is larger than the limit of {limits.size_text(limits.OBJECT_BYTES)}",
                where=url,
                hint="See docs/limits.md for the limits.",
            )
    inventory.check_covers()
    return inventory


def _manifest(reader: NamespaceReader, key: str, url: str) -> Manifest:
    data = reader.read(key)
    try:
        checksum = reader.read(key.removesuffix(MANIFEST) + CHECKSUM).decode("ascii", "replace").strip()
    except StorageNotFound:
        checksum = ""
    if checksum and checksum != hashlib.md5(data, usedforsecurity=False).hexdigest():
        raise FormatError(
            f"the manifest does not match the checksum in {CHECKSUM}, which is in the same folder",
            where=url,
            hint="Copy the whole inventory again, or use a different inventory.",
        )
    return read_inventory_manifest(data, name=url)


def _place_of(namespace_url: str) -> tuple[str, str]:
    """The bucket of a namespace, and the prefix of its keys there."""
    try:
        parsed = parse_bucket_url(namespace_url)
    except BadUrl:
        raise UsageError(
            f"an S3 inventory lists an S3 bucket, but the namespace {shown_url(namespace_url)} is not in one",
            hint="Remove --inventory to list the stored objects directly instead.",
        ) from None
    return parsed.bucket, f"{parsed.prefix}/" if parsed.prefix else ""


LISTED_AHEAD = 1 << 18
"""Rows of one listing that wait in memory while ranges are read."""


def list_item(source: Source, item: WorkItem) -> Iterator[StoredColumns]:
    """The stored objects of a prefix, or those in an inventory file. The first ``LISTED_AHEAD`` rows are
    listed before this returns."""
    if item.kind is Kind.INVENTORY:
        assert source.inventory is not None, "items of an inventory have a source with that inventory"
        return iter([source.inventory.read(item.name, item.sort_key.hex())])
    reader = source.opened()
    coming: Iterator[StoredColumns]
    if item.kind is Kind.ROOT_LISTING:
        coming = chain.from_iterable(list_stored(reader, name, recursive=False) for name in ("", DATA_PREFIX))
    else:
        coming = list_stored(reader, item.name)
    first: list[StoredColumns] = []
    while sum(map(len, first)) < LISTED_AHEAD and (columns := next(coming, None)) is not None:
        first.append(columns)
    return chain(first, coming)
