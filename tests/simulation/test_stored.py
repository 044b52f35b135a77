from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import FormatError, LakeplanError, StorageDenied
from lakeplan.formats.namespace import GC_UNCOMMITTED_PREFIX, XidSource, is_candidate_key, uncommitted_prefix
from lakeplan.formats.range_arrays import hash_texts
from lakeplan.simulation import listings
from lakeplan.simulation.listings import (
    SECOND_US,
    StagedRun,
    candidates,
    check_none_nested,
    chosen,
    columns_of,
    find_run,
    hash_strings,
    is_text,
    list_stored,
    strings_of,
)
from lakeplan.simulation.runners import Kind, WorkItem
from lakeplan.stores.open import StoredColumns, open_namespace
from lakeplan.values.repository import StoredObject

parts = st.sampled_from(["data", "_lakefs", ".", "..", "", "a", "dummy", ".x", "x.", "é", "\udcff"])
some_keys = st.lists(st.lists(parts, max_size=4).map("/".join), max_size=6)


def objects_of(keys: list[str]) -> list[StoredObject]:
    return [StoredObject(key, n, n * 10, f'"{n}"') for n, key in enumerate(keys)]


@given(some_keys)
def it_is_a_candidate_in_columns_as_it_is_alone(keys: list[str]) -> None:
    found = candidates(columns_of(objects_of(keys)).keys)
    assert found.tolist() == [is_candidate_key(key) for key in keys]


@given(some_keys)
def it_has_the_hashes_of_texts(keys: list[str]) -> None:
    texts = strings_of(columns_of(objects_of(keys)).keys)
    assert hash_strings(texts).tolist() == hash_texts(texts.to_pylist()).tolist()
    assert hash_strings(texts[1:]).tolist() == hash_texts(texts.to_pylist()[1:]).tolist()


def it_is_a_candidate_only_where_a_collector_would_delete() -> None:
    expected = {
        "data/a": True,
        "data/a/b": True,
        "data/.x": True,
        "data/x./y": True,
        "data/\udcff": True,
        "x": True,
        "\udcffx": True,
        "data/": False,
        "data": True,
        "data/./x": False,
        "data/../x": False,
        "data/a/..": False,
        "_lakefs/x": False,
        "other/x": False,
        "": False,
    }
    assert candidates(columns_of(objects_of([*expected])).keys).tolist() == [*expected.values()]


def it_hashes_some_texts_of_an_array() -> None:
    texts = ["a", "", "b" * 40, "data/é", "z"]
    array = pa.array(texts)
    for some in (slice(0, 5), slice(1, 4), slice(4, 5), slice(1, 2), slice(2, 2)):
        assert hash_strings(array[some]).tolist() == hash_texts(texts[some]).tolist()
    assert hash_strings(pa.array([""])).tolist() == hash_texts([""]).tolist()
    assert hash_strings(pa.array([], pa.string())).dtype == np.uint64


