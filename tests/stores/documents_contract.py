"""The behaviour of every state store. Inherited once per adapter."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lakeplan.errors import StorageError, WriteConflict
from lakeplan.stores.open import StateWriter

Open = Callable[[], StateWriter]


class StateContract:
    """Subclasses give ``open_again``: opens the same, at first empty store, as another process would."""

    @pytest.fixture
    def state(self, open_again: Open) -> StateWriter:
        return open_again()

    def it_has_nothing_at_first(self, state: StateWriter) -> None:
        assert state.read("leases/prod/repo.json") is None
        assert state.list_keys() == []

    def it_reads_what_was_written(self, state: StateWriter, open_again: Open) -> None:
        version = state.write("applied/prod/a.json", b'{"a": 1}', if_version=None)
        found = open_again().read("applied/prod/a.json")
        assert found is not None
        assert found.data == b'{"a": 1}'
        assert found.version == version

    def it_replaces_a_record_by_its_version(self, state: StateWriter) -> None:
        first = state.write("a", b"1", if_version=None)
        second = state.write("a", b"2", if_version=first)
        assert second != first
        found = state.read("a")
        assert found is not None
        assert (found.data, found.version) == (b"2", second)

    def it_does_not_overwrite_what_it_did_not_expect(self, state: StateWriter) -> None:
        state.write("a", b"1", if_version=None)
        with pytest.raises(WriteConflict):
            state.write("a", b"2", if_version=None)
        found = state.read("a")
        assert found is not None
        assert found.data == b"1"

    def it_refuses_an_old_version(self, state: StateWriter) -> None:
        old = state.write("a", b"1", if_version=None)
        state.write("a", b"2", if_version=old)
        with pytest.raises(WriteConflict):
            state.write("a", b"3", if_version=old)
        with pytest.raises(WriteConflict):
            state.delete("a", if_version=old)
        found = state.read("a")
        assert found is not None
        assert found.data == b"2"

    def it_refuses_a_version_of_a_record_that_is_gone(self, state: StateWriter) -> None:
        version = state.write("a", b"1", if_version=None)
        state.delete("a", if_version=version)
        with pytest.raises(WriteConflict):
            state.write("a", b"2", if_version=version)
        with pytest.raises(WriteConflict):
            state.delete("a", if_version=version)
        assert state.read("a") is None

    def it_refuses_to_delete_what_never_was(self, state: StateWriter) -> None:
        other = state.write("other", b"1", if_version=None)
        with pytest.raises(WriteConflict):
            state.delete("a", if_version=other)

    def it_takes_a_deleted_record_anew(self, state: StateWriter) -> None:
        for text in (b"1", b"2", b"3"):
            version = state.write("lease", text, if_version=None)
            assert state.list_keys() == ["lease"]
            state.delete("lease", if_version=version)
            assert state.read("lease") is None
            assert state.list_keys() == []

    def it_lets_one_of_two_writers_win(self, state: StateWriter, open_again: Open) -> None:
        other = open_again()
        version = state.write("lease", b"free", if_version=None)
        found = other.read("lease")
        assert found is not None
        assert found.version == version
        other.write("lease", b"other", if_version=found.version)
        with pytest.raises(WriteConflict):
            state.write("lease", b"mine", if_version=version)
        found = state.read("lease")
        assert found is not None
        assert found.data == b"other"

    def it_lists_keys_sorted_and_by_prefix(self, state: StateWriter) -> None:
        for key in ("history/2", "history/1", "leases/prod/a b.json", "leases/prod-2/x", "top"):
            state.write(key, b"1", if_version=None)
        assert state.list_keys() == [
            "history/1", "history/2", "leases/prod-2/x", "leases/prod/a b.json", "top",
        ]  # fmt: skip
        assert state.list_keys("leases/prod") == ["leases/prod-2/x", "leases/prod/a b.json"]
        assert state.list_keys("history/") == ["history/1", "history/2"]
        assert state.list_keys("nothing/") == []

    @pytest.mark.parametrize(
        "key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".lock", "a/.x", "a\nb", "a\\b"]
    )
    def it_refuses_keys_that_are_none(self, state: StateWriter, key: str) -> None:
        with pytest.raises(StorageError, match="cannot be the key"):
            state.write(key, b"1", if_version=None)
        with pytest.raises(StorageError, match="cannot be the key"):
            state.read(key)

    def it_refuses_an_empty_record(self, state: StateWriter) -> None:
        with pytest.raises(StorageError, match="cannot be empty"):
            state.write("a", b"", if_version=None)
        assert state.read("a") is None

    def it_names_the_place_of_a_conflict(self, state: StateWriter) -> None:
        state.write("a/b", b"1", if_version=None)
        with pytest.raises(WriteConflict) as caught:
            state.write("a/b", b"2", if_version=None)
        assert caught.value.where.endswith("/a/b")
        assert caught.value.hint


def count_winners(open_again: Open, rounds: int, writers: int = 4) -> list[int]:
    """Per round, how many of several threads, each with its own connection, took the same record."""
    barrier = threading.Barrier(writers)
    stores = [open_again() for _ in range(writers)]
    stores[0].write("start", b"1", if_version=None)
    wins = [[False] * writers for _ in range(rounds)]

    def compete(index: int) -> None:
        for turn in range(rounds):
            barrier.wait()
            try:
                stores[index].write(f"lease-{turn}", f"writer {index}".encode(), if_version=None)
            except WriteConflict:
                continue
            wins[turn][index] = True

    threads = [threading.Thread(target=compete, args=(index,)) for index in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [sum(row) for row in wins]
