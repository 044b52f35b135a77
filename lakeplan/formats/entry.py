"""Entries of ranges, and lakeFS's content ids: the id of a range, metarange or commit is its checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from lakeplan.formats import wire
from lakeplan.formats.wire import damaged
from lakeplan.values.repository import AddressType, Entry

_BYTES, _STRING, _INT64, _STRINGS, _STRING_MAP, _EMBEDDED = (bytes((t,)) for t in range(6))
_RECORDS_PER_UPDATE = 4096


def encode_int64(value: int) -> bytes:
    return _INT64 + b"\x08" + value.to_bytes(8, "big", signed=True)


def encode_bytes(value: bytes) -> bytes:
    return _BYTES + encode_int64(len(value)) + value


def encode_embedded(identity: bytes) -> bytes:
    """The encoding of an embedded identity: the SHA-256 (32 bytes) of what it identifies."""
    return _EMBEDDED + encode_bytes(identity)


def encode_string(value: str) -> bytes:
    raw = value.encode()
    return _STRING + encode_int64(len(raw)) + raw


def encode_strings(values: Sequence[str]) -> bytes:
    return _STRINGS + encode_int64(len(values)) + b"".join(map(encode_string, values))


def encode_string_map(values: Mapping[str, str]) -> bytes:
    # Go compares strings by their bytes.
    keys = sorted(values, key=str.encode)
    pairs = b"".join(encode_string(k) + encode_string(values[k]) for k in keys)
    return _STRING_MAP + encode_int64(len(keys)) + pairs


class FileIdHash:
    """Computes the id of a range or metarange from its records, in the order of the file."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._pieces: list[bytes] = []

    def add(self, key: bytes, value: bytes) -> None:
        self._pieces.append(b"%d%b|%d%b|" % (len(key), key, len(value), value))
        if len(self._pieces) == _RECORDS_PER_UPDATE:
            self._flush()

    def finish(self, properties: Mapping[str, str]) -> str:
        """The id as 64 hex digits. ``properties`` are those present before bounds, count and size are added
        (``SSTable.user_properties``)."""
        self._flush()
        self._digest.update(encode_string_map(properties))
        return self._digest.hexdigest()

    def _flush(self) -> None:
        self._digest.update(b"".join(self._pieces))
        self._pieces.clear()


def file_id(records: Iterable[tuple[bytes, bytes]], properties: Mapping[str, str]) -> str:
    """The id (64 hex digits) of the range or metarange with these records."""
    identity = FileIdHash()
    for key, value in records:
        identity.add(key, value)
    return identity.finish(properties)


def file_id_of_body(body: Iterable[bytes | memoryview], properties: Mapping[str, str]) -> str:
    """The id (as ``file_id``) of records that ``FileIdHash.add`` would join to these bytes, in chunks of any
    length."""
    digest = hashlib.sha256()
    for piece in body:
        digest.update(piece)
    digest.update(encode_string_map(properties))
    return digest.hexdigest()


def decode_entry(path: bytes, message: bytes) -> Entry:
    """The entry at ``path``. Bytes of a path that are not UTF-8 become surrogates (``surrogateescape``).

    A negative size, which servers accept from clients, becomes 0. Raises FormatError, unnamed, for damaged
    protobuf or an unknown address type.
    """
    address = e_tag = content_type = ""
    size = address_type = 0
    modified: list[bytes] = []
    metadata: dict[str, str] = {}
    for number, value in wire.read_fields(message):
        match number:
            case 1:
                address = wire.as_text(value)
            case 2:
                # Repeated occurrences of a message merge, which is the same as joining their bytes.
                modified.append(wire.as_bytes(value))
            case 3:
                size = wire.as_int64(value)
            case 4:
                e_tag = wire.as_text(value)
            case 5:
                key, text = wire.as_text_pair(value)
                metadata[key] = text
            case 6:
                address_type = wire.as_int32(value)
            case 7:
                content_type = wire.as_text(value)
            case _:
                pass
    if not 0 <= address_type <= max(AddressType):
        raise damaged(f"an entry has the unknown address type {address_type}")
    return Entry(
        path=path.decode(errors="surrogateescape"),
        address=address,
        address_type=AddressType(address_type),
        size=max(0, size),
        last_modified_us=wire.timestamp_us(b"".join(modified)),
        e_tag=e_tag,
        content_type=content_type,
        metadata=tuple(sorted(metadata.items())),
    )


def encode_entry(entry: Entry) -> tuple[bytes, bytes]:
    """The (identity, message) of an entry, as the server writes them. The identity (32 bytes) precedes the
    message in a range's value. It does not depend on the object's address or on when it was written."""
    message = b"".join(
        (
            wire.field_text(1, entry.address),
            wire.field_timestamp(2, entry.last_modified_us),
            wire.field_int(3, entry.size),
            wire.field_text(4, entry.e_tag),
            wire.field_text_map(5, entry.metadata),
            wire.field_int(6, int(entry.address_type)),
            wire.field_text(7, entry.content_type),
        )
    )
    identity = encode_int64(entry.size) + encode_string(entry.e_tag) + encode_string_map(dict(entry.metadata))
    if entry.content_type:  # the first versions of lakeFS had none
        identity += encode_string(entry.content_type)
    return hashlib.sha256(identity).digest(), message


def entry_key(entry: Entry) -> bytes:
    """The key of an entry's record: its path's bytes."""
    return entry.path.encode(errors="surrogateescape")