class DescribeTheNewestRun:
    """``find_run`` at a moment in seconds, where a run began at 1,000."""

    @pytest.fixture
    def run_id(self) -> str:
        return XidSource(lambda: 1_000.0, lambda n: b"\x01" * n).descending()

    def find(self, keys: list[str], at: int = 1_100, most: int = 100) -> StagedRun:
        def list_objects(prefix: str) -> list[StoredObject]:
            assert prefix == GC_UNCOMMITTED_PREFIX
            if not keys:
                raise StorageDenied("no permission")
            return objects_of(keys)

        reader = SimpleNamespace(list_objects=list_objects, url="s3://b/ns")
        return find_run(reader, as_of_us=at * SECOND_US, max_age_seconds=most)  # type: ignore[arg-type]

    def it_is_read_with_all_its_files(self, run_id: str) -> None:
        folder = uncommitted_prefix(run_id)
        found = self.find([f"{folder}dc0fkmhksdu8jkn5vaj1", f"{folder}dc0fkmhksdu8jkn5vaj0", "_lakefs/other"])
        assert (found.run_id, found.created_us) == (run_id, 1_000 * SECOND_US)
        assert found.files == tuple(f"{folder}dc0fkmhksdu8jkn5vaj{n}" for n in (0, 1))
        assert found.items() == [WorkItem(Kind.UNCOMMITTED, 0, key) for key in found.files]

    def it_is_none_where_nothing_may_be_read_or_is_there(self) -> None:
        assert self.find([]) == self.find(["_lakefs/other"]) == StagedRun()

    def it_is_refused_if_it_is_too_old(self, run_id: str) -> None:
        keys = [f"{uncommitted_prefix(run_id)}dc0fkmhksdu8jkn5vaj1"]
        with pytest.raises(LakeplanError, match="is 0:01:41 old, but the maximum age is 0:01:40") as caught:
            self.find(keys, at=1_101)
        assert run_id in caught.value.message
        assert caught.value.where.endswith(run_id)

    def it_says_what_it_lacks(self, run_id: str) -> None:
        found = StagedRun(run_id, 1_000)
        assert found.warnings(1_000) == StagedRun().warnings(1_000) == []
        assert "is older than the minimum age" in found.warnings(1_001)[0]


def it_knows_which_keys_are_text() -> None:
    keys = columns_of(objects_of(["data/a", "data/\udcff", "data/é"])).keys
    assert is_text(keys).tolist() == [True, False, True]
    assert is_text(keys.take([0, 2])).tolist() == [True, True]
    assert strings_of(keys).to_pylist() == ["data/a", "data/\\xff", "data/é"]


def it_finds_a_namespace_inside_the_namespace() -> None:
    check_none_nested(columns_of(objects_of(["data/a", "_lakefs/x", "data/_lakefs", "a/_lakefs/x"])).keys)
    with pytest.raises(FormatError, match="at data/other"):
        check_none_nested(columns_of(objects_of(["data/a", "data/other/_lakefs/x"])).keys)


def it_makes_objects_of_columns_and_back() -> None:
    objects = objects_of(["data/a", "data/\udcff", ""])
    assert list(columns_of(objects).objects()) == objects
    mask = np.array([True, False, True])
    assert list(chosen(columns_of(objects), mask).objects()) == [objects[0], objects[2]]
    for columns in (columns_of([]), columns_of(objects)):
        assert (columns.keys.type, columns.e_tags.type) == (pa.binary(), pa.string())
        assert columns.sizes.dtype == columns.modified_us.dtype == np.int64


def it_lists_a_store_without_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "AT_ONCE", 2)
    for n in range(5):
        path = tmp_path / "data" / str(n % 2) / str(n)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(n))
    reader = open_namespace(str(tmp_path))
    listed = list(list_stored(reader, "data/"))
    assert [len(columns) for columns in listed] == [2, 2, 1]
    assert [one for columns in listed for one in columns.objects()] == list(reader.list_objects("data/"))
    assert list(list_stored(reader, "data/", recursive=False)) == []
    (tmp_path / "root").write_bytes(b"x")
    found = [one.key for columns in list_stored(reader, "data/1/") for one in columns.objects()]
    assert found == ["data/1/1", "data/1/3"]


def it_joins_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "AT_ONCE", 4)

    class Pages:
        def list_columns(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredColumns]:
            for n in range(5 if recursive else 1):
                yield columns_of([StoredObject(f"{prefix}{n}-{m}", n, m) for m in range(2)])

    listed = list(list_stored(Pages(), "data/"))  # type: ignore[arg-type]
    assert [len(columns) for columns in listed] == [4, 4, 2]
    keys = pa.concat_arrays([columns.keys for columns in listed]).to_pylist()
    assert keys == [f"data/{n}-{m}".encode() for n in range(5) for m in range(2)]
    assert [len(columns) for columns in list_stored(Pages(), "", recursive=False)] == [2]  # type: ignore[arg-type]
