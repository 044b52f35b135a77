"""The protobuf ``Entry``: one object of a commit."""

from __future__ import annotations

from lakeplan.formats import wire
from lakeplan.formats.damage import damaged
from lakeplan.formats.identity import entry_identity
from lakeplan.model.objects import AddressType, Entry


def decode_entry(path: bytes, message: bytes) -> Entry:
    """The entry at ``path``. A path that is not UTF-8 keeps its bytes as surrogates (``surrogateescape``).

    Raises FormatError, unnamed: no protobuf, an unknown address type, a negative size.
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
                # repeated occurrences of a message merge, which is what joining their bytes does
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
    if size < 0:
        raise damaged(f"an entry has the size {size}")
    return Entry(
        path=path.decode(errors="surrogateescape"),
        address=address,
        address_type=AddressType(address_type),
        size=size,
        last_modified_us=wire.timestamp_us(b"".join(modified)),
        e_tag=e_tag,
        content_type=content_type,
        metadata=tuple(sorted(metadata.items())),
    )


def encode_entry(entry: Entry) -> tuple[bytes, bytes]:
    """(identity, message), as the server writes them."""
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
    identity = entry_identity(
        size=entry.size,
        e_tag=entry.e_tag,
        metadata=dict(entry.metadata),
        content_type=entry.content_type,
    )
    return identity, message


def entry_key(entry: Entry) -> bytes:
    """The key of an entry's record: its path's bytes."""
    return entry.path.encode(errors="surrogateescape")
