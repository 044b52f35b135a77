"""Pages of a listing as columns. botocore makes ten Python objects of each entry; here regular pages are
taken apart before it parses them. A page that is irregular in any way is left to botocore."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import unquote_plus

import numpy as np
import pyarrow as pa

from lakeplan.adapters.storage.translate import Kind, error_of
from lakeplan.formats.hashing import Ints
from lakeplan.ports.storage import StoredColumns

ROWS = "LakeplanRows"
"""Where the entries of a page are in botocore's answer when they were taken apart here."""
_BEGIN, _END = b"<Contents>", b"</Contents>"
_FIELD = re.compile(r"<(Key|LastModified|Size|ETag)>")
_PATTERNS = {
    "Key": r"<Key>([^<&\x00-\x1f]+)</Key>",
    "LastModified": r"<LastModified>((?!0000)[0-9]{4}-[0-9-]{5}T[0-9:]{8}(?:\.[0-9]{1,6})?Z)</LastModified>",
    "Size": r"<Size>([0-9]{1,18})</Size>",
    "ETag": r"<ETag>([^<&]*(?:&(?:quot|#34);[^<&]*)*)</ETag>",
}
_OTHERS = "(?:{})*".format(
    "|".join(
        rf"<{name}>[^<&\x00-\x1f]*</{name}>"
        for name in ("StorageClass", "ChecksumAlgorithm", "ChecksumType", "Type")
    )
)
"""Elements that stores add to entries. With one that is not known here, a page is left to botocore."""
_UTF8 = re.compile(
    rb"""(?:\s*<\?xml version=["']1\.0["'](?: encoding=["'](?i:utf-8)["'])? ?\?>)?\s*<[A-Za-z]"""
)


@dataclass(frozen=True)
class Rows:
    """Entries of a page; keys as the page writes them."""

    keys: list[str]
    sizes: Ints
    modified_us: Ints
    e_tags: list[str]


def take_rows(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object) -> None:
    """Handles botocore's ``before-parse`` of a listing: moves the entries out of its body."""
    body = response_dict["body"]
    announced = response_dict["headers"].get("Content-Length", "")
    if response_dict["status_code"] != 200 or not isinstance(body, bytes):
        return
    if announced.isdecimal() and int(announced) != len(body):
        return  # it was cut
    begin, end = body.find(_BEGIN), body.rfind(_END) + len(_END)
    if b"<!" in body[: max(begin, 0)]:
        return  # entries may be in a comment
    if 0 <= begin < end and _UTF8.match(body) and (rows := _rows(body[begin:end])) is not None:
        customized_response_dict[ROWS] = rows
        response_dict["body"] = body[:begin] + body[end:]


def _rows(section: bytes) -> Rows | None:
    """None for anything that a regular page would not have."""
    try:
        text = section.decode()
    except UnicodeDecodeError:
        return None
    first = text[: text.index(_END.decode())]
    names = tuple(_FIELD.findall(first))
    if sorted(names) not in (sorted(_PATTERNS), sorted(_PATTERNS.keys() - {"ETag"})):
        return None
    # What is between two entries, then the fields of an entry, and so on.
    parts = _pattern(names).split(text)
    width = 1 + len(names)
    if any(parts[::width]):
        return None
    columns = {name: parts[n::width] for n, name in enumerate(names, start=1)}
    try:
        modified = pa.array(columns["LastModified"], pa.string()).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        return None
    e_tags = columns.get("ETag", [""] * len(columns["Key"]))
    if "&" in text:
        e_tags = [e_tag.replace("&quot;", '"').replace("&#34;", '"') for e_tag in e_tags]
    sizes = np.array(list(map(int, columns["Size"])), np.int64)
    return Rows(columns["Key"], sizes, modified.cast(pa.int64()).to_numpy(), e_tags)


@cache
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """Of an entry with these elements in this order and others between them."""
    fields = "".join(_OTHERS + _PATTERNS[name] for name in names)
    return re.compile(f"<Contents>{fields}{_OTHERS}</Contents>")


def rows_of(answer: dict[str, Any]) -> Rows:
    """The entries of one answer, whoever took it apart, with their whole keys."""
    rows: Rows | None = answer.get(ROWS)
    if rows is None:
        items = answer.get("Contents", [])
        modified = [round(item["LastModified"].timestamp() * 1_000_000) for item in items]
        sizes = np.array([item["Size"] for item in items], np.int64)
        e_tags = [str(item.get("ETag", "")) for item in items]
        return Rows([item["Key"] for item in items], sizes, np.array(modified, np.int64), e_tags)
    if answer.get("EncodingType") != "url" or not any("%" in key or "+" in key for key in rows.keys):
        return rows
    keys = [unquote_plus(key, errors="surrogateescape") for key in rows.keys]
    return Rows(keys, rows.sizes, rows.modified_us, rows.e_tags)


def columns_of(answer: dict[str, Any], base: str, start: str, where: str) -> StoredColumns:
    """The objects of one answer, with keys relative to ``base``. Raises StorageError for a key that does not
    begin with ``start``, which was asked for: cut at the wrong place it would be the key of another object.

    What consoles and file tools leave to show a folder is no object."""
    rows = rows_of(answer)
    check_inside(rows.keys, start, where)
    cut = len(base)
    keys = [key[cut:] for key in rows.keys]
    folders = [n for n, key in enumerate(keys) if (not key or key[-1] == "/") and not (key and rows.sizes[n])]
    found = StoredColumns(binary(keys), rows.sizes, rows.modified_us, pa.array(rows.e_tags, pa.string()))
    if not folders:
        return found
    kept = np.delete(np.arange(len(keys)), folders)
    return StoredColumns(
        found.keys.take(kept), found.sizes[kept], found.modified_us[kept], found.e_tags.take(kept)
    )


def check_inside(keys: Sequence[str], start: str, where: str) -> None:
    if not all(key.startswith(start) for key in keys):
        raise error_of(Kind.BROKEN, where, detail="a key outside of the prefix that was asked for")


def binary(keys: Sequence[str]) -> pa.Array:
    """Keys as Arrow's binary."""
    try:
        return pa.array(keys, pa.string()).cast(pa.binary())
    except (UnicodeEncodeError, pa.ArrowException):
        return pa.array([key.encode(errors="surrogateescape") for key in keys], pa.binary())
