from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakeplan.errors import StorageError
from lakeplan.stores.open import open_state
from tests.stores.documents_contract import Open, StateContract, count_winners

COUNTER = """
import sys
from lakeplan.stores.open import open_state
from lakeplan.errors import WriteConflict
state = open_state(sys.argv[1])
for _ in range(int(sys.argv[2])):
    while True:
        found = state.read("counter")
        value = int(found.data) if found else 0
        try:
            state.write("counter", b"%d" % (value + 1), if_version=found.version if found else None)
        except WriteConflict:
            continue
        break
"""

WRITER = """
import sys
from lakeplan.stores.open import open_state
state = open_state(sys.argv[1])
found = state.read("record")
version = found.version if found else None
letter = 0
print("ready", flush=True)
while True:
    letter = (letter + 1) % 26
    version = state.write("record", bytes([65 + letter]) * 300_000, if_version=version)
"""


class DescribeFolderState(StateContract):
    @pytest.fixture
    def open_again(self, tmp_path: Path) -> Open:
        return lambda: open_state((tmp_path / "new/state folder").as_uri())

    def it_lets_one_of_several_threads_win(self, open_again: Open) -> None:
        assert count_winners(open_again, rounds=20) == [1] * 20

    def it_loses_no_write_of_several_processes(self, tmp_path: Path) -> None:
        command = [sys.executable, "-c", COUNTER, tmp_path.as_uri(), "50"]
        workers = [subprocess.Popen(command) for _ in range(3)]
        assert [worker.wait(timeout=300) for worker in workers] == [0, 0, 0]
        found = open_state(tmp_path.as_uri()).read("counter")
        assert found is not None
        assert int(found.data) == 150

    def it_has_a_whole_record_after_a_writer_was_killed(self, tmp_path: Path) -> None:
        url = tmp_path.as_uri()
        for pause in (0.0, 0.01, 0.03, 0.07):
            with subprocess.Popen(
                [sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True
            ) as writer:
                assert writer.stdout is not None
                assert writer.stdout.readline() == "ready\n"
                time.sleep(pause + 0.02)
                writer.send_signal(signal.SIGKILL)
            state = open_state(url)
            found = state.read("record")
            if found is not None:
                assert len(found.data) == 300_000
                assert len(set(found.data)) == 1
            assert state.list_keys() in ([], ["record"])
        version = state.write("after", b"1", if_version=None)
        state.delete("after", if_version=version)
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".new-")]

    def it_says_that_a_folder_stands_where_a_record_should(self, tmp_path: Path) -> None:
        state = open_state(tmp_path.as_uri())
        state.write("a/b", b"1", if_version=None)
        with pytest.raises(StorageError):
            state.write("a", b"1", if_version=None)

    def it_reads_without_making_anything(self, tmp_path: Path) -> None:
        state = open_state((tmp_path / "new").as_uri())
        assert state.read("a") is None
        assert state.list_keys() == []
        assert not (tmp_path / "new").exists()

    def it_does_not_wait_forever_for_a_process_that_was_stopped_while_it_wrote(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakeplan.values.own_files.LOCK_SECONDS", 0.1)
        state = open_state(tmp_path.as_uri())
        version = state.write("a", b"1", if_version=None)
        with (tmp_path / ".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(StorageError, match="the state folder is locked by another process"):
                state.write("a", b"2", if_version=version)
        state.write("a", b"3", if_version=version)

    def it_does_not_take_a_file_in_the_place_of_a_folder_for_no_records(self, tmp_path: Path) -> None:
        state = open_state(tmp_path.as_uri())
        state.write("applied/prod/a.json", b"1", if_version=None)
        (tmp_path / "history").write_text("")
        assert state.list_keys("applied/") == ["applied/prod/a.json"]
        for read in (state.list_keys, state.read):
            with pytest.raises(StorageError, match="must be a folder, but it is a file") as caught:
                read("history/x/y")
            assert "history" in caught.value.where
        with pytest.raises(StorageError, match="must be a folder, but it is a file"):
            open_state((tmp_path / "history").as_uri()).list_keys("applied/")
