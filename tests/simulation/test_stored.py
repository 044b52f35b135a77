from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import FormatError
from lakeplan.formats.namespace import is_candidate_key
from lakeplan.formats.range_arrays import hash_texts
from lakeplan.simulation import listings
from lakeplan.simulation.listings import (
    candidates,
    check_none_nested,
    chosen,
    columns_of,
    hash_strings,
    is_text,
    list_stored,
    strings_of,
)
from lakeplan.stores.open import open_namespace
from lakeplan.stores.protocols import StoredColumns
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


def it_joins_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "AT_ONCE", 4)

    class Pages:
        def list_columns(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredColumns]:
            for n in range(5):
                yield columns_of([StoredObject(f"{prefix}{n}-{m}", n, m) for m in range(2)])

    listed = list(list_stored(Pages(), "data/"))  # type: ignore[arg-type]
    assert [len(columns) for columns in listed] == [4, 4, 2]
    keys = pa.concat_arrays([columns.keys for columns in listed]).to_pylist()
    assert keys == [f"data/{n}-{m}".encode() for n in range(5) for m in range(2)]
