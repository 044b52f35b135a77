"""The store: a request is one transaction."""

from __future__ import annotations

import pytest

from lakeplan.errors import UsageError
from lakeplan.sandbox.state import Store


def test_an_error_leaves_nothing_behind(tmp_path):
    store = Store(tmp_path / "state.db")

    def fail():
        with store.transaction():
            store.run("INSERT INTO tags VALUES ('r', 'v1', 'c')")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with store.transaction():
        assert store.rows("SELECT * FROM tags") == []
        store.run("INSERT INTO tags VALUES ('r', 'v2', 'c')")
    store.close()
    again = Store(tmp_path / "state.db")
    assert again.rows("SELECT id FROM tags") == [("v2",)]
    again.close()


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_named(tmp_path, folder):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot use the sandbox's data") as caught:
        Store(tmp_path / folder / "state.db")
    assert str(tmp_path / folder) in caught.value.where
