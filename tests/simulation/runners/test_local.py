"""Steps in threads: every packet comes to its place once, through memory or through a file."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeplan.errors import SimulationFailed
from lakeplan.simulation.local import LocalRunner, Packet, PacketKind
from lakeplan.simulation.runners import Step

PLACES = 4
packets = st.builds(
    Packet,
    st.integers(0, PLACES - 1),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from([PacketKind.ROWS, PacketKind.TEXTS, PacketKind.ERROR]).map(int),
    st.binary(max_size=40),
)


def spread_of(sent: list[list[Packet]]) -> Step:
    """A step that turns each bin into its packets."""

    def run(packets: Iterable[Packet], shared: Any) -> Iterator[Packet]:
        for packet in packets:
            yield from sent[int(packet.data)]

    return Step(run, 0)


def plain(packets: Iterable[Packet]) -> list[Packet]:
    """The packets' data as bytes, in order."""
    return sorted(packet._replace(data=bytes(packet.data)) for packet in packets)


def meeting(packets: Iterable[Packet], shared: Any) -> Iterator[Packet]:
    """What came to a place, as the packets of the next step."""
    for packet in plain(packets):
        yield packet._replace(place=(packet.place + 1) % PLACES, part=packet.part + shared)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def spilled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[IO[bytes]]:
    """Temporary files that were opened."""
    found: list[IO[bytes]] = []
    real = tempfile.TemporaryFile

    def opened(**options: Any) -> IO[bytes]:
        found.append(real(**options))
        return found[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", opened)
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(
    st.lists(st.lists(packets, max_size=8), min_size=1, max_size=5),
    st.sampled_from([1, 30, 1 << 20]),
    st.integers(1, 3),
)
def test_every_piece_comes_to_its_place_once(
    folder: Path, sent: list[list[Packet]], memory: int, threads: int
) -> None:
    runner = LocalRunner(threads, memory_bytes=memory)
    steps = [spread_of(sent), Step(meeting, PLACES), Step(meeting, PLACES)]
    found = list(runner.run([str(n).encode() for n in range(len(sent))], steps, 10))
    expected = [p._replace(place=(p.place + 2) % PLACES, part=p.part + 20) for bin_ in sent for p in bin_]
    assert plain(found) == sorted(expected)
    assert list(folder.iterdir()) == []


def it_writes_to_disk_what_is_more_than_its_memory(folder: Path, spilled: list[IO[bytes]]) -> None:
    sent = [[Packet(n % PLACES, 0, 0, PacketKind.ROWS, bytes([n]) * 1_000) for n in range(100)]]
    most = 0

    def weighing(packets: Iterable[Packet], shared: Any) -> Iterator[Packet]:
        nonlocal most
        most = max(most, sum(os.fstat(file.fileno()).st_size for file in spilled))
        assert list(folder.iterdir()) == []  # nothing stays, even after kill -9
        yield from packets

    found = list(LocalRunner(1, memory_bytes=5_000).run([b"0"], [spread_of(sent), Step(weighing, PLACES)], 0))
    assert plain(found) == sorted(sent[0])
    assert most >= 95_000


def it_brings_the_error_of_a_step_and_leaves_no_file(folder: Path) -> None:
    def failing(packets: Iterable[Packet], shared: Any) -> Iterator[Packet]:
        list(packets)
        raise SimulationFailed("cannot meet")
        yield

    sent = [[Packet(0, 0, 0, PacketKind.ROWS, b"x" * 100)]]
    with pytest.raises(SimulationFailed, match="cannot meet"):
        list(LocalRunner(2, memory_bytes=1).run([b"0"], [spread_of(sent), Step(failing, 1)], 0))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("when", ["at once", "later"])
def it_says_in_one_line_that_the_disk_is_full(
    folder: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> IO[bytes]:
        if when == "later":
            return open("/dev/full", "r+b")  # closing it tries to write again
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    sent = [[Packet(0, 0, 0, PacketKind.ROWS, b"x" * 100)]]
    with pytest.raises(SimulationFailed, match="No space left") as error:
        list(LocalRunner(1, memory_bytes=1).run([b"0"], [spread_of(sent), Step(meeting, PLACES)], 0))
    assert "TMPDIR" in error.value.hint


def it_leaves_no_credentials_of_steps_in_files(spilled: list[IO[bytes]]) -> None:
    """A step carries the readers; what is sent between steps does not."""
    secret = "a-secret-that-travels"
    sent = [[Packet(0, 0, 0, PacketKind.ROWS, b"x" * 100)] * 50]
    spread = spread_of(sent)

    def reading(packets: Iterable[Packet], shared: Any) -> Iterator[Packet]:
        assert secret
        return spread.run(packets, shared)

    def weighing(packets: Iterable[Packet], shared: Any) -> Iterator[Packet]:
        sizes = {file.fileno(): os.fstat(file.fileno()).st_size for file in spilled}
        assert sum(sizes.values()) > 0
        assert all(secret.encode() not in os.pread(number, size, 0) for number, size in sizes.items())
        yield from packets

    steps = [Step(reading, 0), Step(weighing, 1)]
    assert len(list(LocalRunner(1, memory_bytes=1).run([b"0"], steps, None))) == 50


def it_does_not_wait_for_what_still_reads_when_it_is_interrupted(folder: Path, ctrl_c: None) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def read(packets: Iterable[Packet], shared: Any) -> Iterator[Packet]:
        begun.set()
        go_on.wait(20)
        return iter(())

    def interrupt() -> None:
        begun.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    began = time.monotonic()
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            list(LocalRunner(2).run([b"0"] * 9, [Step(read, 0)], None))
        assert time.monotonic() - began < 10
        assert list(folder.iterdir()) == []
    finally:
        go_on.set()
