"""The protobuf messages of a refs dump: ``CommitData``, ``BranchData``, ``TagData``."""

from __future__ import annotations

from lakeplan.formats import wire
from lakeplan.formats.damage import damaged
from lakeplan.formats.identity import commit_id
from lakeplan.model.refs import Branch, Commit, Tag


def decode_commit(message: bytes) -> Commit:
    """Raises FormatError, unnamed; a commit without an id is refused."""
    id = committer = text = meta_range_id = ""
    created: list[bytes] = []
    metadata: dict[str, str] = {}
    parents: list[str] = []
    version = generation = 0
    for number, value in wire.read_fields(message):
        match number:
            case 1:
                id = wire.as_text(value)
            case 2:
                committer = wire.as_text(value)
            case 3:
                text = wire.as_text(value)
            case 4:
                created.append(wire.as_bytes(value))
            case 5:
                meta_range_id = wire.as_text(value)
            case 6:
                key, item = wire.as_text_pair(value)
                metadata[key] = item
            case 7:
                parents.append(wire.as_text(value))
            case 8:
                version = wire.as_int32(value)
            case 9:
                generation = wire.as_int32(value)
            case _:
                pass
    if not id:
        raise damaged("a commit has no id")
    return Commit(
        id=id,
        creation_us=wire.timestamp_us(b"".join(created)),
        meta_range_id=meta_range_id,
        parents=tuple(parents),
        version=version,
        generation=generation,
        message=text,
        committer=committer,
        metadata=tuple(sorted(metadata.items())),
    )


def encode_commit(commit: Commit) -> bytes:
    return b"".join(
        (
            wire.field_text(1, commit.id),
            wire.field_text(2, commit.committer),
            wire.field_text(3, commit.message),
            wire.field_timestamp(4, commit.creation_us),
            wire.field_text(5, commit.meta_range_id),
            wire.field_text_map(6, commit.metadata),
            wire.field_texts(7, commit.parents),
            wire.field_int(8, commit.version),
            wire.field_int(9, commit.generation),
        )
    )


def decode_branch(message: bytes) -> Branch:
    """Staging tokens, which a dump leaves empty, are not read."""
    return Branch(*_id_and_commit(message))


def decode_tag(message: bytes) -> Tag:
    return Tag(*_id_and_commit(message))


def encode_pointer(pointer: Branch | Tag) -> bytes:
    """BranchData and TagData have the same two fields in a dump."""
    return wire.field_text(1, pointer.id) + wire.field_text(2, pointer.commit_id)


def compute_commit_id(commit: Commit) -> str:
    """The id that the commit's content gives. Commits that a server wrote have exactly this id."""
    return commit_id(
        committer=commit.committer,
        message=commit.message,
        meta_range_id=commit.meta_range_id,
        creation_seconds=commit.creation_us // 1_000_000,
        metadata=dict(commit.metadata),
        parents=commit.parents,
    )


def _id_and_commit(message: bytes) -> tuple[str, str]:
    id = commit = ""
    for number, value in wire.read_fields(message):
        if number == 1:
            id = wire.as_text(value)
        elif number == 2:
            commit = wire.as_text(value)
    if not id:
        raise damaged("a branch or tag has no id")
    return id, commit
