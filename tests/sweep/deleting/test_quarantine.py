"""Parts whose objects are copied into quarantine before they are deleted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lakeplan.errors import StorageError
from lakeplan.formats.namespace import copied_key
from lakeplan.sweep import deleting
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Amount, Status
from lakeplan.values.sweep import GONE, MOVED
from tests.sweep.deleting.conftest import SETTINGS, Sweep, ends
from tests.sweeping.stores import QUARANTINE_PREFIX, SWEEP_PREFIX, FaultyStore, put_object, raising


class DescribeQuarantine:
    @pytest.fixture
    def sweep(self, sweep: Sweep) -> Sweep:
        sweep.settings = replace(SETTINGS, mode="quarantine")
        return sweep

    def it_deletes_nothing_before_everything_is_copied_and_noted(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/b"])
        store = FaultyStore(sweep.store)
        sweep.run(store)
        names = [name for name, args in store.calls if name in ("copy", "delete") or "copied/" in str(args)]
        assert names == ["copy", "copy", "put", "delete"]
        assert sweep.there(QUARANTINE_PREFIX) == {QUARANTINE_PREFIX + k for k in ("data/a", "data/b")}
        assert sweep.store.read(QUARANTINE_PREFIX + "data/a") == b"a"
        assert sweep.there() == set()
        key = copied_key(SWEEP_PREFIX, sweep.parts[0].name)
        assert sweep.store.read(key) == b'{"copied": 2, "not_copied": 0}'

    def it_writes_down_how_much_was_copied_after_every_batch(
        self, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(deleting, "COPIES_A_BATCH", 2)
        sweep.mark([f"data/{name}" for name in "abcde"])
        store = FaultyStore(sweep.store)
        store.before = raising(StorageError("the object is archived"), on="copy", key="data/b")
        sweep.run(store)
        notes = [args[1] for args in store.called("put") if "copied/" in args[0]]
        assert notes == [
            b'{"copied": 1, "not_copied": 1}',
            b'{"copied": 3, "not_copied": 1}',
            b'{"copied": 4, "not_copied": 1}',
        ]
        assert [len(keys) for (keys,) in store.called("delete")] == [1, 2, 1]

    def it_keeps_what_could_not_be_copied(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/b"])
        store = FaultyStore(sweep.store)
        store.before = raising(StorageError("the object is archived"), on="copy", key="data/b")
        (end,) = ends(sweep.run(store))
        assert end.reasons == {"failed: not copied: the object is archived": 1}
        assert sweep.there() == {"data/b"}

    def it_keeps_an_object_whose_copy_has_no_place(self, sweep: Sweep) -> None:
        # a file stands where the copy's folder should be: the system says "no such object" of the target
        sweep.mark(["data/a"])
        put_object(sweep.folder, QUARANTINE_PREFIX.rstrip("/"))
        answer = sweep.run()
        assert sweep.there() == {"data/a"}, answer

    def it_has_nothing_to_copy_of_an_object_that_is_gone_by_its_turn(self, sweep: Sweep) -> None:
        sweep.mark(["data/a"])
        store = FaultyStore(sweep.store)

        def remove(name: str, args: tuple[Any, ...]) -> None:
            if name == "copy":
                os.unlink(sweep.folder / "data/a")

        store.before = remove
        sweep.run(store)
        assert sweep.records == {"data/a": ("deleted", GONE)}
        assert [keys for (keys,) in store.called("find")] == [["data/a"]], "nothing is left to compare"

    def it_records_what_a_round_moved_that_ended_in_the_middle_of_the_part(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/b", "data/c"])
        for name in "ab":
            os.unlink(sweep.folder / f"data/{name}")
        put_object(sweep.folder, QUARANTINE_PREFIX + "data/a", b"a")
        put_object(sweep.folder, QUARANTINE_PREFIX + "data/b", b"not the whole object")
        sweep.run()
        assert sweep.records == {
            "data/a": ("deleted", MOVED),
            "data/b": ("deleted", GONE),
            "data/c": ("deleted", ""),
        }

    def it_asks_for_a_sample_of_what_was_moved_and_is_not_listed(self, sweep: Sweep) -> None:
        """A store that lists an object late, such as one that was restored in between."""
        sweep.mark([f"data/{n:03}" for n in range(10 * deleting.SAMPLE)])
        sweep.settings = replace(sweep.settings, verify_all=False)
        put_object(sweep.folder, QUARANTINE_PREFIX + "data/007", sweep.store.read("data/007"))
        store = FaultyStore(sweep.store)

        def find(keys: Sequence[str]) -> dict[str, StoredObject]:
            return {key: one for key, one in sweep.store.find(keys).items() if key != "data/007"}

        store.find = find  # type: ignore[attr-defined]
        (end,) = ends(sweep.run(store))
        assert end.reasons == {f"failed: {deleting.NOT_LISTED}": 1}

    def it_copies_nothing_that_is_saved(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/b"])
        sweep.saved = {"data/b": "held"}
        sweep.run()
        assert sweep.there(QUARANTINE_PREFIX) == {QUARANTINE_PREFIX + "data/a"}

    def it_says_what_a_full_disk_kept(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/b"])
        store = FaultyStore(sweep.store)
        store.before = raising(StorageError("cannot be used: No space left on device"), on="copy")
        (end,) = ends(sweep.run(store))
        assert end.amounts == {Status.FAILED: Amount(2, 2)}
        assert sweep.there() == {"data/a", "data/b"}
