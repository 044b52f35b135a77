"""The reader and the ids, on everything that a real server stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.errors import FormatError
from lakeplan.formats.collector import files_of_run, newest_run, read_uncommitted, run_time, write_commits_csv
from lakeplan.formats.namespace import (
    GC_COMMITS_PREFIX,
    GC_RULES_KEY,
    GC_UNCOMMITTED_PREFIX,
    REFS_MANIFEST_KEY,
    metadata_key,
    normalize,
)
from lakeplan.formats.ranges import (
    METARANGES,
    RangeColumns,
    is_file_id,
    read_metarange,
    read_range,
    read_range_columns,
    write_metarange,
)
from lakeplan.formats.refs import compute_commit_id, read_manifest, read_refs, write_manifest, write_refs_dump
from lakeplan.formats.sstable import file_id, read_sstable, write_sstable
from lakeplan.values.repository import Refs
from tests.commits_csv import read_commits_csv
from tests.conftest import golden_folder, unpack_golden

pytestmark = pytest.mark.golden


def metadata_files(namespace: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted((namespace / "_lakefs").iterdir()):
        if is_file_id(path.name):
            yield path.name, path.read_bytes()


def refs_of(namespace: Path) -> Refs:
    ids = read_manifest((namespace / REFS_MANIFEST_KEY).read_bytes())
    return read_refs(ids, lambda _, id: (namespace / metadata_key(id)).read_bytes())


def keys_of(namespace: Path) -> list[str]:
    return [p.relative_to(namespace).as_posix() for p in namespace.rglob("*") if p.is_file()]


def it_reads_every_file_and_gives_it_its_id(golden: Any) -> None:
    names = set()
    for name, data in metadata_files(golden.namespace):
        table = read_sstable(data, name=name)
        assert file_id(table, table.user_properties) == name
        names.add(name)
    listed = {k["key"] for k in golden.case["listing"] if k["key"].startswith("_lakefs/")}
    assert names == {key[len("_lakefs/") :] for key in listed if is_file_id(key[len("_lakefs/") :])}
    assert names


@pytest.mark.golden(extended=["wide-1"])
def it_writes_every_file_again_under_its_id(golden: Any) -> None:
    for name, data in metadata_files(golden.namespace):
        table = read_sstable(data, name=name)
        written = write_sstable(table, user_properties=table.user_properties)
        again = read_sstable(written.data, name=name)
        assert written.id == name
        assert again.records == table.records
        # the same blocks as pebble's; only what snappy makes of a block may differ by a few bytes
        assert again.properties.keys() == table.properties.keys()
        assert abs(len(written.data) - len(data)) <= len(data) // 100


@pytest.mark.golden(extended=["wide-1"])
def it_reads_columns_as_it_reads_entries(golden: Any) -> None:
    for name, data in metadata_files(golden.namespace):
        properties = read_sstable(data, name=name).user_properties
        if properties["type"] == METARANGES:
            infos = read_metarange(data, name=name, verify_id=name)
            extra = {k: v for k, v in properties.items() if k != "type"}
            assert write_metarange(infos, extra_properties=extra)[0] == name
        elif "entity" not in properties:
            entries = list(read_range(data, name=name, verify_id=name))
            assert read_range_columns(data, name=name, verify_id=name) == RangeColumns(
                [e.path for e in entries],
                [e.address for e in entries],
                [int(e.address_type) for e in entries],
                [e.size for e in entries],
            )


def it_reads_the_refs_and_recomputes_every_commits_id(golden: Any) -> None:
    refs = refs_of(golden.namespace)
    assert [c.id for c in refs.commits] == [compute_commit_id(c) for c in refs.commits]
    by_id = {c.id: c for c in refs.commits}
    for answered in golden.case["commits_reachable_from_refs"]:
        commit = by_id[answered["id"]]
        assert (
            commit.creation_us // 1_000_000,
            commit.meta_range_id,
            list(commit.parents),
            commit.version,
            commit.generation,
            commit.message,
            commit.committer,
            dict(commit.metadata),
        ) == tuple(
            answered[key]
            for key in (
                "creation_date",
                "meta_range_id",
                "parents",
                "version",
                "generation",
                "message",
                "committer",
                "metadata",
            )
        )
    # hidden branches stand in the dump and not in the API's list
    branches = {b.id: b.commit_id for b in refs.branches}
    assert branches.items() >= {(b["id"], b["commit_id"]) for b in golden.case["branches"]}
    assert {(t.id, t.commit_id) for t in refs.tags} == {
        (t["id"], t["commit_id"]) for t in golden.case["tags"]
    }


def it_writes_branches_and_tags_under_the_servers_ids(golden: Any) -> None:
    data = (golden.namespace / REFS_MANIFEST_KEY).read_bytes()
    ids = read_manifest(data)
    assert write_manifest(ids) == data
    refs = refs_of(golden.namespace)
    written, files = write_refs_dump(refs)
    # the first commit's date has nanoseconds, which are cut off here
    assert written.branches_meta_range_id == ids.branches_meta_range_id
    assert written.tags_meta_range_id == ids.tags_meta_range_id
    assert read_refs(written, lambda _, id: files[id]) == refs


def it_finds_the_objects_that_the_api_answered(golden: Any) -> None:
    refs = refs_of(golden.namespace)
    metarange_of = {c.id: c.meta_range_id for c in refs.commits}
    head_of = {b.id: b.commit_id for b in refs.branches}
    namespace_url = golden.case["repository"]["storage_namespace"]

    def committed(branch: str) -> set[tuple[str, int, str, str]]:
        metarange = metarange_of[head_of[branch]]
        if not metarange:
            return set()
        found = set()
        for info in read_metarange((golden.namespace / metadata_key(metarange)).read_bytes(), name=metarange):
            for e in read_range((golden.namespace / metadata_key(info.id)).read_bytes(), name=info.id):
                inside = normalize(e.address, e.address_type, namespace_url)
                full = e.address if inside is None else f"{namespace_url}/{inside}"
                found.add((e.path, e.size, e.e_tag, full))
        return found

    staged = set()
    run = newest_run(keys_of(golden.namespace))
    for key in files_of_run(keys_of(golden.namespace), run) if run else []:
        found = read_uncommitted((golden.namespace / key).read_bytes(), name=key)
        staged |= {f"{namespace_url}/{address}" for address in found}
    for branch, objects in golden.case["objects_at_branch"].items():
        answered = {(o["path"], o["size_bytes"], o["checksum"], o["physical_address"]) for o in objects}
        assert {row for row in answered - committed(branch) if row[3] not in staged} == set()


def it_takes_the_newest_run_of_uncommitted_addresses(golden: Any) -> None:
    runs = [run["run_id"] for run in golden.case["uncommitted_runs"]]
    keys = keys_of(golden.namespace)
    newest = newest_run(keys)
    if newest is None:
        # a run that found nothing leaves no file
        assert not any(key.startswith(GC_UNCOMMITTED_PREFIX) for key in keys)
        return
    assert newest == runs[-1]
    files = files_of_run(keys, newest)
    for key in files:
        assert read_uncommitted((golden.namespace / key).read_bytes(), name=key)
        assert abs(run_time(newest) - (golden.namespace / key).stat().st_mtime) < 5
    assert files


def it_reads_the_active_commits_that_the_server_wrote(golden: Any) -> None:
    expected = [rule_set["active_commits"] for rule_set in golden.case["expected"]]
    if "official_collector" in golden.case:
        expected.append(golden.case["official_collector"]["active_commits"])
    keys = [k for k in keys_of(golden.namespace) if k.startswith(GC_COMMITS_PREFIX)]
    assert keys
    read = []
    for key in keys:
        data = (golden.namespace / key).read_bytes()
        read.append(read_commits_csv(data))
        assert write_commits_csv(read[-1]) == data
    assert all(answer in read for answer in expected)


def it_reads_the_stored_rules(golden: Any) -> None:
    assert (golden.namespace / GC_RULES_KEY).read_bytes() == b""


@settings(max_examples=15, deadline=None)
@given(st.data())
def it_never_takes_other_records_from_a_damaged_file(golden: Any, data: st.DataObject) -> None:
    small = [(name, file) for name, file in metadata_files(golden.namespace) if len(file) < 50_000]
    name, file = data.draw(st.sampled_from(small))
    damaged = bytearray(file)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(file) - 1))] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(file))) :]
    try:
        table = read_sstable(bytes(damaged), name=name)
    except FormatError as error:
        where = error.where
    else:
        where = name
        assert table.records == read_sstable(file, name=name).records
    assert where == name


def it_has_the_files_of_its_listing(golden: Any) -> None:
    times = {k["key"]: k["last_modified"] for k in golden.case["listing"]}
    for key in keys_of(golden.namespace):
        assert int((golden.namespace / key).stat().st_mtime) == int(times[key])


def it_is_in_the_repository_as_it_was_recorded(golden: Any, tmp_path: Path) -> None:
    folder = golden_folder()
    if folder is None or not (folder / golden.name).is_dir():
        pytest.skip("the recording is not here to be compared with")
    recorded = unpack_golden(folder / golden.name, tmp_path)
    assert recorded.case == golden.case
    assert sorted(keys_of(recorded.namespace)) == sorted(keys_of(golden.namespace))
    for key in keys_of(golden.namespace):
        assert (recorded.namespace / key).read_bytes() == (golden.namespace / key).read_bytes()
