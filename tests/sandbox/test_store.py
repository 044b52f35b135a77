"""The store: a request is one transaction."""

from __future__ import annotations

import pytest

from lakeplan.sandbox.records import Store


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
