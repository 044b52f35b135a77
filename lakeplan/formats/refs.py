"""Reads refs dumps: commits, branches and tags as protobuf messages in SSTables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeVar

from lakeplan.errors import FormatError
from lakeplan.formats import wire
from lakeplan.formats.ranges import (
    METARANGES,
    RANGES,
    is_file_id,
    metarange_of,
    read_table,
    write_metarange,
    write_record_ranges,
)
from lakeplan.formats.sstable import (
    encode_embedded,
    encode_int64,
    encode_string,
    encode_string_map,
    encode_strings,
)
from lakeplan.formats.wire import HINT, blame, damaged, join_value, split_value
from lakeplan.limits import parse_json
from lakeplan.values.repository import Branch, Commit, Refs, RefsDumpIds, Tag
from lakeplan.values.units import count_of


def decode_commit(message: bytes) -> Commit:
    """The commit in a message. Raises FormatError without a file name, also if the id is missing."""
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
    """The branch in a record's message. Staging tokens, which a dump leaves empty, are not read."""
    return Branch(*_id_and_commit(message))


def decode_tag(message: bytes) -> Tag:
    return Tag(*_id_and_commit(message))


def encode_pointer(pointer: Branch | Tag) -> bytes:
    """The message of a branch or tag: in a dump, BranchData and TagData have the same two fields."""
    return wire.field_text(1, pointer.id) + wire.field_text(2, pointer.commit_id)


