from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.errors import FormatError
from lakeplan.formats.ranges import write_metarange, write_range
from lakeplan.formats.refs import read_manifest, read_refs, write_manifest, write_refs_dump
from lakeplan.values.repository import AddressType, Branch, Commit, Entry, Refs, RefsDumpIds, Tag

from .conftest import TEXT

A, B, C = "a" * 64, "b" * 64, "c" * 64
REFS = Refs((Commit(A, 1_000_000, ""), Commit(B, 2_000_001, C, (A,))), (Branch("main", B),), (Tag("v1", A),))
NAMES = TEXT.filter(bool)


def _refs() -> st.SearchStrategy[Refs]:
    def by_id(items: list[object]) -> tuple[object, ...]:
        return tuple(sorted(items, key=lambda item: item.id.encode()))  # type: ignore[attr-defined]

    commit = st.builds(
        Commit,
        id=NAMES,
        creation_us=st.integers(-(2**50), 2**50),
        meta_range_id=st.sampled_from(["", C]),
        parents=st.lists(NAMES, max_size=3).map(tuple),
        version=st.integers(0, 1),
        generation=st.integers(0, 2**31 - 1),
        message=TEXT,
        committer=TEXT,
        metadata=st.dictionaries(TEXT, TEXT, max_size=2).map(lambda d: tuple(sorted(d.items()))),
    )
    lists = [
        st.lists(kind, max_size=6, unique_by=lambda item: item.id).map(by_id)
        for kind in (commit, st.builds(Branch, NAMES, NAMES), st.builds(Tag, NAMES, NAMES))
    ]
    return st.builds(Refs, *lists)


@settings(max_examples=50)
@given(_refs())
def it_reads_what_it_writes(refs: Refs) -> None:
    ids, files = write_refs_dump(refs)
    assert read_refs(ids, lambda _, id: files[id]) == refs


def it_asks_for_each_file_by_its_kind() -> None:
    ids, files = write_refs_dump(REFS)
    asked = []

    def read(kind: str, id: str) -> bytes:
        asked.append((kind, id))
        return files[id]

    read_refs(ids, read)
    assert [id for kind, id in asked if kind == "meta_range"] == [
        ids.commits_meta_range_id,
        ids.branches_meta_range_id,
        ids.tags_meta_range_id,
    ]
    assert {id for _, id in asked} == files.keys()


def it_gives_a_repository_without_tags_the_id_that_servers_give() -> None:
    # seen in several repositories of a real server: the id of no tags depends on nothing else
    ids, _ = write_refs_dump(Refs(REFS.commits, REFS.branches, ()))
    assert ids.tags_meta_range_id == "e77ccbca0369cb68eb14455302ee10f4baaf7aff716ec1b591aeb9b86b198d19"


class DescribeDamage:
    def it_refuses_files_in_each_others_place(self) -> None:
        ids, files = write_refs_dump(REFS)
        swapped = RefsDumpIds(ids.branches_meta_range_id, ids.commits_meta_range_id, ids.tags_meta_range_id)
        with pytest.raises(FormatError, match="branch, not commit"):
            read_refs(swapped, lambda _, id: files[id])

    def it_refuses_content_with_another_id(self) -> None:
        ids, files = write_refs_dump(REFS)
        with pytest.raises(FormatError, match="the id computed from the content") as caught:
            read_refs(ids, lambda _, id: files[ids.tags_meta_range_id])
        assert caught.value.where == ids.commits_meta_range_id

    def it_refuses_ordinary_ranges(self) -> None:
        info, range_data = write_range([Entry("p", "a", AddressType.RELATIVE, 1)])
        id, metarange = write_metarange([info])
        files = {info.id: range_data, id: metarange}
        with pytest.raises(FormatError, match="no refs"):
            read_refs(RefsDumpIds(id, id, id), lambda _, i: files[i])


class DescribeManifest:
    def it_is_written_as_it_is_read(self) -> None:
        ids = RefsDumpIds(A, B, C)
        data = write_manifest(ids)
        assert read_manifest(data) == ids
        assert data.startswith(b'{\n  "branches_meta_range_id": "bbb')

    def it_may_hold_more(self) -> None:
        body = json.loads(write_manifest(RefsDumpIds(A, B, C))) | {"version": 2}
        assert read_manifest(json.dumps(body).encode()) == RefsDumpIds(A, B, C)

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"[]",
            b"\xff",
            b"{}",
            b'{"commits_meta_range_id": 1, "branches_meta_range_id": 2, "tags_meta_range_id": 3}',
            write_manifest(RefsDumpIds(A, B, "../../etc/passwd")),
            write_manifest(RefsDumpIds(A, B, C))[:-2],
        ],
    )
    def it_is_named_when_damaged(self, data: bytes) -> None:
        with pytest.raises(FormatError) as caught:
            read_manifest(data, name="_lakefs/refs_manifest.json")
        assert caught.value.where == "_lakefs/refs_manifest.json"
