"""Refs dumps: all commits, branches and tags of a repository as SSTables, and their manifest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeVar

from lakeplan.errors import FormatError
from lakeplan.formats.damage import HINT, blame, damaged
from lakeplan.formats.range_data import is_file_id
from lakeplan.formats.range_writer import write_metarange, write_record_ranges
from lakeplan.formats.ranges import METARANGES, RANGES, metarange_of, read_table
from lakeplan.formats.refs import decode_branch, decode_commit, decode_tag, encode_commit, encode_pointer
from lakeplan.formats.refs_schema import EntityName, dump_properties
from lakeplan.formats.value import join_value, split_value
from lakeplan.limits import parse_json
from lakeplan.model.refs import Refs, RefsDumpIds

ReadMetadata = Callable[[Literal["meta_range", "range"], str], bytes]
"""Gives the file with an id. The kind is the API's word for it."""
_KEYS = ("commits_meta_range_id", "branches_meta_range_id", "tags_meta_range_id")
T = TypeVar("T")


def read_manifest(data: bytes, *, name: str = "refs_manifest.json") -> RefsDumpIds:
    """The ids in ``_lakefs/refs_manifest.json``. Raises FormatError."""
    try:
        manifest = parse_json(data)
    except ValueError as error:
        raise FormatError("is no JSON", where=name, hint=HINT, detail=str(error)) from error
    if not isinstance(manifest, dict):
        raise FormatError("is no JSON object", where=name, hint=HINT)
    ids: dict[str, str] = {}
    for key in _KEYS:
        value = manifest.get(key)
        if not isinstance(value, str) or not is_file_id(value):
            raise FormatError(f"{key} is missing or is no id", where=name, hint=HINT)
        ids[key] = value
    return RefsDumpIds(**ids)


def write_manifest(ids: RefsDumpIds) -> bytes:
    """The manifest as the server writes it: sorted keys, two spaces."""
    return json.dumps({key: getattr(ids, key) for key in sorted(_KEYS)}, indent=2).encode()


def read_refs(ids: RefsDumpIds, read: ReadMetadata) -> Refs:
    """All refs of a dump, every file verified against its id. Raises FormatError, and what ``read`` does."""
    return Refs(
        commits=tuple(_read_all(ids.commits_meta_range_id, read, "commit", decode_commit)),
        branches=tuple(_read_all(ids.branches_meta_range_id, read, "branch", decode_branch)),
        tags=tuple(_read_all(ids.tags_meta_range_id, read, "tag", decode_tag)),
    )


def write_refs_dump(refs: Refs) -> tuple[RefsDumpIds, dict[str, bytes]]:
    """The ids of the dump's metaranges, and every file of it by its id."""
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
    """Rows are (key, commit id, message): the identity of every record is a commit's id."""
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
                raise damaged(f"holds {len(table)} records, and its metarange says {info.count}")
            for _, value in table:
                yield decode(split_value(value)[1])


def _expect(properties: dict[str, str], entity: str, name: str) -> None:
    found = properties.get("entity")
    if found != entity:
        raise FormatError(f"holds {found or 'no refs'}, not {entity} records", where=name, hint=HINT)