def compute_commit_id(commit: Commit) -> str:
    """The id (64 hex digits) of a commit with this content, as a server computes it. Version and generation
    are not part of it."""
    parents = hashlib.sha256(encode_strings(commit.parents)).digest()
    content = (
        *map(encode_string, ("commit:v1", commit.committer, commit.message, commit.meta_range_id)),
        encode_int64(commit.creation_us // 1_000_000),
        encode_string_map(dict(commit.metadata)),
        encode_embedded(parents),
    )
    return hashlib.sha256(b"".join(content)).hexdigest()


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


EntityName = Literal["commit", "branch", "tag"]
_PACKAGE = "io.treeverse.lakefs.graveler"
_Fields = tuple[tuple[str, str, str], ...]
_COMMIT: _Fields = (
    ("id", "OPTIONAL", "STRING"),
    ("committer", "OPTIONAL", "STRING"),
    ("message", "OPTIONAL", "STRING"),
    ("creation_date", "OPTIONAL", ".google.protobuf.Timestamp"),
    ("meta_range_id", "OPTIONAL", "STRING"),
    ("metadata", "REPEATED", f".{_PACKAGE}.CommitData.MetadataEntry"),
    ("parents", "REPEATED", "STRING"),
    ("version", "OPTIONAL", "INT32"),
    ("generation", "OPTIONAL", "INT32"),
)
_BRANCH: _Fields = (
    ("id", "OPTIONAL", "STRING"),
    ("commit_id", "OPTIONAL", "STRING"),
    ("staging_token", "OPTIONAL", "STRING"),
    ("sealed_tokens", "REPEATED", "STRING"),
    ("hidden", "OPTIONAL", "BOOL"),
)
_TAG: _Fields = (("id", "OPTIONAL", "STRING"), ("commit_id", "OPTIONAL", "STRING"))
_MAP_ENTRY: _Fields = (("key", "OPTIONAL", "STRING"), ("value", "OPTIONAL", "STRING"))
_MESSAGES: dict[EntityName, tuple[str, _Fields]] = {
    "commit": ("CommitData", _COMMIT),
    "branch": ("BranchData", _BRANCH),
    "tag": ("TagData", _TAG),
}


def dump_properties(entity: EntityName) -> dict[str, str]:
    """The user properties of a dump's ranges and metaranges, without ``type``."""
    message, fields = _MESSAGES[entity]
    definition: dict[str, object] = {"name": message, "field": _describe(fields)}
    if entity == "commit":
        nested = {"name": "MetadataEntry", "field": _describe(_MAP_ENTRY), "options": {"mapEntry": True}}
        definition["nestedType"] = [nested]
    return {
        "entity": entity,
        "schema_definition": json.dumps(definition, separators=(", ", ":")),
        "schema_name": f"{_PACKAGE}.{message}",
    }


def _describe(fields: _Fields) -> list[dict[str, object]]:
    described: list[dict[str, object]] = []
    for number, (name, label, kind) in enumerate(fields, start=1):
        field: dict[str, object] = {"name": name, "number": number, "label": f"LABEL_{label}"}
        if kind.startswith("."):
            field |= {"type": "TYPE_MESSAGE", "typeName": kind}
        else:
            field["type"] = f"TYPE_{kind}"
        first, *others = name.split("_")
        field["jsonName"] = first + "".join(map(str.capitalize, others))
        described.append(field)
    return described


ReadMetadata = Callable[[Literal["meta_range", "range"], str], bytes]
"""Gives the file with an id. The kind is the API's word for it."""
_KEYS = ("commits_meta_range_id", "branches_meta_range_id", "tags_meta_range_id")
T = TypeVar("T")


def read_manifest(data: bytes, *, name: str = "refs_manifest.json") -> RefsDumpIds:
    """The ids in ``_lakefs/refs_manifest.json``. Raises FormatError."""
    try:
        manifest = parse_json(data)
    except ValueError as error:
        raise FormatError("the file is not JSON", where=name, hint=HINT, detail=str(error)) from error
    if not isinstance(manifest, dict):
        raise FormatError("the file is not a JSON object", where=name, hint=HINT)
    ids: dict[str, str] = {}
    for key in _KEYS:
        value = manifest.get(key)
        if not isinstance(value, str) or not is_file_id(value):
            raise FormatError(f"{key} is missing or is not a valid id", where=name, hint=HINT)
        ids[key] = value
    return RefsDumpIds(**ids)


def write_manifest(ids: RefsDumpIds) -> bytes:
    """The bytes of the manifest as the server writes it: sorted keys, indented by two spaces."""
    return json.dumps({key: getattr(ids, key) for key in sorted(_KEYS)}, indent=2).encode()


def read_refs(ids: RefsDumpIds, read: ReadMetadata) -> Refs:
    """All refs of a dump, verified by their files' ids. Raises FormatError, and what ``read`` raises."""
    return Refs(
        commits=tuple(_read_all(ids.commits_meta_range_id, read, "commit", decode_commit)),
        branches=tuple(_read_all(ids.branches_meta_range_id, read, "branch", decode_branch)),
        tags=tuple(_read_all(ids.tags_meta_range_id, read, "tag", decode_tag)),
    )


def write_refs_dump(refs: Refs) -> tuple[RefsDumpIds, dict[str, bytes]]:
    """The ids of the dump's metaranges, and its files by id."""
    files: dict[str, bytes] = {}
    commits = ((c.id, c.id, encode_commit(c)) for c in refs.commits)
    branches = ((b.id, b.commit_id, encode_pointer(b)) for b in refs.branches)
    tags = ((t.id, t.commit_id, encode_pointer(t)) for t in refs.tags)
    ids = RefsDumpIds(
        commits_meta_range_id=_write_all("commit", commits, files),
        branches_meta_range_id=_write_all("branch", branches, files),
        tags_meta_range_id=_write_all("tag", tags, files),
    )
    return ids, files


def _write_all(entity: EntityName, rows: Iterable[tuple[str, str, bytes]], files: dict[str, bytes]) -> str:
    """Writes rows of (key, commit id, message). The identity of every record is a commit's id."""
    properties = dump_properties(entity)
    records = sorted((key.encode(), join_value(commit.encode(), message)) for key, commit, message in rows)
    infos = []
    for info, data in write_record_ranges(records, properties):
        files[info.id] = data
        infos.append(info)
    id, data = write_metarange(infos, extra_properties=properties)
    files[id] = data
    return id


def _read_all(id: str, read: ReadMetadata, entity: EntityName, decode: Callable[[bytes], T]) -> Iterator[T]:
    metarange = read_table(read("meta_range", id), name=id, kind=METARANGES, verify_id=id)
    _expect(metarange.user_properties, entity, id)
    for info in metarange_of(metarange):
        table = read_table(read("range", info.id), name=info.id, kind=RANGES, verify_id=info.id)
        _expect(table.user_properties, entity, info.id)
        with blame(info.id):
            if len(table) != info.count:
                records = count_of(len(table), "record")
                raise damaged(f"the range has {records}, but its metarange states {info.count}")
            for _, value in table:
                yield decode(split_value(value)[1])


def _expect(properties: dict[str, str], entity: str, name: str) -> None:
    stored = properties.get("entity")
    if stored != entity:
        raise FormatError(
            f"the file contains {stored or 'no refs'}, not {entity} records", where=name, hint=HINT
        )
